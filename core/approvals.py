"""Approvals without a store: matching of rules, digests of actions, one-time links to one pending action.

Source: docs/approvals.md. No Redis and no Flask.

A rule that approves matches an action if all conditions of the rule hold: the tool, the arguments, the risk, the
conversation. A rule that rejects matches more: see `rejects`, and `core/wide_match.py` for its patterns.

A test of an argument by `command` reads it as a shell line: see `core/shell/rules.py`. Several rules may approve one
line together, each some of its commands. A test by `path` is described in `core/paths.py`.

A pattern of a rule that approves is text in which `*` matches any run of characters of `RUN`, also an empty run. Every
other character matches only itself, so a shell metacharacter is matched only where the rule's author wrote it. `RUN` is
an allow-list: ASCII letters and digits, the space, and `_ . / : , @ + - =`. It has no quote, backslash, newline, tab,
control character, `NUL`, Unicode letter, blank or line separator, and none of `; & | < > ( ) $ # ~ ! ? * [ ] { } ^ % `
and the backtick. So no run begins a second command, a redirection, a substitution or an expansion, and none leaves
quotes.

The meaning of two characters depends on their place, so a run has them only in other places:

- `=` only in a word that begins with `-`, such as `--format=short`. Elsewhere it may set a variable, which makes the
  next word a command (`git*` never matches `git=1 rm -rf /`).
- `.` only without another `.` beside it, so no run leaves a directory by `..`.

Limitation: a run may contain any words, also any option and any path: `find *` matches `find / -delete`, and `cat
docs/*` matches `cat docs/a /etc/passwd`. Limitation: risk and tags come from the agent, or from anyone who may write.

A digest binds a decision to what a person was shown, and an entry of an audit to the previous one. Source: RFC 8785.

A link is a URL that shows one pending action and asks for its decision. Its token contains the action, and is signed
with a key derived from SECRET_KEY. Anyone with the token may decide this action once, as it was when the link was made,
until the link expires.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from string import ascii_letters, digits
from types import NoneType
from typing import Any, Literal, NamedTuple

import rfc8785
from itsdangerous import BadSignature, URLSafeSerializer

from core.cuts import beginning
from core.effects import RISKS, greater, seen, shows_secret
from core.incomplete import is_complete
from core.paths import fits_path, rejects_path
from core.scopes import NOWHERE, Origin, holds_in
from core.shell import read_line
from core.shell.line import Line
from core.shell.rules import allowed, command_pattern, refused, rejects_text
from core.wide_match import fits_widely
from core.wire import ConversationId, Micros, has_tag, now

#: The characters that `*` of a pattern matches.
RUN = frozenset(ascii_letters + digits + " _./:,@+-=")

#: The characters of a word in a run.
_WORD = RUN - {" "}

#: Maximum characters of a matched text, and maximum `*` of a pattern. They bound the cost of a match.
MOST_MATCHED, MOST_STARS = 4096, 8

#: Characters that change the meaning of the text after them in a shell, so no `*` may follow.
_TURNS = "$\\!`"

#: Effects that do not exclude any other effect.
_UNSURE = frozenset({"unreadable", "unknown"})

Verdict = Literal["approve", "reject", "ask"]

#: The test of one argument: {"equals": JSON} | {"pattern" | "command" | "path": text} | {"any": true}
Test = Mapping[str, Any]


#: Maximum integer with a form in RFC 8785.
_MOST_INTEGER = 2**53 - 1

#: Arguments of tools that are shell lines.
SHELL_ARGUMENTS = frozenset({"command", "cmd"})

LINK_PATH = "/approvals"

#: Maximum characters of a target's name in a link.
_MOST_TARGET = 100

#: Purpose of the derived signing key. Another purpose has another key.
_PURPOSE = "agent-server approval link"


@dataclass(frozen=True)
class Action:
    """The subject of a rule: an action as people see it (`shown_arguments`)."""

    tool_name: Any
    arguments: Any
    risk: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Action":
        risk = event.get("security_risk")
        return cls(event.get("tool_name"), shown_arguments(event.get("action")), risk if risk in RISKS else "UNKNOWN")

    @cached_property
    def forms(self) -> dict[str, bytes]:
        """Return the canonical JSON of each argument."""
        return {name: canonical(value) for name, value in self.arguments.items()}

    def line(self, name: str) -> Line | None:
        """Return an argument as a shell line; None if it is not text."""
        value = self.arguments.get(name) if isinstance(self.arguments, dict) else None
        if isinstance(value, str) and name not in self.lines:
            self.lines[name] = read_line(value)
        return self.lines.get(name)

    @cached_property
    def lines(self) -> dict[str, Line]:
        """Return the arguments that were read as shell lines."""
        return {}


@dataclass(frozen=True, slots=True)
class RuledConversation:
    id: ConversationId
    tags: Mapping[str, str]
    folder: str | None = None  #: absolute path of its agent's folder; None: unknown
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; a condition of None is not set. `store/approvals/rules.py` counts expiry and uses."""

    decision: Verdict
    tool_name: str
    arguments: Mapping[str, Test] | None = None
    max_risk: str | None = None
    conversation_ids: tuple[ConversationId, ...] | None = None
    tags: Mapping[str, str | None] | None = None  #: name → value; None: any value
    expires_at: Micros | None = None
    max_uses: int | None = None
    reason: str = ""
    created_by: str = ""
    created_at: Micros | None = None  #: when it was stored
    id: str = ""
    key_id: str | None = None  #: conversations that this key started
    repository: str | None = None  #: conversations about it, HOST/OWNER/NAME
    folder: str | None = None  #: conversations in it or below it
    machine: str | None = None  #: conversations of agents on this machine, outside of sandboxes
    person: str | None = None  #: conversations of this user
    agent: str | None = None  #: conversations of an agent of this name
    effects: tuple[str, ...] | None = None  #: approving: the action has no others; rejecting: it has one of them
    quorum: int = 1  #: of a rule that asks: number of people who must approve
    not_by_owner: bool = False  #: of a rule that asks: the conversation's owner does not count
    not_by_asker: bool = False  #: of a rule that asks: the sender of the last user's message does not count


