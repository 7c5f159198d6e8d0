"""What keeps a quick test from being a matter of luck: no program, no thread of its own, no sleep, no connection.

Free are the stores that tests share (`shared`, and fixtures of the session), stand-ins of agents and receivers
(`serve`), and what the code under test does on threads. Everything else raises a sentence in the test's own thread, and
fails the test even where its code catches it.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path

import pytest

from tests.report import QUICK, group_of

TESTS = Path(__file__).parent

_PROGRAMS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"))

#: modules of the standard library between a call and the thread that it starts
_THREADING = ("threading.py", "socketserver.py", "thread.py", "_base.py")


#: ports of stand-ins, those that tests were given (tests/servers.py), and two on which nobody listens anywhere
known_ports = {1, 9}


#: files that a process of the product keeps until it ends, memory that it shares, and threads of a store
_LASTING = (".lock", "/.supervisors", " (deleted)")
_THREADS = {"signals", "keys"}


class _Watch:
    """The test that is watched, and what it did; `free` counts the blocks in which everything is allowed."""

    test = ""
    free = 0
    faults: list[str] = []
    threads: list[threading.Thread] = []  #: that the code under test has started


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """What is started within the block is shared by tests, and no business of the one that asked first."""
    _Watch.free += 1
    try:
        yield
    finally:
        _Watch.free -= 1


def serve(server: HTTPServer) -> threading.Thread:
    """Serve on a thread what stands in for a program beside the one under test; quick tests may connect to it."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    with shared():
        thread.start()
    known_ports.add(server.server_address[1])
    return thread


def _caller() -> Path:
    """The file of the code that called: the nearest frame beyond this module and the library's threads."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.endswith((__file__, *_THREADING)):
        frame = frame.f_back
    return Path(frame.f_code.co_filename)


def _fault(event: str, args: tuple) -> str:
    """What an event of the interpreter is that no quick test may do; "" for any other."""
    if event in _PROGRAMS:
        return f"starts a program: {args[0]}"
    if event == "socket.connect":
        address = args[1]
        if isinstance(address, (str, bytes)) or address[1] in known_ports:
            return ""
        return f"connects to {address[0]}:{address[1]}"
    if event == "thread" and _caller().is_relative_to(TESTS):
        return "starts a thread"
    if event == "sleep" and _caller().is_relative_to(TESTS):
        return f"sleeps for {args[0]} s"
    return ""


_main = threading.get_ident()

_FILES = pytest.StashKey[set[str]]()


def _watch(event: str, args: tuple) -> None:
    if not _Watch.test or _Watch.free or threading.get_ident() != _main:
        return
    if fault := _fault(event, args):
        sentence = f"{_Watch.test} {fault}. A test that does says so: @pytest.mark.process(why), see tests/report.py"
        _Watch.faults.append(sentence)
        raise RuntimeError(sentence)


sys.addaudithook(_watch)

# Neither has an audit event in every Python that the suite runs on.
_start, _sleep = threading.Thread.start, time.sleep


def _start_watched(thread: threading.Thread) -> None:
    _watch("thread", ())
    _start(thread)
    if _Watch.test and not _Watch.free and threading.get_ident() == _main:
        _Watch.threads.append(thread)


def _sleep_watched(seconds: float) -> None:
    _watch("sleep", (seconds,))
    _sleep(seconds)


threading.Thread.start, time.sleep = _start_watched, _sleep_watched


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    with shared() if fixturedef.scope == "session" else contextlib.nullcontext():
        return (yield)


def _open_files() -> set[str]:
    """The files and pipes that this process has open; none where the system does not say."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                name = str(descriptor.readlink())
                if name.startswith(("/", "pipe:")) and not name.startswith("/dev/") and not name.endswith(_LASTING):
                    found.add(f"{descriptor.name} {name}")
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    is_watched = group_of(item) == QUICK and not item.get_closest_marker("tour")
    _Watch.test = item.nodeid if is_watched else ""
    _Watch.threads.clear()
    try:
        return (yield)
    finally:
        _Watch.test = ""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[_FILES] = _open_files() if _Watch.test else set()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    result = yield
    if _Watch.test:
        if alive := [one.name for one in _Watch.threads if one.is_alive() and one.name not in _THREADS]:
            pytest.fail(f"{_Watch.test} leaves threads behind: {', '.join(alive)}")
        if left := _open_files() - item.stash[_FILES]:
            pytest.fail(f"{_Watch.test} leaves files open: {', '.join(sorted(left))}")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    _Watch.faults.clear()
    result = yield
    if _Watch.faults:
        pytest.fail(_Watch.faults[0])
    return result
