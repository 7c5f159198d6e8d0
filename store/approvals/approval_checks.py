"""What supervisors do for the inbox: they find what is due to expire, and entries of the index that are wrong."""

import random
from collections.abc import Iterable
from typing import Any

from redis import Redis

from store.approval_keys import ApprovalKeys, audit_key
from store.approvals.inbox import Inbox
from store.keys import ConversationKeys
from store.listing import Filter, Listing
from store.scripts import Scripts
from wire import ConversationId, Micros

#: conversations that are due to expire and are taken at once, and those that one part of the sweep compares, twice
MOST_DUE, PART = 100, 500

#: µs between two parts of the sweep, whatever the number of supervisors
_SWEEP_SPAN = 1_000_000


class ApprovalChecks:
    """The checks of all supervisors. None has a lease: each step is decided by a script, and may be done twice."""

    def __init__(self, redis: "Redis", scripts: Scripts, listing: Listing, inbox: Inbox) -> None:
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._inbox = inbox

    def due(self) -> list[ConversationId]:
        """Some of the conversations with an action whose deadline has passed by Redis' clock, in random order: so that
        supervisors begin with different ones, and one that cannot be decided delays no other. One round trip."""
        found = self._scripts.due_approvals([ApprovalKeys.root], [MOST_DUE, random.random()])
        ids = [ConversationId(one.decode()) for one in found]
        random.shuffle(ids)
        return ids

    def sweep(self) -> None:
        """Compare the next conversations with the index, and settle those of which it is wrong.

        One part takes PART conversations of the listing and PART of the index, the latter also where they are deleted.
        All supervisors together take a part each second: so one of N conversations is found within N / PART seconds.
        Guarantee: what a killed worker did not index is indexed after that. Five round trips where nothing is wrong.
        """
        reply = self._scripts.claim_sweep([ApprovalKeys.root], [_SWEEP_SPAN, PART])
        if reply is None:
            return
        created, first, *indexed = (word.decode() for word in reply)
        start = (Micros(int(created)), ConversationId(first)) if created else None
        entries, following = self._listing.page(Filter(), by="created", descending=False, limit=PART, start=start)
        at, identity = following or ("", "")
        for conversation_id in self._wrong({*(ConversationId(one) for one in indexed), *(one.id for one in entries)}):
            self._inbox.settle(conversation_id)
        self._redis.hset(ApprovalKeys.sweep, mapping={"created": at, "id": identity})

    def _wrong(self, ids: set[ConversationId]) -> list[ConversationId]:
        """Those of which the index says something else. Two round trips, and one for those where nothing can wait."""
        if not ids:
            return []
        among = list(ids)
        noted: Any = self._redis.hmget(ApprovalKeys.noted, among)  # first: what changes after it counts as wrong
        replies = self._pipelined(
            command
            for keys in map(ConversationKeys, among)
            for command in (("HMGET", keys.root, "id", "approvals"), ("LLEN", audit_key(keys)))
        )
        wrong, idle = [], []
        for one, known, (identity, revision), audited in zip(among, noted, replies[::2], replies[1::2], strict=True):
            if _differs(known, identity, revision, audited):
                wrong.append(one)
            elif known and not revision:
                idle.append(one)
        numbers = self._pipelined(("SCARD", ApprovalKeys.of(one)) for one in idle)
        return wrong + [one for one, number in zip(idle, numbers, strict=True) if number]

    def _pipelined(self, commands: Iterable[tuple[str, ...]]) -> list[Any]:
        with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Any] = pipe.execute()
        return replies


def _differs(noted: bytes | None, identity: bytes | None, revision: bytes | None, audited: int) -> bool:
    """Whether what was noted last of a conversation is not what it has come to."""
    known, entries = (int(word) for word in (noted or b"0 0").split())
    if identity is None and audited == 0:  # its audit has expired: the index forgets it
        return noted is not None
    return entries != audited or known < int(revision or 0)
