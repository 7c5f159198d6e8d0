"""Entries of audits as the deciding scripts write them, for tests of what reads and verifies them."""

from uuid import uuid4

from core.approvals import canonical, digest
from core.wire import Micros, utc_time
from store.approvals.audit import audit_member
from store.keys import ApprovalKeys, ConversationKeys, audit_key

KEY = {"kind": "key", "name": "ada", "address": "127.0.0.1"}

#: the time of the first entry that `chain` makes, µs
START = Micros(1_763_670_000_000_000)


def sealed(entry: dict) -> bytes:
    """The stored form of an entry: canonical JSON, with the hash of all else."""
    return canonical({**entry, "hash": digest(entry)})


def chain(conversation: str, number: int, at: int = START, **members) -> list[bytes]:
    """Entries that follow each other, a second apart."""
    entries, previous = [], ""
    for seq in range(1, number + 1):
        entry = {
            "action_ids": [str(uuid4())],
            "actor": KEY,
            "conversation_id": conversation,
            "decision": "approve",
            "digests": [digest(seq)],
            "previous": previous,
            "reason": "grüße \u2028 'quoted' \"so\"",
            "seq": seq,
            "time": utc_time(Micros(at + (seq - 1) * 1_000_000)),
            **members,
        }
        previous = digest(entry)
        entries.append(sealed(entry))
    return entries


def keep(redis, conversation: str, entries: list[bytes], at: int = START, *, indexed: bool = True) -> list[bytes]:
    """Store entries where the scripts do, also in the index of all."""
    redis.rpush(audit_key(ConversationKeys(conversation)), *entries)
    for seq in range(1, len(entries) + 1) if indexed else ():
        redis.zadd(ApprovalKeys.audit, {audit_member(conversation, seq): at + (seq - 1) * 1_000_000})
    return entries
