"""Forks: copies of conversations, up to an event or up to the end."""

import json
from collections.abc import Sequence
from typing import Any

from store.conversations.conversations import Conversations
from store.conversations.copies import PAGE, Copy, policy_fields
from store.errors import ConversationNotFound, EventNotFound, IdInUse
from store.keys import APP_FIELD, ConversationKeys
from store.link.attempts import is_finished, minted
from store.link.stamps import Stamp
from store.listing import Listing
from store.log.feed import read_log
from store.scripts import Scripts
from wire import ConversationId, Seq, read_event


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
        copy = Copy(self._scripts, ConversationKeys(target, fork), stamp)
        self._fill(copy, source, state["incarnation"], last)
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
        if not copy.adopt(self._listing, fields, claims):
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

    def _fill(self, copy: Copy, source: ConversationId, incarnation: str, last: Seq) -> None:
        """Write the log up to `last` into the copy."""
        copy.append([])
        while copy.seq < last:
            found, _, page = read_log(self._scripts, source, copy.seq, min(PAGE, last - copy.seq))
            if found.decode() != incarnation:  # deleted meanwhile; another conversation may have its id
                raise ConversationNotFound
            copy.append([read_event(raw) for raw in page])


def _inherited(state: dict[str, Any], sandbox_id: str | None) -> dict[str, str]:
    """The fields of a conversation that its copy has too; those of its place where the copy is in the same sandbox."""
    fields = policy_fields(state)
    if sandbox_id is None:
        return fields
    app = {APP_FIELD + name: json.dumps(value) for name, value in state["app"].items() if name != "start_id"}
    return {**fields, "sandbox_id": sandbox_id, "groups": state["groups"], **app}
