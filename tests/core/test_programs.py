"""A hint names a program as its reader can type it: from the folder of the server, or from outside of a container."""

from pathlib import Path

import pytest

from core import programs

KEYS = "keys make me"


@pytest.fixture
def container(monkeypatch, tmp_path):
    """A process of the image's, with an interpreter outside of its folder; returns what makes a mark of a container."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", "/venv/bin/python")
    monkeypatch.setattr("socket.gethostname", lambda: "3f2a")
    marks = [(tmp_path / name, command) for name, command in (("docker", "docker exec"), ("podman", "podman exec"))]
    monkeypatch.setattr(programs, "_CONTAINERS", marks)
    return lambda name: (tmp_path / name).touch()


def test_a_checkout_is_named_by_the_interpreter_below_its_folder(monkeypatch):
    monkeypatch.setattr("sys.executable", str(Path.cwd() / ".venv/bin/python"))
    assert programs.admin(KEYS) == ".venv/bin/python -m admin keys make me"


@pytest.mark.parametrize("runner", ["docker", "podman"])
def test_a_container_is_named_by_what_runs_it(container, runner):
    container(runner)
    assert programs.admin(KEYS, {}) == f"{runner} exec 3f2a python -m admin keys make me"


def test_a_pod_is_named_before_its_container(container):
    container("docker")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert programs.admin(KEYS, environment) == "kubectl exec 3f2a -- python -m admin keys make me"


def test_a_machine_without_a_container_is_named_by_the_interpreter(container):
    assert programs.admin(KEYS, {}) == "/venv/bin/python -m admin keys make me"
