"""`python -m egress` as a process: a child serves, and one that is killed is followed by another at once."""

import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.servers import running, wait_until

pytestmark = pytest.mark.process("starts a proxy, whose children it kills")


@pytest.fixture
def place(tmp_path):
    return tmp_path / "egress.sock"


@pytest.fixture
def proxy(place, redis_url, monkeypatch):
    """A proxy that listens, started as a supervisor does it."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    command = [sys.executable, "-m", "egress", str(place)]
    with running(command, stdin=subprocess.PIPE) as process:
        wait_until(lambda: listens(place), "the proxy")
        yield process


def listens(place) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(place))
        except OSError:
            return False
        return True


def child_of(process) -> psutil.Process | None:
    return next(iter(psutil.Process(process.pid).children()), None)


def test_a_proxy_whose_child_is_killed_forks_another_that_listens(proxy, place):
    before = child_of(proxy)
    # The kernel tells the time of its start in whole seconds, so a process may be a second younger than psutil says.
    wait_until(lambda: time.time() - before.create_time() > 4.5, "its time as a steady one")
    before.kill()
    wait_until(lambda: (after := child_of(proxy)) and after.pid != before.pid and listens(place), "the next child")
    assert proxy.poll() is None


def test_a_proxy_whose_child_does_not_live_for_long_ends_so_that_its_parent_waits_longer(proxy):
    child = child_of(proxy)
    child.kill()
    lived = time.time() - child.create_time()
    assert lived >= 3 or proxy.wait(30) == signal.SIGKILL  # on a slow machine it may have been a steady one


def test_a_child_ends_with_the_process_that_forked_it(proxy, place):
    child_of(proxy)
    proxy.kill()
    proxy.wait(30)
    wait_until(lambda: not listens(place), "the end of the child")