class Part(NamedTuple):
    """The commands of a line that one rule approves."""

    rule: Rule
    argument: str  #: contains the line
    places: frozenset[int]
    needed: frozenset[int]  #: all commands of the line that need approval


class Matched(NamedTuple):
    rules: list[Rule]  #: match alone, in the order in which they are tried
    doubts: list[Rule]  #: rejecting rules that may match, and asking rules: while in force, they prevent an approval
    parts: list[Part]  #: rules that approve a part of it, the oldest first

    def deciding(self, without: Collection[str] = ()) -> tuple[Rule, ...]:
        """Return the rules that decide the action, alone or together; or none. without: ids of excluded rules."""
        for rule in self.rules:
            if rule.id not in without:
                return (rule,)
        for argument in dict.fromkeys(part.argument for part in self.parts):
            parts = [part for part in self.parts if part.argument == argument and part.rule.id not in without]
            together: dict[str, Rule] = {}
            for place in sorted(parts[0].needed) if parts else ():
                of_place = [part.rule for part in parts if place in part.places]
                if not of_place:
                    break
                if not any(rule.id in together for rule in of_place):
                    together[of_place[0].id] = of_place[0]
            else:
                return tuple(together.values())
        return ()


def matching(rules: Iterable[Rule], action: Action, conversation: RuledConversation) -> Matched:
    """Return the matching rules, first those that reject, then by age, and the rejecting rules that may match."""
    matched: list[Rule] = []
    doubts: list[Rule] = []
    parts: list[Part] = []
    for rule in sorted(rules, key=lambda rule: (rule.decision != "reject", rule.created_at or 0, rule.id)):
        part = _part(rule, action, conversation) if rule.decision == "approve" else None
        does_match = part.places == part.needed if part else matches(rule, action, conversation)
        if rule.decision == "ask":
            doubts += [rule] if does_match is not False else []
        elif does_match:
            matched.append(rule)
        elif does_match is None:
            doubts.append(rule)
        elif part:
            parts.append(part)
    return Matched(matched, doubts, parts)


