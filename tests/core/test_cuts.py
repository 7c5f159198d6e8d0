"""How texts are cut: within their bound, and with a mark of what is missing."""

import ast

import pytest

from core.cuts import beginning, beginning_in_bytes, head_and_tail, last_lines, last_lines_of_more
from tests.servers import PROJECT


@pytest.mark.parametrize("text", ["", "short", "x" * 100])
def test_a_text_within_its_bound_stays_as_it_is(text):
    assert beginning(text, 100) == beginning_in_bytes(text, 100) == head_and_tail(text, 100) == text


def test_a_longer_text_ends_in_a_mark_within_its_bound():
    assert beginning("abcdef", 5) == "abcd…"
    assert beginning_in_bytes("é" * 10, 8) == "éé…"
    assert len(beginning_in_bytes("é" * 10, 8).encode()) <= 8


def test_of_a_long_output_head_and_tail_are_kept_and_a_line_counts_what_is_missing():
    text = head_and_tail("a" * 5000 + "z" * 5000, 1000)
    head, line, tail = text.split("\n")
    assert (set(head), set(tail)) == ({"a"}, {"z"})
    assert line == f"… {10_000 - len(head) - len(tail):,} characters are not shown here …"
    assert len(text) <= 1000


TEN = "\n".join(map(str, range(1, 11)))


CUT = [
    ("", 3, ""),
    (TEN, 0, ""),
    (TEN, 10, TEN),
    (TEN, 2, "… 8 earlier lines are not shown\n9\n10"),
    (TEN, 9, f"… 1 earlier line is not shown\n{TEN[2:]}"),
    ("… 1,200 earlier lines are not shown\na\nb", 1, "… 1,201 earlier lines are not shown\nb"),
    ("… 1,200 earlier lines are not shown\na\nb", 2, "… 1,200 earlier lines are not shown\na\nb"),
    ("… earlier lines are not shown\na\nb", 1, "… earlier lines are not shown\nb"),
]


def test_the_last_lines_of_a_log_stand_below_a_count_of_the_earlier_ones():
    assert [(text, tail, last_lines(text, tail)) for text, tail, _ in CUT] == CUT


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c", "\r"])
def test_a_line_of_a_log_ends_where_programs_end_it(end):
    assert last_lines(f"1\n2{end}2\n3\r\n", 2) == f"… 1 earlier line is not shown\n2{end}2\n3"
    assert last_lines_of_more(f"2{end}2\n3\n", 2) == f"2{end}2\n3"


def test_where_nobody_has_counted_earlier_lines_the_log_says_that_there_are_some():
    assert last_lines_of_more("8\n9\n10", 2) == "… earlier lines are not shown\n9\n10"
    assert last_lines_of_more("9\n10", 2) == "9\n10"


#: rooms whose sentences people read
ROOMS = (
    *("agents", "blueprints", "boot", "client/src", "core", "egress", "notifications", "reference_agent"),
    *("runtimes", "schemas", "settings", "store", "supervisor", "telemetry"),
)


def is_a_cut(node: ast.AST) -> bool:
    """Whether an expression keeps the beginning of a text: `[:80]` or `[:MOST]`. Ids and digests are cut to less."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.lower is None):
        return False
    upper = node.slice.upper
    if isinstance(upper, ast.Constant):
        return isinstance(upper.value, int) and upper.value >= 40
    return isinstance(upper, ast.Name) and upper.id.lstrip("_").startswith(("MOST", "LONGEST"))


def test_no_sentence_has_a_text_that_was_cut_without_a_mark():
    found = []
    for room in ROOMS:
        for path in (PROJECT / room).rglob("*.py"):
            for sentence in ast.walk(ast.parse(path.read_text())):
                if isinstance(sentence, ast.JoinedStr):
                    parts = [one.value for one in sentence.values if isinstance(one, ast.FormattedValue)]
                    ends = [one.value for one in sentence.values if isinstance(one, ast.Constant)]
                    if any(map(is_a_cut, parts)) and not any(mark in end for end in ends for mark in ("…", "...")):
                        found.append(f"{path.relative_to(PROJECT)}:{sentence.lineno}")

    assert found == [], "say that it is cut: core/cuts.py"
