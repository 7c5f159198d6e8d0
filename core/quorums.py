"""Actions that people must approve, and how many of them: what the rules say that ask. No Redis and no Flask.

A rule that asks matches as widely as one that rejects, and holds where that is unsure. Of several rules the strictest
counts: the most people, and every exclusion. Source: docs/approvals.md, "Several people".
"""

from collections.abc import Iterable
from typing import NamedTuple

from core.approvals import Action, Conversation, Rule, matches


class Hold(NamedTuple):
    """What the rules that ask say of an action."""

    needed: int = 1  #: distinct people who must approve it
    not_by_owner: bool = False  #: whether the owner of the conversation may not be one of them
    not_by_asker: bool = False  #: whether the one who sent the last user's message may not
    rules: tuple[str, ...] = ()  #: ids


def hold_of(rules: Iterable[Rule], action: Action, conversation: Conversation) -> Hold:
    """What the rules say; rules: those in force."""
    found = [rule for rule in rules if rule.decision == "ask" and matches(rule, action, conversation) is not False]
    return Hold(
        max((rule.quorum for rule in found), default=1),
        any(rule.not_by_owner for rule in found),
        any(rule.not_by_asker for rule in found),
        tuple(rule.id for rule in found),
    )