def matches(rule: Rule, action: Action, conversation: RuledConversation) -> bool | None:
    """Return whether a rule matches an action, apart from expiry and uses. None: a rejecting or asking rule may."""
    if not _is_about(rule, action, conversation):
        return False
    if not is_complete(action.arguments):  # a part is hidden: no rule decides it, and an asking rule holds it
        return False if rule.decision == "approve" else None
    if rule.decision != "approve":
        return rejects(rule, action, conversation.folder)
    return (rule.arguments is None or _fits(rule.arguments, action)) and _is_safe(rule, action, conversation)


def _is_safe(rule: Rule, action: Action, conversation: RuledConversation) -> bool:
    """Return whether an approving rule allows the risk and the effects of an action, by the agent's and our rating."""
    if rule.max_risk is None and rule.effects is None:
        return True
    effects = seen(action.tool_name, action.arguments, conversation.folder)
    is_low = rule.max_risk is None or all(_is_at_most(risk, rule.max_risk) for risk in (action.risk, effects.risk))
    return is_low and (rule.effects is None or effects.names <= set(rule.effects))


def _is_about(rule: Rule, action: Action, conversation: RuledConversation) -> bool:
    return (
        rule.tool_name == action.tool_name
        and holds_for(rule, conversation)
        and all(has_tag(conversation.tags, name, value) for name, value in (rule.tags or {}).items())
    )


def holds_for(rule: Rule, conversation: RuledConversation) -> bool:
    """Return whether a conversation is in the scope of a rule, apart from its tags."""
    if rule.conversation_ids is not None and conversation.id not in rule.conversation_ids:
        return False
    named = {name: value for name in Origin._fields if (value := getattr(rule, name)) is not None}
    return holds_in(conversation.origin, named, is_wide=rule.decision != "approve")


def _part(rule: Rule, action: Action, conversation: RuledConversation) -> Part | None:
    """Return the commands of a line that an approving rule approves; None if its other conditions fail."""
    tests = rule.arguments or {}
    names = [name for name, test in tests.items() if "command" in test]
    line = action.line(names[0]) if len(names) == 1 and rule.tool_name == action.tool_name else None
    if line is None or not line.needed:
        return None
    places = _allowed(tests[names[0]]["command"], action.arguments[names[0]], line) & line.needed
    if (
        not places
        or not is_complete(action.arguments)
        or not _is_about(rule, action, conversation)
        or not _fits({**tests, names[0]: {"any": True}}, action)
        or not _is_safe(rule, action, conversation)
    ):
        return None
    return Part(rule, names[0], places, line.needed)


def rejects(rule: Rule, action: Action, folder: str | None = None) -> bool | None:
    """Return whether a rule rejects the arguments, the risk and the effects of an action; None if unsure.

    Arguments without a test never matter. Unsure are: a missing argument, an argument of an unexpected type, arguments
    without names, and an unknown risk. If the rule names effects, so is an action that the server cannot read. The risk
    is the agent's own rating; the higher of both would let more pass.
    """
    answers: list[bool | None] = []
    if rule.max_risk is not None:
        answers.append(_is_at_most(action.risk, rule.max_risk) if action.risk in RISKS else None)
    if rule.effects is not None:
        names = seen(action.tool_name, action.arguments, folder).names
        answers.append(not names.isdisjoint(rule.effects) or (None if names & _UNSURE else False))
    answers += [_rejects(test, name, action) for name, test in (rule.arguments or {}).items()]
    return False if False in answers else None if None in answers else True


