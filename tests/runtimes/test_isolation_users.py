"""Where the server is root each sandbox has a user of its own; its limits, and what others see of it."""

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

import runtimes.starts
from runtimes import Launch, ProcessState, RuntimeCallFailed
from runtimes.isolation import Abilities
from runtimes.isolation.users import USERS, hand_over, held_user, processes_of
from runtimes.process import ProcessRuntime
from tests.runtimes.host import PLANTED, a_launch, a_terminal, require, runtime_in, secret_process, tried
from tests.servers import wait_until

pytestmark = [
    pytest.mark.process("starts sandboxes"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sandboxes users of their own"),
]


@pytest.fixture(params=[pytest.param("bubblewrap", marks=pytest.mark.process("the same in bubblewrap")), "landlock"])
def runtime(request, tmp_path, monkeypatch):
    """A runtime whose sandboxes have users of their own, whatever isolates them."""
    require(request.param, monkeypatch, users=True)
    with runtime_in(tmp_path) as runtime:
        yield runtime


@pytest.fixture
def landlocked(tmp_path, monkeypatch):
    """A runtime in the folder `data` whose sandboxes Landlock confines."""
    require("landlock", monkeypatch, users=True)
    with runtime_in(tmp_path / "data") as runtime:
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
    work = tmp_path / "box" / "work"
    work.mkdir(parents=True)
    first, hold = held_user(work)
    os.chown(work, first, first)
    with hold:
        second, other = held_user(work)
        other.close()
    third, free = held_user(work)
    free.close()

    assert second != first
    assert third == first


def test_a_sandbox_that_is_removed_meanwhile_does_not_fail_the_search_for_a_user(tmp_path):
    for name in ("box", "removed"):
        (tmp_path / name).mkdir()
    (tmp_path / "box" / "work").mkdir()
    (tmp_path / "removed" / "work").symlink_to("/gone")  # listed, and gone when it is looked at

    user, hold = held_user(tmp_path / "box" / "work")
    hold.close()

    assert user in USERS


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
    assert len(family) >= 2
    for process in family:
        assert PLANTED not in " ".join(process.cmdline())
    for process in [each for each in family if each.name() in ("bwrap", "pasta")]:
        assert PLANTED not in str(process.environ())
    assert PLANTED not in (tmp_path / "sandboxes" / "host" / "box" / "handle.json").read_text()
    assert PLANTED not in json.dumps(handle)
    owned = [path for path in tmp_path.rglob("*") if path.lstat().st_mode & 0o077 and not path.is_symlink()]
    assert [path for path in owned if path.name not in ("sandboxes", "project")] == []


def test_the_processes_of_a_sandbox_are_limited_by_its_user(runtime):
    text = "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done; echo all"
    launch = Launch("box", ("/bin/sh", "-c", text), {}, ".", isolation="auto", network="none", processes=30)
    handle = runtime.start(launch)

    wait_until(lambda: "fork" in runtime.logs(handle, 100).lower(), "the refusal")
    assert handle["limits"]["processes"] in ("its user", "cgroup")


@pytest.mark.process("starts a sandbox in bubblewrap")
def test_a_sandbox_has_512_processes_unless_its_spec_lifts_the_limit(runtime):
    limit = "import resource, json; print(json.dumps(['limit', str(resource.getrlimit(resource.RLIMIT_NPROC)[0])]))"
    for name, options, said in (("a", {}, "512"), ("b", {"processes": 0}, None)):
        launch = Launch(name, (sys.executable, "-c", limit), {}, ".", isolation="auto", network="none", **options)
        handle = runtime.start(launch)
        wait_until(lambda: "limit" in runtime.logs(handle, 10), "its limit")  # noqa: B023 - it is called in this round
        assert (f'"{said}"' in runtime.logs(handle, 10)) == (said is not None)


def test_the_kernel_keeps_a_users_sandbox_from_processes_files_and_modes_of_root(landlocked, tmp_path):
    root = tmp_path / "root's"
    root.write_text(PLANTED)
    with secret_process() as pid:
        tries = [
            ("who", "user"),
            ("a mode", "set_mode", str(root), 0o777),
            ("a time", "set_time", str(root)),
            ("a priority", "set_priority", pid),
            ("a signal", "kill", pid),
        ]
        handle, outcomes = tried(landlocked, a_launch(), tries)

    user = owner_of(handle)
    assert outcomes["who"] == f"reached: {user} {user} []"
    assert {name for name, outcome in outcomes.items() if outcome.startswith("reached")} == {"who"}
    said = handle["isolation"]
    assert not [sentence for sentence in said["reaches"] if "server's user" in sentence]
    assert not [sentence for sentence in said["lacks"] if "user of its own" in sentence]


def test_a_user_of_its_own_makes_terminals_and_reaches_none_of_roots(landlocked):
    with a_terminal() as terminal:
        tries = [("its own", "own_terminal"), ("root's", "terminal", terminal)]
        _, outcomes = tried(landlocked, a_launch(), tries)

    assert outcomes["its own"].startswith("reached: /dev/pts/")
    assert outcomes["root's"].startswith("refused")


def test_a_folder_that_the_user_cannot_enter_shows_nothing_but_what_the_sandbox_needs(landlocked, tmp_path):
    (tmp_path / "data" / "beside").write_text(PLANTED)
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o755)
    (given / "file").write_text("for all")
    (given / "file").chmod(0o644)
    launch = a_launch(readable=(*a_launch().readable, str(given)))
    work = tmp_path / "data" / "sandboxes" / "host" / "box" / "work"
    tries = [
        ("a file beside", "size", str(tmp_path / "data" / "beside")),
        ("what its spec names", "read", str(given / "file")),
        ("its own by its path", "write", str(work / "mine")),
        ("its temporary files", "write", str(work.parent / "tmp" / "mine")),
    ]
    _, outcomes = tried(landlocked, launch, tries)

    assert "No such file" in outcomes.pop("a file beside")
    assert [outcome for outcome in outcomes.values() if outcome.startswith("refused")] == []
    assert (work / "mine").read_text() == "written by the sandbox"


