"""What a container sandbox keeps: its working folder, in a volume of a real Docker engine."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from docker.types import Mount

from runtimes import FolderNotKept, Launch, ProcessState, RuntimeCallFailed
from runtimes.containers import CARRIER
from runtimes.docker import DockerRuntime
from tests.engine import ran
from tests.servers import wait_until

pytestmark = pytest.mark.docker("starts containers")

#: writes a file when it is asked to end, and only then ends
ENDS_GRACEFULLY = """
import signal, sys, time

def end(*_):
    open("{WORK}/ended", "w").write("in time")
    sys.exit()

signal.signal(signal.SIGTERM, end)
open("{WORK}/ready", "w")
while True: time.sleep(1)
"""

#: never ends by itself
IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(9)"


@pytest.fixture
def runtime(host):
    return DockerRuntime(host)


def volumes(engine, launch: Launch) -> list[str]:
    return [one.name for one in engine.client.volumes.list(filters={"name": launch.sandbox_id})]


def again(runtime, engine, launch: Launch, number: int = 2):
    """The container of a later start."""
    return engine.container_of(runtime.start(replace(launch, start=number)))


# The ends of a container


@pytest.mark.parametrize("paused", [False, True])
def test_files_survive_the_stop_of_a_running_or_paused_container_and_a_new_one_has_them(
    runtime, engine, launch, paused
):
    handle = runtime.start(launch)
    ran(engine.container_of(handle), "echo kept > note")
    if paused:
        runtime.pause(handle)

    runtime.stop(handle)
    runtime.stop(handle)

    assert engine.holders(launch.sandbox_id) == []
    assert ran(again(runtime, engine, launch), "cat note") == "kept\n"


def test_files_survive_a_kill_from_outside(runtime, engine, launch):
    container = engine.container_of(runtime.start(launch))
    ran(container, "echo kept > note")
    container.kill()

    assert ran(again(runtime, engine, launch), "cat note") == "kept\n"


def test_files_survive_a_removal_of_the_container_from_outside(runtime, engine, launch):
    container = engine.container_of(runtime.start(launch))
    ran(container, "echo kept > note")
    container.remove(force=True, v=True)

    assert ran(again(runtime, engine, launch), "cat note") == "kept\n"


def test_files_survive_a_container_that_needed_too_much_memory(runtime, engine, launch):
    greedy = "open('{WORK}/note', 'w').write('kept'); x = bytearray(1 << 30)"
    handle = runtime.start(replace(launch, command=("python", "-c", greedy), memory_bytes=64 << 20))
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end of the container")

    assert runtime.observe(handle).detail == "it needed more memory than it may have"
    assert ran(again(runtime, engine, launch), "cat note") == "kept"


@pytest.mark.parametrize("paused", [False, True])
def test_an_agent_that_is_stopped_can_write_its_last_file(runtime, engine, launch, paused):
    handle = runtime.start(replace(launch, command=("python", "-c", ENDS_GRACEFULLY)))
    wait_until(lambda: ran(engine.container_of(handle), "ls ready"), "the agent")
    if paused:
        runtime.pause(handle)

    runtime.stop(handle)

    assert ran(again(runtime, engine, launch), "cat ended") == "in time"


def test_an_agent_that_ignores_sigterm_is_killed(runtime, engine, launch):
    runtime.stop(runtime.start(replace(launch, command=("python", "-c", IGNORES_SIGTERM))))

    assert engine.holders(launch.sandbox_id) == []


def test_concurrent_stops_all_succeed(runtime, engine, launch):
    handle = runtime.start(launch)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: runtime.stop(handle), range(8)))

    assert engine.holders(launch.sandbox_id) == []


def test_a_volume_without_a_container_is_known_and_gone_and_may_be_stopped(runtime, engine, launch):
    runtime.stop(runtime.start(launch))

    [handle] = runtime.known()

    assert (handle["sandbox_id"], handle["container"]) == (launch.sandbox_id, None)
    assert runtime.observe(handle).state is ProcessState.GONE
    assert runtime.logs(handle, 10) == ""
    runtime.stop(handle)
    with pytest.raises(RuntimeCallFailed, match="was deleted"):
        runtime.resume(handle)
    assert volumes(engine, launch)


def test_a_volume_that_was_deleted_by_hand_is_made_again_from_the_image(runtime, engine, launch):
    handle = runtime.start(launch)
    ran(engine.container_of(handle), "echo gone > note")
    runtime.stop(handle)
    engine.client.volumes.get(*volumes(engine, launch)).remove()

    assert ran(again(runtime, engine, launch), "ls; echo new > note; cat note") == "new\n"


# Removal


@pytest.mark.parametrize("state", ["running", "paused", "stopped"])
def test_a_removal_leaves_no_container_and_no_volume_and_may_be_repeated(runtime, engine, launch, state):
    handle = runtime.start(launch)
    before = {mount["Name"] for mount in engine.container_of(handle).attrs["Mounts"] if mount["Type"] == "volume"}
    if state == "paused":
        runtime.pause(handle)
    if state == "stopped":
        runtime.stop(handle)

    runtime.remove(launch.sandbox_id)
    runtime.remove(launch.sandbox_id)

    assert runtime.known() == []
    assert f"agent-server-{launch.sandbox_id}" in before
    assert not before & {volume.name for volume in engine.client.volumes.list()}


def test_a_removal_ends_every_container_that_has_the_volume(runtime, engine, launch):
    handle = runtime.start(launch)
    visitor = [Mount("/visited", f"agent-server-{launch.sandbox_id}", type="volume")]
    engine.client.containers.run(launch.image, ["sleep", "600"], mounts=visitor, detach=True)
    runtime.stop(handle)

    runtime.remove(launch.sandbox_id)

    assert volumes(engine, launch) == []


# The folder


@pytest.mark.parametrize("read_only", [False, True])
def test_the_first_start_takes_the_images_content_and_owner_and_later_ones_what_was_kept(
    runtime, engine, launch, made_image, read_only
):
    image = made_image("USER root", "RUN mkdir -p /work && echo given > /work/a && chown -R 777:778 /work", "USER 777")
    launch = replace(launch, image=image, working_dir="/work", read_only=read_only)
    handle = runtime.start(launch)
    assert ran(engine.container_of(handle), "stat -c %u:%g . a && cat a").split() == ["777:778", "777:778", "given"]
    ran(engine.container_of(handle), "echo mine > b && rm a")

    runtime.stop(handle)

    assert ran(again(runtime, engine, launch), "ls") == "b\n"


@pytest.mark.parametrize(
    ("lines", "folder"),
    [(["WORKDIR /"], "/workspace"), (["USER root", "RUN mkdir -p /srv/deep", "WORKDIR /srv/./deep/"], "/srv/deep")],
)
def test_the_working_folder_is_the_images_or_else_workspace(runtime, engine, launch, made_image, lines, folder):
    image = made_image(*lines)
    launch = replace(launch, working_dir=".", image=image, command=("sh", "-c", "echo $AT {WORK}; sleep 600"))
    launch = replace(launch, env={"AT": "{WORK}/.agent-server", "PATH": "/usr/bin:/bin"})
    handle = runtime.start(launch)

    wait_until(lambda: runtime.logs(handle, 1), "the line")
    assert runtime.logs(handle, 1).split() == [f"{folder}/.agent-server", folder]
    ran(engine.container_of(handle), "echo kept > note")
    runtime.stop(handle)
    assert ran(again(runtime, engine, launch), f"cat {folder}/note") == "kept\n"


@pytest.mark.parametrize(
    ("lines", "folder", "real"),
    [
        (["RUN mkdir -p /srv/app && ln -s srv/app /place"], "/place", "/srv/app"),
        (["RUN mkdir -p /data/app && ln -s data/app /place"], "/place", "/data/app"),  # /data is a volume of the image
        (["RUN mkdir -p /data/app && ln -s /data /one && ln -s one /two"], "/two/app/new", "/data/app/new"),
    ],
)
def test_a_working_folder_behind_a_symlink_is_known_by_both_paths_and_its_files_are_kept(
    runtime, engine, launch, made_image, lines, folder, real
):
    image = made_image("USER root", *lines)
    launch = replace(launch, working_dir=folder, image=image)
    handle = runtime.start(launch)

    assert ran(engine.container_of(handle), "pwd -P && echo kept > note && ln -s $(pwd -P)/note link").split() == [real]
    assert (handle["working_dir"], handle["linked_dir"]) == (real, folder)
    seen = replace(launch, seen_dir=real)
    assert runtime.content(seen, ".", "note", 100) == runtime.content(seen, ".", "link", 100) == b"kept\n"
    runtime.stop(handle)
    assert ran(again(runtime, engine, launch), f"cat {folder}/note {real}/note").split() == ["kept", "kept"]


def test_a_working_folder_below_tmp_is_kept(runtime, engine, launch):
    launch = replace(launch, working_dir="/tmp")
    handle = runtime.start(launch)
    ran(engine.container_of(handle), "echo kept > note")
    runtime.stop(handle)

    assert ran(again(runtime, engine, launch), "cat /tmp/note") == "kept\n"


def test_two_sandboxes_do_not_see_each_others_files(runtime, engine, launch, other):
    one, two = (engine.container_of(runtime.start(each)) for each in (launch, other))
    ran(one, "echo mine > note")

    assert ran(two, "ls -A") == ""
    runtime.remove(other.sandbox_id)
    assert ran(one, "cat note") == "mine\n"


def test_a_sparse_file_does_not_make_an_archive_endless(runtime, engine, launch):
    ran(engine.container_of(runtime.start(launch)), "echo kept > a-note && truncate -s 1T holes")

    with pytest.raises(RuntimeCallFailed, match=r"holes takes the files beyond 20000000 bytes"):
        for _ in runtime.pack(replace(launch, disk_bytes=10_000_000)):
            pass
    with pytest.raises(RuntimeCallFailed, match=r"holes takes the files beyond 68719476736 bytes"):
        list(runtime.names(launch, "."))
    assert [one.name for one in engine.client.containers.list(all=True, filters={"label": CARRIER})] == []


def test_the_size_of_the_files_is_measured_and_the_measurement_used_again(host, engine, launch):
    now = 0.0
    runtime = DockerRuntime(host, clock=lambda: now)
    assert runtime.disk_bytes(launch.sandbox_id) is None
    now = 60.0
    container = engine.container_of(runtime.start(launch))
    ran(container, "head -c 300000 /dev/zero > big")

    assert runtime.disk_bytes(launch.sandbox_id) == 300_000
    ran(container, "rm big")
    assert runtime.disk_bytes(launch.sandbox_id) == 300_000
    now = 120.0
    assert runtime.disk_bytes(launch.sandbox_id) == 0


# What has changed in them


def test_changes_are_recorded_out_of_reach_of_the_sandbox_are_told_while_it_rests_and_end_with_it(
    host, engine, launch, tmp_path
):
    runtime = DockerRuntime(host, tmp_path)
    handle = runtime.start(launch)
    container, folder = engine.container_of(handle), handle["working_dir"]
    ran(container, "echo one > kept; ln -s /etc/shadow out")
    runtime.shadow(launch, folder).record("c", 0)

    ran(container, "echo two > kept; mkdir -p deep; echo > deep/new; rm out")
    runtime.stop(handle)

    recorded = runtime.shadow(launch, folder)
    found = [(one.status, one.path) for one in recorded.changes("c", 0)]
    assert found == [("ADDED", "deep/new"), ("UPDATED", "kept"), ("DELETED", "out")]
    assert recorded.contents("c", "kept", 0) == (b"one\n", b"two\n")
    assert recorded.contents("c", "out", 0) == (b"/etc/shadow", None)

    runtime.remove(launch.sandbox_id)
    assert list(tmp_path.iterdir()) == []


def test_where_the_volumes_of_the_engine_cannot_be_read_nothing_is_recorded(runtime, launch, monkeypatch):
    handle = runtime.start(launch)
    monkeypatch.setattr("runtimes.docker.os.access", lambda *_: False)

    assert runtime.shadow(launch, handle["working_dir"]) is None


def test_a_folder_out_of_the_volume_is_not_recorded(runtime, launch):
    runtime.start(launch)

    with pytest.raises(FolderNotKept):
        runtime.shadow(launch, "/etc")