def rule_of(
    always: Mapping[str, Any] | Literal[True],
    event: Mapping[str, Any],
    conversation_id: ConversationId,
    decision: Verdict,
    created_by: str = "",
    folder: str | None = None,
) -> Rule:
    """Return the rule for "always" beside a decision about an ActionEvent, without an id.

    always: True, or the members of a rule that override the defaults: equal arguments, only that conversation, and for
    an approval at most the risk of the action. That is the higher of the agent's and our rating, if the agent's is
    known. None removes a condition. folder: of the conversation. Raises ValueError for an action without a tool's name
    or named arguments, which a rule needs, and for an action that hides a part of what will run.
    """
    action = Action.of(event)
    if not isinstance(action.tool_name, str) or not isinstance(action.arguments, dict):
        raise ValueError("An action without a tool's name or named arguments cannot have a rule. Decide it alone")
    if not is_complete(action.arguments):
        raise ValueError("The agent does not show what this action runs, so it cannot have a rule. Decide it alone")
    is_known = decision == "approve" and action.risk in RISKS
    defaults: dict[str, Any] = {
        "arguments": equal_to(action.arguments),
        "conversation_ids": (conversation_id,),
        "max_risk": greater(action.risk, seen(action.tool_name, action.arguments, folder).risk) if is_known else None,
    }
    wanted = {**defaults, **({} if always is True else always)}
    return Rule(decision, action.tool_name, **wanted, created_by=created_by)


def pattern_fault(pattern: str) -> str | None:
    """Return why a rule cannot have a pattern; None if it can."""
    if pattern.count("*") > MOST_STARS:
        return f"A pattern should have at most {MOST_STARS} `*`"
    if any(one + "*" in pattern for one in _TURNS):
        return "A `*` should not follow `$`, a backslash, `!` or a backtick: a pattern has no escapes. Use `equals`"
    return None


def fits_pattern(pattern: str, value: Any) -> bool:
    """Return whether a value is a text that a pattern matches as a whole."""
    if not isinstance(value, str) or len(value) > MOST_MATCHED:
        return False
    first, *others = pattern.split("*")
    if not others or not value.startswith(first) or not value.endswith(others[-1]):
        return value == pattern
    ends = {len(first)}  # all possible ends of the parts so far; each place is tried once per part
    for part in others:
        ends = _ends(value, ends, part)
    return len(value) in ends


def _ends(value: str, starts: set[int], part: str) -> set[int]:
    """Return the possible ends of a literal part after a run from one of these places."""
    ends, place, runs = set(), 0, _runs(value)
    for start in sorted(starts):
        place = max(place, start)
        while True:
            if value.startswith(part, place):
                ends.add(place + len(part))
            if place == len(value) or not runs[place]:
                break
            place += 1
    return ends


@lru_cache(maxsize=64)
def _runs(value: str) -> tuple[bool, ...]:
    """Return for each character whether a run may contain it at its place, for any pattern."""
    allowed, is_option, is_word = [], False, False
    for place, character in enumerate(value):
        if character not in _WORD:
            is_word = False
        elif not is_word:
            is_word, is_option = True, character == "-"
        beside = value[max(place - 1, 0) : place] + value[place + 1 : place + 2]
        may = (character != "=" or is_option) and (character != "." or "." not in beside)
        allowed.append(character in RUN and may)
    return tuple(allowed)


def _is_at_most(risk: str, most: str) -> bool:
    return risk in RISKS and RISKS.index(risk) <= RISKS.index(most)


def _fits(tests: Mapping[str, Test], action: Action) -> bool:
    """Return whether every argument passes its test, and all others are at their defaults."""
    arguments = action.arguments
    if not isinstance(arguments, dict):
        return False
    return all(says_nothing(value) for name, value in arguments.items() if name not in tests) and all(
        _passes(test, name, action) for name, test in tests.items()
    )


def _passes(test: Test, name: str, action: Action) -> bool:
    value = action.arguments.get(name)
    match test:
        case {"any": True}:
            return True
        case {"equals": wanted}:
            return name in action.arguments and action.forms[name] == canonical(wanted)
        case {"pattern": str(pattern)}:
            return name in action.arguments and fits_pattern(pattern, value)
        case {"command": str(pattern)}:
            line = action.line(name)
            wanted = line.needed if line else None
            return line is not None and bool(wanted) and (wanted or set()) <= _allowed(pattern, value, line)
        case {"path": str(pattern)}:
            return fits_path(pattern, value)
    return False


