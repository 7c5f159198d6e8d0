"""Tells an agent that its blocked request is allowed now, so that it retries.

A go-ahead (`store/go_aheads.py`) is claimed soon after its approval. The agent gets a message through the queue of its
conversation (`queued_messages.py`), which delivers it once and resumes the sandbox. It is only sent if

* `goes_on_when_allowed` of its start is not false,
* the agent stopped by itself, because an agent that a person paused is for that person to resume,
* the refusal stopped it: for a destination, the sandbox was refused in the agent's last run; for a budget, the agent's
  last error names the setting,
* nobody has sent the agent a message since.

A working agent may retry by itself. It is polled until it stops, for a day at most, and then only gets the message if
its sandbox has not reached the destination in the meantime.

Limitation: in a shared sandbox the refused run is identified by the times of its events. If that is ambiguous, no agent
is told.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from core import wire
from core.access import ANYONE
from core.visible import visible
from core.wire import ConversationId
from settings.specs import Specs, lacks_model
from store import Store
from store.approvals.audit import SERVER
from store.conversations.queued_messages import TooManyQueued
from store.errors import UNAVAILABLE
from store.go_aheads import NOBODY_TOLD, GoAhead
from store.log.text import texts
from store.sandboxes.sandboxes import SandboxId
from supervisor.queued_messages import WAITS_TO_BE_TOLD, last_message

log = logging.getLogger("supervisor")

#: Seconds after an approval until which a working agent is polled; shortest and longest interval between two polls.
_GIVEN_UP, _POLL, _LONGEST_POLL = 86_400.0, 1.0, 30.0

#: Number of failed polls of a go-ahead after which this supervisor gives it up: about eight minutes.
MOST_FAILED = 20

#: Maximum clock skew in µs between an agent, whose clock the events have, and Redis.
_SKEW = 1_000_000

#: Statuses of an agent that may retry by itself.
_AT_WORK = ("running", "waiting_for_confirmation")

#: Maximum number of characters of commands in a message for an agent without a model.
_MOST_COMMANDS = 10_000


class GoAheadDriver:
    """Handles due go-aheads, one after the other."""

    def __init__(self, store: Store, specs: Specs) -> None:
        self._store = store
        self._specs = specs
        self._failed = Counter[str]()  #: number of failed polls by the id of the go-ahead

    def drive_due(self) -> None:
        """Send the messages of due go-aheads, or drop those that need none. A failed poll is retried up to a limit.

        Raises one of UNAVAILABLE. The go-ahead is due again when its lease expires.
        """
        while go_ahead := self._store.go_aheads.claim():
            try:
                again_in = self._poll(go_ahead)
                self._failed.pop(go_ahead.id, None)
            except UNAVAILABLE:
                raise
            except Exception:  # other go-aheads must not wait
                again_in = self._note_failed(go_ahead)
            if again_in is None:
                self._store.go_aheads.close(go_ahead)
            else:
                self._store.go_aheads.postpone(go_ahead, again_in)

    def _note_failed(self, go_ahead: GoAhead) -> float | None:
        """Log a failed poll. Return the seconds until the next poll; None: it was the last."""
        self._failed[go_ahead.id] += 1
        failed = self._failed[go_ahead.id]
        if failed < MOST_FAILED:
            if failed == 1:
                log.exception("the check whether %s lets agents continue has failed: it is repeated", go_ahead.member)
            return min(_POLL * 2.0 ** (failed - 1), _LONGEST_POLL)
        del self._failed[go_ahead.id]
        log.exception("%s is allowed, and %d checks of its agents failed: %s", go_ahead.member, failed, NOBODY_TOLD)
        return None

    def _poll(self, go_ahead: GoAhead) -> float | None:
        """Send messages to the stopped agents. Return the seconds until the next poll; None: there is none."""
        age = (go_ahead.now - go_ahead.allowed_at) / 1e6
        if age > _GIVEN_UP or (go_ahead.ends_at is not None and go_ahead.ends_at <= go_ahead.now):
            return None
        present, _ = self._store.sandboxes.places.known(SandboxId(go_ahead.sandbox_id))
        states = self._store.conversations.get_many([ConversationId(one) for one in sorted(present)])
        here = [one for one in states if one and one["sandbox_id"] == go_ahead.sandbox_id]
        refused = [one for one in here if self._is_refused(go_ahead, one)]
        if not go_ahead.port:
            at_work = any(one["execution_status"] in _AT_WORK for one in here)
        elif len(refused) == 1:
            at_work = refused[0]["execution_status"] in _AT_WORK
        else:
            return None
        is_late = [one for one in refused if one["execution_status"] not in _AT_WORK and self._tell(go_ahead, one)]
        return min(max(_POLL, age / 10), _LONGEST_POLL) if at_work or is_late else None

    def _is_refused(self, go_ahead: GoAhead, state: Mapping[str, Any]) -> bool:
        """Return whether the last run of a conversation was refused what is allowed now."""
        identity = ConversationId(state["id"])
        _, began = last_message(self._store, identity)
        if not go_ahead.port:
            error = self._last(identity, since=began, kind="ConversationErrorEvent")
            return error is not None and go_ahead.name in str(error.fields.get("detail"))
        if began is not None and began > go_ahead.tried_at + _SKEW:
            return False
        if state["execution_status"] in _AT_WORK:
            return True
        last = self._last(identity)
        return last is not None and last.at >= go_ahead.tried_at - _SKEW

    def _last(self, conversation_id: ConversationId, **filters: Any) -> wire.ReceivedEvent | None:
        """Return the last event of a conversation that matches the filters of a search."""
        found, _ = self._store.events.search(conversation_id, descending=True, limit=1, **filters)
        return wire.read_event(found[0]) if found else None

    def _tell(self, go_ahead: GoAhead, state: Mapping[str, Any]) -> bool:
        """Queue the message for a stopped agent, if it needs one. Return whether to poll the agent again."""
        identity = ConversationId(state["id"])
        if state["app"].get("goes_on_when_allowed") is False or state["execution_status"] not in WAITS_TO_BE_TOLD:
            return False
        if go_ahead.has_waited and go_ahead.is_reached:
            return False
        queue = self._store.conversations.queued_messages
        if queue.waiting_for(identity):  # a message is already queued, such as that of another approval
            return True
        message_id, _ = last_message(self._store, identity)
        text = "\n".join([_message(go_ahead), *self._commands(state, message_id)])
        try:
            queue.put_own(
                identity, go_ahead.message_id(identity), text, SERVER._replace(may_decide=False), only_after=message_id
            )
        except TooManyQueued:
            return True
        log.info("conversation %s is told that %s is allowed", identity, go_ahead.member)
        return False

    def _commands(self, state: Mapping[str, Any], message_id: str) -> list[str]:
        """Return the commands to repeat: an agent without a model only runs the commands of a message."""
        [sandbox] = self._store.sandboxes.get_many([state["sandbox_id"]])
        spec = self._specs.find(sandbox.spec_id) if sandbox else None
        if spec is None or not lacks_model(spec) or not message_id:
            return []
        said = wire.read_event(self._store.events.get(ConversationId(state["id"]), message_id)).fields
        lines = "\n".join(texts((said.get("llm_message") or {}).get("content"))).split("\n")
        commands = [line for line in lines if line.startswith("run:")]
        return commands if sum(map(len, commands)) <= _MOST_COMMANDS else []


def _message(go_ahead: GoAhead) -> str:
    """Return the message, which the agent and people in the conversation read."""
    kind, name = go_ahead.actor.get("kind"), " ".join(visible(str(go_ahead.actor.get("name") or "")).split())
    who = "A rule" if kind == "rule" else "Somebody" if name in ("", ANYONE.name) else name
    if not go_ahead.port:
        return f"This server says: {who} has allowed more of the budget {go_ahead.name}. Go on."
    once = " for one connection within ten minutes" if go_ahead.ends_at is not None else ""
    return f"This server says: {who} has allowed {go_ahead.name}:{go_ahead.port}{once}. Try again."
