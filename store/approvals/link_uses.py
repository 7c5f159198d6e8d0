"""The use of one-time links: each takes one decision. Redis has a digest of a link's token, and never the token."""

from typing import Literal, NamedTuple

from store.approval_keys import ApprovalKeys
from store.scripts import Scripts
from wire import Micros


class Use(NamedTuple):
    """What a link was used for."""

    decision: str  #: `approve` or `reject`; empty: it was not used
    at: Micros  #: by Redis' clock; 0: it was not used


class LinkUses:
    """The uses of all links. Redis' clock says when a link expires."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def find(self, identity: str, ends: Micros) -> Use | None:
        """The use of a link; None of one that has expired. One round trip."""
        now, decision, at = map(bytes.decode, self._scripts.read_link([ApprovalKeys.root], [identity]))
        return Use(decision, Micros(int(at or 0))) if int(now) < ends else None

    def take(
        self, identity: str, ends: Micros, decision: Literal["approve", "reject"]
    ) -> tuple[Literal["first", "again", "other", "past"], Use]:
        """Use a link for a decision, which a repeat finds again. One round trip.

        Returns `first`, `again` after an earlier use for the same decision, `other` after one for the other decision,
        which alone counts then, and `past` for a link that has expired; and the use that counts.
        """
        match self._scripts.take_link([ApprovalKeys.root], [identity, ends, decision]):
            case ("first" | "again" | "other" | "past" as outcome, used_for, at):
                return outcome, Use(used_for, Micros(int(at or 0)))
        raise AssertionError("take_link has no other outcome")