def _allowed(pattern: str, text: str, line: Line) -> frozenset[int]:
    """Return the commands of a line that a pattern allows. No `*` matches a variable that usually has secrets."""
    if shows_secret(text) and not shows_secret(pattern):
        return frozenset()
    return allowed(command_pattern(pattern), line)


def _rejects(test: Test, name: str, action: Action) -> bool | None:
    """Return whether a rule rejects an argument of the action; None if unsure."""
    if "any" in test:
        return True
    if not isinstance(action.arguments, dict) or name not in action.arguments:
        return None
    value = action.arguments[name]
    match test, value:
        case {"equals": wanted}, _ if action.forms[name] == canonical(wanted):
            return True
        case {"command": str(pattern)}, str():
            line = action.line(name)
            return refused(command_pattern(pattern), line) if line else None
        case {"path": str(pattern)}, str():
            return rejects_path(pattern, value)
        case {"equals": str(wanted)}, str():
            return _rejects_text(name, [wanted], value)
        case {"equals": wanted}, int() | float() | None if type(wanted) is type(value):
            return False
        case {"pattern": str(pattern)}, str():
            return _rejects_text(name, pattern.split("*"), value)
    return None


def _rejects_text(name: str, parts: list[str], value: str) -> bool | None:
    """Return whether a rule rejects a text; None if unsure. A shell line is also compared command by command."""
    answer = fits_widely(parts, value)
    if answer is None and name in SHELL_ARGUMENTS:
        return rejects_text(parts, value)
    return answer


def equal_to(arguments: Mapping[str, Any]) -> dict[str, Test]:
    """Return the tests of a rule about exactly these arguments. Arguments at their defaults are no condition."""
    return {name: {"equals": value} for name, value in arguments.items() if not says_nothing(value)}


def says_nothing(value: Any) -> bool:
    """Return whether an argument is null, false, 0, "", [] or {}."""
    return value in (None, False, 0, "") or value == [] or value == {}


#: The package rfc8785 is pure Python and takes five times as long.
_sorted_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value, after RFC 8785.

    RFC 8785 has no form of an integer beyond 2^53 or of a lone surrogate. These become Python's JSON with sorted keys,
    which keeps every digit, so that two values never share a form.
    """
    try:
        return _sorted_json(value).encode() if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _is_plain(value: Any) -> bool:
    """Return whether a value's sorted JSON is canonical.

    False with a fraction, and with a name that is not ASCII, because RFC 8785 sorts names by UTF-16.
    """
    kind = type(value)
    if kind is dict:
        return all(type(name) is str and name.isascii() for name in value) and all(map(_is_plain, value.values()))
    if kind is list:
        return all(map(_is_plain, value))
    return kind in (str, bool, NoneType) or (kind is int and abs(value) <= _MOST_INTEGER)


def digest(value: Any) -> str:
    """Return the hex SHA-256 of a value's canonical JSON."""
    return sha256(canonical(value)).hexdigest()


def shown_arguments(action: Any) -> Any:
    """Return the arguments of an action as people see them: its members except `kind`."""
    if not isinstance(action, dict):
        return action
    return {name: value for name, value in action.items() if name != "kind"}


def text_of(arguments: Any) -> str:
    """Return an action's arguments in readable form: a command, an operation on a path, a URL, or their JSON."""
    named = arguments if isinstance(arguments, dict) else {}
    texts = [value for name in ("command", "path", "url") if isinstance(value := named.get(name), str) and value]
    return " ".join(texts) or canonical(arguments).decode()


def action_digest(tool_name: Any, arguments: Any) -> str:
    """Return the digest of an action, which binds a decision to what a person was shown."""
    return digest({"tool_name": tool_name, "arguments": arguments})


