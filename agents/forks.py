"""Forks of conversations into new sandboxes, with the files as they were at an event.

An agent with the capability `history`, such as the bundled one, can start with the events of another conversation. A
start task makes such a fork, so that it is complete or does not exist, even after a kill: `supervisor/forks.py`. Its
files are a record that a supervisor took at an event: `runtimes/moments.py`. A fork at an event without a record is
refused before anything is started.
"""

import time
from collections.abc import Mapping
from typing import Any

from agents.inquiries import kept_folder
from core.refused import RefusalKind, Refused
from core.wire import ConversationId, Seq
from store import Store
from store.sandboxes.files import FolderSnapshot
from store.sandboxes.sandboxes import Sandbox

#: Maximum wait for the record of a recent moment, and interval between two polls, in seconds.
_COMES, _POLL = 3.0, 0.1


class NotRecordedThere(Refused):
    """The files were not recorded at the event of the fork or the return."""

    kind = RefusalKind.CONFLICT

    def __init__(self, nearest: str | None) -> None:
        nearest = f"The nearest event with its files is {nearest}" if nearest else "No event of it has its files yet"
        super().__init__(
            "The files of the conversation were not recorded at this event, so they cannot be restored. "
            f"{nearest}: files are recorded when the agent stops, at the end of a turn or for a pending action"
        )


def has_own_forks(state: Mapping[str, Any]) -> bool:
    """Return whether forks of a conversation get their own sandboxes, by its agent's capability `history`."""
    return bool(state.get("sandbox_id")) and "history" in (state.get("capabilities") or ())


def moments(store: Store, state: Mapping[str, Any]) -> list[FolderSnapshot]:
    """Return the records from which forks of a conversation get their files, the oldest first.

    state: with its sandbox.
    """
    return store.sandboxes.files.moments(state["sandbox"].id, kept_folder(dict(state)), ConversationId(state["id"]))


def moment_at(store: Store, state: Mapping[str, Any], event_id: str | None) -> tuple[FolderSnapshot, str]:
    """Return the record of an event, and the event.

    event_id: None: the last. Raises EventNotFound, NotRecordedThere.
    """
    identity = ConversationId(state["id"])
    deadline = time.monotonic() + _COMES
    while True:
        seq = Seq(state["seq"]) if event_id is None else store.events.seq(identity, event_id)
        found = moments(store, state)
        for one in found:
            if event_id is None and one.seq == seq:
                return one, one.event_ids[-1]
            if event_id in one.event_ids:
                return one, str(event_id)
        is_late = time.monotonic() > deadline or state["execution_status"] == "running"
        if is_late or (found and found[-1].seq >= seq):
            break
        time.sleep(_POLL)
    nearest = min(found, key=lambda one: abs(one.seq - seq), default=None)
    raise NotRecordedThere(nearest.event_ids[-1] if nearest else None)


def fork_request(
    state: Mapping[str, Any], wanted: Mapping[str, Any], moment: FolderSnapshot, event_id: str
) -> dict[str, Any]:
    """Return the request of the start task that makes a fork. wanted: title, tags, reset_metrics."""
    sandbox: Sandbox = state["sandbox"]
    fork = {
        "source": state["id"],
        "from_event_id": event_id,
        "files": {
            "sandbox": sandbox.id,
            "folder": kept_folder(dict(state)),
            "conversation": state["id"],
            "seq": moment.seq,
        },
        "host": sandbox.host,
        **{name: wanted[name] for name in ("title", "tags", "reset_metrics") if name in wanted},
    }
    return {"fork": fork, "sandbox_spec_id": sandbox.spec_id}
