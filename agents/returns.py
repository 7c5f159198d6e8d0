"""Returns a conversation to an earlier event, in its own sandbox: its files, and its agent's context.

Later events stay in the log, marked as left behind by an event `returned_to`. A return to the last event before it
undoes it. The supervisor ends the sandbox's processes, records the current files, restores the earlier files atomically
and restarts the sandbox (`supervisor/returns.py`). So a kill leaves the conversation either before or after the return.

A return is refused before any change: without a record of the event, and while the agent works or an action waits.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.commands import Commands
from agents.forks import moment_at
from agents.inquiries import kept_folder
from agents.waking import NotReachable
from core.refused import RefusalKind, Refused
from core.wire import ConversationId, Seq, read_event
from store import Store
from store.link.attempts import minted
from store.sandboxes.sandboxes import SandboxId

#: Interval between two polls, and maximum duration of a return beside the start of its sandbox, in seconds.
_POLL, _FILES = 0.05, 20.0

#: Number of changes in a page, in the search for the last return.
_PAGE = 100

#: Reasons against a return by the conversation's status.
_WORKS = {
    "running": "The agent is running: pause it first",
    "waiting_for_confirmation": "An action waits for a decision: decide it first",
}


class CannotReturn(Refused):
    """The conversation cannot return to an earlier event now."""

    kind = RefusalKind.CONFLICT


class ReturnFailed(Refused):
    """The return failed. The conversation and its files are unchanged."""

    kind = RefusalKind.BAD_AGENT


class ReturnNotDone(Refused):
    """The return takes longer than the request waits. It continues."""

    kind = RefusalKind.LATER
    words = "The return takes longer than a request waits, and continues: read the conversation's events shortly"


class Returned(NamedTuple):
    """A completed return."""

    id: str  #: of its event
    event_id: str  #: its target
    left_event_id: str  #: the last event before the return


def can_return(state: Mapping[str, Any]) -> bool:
    """Return whether a conversation's agent supports returns."""
    return bool(state.get("sandbox_id")) and "return" in (state.get("capabilities") or ())


def turn_back(commands: Commands, conversation_id: ConversationId, event_id: str | None) -> Returned:
    """Return to an event. event_id: None: the event before the last return, to undo it.

    Raises CannotReturn, NotRecordedThere, EventNotFound, ReturnFailed, ReturnNotDone, and the errors of resuming a
    sandbox.
    """
    store, identity = commands.store, str(minted("return"))
    if not store.events.unknown(conversation_id, [identity]):  # an earlier attempt has made it
        return _stored_return(store, conversation_id, identity)
    state = store.conversations.in_sandboxes.get(conversation_id)
    if not _goes_on(store, state, identity):
        _require_rest(store, state)
        before = _last_return(store, conversation_id)
        if event_id is None and before is None:
            raise CannotReturn("There is nothing to undo: this conversation has not returned to an earlier event")
        moment, event_id = moment_at(store, state, event_id or (before and before.left_event_id))
        agent = commands.awake_agent_of(conversation_id)
        if agent is not None and agent.state(conversation_id).get("execution_status") in _WORKS:
            raise CannotReturn(_WORKS["running"])
        state = store.conversations.in_sandboxes.get(conversation_id)
        last = Seq(state["seq"])
        since = store.events.seq(conversation_id, before.id) - 1 if before else 0
        back = {
            "id": identity,
            "conversation": conversation_id,
            "folder": kept_folder(state),
            "event_id": event_id,
            "seq": moment.seq,
            "last": last,
            "events": store.events.since_the_last_result(conversation_id, Seq(since), last),
        }
        store.sandboxes.turn_back(SandboxId(state["sandbox_id"]), back)
    _await(store, SandboxId(state["sandbox_id"]), identity)
    if store.events.unknown(conversation_id, [identity]):
        raise ReturnFailed("The files are restored, but the agent did not report it: read the log of its sandbox")
    return _stored_return(store, conversation_id, identity)


def _require_rest(store: Store, state: Mapping[str, Any]) -> None:
    """Raise CannotReturn if a return would interrupt work, or change files of another conversation."""
    identity, status = ConversationId(state["id"]), state["execution_status"]
    if not can_return(state):
        raise CannotReturn("The agent of this conversation does not return to earlier events: fork it instead")
    if status in _WORKS:
        raise CannotReturn(_WORKS[status])
    if store.approvals.confirmations.open_ids(identity):
        raise CannotReturn("The agent has not ended an action: interrupt it first")
    others = store.conversations.in_sandboxes.in_sandbox(SandboxId(state["sandbox_id"])) - 1
    if others > 0:
        raise CannotReturn(f"The sandbox has {others} more conversations, which use the same files: fork it instead")


def _goes_on(store: Store, state: Mapping[str, Any], identity: str) -> bool:
    """Return whether an earlier attempt has started this return."""
    [sandbox] = store.sandboxes.get_many([SandboxId(state["sandbox_id"])])
    return sandbox is not None and (sandbox.back or {}).get("id") == identity


def _await(store: Store, sandbox_id: SandboxId, identity: str) -> None:
    """Wait until a return is done and its sandbox runs. Raises ReturnFailed, ReturnNotDone, NotReachable."""
    deadline = time.monotonic() + store.sandboxes.limits.sandbox_start_seconds + _FILES
    while time.monotonic() < deadline:
        sandbox = store.sandboxes.get(sandbox_id)
        back = sandbox.back or {}
        is_over = back.get("id") != identity or "failed" in back
        if sandbox.status == "ERROR" or (is_over and sandbox.status == "PAUSED"):
            raise NotReachable.of(sandbox_id, sandbox)
        if is_over and sandbox.status == "RUNNING":
            if back.get("id") == identity:
                raise ReturnFailed(f"The conversation and its files are as they were. {back['failed']}")
            return
        time.sleep(_POLL)
    raise ReturnNotDone


def _last_return(store: Store, conversation_id: ConversationId) -> Returned | None:
    """Return the last return of a conversation. Cost: a round trip per 100 later changes."""
    page_id: str | None = None
    while True:
        raws, page_id = store.events.search(
            conversation_id, kind="ConversationStateUpdateEvent", descending=True, limit=_PAGE, page_id=page_id
        )
        for event in map(read_event, raws):
            if found := _read(event.id, event.fields):
                return found
        if page_id is None:
            return None


def _stored_return(store: Store, conversation_id: ConversationId, identity: str) -> Returned:
    event = read_event(store.events.get(conversation_id, identity))
    return _read(identity, event.fields) or Returned(identity, "", "")


def _read(identity: str, fields: Mapping[str, Any]) -> Returned | None:
    """Return the return that an event records; None for other events."""
    value = fields.get("value") if fields.get("key") == "returned_to" else None
    if isinstance(value, dict) and isinstance(value.get("event_id"), str):
        return Returned(identity, value["event_id"], str(value.get("left_event_id")))
    return None
