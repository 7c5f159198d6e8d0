"""Recent decisions of people, and what a rule would have decided. It only reads.

A record is an entry of the audit, which names the actions, and their events, which have the full arguments. An event
counts as unread if its conversation is deleted, its log is cold, or its digest is not that of the decided action. A
read is limited in entries, bytes and seconds, and continues at the cursor that it returns.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from core.approvals import (
    Action,
    Rule,
    RuledConversation,
    canonical,
    holds_for,
    matches,
    matching,
    text_of,
)
from core.cuts import beginning
from core.pauses import take_turns
from core.refused import RefusalKind
from core.rehearsal import OfferedAnswer, RuleAnswer, like_answer, ready_answers, would_answer
from core.scopes import Scope, scopes_of
from core.wire import ConversationId, now, parse_json
from store.approvals.audit import LONGEST_TEXT, Audit, AuditFilter, AuditPosition, decider_of, place_of
from store.approvals.inbox import Index
from store.approvals.rules import Rules
from store.approvals.trials import (
    FEW,
    AuditedAction,
    ConversationPlace,
    Decisions,
    Trial,
    TrialExample,
    audited_actions,
    slices,
)
from store.errors import ConversationNotFound, StoreError
from store.log.frames import PAGE_BYTES

#: Seconds and bytes of events after which a read ends with the current entry.
MOST_SECONDS, MOST_BYTES = 1.0, PAGE_BYTES

#: Maximum number of entries for proposals, and of proposals.
MOST_RECENT, MOST_PROPOSALS = 500, 50

#: Number of decisions on which a ready answer is tried, and of audit entries that are scanned for them.
_TRIED, _SCANNED = 20, 1000

#: A seq beyond every entry of an audit.
_END = 10**12


class ActionNotPending(StoreError):
    """The action is not pending, or does not exist."""

    kind = RefusalKind.MISSING
    words = "This action does not wait for a decision. GET /api/v1/pending-actions lists the pending actions"


class Decided(NamedTuple):
    conversation: RuledConversation
    conversation_title: str | None
    action_id: str
    action: Action
    decision: str  #: `approve`, `reject` or `edit`
    actor: dict[str, str]
    time: str

    @property
    def conversation_id(self) -> ConversationId:
        return self.conversation.id

    @property
    def tool_name(self) -> str:
        return str(self.action.tool_name)

    @property
    def text(self) -> str:
        """Return a description of the action."""
        return beginning(text_of(self.action.arguments), LONGEST_TEXT)


class Records(NamedTuple):
    """A page of decisions, the newest first."""

    found: list[Decided]
    unread: int


class Rehearsal(NamedTuple):
    """The effect of a draft on the decisions of a page."""

    decided: int
    answered: int
    rejected: int  #: number of answers that differ from the person's decision
    unread: int
    examples: list[TrialExample]  #: first those with differing decisions
    following: AuditPosition | None


class Proposal(NamedTuple):
    """A rule for actions that people approve repeatedly."""

    answer: RuleAnswer
    evidence: list[Decided]  #: the newest first

    @property
    def examples(self) -> list[Decided]:
        return self.evidence[:FEW]


class Tried(NamedTuple):
    """A ready answer, tried on the last decisions about its tool."""

    ready: OfferedAnswer
    answered: list[int]  #: number of answers in each of its scopes
    of: int


class Answers(NamedTuple):
    """The ready answers about an action, and the possible scopes of a custom rule."""

    tried: list[Tried]
    scopes: list[Scope]


class Rehearsals:
    def __init__(self, decisions: Decisions, audit: Audit, rules: Rules, index: Index) -> None:
        self._decisions = decisions
        self._audit = audit
        self._rules = rules
        self._index = index

    def rehearse(self, draft: Rule, *, limit: int, start: AuditPosition | None) -> Rehearsal:
        """Try a draft on a page of decisions. limit: number of audit entries."""
        trial = Trial(self._decisions, draft, self._rules.in_force(now()))
        raws, following = self._audit.search(AuditFilter(people=True), descending=True, limit=limit, start=start)
        entries = [parse_json(raw) for raw in raws]
        ends, spent = time.monotonic() + MOST_SECONDS, 0
        for last, some in slices(entries):
            spent += trial.take(some)
            if last + 1 < len(raws) and (spent >= MOST_BYTES or time.monotonic() >= ends):
                following = place_of(raws[last])
                break
        return Rehearsal(trial.decided, trial.answered, trial.rejected, trial.unread, trial.examples, following)

    def proposals(self, least: int) -> tuple[list[Proposal], int, int]:
        """Propose rules for what was approved `least` times and never rejected. Also returns decisions read and unread.

        A rule that the rules in force already cover is not proposed.
        """
        rules = self._rules.in_force(now())
        groups: dict[bytes, Proposal] = {}

        def group(one: Decided) -> None:
            if one.decision == "approve" and (answer := like_answer(one.action)):
                key = canonical([answer.rule.tool_name, answer.rule.arguments])
                groups.setdefault(key, Proposal(answer, [])).evidence.append(one)

        page = self._read(group, limit=MOST_RECENT)
        contrary = [one for one in page.found if one.decision != "approve"]
        found = [
            proposal
            for proposal in groups.values()
            if len(proposal.evidence) >= least
            and not any(_matches(proposal.answer.rule, one) for one in contrary)
            and not _is_decided(rules, proposal.evidence[0])
        ]
        found.sort(key=lambda proposal: len(proposal.evidence), reverse=True)
        return found[:MOST_PROPOSALS], len(page.found) + page.unread, page.unread

    def answers(
        self, conversation_id: ConversationId, action_id: str, name_of_key: Callable[[str], str] = str
    ) -> Answers:
        """Return the ready answers about a pending action, tried on the last decisions about its tool.

        name_of_key: returns the name of a key by its id, for sentences; empty: propose no rule for that key. Raises
        ConversationNotFound, ActionNotPending.
        """
        waiting = self._index.read_approvals(conversation_id, _END)
        if waiting.gone:
            raise ConversationNotFound
        if action_id not in {one["id"] for one in waiting.pending}:
            raise ActionNotPending
        [event] = self._decisions.events(conversation_id, [action_id])
        if event is None:
            raise ActionNotPending
        action = Action.of(parse_json(event))
        here, key_id = (
            RuledConversation(conversation_id, waiting.tags, waiting.folder, waiting.origin),
            waiting.origin.key_id,
        )
        key_name = name_of_key(key_id) if key_id else ""
        scopes = scopes_of(conversation_id, waiting.origin, key_name)
        answers = ready_answers(action, here, key_name)
        if not answers:
            return Answers([], scopes)
        rules = self._rules.in_force(now())
        recent: list[Decided] = []
        self._read(recent.append, limit=_TRIED, tool_name=action.tool_name, only=True, most_scanned=_SCANNED)
        del recent[_TRIED:]
        return Answers([_tried(ready, rules, recent) for ready in answers], scopes)

    def _read(
        self,
        take: Callable[[Decided], None],
        *,
        limit: int,
        tool_name: str | None = None,
        only: bool = False,
        most_scanned: int | None = None,
    ) -> Records:
        """Read decisions of people, the newest first.

        take: called with each decision, within the time of a read. limit: number of audit entries. tool_name: skip
        decisions about other tools. only: only entries about this tool count towards the limit.
        """
        filters = AuditFilter(people=True, tool_name=tool_name if only else None)
        raws, _ = self._audit.search(filters, descending=True, limit=limit, start=None, most_scanned=most_scanned)
        ends, spent = time.monotonic() + MOST_SECONDS, 0
        found: list[Decided] = []
        unread = 0
        for _, some in slices([parse_json(raw) for raw in raws]):
            wanted = (one for entry in some for one in audited_actions(entry))
            mine = [one for one in wanted if tool_name is None or one.may_use(tool_name)]
            read, size = self._load(mine)
            decided = [one for one in read if one is not None]
            of_tool = [one for one in decided if tool_name in (None, one.action.tool_name)]
            for one in of_tool:
                take_turns()
                take(one)
            found += of_tool
            unread += len(read) - len(decided)
            spent += size
            if spent >= MOST_BYTES or time.monotonic() >= ends:
                break
        return Records(found, unread)

    def _load(self, wanted: list[AuditedAction]) -> tuple[list[Decided | None], int]:
        """Return decisions with their actions' arguments, None for each unreadable one, and the bytes read."""
        places = self._decisions.places(one.conversation_id for one in wanted)
        there = [one for one in wanted if places[one.conversation_id] is not None]
        actions, size = self._decisions.actions(there)
        found = {(one.conversation_id, one.action_id): action for one, action in zip(there, actions, strict=True)}
        return [_decided(one, found.get((one.conversation_id, one.action_id)), places) for one in wanted], size


