"""Prints what came of each case of each agent, and what the audit said of it."""

from collections import Counter

import pytest

_rows: list[tuple[str, str, str]] = []


@pytest.fixture
def table(request, inbox):
    """Keeps for the table at the end what the audit got while a test ran."""
    before = {one["hash"] for one in inbox.audited()}
    yield
    entries = [one for one in inbox.audited() if one["hash"] not in before]
    found = Counter(f"{one['decision']} by {one['actor']['kind']}" for one in entries)
    request.node.user_properties.append(("audit", ", ".join(f"{number} {words}" for words, number in found.items())))


def pytest_runtest_logreport(report):
    said = dict(report.user_properties).get("audit")
    if report.when == "teardown" and said is not None:
        _rows.append((report.nodeid.rpartition("::")[2], "passed", said or "nothing"))


def pytest_terminal_summary(terminalreporter):
    failed = {one.nodeid.rpartition("::")[2] for one in terminalreporter.stats.get("failed", [])}
    for case, outcome, said in _rows:
        terminalreporter.write_line(f"{'FAILED' if case in failed else outcome}  {case}  audit: {said}")
