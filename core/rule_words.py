"""What an approval rule decides, in one sentence, for the audit. No store and no Flask."""

import json
from collections.abc import Mapping
from typing import Any

from core.approvals import Rule, Test
from core.cuts import beginning
from core.scopes import WORDS, quoted
from core.wire import utc_time

#: maximum number of characters of a sentence
_MOST = 1000

_HOW = {"command": "like", "path": "in", "pattern": "fitting", "equals": "exactly"}


def rule_sentence(rule: Rule) -> str:
    """`Approves terminal: command like git status *; in the folder /w; until 2027-01-31T00:00:00.000000Z`, about."""
    tests = rule.arguments
    parts = [words for name, test in (tests or {}).items() if (words := _test(name, test))]
    if not parts:
        parts.append("whatever its arguments" if tests is None or tests else "without arguments")
    if rule.max_risk:
        parts.append(f"risk at most {rule.max_risk}")
    if rule.effects is not None:
        named = ", ".join(rule.effects) or "nothing"
        parts.append(f"effects at most {named}" if rule.decision == "approve" else f"any of the effects {named}")
    ids = rule.conversation_ids or ()
    parts += [f"in {len(ids)} conversations" if len(ids) > 1 else "in this conversation"] if ids else []
    parts += [f"{words} {quoted(value)}" for name, words in WORDS.items() if (value := getattr(rule, name))]
    parts += [f"with the tag {quoted(name if value is None else f'{name}={value}')}" for name, value in _tags(rule)]
    if rule.max_uses:
        parts.append(f"at most {rule.max_uses} uses")
    if rule.expires_at:
        parts.append(f"until {utc_time(rule.expires_at)}")
    verb = {"approve": "Approves", "reject": "Rejects", "ask": "Asks about"}[rule.decision]
    return beginning(f"{verb} {quoted(rule.tool_name)}: {'; '.join(parts)}", _MOST)


def _tags(rule: Rule) -> list[tuple[str, str | None]]:
    return sorted((rule.tags or {}).items())


def _test(name: str, test: Mapping[str, Any] | Test) -> str:
    """How one argument is compared; empty for one that may be anything."""
    kind, value = next(iter(test.items()))
    if kind not in _HOW:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{quoted(name)} {_HOW[kind]} {quoted(text)}"
