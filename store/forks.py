"""Copies of conversations: made aside, then put in place by one script, so that half a copy is never seen."""

import json
from typing import Any
from uuid import uuid4

from redis import Redis

from store.confirmations import held_risks
from store.conversations import Conversations
from store.errors import ConversationNotFound, EventNotFound, IdInUse
from store.feed import read_log
from store.keys import ConversationKeys, pair
from store.listing import Listing
from store.scripts import Scripts
from store.stamps import Stamp
from store.text import record
from wire import ConversationId, Seq, read_event

#: events copied at once
_PAGE = 100

#: seconds that a copy may take between two pages before Redis forgets it
_HOUR = 3600


class Forks:
    """Makes conversations out of others."""

    def __init__(self, redis: "Redis", scripts: Scripts, listing: Listing, conversations: Conversations) -> None:
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._conversations = conversations

    def fork(
        self,
        source: ConversationId,
        *,
        id: ConversationId | None = None,
        title: str | None = None,
        tags: dict[str, str] | None = None,
        reset_metrics: bool = True,
        from_event_id: str | None = None,
    ) -> ConversationId:
        """Copy a conversation up to an event, or as it is now; the copy is idle and nothing waits in it.

        Secrets are not copied. Raises ConversationNotFound, EventNotFound, IdInUse. Source: docs/wire.md, 8.
        """
        state = self._conversations.get(source)
        last = Seq(int(state["seq"])) if from_event_id is None else self._seq(source, from_event_id)
        target, fork = ConversationId(id or str(uuid4())), str(uuid4())
        stamp = Stamp.now()
        self._copy(source, state["incarnation"], last, ConversationKeys(target, fork), stamp)
        info = {**state["info"], "forked_from_conversation_id": source, "forked_from_event_id": from_event_id}
        fields = {
            "id": target,
            "revision": str(stamp.at),
            "confirmation_policy": json.dumps(state["confirmation_policy"]),
            "held": held_risks(state["confirmation_policy"]),
            "title": json.dumps(title or state["title"]),
            "tags": json.dumps(state["tags"] if tags is None else tags),
            "stats": json.dumps({} if reset_metrics else state["stats"]),
            "security_analyzer": json.dumps(state["security_analyzer"]),
            "info": json.dumps(info),
            "created_at": stamp.utc_time,
            "updated_at": stamp.utc_time,
        }
        args = [fork, *(word for name_and_value in fields.items() for word in name_and_value)]
        [outcome] = self._listing.write(self._scripts.adopt_fork, target, args)
        if outcome != "adopted":
            raise IdInUse
        return target

    def _seq(self, source: ConversationId, event_id: str) -> Seq:
        reply = self._scripts.locate_event([ConversationKeys(source).root], [event_id])
        if reply is None:
            raise ConversationNotFound
        outcome, *place = reply
        if outcome == "unknown":
            raise EventNotFound
        return Seq(int(place[1]))

    def _copy(self, source: ConversationId, incarnation: str, last: Seq, keys: ConversationKeys, stamp: Stamp) -> None:
        """Write the log up to `last` under other keys, which end by themselves unless they are adopted."""
        state = {"execution_status": "idle", "held": "", "text_chunk": 0, "seq": 0, "revision": 0, "groups": ""}
        words = [word for name_and_value in state.items() for word in name_and_value]
        times = ["created_at", stamp.utc_time, "updated_at", stamp.utc_time]
        self._scripts.create_conversation([keys.root], [*stamp.args, keys.fork, "", "", "", "", 0, *words, *times])
        pairs: set[str] = set()
        self._let_expire(keys, pairs)
        seq = Seq(0)
        while seq < last:
            found, _, page = read_log(self._scripts, source, seq, min(_PAGE, last - seq))
            if found.decode() != incarnation:  # deleted meanwhile, and perhaps begun anew
                raise ConversationNotFound
            batch: list[Any] = [*stamp.args, ""]
            for event in map(read_event, page):
                batch += (event.id, pair(event.kind, event.source), event.at, event.raw, record(event), "")
                pairs.add(pair(event.kind, event.source))
            reply = self._scripts.append_events([keys.root], batch)
            if reply is None:  # a pause longer than an hour: the half copy has expired
                raise ConversationNotFound
            seq = Seq(reply[-1])
            self._let_expire(keys, pairs)

    def _let_expire(self, keys: ConversationKeys, pairs: set[str]) -> None:
        chunks: Any = self._redis.hget(keys.root, "text_chunk")
        texts = [keys.text(chunk) for chunk in range(int(chunks or 0) + 1)]
        with self._redis.pipeline(transaction=False) as pipe:
            for key in (keys.root, keys.log, keys.ids, keys.pairs, *map(keys.at, pairs), *texts):
                pipe.expire(key, _HOUR)
            pipe.execute()
