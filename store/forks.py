"""Copies of conversations: written under keys of their own, then renamed by one script: no reader sees half a copy."""

import json
from collections.abc import Sequence
from typing import Any

from redis.exceptions import TimeoutError

from store.attempts import is_finished, minted
from store.conversations import Conversations
from store.effects import final_effect
from store.errors import ConversationNotFound, EventNotFound, IdInUse
from store.feed import read_log
from store.frames import compressed
from store.keys import APP_FIELD, ConversationKeys, pair
from store.listing import Listing
from store.policies import held_risks
from store.scripts import Scripts
from store.stamps import Stamp
from store.text import record
from wire import ConversationId, Seq, read_event

#: events copied at once
_PAGE = 100

#: seconds without a new page after which Redis removes an unfinished copy, and the error of the fork then
_HOUR, _EXPIRED = 3600, "The copy of the conversation took so long that it has expired"


class Forks:
    """Copies conversations."""

    def __init__(self, scripts: Scripts, listing: Listing, conversations: Conversations) -> None:
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
        sandbox_id: str | None = None,
        claims: Sequence[str] = (),
    ) -> ConversationId:
        """Copy a conversation up to an event, or up to its end; the copy is idle and has no pending actions.

        sandbox_id: that of the source, whose agent server has made the same copy; None: the copy is detached. claims:
        what the agent may claim of the copy, see `claims.py`. Secrets are not copied. Raises ConversationNotFound,
        EventNotFound, IdInUse, and TimeoutError of an hour without a page. Source: docs/wire.md, 8.
        """
        target, fork = ConversationId(id or str(minted("conversation"))), str(minted("fork"))
        if is_finished():
            return target
        state = self._conversations.get(source)
        last = Seq(int(state["seq"])) if from_event_id is None else self._seq(source, from_event_id)
        stamp = Stamp.now()
        self._copy(source, state["incarnation"], last, ConversationKeys(target, fork), stamp)
        origin = {"forked_from_conversation_id": source, "forked_from_event_id": from_event_id}
        info = {**state["info"], **origin}  # the agent of a copy says itself what it is capable of
        fields = {
            "id": target,
            "revision": str(stamp.at),
            "title": json.dumps(title or state["title"]),
            "tags": json.dumps(state["tags"] if tags is None else tags),
            "stats": json.dumps({} if reset_metrics else state["stats"]),
            "info": json.dumps({name: value for name, value in info.items() if name != "capabilities"}),
            "created_at": stamp.utc_time,
            "updated_at": stamp.utc_time,
            **_inherited(state, sandbox_id),
        }
        expected = [f"{claim} {fork}" for claim in claims]
        words = [word for name_and_value in fields.items() for word in name_and_value]
        args = [fork, stamp.at, len(expected), *expected, *words]
        try:
            [outcome] = self._listing.write(self._scripts.adopt_fork, target, args)
        except ConversationNotFound:
            raise TimeoutError(_EXPIRED) from None
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
        """Write the log up to `last` under the keys of the copy, which expire unless they are adopted."""
        seq, page, fork = Seq(0), list[bytes](), keys.fork
        while True:
            batch: list[Any] = [stamp.utc_time, _HOUR, fork]
            for event in map(read_event, page):
                final = "1" if final_effect(event) else ""
                what = (compressed(event.raw), record(event), final)
                batch += (event.id, pair(event.kind, event.source), event.at, *what)
            copied = self._scripts.copy_events([keys.root], batch)
            if copied is None:
                raise TimeoutError(_EXPIRED)
            seq, fork = Seq(copied), ""
            if seq >= last:
                return
            found, _, page = read_log(self._scripts, source, seq, min(_PAGE, last - seq))
            if found.decode() != incarnation:  # deleted meanwhile; another conversation may have its id
                raise ConversationNotFound


def _inherited(state: dict[str, Any], sandbox_id: str | None) -> dict[str, str]:
    """The fields of a conversation that its copy has too; those of its place where the copy is in the same sandbox."""
    fields = {
        "confirmation_policy": json.dumps(state["confirmation_policy"]),
        "held": held_risks(state["confirmation_policy"]),
        "security_analyzer": json.dumps(state["security_analyzer"]),
    }
    if (seconds := state["confirmation_seconds"]) is not None:
        fields["confirmation_seconds"] = str(seconds)
    if sandbox_id is None:
        return fields
    app = {APP_FIELD + name: json.dumps(value) for name, value in state["app"].items() if name != "start_id"}
    return {**fields, "sandbox_id": sandbox_id, "groups": state["groups"], **app}
