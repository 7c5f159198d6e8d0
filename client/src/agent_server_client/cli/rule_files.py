"""Approval rules in words and in TOML files, and the comparison of two sets of rules."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from agent_server_client.calls import FILE_ARGUMENTS
from agent_server_client.cli.shown import counted, moment, short
from agent_server_client.models import ApprovalRule
from agent_server_client.visible import in_line

#: Members of a rule that limit where it applies, and their words in a description.
_PLACES = {
    "folder": "in the folder",
    "repository": "in the repository",
    "machine": "on the machine",
    "person": "of the person",
    "agent": "of the agent",
    "key_id": "of the key",
}

#: Members of a rule that define what it decides. `reason` is not one of them.
CONTENT = (
    *("decision", "tool_name", "arguments", "max_risk", "conversation_ids", *_PLACES, "tags"),
    *("expires_at", "max_uses", "effects", "quorum", "not_by_owner", "not_by_asker"),
)

#: Default values of members.
_DEFAULTS = {"quorum": 1, "not_by_owner": False, "not_by_asker": False}

#: Additional members in a file: short forms of `arguments`.
_SHORT = ("command", "path")

#: Maximum length of a value in a description, in characters.
_MOST_VALUE = 80


class BadFile(Exception):
    """A file is not a list of rules. The message says why."""


class Difference(NamedTuple):
    """The differences between the rules of a file and of a server."""

    missing: list[dict[str, Any]]  #: rules in the file only
    extra: list[ApprovalRule]  #: rules on the server only
    same: int  #: number of rules in both


def arguments_of(command: str | None, path: str | None, others: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return the arguments of a rule from their short forms; None for any arguments.

    others: names of arguments with any value. With a path, the content of the file may be anything too: otherwise an
    approving rule would require that arguments without a test are empty.
    """
    tests: dict[str, Any] = {name: {"any": True} for name in (*(FILE_ARGUMENTS if path is not None else ()), *others)}
    if command is not None:
        tests["command"] = {"command": command}
    if path is not None:
        tests["path"] = {"path": path}
    return tests or None


def in_words(rule: Mapping[str, Any]) -> str:
    """Describe what a rule matches in a line: `terminal: git status *, risk at most LOW, in 5f1c8a52`."""
    tests = rule.get("arguments")
    parts = [_test(name, test) for name, test in (tests or {}).items() if "any" not in test]
    open_to = [in_line(name) for name, test in (tests or {}).items() if "any" in test]
    if tests is None:
        parts.append("whatever its arguments")
    elif not tests:
        parts.append("without arguments")
    elif open_to:
        parts.append(f"any {', '.join(open_to)}")
    if risk := rule.get("max_risk"):
        parts.append(f"risk at most {risk}")
    if effects := rule.get("effects"):
        parts.append(f"{'only' if rule.get('decision') == 'approve' else 'any of'} {', '.join(effects)}")
    if ids := rule.get("conversation_ids"):
        parts.append(f"in {short(ids[0])}" if len(ids) == 1 else f"in {counted(len(ids), 'conversation')}")
    for name, words in _PLACES.items():
        if named := rule.get(name):
            parts.append(f"{words} {in_line(named)}")
    parts += [f"tag {in_line(n if v is None else f'{n}={v}')}" for n, v in (rule.get("tags") or {}).items()]
    return f"{in_line(rule['tool_name'])}: {', '.join(parts)}"


def _test(name: str, test: Mapping[str, Any]) -> str:
    kind, value = next(iter(test.items()))
    text = in_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    text = text if len(text) <= _MOST_VALUE else f"{text[: _MOST_VALUE - 1]}…"
    if kind == "command" and name == "command":
        return text
    named = in_line(name)
    return {
        "command": f"{named} runs {text}",
        "path": f"{named} in {text}",
        "pattern": f"{named} fits {text}",
    }.get(kind, f"{named} = {text}")


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read the rules of a TOML file as bodies of POST /api/v1/approval-rules. Raises BadFile."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{path} is not TOML: {error}") from error
    rules = found.pop("rules", None)
    if found or not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
        raise BadFile(f"{path} must have a table [[rules]] for each rule, and nothing else")
    return [_rule(one, f"Rule {place} of {path}") for place, one in enumerate(rules, 1)]


def _rule(table: dict[str, Any], where: str) -> dict[str, Any]:
    known = (*CONTENT, *_SHORT, "reason")
    if unknown := sorted(set(table) - set(known)):
        raise BadFile(f"{where} has the unknown member {in_line(unknown[0])}: it may have {', '.join(known)}")
    if lacking := [name for name in ("decision", "tool_name") if not isinstance(table.get(name), str)]:
        raise BadFile(f"{where} needs the member {lacking[0]}, a string")
    rule = {name: _plain(value) for name, value in table.items() if name not in _SHORT}
    command, path = (table.get(name) for name in _SHORT)
    if not isinstance(command, str | None) or not isinstance(path, str | None):
        raise BadFile(f"{where}: command and path must be strings")
    if (short_form := arguments_of(command, path)) is not None:
        if not isinstance(rule.get("arguments", {}), dict):
            raise BadFile(f"{where}: arguments must be a table")
        rule["arguments"] = {**short_form, **rule.get("arguments", {})}
    return rule


def _plain(value: Any) -> Any:
    """Convert a TOML value to JSON. A time without a zone is UTC."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).isoformat()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def content(rule: Mapping[str, Any]) -> str:
    """Return the content of a rule as text. Rules that decide the same have equal texts."""
    members = {name: rule[name] for name in CONTENT if rule.get(name) not in (None, _DEFAULTS.get(name))}
    if ids := members.get("conversation_ids"):
        members["conversation_ids"] = sorted({str(one).replace("-", "").lower() for one in ids})
    if ends := members.get("expires_at"):
        members["expires_at"] = moment(ends).astimezone(UTC).isoformat()
    return json.dumps(members, sort_keys=True)


def difference(wanted: Iterable[dict[str, Any]], present: Iterable[ApprovalRule]) -> Difference:
    """Compare the rules of a file with those of a server. A rule of the file that has ended is not missing."""
    by_content = {content(one): one for one in wanted}
    found: dict[str, ApprovalRule] = {}
    extra = []
    for rule in present:
        key = content(rule)
        if key in by_content and key not in found:
            found[key] = rule
        else:
            extra.append(rule)
    now = datetime.now(UTC)
    missing = [one for key, one in by_content.items() if key not in found and not _has_ended(one, now)]
    return Difference(missing, extra, len(found))


def _has_ended(rule: Mapping[str, Any], now: datetime) -> bool:
    ends = rule.get("expires_at")
    return ends is not None and moment(ends) <= now
