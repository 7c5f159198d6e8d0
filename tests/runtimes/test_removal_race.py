"""A removal that its sandbox fights touches nothing outside and leaves nothing alive, whatever holds the sandbox."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import pytest

from runtimes import cgroup
from runtimes.isolation import kernel, view
from runtimes.isolation.view import interpreter
from tests.chance import often
from tests.runtimes.host import lacking, require_cgroup
from tests.runtimes.race import RaceOrder, RaceOutcome
from tests.servers import PROJECT

pytestmark = pytest.mark.faults("starts and removes hostile sandboxes, with LONG hundreds")

#: a user without an account, as whom the server runs where it is not root
OTHER = 54_321


@pytest.mark.parametrize("in_cgroup", [False, True], ids=["without a cgroup", "in a cgroup"])
@pytest.mark.parametrize(
    ("kind", "with_user", "user"),
    [
        pytest.param("none", False, 0, id="none as root"),
        pytest.param("landlock", False, 0, id="landlock as root"),
        pytest.param("landlock", True, 0, id="landlock with a user of its own as root"),
        pytest.param("bubblewrap", False, 0, id="bubblewrap as root"),
        pytest.param("none", False, OTHER, id="none as another user"),
        pytest.param("landlock", False, OTHER, id="landlock as another user"),
        pytest.param("bubblewrap", False, OTHER, id="bubblewrap as another user"),
    ],
)
def test_a_removal_that_its_sandbox_fights_touches_nothing_outside_and_leaves_nothing_alive(
    kind, with_user, user, in_cgroup
):
    outcome = raced(RaceOrder(kind, often(1, 200), with_user, in_cgroup), user)

    print(f"{outcome.tries} tries, directories swapped in {outcome.swapped}")
    assert outcome.faults == []


def raced(order: RaceOrder, user: int) -> RaceOutcome:
    """The outcome of the tries of a server that runs as a user. Skips where that is not possible here, fails in CI."""
    if os.geteuid() != 0 and user != OTHER:
        pytest.skip("only root can run a server as root")
    if order.in_cgroup:
        require_cgroup()
    with tempfile.TemporaryDirectory(prefix="race-") as name, _group_of(user, order) as group:
        os.chown(name, *(2 * [user if os.geteuid() == 0 else -1]))

        def enter() -> None:
            if group is not None:
                cgroup.Cgroup(group).add(0)
            if user != os.geteuid() == 0:
                view.show(shown, hidden)
                kernel.become(user)

        shown = [*interpreter(), str(PROJECT), str(PROJECT.resolve())]
        hidden = view.hidden(shown)
        command = [sys.executable, "-m", "tests.runtimes.race", name, json.dumps(asdict(order))]
        done = subprocess.run(
            command, cwd=PROJECT, env={"PATH": os.environ["PATH"]}, capture_output=True, check=False, preexec_fn=enter
        )
        assert done.returncode == 0, done.stderr.decode()
    outcome = RaceOutcome(**json.loads(done.stdout))
    if outcome.lacks:
        lacking(outcome.lacks)
    return outcome


@contextlib.contextmanager
def _group_of(user: int, order: RaceOrder) -> Iterator[Path | None]:
    """A cgroup that a user may divide; None where there is no need for one."""
    if not order.in_cgroup or os.geteuid() != 0 or user == 0:
        yield None
        return
    group = cgroup.own() / f"tests-{uuid4().hex[:8]}"
    group.mkdir()
    try:
        for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control"):
            os.chown(path, user, user)
        yield group
    finally:
        group.rmdir()
