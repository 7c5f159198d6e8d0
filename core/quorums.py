"""Quorums: how many people must approve an action, as rules with the decision `ask` say. No Redis and no Flask.

Such a rule matches as widely as one that rejects, and also applies if the match is unsure. The strictest of several
rules wins: the largest quorum, and every exclusion. Source: docs/approvals.md, "Several people".
"""

from collections.abc import Iterable
from typing import NamedTuple

from core.approvals import Action, Rule, RuledConversation, matches


class Hold(NamedTuple):
    """The quorum of an action."""

    needed: int = 1  #: distinct people who must approve it
    not_by_owner: bool = False  #: the owner of the conversation cannot be one of them
    not_by_asker: bool = False  #: the sender of the last user's message cannot be one of them
    rules: tuple[str, ...] = ()  #: ids


def hold_of(rules: Iterable[Rule], action: Action, conversation: RuledConversation) -> Hold:
    """Return the quorum of an action. rules: those in force."""
    found = [rule for rule in rules if rule.decision == "ask" and matches(rule, action, conversation) is not False]
    return Hold(
        max((rule.quorum for rule in found), default=1),
        any(rule.not_by_owner for rule in found),
        any(rule.not_by_asker for rule in found),
        tuple(rule.id for rule in found),
    )
