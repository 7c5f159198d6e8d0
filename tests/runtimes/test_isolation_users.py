"""Where the server is root each sandbox has a user of its own; its limits, and what others see of it."""

import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from runtimes import Launch
from runtimes.isolation.users import USERS, hand_over, held_user
from tests.runtimes.host import PLANTED, a_launch, require, runtime_in, tried
from tests.servers import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sandboxes users of their own")


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    require("bubblewrap", monkeypatch)
    with runtime_in(tmp_path) as runtime:
        yield runtime


def owner_of(handle) -> int:
    return (Path(handle["folder"]) / "work").stat().st_uid


def test_two_sandboxes_have_two_users_and_keep_them(runtime):
    one, _ = tried(runtime, a_launch("one"), [])
    two, _ = tried(runtime, a_launch("two"), [])
    runtime.stop(one)
    again, _ = tried(runtime, a_launch("one", start=2), [])

    assert owner_of(one) in USERS
    assert owner_of(two) in USERS
    assert owner_of(one) != owner_of(two)
    assert owner_of(again) == owner_of(one)


def test_a_user_that_another_sandbox_of_the_host_has_is_not_taken(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    first, hold = held_user(work)
    os.chown(work, first, first)
    with hold:
        second, other = held_user(work)
        other.close()
    third, free = held_user(work)
    free.close()

    assert second != first
    assert third == first


def test_a_kept_folder_of_an_older_release_is_handed_over_whole(runtime, tmp_path):
    work = tmp_path / "sandboxes" / "host" / "box" / "work"
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / "er" / "file").write_text("kept")
    (work / "deep" / "er" / "file").chmod(0o600)
    (work / "link").symlink_to("/etc/hostname")
    outside = tmp_path / "outside"
    outside.write_text("root's")
    os.link(outside, work / "linked from outside")
    os.link(work / "deep" / "er" / "file", work / "second name")

    tries = [("read", "read", "deep/er/file"), ("write", "write", "deep/er/file"), ("new", "write", "deep/new")]
    handle, outcomes = tried(runtime, a_launch(), tries)

    assert outcomes["read"] == "reached: kept"
    assert (outcomes["write"], outcomes["new"]) == ("reached: written", "reached: written")
    assert (work / "second name").stat().st_uid == owner_of(handle)
    assert outside.stat().st_uid == 0
    assert Path("/etc/hostname").stat().st_uid == 0


def test_a_hand_over_that_broke_off_is_finished_by_the_next_one(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("")
    real = os.chown

    def breaks_at_the_folder(path, *owner, **options):
        if path == tmp_path:
            raise OSError(5, "a crash")
        real(path, *owner, **options)

    monkeypatch.setattr(os, "chown", breaks_at_the_folder)
    with pytest.raises(OSError, match="a crash"):
        hand_over(tmp_path, USERS.start)
    monkeypatch.setattr(os, "chown", real)
    assert tmp_path.stat().st_uid == 0
    hand_over(tmp_path, USERS.start)
    assert {each.stat().st_uid for each in (tmp_path, *tmp_path.rglob("*"))} == {USERS.start}


def test_the_supervisor_measures_archives_fills_and_removes_what_a_sandbox_wrote(runtime, tmp_path):
    handle, _ = tried(runtime, a_launch(), [("mine", "write", "mine")])
    work = Path(handle["folder"]) / "work"
    assert runtime.disk_bytes("box") > 0
    stream = b"".join(runtime.pack(a_launch()))
    assert b"written by the sandbox" in stream

    runtime.unpack(a_launch("copied"), [stream])
    copied, outcomes = tried(runtime, a_launch("copied"), [("read", "read", "mine"), ("write", "write", "mine")])
    assert outcomes["read"] == "reached: written by the sandbox"
    assert outcomes["write"] == "reached: written"
    assert owner_of(copied) != owner_of(handle)

    runtime.remove("box")
    assert not work.exists()


def test_no_secret_is_on_a_command_line_or_in_a_file_that_others_read(runtime, tmp_path):
    handle, outcomes = tried(runtime, a_launch(env={"MY_KEY": PLANTED}), [("its key", "environment", "MY_KEY")])

    assert outcomes["its key"] == f"reached: {PLANTED}"
    launcher = psutil.Process(handle["pid"])
    family = [launcher, *launcher.children(recursive=True)]
    assert len(family) >= 4
    for process in family:
        assert PLANTED not in " ".join(process.cmdline())
    for process in [each for each in family if each.name() in ("bwrap", "pasta")]:
        assert PLANTED not in str(process.environ())
    assert PLANTED not in (tmp_path / "sandboxes" / "host" / "box" / "handle.json").read_text()
    assert PLANTED not in json.dumps(handle)
    owned = [path for path in tmp_path.rglob("*") if path.lstat().st_mode & 0o077 and not path.is_symlink()]
    assert [path for path in owned if path.name != "sandboxes"] == []


def test_the_processes_of_a_sandbox_are_limited_by_its_user(runtime):
    text = "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done; echo all"
    launch = Launch("box", ("/bin/sh", "-c", text), {}, ".", isolation="auto", network="none", processes=30)
    handle = runtime.start(launch)

    wait_until(lambda: "fork" in runtime.logs(handle, 100).lower(), "the refusal")
    assert handle["limits"]["processes"] in ("its user", "cgroup")


def test_a_sandbox_has_512_processes_unless_its_spec_lifts_the_limit(runtime):
    limit = "import resource, json; print(json.dumps(['limit', str(resource.getrlimit(resource.RLIMIT_NPROC)[0])]))"
    for name, options, said in (("a", {}, "512"), ("b", {"processes": 0}, None)):
        launch = Launch(name, (sys.executable, "-c", limit), {}, ".", isolation="auto", network="none", **options)
        handle = runtime.start(launch)
        wait_until(lambda: "limit" in runtime.logs(handle, 10), "its limit")  # noqa: B023 - it is called in this round
        assert (f'"{said}"' in runtime.logs(handle, 10)) == (said is not None)
