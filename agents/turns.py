"""Turns: a user's message, and what the agent does until it stops, returned as a response.

A turn is read from the log, so any worker can return it, also after another worker was killed. A client that repeats a
message while the agent works on it follows that turn, and nothing is sent. The response reports when an action starts
waiting for a decision, and its outcome. The turn continues meanwhile.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from core.approvals import shown_arguments
from core.cuts import beginning, head_and_tail
from core.masking import HIDDEN
from core.refused import RefusalKind, Refused
from core.visible import visible
from core.wire import ConversationId, bare_kind
from store import Store
from store.approvals.effects import finish_message, message_claim
from store.errors import ConversationNotFound
from store.log.feed import FeedEntry, Follower, Reading
from store.log.text import texts
from store.sandboxes.sandboxes import SandboxId

#: Statuses of an inactive agent.
STOPPED = ("idle", "paused", "finished", "error", "stuck")

#: Grace period in seconds: an agent that ends an earlier run may start the next one.
_SETTLES = 1.0

#: Timeout in seconds for an agent to begin to work on a message.
_BEGINS = 15.0

#: Time of silence in seconds after which we check whether the agent still has a sandbox.
_LOOKS = 5.0

#: Maximum number of characters: of a pending action's arguments, of a reason, and of an agent's step.
_MOST_ARGUMENTS, _MOST_REASON, _MOST_STEP = 4000, 1000, 500

_TICKS = re.compile("`+")


class AgentStopped(Refused):
    """The agent was paused before the turn ended."""

    kind = RefusalKind.CONFLICT
    words = "The agent was paused: send a message with the id of its conversation, and it goes on"


class AgentFailed(Refused):
    """The agent failed during the turn, or did not start."""

    kind = RefusalKind.BAD_AGENT


class TurnNotDone(Refused):
    """The turn takes longer than the call waits. It continues."""

    kind = RefusalKind.LATER

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The agent still works after {seconds:g} s (COMPLETION_SECONDS): send the same message again with the id "
            "of its conversation to wait on, or ask for a stream"
        )


class Piece(NamedTuple):
    """A part of a reply: text of the agent, an outcome of its actions (`note`), or its work (`step`)."""

    kind: Literal["text", "note", "step"]
    text: str


class MessageTurn(Reading):
    """The turn of a message, from a follower of its conversation. The agent continues after `close`."""

    def __init__(
        self,
        store: Store,
        conversation_id: ConversationId,
        follower: Follower,
        content: Sequence[Mapping[str, Any]],
        *,
        has_run: bool,
        place: str,
    ) -> None:
        """content: of the message, which comes after the follower's cursor. has_run: the agent was running when the
        message was sent. place: URL where a person decides pending actions.
        """
        super().__init__(follower)
        self._store = store
        self._id = conversation_id
        self._claim = message_claim(list(content))
        self._place = place
        self._has_begun = False  #: the message is in the log
        self._has_run = has_run
        self._status = ""
        self._stopped_at: float | None = None
        self._asks = False  #: pending actions must be read
        self._told = set[str]()  #: reported actions
        self._is_rejected = False
        self._error = ""
        self._pieces = list[Piece]()
        self._since = self._looked_at = time.monotonic()
        self.has_spoken = False
        self.waits = False
        self.is_over = False
        self.failure: Refused | None = None

    @property
    def seq(self) -> int:
        """Return the seq of the last event that was read."""
        return self._follower.seq

    def stats(self) -> dict[str, Any]:
        """Return the agent's reported use of models. Cost: one round trip."""
        [state] = self._store.conversations.get_many([self._id])
        return state["stats"] if state else {}

    def next(self, timeout: float) -> list[Piece]:
        """Return the next pieces; empty on timeout, in seconds, and at the end.

        Raises the errors of a follower. After one of UNAVAILABLE call it again; nothing is lost.
        """
        due = timeout if self._stopped_at is None else min(timeout, _SETTLES)
        entries = self._follower.next(due)
        for entry in entries:
            self._take(entry)
        if self._asks:
            self._ask()
        if not self.closed:
            self._end(is_quiet=not entries)
        pieces, self._pieces = self._pieces, []
        return pieces

    def _take(self, entry: FeedEntry) -> None:
        if not entry.raw:  # a run has ended without an event
            return
        fields = entry.fields
        kind, source = bare_kind(fields["kind"]), fields.get("source")
        if not self._has_begun:
            self._has_begun = kind == "MessageEvent" and source == "user" and self._is_it(fields)
            return
        if kind == "ConversationStateUpdateEvent" and fields.get("key") == "execution_status":
            self._move(str(fields.get("value")))
        elif kind == "MessageEvent" and source == "agent":
            self._say("\n".join(texts((fields.get("llm_message") or {}).get("content"))))
        elif kind == "ActionEvent":
            self._act(fields)
        elif kind == "UserRejectObservation":
            self._is_rejected = True
            self._note(f"**Rejected**: {_one_line(fields.get('rejection_reason'), _MOST_REASON)}")
        elif kind == "ConversationErrorEvent":
            self._error = _one_line(fields.get("detail") or fields.get("code"), _MOST_REASON)

    def _is_it(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a user's message is the message of this turn. A message with a masked secret counts."""
        return matches_claim(fields, self._claim) or any(HIDDEN in text for text in _texts_of(fields))

    def _act(self, fields: Mapping[str, Any]) -> None:
        self._has_run = True
        finished = finish_message(dict(fields))
        if finished is not None:
            self._say(finished)
        elif fields.get("action") is not None:
            thought = " ".join(texts(fields.get("thought")))
            command, summary = _command(fields["action"]), str(fields.get("summary") or "")
            did = f"{fields.get('tool_name')}: {command}"
            said = summary if summary not in (command, thought) else ""  # the agent's own words, in addition
            lines = [_one_line(line, _MOST_STEP) for line in (thought, said, did) if line.strip()]
            self._pieces.append(Piece("step", "\n".join(lines)))
            self._asks = self._asks or self.waits

    def _say(self, text: str) -> None:
        self._has_run = True
        if text:
            self.has_spoken = True
            self._pieces.append(Piece("text", text))

    def _note(self, text: str) -> None:
        self._pieces.append(Piece("note", text))

    def _move(self, status: str) -> None:
        """Apply a new status of the conversation."""
        waited, self.waits = self.waits, status == "waiting_for_confirmation"
        self._status = status
        if self.waits:
            self._asks, self._is_rejected = True, False
        elif waited and status == "running" and not self._is_rejected and self._told:
            self._note("**Approved**")
        if status in STOPPED:
            self._stopped_at = time.monotonic() if self._has_run else None
        else:
            self._has_run, self._stopped_at = True, None

    def _ask(self) -> None:
        """Report pending actions, each once."""
        for action in self._store.approvals.confirmations.shown_pending(self._id) if self.waits else ():
            if action["id"] not in self._told:
                self._told.add(action["id"])
                self._note(describe_pending(action, self._place))
        self._asks = False

    def _end(self, *, is_quiet: bool) -> None:
        """Check whether the agent has stopped working on this message. The store's status decides."""
        now = time.monotonic()
        if not is_quiet:
            self._looked_at = now
        elif now - self._looked_at > _LOOKS:
            self._looked_at = now
            if self._is_left():
                self.is_over, self.failure = True, AgentFailed("The sandbox of the agent was deleted")
                return
        if self._stopped_at is not None:
            is_good = self._status in ("idle", "finished")
            if is_good and not self.has_spoken and now - self._stopped_at < _SETTLES:
                return
        elif self._has_run or not is_quiet or now - self._since < _BEGINS:
            return
        [state] = self._store.conversations.get_many([self._id])
        if state is None:
            raise ConversationNotFound
        status = state["execution_status"]
        if status not in STOPPED:
            self._stopped_at, self._since = None, now
            return
        self.is_over = True
        if not self._has_run or status in ("error", "stuck"):
            words = f"ended with the status {status}" if self._has_run else "did not begin to work on the message"
            self.failure = AgentFailed(f"The agent {words}" + (f": {self._error}" if self._error else ""))
        elif status == "paused":
            self.failure = AgentStopped(f"{AgentStopped.words} ({self._error})" if self._error else "")

    def _is_left(self) -> bool:
        """Return whether the conversation's sandbox is gone, which its state does not show. Cost: two round trips."""
        sandbox_id = self._store.conversations.sandbox_of(self._id)
        if sandbox_id is None:
            return False
        [sandbox] = self._store.sandboxes.get_many([SandboxId(sandbox_id)])
        return sandbox is None or sandbox.wanted == "deleted"


def matches_claim(message: Mapping[str, Any], claim: str) -> bool:
    """Return whether a MessageEvent has the texts and images of a `message_claim`."""
    return message_claim((message.get("llm_message") or {}).get("content")) == claim


def _texts_of(message: Mapping[str, Any]) -> list[str]:
    return texts((message.get("llm_message") or {}).get("content"))


def describe_pending(action: Mapping[str, Any], place: str) -> str:
    """Describe a pending action in Markdown. Text of the agent is never interpreted as Markdown, or hidden.

    action: from `shown_pending`. place: URL where a person decides.
    """
    effects = "; ".join(one["words"].lower() for one in action["seen"]["effects"])
    risk = f"{action['risk']} ({effects})" if effects else action["risk"]
    arguments = json.dumps(action["arguments"], ensure_ascii=False, indent=1)
    shown = f"{_one_line(action['tool_name'], _MOST_STEP)}\n{head_and_tail(visible(arguments), _MOST_ARGUMENTS)}"
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(shown)), default=0))
    return f"**Waits for approval**, risk {risk}. A person decides it at {place}\n\n{fence}\n{shown}\n{fence}"


def _command(action: Any) -> str:
    """Return an action's command, its path, or its arguments as JSON."""
    arguments = shown_arguments(action)
    found = [arguments.get("command"), arguments.get("path")] if isinstance(arguments, dict) else []
    return " ".join(map(str, filter(None, found))) or json.dumps(arguments, ensure_ascii=False)


def _one_line(text: Any, most: int) -> str:
    """Convert text to a single line of at most `most` characters, with invisible characters escaped."""
    return beginning(visible(" ".join(str(text or "").split())), most)
