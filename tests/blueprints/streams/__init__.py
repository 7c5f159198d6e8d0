"""The streams of server-sent events, and what tests that hold for each of them do alike."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conftest import action
from tests.servers import TIMEOUT


@dataclass(frozen=True)
class OpenedStream:
    """A stream: its path, and patterns of its ids and of the text that one who has no place gets at first.

    The text is about a conversation whose log has one event, an action that waits.
    """

    path: str
    place: str
    head: str


_RESET = r'retry: 1000\n\nevent: reset\ndata: \{"reason": "new"\}\n\n'
_READY = r"event: ready\nid: PLACE\ndata: \{\}\n\n"

STREAMS = {
    "events": OpenedStream(
        "/api/conversations/{id}/events/stream", r"\d+", r'retry: 1000\n\nid: 1\ndata: .*"ls".*\n\n'
    ),
    "inbox": OpenedStream(
        "/api/v1/pending-actions/stream?conversation_id={id}",
        r"\d+-\d+",
        _RESET + r'event: snapshot\ndata: .*"ls".*\n\n' + _READY,
    ),
    "conversations": OpenedStream("/api/v1/conversations/stream", r"\d+", _RESET + _READY),
    "sandboxes": OpenedStream("/api/v1/sandboxes/stream", r"\d+", _RESET + _READY),
}

#: the streams that tell of a conversation
OF_A_CONVERSATION = ("events", "inbox", "conversations")


@contextmanager
def follow(client, name: str, conversation: str, **options: Any) -> Iterator[Iterator[tuple[str, Any, str]]]:
    """Follow a stream: the name, the data and the id of each event in turn; "" for a name or an id that it lacks."""
    path = STREAMS[name].path.format(id=conversation)
    with client.stream("GET", path, timeout=TIMEOUT, **options) as response:
        response.raise_for_status()
        yield _parsed(response.iter_lines())


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, Any, str]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        else:
            if "data" in fields:
                yield fields.get("event", ""), json.loads(fields["data"]), fields.get("id", "")
            fields = {}


def until_live(events: Iterator[tuple[str, Any, str]]) -> str:
    """Read what a stream sends at first; returns the place after that."""
    return next(identity for name, _, identity in events if name in ("", "ready"))


def begin(client, conversation: str) -> None:
    """Make a conversation in which an action waits."""
    body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    client.post("/api/conversations", json=body).raise_for_status()
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[action("ls")]).raise_for_status()


def change(client, conversation: str) -> str:
    """Change the conversation so that every stream of one tells it; returns the word by which each does."""
    act = action()
    client.patch(f"/api/conversations/{conversation}", json={"title": act["id"]}).raise_for_status()
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[act]).raise_for_status()
    return act["id"]


def tells(events: Iterator[tuple[str, Any, str]], word: str) -> bool:
    """Whether a stream tells of a change before it ends."""
    return any(word in (data.get("id"), data.get("action_id"), data.get("title")) for _, data, _ in events)
