"""Which tests a run selects; and what it prints: a line a folder, failures at once, the slowest ten, what is left out.

A test is quick, or of the group that its nearest mark names (`GROUPS`). `--group NAME` selects one; without it all
run. A quick test computes: what starts programs, shows pages or waits for time has a mark that says why. One file of
the quick run starts the real server, tests/test_tour.py.

tests/unsteady.toml names the tests that may fail, each with what was seen and until when: such a test still runs and is
printed, and cannot fail the run; past its date it can again.
"""

import datetime
import functools
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

QUICK = "quick"

#: the groups beside the quick tests, and what their tests do
GROUPS = {
    "process": "start programs or servers of their own, or wait for time to pass",
    "stores": "are quick tests, on another kind of Redis",
    "faults": "kill, stall, fill, flood or damage, or repeat a race many times",
    "cluster": "fail over the servers of a pair or a cluster, or move their slots",
    "browser": "show pages in Chromium",
    "docker": "start containers",
    "kubernetes": "start pods",
    "interop": "run the published OpenHands SDK and agent server",
}

#: the groups whose tests are in files of any kind, so that their runs collect all of them
EVERYWHERE = (QUICK, "stores")

UNSTEADY = Path(__file__).with_name("unsteady.toml")
MOST_UNSTEADY, MOST_DAYS = 10, 30

#: how many tests this process has left out, by group
_left_out: Counter[str] = Counter()


def group_of(item: pytest.Item) -> str:
    return next((mark.name for mark in item.iter_markers() if mark.name in GROUPS), QUICK)


def _is_found(item: pytest.Item) -> bool:
    """Whether a run of its group collects a test."""
    return group_of(item) in EVERYWHERE or may_hold(item.path, group_of(item))


def unsteady(text: str, today: datetime.date) -> dict[str, str]:
    """The tests that may fail today, by node id, each with what was seen.

    Raises pytest.UsageError for an entry that lacks a member or lasts too long, and for too many entries.
    """
    entries = tomllib.loads(text).get("unsteady", [])
    if len(entries) > MOST_UNSTEADY:
        raise pytest.UsageError(f"{UNSTEADY.name}: {len(entries)} entries, at most {MOST_UNSTEADY}")
    for entry in entries:
        if entry.keys() != {"test", "seen", "since", "until"}:
            raise pytest.UsageError(f"{UNSTEADY.name}: an entry has test, seen, since and until: {entry}")
        if (entry["until"] - entry["since"]).days > MOST_DAYS:
            raise pytest.UsageError(f"{UNSTEADY.name}: {entry['test']} is unsteady for more than {MOST_DAYS} days")
    return {entry["test"]: entry["seen"] for entry in entries if today <= entry["until"]}


def pytest_addoption(parser):
    parser.addoption("--group", choices=[QUICK, *GROUPS], help="run the tests of one group: see tests/report.py")


def pytest_configure(config):
    for name, what in GROUPS.items():
        config.addinivalue_line("markers", f"{name}(why): of the tests that {what}")
    config.addinivalue_line("markers", "tour(why): the part of the quick run that starts the real server")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReport(config))


@functools.cache
def may_hold(path: Path, group: str) -> bool:
    """Whether a test file can hold a test of a group: it, or a conftest.py above it, names the mark."""
    above = [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(UNSTEADY.parent)]
    return any(f"mark.{group}(" in file.read_text() for file in (path, *above) if file.exists())


def pytest_ignore_collect(collection_path, config):
    """Pass over files that hold no test of the group: to load them all takes longer than some groups."""
    group = config.getoption("--group")
    if group in (None, *EVERYWHERE) or not collection_path.name.startswith("test_"):
        return None
    return None if collection_path.is_dir() or may_hold(collection_path, group) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    silent = sorted(
        {item.nodeid for item in items for mark in item.iter_markers() if mark.name in GROUPS and not mark.args}
    )
    if silent:
        raise pytest.UsageError(f"a mark of a group says why: {', '.join(silent)}")
    wanted = config.getoption("--group")
    if wanted in (None, QUICK):
        hidden = {item.nodeid for item in items if not _is_found(item)}
        if hidden:
            raise pytest.UsageError(f"a mark of a group stands in the file, or a conftest.py above it: {hidden}")
    if wanted == QUICK:
        _left_out.update(group_of(item) for item in items if group_of(item) != wanted)
    if wanted:
        items[:] = [item for item in items if group_of(item) == wanted]
    may_fail = unsteady(UNSTEADY.read_text(), datetime.date.today())
    for item in items:
        if seen := may_fail.get(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=f"unsteady: {seen}", strict=False))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


def folder_of(nodeid: str) -> str:
    """tests/store/link/test_x.py::test_y → tests/store; of a file in `tests` itself: tests."""
    return "/".join(Path(nodeid.partition("::")[0]).parent.parts[:2])


class RunReport:
    """Of the process that collects the reports of all others."""

    def __init__(self, config) -> None:
        self._config = config
        self._left: Counter[str] = Counter()
        self._outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self._seconds: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._is_spread = False

    def _write(self, line: str) -> None:
        self._config.get_terminal_writer().line(line)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        if not self._is_spread:
            self._is_spread = True
            self._left.update(folder_of(one) for one in ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Every process collects all tests, and leaves the same out."""
        if left_out := getattr(node, "workeroutput", {}).get("left_out"):
            _left_out.clear()
            _left_out.update(left_out)

    def pytest_collection_finish(self, session):
        self._left.update(folder_of(item.nodeid) for item in session.items)

    def pytest_report_teststatus(self, report):
        """No dot: a folder's line says it."""
        if report.passed:
            return ("passed" if report.when == "call" else ""), "", ""
        return ("skipped" if report.skipped else "failed" if report.when == "call" else "error"), "", ""

    def pytest_runtest_logreport(self, report):
        folder = folder_of(report.nodeid)
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._write(f"FAILED {report.nodeid} ({report.when})")
            self._outcomes[folder]["failed"] += 1
        elif hasattr(report, "wasxfail"):
            self._outcomes[folder]["unsteady"] += report.when == "call"
            self._reasons[f"{report.outcome} {report.nodeid}: {report.wasxfail}"] += 1
        elif report.skipped:
            self._outcomes[folder]["skipped"] += 1
            self._reasons[f"skipped: {report.longrepr[2].removeprefix('Skipped: ')}"] += 1
        elif report.when == "call":
            self._outcomes[folder]["passed"] += 1
        if report.when == "teardown":
            self._left[folder] -= 1
            if not self._left[folder]:
                self._tell(folder)

    def _tell(self, folder: str) -> None:
        seconds = sum(taken for nodeid, taken in self._seconds.items() if folder_of(nodeid) == folder)
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in self._outcomes[folder].items())
        self._write(f"{folder:<24}{outcomes}, {seconds:.0f} s")

    def pytest_terminal_summary(self):
        self._write("\nThe slowest:")
        for nodeid, seconds in self._seconds.most_common(10):
            self._write(f"  {seconds:5.1f} s  {nodeid}")
        if self._reasons:
            self._write("\nSkipped or unsteady:")
        for reason, number in self._reasons.most_common():
            self._write(f"  {number:5}  {reason}")
        if _left_out:
            self._write("\nLeft out, `make test-all GROUP=…` runs them:")
        for name, number in _left_out.most_common():
            self._write(f"  {number:5}  {name}: {GROUPS.get(name, 'compute, each in the process of the run')}")
