"""A log that is followed, with what its sandbox asks for in its place."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from queue import Empty, Queue
from threading import Thread
from typing import Any

from agent_server_client._sync import Client, Conversation, Destination, PendingAction
from agent_server_client.cli.asking import Outcome
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.program import CommandSession
from agent_server_client.errors import AgentServerError
from agent_server_client.visible import beginning, in_line
from agent_server_client.wire import STOPPED, Entry, Tries, status_of

#: what a log shows, and what a person is asked about
Shown = Entry | PendingAction | Destination

#: what is read in the background: something that is shown, an error, or None for the end
_Read = Shown | BaseException | None

#: seconds after which the time that is left is looked at again
_LONGEST_WAIT = 60.0

#: entries that are read ahead of what is shown
_AHEAD = 1_000

#: seconds for which the reason of a rejection may be behind the status, and between two looks
_BEHIND, _POLL = 2.0, 0.1

#: seconds in which the server tells an agent what is allowed now; it may have to wake its sandbox
_TOLD = 30.0

#: most entries that are read to know what an agent does that works already
_EARLIER = 200

#: characters of an error in the reason of a stop
_LONGEST = 300


def watched(
    session: CommandSession,
    conversation: Conversation,
    entries: Iterable[Entry | PendingAction],
    after: int,
    *,
    actions: bool = False,
    left: Callable[[], float] = lambda: inf,
) -> Iterator[Shown]:
    """The entries of a log, and each destination and budget of the conversation as soon as it waits.

    What waited before comes after the entries that were there before, and what still waits after the last entry.
    after: the seq that the entries come after. actions: also each action that waits, for a log that has none.
    Something that waits may come twice. left: seconds until TimeoutError is raised.
    """
    client, sandbox = conversation.client, _sandbox_of(conversation)
    if sandbox is None and not actions:
        yield from entries
        return
    behind = conversation.count()
    read: Queue[_Read] = Queue(_AHEAD)
    watching = _Watching(conversation, sandbox, actions)

    def read_log() -> None:
        try:
            for one in entries:
                read.put(one)
            read.put(None)
        except BaseException as error:  # the reader of the queue raises it
            read.put(error)

    def read_inbox(inbox: Client) -> None:
        # A server that cannot say it here says it at the end, and a closed client (RuntimeError) ends the thread.
        with contextlib.suppress(AgentServerError, RuntimeError):
            for name, data in inbox.inbox(destinations=True):
                for one in watching.of_stream(client, name, data):
                    read.put(one)

    Thread(target=read_log, daemon=True).start()
    asking = Thread(target=read_inbox, args=(session.client(patient=True, is_quiet=True),), daemon=True)
    if behind <= after:
        asking.start()
    while (one := _next_of(read, left)) is not None:
        if isinstance(one, BaseException):
            raise one
        if isinstance(one, Entry):
            watching.note(one)
        yield one
        if isinstance(one, Entry) and (one.seq or 0) >= behind and asking.ident is None:
            asking.start()
    if sandbox is not None:
        with contextlib.suppress(AgentServerError):
            yield from watching.still(client.destinations())


def _next_of(read: Queue[_Read], left: Callable[[], float]) -> _Read:
    """The next of a queue. Raises TimeoutError once no time is left."""
    while (seconds := left()) > 0:
        with contextlib.suppress(Empty):
            return read.get(timeout=min(seconds, _LONGEST_WAIT))
    raise TimeoutError


def _says_no_model(event: dict[str, Any]) -> bool:
    """Whether the bundled agent says of a message that it has no model. What a model says has the id of a response."""
    if event["kind"] != "MessageEvent" or event["source"] != "agent" or event.get("llm_response_id"):
        return False
    parts = event["llm_message"]["content"]
    return bool(parts) and str(parts[0].get("text", "")).startswith("No model is set")


class RunState:
    """What a follower knows of a run. seen: the seq of the last entry."""

    def __init__(self, after: int) -> None:
        self.status, self.seen = "", after
        self.allowed: list[Destination] = []  #: since the agent has last acted
        self._acts_after = 0  #: the seq of the last entry before the last of them was allowed
        self._reason = ""
        self.lacks_reason = False  #: an action was decided or has expired, and the log does not say how
        self.lacks_model = False  #: the agent has said so, and has done nothing since

    @property
    def has_stopped(self) -> bool:
        return self.status in STOPPED

    @property
    def why(self) -> str:
        """Its status, with the reason where the log has one."""
        return f"{self.status}{self._reason}"

    def note(self, entry: Entry) -> None:
        event = entry.event
        kind, status = str(event["kind"]).rpartition(".")[2], status_of(event)
        self.seen = max(self.seen, entry.seq or 0)
        self.status = status or self.status
        self.lacks_model = _says_no_model(event) or (self.lacks_model and kind != "ActionEvent")
        if status == "waiting_for_confirmation":
            self.lacks_reason = True
        elif status == "running":
            self._reason, self.lacks_reason = "", False
        elif kind == "UserRejectObservation":
            reason = str(event.get("rejection_reason") or "").removesuffix(".")
            self._reason = f", because an action was rejected{': ' if reason else ''}{reason}"
            self.lacks_reason = False
        elif "Error" in kind:
            first = str(event.get("error") or event.get("detail") or "").partition("\n")[0]
            self._reason = f": {beginning(first, _LONGEST).removesuffix('.')}"
        elif kind == "ActionEvent" and (entry.seq or 0) > self._acts_after:
            self.allowed.clear()

    def decided(self, waiting: PendingAction | Destination, outcome: Outcome, count: Callable[[], int]) -> None:
        """count: of the entries of the log."""
        if isinstance(waiting, Destination) and outcome == "approved":
            self.allowed.append(waiting)
            self._acts_after = count()

    @property
    def message(self) -> str:
        """What tells the agent what is allowed now."""
        names = [one.id for one in self.allowed if not one.budget]
        words = [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} allowed now"] if names else []
        if len(names) < len(self.allowed):
            words.append(f"{'the' if names else 'The'} budget of models allows more now")
        return f"{' and '.join(words)}, try again."

    def offer(self, conversation: Conversation, approver: Approver, *, is_followed: bool = False) -> bool:
        """Have the agent told what is allowed now: by the server, which does so by itself, or else by the person.

        is_followed: the log is followed anyway. Returns whether the agent was told.
        """
        if not self.allowed or not self.has_stopped:
            return False
        message = self.message
        self.allowed.clear()
        if tells_by_itself(conversation) and (is_followed or self._is_told(conversation, approver)):
            return True
        if not approver.says_yes(f"Send the agent “{in_line(message)}”?"):
            return False
        conversation.send(message, rejects=False)
        return True

    def _is_told(self, conversation: Conversation, approver: Approver) -> bool:
        """Whether the server tells the agent within a few seconds; its message is in the log then."""
        approver.say("The server tells the agent, which goes on.")
        tries = Tries(_TOLD)
        while not tries.are_over:
            if any(one.event.get("source") == "user" for one in conversation.log(self.seen)):
                return True
            time.sleep(_POLL)
        return False


def tells_by_itself(conversation: Conversation) -> bool:
    """Whether the server tells the agent of a conversation by itself what is allowed now."""
    with contextlib.suppress(AgentServerError):
        [found] = conversation.client.get("/api/v1/app-conversations", ids=conversation.id)
        return bool(found and found.get("goes_on_when_allowed"))
    return False


def before(conversation: Conversation, after: int) -> Iterator[Entry]:
    """The last entries up to a seq."""
    if not after:
        return
    for one in conversation.log(max(0, after - _EARLIER)):
        if (one.seq or 0) > after:
            return
        yield one


def rest_of(conversation: Conversation, run: RunState) -> Iterator[Entry]:
    """What the log has after the status that ended a run: it may say why an action was rejected a moment later."""
    tries = Tries(_BEHIND)
    while True:
        yield from conversation.log(run.seen)
        if not run.lacks_reason or run.status != "idle" or tries.are_over:
            return
        time.sleep(_POLL)


class _Watching:
    """Tells what belongs to a conversation of what waits."""

    def __init__(self, conversation: Conversation, sandbox: str | None, actions: bool) -> None:
        self._id, self._sandbox, self._actions = conversation.id, sandbox, actions
        self._refused_by = ""  #: the last error of the agent, which names the setting of a budget

    def note(self, entry: Entry) -> None:
        if "Error" in str(entry.event["kind"]):
            self._refused_by = f"{entry.event.get('error') or ''}{entry.event.get('detail') or ''}"

    def of_stream(self, client: Client, name: str, data: Any) -> list[Shown]:
        """What an event of the inbox opens here."""
        if name in ("destinations", "destination_opened"):
            items = data["items"] if name == "destinations" else [data]
            return [Destination(client, item) for item in items if self._is_here(item)]
        if not self._actions or name not in ("snapshot", "opened"):
            return []
        items = data["items"] if name == "snapshot" else [data] if "digest" in data else []
        return [PendingAction(client, item) for item in items if item["conversation_id"] == self._id]

    def still(self, waiting: list[Destination]) -> list[Destination]:
        """What of everything that waits stopped the agent, with a budget of the key or the day that others used up."""
        budgets = [one for one in waiting if one.budget and one.budget["setting"] in self._refused_by]
        return [one for one in waiting if self._is_here(one.item) or (len(budgets) == 1 and one in budgets)]

    def _is_here(self, item: Any) -> bool:
        return item["sandbox_id"] == self._sandbox and item["conversation_id"] in (None, self._id)


def _sandbox_of(conversation: Conversation) -> str | None:
    """The id of the sandbox of a conversation; None where it has none, or the server does not say."""
    with contextlib.suppress(AgentServerError):
        [found] = conversation.client.get("/api/v1/app-conversations", ids=conversation.id)
        return str(found["sandbox_id"]) if found and found["sandbox_id"] else None
    return None
