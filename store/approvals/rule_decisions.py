"""What approval rules decide: called after every change of what waits in a conversation, before the index is written.

For each pending action the rule is found, a use is counted, then the action is decided in the conversation's slot. A
worker that dies in between leaves a use that whoever comes next finds: it counts once. Whoever loses against another
decision gives the use back, unless the same rule won by another worker.

An agent that takes one decision for all gets one where rules decide all its pending actions alike; otherwise a person
decides all of them. The agent of a sandbox receives the decision from a supervisor: a request waits for no agent.
"""

import json
import logging
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from approvals.digests import action_digest
from approvals.rules import Action, Conversation, Rule, matching
from store.approvals.audit import Actor, Audit
from store.approvals.confirmations import MOST_ENTRIES, Approvals, Confirmations
from store.approvals.decisions import Decision, StaleDecision
from store.approvals.deliveries import Deliveries
from store.approvals.rules import Rules, Use
from store.bounds import Bounds
from store.errors import UNAVAILABLE, ConversationNotFound
from store.link import attempts
from wire import ConversationId

_log = logging.getLogger(__name__)

#: seconds of the lease under which a decision is taken: no agent is called meanwhile
_LEASE_SECONDS = 10.0

#: most rules that decide one group of actions: the audit names each
MOST_TOGETHER = 6

#: a seq after every entry of an audit
_END = 10**12

#: problems of a decision after which no decision of that wait can be taken
_OVER = ("expired", "changed")

#: whether the present thread applies rules: a decision changes what waits
_applies: ContextVar[bool] = ContextVar("applies", default=False)


class Waiting(NamedTuple):
    """A pending action, and the rules that match it, in the order in which they are tried."""

    id: str
    since: str
    digest: str
    rules: list[Rule]


