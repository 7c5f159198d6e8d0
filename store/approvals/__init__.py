"""Approvals: the decisions of pending actions, and their audit."""

from settings.limits import ConversationLimits, SandboxLimits
from store.approvals.asked import Asked
from store.approvals.audit import Audit, TerminalAudit
from store.approvals.background import BackgroundRehearsals
from store.approvals.decisions import Confirmations, LinkUses
from store.approvals.deliveries import Deliveries
from store.approvals.inbox import ApprovalChecks, Inbox, Index
from store.approvals.quorums import Quorums, Rights
from store.approvals.rehearsals import Rehearsals
from store.approvals.rules import RuleDecisions, Rules
from store.approvals.trials import Decisions
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.listing import Listing
from store.projections import Projections
from store.scripts import Scripts


class ApprovalWing:
    """The pending actions, and everything that decides them."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        listing: Listing,
        index: Index,
        bounds: ConversationLimits,
        limits: SandboxLimits,
        sealer: Sealer,
        rights: Rights,
    ) -> None:
        """rights: whose approval counts if several people must approve."""
        self.index = index
        self.rules, self.audit = Rules(redis, scripts), Audit(redis, scripts)
        self.quorums = Quorums(redis, scripts, self.rules, rights)
        quorum = self.quorums.read
        unruled = Projections(listing, index)  # indexes the decisions of rules, without applying rules again
        self.rule_decisions = RuleDecisions(
            redis,
            self.rules,
            Confirmations(redis, scripts, unruled, bounds, quorum),
            Deliveries(scripts, unruled, bounds, limits, sealer, quorum),
            self.audit,
            index,
            bounds,
        )
        self.rehearsals = Rehearsals(Decisions(redis, scripts), self.audit, self.rules, index)
        self.background = BackgroundRehearsals(redis, scripts, self.audit, self.rules)
        #: for every other write
        self.projections = Projections(listing, self.rule_decisions)
        self.confirmations = Confirmations(redis, scripts, self.projections, bounds, quorum)
        self.deliveries = Deliveries(scripts, self.projections, bounds, limits, sealer, quorum)
        self.terminals = TerminalAudit(scripts, self.projections)
        self.inbox = Inbox(redis, scripts, self.rule_decisions)
        self.checks = ApprovalChecks(redis, scripts, listing, self.projections, audit_days=bounds.audit_days)
        self.link_uses = LinkUses(scripts)
        self.asked = Asked(redis, scripts)
