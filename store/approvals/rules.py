"""Approval rules in Redis, in a slot of their own, and their decisions.

A use is counted before the decision, by a claim: a script checks by Redis' clock that the rule is neither revoked nor
expired, and has a use left. An action that is appended after a revocation is thus never decided by that rule, and a
rule decides at most `max_uses` actions. If a worker dies between claim and decision, the repeated claim finds its use,
which counts once. Limitation: if a person decides such an action in between, the use stays counted.

Rules decide after every change of a conversation's pending actions, before the index is written. For each pending
action the rule is found, a use is counted, then the action is decided in the conversation's slot. A worker that loses
against another decision returns the use, unless the same rule won by another worker.

In the approval mode `outside`, the server then approves pending actions that stay inside the conversation's folder
(`core/inside.py`), unless a rule that rejects applies, or may apply. In that mode, rules that approve some commands of
a line decide it if its other commands stay inside.

An agent that takes one decision for all gets one if rules decide all its pending actions alike. Otherwise a person
decides all of them. The agent of a sandbox receives the decision from a supervisor: requests do not wait for agents.
"""

import json
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Literal, NamedTuple
from uuid import uuid4

from core.approvals import Action, Matched, Rule, RuledConversation, action_digest, matching
from core.cuts import beginning_in_bytes
from core.inside import beside_inside, stays_inside
from core.refused import RefusalKind
from core.rehearsal import MOST_TOGETHER
from core.wire import ConversationId, Micros, now
from settings.limits import ConversationLimits
from store.approvals.asked import is_handed
from store.approvals.audit import SERVER, Audit, DecisionActor
from store.approvals.decisions import MOST_ENTRIES, Approvals, Confirmations, Decision, StaleDecision
from store.approvals.deliveries import Deliveries
from store.approvals.inbox import Index
from store.errors import UNAVAILABLE, ConversationNotFound, StoreError
from store.keys import ConversationKeys, RuleKeys, SandboxKeys
from store.link import attempts
from store.link.attempts import minted
from store.link.commands import Redis
from store.scripts import Scripts
from store.scripts.calls import MakeRule

_log = logging.getLogger(__name__)

#: Maximum number of rules, and maximum size of one as JSON, in bytes.
MOST_RULES, MOST_RULE_BYTES = 1000, 16 * 1024


#: Members that are stored only if a rule has them. A server of an earlier release cannot read such a rule, and leaves
#: pending actions to people: it must not apply the rule to all conversations.
_LATER = ("key_id", "repository", "folder", "machine", "person", "agent", "effects")

#: Seconds of the lease under which a decision is made, without a call of the agent.
_LEASE_SECONDS = 10.0

#: A seq beyond every entry of an audit.
_END = 10**12

#: Reason of this server's own approvals.
_INSIDE = "Approval mode “Ask what leaves the folder”: it only reads, or writes inside the folder."

#: Problems of a decision that exclude any decision of this wait.
_OVER = ("expired", "changed")


class RuleNotFound(StoreError):
    """The rule does not exist."""

    kind = RefusalKind.MISSING
    words = "Approval rule not found. GET /api/v1/approval-rules lists all rules"


class RuleWasRevoked(StoreError):
    """An earlier attempt of this request made the rule, and it was revoked since."""

    kind = RefusalKind.CONFLICT
    words = "This request made a rule that has been revoked since: make another with a new request"


class RuleWouldBePast(StoreError):
    """The rule would already have expired."""

    kind = RefusalKind.MEMBER
    member = "expires_at"
    words = "Must lie in the future"


class RuleTooLong(StoreError):
    """The rule is too large."""

    kind = RefusalKind.MEMBER
    member = "arguments"
    words = f"A rule should have at most {MOST_RULE_BYTES} bytes as JSON (MOST_RULE_BYTES)"


class TooManyRules(StoreError):
    """The maximum number of rules is reached."""

    kind = RefusalKind.CONFLICT
    words = f"Limit of {MOST_RULES} approval rules reached: revoke one first (MOST_RULES)"


