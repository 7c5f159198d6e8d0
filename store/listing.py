"""The listing of all conversations, in a slot of its own: written behind every change, before it is acknowledged.

A conversation's script answers with its revision; an entry never goes back to an older one. What a killed worker left
unlisted was not acknowledged: the client's repeat lists it. What is listed wrongly is put right when it is read.
"""

from typing import Any, NamedTuple

from redis import Redis

from store.errors import ConversationNotFound
from store.keys import ConversationKeys, ListingKeys
from store.scripts import DecidingScript, Scripts
from wire import ConversationId, Micros, micros


class Entry(NamedTuple):
    """One conversation of a page."""

    id: ConversationId
    at: Micros  #: the time that the page is ordered by
    revision: int


class Listing:
    """Every conversation by time of creation and of last change, also by status and by group."""

    def __init__(self, redis: "Redis", scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def write(self, script: DecidingScript, conversation_id: ConversationId, args: list[Any]) -> tuple[Any, ...]:
        """Run a script that writes a conversation, and list the state that it replies with.

        Returns its outcome, and what it replies beyond that state. Raises ConversationNotFound.
        """
        reply = script([ConversationKeys(conversation_id).root], args)
        if reply is None:
            raise ConversationNotFound
        outcome, revision, status, created_at, updated_at, groups, *more = reply
        self.note(conversation_id, int(revision), status, created_at, updated_at, groups)
        return outcome, *more

    def note(
        self,
        conversation_id: ConversationId,
        revision: int,
        status: str,
        created_at: str,
        updated_at: str,
        groups: str = "",
    ) -> None:
        """Enter or move a conversation. groups: what else it can be listed by, joined by commas."""
        self._scripts.note_conversation(
            [ListingKeys.root], [conversation_id, revision, status, micros(created_at), micros(updated_at), groups]
        )

    def forget(self, conversation_id: ConversationId, revision: int) -> None:
        """Take a conversation out, unless one of a later revision is there."""
        self._scripts.note_conversation([ListingKeys.root], [conversation_id, revision, "", 0, 0, ""])

    def page(
        self, *, among: str | None, by: str, descending: bool, limit: int, start: tuple[Micros, ConversationId] | None
    ) -> list[Entry]:
        """Conversations in the order of `by`, `created` or `updated`, from a place on; among: a status or a group."""
        place = start or ("", "")
        args = [by, among or "", "desc" if descending else "asc", limit, *place]
        found: Any = self._scripts.page_conversations([ListingKeys.root], args)
        return [
            Entry(ConversationId(identity.decode()), Micros(int(float(at))), int(revision))
            for identity, at, revision in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]

    def count(self, among: str | None) -> int:
        """How many conversations there are, of a status, of a group or in all."""
        return int(self._redis.zcard(ListingKeys.index("created", among)))
