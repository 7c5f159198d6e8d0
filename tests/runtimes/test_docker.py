"""Sandboxes as containers of a real Docker engine."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from docker.models.containers import Container

from runtimes import Launch, ProcessState, ResourceUsage, RuntimeCallFailed
from runtimes.docker import DockerRuntime
from tests.engine import ran
from tests.servers import wait_until

pytestmark = pytest.mark.docker("starts containers")


@pytest.fixture
def runtime(host):
    return DockerRuntime(host)


def ended_with(launch: Launch, text: str, **changes) -> Launch:
    """The launch of that sandbox with this Python text as its command."""
    return replace(launch, command=("python", "-c", text), **changes)


def test_a_started_container_has_the_settings_of_its_launch(runtime, engine, host, launch):
    handle = runtime.start(replace(launch, memory_bytes=1 << 28, cpus=0.5, processes=100))

    container = engine.container_of(handle)
    settings, limits = container.attrs["Config"], container.attrs["HostConfig"]
    assert container.name == f"agent-server-{launch.sandbox_id}"
    assert container.labels.items() >= {"agent-server.sandbox": launch.sandbox_id, "agent-server.host": host}.items()
    assert settings["Cmd"][-1] == "8000"
    assert "GIVEN=at 8000" in settings["Env"]
    assert settings["WorkingDir"] == "/workspace"
    assert (limits["Memory"], limits["MemorySwap"]) == (1 << 28, 1 << 28)
    assert (limits["NanoCpus"], limits["PidsLimit"]) == (500_000_000, 100)
    assert limits["LogConfig"]["Config"]["max-size"]
    assert container.labels["agent-server.start"] == str(launch.start)
    assert handle["ports"] == {name: published(container, port) for name, port in launch.ports.items()}
    assert runtime.observe(handle).state is ProcessState.RUNNING


def published(container, port: int) -> int:
    """The port of the host that a container's port has, on loopback alone."""
    [binding] = container.ports[f"{port}/tcp"]
    assert binding["HostIp"] == "127.0.0.1"
    return int(binding["HostPort"])


def test_concurrent_starts_of_one_sandbox_start_one_container(host, engine, launch):
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: DockerRuntime(host).start(launch), range(8)))

    assert len({handle["container"] for handle in handles}) == 1
    assert [handle["container"] for handle in DockerRuntime(host).known()] == [handles[0]["container"]]


def test_a_start_of_the_same_number_adopts_the_container(runtime, engine, launch):
    first = runtime.start(launch)

    assert runtime.start(launch) == first

    runtime.pause(first)
    assert runtime.start(launch) == first
    assert runtime.observe(first).state is ProcessState.PAUSED


def test_a_start_runs_the_container_that_a_killed_supervisor_had_only_made(runtime, engine, launch, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr("docker.models.containers.Container.start", die)
        with pytest.raises(SystemExit):
            runtime.start(launch)
    [made] = runtime.known()
    assert engine.container_of(made).status == "created"

    handle = runtime.start(launch)

    assert handle["container"] == made["container"]
    assert runtime.observe(handle).state is ProcessState.RUNNING


def die(*_: object) -> None:
    raise SystemExit


@pytest.mark.parametrize("state", ["running", "paused", "exited", "created"])
def test_a_later_start_replaces_the_container_of_an_earlier_one(runtime, engine, launch, state):
    first = runtime.start(launch)
    if state == "paused":
        runtime.pause(first)
    elif state == "exited":
        engine.container_of(first).kill()
    elif state == "created":
        settings = {"name": engine.container_of(first).name, "labels": engine.container_of(first).labels}
        engine.container_of(first).remove(force=True)
        engine.client.containers.create(launch.image, ["true"], **settings)

    second = runtime.start(replace(launch, start=2))

    assert second["container"] != first["container"]
    assert runtime.observe(second).state is ProcessState.RUNNING
    assert [known["container"] for known in runtime.known()] == [second["container"]]


def test_a_start_that_comes_too_late_leaves_the_container_of_a_later_start(runtime, launch):
    handle = runtime.start(replace(launch, start=2))

    with pytest.raises(RuntimeCallFailed, match="was started again meanwhile: start 2"):
        runtime.start(launch)

    assert runtime.observe(handle).state is ProcessState.RUNNING


def test_a_container_that_ended_is_not_started_again_by_a_start_of_the_same_number(runtime, engine, launch):
    handle = runtime.start(launch)
    engine.container_of(handle).kill()

    with pytest.raises(RuntimeCallFailed, match="cannot be started: exit code 137"):
        runtime.start(launch)

    [known] = runtime.known()
    assert known["container"] is None  # the volume is kept


def test_a_host_knows_its_own_containers_alone_including_ended_ones(runtime, engine, launch):
    handle = runtime.start(launch)
    other = DockerRuntime("tests-other")
    elsewhere = other.start(replace(launch, sandbox_id=f"other-{launch.sandbox_id}"))
    engine.container_of(handle).kill()

    try:
        assert [known["sandbox_id"] for known in runtime.known()] == [launch.sandbox_id]
    finally:
        other.remove(elsewhere["sandbox_id"])


def test_pause_and_resume_may_be_repeated_and_leave_a_healthy_container(runtime, launch):
    handle = runtime.start(launch)
    for _ in range(2):
        runtime.pause(handle)
        assert runtime.observe(handle).state is ProcessState.PAUSED
    for _ in range(2):
        runtime.resume(handle)
        assert runtime.observe(handle).state is ProcessState.RUNNING


def test_concurrent_pauses_all_succeed(runtime, launch):
    handle = runtime.start(launch)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: runtime.pause(handle), range(8)))

    assert runtime.observe(handle).state is ProcessState.PAUSED