class Doubted(Exception):
    """A rule that rejects may match the action, so a person must decide."""


@dataclass(frozen=True, slots=True)
class UsedRule:
    rule: Rule
    uses: int
    last_used_at: Micros | None
    ended_at: Micros | None = None  #: when it was revoked, or deleted because it had expired
    ended_by: str = ""  #: name of the key that revoked it; empty: none


class RuleUse(NamedTuple):
    """The use of a rule for an action, before its decision."""

    rule: Rule
    claim: str

    @classmethod
    def of(cls, rule: Rule, conversation_id: ConversationId, *action: str) -> "RuleUse":
        """Make the use of a rule.

        action: words that distinguish this wait of an action from others, in all incarnations.
        """
        return cls(rule, sha256(json.dumps([rule.id, conversation_id, *action]).encode()).hexdigest())


class Rules:
    """All rules. A worker caches them, and checks their version."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts
        self._remembered: tuple[bytes, tuple[Rule, ...]] = b"", ()

    def make(self, rule: Rule, what: str = "rule") -> UsedRule:
        """Store a rule with a new `id` and `created_at`, once per request and `what`.

        Raises TooManyRules, RuleTooLong, RuleWouldBePast, RuleWasRevoked.
        """
        rule = replace(rule, id=str(minted(what)))
        text = written_rule(rule)
        if len(text) > MOST_RULE_BYTES:
            raise RuleTooLong
        reply = self._scripts.make_rule(
            RuleKeys.root,
            id=rule.id,
            rule=text,
            expires_at=rule.expires_at,
            max_uses=rule.max_uses,
            most=MOST_RULES,
        )
        match reply:
            case MakeRule.Made(made):
                return UsedRule(read_rule(made), 0, None)
            case "full":
                raise TooManyRules
            case "past":
                raise RuleWouldBePast
            case "revoked":
                raise RuleWasRevoked

    def all(self) -> list[UsedRule]:
        """Return the rules, the newest first, including expired and used-up ones."""
        found = self._list([])
        return sorted(found, key=lambda one: (one.rule.created_at or 0, one.rule.id), reverse=True)

    def ended(self) -> list[UsedRule]:
        """Return the last 1,000 revoked or expired rules, the latest first. One round trip."""
        found = [json.loads(one) for one in self._redis.lrange(RuleKeys.ended, 0, -1)]
        return [
            replace(
                _used(json.dumps(one["rule"]), one["use"]),
                ended_at=Micros(one["ended_at"]),
                ended_by=str(one["ended_by"]),
            )
            for one in found
        ]

    def get(self, rule_id: str) -> UsedRule:
        """Return a rule. Raises RuleNotFound."""
        for found in self._list([rule_id]):
            return found
        raise RuleNotFound

    def revoke(self, rule_id: str, by: str = "") -> None:
        """Delete a rule. It decides no action that is appended after this returns. Raises RuleNotFound.

        by: name of the revoker, for `ended`.
        """
        if not self._scripts.revoke_rule(RuleKeys.root, id=rule_id, request=uuid4().hex, by=json.dumps(by)):
            raise RuleNotFound

    def current(self) -> tuple[Rule, ...]:
        """Return the rules, for `core.approvals.matching`. One round trip, two after a change."""
        return self.versioned()[1]

    def remembered(self) -> tuple[str, tuple[Rule, ...]]:
        """Return the cached version and rules, without a round trip."""
        known, rules = self._remembered
        return known.decode(), rules

    def versioned(self) -> tuple[str, tuple[Rule, ...]]:
        """Return the version of the rules, empty if there were never any, and the rules. As `current`."""
        return self._current(self._redis.get(RuleKeys.version))

    def current_for(self, conversation_id: ConversationId) -> tuple[tuple[Rule, ...], bool]:
        """Return the rules as `current`, and whether this server approves actions inside a conversation's folder."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.get(RuleKeys.version)
            pipe.hget(ConversationKeys(conversation_id).root, "approves_inside")
            version, inside = pipe.execute()
        return self._current(version)[1], inside == b"true"

    def _current(self, version: bytes | None) -> tuple[str, tuple[Rule, ...]]:
        known, rules = self._remembered
        if (version or b"") != known:
            reply = self._scripts.list_rules(RuleKeys.root, ids=())
            known, rules = reply.version, tuple(read_rule(rule) for rule, _ in reply.rules)
            self._remembered = known, rules
        return known.decode(), rules

    def in_force(self, at: Micros) -> tuple[Rule, ...]:
        """Return the rules that can decide an action at a time.

        As `current`, one round trip more if uses are limited.
        """
        rules = [rule for rule in self.current() if rule.expires_at is None or rule.expires_at > at]
        limited = [rule.id for rule in rules if rule.max_uses is not None]
        uses = {one.rule.id: one.uses for one in self._list(limited)} if limited else {}
        return tuple(
            rule for rule in rules if rule.max_uses is None or uses.get(rule.id, rule.max_uses) < rule.max_uses
        )

    def claim(self, uses: Sequence[RuleUse], doubts: Collection[str] = ()) -> RuleUse | None:
        """Count uses, all or none, each once by its claim. Returns the first use that its rule refuses.

        doubts: ids of rules; raises Doubted, and counts nothing, while one of them is in force.
        """
        if not uses:
            return None
        claims = [(use.rule.id, use.claim) for use in uses]
        refused = self._scripts.claim_rule_uses(RuleKeys.root, doubts=doubts, uses=claims)
        if refused < 0:
            raise Doubted
        return uses[refused - 1] if refused else None

    def give_back(self, uses: Collection[RuleUse]) -> None:
        """Return uses, because their actions were decided by other means."""
        if uses:
            self._scripts.return_rule_uses(RuleKeys.root, uses=[(use.rule.id, use.claim) for use in uses])

    def _list(self, ids: Sequence[str]) -> list[UsedRule]:
        found = self._scripts.list_rules(RuleKeys.root, ids=ids).rules
        return [_used(rule, json.loads(use)) for rule, use in found]


