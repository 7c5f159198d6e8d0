"""Time of approval rules about commands: microseconds of CPU per line, with 10 and with 1,000 rules.

The lines are those of tests/core/shell_lines.toml. Each is read for the first time, then again, as for a repeated check
of a waiting action. The effects of a line are those that the server detects, for a page of the inbox.
"""

import tomllib
from pathlib import Path
from statistics import median
from time import thread_time_ns

from bench.measure import Effort, FigureRow
from core import shell
from core.approvals import Action, Rule, RuledConversation, matching
from core.effects import seen
from core.wire import ConversationId

_LINES = Path(__file__).parent.parent / "tests" / "core" / "shell_lines.toml"
_HERE = RuledConversation(ConversationId("5f1c0000-0000-4000-8000-000000000000"), {})
_COMMANDS = ("git status *", "git log *", "ls *", "cat *", "npm test *", "make *", "grep *", "cd *")
_NEVER = ("git push", "rm -rf *")


def rules(number: int) -> list[Rule]:
    """Return a number of rules, one in five of which rejects."""
    made = []
    for place in range(number):
        is_never = place % 5 == 4
        texts = _NEVER if is_never else _COMMANDS
        text = texts[place % len(texts)] if place < 10 else f"program{place} *"
        made.append(
            Rule("reject" if is_never else "approve", "terminal", {"command": {"command": text}}, id=str(place))
        )
    return made


def lines(effort: Effort) -> list[FigureRow]:
    """Measure a line with few and with many rules, and its effects."""
    texts = [text for family in tomllib.loads(_LINES.read_text())["lines"].values() for _, text in family]
    texts = texts[: effort.shell_lines]
    rows = []
    for number, most in ((10, 1000), (1000, 20_000)):
        first, again = times(number, texts)
        rows.append(_row(f"a shell line against {number:,} rules, read for the first time", first, again, most))
    return [*rows, _row("the effects of a shell line, read for the first time", *effect_times(texts), 1000)]


def _row(what: str, first: list[float], again: list[float], most: float) -> FigureRow:
    detail = f"p99 {_p99(first):,.0f} µs; again {median(again):,.0f} µs, p99 {_p99(again):,.0f} µs; {len(first)} lines"
    return FigureRow(
        f"{what}: CPU, median", median(first), " µs", detail, most=most, raw={"first": first, "again": again}
    )


def _p99(taken: list[float]) -> float:
    return sorted(taken)[len(taken) * 99 // 100]


def times(number: int, texts: list[str]) -> tuple[list[float], list[float]]:
    """Return the microseconds per line with a number of rules: for the first time, and again."""
    first: list[float] = []
    again: list[float] = []
    of_rules = rules(number)
    matching(of_rules, Action("terminal", {"command": "ls"}, "LOW"), _HERE)  # warm-up: the patterns are parsed once
    for line in texts:
        shell.read_line.cache_clear()
        for taken in (first, again):
            start = thread_time_ns()
            matching(of_rules, Action("terminal", {"command": line}, "LOW"), _HERE).deciding()
            taken.append((thread_time_ns() - start) / 1000)
    return first, again


def effect_times(texts: list[str]) -> tuple[list[float], list[float]]:
    """Return the microseconds for reading each line and its effects: for the first time, and again."""
    first: list[float] = []
    again: list[float] = []
    for line in texts:
        shell.read_line.cache_clear()
        for taken in (first, again):
            start = thread_time_ns()
            seen("terminal", {"command": line}, "/workspace/project")
            taken.append((thread_time_ns() - start) / 1000)
    return first, again
