"""Sandboxes as containers: what is asked of the engine, and what is made of its answers."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import runtimes.docker
from runtimes import Launch, RuntimeFailure, State
from runtimes.docker import DockerRuntime
from tests.runtimes.engine import Engine

LAUNCH = Launch(
    "box",
    ("serve", "--port", "{AGENT_SERVER}"),
    {"GIVEN": "at {AGENT_SERVER}"},
    "/workspace",
    ports={"AGENT_SERVER": 8000, "VSCODE": 8001},
    image="some/image:1",
    memory_bytes=1 << 30,
    cpus=1.5,
    processes=100,
)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    engine = Engine(tmp_path / "docker.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    yield engine
    engine.shutdown()
    engine.server_close()


@pytest.fixture
def runtime(engine):
    return DockerRuntime("host-a")


def test_a_start_makes_a_container_with_everything_that_the_launch_says(runtime, engine):
    handle = runtime.start(LAUNCH)

    container = engine.only()
    assert container["Name"] == "/agent-server-box"
    config, host = container["Config"], container["Config"]["HostConfig"]
    assert config["Image"] == "some/image:1"
    assert config["Cmd"] == ["serve", "--port", "8000"]
    assert config["Env"] == ["GIVEN=at 8000"]
    assert config["WorkingDir"] == "/workspace"
    assert config["Labels"] == {"agent-server.sandbox": "box", "agent-server.host": "host-a"}
    assert host["Memory"] == host["MemorySwap"] == 1 << 30
    assert host["NanoCpus"] == 1_500_000_000
    assert host["PidsLimit"] == 100
    assert host["Init"] is True
    assert host["ExtraHosts"] == ["host.docker.internal:host-gateway"]
    assert host["LogConfig"]["Config"]["max-size"]
    assert {binding[0]["HostIp"] for binding in host["PortBindings"].values()} == {"127.0.0.1"}
    assert handle == {
        "runtime": "docker",
        "sandbox_id": "box",
        "container": container["Id"],
        "ports": {"AGENT_SERVER": 40001, "VSCODE": 40002},
    }
    assert runtime.observe(handle).state is State.RUNNING


def test_a_start_is_once_per_id_also_when_many_ask_at_once(runtime, engine):
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: runtime.start(LAUNCH)["container"], range(8)))

    assert set(handles) == {engine.only()["Id"]}
    assert [handle["container"] for handle in DockerRuntime("host-a").known()] == [engine.only()["Id"]]


def test_one_that_has_ended_is_replaced(runtime, engine):
    first = runtime.start(LAUNCH)
    engine.set_state(engine.only(), "exited", ExitCode=3)

    second = runtime.start(LAUNCH)

    assert second["container"] != first["container"]
    assert runtime.observe(second).state is State.RUNNING


def test_a_host_knows_its_own_alone(runtime, engine):
    runtime.start(LAUNCH)
    DockerRuntime("host-b").start(replace(LAUNCH, sandbox_id="other"))
    engine.set_state(engine.find("agent-server-box"), "exited")

    assert [handle["sandbox_id"] for handle in runtime.known()] == ["box"]


def test_pause_and_resume_are_the_engines_and_may_be_repeated(runtime, engine):
    handle = runtime.start(LAUNCH)
    for _ in range(2):
        runtime.pause(handle)
        assert runtime.observe(handle).state is State.PAUSED
    for _ in range(2):
        runtime.resume(handle)
        assert runtime.observe(handle).state is State.RUNNING
    assert [path.rpartition("/")[2] for _, path in engine.calls if "pause" in path] == ["pause", "unpause"]


@pytest.mark.parametrize(
    ("status", "members", "detail"),
    [
        ("exited", {"ExitCode": 3}, "exit code 3"),
        ("exited", {"ExitCode": 137, "OOMKilled": True}, "it needed more memory than it may have"),
        ("dead", {"Error": "cannot mount"}, "cannot mount"),
        ("running", {"Health": {"Status": "unhealthy"}}, "its container says that it is unhealthy"),
    ],
)
def test_what_is_gone_says_how(runtime, engine, status, members, detail):
    handle = runtime.start(LAUNCH)
    engine.set_state(engine.only(), status, **members)

    assert runtime.observe(handle) == (runtimes.Observation(State.GONE, detail))


def test_what_was_removed_is_gone(runtime, engine):
    handle = runtime.start(LAUNCH)
    engine.containers.clear()

    assert runtime.observe(handle).state is State.GONE
    assert runtime.logs(handle, 10) == ""
    runtime.stop(handle)
    with pytest.raises(RuntimeFailure, match="was removed"):
        runtime.pause(handle)


def test_stop_removes_it_paused_or_not_and_may_be_repeated(runtime, engine):
    handle = runtime.start(LAUNCH)
    runtime.pause(handle)

    runtime.stop(handle)
    runtime.stop(handle)

    assert not engine.containers


def test_logs_are_the_last_lines(runtime, engine):
    handle = runtime.start(LAUNCH)
    engine.only()["Log"] = b"one\ntwo\nthr\xffee\n"

    assert runtime.logs(handle, 2) == "two\nthr\ufffdee"
    assert runtime.logs(handle, 0) == ""


def test_what_the_engine_refuses_is_a_sentence(runtime, engine):
    with pytest.raises(RuntimeFailure, match="box cannot be started: No such image: absent"):
        runtime.start(replace(LAUNCH, image="absent"))
    engine.refuse_start = "port is already allocated"
    with pytest.raises(RuntimeFailure, match="port is already allocated"):
        runtime.start(LAUNCH)
    assert not engine.containers
    with pytest.raises(RuntimeFailure, match="isolated"):
        runtime.start(replace(LAUNCH, isolated=True))


def test_without_an_engine_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    runtime = DockerRuntime("host-a")
    with pytest.raises(RuntimeFailure, match="no engine answers"):
        runtime.start(LAUNCH)
    assert runtime.known() == []


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(runtimes.docker, "docker", None)
    with pytest.raises(RuntimeFailure, match=r"requirements-docker\.txt"):
        DockerRuntime("host-a").start(LAUNCH)


@pytest.mark.skipif(
    not os.path.exists("/var/run/docker.sock"),  # noqa: PTH110
    reason="no Docker engine runs here: containers were not really started",
)
def test_a_real_engine_runs_one():
    runtime = DockerRuntime("tests")
    handle = runtime.start(Launch("real", ("sleep", "60"), {}, "/", image="busybox", ports={"AGENT_SERVER": 8000}))
    try:
        runtime.pause(handle)
        assert runtime.observe(handle).state is State.PAUSED
        runtime.resume(handle)
        assert runtime.observe(handle).state is State.RUNNING
    finally:
        runtime.stop(handle)