def test_what_other_users_may_not_read_is_named_and_its_sandbox_runs_as_the_servers_user(landlocked, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o700)
    handle, outcomes = tried(
        landlocked,
        a_launch(readable=(*a_launch().readable, str(closed))),
        [("who", "user"), ("read", "entries", str(closed))],
    )

    assert outcomes["who"].startswith("reached: 0 0")
    assert outcomes["read"].startswith("reached")
    opens = f"`chmod -R a+rX {closed}` changes that"
    assert f"It has no user of its own: other users may not read {closed} ({opens})." in handle["isolation"]["lacks"]
    assert any("server's user" in sentence for sentence in handle["isolation"]["reaches"])


def test_without_a_range_of_users_sandboxes_run_as_the_servers_and_say_so(tmp_path, monkeypatch):
    require("landlock", monkeypatch, users=True)
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.5, users=range(0))
    try:
        handle, outcomes = tried(runtime, a_launch(), [("who", "user")])
    finally:
        runtime.stop(runtime.known()[0])

    assert outcomes["who"].startswith("reached: 0 0")
    assert "It has no user of its own: SANDBOX_USERS is none." in handle["isolation"]["lacks"]


def test_without_any_isolation_a_sandbox_still_has_a_user_of_its_own(tmp_path, monkeypatch):
    nothing = Abilities("no bwrap here", "", 0, False, users=True)
    monkeypatch.setattr(runtimes.starts, "abilities", lambda: nothing)
    with runtime_in(tmp_path) as runtime:
        tries = [("who", "user"), ("its own", "write", "mine"), ("the server's", "read", str(tmp_path / "key"))]
        (tmp_path / "key").write_text(PLANTED)
        handle, outcomes = tried(runtime, a_launch(), tries)

    assert outcomes["who"] == f"reached: {owner_of(handle)} {owner_of(handle)} []"
    assert outcomes["its own"].startswith("reached")
    assert outcomes["the server's"].startswith("refused")
    assert handle["isolation"]["kind"] == "none"


def test_a_user_of_a_sandbox_that_rests_is_nobody_elses(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "work").mkdir(parents=True)
    os.chown(tmp_path / "one" / "work", 100_000, 100_000)

    for _ in range(3):
        user, hold = held_user(tmp_path / "two" / "work", range(100_000, 100_002))
        hold.close()
        assert user == 100_001
    os.chown(tmp_path / "two" / "work", 100_001, 100_001)
    (tmp_path / "three" / "work").mkdir(parents=True)
    with pytest.raises(RuntimeCallFailed, match="SANDBOX_USERS 100000-100001"):
        held_user(tmp_path / "three" / "work", range(100_000, 100_002))


def test_a_launcher_that_was_killed_leaves_nothing_of_its_sandboxs_user(runtime, tmp_path):
    handle, _ = tried(runtime, a_launch(), [])
    user = owner_of(handle)
    os.kill(handle["pid"], signal.SIGKILL)
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end of the launcher")

    runtime.remove("box")

    assert processes_of(user) == []
    assert not Path(handle["folder"]).exists()
