"""Container sandboxes where no engine runs, or it fails, or its package is not installed."""

from types import SimpleNamespace

import pytest

from runtimes import Launch, ResourceUsage, RuntimeCallFailed
from runtimes.docker import DockerRuntime
from runtimes.docker.engine import docker
from tests.servers import free_port


def test_a_start_without_an_engine_reports_that(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")
    runtime = DockerRuntime("host-a")
    with pytest.raises(RuntimeCallFailed, match="no engine responds"):
        runtime.start(Launch("box", ("true",), {}, ".", image="any"))
    assert runtime.known() == []
    assert runtime.disk_bytes("box") is None
    assert runtime.usage("box") == ResourceUsage(None, None)
    for call in (lambda: runtime.remove("box"), lambda: next(runtime.pack(Launch("box", ("true",), {}, ".")))):
        with pytest.raises(RuntimeCallFailed, match="no engine responds"):
            call()


def test_a_start_without_the_package_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr("runtimes.docker.engine.docker", None)
    with pytest.raises(RuntimeCallFailed, match=r"requirements/docker\.txt"):
        DockerRuntime("host-a").start(Launch("box", ("true",), {}, ".", image="any"))


def test_a_pause_whose_container_the_engine_cannot_look_up_reports_that():
    def get(_):
        raise docker.errors.APIError("it is overloaded")

    runtime = DockerRuntime("host-a")
    runtime._engine._own.client = SimpleNamespace(containers=SimpleNamespace(get=get))
    with pytest.raises(RuntimeCallFailed, match="sandbox box: pause: it is overloaded"):
        runtime.pause({"sandbox_id": "box", "container": "id"})
