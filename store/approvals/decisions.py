"""Decisions of single actions: what is given of each, and why none of them was taken."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from approvals.digests import action_digest
from store.approvals.audit import Actor, said
from store.errors import StoreError
from store.link.stamps import Stamp

#: what is wrong with a decision, by the word that `decide_pending.lua` has for it
PROBLEMS = {
    "not_pending": "is not pending: it was decided, observed or never waited",
    "expired": "has expired: its deadline has passed",
    "changed": "is not the one that was shown: the digest differs",
    "edit_not_understood": "cannot be edited: its agent does not understand edits",
    "decided_alike": "must be decided as the others are: its agent takes one decision for all",
    "decided_together": "is missing: its agent takes one decision for all that wait",
}


class Decision(NamedTuple):
    """The decision of one action. digest: of the action as it was shown; None: whatever it is.

    since: of its record, where the decision is about this wait alone, and not about one in another life of the ids.
    """

    action_id: str
    verb: Literal["approve", "reject", "edit"]
    reason: str = ""
    digest: str | None = None
    arguments: Any = None  #: of an edit: those that take the place of the action's
    since: str = ""


class StaleDecision(StoreError):
    """No decision was taken, because of some of them."""

    def __init__(self, problems: list[dict[str, str]]) -> None:
        """problems: {action_id, problem} each, a problem of PROBLEMS."""
        words = "; ".join(f"{one['action_id']} {PROBLEMS[one['problem']]}" for one in problems[:10])
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        super().__init__(f"No decision was taken. The action {words}{more}")
        self.problems = problems


def words(decisions: Sequence[Decision], tools: dict[str, Any]) -> str:
    """Decisions as `decide_pending.lua` takes them. tools: by the ids of edited actions, the names of their tools."""
    return json.dumps(
        [
            {
                "id": one.action_id,
                "verb": one.verb,
                "reason": json.dumps(one.reason),
                "said": said(one.reason).decode(),
                "digest": one.digest or "",
                "since": one.since,
                "arguments": json.dumps(one.arguments),
                "edited": action_digest(tools.get(one.action_id), one.arguments) if one.verb == "edit" else "",
            }
            for one in decisions
        ]
    )


def decision_args(
    stamp: Stamp,
    verb: str,
    actor: Actor,
    *,
    reason: str = "",
    decisions: str = "",
    sandbox_id: str = "",
    latest: int | str = "",
    echo: str = "",
) -> list[Any]:
    """The arguments of `decide_pending.lua`, which has the verbs. decisions: as `words` makes them."""
    args = [*stamp.args, verb, json.dumps(reason), sandbox_id, latest, int(actor.may_decide), echo]
    return [*args, actor.json, said(reason), decisions]
