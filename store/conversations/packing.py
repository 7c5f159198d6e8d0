"""Logs that an older release wrote, in today's layout: events as frames, ids in buckets.

Both layouts may stand side by side in one log and are read alike, so that logs are packed while servers use them. Each
step is one script; a packing that is stopped goes on with the next call, which reads what is packed and leaves it.
"""

from collections.abc import Iterator
from typing import Any

from redis import Redis

from store.keys import ConversationKeys
from store.log.frames import compressed
from store.scripts import Scripts
from wire import ConversationId

#: events of one step, the bytes that end it, and ids of one step: about a millisecond of Redis' time
_EVENTS, _BYTES, _IDS = 100, 256 * 1024, 200


class Packing:
    """Packs the logs of all conversations."""

    def __init__(self, redis: "Redis", scripts: Scripts) -> None:
        self._redis: Any = redis  # returns bytes; redis-py's annotations do not say so
        self._scripts = scripts

    def conversations(self) -> Iterator[ConversationId]:
        """The ids of all conversations, some perhaps twice."""
        for root in self._redis.scan_iter(ConversationKeys.roots, count=1000):
            yield ConversationId(root.decode().partition("{")[2][:-1])

    def pack(self, conversation_id: ConversationId) -> Iterator[int]:
        """Pack one log: after each step the number of its events and ids that it has packed. One that is deleted ends,
        and a cold one is left: both layouts are read alike.

        Raises one of UNAVAILABLE.
        """
        root = [ConversationKeys(conversation_id).root]
        cursor = ""
        while cursor != "0":
            if (reply := self._scripts.pack_ids(root, [cursor or "0", _IDS])) is None:
                return
            cursor = reply[0].decode()
            yield reply[1]
        seq, end = 0, 1
        while seq < end and (reply := self._scripts.read_log(root, [seq, _EVENTS, _BYTES])) is not None:
            incarnation, last, *events = reply
            end = last if seq == 0 else end  # what comes from now on needs no packing
            frames = {at: compressed(kept) for at, kept in enumerate(events, seq + 1) if kept[:1] == b"{"}
            words = [word for at, frame in frames.items() if frame[:1] != b"{" for word in (at, frame)]
            if not events or (words and self._scripts.pack_events(root, [incarnation, *words]) is None):
                return
            seq += len(events)
            yield len(words) // 2
