"""No cgroup is left, however a sandbox ends. Needs a cgroup v2 below which others may be made."""

import os
import signal
from pathlib import Path

import pytest

from runtimes import Launch, ProcessState, RuntimeCallFailed, cgroup
from runtimes.process import ProcessRuntime
from tests.servers import wait_until

pytestmark = [
    pytest.mark.process("starts sandboxes"),
    pytest.mark.skipif(
        not (cgroup.own() and os.access(cgroup.own(), os.W_OK)),
        reason="no cgroup v2 here below which another may be made",
    ),
]


@pytest.fixture
def folder(tmp_path):
    """A folder of sandboxes; none is left after the test, nor is a cgroup of theirs."""
    yield tmp_path / "sandboxes"
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.5)
    for handle in runtime.known():
        runtime.stop(handle)
    assert groups(tmp_path / "sandboxes") == []


def groups(folder: Path) -> list[Path]:
    """The cgroups of a folder's sandboxes."""
    return list(cgroup.own().glob(f"sandbox-{cgroup._hashed(folder)}-*"))


def launched(runtime, *command: str):
    handle = runtime.start(Launch("box", command, {}, "."))
    assert Path(handle["cgroup"]).exists()
    return handle


def test_a_sandbox_that_ends_by_itself_leaves_no_cgroup(folder):
    runtime = ProcessRuntime(folder, grace=0.5)
    handle = runtime.start(Launch("box", ("/bin/sh", "-c", "setsid sleep 60 & exit 3"), {}, "."))

    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")

    assert runtime.observe(handle).detail == "exit code 3"
    assert groups(folder) == []


def test_a_sandbox_that_is_stopped_leaves_no_cgroup(folder):
    runtime = ProcessRuntime(folder, grace=0.5)
    runtime.stop(launched(runtime, "/bin/sleep", "60"))
    assert groups(folder) == []


def test_a_launcher_that_is_killed_leaves_its_cgroup_to_the_next_stop(folder):
    runtime = ProcessRuntime(folder, grace=0.5)
    handle = launched(runtime, "/bin/sleep", "60")
    os.kill(handle["pid"], signal.SIGKILL)
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")

    with pytest.raises(RuntimeCallFailed, match="nothing shows"):  # root without isolation could have left its cgroup
        runtime.stop(handle)

    assert groups(folder) == []
    for mark in Path(handle["folder"]).glob("unended.*"):
        mark.unlink()


def test_a_start_that_fails_leaves_no_cgroup(folder):
    runtime = ProcessRuntime(folder, grace=0.5)
    with pytest.raises(Exception, match="/no/such/program"):
        runtime.start(Launch("box", ("/no/such/program",), {}, "."))
    assert groups(folder) == []


def test_a_supervisor_removes_cgroups_of_sandboxes_whose_folder_is_gone_and_no_others(folder):
    ours = cgroup.own() / f"sandbox-{cgroup._hashed(folder)}-0123456789abcdef"
    others = cgroup.own() / "sandbox-0000000000000000-0123456789abcdef"
    runtime = ProcessRuntime(folder, grace=0.5)
    handle = launched(runtime, "/bin/sleep", "60")
    ours.mkdir()
    others.mkdir()
    try:
        later = ProcessRuntime(folder, grace=0.5)

        assert not ours.exists()
        assert others.exists()
        assert later.observe(handle).state is ProcessState.RUNNING
    finally:
        others.rmdir()


def test_a_folder_that_a_start_left_without_a_handle_is_known_and_removed_whole(folder):
    runtime = ProcessRuntime(folder, grace=0.5)
    (folder / "box" / "work").mkdir(parents=True)
    [handle] = runtime.known()
    Path(handle["cgroup"]).mkdir()

    assert handle["sandbox_id"] == "box"
    assert runtime.observe(handle).state is ProcessState.GONE
    runtime.remove("box")

    assert not Path(handle["cgroup"]).exists()
    assert not (folder / "box").exists()
    assert runtime.known() == []


def test_the_launcher_is_not_frozen_with_its_sandbox(folder):
    runtime = ProcessRuntime(folder, grace=0.5)
    handle = launched(runtime, "/bin/sleep", "60")
    inside = [process.pid for process in cgroup.Cgroup(Path(handle["cgroup"])).processes()]
    assert inside
    assert handle["pid"] not in inside