def _decided(
    wanted: AuditedAction, action: Action | None, places: dict[ConversationId, ConversationPlace | None]
) -> Decided | None:
    place, entry = places[wanted.conversation_id], wanted.entry
    if action is None or place is None:
        return None
    who, when = decider_of(entry), entry["time"]
    return Decided(place.conversation, place.title, wanted.action_id, action, entry["decision"], who, when)


def _answers(rule: Rule, rules: Sequence[Rule], one: Decided) -> bool:
    take_turns()
    return would_answer(rule, rules, one.action, one.conversation)


def _tried(ready: OfferedAnswer, rules: Sequence[Rule], recent: Sequence[Decided]) -> Tried:
    """Try a ready answer. The widest scope is tried, and its matches are counted in each narrower scope."""
    answered = [one for one in recent if _answers(ready.answer.rule, rules, one)]
    return Tried(
        ready,
        [sum(holds_for(scoped.rule, one.conversation) for one in answered) for scoped in ready.scoped],
        len(recent),
    )


def _matches(rule: Rule, one: Decided) -> bool:
    take_turns()
    return matches(rule, one.action, one.conversation) is True


def _is_decided(rules: Sequence[Rule], one: Decided) -> bool:
    """Return whether rules already decide such an action."""
    return bool(matching(rules, one.action, one.conversation).deciding())
