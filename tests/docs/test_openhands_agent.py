"""`make openhands` says what it lacks, and its specs hide the model's key. tests/interop runs what it sets up."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from docs.examples.openhands_agent import specs
from settings.specs import Specs
from tests.servers import PROJECT

pytestmark = pytest.mark.process("starts the program that sets up an agent")

MODEL = {"LLM_MODEL": "openai/planted-model", "LLM_API_KEY": "planted-key", "LLM_BASE_URL": "http://planted-url/v1"}


@pytest.fixture
def checkout(tmp_path):
    """A folder of its own for what the program writes; the program in it."""
    for name in ("requirements/openhands.txt", "docs/examples/openhands_agent.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    return str(tmp_path / "docs/examples/openhands_agent.py")


def set_up(program: str, **environment: str) -> subprocess.CompletedProcess:
    environment = {"PATH": "/nowhere", **environment}
    return subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True)


def python(folder, version: list[int], status: int = 0) -> str:
    """A program that says what a Python of that version says about itself."""
    about = json.dumps({"version": version, "program": "/bin/false", "library": "/usr"})
    path = folder / "python3.13"
    path.write_text(f"#!/bin/sh\necho '{about}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_is_too_old_is_refused_with_a_sentence(checkout, tmp_path):
    ran = set_up(checkout, OPENHANDS_PYTHON=python(tmp_path, [3, 11]))

    assert ran.returncode == 3
    sentence, *_ = (ran.stdout + ran.stderr).splitlines()
    assert sentence.startswith("The OpenHands agent server needs Python 3.12 or newer, and OPENHANDS_PYTHON=")
    assert not (tmp_path / "openhands.toml").exists()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the Python of these tests is new enough")
@pytest.mark.parametrize("python_status", [None, 127], ids=["no other Python", "a Python that stands for none"])
def test_a_machine_without_a_new_python_is_told_how_to_name_one(checkout, tmp_path, python_status):
    if python_status is not None:
        python(tmp_path, [3, 13], python_status)
    ran = set_up(checkout, PATH=str(tmp_path))

    assert ran.returncode == 3
    sentence, *ways = (ran.stdout + ran.stderr).splitlines()
    assert sentence.endswith("and none runs from the PATH: name one in OPENHANDS_PYTHON.")
    assert "uv python install 3.13 && OPENHANDS_PYTHON=$(uv python find 3.13) make openhands" in "".join(ways)
    assert "sudo apt-get install -y python3 python3-venv" in "".join(ways)


def test_a_set_up_that_fails_names_the_command_and_leaves_no_spec(checkout, tmp_path):
    python(tmp_path, [3, 13])
    ran = set_up(checkout, PATH=str(tmp_path))

    assert ran.returncode == 1
    assert ran.stderr == f"/bin/false -m venv --clear {tmp_path}/.venv-openhands failed, for the reason above.\n"
    assert not (tmp_path / "openhands.toml").exists()


def test_make_passes_the_status_on(tmp_path):
    environment = os.environ | {"OPENHANDS_PYTHON": python(tmp_path, [3, 11])}
    ran = subprocess.run(["make", "openhands"], cwd=PROJECT, env=environment, capture_output=True, text=True)

    assert ran.returncode != 0
    assert "Python 3.12 or newer" in ran.stdout


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """The specs as a server with a model loads them."""
    for name, value in MODEL.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "openhands.toml").write_text(specs("/opt/python"))
    return Specs.load(str(tmp_path / "openhands.toml")).all


def test_both_specs_give_the_agent_the_model_of_the_environment(loaded):
    assert [spec.id for spec in loaded] == ["openhands", "openhands-docker"]
    for spec in loaded:
        agent = spec.conversation["agent"]
        for llm in (agent["llm"], agent["condenser"]["llm"]):
            assert [llm["model"], llm["api_key"], llm["base_url"]] == list(MODEL.values())
        assert spec.conversation["confirmation_policy"] == {"kind": "AlwaysConfirm"}


def test_no_environment_of_a_sandbox_and_no_text_of_a_spec_has_the_key_of_the_model(loaded):
    for spec in loaded:
        assert "planted" not in repr(spec) + str(spec.initial_env) + str(spec.secret_env) + str(spec.command)


def test_a_model_without_a_key_or_a_url_gets_neither(tmp_path, monkeypatch):
    for name in MODEL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LLM_MODEL", "ollama/planted-model")
    (tmp_path / "openhands.toml").write_text(specs("/usr"))

    spec = Specs.load(str(tmp_path / "openhands.toml")).get("openhands")

    assert spec.conversation["agent"]["llm"] == {"usage_id": "agent", "model": "ollama/planted-model"}


def test_a_sandbox_reads_the_library_of_a_python_outside_the_system(loaded):
    assert loaded[0].readable == (f"{PROJECT}/.venv-openhands", "/opt/python")


def test_the_image_is_of_a_release_that_the_requirements_allow(loaded):
    name, tag = loaded[1].image.split(":")
    [least] = {line.split(">=")[1].split(",")[0] for line in requirements()}
    assert name == "ghcr.io/openhands/agent-server"
    assert tag.startswith(f"{least}.")
    assert tag.endswith("-python")


def requirements() -> list[str]:
    lines = (PROJECT / "requirements/openhands.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]