def _used(rule: str, use: dict[str, str]) -> UsedRule:
    last_used_at = use["last_used_at"]
    return UsedRule(read_rule(rule), int(use["uses"]), Micros(int(last_used_at)) if last_used_at else None)


def is_short(rule: Rule) -> bool:
    return len(written_rule(replace(rule, id=str(uuid4())))) <= MOST_RULE_BYTES


def written_rule(rule: Rule) -> str:
    """Return a rule as JSON, without its time of creation."""
    members = asdict(rule)
    del members["created_at"]
    for name in _LATER:  # earlier releases do not know these members
        if members[name] is None:
            del members[name]
    if rule.decision != "ask":
        for name in ("quorum", "not_by_owner", "not_by_asker"):
            del members[name]
    return json.dumps(members, separators=(",", ":"))


def read_rule(rule: str) -> Rule:
    members = json.loads(rule)
    lists = {name: members.get(name) for name in ("conversation_ids", "effects")}
    return Rule(**{**members, **{name: None if found is None else tuple(found) for name, found in lists.items()}})


class Waiting(NamedTuple):
    id: str
    since: str
    digest: str
    matched: Matched

    def uses(self, conversation_id: ConversationId, without: Collection[str]) -> list[RuleUse]:
        """Return a use of each rule that decides it; empty if none does. without: ids of excluded rules."""
        return [
            RuleUse.of(rule, conversation_id, self.id, self.since, self.digest)
            for rule in self.matched.deciding(without)
        ]


