"""Try a rule that is not made yet on one action; and propose rules from an action. No store and no Flask.

Source: docs/approvals.md, "Rehearsal". A rehearsal calls the matcher that decides, `core.approvals.matching`.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, NamedTuple

from core.approvals import (
    SHELL_ARGUMENTS,
    Action,
    Rule,
    RuledConversation,
    Test,
    equal_to,
    matches,
    matching,
    says_nothing,
)
from core.effects import seen
from core.paths import fits_path, path_fault
from core.scopes import Origin, Scope, narrowest_useful, quoted, scopes_of
from core.shell.proposals import propose_command
from core.shell.rules import command_pattern
from core.wire import ConversationId

#: Maximum number of rules that decide one action, or one group of actions: the audit names each.
MOST_TOGETHER = 6

#: Arguments of a shell tool that do not change what runs, and those that say where it runs.
_FREE, _WHERE = frozenset({"timeout", "summary", "description", "security_risk"}), frozenset({"cwd", "workdir"})

#: Arguments of tools that read or edit a file: its path, and what is done to it.
_PATHS = ("path", "file_path")
_CONTENTS = frozenset(
    {
        *("old_str", "new_str", "old_string", "new_string", "file_text", "content", "insert_line", "insert_text"),
        *("view_range", "replace_all", "offset", "limit", "summary", "description", "security_risk"),
    }
)

#: Folders of the system, for which no rule is proposed.
_SYSTEM = frozenset(
    {
        *("bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root"),
        *("run", "sbin", "srv", "sys", "usr", "var", "Applications", "Library", "System", "Users"),
    }
)

#: Of these, folders that hold people's own work two levels down: `/home/ada/project`.
_HOLDING = frozenset({"home", "media", "mnt", "opt", "root", "srv", "Users"})

#: A conversation that no rule names.
_ANYWHERE = RuledConversation(ConversationId(""), {})

AnswerKind = Literal["exactly", "like", "reads", "tool"]

#: Effects of an action that only reads, in their order.
_READS = ("reads_outside", "reads")

#: Arguments that stand in the words of an action (`core.approvals.text_of`).
_IN_WORDS = ("command", "path", "url")

#: What a shell takes out of a word; and `$'\\x67it'` and `g{i,}t`, which spell a word by other letters than its own.
_QUOTES, _ESCAPES = str.maketrans("", "", "'\"\\\n\r"), str.maketrans("", "", '"\\\n\r')
_SPELLED = re.compile(r"\$'|\{")
_HAS_QUOTES = re.compile(r"['\"\\{]")

#: Members of a rule on which its match with one action in one conversation does not depend beyond the digest.
_OF_DIGEST = frozenset(
    {
        *("decision", "tool_name", "arguments", "expires_at", "max_uses", "reason", "created_by", "created_at", "id"),
        *("quorum", "not_by_owner", "not_by_asker"),
    }
)

#: The same, of a rule that also depends on the conversation.
_OF_CONVERSATION = _OF_DIGEST | {"conversation_ids", "effects", "tags", *Origin._fields}


class RuleAnswer(NamedTuple):
    """A rule that approves an action and others like it, in all conversations, with the words of what it covers."""

    kind: AnswerKind
    words: str
    rule: Rule

    @property
    def sentence(self) -> str:
        """What the rule covers."""
        return f"{self.words}, in every conversation."


class AnswerInScope(NamedTuple):
    """An answer that holds in one scope."""

    scope: Scope
    sentence: str
    rule: Rule


class OfferedAnswer(NamedTuple):
    """An answer with the scopes that a person may choose from."""

    answer: RuleAnswer
    scoped: list[AnswerInScope]  #: the narrowest first
    first: AnswerInScope  #: the one that is proposed


def would_answer(draft: Rule, rules: Sequence[Rule], action: Action, conversation: RuledConversation) -> bool:
    """Whether a draft would decide an action, alone or with other rules, if it were the oldest rule of its kind.

    rules: those in force. A rule that rejects wins over the draft, and one that may reject leaves the action to a
    person, as in `store/approvals/rules.py`. Expiry and the number of uses of the draft do not count.
    """
    first = replace(draft, id="", created_at=None)
    alone = matching([first], action, conversation)
    if not alone.rules and not alone.parts:
        return False
    # Rules that approve cannot take a whole match from the oldest one: reading them would take most of the time.
    others = [rule for rule in rules if rule.decision != "approve"] if alone.rules else rules
    matched = matching([first, *others], action, conversation)
    deciding = matched.deciding()
    if not any(rule.id == "" for rule in deciding) or len(deciding) > MOST_TOGETHER:
        return False
    return draft.decision == "reject" or not matched.doubts


class Needed(NamedTuple):
    """Texts that stand in the words of every action that a rule matches, so that most others need no reading."""

    as_written: tuple[str, ...]
    unquoted: tuple[str, ...]  #: in the words without quotes and escapes

    def may_match(self, words: str) -> bool:
        """Whether a rule may match an action of these words, which are whole."""
        for text in self.as_written:
            if text not in words:
                return False
        for text in self.unquoted:
            if text not in words:
                return _HAS_QUOTES.search(words) is not None and self._may_spell(words)
        return True

    def _may_spell(self, words: str) -> bool:
        plain = words.translate(_QUOTES)
        if all(text in plain for text in self.unquoted):
            return True
        return _SPELLED.search(words.translate(_ESCAPES)) is not None


def needed_words(rule: Rule) -> Needed:
    """The texts without which a rule that approves matches nothing; none of a rule that rejects."""
    as_written: list[str] = []
    unquoted: list[str] = []
    tests = (rule.arguments or {}) if rule.decision == "approve" else {}
    for name in _IN_WORDS:
        match tests.get(name):
            case {"command": str(pattern)}:
                unquoted += [part for word in command_pattern(pattern).words for part in word.split("*") if part]
            case {"path": str(pattern)}:
                as_written += [part for part in pattern.split("/") if part not in ("", ".") and "*" not in part]
            case {"equals": str(value)} if value.isprintable():
                as_written.append(value)
    return Needed(tuple(as_written), tuple(unquoted))


Basis = Literal["digest", "conversation", "event"]


def basis_of(rules: Iterable[Rule]) -> Basis:
    """What tells how rules answer an action: its digest, with it the conversation, or nothing short of the event."""
    named = {
        one.name for rule in rules for one in fields(rule) if getattr(rule, one.name) not in (None, "", (), frozenset())
    }
    if named <= _OF_DIGEST:
        return "digest"
    return "conversation" if named <= _OF_CONVERSATION else "event"


def ready_answers(action: Action, conversation: RuledConversation, key_name: str = "") -> list[OfferedAnswer]:
    """The rules that a person may want of an action: exactly this, like this, all that only reads, this tool in this
    conversation.

    Each approves the action: one that would not is absent. key_name: see `scopes_of`.
    """
    scopes = scopes_of(conversation.id, conversation.origin, key_name)
    found = []
    for answer in _answers(action, conversation.folder):
        of_answer = scopes[:1] if answer.kind == "tool" else scopes
        scoped = [_in_scope(answer, scope) for scope in of_answer]
        first = scoped[of_answer.index(narrowest_useful(of_answer))]
        if all(matches(one.rule, action, conversation) for one in scoped):
            found.append(OfferedAnswer(answer, scoped, first))
    return found


def _in_scope(answer: RuleAnswer, scope: Scope) -> AnswerInScope:
    return AnswerInScope(scope, f"{answer.words}, {scope.words}.", replace(answer.rule, **scope.members))


def _answers(action: Action, folder: str | None) -> Iterator[RuleAnswer]:
    if not isinstance(action.tool_name, str):
        return
    if isinstance(action.arguments, dict):
        yield RuleAnswer("exactly", _exactly(action), Rule("approve", action.tool_name, equal_to(action.arguments)))
        if answer := like_answer(action):
            yield answer
        if answer := _reads_answer(action, folder):
            yield answer
    words = f"Allows everything that {quoted(action.tool_name)} is asked to do"
    yield RuleAnswer("tool", words, Rule("approve", action.tool_name))


def like_answer(action: Action) -> RuleAnswer | None:
    """Return a rule for actions like this one: the same command, or the same edit in the same folder.

    None where none can be proposed safely, or where it would not approve this action.
    """
    if not isinstance(action.arguments, dict) or not isinstance(action.tool_name, str):
        return None
    said = {name: value for name, value in action.arguments.items() if not says_nothing(value)}
    answer = _like_file(action.tool_name, said) or _like_command(action.tool_name, said)
    return answer if answer and matches(answer.rule, action, _ANYWHERE) else None


def _reads_answer(action: Action, folder: str | None) -> RuleAnswer | None:
    """Return a rule for every command that only reads, as far outside as this one; None if this one does more.

    folder: absolute path of the conversation's folder; None if it is unknown.
    """
    said = {name: value for name, value in action.arguments.items() if not says_nothing(value)}
    names = seen(action.tool_name, action.arguments, folder).names
    if not _is_command(said) or not names or not names <= set(_READS):
        return None
    effects = _READS if "reads_outside" in names else _READS[1:]
    where = "inside the folder and outside" if len(effects) > 1 else "inside the folder"
    words = f"Allows every command that only reads, {where}, and no file that usually holds secrets"
    return RuleAnswer("reads", words, Rule("approve", action.tool_name, _any(said.keys()), effects=effects))


def _is_command(said: dict[str, Any]) -> bool:
    """Whether the arguments that say something are a shell line, and nothing else that matters."""
    names = SHELL_ARGUMENTS & said.keys()
    return len(names) == 1 and not said.keys() - names - _FREE - _WHERE


def _like_command(tool_name: str, said: dict[str, Any]) -> RuleAnswer | None:
    if not _is_command(said):
        return None
    names = SHELL_ARGUMENTS & said.keys()
    [name] = names
    pattern = propose_command(said[name]) if isinstance(said[name], str) else None
    if pattern is None:
        return None
    where = {one: {"equals": said[one]} for one in sorted(_WHERE & said.keys())}
    tests: dict[str, Test] = {name: {"command": pattern}, **where, **_any(_FREE & said.keys())}
    folder = next((value for value in (said.get(one) for one in sorted(_WHERE)) if isinstance(value, str)), "")
    inside = f" run in {quoted(folder)}" if folder else ""
    words = f"Allows {quoted(pattern.removesuffix(' *'))} with any words after it{inside}"
    return RuleAnswer("like", words, Rule("approve", tool_name, tests))


def _like_file(tool_name: str, said: dict[str, Any]) -> RuleAnswer | None:
    names = [name for name in _PATHS if name in said]
    if len(names) != 1 or said.keys() - {*names, "command"} - _CONTENTS:
        return None
    folder, verb = _folder(said[names[0]]), said.get("command")
    if folder is None or not (verb is None or isinstance(verb, str)):
        return None
    tests: dict[str, Test] = {names[0]: {"path": f"{folder}/**"}, **_any(_CONTENTS & said.keys())}
    if verb is not None:
        tests["command"] = {"equals": verb}
    done = f"{quoted(verb)} by {quoted(tool_name)}" if verb else quoted(tool_name)
    return RuleAnswer(
        "like",
        f"Allows {done} on any file in {quoted(folder)} and its folders",
        Rule("approve", tool_name, tests),
    )


def _folder(path: Any) -> str | None:
    """The folder of a file; None for the root, a folder of the system, a hidden one, and what a pattern cannot name."""
    if not isinstance(path, str) or "*" in path:
        return None
    folder = posixpath.dirname(path.removeprefix("./"))
    parts = folder.removeprefix("/").split("/")
    pattern = f"{folder}/**"
    if folder in ("", "/") or any(part.startswith((".", "~")) for part in parts) or path_fault(pattern):
        return None
    is_system = folder.startswith("/") and parts[0] in _SYSTEM and (len(parts) < 3 or parts[0] not in _HOLDING)
    return None if is_system or not fits_path(pattern, path) else folder


def _any(names: Iterable[str]) -> dict[str, Test]:
    return {name: {"any": True} for name in sorted(names)}


def _exactly(action: Action) -> str:
    commands = [value for name in SHELL_ARGUMENTS if isinstance(value := action.arguments.get(name), str) and value]
    others = [value for name, value in action.arguments.items() if not says_nothing(value) and value not in commands]
    if len(commands) == 1 and not others:
        return f"Allows {quoted(commands[0])}, exactly as it is written"
    return f"Allows {quoted(action.tool_name)} with exactly these arguments"