class RuleDecisions:
    """The decisions of approval rules."""

    def __init__(
        self,
        rules: Rules,
        confirmations: Confirmations,
        deliveries: Deliveries,
        audit: Audit,
        bounds: Bounds,
    ) -> None:
        self._rules = rules
        self._confirmations = confirmations
        self._deliveries = deliveries
        self._audit = audit
        self._most_reason = bounds.reason_bytes

    def apply(self, conversation_id: ConversationId) -> None:
        """Decide the pending actions that rules match. One round trip where no rule matters.

        Raises errors of UNAVAILABLE alone: then the next call goes on.
        """
        if _applies.get():
            return
        token = _applies.set(True)
        try:
            with attempts.aside():
                self._apply(conversation_id)
        except ConversationNotFound:
            return
        except UNAVAILABLE:
            raise
        except Exception:  # the caller's append has been taken: it must not fail by a fault of ours
            _log.exception("the approval rules of conversation %s failed: its actions wait for people", conversation_id)
        finally:
            _applies.reset(token)

    def _apply(self, conversation_id: ConversationId) -> None:
        rules = self._rules.current()
        if not rules:
            return
        found = self._confirmations.read_approvals(conversation_id, _END)
        waiting = self._waiting(conversation_id, found, rules)
        if found.together:
            is_whole = len(waiting) == len(found.pending)
            uses = self._claim_alike(conversation_id, waiting) if waiting and is_whole else {}
            if uses:
                self._decide(conversation_id, found, waiting, uses)
            return
        for one in waiting:
            if uses := self._claim_alike(conversation_id, [one]):
                self._decide(conversation_id, found, [one], uses)

    def _waiting(self, conversation_id: ConversationId, found: Approvals, rules: tuple[Rule, ...]) -> list[Waiting]:
        """The pending actions that rules match."""
        tools, here = {rule.tool_name for rule in rules}, Conversation(conversation_id, found.tags)
        records = {one["id"]: one for one in found.pending if one["tool"] in tools}
        waiting = []
        for shown in self._confirmations.pending(conversation_id) if records else ():
            record = records.get(shown["id"], {"since": None})
            if record["since"] == shown["since"]:
                action = Action(shown["tool_name"], shown["arguments"], record["risk"])
                if matched := matching(rules, action, here):
                    digest = action_digest(action.tool_name, action.arguments)
                    waiting.append(Waiting(shown["id"], shown["since"], digest, matched))
        return waiting

    def _claim_alike(self, conversation_id: ConversationId, waiting: Sequence[Waiting]) -> dict[str, Use]:
        """A use for each action, of rules that decide alike; empty where they do not, or have no use left."""
        left = {one.id: list(one.rules) for one in waiting}
        while all(left.values()):
            uses = {one.id: Use.of(left[one.id][0], conversation_id, one.id, one.since, one.digest) for one in waiting}
            rules = {use.rule.id: use.rule for use in uses.values()}
            if len({rule.decision for rule in rules.values()}) > 1 or len(rules) > MOST_TOGETHER:
                return {}
            refused = self._rules.claim([*uses.values()])
            if refused is None:
                return uses
            left = {name: [rule for rule in others if rule.id != refused.rule.id] for name, others in left.items()}
        return {}

    def _decide(
        self, conversation_id: ConversationId, found: Approvals, waiting: Sequence[Waiting], uses: dict[str, Use]
    ) -> None:
        """Decide actions whose uses are counted. Where others were faster, their uses are given back."""
        names = dict.fromkeys(use.rule.id for use in uses.values())
        actor = Actor("rule", " ".join(names))
        decisions = [
            Decision(one.id, rule.decision, self._reason(rule), one.digest, since=one.since)
            for one in waiting
            for rule in [uses[one.id].rule]
        ]
        try:
            if found.sandbox_id is None:
                self._confirmations.decide_each(conversation_id, decisions, actor)
            else:
                self._hand_over(conversation_id, found.sandbox_id, decisions, actor)
        except StaleDecision as stale:
            over = {one["action_id"] for one in stale.problems if one["problem"] in _OVER}
            self._give_back(conversation_id, found.audited, uses, over)
        except ConversationNotFound:
            self._give_back(conversation_id, found.audited, uses, set(uses))

    def _hand_over(
        self, conversation_id: ConversationId, sandbox_id: str, decisions: Sequence[Decision], actor: Actor
    ) -> None:
        """Decide in a sandbox; a supervisor delivers it, at once."""
        words = self._confirmations.words(conversation_id, decisions)
        claim = self._deliveries.open(conversation_id, sandbox_id, _LEASE_SECONDS)
        _, delivery = self._deliveries.decide(claim, "each", actor=actor, decisions=words)
        self._deliveries.close(claim, again_in=0 if claim.is_of(delivery) else None)

    def _give_back(
        self, conversation_id: ConversationId, audited: int, uses: dict[str, Use], over: Collection[str]
    ) -> None:
        """Give back the uses for actions that were decided by other means since so many entries of the audit.

        over: the actions whose wait has ended for good. Any other that nobody has decided keeps its use: another
        worker may be about to decide it by the same claim.
        """
        deciders: dict[str, dict[str, str]] = {}
        while entries := self._audit.of(conversation_id, after=audited, limit=MOST_ENTRIES):
            audited += len(entries)
            for entry in map(json.loads, entries):
                for action_id in entry["action_ids"]:
                    deciders.setdefault(action_id, entry["actor"])
        self._rules.give_back(
            [
                use
                for action_id, use in uses.items()
                if (action_id in over or action_id in deciders) and not _is(deciders.get(action_id), use.rule)
            ]
        )

    def _reason(self, rule: Rule) -> str:
        reason = f"Approval rule {rule.id}" + (f": {rule.reason}" if rule.reason else "")
        return reason.encode()[: self._most_reason].decode(errors="ignore")


def _is(actor: dict[str, str] | None, rule: Rule) -> bool:
    return actor is not None and actor["kind"] == "rule" and rule.id in actor["name"].split()
