"""What others decide while a question is open at this terminal."""

import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from threading import Thread
from typing import Any

from agent_server_client._sync import Client, Conversation
from agent_server_client.cli.decided import decider
from agent_server_client.cli.questions import Read, typed_line
from agent_server_client.errors import AgentServerError
from agent_server_client.visible import visible
from agent_server_client.wire import Tries

#: ended waits that are remembered, of all conversations: a question opens soon after its action was read
_MOST_ENDED = 1_000


#: seconds between two looks whether the inbox has told an end
_POLL = 0.1


class DecidedElsewhere(Exception):
    """What was asked about no longer waits; the message says who decided it."""


class Elsewhere:
    """Follows the inbox or a conversation, and knows of each wait that has ended how it ended."""

    def __init__(self) -> None:
        self._asked: set[str] = set()  #: what a question is or was open about
        self._snapshot: set[str] = set()
        self._ended: dict[str, str] = {}

    def follow(self, client: Client) -> None:
        """Follow the inbox in the background. A key that may not read it learns nothing."""

        def read() -> None:
            with suppress(AgentServerError, RuntimeError):  # a closed client raises RuntimeError
                for name, data in client.inbox(destinations=True):
                    self.take(name, data)

        Thread(target=read, daemon=True).start()

    def follow_deletion(self, conversation: Conversation) -> None:
        """Notice in the background that a conversation is deleted; its key is its id. One that starts is not there."""

        def read() -> None:
            try:
                for _ in conversation.events(conversation.count()):
                    pass
            except AgentServerError as error:
                if error.status in (404, 410):
                    self._ended[conversation.id] = "Somebody has deleted it meanwhile."
            except RuntimeError:  # the client was closed
                pass

        Thread(target=read, daemon=True).start()

    def reader(self, keys: AbstractSet[str]) -> Read:
        """Reads a line at the terminal, and raises DecidedElsewhere once one of these no longer waits."""
        self.ask(keys)
        return lambda: typed_line(lambda: self.check(keys))

    def take(self, name: str, data: Any) -> None:
        """Take an event of the inbox."""
        kind = name.removeprefix("destination_")
        if kind in ("decided", "expired", "closed"):
            self._ended[_key(data)] = how_it_ended(kind, data)
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]
        elif kind == "opened":
            self._ended.pop(_key(data), None)
        elif name == "reset":
            self._snapshot.clear()
        elif name in ("snapshot", "destinations"):
            self._snapshot |= {_key(item) for item in data["items"]}
        elif name == "ready":
            for key in self._asked - self._snapshot:
                self._ended.setdefault(key, "It no longer waits: somebody has decided it, or its agent was stopped.")

    def ask(self, keys: AbstractSet[str]) -> None:
        """Note that a question opens."""
        self._asked |= keys

    def how(self, keys: AbstractSet[str], seconds: float) -> str:
        """How the first of these has ended, once that is known; "" if it is not within so many seconds."""
        tries = Tries(seconds)
        while True:
            for key in keys:
                if key in self._ended:
                    return self._ended[key]
            if tries.are_over:
                return ""
            time.sleep(_POLL)

    def check(self, keys: AbstractSet[str]) -> None:
        """Raise DecidedElsewhere where one of these no longer waits."""
        for key in keys:
            if key in self._ended:
                raise DecidedElsewhere(self._ended[key])


def key_of_destination(data: Any) -> str:
    """What tells a destination or a budget from every other one."""
    of = data["budget"]["setting"] if data.get("budget") else f"{data['name']}:{data['port']}"
    return f"{data['sandbox_id']} {of}"


def _key(data: Any) -> str:
    return str(data["action_id"]) if "action_id" in data else key_of_destination(data)


def how_it_ended(kind: str, data: Any) -> str:
    """A sentence about the end of a wait. kind: `decided`, `expired` or `closed`, as the inbox tells it."""
    if kind == "expired":
        return "Its time is over: the server has rejected it."
    if kind == "closed":
        return "It no longer waits, and nobody has decided it: the agent was stopped or deleted."
    if data["decision"] == "withdrawn":
        return "Its agent asks no more: it has ended, or was stopped."
    who = decider(data.get("actor") or {"name": "somebody else"})
    reason = visible(data.get("reason") or "", prose=True).strip()
    decision = {"approve": "approved", "reject": "rejected", "edit": "approved with an edit"}.get(data["decision"])
    end = "" if reason.endswith((".", "!", "?")) else "."
    return f"It was {decision or 'decided'} by {who}{': ' if reason else ''}{reason}{end}"
