"""How long approval rules about commands take: microseconds of CPU a line, with 10 and with 1,000 rules.

The lines are those of tests/core/shell_lines.toml. Each is read for the first time; then once more, as for the next
look at an action that still waits.
"""

import sys
import tomllib
from pathlib import Path
from time import thread_time_ns

from core import shell
from core.approvals import Action, Conversation, Rule, matching
from core.wire import ConversationId

_LINES = Path(__file__).parent.parent / "tests" / "core" / "shell_lines.toml"
_HERE = Conversation(ConversationId("5f1c0000-0000-4000-8000-000000000000"), {})
_COMMANDS = ("git status *", "git log *", "ls *", "cat *", "npm test *", "make *", "grep *", "cd *")
_NEVER = ("git push", "rm -rf *")


def rules(number: int) -> list[Rule]:
    """So many rules, one in five of which rejects."""
    made = []
    for place in range(number):
        is_never = place % 5 == 4
        texts = _NEVER if is_never else _COMMANDS
        text = texts[place % len(texts)] if place < 10 else f"program{place} *"
        made.append(
            Rule("reject" if is_never else "approve", "terminal", {"command": {"command": text}}, id=str(place))
        )
    return made


def times(number: int, lines: list[str]) -> tuple[list[float], list[float]]:
    """Microseconds of each line with so many rules: for the first time, and again."""
    first: list[float] = []
    again: list[float] = []
    of_rules = rules(number)
    matching(of_rules, Action("terminal", {"command": "ls"}, "LOW"), _HERE)  # their patterns are read once
    for line in lines:
        shell.read_line.cache_clear()
        for taken in (first, again):
            start = thread_time_ns()
            matching(of_rules, Action("terminal", {"command": line}, "LOW"), _HERE).deciding()
            taken.append((thread_time_ns() - start) / 1000)
    return first, again


def main() -> int:
    lines = [text for family in tomllib.loads(_LINES.read_text())["lines"].values() for _, text in family]
    for number in (10, 1000):
        for name, taken in zip(("first", "again"), times(number, lines), strict=True):
            ordered = sorted(taken)
            half, most = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
            print(f"{number:5} rules, {name}: median {half:7.0f} µs, p99 {most:7.0f} µs, {len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
