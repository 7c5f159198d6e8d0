"""A draft of a rule, tried on recorded decisions: how many it would have answered, and how many differently.

A digest binds a decision to one tool and its arguments. A trial therefore reads one event per digest, and none if its
description in the audit excludes a match. If a rule depends on something outside the digest, such as the risk, the
trial reads the event of each decision.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from core.approvals import Action, Rule, RuledConversation, action_digest, text_of
from core.cuts import beginning
from core.pauses import take_turns
from core.rehearsal import basis_of, needed_words, would_answer
from core.wire import ConversationId, parse_json
from store.approvals.audit import LONGEST_TEXT, LONGEST_TOOL, decider_of
from store.approvals.places import PLACE, read_place
from store.keys import ConversationKeys
from store.link.commands import Redis
from store.log.frames import PAGE_BYTES, original
from store.scripts import Scripts
from store.scripts.calls import GetEvents

#: Maximum number of actions whose events are read at once.
SLICE = 50

#: Maximum number of examples with differing decisions, and of those with equal ones.
MOST_EXAMPLES, FEW = 100, 3

#: Maximum number of digests whose answers a trial caches, and of conversations.
_MOST_KNOWN, _MOST_CONVERSATIONS = 100_000, 5_000


_SUMS = ("decided", "answered", "rejected", "unread")


class ConversationPlace(NamedTuple):
    """The current conversation of decisions."""

    conversation: RuledConversation
    title: str | None


class AuditedAction(NamedTuple):
    """An action of an entry of the audit."""

    action_id: str
    digest: str
    shown: dict[str, Any] | None  #: the entry's description of the action; None: there is none
    conversation_id: ConversationId
    entry: dict[str, Any]

    def may_use(self, tool_name: str) -> bool:
        """Return whether the action may be of a tool."""
        return self.shown is None or self.shown["tool_name"] == beginning(tool_name, LONGEST_TOOL)


def audited_actions(entry: dict[str, Any]) -> list[AuditedAction]:
    return [_audited_action(entry, place) for place in range(len(entry["action_ids"]))]


def _audited_action(entry: dict[str, Any], place: int) -> AuditedAction:
    return AuditedAction(
        entry["action_ids"][place],
        entry["digests"][place],
        _description(entry, place),
        ConversationId(entry["conversation_id"]),
        entry,
    )


def _description(entry: dict[str, Any], place: int) -> dict[str, Any] | None:
    """Return an entry's description of an action; None if there is none."""
    shown = entry.get("shown") or ()
    found: dict[str, Any] | None = shown[place] if place < len(shown) else None
    return found


class TrialExample(NamedTuple):
    """The description of an action that a person has decided."""

    conversation_id: str
    conversation_title: str | None
    action_id: str
    tool_name: str
    text: str
    decision: str  #: `approve`, `reject` or `edit`
    actor: dict[str, str]  #: kind and name
    time: str


