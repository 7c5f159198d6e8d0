"""Pending actions as the inbox shows them: read from their conversations, which alone say what waits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis import Redis

from approvals.digests import shown_arguments
from store.bounds import PAGE_BYTES
from store.keys import ConversationKeys
from store.log.frames import original
from wire import ConversationId, Micros, parse_json, utc_time

#: bytes that an event counts as where the index does not know its size
_UNKNOWN_SIZE = 1024 * 1024


#: the cursor of a page: when its first action began to wait, "CONVERSATION ACTION", and its seq in its log
Cursor = tuple[Micros, str, int]


class Entry(NamedTuple):
    """An entry of the index of pending actions."""

    conversation_id: ConversationId
    action_id: str
    at: Micros  #: when it began to wait
    item: dict[str, Any]  #: see `store/approvals/inbox.py`

    @property
    def size(self) -> int:
        """Bytes of the action's event."""
        return int(self.item["size"]) or _UNKNOWN_SIZE

    @property
    def cursor(self) -> Cursor:
        """The cursor of a page that begins with it."""
        return self.at, f"{self.conversation_id} {self.action_id}", int(self.item["seq"])


@dataclass(frozen=True, slots=True)
class PendingAction:
    """An action that waits for a decision, with what a person needs for it."""

    conversation_id: ConversationId
    conversation_title: str | None
    tags: dict[str, str]  #: of the conversation
    action_id: str
    seq: int  #: of its event in the conversation's log
    tool_name: str
    summary: str | None
    thought: str
    security_risk: str
    arguments: Any
    since: str
    expires_at: str | None
    digest: str
    sandbox_id: str | None
    can: list[str]  #: the decisions that its agent understands
    decided_together: bool  #: whether its agent takes one decision for all that wait in the conversation
    opened: str  #: id of the entry of the stream by which it was opened


def fitting(entries: Sequence[Entry], room: int = PAGE_BYTES) -> int:
    """The number of the first entries whose events have so many bytes together."""
    for number, entry in enumerate(entries):
        room -= entry.size
        if room < 0:
            return number
    return len(entries)


def load(redis: "Redis", entries: Sequence[Entry]) -> list[PendingAction | None]:
    """The pending actions of entries, in their order, None for each that its conversation does not bear out.

    One round trip, whatever the number of conversations. The caller bounds the bytes by `fitting`.
    """
    if not entries:
        return []
    of = list(dict.fromkeys(entry.conversation_id for entry in entries))
    with redis.pipeline(transaction=False) as pipe:
        for conversation_id in of:
            pipe.hmget(ConversationKeys(conversation_id).root, _STATE)
        for entry in entries:
            pipe.hget(ConversationKeys(entry.conversation_id).pending, entry.action_id)
            pipe.lindex(ConversationKeys(entry.conversation_id).log, entry.item["seq"] - 1)
        replies: list[Any] = pipe.execute()
    states = dict(zip(of, replies, strict=False))
    found = zip(*[iter(replies[len(of) :])] * 2, strict=True)
    return [
        _read(entry, states[entry.conversation_id], record, event)
        for entry, (record, event) in zip(entries, found, strict=True)
    ]


_STATE = ["execution_status", "title", "tags", "sandbox_id", "told.capabilities"]


def _read(entry: Entry, state: list[Any], stored: bytes | None, kept: bytes | None) -> PendingAction | None:
    """The pending action of an entry; None where the conversation says otherwise."""
    status, title, tags, sandbox, told = state
    if status != b"waiting_for_confirmation" or stored is None or kept is None:
        return None
    record, event = json.loads(stored), parse_json(original(kept))
    is_same = (record["seq"], record["since"]) == (entry.item["seq"], entry.item["since"])
    if "decided" in record or not is_same or event["id"] != entry.action_id:
        return None
    capabilities, sandbox_id = json.loads(told or b"[]"), sandbox.decode() if sandbox else None
    expires = record.get("expires")
    return PendingAction(
        conversation_id=entry.conversation_id,
        conversation_title=json.loads(title),
        tags=json.loads(tags),
        action_id=entry.action_id,
        seq=record["seq"],
        tool_name=json.loads(record["tool"]),
        summary=event.get("summary"),
        thought=thought_of(event),
        security_risk=record["risk"],
        arguments=shown_arguments(event.get("action")),
        since=record["since"],
        expires_at=utc_time(Micros(int(expires))) if expires else None,
        digest=record["digest"],
        sandbox_id=sandbox_id,
        can=["approve", "reject", *(["edit"] if "edit" in capabilities else [])],
        decided_together=sandbox_id is not None and "decide_each" not in capabilities,
        opened=entry.item["opened"],
    )


def thought_of(event: dict[str, Any]) -> str:
    """The text of the agent's thought about an action; empty where it has none."""
    parts = event.get("thought")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))
