"""Forks a conversation into a new sandbox, which already has its files: `agents/forks.py`.

Every step may be repeated. First the log is copied and its open actions are rejected. Then the agent server is started
with the whole log, so that both have the same events.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

from agents.starts import restart_request
from core import wire
from core.wire import ConversationId, ReceivedEvent, own_event, read_event
from settings.specs import Spec
from store import Store
from store.conversations.copies import OwnSandbox
from store.errors import ConversationNotFound
from store.sandboxes.sandboxes import Sandbox
from store.sandboxes.start_tasks import StartTask

#: Reason for rejecting an action that was open where the fork begins.
FORKED = "This action was not executed in this fork of the conversation: it needs a new proposal."

_RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


def copy_log(store: Store, start: StartTask, fork: Mapping[str, Any], sandbox: Sandbox) -> None:
    """Create the conversation of a fork, once.

    Raises the errors of `Forks.fork`, TooManyConversations, SecretsRefused.
    """
    source, target = ConversationId(fork["source"]), start.conversation_id
    if not _is_made(store, start):
        own = store.start_tasks.bodies.of(source)
        place = OwnSandbox(
            app={"start_id": start.id, "started_by": start.owner},
            info=_moved(store.conversations.get(source)["info"], fork["files"]["folder"], sandbox),
            start_body=b"" if own is None else store.start_tasks.bodies.sealed(target, own),
        )
        store.sandboxes.places.take(sandbox.id, target, made=True, start_id=start.id)
        given = {name: fork[name] for name in ("title", "tags", "reset_metrics", "from_event_id") if name in fork}
        store.conversations.forks.fork(source, id=target, sandbox_id=sandbox.id, key_id=start.owner, own=place, **given)
    store.conversations.own(target, start.joiner.name)
    rejections = [_rejection(target, action) for action in _open_actions(_events(store, target))]
    if rejections:
        store.events.append(target, rejections, sandbox_id=sandbox.id, made_here=True)


def agents_request(store: Store, conversation_id: ConversationId, sandbox: Sandbox, spec: Spec) -> dict[str, Any]:
    """Return the start request for the agent server of a fork, with the events so far."""
    history = [event.fields for event in _events(store, conversation_id)]
    return restart_request(store, conversation_id, sandbox, spec) | {"history": history}


def _is_made(store: Store, start: StartTask) -> bool:
    try:
        return bool(store.conversations.get(start.conversation_id)["app"].get("start_id") == start.id)
    except ConversationNotFound:
        return False


def _moved(info: Mapping[str, Any], folder: str, sandbox: Sandbox) -> dict[str, Any]:
    """Return the workspace of a start request in another sandbox. folder: its path in both."""
    workspace = info.get("workspace")
    if not isinstance(workspace, dict) or not str(workspace.get("working_dir", "")).startswith("/"):
        return {}
    return {"workspace": {**workspace, "working_dir": posixpath.normpath(posixpath.join(sandbox.working_dir, folder))}}


def _events(store: Store, conversation_id: ConversationId) -> Iterable[ReceivedEvent]:
    for page in store.conversations.exports.pages(store.conversations.get(conversation_id)):
        yield from map(read_event, page)


def _open_actions(events: Iterable[ReceivedEvent]) -> list[ReceivedEvent]:
    """Return the actions without a result."""
    found = dict[str, ReceivedEvent]()
    for event in events:
        if event.kind == "ActionEvent" and event.fields.get("action") is not None:
            found[event.id] = event
        elif event.kind in _RESULTS:
            call, action_id = event.fields.get("tool_call_id"), event.fields.get("action_id")
            of_call = [one.id for one in found.values() if call and one.fields.get("tool_call_id") == call]
            for identity in [str(action_id), *(of_call if action_id is None else ())]:
                found.pop(identity, None)
    return [*found.values()]


def _rejection(conversation_id: ConversationId, action: ReceivedEvent) -> ReceivedEvent:
    """Make the event that closes an action, with a fixed id."""
    call: dict[str, Any] = {name: action.fields.get(name) for name in ("tool_name", "tool_call_id")}
    details = {"action_id": action.id, "rejection_reason": FORKED, "rejection_source": "user"}
    identity = str(uuid5(UUID(conversation_id), f"not in the fork: {action.id}"))
    return own_event(identity, "UserRejectObservation", wire.now(), **call, **details)