class Decisions:
    """Reads the actions of entries: their conversations and events."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def places(self, ids: Iterable[ConversationId]) -> dict[ConversationId, ConversationPlace | None]:
        """Return conversations by id; None if deleted or cold. One round trip."""
        of = list(dict.fromkeys(ids))
        with self._redis.pipeline(transaction=False) as pipe:
            for conversation_id in of:
                pipe.hmget(ConversationKeys(conversation_id).root, ["title", "cold", *PLACE])
            states: list[Any] = pipe.execute() if of else []
        return {
            one: None
            if place[0] is None or cold is not None
            else ConversationPlace(read_place(one, *place), None if title is None else parse_json(title))
            for one, (title, cold, *place) in zip(of, states, strict=True)
        }

    def actions(self, wanted: Sequence[AuditedAction]) -> tuple[list[Action | None], int]:
        """Return actions with their arguments, and the number of bytes read.

        One round trip per SLICE of a conversation. None for a missing event, and for one whose digest is not that of
        the decided action.
        """
        found: list[Action | None] = [None] * len(wanted)
        size = 0
        of: dict[ConversationId, list[int]] = {}
        for number, one in enumerate(wanted):
            of.setdefault(one.conversation_id, []).append(number)
        for conversation_id, numbers in of.items():
            for start in range(0, len(numbers), SLICE):
                some = numbers[start : start + SLICE]
                events = self.events(conversation_id, [wanted[number].action_id for number in some])
                for number, event in zip(some, events, strict=True):
                    take_turns()
                    if event is not None:
                        size += len(event)
                        found[number] = _action(event, wanted[number].digest)
        return found, size

    def events(self, conversation_id: ConversationId, ids: Sequence[str]) -> list[bytes | None]:
        """Return events by id, None for an unknown one. One round trip, or one per event if they are long."""
        reply = self._scripts.get_events(ConversationKeys(conversation_id).root, most_bytes=PAGE_BYTES, ids=ids)
        if reply is None or (reply == "too_long" and len(ids) == 1):
            return [None] * len(ids)
        if not isinstance(reply, GetEvents.Found):
            return [event for one in ids for event in self.events(conversation_id, [one])]
        return [None if kept is None else original(kept) for kept in reply.events]


def _action(event: bytes, digest: str) -> Action | None:
    action = Action.of(parse_json(event))
    return action if action_digest(action.tool_name, action.arguments) == digest else None


class Trial:
    """The results of a draft on the decisions so far."""

    def __init__(self, decisions: Decisions, draft: Rule, rules: Sequence[Rule]) -> None:
        """rules: those in force."""
        self._decisions = decisions
        self._draft = draft
        self._rules = [rule for rule in rules if rule.tool_name == draft.tool_name]
        self._basis = basis_of([draft, *self._rules])
        self._needed = needed_words(draft)
        self._tool_name = beginning(draft.tool_name, LONGEST_TOOL)
        self._known: dict[tuple[str, str], str | None] = {}  #: description of an answered action, None for another
        self._places: dict[ConversationId, ConversationPlace | None] = {}
        self.decided = self.answered = self.rejected = self.unread = 0
        self.contrary: list[TrialExample] = []
        self.alike: list[TrialExample] = []

    @property
    def examples(self) -> list[TrialExample]:
        """Return the examples, first those with differing decisions."""
        return self.contrary + self.alike

    def sums(self) -> dict[str, Any]:
        """Return the sums and the examples as JSON members."""
        return {
            **{name: getattr(self, name) for name in _SUMS},
            "examples": [example._asdict() for example in self.examples],
        }

    def resume(self, sums: dict[str, Any]) -> None:
        """Continue from the sums of an earlier trial."""
        for name in _SUMS:
            setattr(self, name, sums.get(name, 0))
        examples = [TrialExample(**one) for one in sums.get("examples", ())]
        self.contrary = [one for one in examples if one.decision != self._draft.decision]
        self.alike = [one for one in examples if one.decision == self._draft.decision]

    def take(self, entries: Sequence[dict[str, Any]]) -> int:
        """Try the draft on actions that people decided, the newest first. Returns the bytes of events read.

        The work per action is inlined, because a trial may run over a million actions.
        """
        mine: list[tuple[dict[str, Any], int, str | None]] = []  # entry, position in it, its description if complete
        for entry in entries:
            take_turns()
            number = len(entry["action_ids"])
            self.decided += number
            for place in range(number):
                shown = _description(entry, place)
                if shown is None:
                    mine.append((entry, place, None))
                elif shown["tool_name"] == self._tool_name:
                    text = shown["text"]
                    mine.append((entry, place, text if len(text) < LONGEST_TEXT else None))
        self._read_places({entry["conversation_id"] for entry, _, _ in mine})
        answers: list[tuple[int, AuditedAction, str]] = []
        unknown: dict[tuple[str, str], list[tuple[int, AuditedAction]]] = {}
        places, may_match = self._places, self._needed.may_match
        for number, (entry, place, words) in enumerate(mine):
            if places[entry["conversation_id"]] is None:
                self.unread += 1
            elif words is None or may_match(words):
                take_turns()
                one = _audited_action(entry, place)
                key = self._key(one)
                if key not in self._known:
                    unknown.setdefault(key, []).append((number, one))
                elif (text := self._known[key]) is not None:
                    answers.append((number, one, text))
        size = 0
        while unknown:
            size += self._judge(unknown, answers)
        for _, one, text in sorted(answers, key=lambda answer: answer[0]):
            self._count(one, text)
        return size

    def _key(self, one: AuditedAction) -> tuple[str, str]:
        if self._basis == "digest":
            return one.digest, ""
        return (
            one.digest,
            one.conversation_id if self._basis == "conversation" else f"{one.conversation_id} {one.action_id}",
        )

    def _judge(
        self,
        unknown: dict[tuple[str, str], list[tuple[int, AuditedAction]]],
        answers: list[tuple[int, AuditedAction, str]],
    ) -> int:
        """Read one action of each key, and answer the others of the key alike if it is readable."""
        first = {key: waiting.pop(0) for key, waiting in unknown.items()}
        actions, size = self._decisions.actions([one for _, one in first.values()])
        for (key, (number, one)), action in zip(first.items(), actions, strict=True):
            waiting = unknown[key]
            if action is None:
                self.unread += 1
                if not waiting:
                    del unknown[key]
                continue
            text = self._answered(action, one)
            if self._basis != "event":
                self._remember(key, text)
            if text is not None:
                answers += [(place, other, text) for place, other in ((number, one), *waiting)]
            del unknown[key]
        return size

    def _answered(self, action: Action, one: AuditedAction) -> str | None:
        """Return the description of the action if the draft would have answered it, or None."""
        take_turns()
        place = self._places[one.conversation_id]
        if place is None or not would_answer(self._draft, self._rules, action, place.conversation):
            return None
        return beginning(text_of(action.arguments), LONGEST_TEXT)

    def _remember(self, key: tuple[str, str], text: str | None) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = text

    def _read_places(self, wanted: set[ConversationId]) -> None:
        missing = wanted - self._places.keys()
        if len(self._places) + len(missing) > _MOST_CONVERSATIONS:
            self._places.clear()
            missing = wanted
        if missing:
            self._places |= self._decisions.places(missing)

    def _count(self, one: AuditedAction, text: str) -> None:
        self.answered += 1
        is_alike = one.entry["decision"] == self._draft.decision
        examples, most = (self.alike, FEW) if is_alike else (self.contrary, MOST_EXAMPLES)
        self.rejected += not is_alike
        place = self._places[one.conversation_id]
        if place is not None and len(examples) < most:
            entry = one.entry
            examples.append(
                TrialExample(
                    one.conversation_id,
                    place.title,
                    one.action_id,
                    self._draft.tool_name,
                    text,
                    entry["decision"],
                    decider_of(entry),
                    entry["time"],
                )
            )


def slices(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield entries with about SLICE actions, and the position of the last of them."""
    some: list[dict[str, Any]] = []
    actions = 0
    for place, entry in enumerate(entries):
        some.append(entry)
        actions += len(entry["action_ids"])
        if actions >= SLICE or place + 1 == len(entries):
            yield place, some
            some, actions = [], 0