class Link(NamedTuple):
    conversation_id: ConversationId
    action_id: str
    digest: str  #: of the action as it was notified
    target: str  #: name of the notified target, the actor in the audit
    ends: Micros
    since: Micros  #: when the wait of the action began; 0: a link of an earlier release
    identity: str  #: hex SHA-256 of the token without its signature; the token is not stored
    device: str = ""  #: "ID OWNER" of the notified device; the link decides while both may. "": a target

    @property
    def destination(self) -> tuple[str, str, int] | None:
        """Return the sandbox, the name and the port of a destination; None for an action.

        For a budget the name is its setting, and the port 0.
        """
        if self.conversation_id:
            return None
        sandbox_id, _, at = self.action_id.partition(" ")
        name, _, port = at.rpartition(":")
        return sandbox_id, name, int(port)


class LinkForged(Exception):
    """A token is truncated, or is not of this server."""

    def __init__(self) -> None:
        super().__init__("This link is incomplete, or is not one of this server. Open the whole link.")


class ApprovalLinks:
    """Makes and reads links. All secret keys verify, the first signs."""

    def __init__(
        self,
        secret_keys: tuple[str, ...],
        *,
        public_url: str,
        seconds: int,
        clock: Callable[[], Micros] = now,
    ) -> None:
        """public_url: "": no links are made. seconds: lifetime of a link, by the clock.

        clock: that of the store, which decides about expiry. A host's clock may be wrong by days.
        """
        self._public_url, self._seconds, self._clock = public_url.rstrip("/"), seconds, clock
        signing = {"key_derivation": "hmac", "digest_method": sha256}
        keys = list(reversed(secret_keys))  # itsdangerous signs with the last key
        self._serializer = URLSafeSerializer(keys, salt=_PURPOSE, signer_kwargs=signing) if keys else None

    def make(
        self,
        conversation_id: ConversationId,
        action_id: str,
        digest: str,
        target: str,
        *,
        since: Micros | None = None,
        deadline: Micros | None = None,
    ) -> str | None:
        """Return the URL of a link to a pending action; None without PUBLIC_URL or SECRET_KEY.

        It expires after its lifetime, or at the action's deadline if that is earlier. since: the link is only about the
        wait of the action that began then; None: about any wait. For a destination, conversation_id is "", action_id is
        "SANDBOX NAME:PORT", and the digest includes the start of its wait.
        """
        token = self._public_url and self.token(
            conversation_id, action_id, digest, target, since=since, deadline=deadline
        )
        return f"{self._public_url}{LINK_PATH}/{token}" if token else None

    def token(
        self,
        conversation_id: ConversationId,
        action_id: str,
        digest: str,
        target: str,
        *,
        since: Micros | None = None,
        deadline: Micros | None = None,
        device: str = "",
    ) -> str | None:
        """Return the token of a link; None without SECRET_KEY. device: as in Link."""
        if self._serializer is None:
            return None
        ends = Micros(self._clock() + self._seconds * 1_000_000)
        ends = min(ends, deadline or ends)
        words = [conversation_id, action_id, digest, beginning(target, _MOST_TARGET), ends, since or 0]
        return str(self._serializer.dumps([*words, device] if device else words))

    def read(self, token: str) -> Link:
        """Return the content of a token's link, expired or not. Raises LinkForged."""
        if self._serializer is None:
            raise LinkForged
        try:
            conversation_id, action_id, digest, target, ends, *more = self._serializer.loads(token)
        except (BadSignature, UnicodeEncodeError):  # a lone surrogate has no bytes
            raise LinkForged from None
        # Only of the signed part: the last letter of a signature has unused bits, so several tokens are valid.
        identity = sha256(token.rpartition(".")[0].encode()).hexdigest()
        since, device = more[0] if more else 0, more[1] if len(more) > 1 else ""
        words = (ConversationId(conversation_id), action_id, digest, target, Micros(ends), Micros(since))
        return Link(*words, identity, device)
