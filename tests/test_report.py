"""Which tests may fail for a while, and what a group's run is reported as."""

import datetime

import pytest

from tests import groups, report

TODAY = datetime.date(2026, 11, 25)
ENTRY = '[[unsteady]]\ntest = "tests/test_x.py::test_y"\nseen = "once"\nsince = 2026-11-01\nuntil = {until}\n'


def test_a_test_may_fail_until_its_date_and_not_after():
    text = ENTRY.format(until="2026-11-25")

    assert report.unsteady(text, TODAY) == {"tests/test_x.py::test_y": "once"}
    assert report.unsteady(text, TODAY + datetime.timedelta(days=1)) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ENTRY.format(until="2026-12-02"), "more than 30 days"),
        (ENTRY.format(until="2026-11-25") * 11, "at most 10"),
        ('[[unsteady]]\ntest = "tests/test_x.py::test_y"\n', "test, seen, since and until"),
    ],
)
def test_an_entry_that_lasts_too_long_or_says_too_little_stops_the_run(text, words):
    with pytest.raises(pytest.UsageError, match=words):
        report.unsteady(text, TODAY)


def test_the_entries_of_the_suite_are_valid():
    report.unsteady(report.UNSTEADY.read_text(), datetime.date(2026, 1, 1))


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.v1.test_x" name="test_good"/>
<testcase classname="tests.v1.test_x" name="test_bad"><failure message="assert 1 == 2&#10;more"/></testcase>
<testcase classname="tests.v1.test_x" name="test_none"><skipped message="Skipped: no engine"/></testcase>
</testsuite></testsuites>"""


def test_a_group_is_told_by_its_numbers_its_skips_and_its_failures(tmp_path):
    results = tmp_path / "group.xml"
    results.write_text(RESULTS)

    words, failures = groups.outcome(results, status=1)

    assert words.splitlines()[0] == "1 failed, 1 passed, 1 skipped"
    assert "skipped: no engine" in words
    assert failures == ["tests/v1/test_x.py::test_bad: assert 1 == 2"]


def test_a_group_that_was_cut_off_has_failed(tmp_path):
    assert groups.outcome(tmp_path / "missing.xml", status=2) == ("ran no test", ["the run ended with status 2"])


def test_a_file_is_passed_over_where_neither_it_nor_a_conftest_above_it_names_the_mark():
    assert report.may_hold(report.UNSTEADY.parent / "console" / "test_inbox.py", "browser")
    assert not report.may_hold(report.UNSTEADY.parent / "core" / "test_prices.py", "browser")