class RuleDecisions:
    """The decisions of approval rules, which precede the index of pending actions."""

    def __init__(
        self,
        redis: Redis,
        rules: Rules,
        confirmations: Confirmations,
        deliveries: Deliveries,
        audit: Audit,
        index: Index,
        bounds: ConversationLimits,
    ) -> None:
        """confirmations, deliveries: must index changes without applying rules."""
        self._redis = redis
        self._rules = rules
        self._confirmations = confirmations
        self._deliveries = deliveries
        self._audit = audit
        self._index = index
        self._most_reason = bounds.max_reason_bytes

    def refresh(self, conversation_id: ConversationId) -> None:
        """Apply the rules to a conversation's pending actions, then update the index.

        Four round trips without rules, the first of which checks their version.
        """
        self.apply(conversation_id)
        self._index.refresh(conversation_id)

    def apply(self, conversation_id: ConversationId) -> None:
        """Decide the pending actions that rules match. One round trip without rules.

        Raises only errors of UNAVAILABLE; the next call continues then.
        """
        try:
            with attempts.aside():
                self._apply(conversation_id)
        except ConversationNotFound:
            return
        except UNAVAILABLE:
            raise
        except Exception:  # the caller's append is stored, and must not fail by an error here
            _log.exception("the approval rules of conversation %s failed: its actions wait for people", conversation_id)

    def _apply(self, conversation_id: ConversationId) -> None:
        rules, approves_inside = self._rules.current_for(conversation_id)
        if rules:
            self._apply_rules(conversation_id, rules)
        if approves_inside:
            self._approve_inside(conversation_id)

    def _apply_rules(self, conversation_id: ConversationId, rules: tuple[Rule, ...]) -> None:
        found = self._index.read_approvals(conversation_id, _END)
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

    def _approve_inside(self, conversation_id: ConversationId) -> None:
        """Approve pending actions inside the folder. If a rule may reject one, a person decides.

        An agent that takes one decision for all gets one if all pending actions stay inside.
        """
        found = self._index.read_approvals(conversation_id, _END)
        if not found.approves_inside or not found.pending:
            return
        rules = [rule for rule in self._rules.in_force(now()) if rule.decision != "approve"]
        here = RuledConversation(conversation_id, found.tags, found.folder, found.origin)
        folder = self._folder_of(found)
        records = {one["id"]: one for one in found.pending if not is_handed(one)}
        decisions = []
        for shown in self._confirmations.pending(conversation_id):
            record = records.get(shown["id"], {"since": None})
            action = Action(shown["tool_name"], shown["arguments"], record.get("risk", "UNKNOWN"))
            against = matching(rules, action, here)
            is_free = record["since"] == shown["since"] and not against.rules and not against.doubts
            if is_free and stays_inside(action, folder):
                digest = action_digest(action.tool_name, action.arguments)
                decisions.append(Decision(shown["id"], "approve", _INSIDE, digest, since=shown["since"]))
        if decisions and (not found.together or len(decisions) == len(found.pending)):
            with suppress(StaleDecision, ConversationNotFound):  # others were faster: the next change continues
                if found.sandbox_id is None:
                    self._confirmations.decide_each(conversation_id, decisions, SERVER)
                else:
                    self._hand_over(conversation_id, found.sandbox_id, decisions, SERVER)

    def _folder_of(self, found: Approvals) -> str | None:
        """Return the folder of a conversation, or else of its sandbox."""
        if found.folder or not found.sandbox_id:
            return found.folder
        stored = self._redis.hget(SandboxKeys.box(found.sandbox_id), "working_dir")
        return stored.decode() if stored else None

    def _waiting(self, conversation_id: ConversationId, found: Approvals, rules: tuple[Rule, ...]) -> list[Waiting]:
        tools = {rule.tool_name for rule in rules}
        here = RuledConversation(conversation_id, found.tags, found.folder, found.origin)
        folder = self._folder_of(found) if found.approves_inside else None
        records = {one["id"]: one for one in found.pending if one["tool"] in tools and not is_handed(one)}
        waiting = []
        for shown in self._confirmations.pending(conversation_id) if records else ():
            record = records.get(shown["id"], {"since": None})
            if record["since"] == shown["since"]:
                action = Action(shown["tool_name"], shown["arguments"], record["risk"])
                matched = matching(rules, action, here)
                if found.approves_inside:
                    matched = beside_inside(matched, action, folder)
                if matched.deciding():
                    digest = action_digest(action.tool_name, action.arguments)
                    waiting.append(Waiting(shown["id"], shown["since"], digest, matched))
        return waiting

    def _claim_alike(self, conversation_id: ConversationId, waiting: Sequence[Waiting]) -> dict[str, list[RuleUse]]:
        """Return uses for each action, if rules decide alike and have uses left; otherwise empty.

        Several rules may approve one shell line together: a use of each is counted, or none. Empty also if a rule that
        rejects may match, because a person must decide then.
        """
        doubts = {rule.id for one in waiting for rule in one.matched.doubts}
        without: set[str] = set()
        while True:
            uses = {one.id: one.uses(conversation_id, without) for one in waiting}
            rules = {use.rule.id: use.rule for found in uses.values() for use in found}
            if not all(uses.values()) or len(rules) > MOST_TOGETHER:
                return {}
            if len({rule.decision for rule in rules.values()}) > 1:
                return {}
            is_approval = any(rule.decision == "approve" for rule in rules.values())
            try:
                refused = self._rules.claim(
                    [use for found in uses.values() for use in found], doubts if is_approval else ()
                )
            except Doubted:
                return {}
            if refused is None:
                return uses
            without.add(refused.rule.id)

    def _decide(
        self,
        conversation_id: ConversationId,
        found: Approvals,
        waiting: Sequence[Waiting],
        uses: dict[str, list[RuleUse]],
    ) -> None:
        """Decide actions whose uses are counted. If others were faster, their uses are returned."""
        names = dict.fromkeys(use.rule.id for found_uses in uses.values() for use in found_uses)
        actor = DecisionActor("rule", " ".join(names))
        decisions = [
            Decision(
                one.id,
                "reject" if rules[0].decision == "reject" else "approve",
                self._reason(rules),
                one.digest,
                since=one.since,
            )
            for one in waiting
            for rules in [[use.rule for use in uses[one.id]]]
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
        self, conversation_id: ConversationId, sandbox_id: str, decisions: Sequence[Decision], actor: DecisionActor
    ) -> None:
        """Decide in a sandbox, and let a supervisor deliver the decision at once."""
        words = self._confirmations.encode_decisions(conversation_id, decisions)
        claim = self._deliveries.open(conversation_id, sandbox_id, _LEASE_SECONDS)
        _, delivery = self._deliveries.decide(claim, "each", actor=actor, decisions=words)
        self._deliveries.close(claim, again_in=0 if claim.is_of(delivery) else None)

    def _give_back(
        self, conversation_id: ConversationId, audited: int, uses: dict[str, list[RuleUse]], over: Collection[str]
    ) -> None:
        """Return the uses of actions that were decided by other means, according to the audit since some entry.

        over: actions whose wait has ended for good. Any other undecided action keeps its use: another worker may be
        about to decide it by the same claim.
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
                for action_id, of_action in uses.items()
                for use in of_action
                if (action_id in over or action_id in deciders) and not _is(deciders.get(action_id), use.rule)
            ]
        )

    def _reason(self, rules: Sequence[Rule]) -> str:
        reasons = [f"Approval rule {rule.id}" + (f": {rule.reason}" if rule.reason else "") for rule in rules]
        return beginning_in_bytes("; ".join(reasons), self._most_reason)


def _verb(rules: Sequence[Rule]) -> Literal["approve", "reject"]:
    """Return the decision of rules that decide alike. None of them asks."""
    return "reject" if rules[0].decision == "reject" else "approve"


def _is(actor: dict[str, str] | None, rule: Rule) -> bool:
    return actor is not None and actor["kind"] == "rule" and rule.id in actor["name"].split()
