"""Older data in today's shape. Every step may be repeated; other servers must not write meanwhile.

`redis` is the client of the store, which returns bytes; redis-py's annotations do not say so.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any

from redis.exceptions import RedisClusterException, ResponseError

from store.approvals.effects import effect, finish_message
from store.keys import APP_FIELD, PEAK_SEQS, ConversationKeys, KeysOfVersion0, SandboxKeys, StartKeys
from store.link.secrets import Sealer
from store.listing import Listing
from store.log.frames import original
from store.sandboxes.sandbox_record import MOST_DETAIL
from store.sandboxes.sandboxes import MOST_LOG_BYTES
from wire import MOST_TITLE, ConversationId, read_event

#: members of a sorted set that are read at once, and conversations between two lines in the log
_PAGE, _REPORTED = 500, 1000

#: the statuses in which a start task has ended
_FINISHED = (b"READY", b"ERROR")

_log = logging.getLogger(__name__)


def migrate_to_1(redis: Any, listing: Listing) -> None:
    """From version 0 to version 1. Raises one of UNAVAILABLE."""
    _log.warning("The stored data are of version 0: migrating them")
    number = 0
    for number, root in enumerate(redis.scan_iter(ConversationKeys.roots, count=1000), 1):
        _migrate_conversation(redis, listing, ConversationId(root.decode().partition("{")[2][:-1]))
        if number % _REPORTED == 0:
            _log.warning("%s conversations are migrated", number)
    redis.delete(KeysOfVersion0.answers)
    for box in redis.scan_iter(SandboxKeys.box("*"), count=1000):
        _migrate_sandbox(redis, box.decode().rpartition(":")[2])
    _clamp_heartbeats(redis)
    for identity, at in redis.zrange(StartKeys.created(), 0, -1, withscores=True):
        _migrate_start_task(redis, identity.decode(), at)
    _log.warning("The stored data are of version 1: %s conversations were migrated", number)


def migrate_to_3(redis: Any, sealer: Sealer) -> None:
    """From version 2 to version 3: the keys of sandboxes are sealed, and no webhook may bear a session key any more.

    A sandbox that runs has no hook key: its supervisor starts it again. Raises SecretsRefused, or one of UNAVAILABLE.
    """
    for name in redis.scan_iter(SandboxKeys.box("*"), count=1000):
        identity = name.decode().rpartition(":")[2]
        box: dict[bytes, bytes] = redis.hgetall(name)
        if b"session_api_key" in box:
            key = box[b"session_api_key"].decode()
            # A release without a key of the files sealed them with the session key.
            files_key = box.get(b"files_key", b"").decode() or key
            sealed = {"agent_key": sealer.seal_key(identity, key), "files_key": sealer.seal_key(identity, files_key)}
            with redis.pipeline(transaction=True) as pipe:
                pipe.hset(name, mapping=sealed)
                pipe.hdel(name, "session_api_key", "key_hash")
                pipe.execute()
    redis.delete(SandboxKeys.by_key)
    with suppress(ResponseError, RedisClusterException):  # where this server may not ask for it
        redis.bgrewriteaof()  # the append-only file still has the keys in plain


def migrate_to_4(redis: Any) -> None:
    """From version 3 to version 4: open actions have digests, and the inbox finds them. Raises one of UNAVAILABLE."""
    for root in redis.scan_iter(ConversationKeys.roots, count=1000):
        keys = ConversationKeys(ConversationId(root.decode().partition("{")[2][:-1]))
        pending = redis.hgetall(keys.pending)
        if pending:  # the sweep compares conversations whose approvals have a revision
            redis.hsetnx(keys.root, "approvals", 1)
        for action_id, text in pending.items():
            record = json.loads(text)
            raw = None if "digest" in record else redis.lindex(keys.log, record["seq"] - 1)
            if raw is not None:
                opened = effect(read_event(original(raw)))["open"]
                record |= {name: opened[name] for name in ("name", "digest", "tool", "risk")}
                redis.hset(keys.pending, action_id, json.dumps(record))


def migrate_to_5(redis: Any, listing: Listing) -> None:
    """From version 4 to version 5: every conversation is listed by title. Raises one of UNAVAILABLE."""
    for root in redis.scan_iter(ConversationKeys.roots, count=1000):
        _list(listing, ConversationId(root.decode().partition("{")[2][:-1]), redis.hgetall(root))


def _migrate_conversation(redis: Any, listing: Listing, identity: ConversationId) -> None:
    keys = ConversationKeys(identity)
    state: dict[bytes, bytes] = redis.hgetall(keys.root)
    title = json.loads(state.get(b"title", b"null"))
    pairs = [member.decode() for member in redis.smembers(keys.pairs)]
    fields: dict[str, Any] = {"title": json.dumps(title and title[:MOST_TITLE])}
    fields |= {
        APP_FIELD + name: json.dumps(value) for name, value in (json.loads(state.get(b"app", b"null")) or {}).items()
    }
    fields |= _delivery(state) | _final(redis, keys, pairs)
    peaks = dict(_peaks(redis, keys, pairs))
    if peaks:
        fields["latest_at"] = f"{max(peaks.values()):.0f}"
    pending = {action_id: _action(record) for action_id, record in redis.hgetall(keys.pending).items()}
    if "delivery_id" in fields:
        entry = f"{fields['delivery_id']} {identity} {state[b'sandbox_id'].decode()}"
        redis.zadd(SandboxKeys.deliveries, {entry: redis.zscore(KeysOfVersion0.answers, identity) or 0})
    with redis.pipeline(transaction=True) as pipe:
        pipe.hset(keys.root, mapping=dict[Any, Any](fields))
        pipe.hdel(keys.root, "app", "answer")
        if pending:
            pipe.hset(keys.pending, mapping=dict[Any, Any](pending))
        if peaks:
            pipe.zadd(keys.peaks, {str(block): at for block, at in peaks.items()})
        pipe.delete(KeysOfVersion0.calls(keys))
        pipe.execute()
    _list(listing, identity, state)


def _list(listing: Listing, identity: ConversationId, state: dict[bytes, bytes]) -> None:
    """Enter a conversation into the listing, unless it was deleted since its key was found."""
    if not state:
        return
    status, created_at, updated_at = (
        state[name].decode() for name in (b"execution_status", b"created_at", b"updated_at")
    )
    groups, title = state.get(b"groups", b"").decode(), json.loads(state.get(b"title", b"null"))
    listing.note(
        identity, int(state[b"revision"]), status, created_at, updated_at, groups, title and title[:MOST_TITLE]
    )


def _action(record: bytes) -> bytes | str:
    """A pending action: seven lines become a JSON object."""
    if record.startswith(b"{"):
        return record
    seq, *others = record.decode().split("\n", 6)
    names = ("at", "time", "since", "group", "call", "subject")
    return json.dumps({"seq": int(seq), **dict(zip(names, others, strict=True))})


def _delivery(state: dict[bytes, bytes]) -> dict[str, str]:
    """A decision that the agent may not have received: five lines become fields."""
    if b"answer" not in state:
        return {}
    names = ("delivery_id", "delivery_verb", "delivery_at", "delivery_reason", "delivery_actions")
    return dict(zip(names, state[b"answer"].decode().split("\n"), strict=True))


def _times(redis: Any, keys: ConversationKeys, pair: str) -> Iterator[tuple[float, int]]:
    """Time and seq of the events of one kind and source, the latest first."""
    start = 0
    while found := redis.zrevrange(keys.at(pair), start, start + _PAGE - 1, withscores=True):
        yield from ((at, int(seq)) for seq, at in found)
        start += len(found)


def _peaks(redis: Any, keys: ConversationKeys, pairs: list[str]) -> Iterator[tuple[int, float]]:
    """The greatest time of the events up to each block of PEAK_SEQS."""
    highest: dict[int, float] = {}
    for pair in pairs:
        for at, seq in _times(redis, keys, pair):
            block = (seq - 1) // PEAK_SEQS
            highest[block] = max(at, highest.get(block, at))
    blocks = sorted(highest)
    yield from zip(blocks, accumulate((highest[block] for block in blocks), max), strict=True)


def _final(redis: Any, keys: ConversationKeys, pairs: list[str]) -> dict[str, str]:
    """The later of the agent's last message and of the last action that finishes."""
    found: list[tuple[float, int]] = []
    if "MessageEvent:agent" in pairs:
        found += [next(_times(redis, keys, "MessageEvent:agent"))]
    for place in _times(redis, keys, "ActionEvent:agent") if "ActionEvent:agent" in pairs else ():
        if found and place < found[0]:
            break
        if finish_message(json.loads(original(redis.lindex(keys.log, place[1] - 1) or b"{}"))) is not None:
            found.append(place)
            break
    at, seq = max(found, default=(0.0, 0))
    return {"final_at": f"{at:.0f}", "final_seq": str(seq)} if found else {}


