"""Sandboxes as containers of a real Docker engine."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import runtimes.docker
from runtimes import Launch, RuntimeFailure, State
from runtimes.docker import DockerRuntime
from tests.servers import wait_until


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
    assert handle["ports"] == {name: published(container, port) for name, port in launch.ports.items()}
    assert runtime.observe(handle).state is State.RUNNING


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


def test_a_container_that_has_ended_is_replaced(runtime, engine, launch):
    first = runtime.start(launch)
    engine.container_of(first).kill()

    second = runtime.start(launch)

    assert second["container"] != first["container"]
    assert runtime.observe(second).state is State.RUNNING


def test_a_host_knows_its_own_containers_alone_including_ended_ones(runtime, engine, launch):
    handle = runtime.start(launch)
    other = DockerRuntime("tests-other")
    elsewhere = other.start(replace(launch, sandbox_id=f"other-{launch.sandbox_id}"))
    engine.container_of(handle).kill()

    try:
        assert [known["sandbox_id"] for known in runtime.known()] == [launch.sandbox_id]
    finally:
        other.stop(elsewhere)


def test_pause_and_resume_may_be_repeated_and_leave_a_healthy_container(runtime, launch):
    handle = runtime.start(launch)
    for _ in range(2):
        runtime.pause(handle)
        assert runtime.observe(handle).state is State.PAUSED
    for _ in range(2):
        runtime.resume(handle)
        assert runtime.observe(handle).state is State.RUNNING


def test_concurrent_pauses_all_succeed(runtime, launch):
    handle = runtime.start(launch)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: runtime.pause(handle), range(8)))

    assert runtime.observe(handle).state is State.PAUSED


def until_gone(runtime, handle) -> str:
    """The final state of a container, once it has ended."""
    wait_until(lambda: runtime.observe(handle).state is State.GONE, "the end of the container")
    return runtime.observe(handle).detail


def test_a_container_that_ends_by_itself_reports_its_exit_code(runtime, launch):
    try:
        ending = until_gone(runtime, runtime.start(ended_with(launch, "raise SystemExit(3)")))
    except RuntimeFailure as failure:  # it ended before its ports could be read
        ending = str(failure)

    assert ending.endswith("exit code 3")


def test_a_container_that_is_killed_from_outside_is_gone(runtime, engine, launch):
    handle = runtime.start(launch)
    engine.container_of(handle).kill()

    assert until_gone(runtime, handle) == "exit code 137"


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

    assert until_gone(runtime, runtime.start(replace(launch, image=sick))) == "its container says that it is unhealthy"


def test_a_container_that_was_removed_is_gone(runtime, engine, launch):
    handle = runtime.start(launch)
    engine.container_of(handle).remove(force=True)

    assert runtime.observe(handle).state is State.GONE
    assert runtime.logs(handle, 10) == ""
    runtime.stop(handle)
    with pytest.raises(RuntimeFailure, match="was removed"):
        runtime.pause(handle)


@pytest.mark.parametrize("paused", [False, True])
def test_stop_leaves_no_container_and_no_volume_and_may_be_repeated(runtime, engine, launch, paused):
    handle = runtime.start(launch)
    volumes = [mount["Name"] for mount in engine.container_of(handle).attrs["Mounts"] if mount["Type"] == "volume"]
    if paused:
        runtime.pause(handle)

    runtime.stop(handle)
    runtime.stop(handle)

    assert runtime.known() == []
    assert volumes
    assert not set(volumes) & {volume.name for volume in engine.client.volumes.list()}


def test_a_log_of_a_container_holds_the_last_lines(runtime, launch):
    prints = r"import os, time; os.write(1, b'one\ntwo\nthr\xffee\n'); time.sleep(600)"
    handle = runtime.start(ended_with(launch, prints))
    wait_until(lambda: "ee" in runtime.logs(handle, 9), "the output")

    assert runtime.logs(handle, 2) == "two\nthr\ufffdee"
    assert runtime.logs(handle, 0) == ""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"image": "no-such-image"}, "cannot be started: .*no-such-image"),
        ({"network": "no-such-network"}, "cannot be started: .*no-such-network"),
        ({"cpus": 4096.0}, "cannot be started: .*CPUs"),
        ({"isolated": True}, "isolated is for processes"),
    ],
)
def test_a_start_that_the_engine_refuses_fails_with_a_sentence_and_leaves_nothing(runtime, launch, changes, sentence):
    with pytest.raises(RuntimeFailure, match=sentence):
        runtime.start(replace(launch, **changes))

    assert runtime.known() == []


def test_a_start_without_an_engine_reports_that(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    runtime = DockerRuntime("host-a")
    with pytest.raises(RuntimeFailure, match="no engine answers"):
        runtime.start(Launch("box", ("true",), {}, ".", image="any"))
    assert runtime.known() == []


def test_a_start_without_the_package_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr(runtimes.docker, "docker", None)
    with pytest.raises(RuntimeFailure, match=r"requirements-docker\.txt"):
        DockerRuntime("host-a").start(Launch("box", ("true",), {}, ".", image="any"))


def test_a_handle_is_json(runtime, launch):
    handle = runtime.start(launch)
    assert json.loads(json.dumps(handle)) == handle