def until_gone(runtime, handle) -> str:
    """The final state of a container, once it has ended."""
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end of the container")
    return runtime.observe(handle).detail


def test_a_container_that_ends_by_itself_reports_its_exit_code(runtime, launch):
    try:
        ending = until_gone(runtime, runtime.start(ended_with(launch, "raise SystemExit(3)")))
    except RuntimeCallFailed as failure:  # it ended before its ports could be read
        ending = str(failure)

    assert ending.endswith("exit code 3")


def test_a_container_that_ends_before_its_ports_are_read_leaves_its_volume_and_its_last_words(
    runtime, engine, launch, monkeypatch
):
    start = Container.start

    def start_to_the_end(container: Container) -> None:
        start(container)
        container.wait()

    monkeypatch.setattr(Container, "start", start_to_the_end)
    with pytest.raises(RuntimeCallFailed, match=r"cannot be started: exit code 1\n(.*\n)*ValueError: no such model$"):
        runtime.start(ended_with(launch, "open('{WORK}/kept', 'w'); raise ValueError('no such model')"))

    assert engine.holders(launch.sandbox_id) == []
    assert [handle["container"] for handle in runtime.known()] == [None]
    monkeypatch.undo()
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    again = engine.container_of(runtime.start(replace(launch, start=2)))
    assert ran(again, "ls") == "kept\n"


def test_a_container_that_is_killed_from_outside_is_gone(runtime, engine, launch):
    handle = runtime.start(launch)
    engine.container_of(handle).kill()

    assert until_gone(runtime, handle) == "exit code 137: ended by SIGKILL"


def test_a_container_that_exceeds_its_memory_reports_it(runtime, launch):
    greedy = ended_with(launch, "x = bytearray(1 << 30)", memory_bytes=64 << 20)

    assert until_gone(runtime, runtime.start(greedy)) == "it needed more memory than it may have"


def test_a_container_that_exceeds_its_processes_cannot_fork(runtime, launch):
    forks = "import os, time\nfor n in range(99):\n    print(n, flush=True)\n    os.fork() or time.sleep(600)"
    handle = runtime.start(ended_with(launch, forks, processes=20))

    assert until_gone(runtime, handle) == "exit code 1"
    assert "BlockingIOError" in runtime.logs(handle, 100)


def test_an_unhealthy_container_counts_as_gone(runtime, engine, launch):
    fails = "HEALTHCHECK --interval=1s --retries=1 --start-period=1ms CMD false"
    sick = engine.build("agent-server-ci/sick", f"FROM {launch.image}\n{fails}\n")

    assert (
        until_gone(runtime, runtime.start(replace(launch, image=sick))) == "its container reports that it is unhealthy"
    )


def test_a_container_that_was_removed_is_gone(runtime, engine, launch):
    handle = runtime.start(launch)
    engine.container_of(handle).remove(force=True)

    assert runtime.observe(handle).state is ProcessState.GONE
    assert runtime.logs(handle, 10) == ""
    runtime.stop(handle)
    with pytest.raises(RuntimeCallFailed, match="was deleted"):
        runtime.pause(handle)


def test_a_log_of_a_container_holds_the_last_lines(runtime, launch):
    prints = r"import os, time; os.write(1, b'one\ntwo\nthr\xffee\n'); time.sleep(600)"
    handle = runtime.start(ended_with(launch, prints))
    wait_until(lambda: "ee" in runtime.logs(handle, 9), "the output")

    assert runtime.logs(handle, 2) == "… earlier lines are not shown\ntwo\nthr\ufffdee"
    assert runtime.logs(handle, 0) == ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"image": "no-such-image"}, "cannot be started: .*no-such-image"),
        ({"network": "no-such-network"}, "cannot be started: .*no-such-network"),
        ({"cpus": 4096.0}, "cannot be started: .*CPUs"),
    ],
)
def test_a_start_that_the_engine_refuses_fails_with_a_sentence_and_leaves_no_container(
    runtime, launch, changes, sentence
):
    with pytest.raises(RuntimeCallFailed, match=sentence):
        runtime.start(replace(launch, **changes))

    assert not [handle for handle in runtime.known() if handle["container"]]


def test_what_a_container_uses_is_measured(runtime, launch):
    handle = runtime.start(ended_with(launch, "kept = b'x' * (64 << 20)\nprint(1, flush=True)\nwhile True: pass"))
    wait_until(lambda: runtime.logs(handle, 1), "the sandbox's first line")

    first = runtime.usage(launch.sandbox_id)

    assert 64 << 20 < first.memory_bytes < 1 << 30
    wait_until(
        lambda: runtime.usage(launch.sandbox_id).cpu_seconds > first.cpu_seconds + 0.1, "the processor time to grow"
    )
    runtime.stop(handle)
    assert runtime.usage(launch.sandbox_id) == ResourceUsage(None, None)


def test_a_handle_is_json(runtime, launch):
    handle = runtime.start(launch)
    assert json.loads(json.dumps(handle)) == handle