def _migrate_sandbox(redis: Any, identity: str) -> None:
    """The indexes by spec are new; the log is a key of its own.

    A hash without a status is what a note of use left of a sandbox that had ended: it goes.
    """
    box: dict[bytes, bytes] = redis.hgetall(SandboxKeys.box(identity))
    status, spec = (box.get(name, b"").decode() for name in (b"status", b"spec_id"))
    if not status:
        redis.delete(SandboxKeys.box(identity))
        return
    with redis.pipeline(transaction=True) as pipe:
        for index in (f"*:{spec}", f"{status}:{spec}"):
            pipe.zadd(SandboxKeys.created_in(index), {identity: int(box[b"created_at"])})
        if box.get(b"log"):
            pipe.set(SandboxKeys.log(identity), box[b"log"][-MOST_LOG_BYTES:])
        pipe.hdel(SandboxKeys.box(identity), "log")
        pipe.hset(SandboxKeys.box(identity), "detail", box[b"detail"].decode()[:MOST_DETAIL])
        pipe.execute()


def _clamp_heartbeats(redis: Any) -> None:
    """A heartbeat was written by its host's clock, which may have been ahead of Redis' clock."""
    seconds, micros = redis.time()
    now = seconds * 1_000_000 + micros
    for host, at in redis.zrange(SandboxKeys.hosts, 0, -1, withscores=True):
        redis.zadd(SandboxKeys.hosts, {host: min(at, now)})


def _migrate_start_task(redis: Any, identity: str, created_at: float) -> None:
    """The indexes by conversation are new; the secrets of a finished start task go."""
    task: dict[bytes, bytes] = redis.hgetall(StartKeys.task(identity))
    if not task:
        return
    conversation_id = ConversationId(task[b"conversation_id"].decode())
    with redis.pipeline(transaction=True) as pipe:
        pipe.zadd(StartKeys.created(conversation_id), {identity: created_at})
        pipe.zadd(StartKeys.updated(conversation_id), {identity: int(task[b"updated_at"])})
        if task[b"status"] in _FINISHED:
            pipe.hdel(StartKeys.task(identity), "secrets")
            pipe.zrem(StartKeys.due, identity)
        pipe.execute()
