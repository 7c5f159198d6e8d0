"""`make agent NAME=…` installs an agent beside the server and writes a spec without a key, once.

The packages are those of a registry, which no test reaches: a test puts the program in place that a package brings.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

from admin.agent import LACKING, Install, Unable, main
from agents.starts import template_of
from docs.examples.openhands_agent import specs as specs_of_openhands
from reference_agent.acp.agents import chosen, table
from settings.host import HostSettings
from settings.specs import NO_MODEL, Specs, is_bundled, lacks_model, model_notices

KEYS = {agent.key: "sk-planted" for agent in table().values() if agent.key}

#: agents that `make agent` installs, without the one that is an agent server itself
NAMES = [agent.name for agent in table().values() if agent.service]


def installed(folder, name: str, model: str = "") -> str:
    """Install an agent whose package has come already; what is said of it."""
    install = Install(folder, table()[name], model)
    agent = table()[name]
    modules = [f"node_modules/{place}" for place in (*install._paths(), ".bin")]
    place = folder / name / ("venv/bin" if agent.pip else modules[0])
    place.mkdir(parents=True, exist_ok=True)
    (place / agent.command[0]).touch()
    (folder / ".node").mkdir(exist_ok=True)
    install._clear = install._fetch = lambda: None
    return install.run()


@pytest.fixture
def keys(monkeypatch):
    """Keys of all providers in the environment of the server."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_runs_the_agent_without_a_key_inside(tmp_path, keys, name):
    installed(tmp_path, name)

    text = (tmp_path / name / "spec.toml").read_text()
    specs = Specs.of(HostSettings(agents_dir=str(tmp_path)))
    spec = specs.get(name)
    assert "sk-planted" not in text + str(spec.environment) + str(spec.command)
    assert spec.egress == "named"
    assert spec.conversation == {"confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert str(tmp_path / name) in spec.readable
    assert chosen(spec.environment) == table()[name]
    assert str(tmp_path / name) in spec.environment["PATH"]
    assert spec.environment["LLM_BASE_URL"] == "{EGRESS}/model"
    assert spec.environment["LLM_MODEL"] == table()[name].model
    assert not is_bundled(spec)
    assert spec.agent.title == table()[name].title
    [service] = spec.services
    assert "sk-planted" in "".join(service.headers.values())
    assert service.is_model
    assert service.base_url.startswith("https://")
    assert not lacks_model(spec)
    sandbox = SimpleNamespace(egress_url="http://127.0.0.1:1/e")
    assert template_of(spec, sandbox, "another")["agent"] == {"llm": {"model": "another"}}


def test_the_address_of_a_gateway_replaces_that_of_the_provider(tmp_path, monkeypatch):
    installed(tmp_path, "claude")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example.org/anthropic")

    spec = Specs.of(HostSettings(agents_dir=str(tmp_path))).get("claude")

    assert spec.services[0].base_url == "https://gateway.example.org/anthropic"
    assert spec.services[0].headers == {}, "no key is set, so none is put in"


def test_a_repeat_installs_nothing_and_keeps_the_model_that_was_chosen(tmp_path):
    first = installed(tmp_path, "codex", "gpt-5.6-codex")
    before = (tmp_path / "codex/spec.toml").read_text()
    again = Install(tmp_path, table()["codex"])
    again._fetch = lambda: pytest.fail("it was installed again")

    said = again.run()

    assert "Codex codex-acp 2.6.0 is installed in " in first
    assert said.startswith("Codex codex-acp 2.6.0 is installed already, in ")
    assert (tmp_path / "codex/spec.toml").read_text() == before
    assert "gpt-5.6-codex" in before


def test_another_version_of_the_table_installs_again(tmp_path):
    installed(tmp_path, "gemini")
    newer = table()["gemini"]._replace(npm=("@google/gemini-cli@9.9.9",), version="9.9.9")
    fetched = []
    install = Install(tmp_path, newer)
    install._clear, install._fetch = (lambda: None), (lambda: fetched.append(newer.version))

    install.run()

    assert fetched == ["9.9.9"]


def test_an_installed_agent_comes_after_the_specs_of_the_file_and_never_in_place_of_one(tmp_path):
    installed(tmp_path, "goose")
    file = tmp_path / "specs.toml"
    file.write_text('[[spec]]\nid = "mine"\ncreated_at = 2026-11-21T00:00:00Z\ncommand = ["run"]\n')
    host = HostSettings(sandbox_specs=str(file), agents_dir=str(tmp_path))
    assert [spec.id for spec in Specs.of(host).all] == ["mine", "goose"]

    file.write_text(file.read_text().replace("mine", "goose"))
    [spec] = Specs.of(host).all
    assert spec.command == ("run",)


def test_the_operator_is_told_which_agents_have_a_model_and_which_lack_a_key(tmp_path, monkeypatch):
    for name in ("LLM_MODEL", *KEYS):
        monkeypatch.delenv(name, raising=False)
    host = HostSettings(agents_dir=str(tmp_path))
    assert model_notices(Specs.of(host)) == [NO_MODEL]

    installed(tmp_path, "claude")
    installed(tmp_path, "gemini")
    monkeypatch.setenv("GEMINI_API_KEY", "sk-planted")
    [others, lacking] = model_notices(Specs.of(host))
    assert "Others have their own: claude, gemini. Choose one: agentctl run --agent claude TEXT" in others
    assert lacking == "Claude Code has no key: ANTHROPIC_API_KEY is not set, so its model is asked without one."
    [missing] = [one.missing for one in Specs.of(host).all if one.id == "claude"]
    assert missing == ("key", lacking, "ANTHROPIC_API_KEY=… make run")

    monkeypatch.setenv("LLM_MODEL", "gpt")
    assert model_notices(Specs.of(host)) == [lacking]


@pytest.mark.parametrize("library", ["/usr", ""])
def test_a_sandbox_sees_the_python_that_runs_an_agent(tmp_path, library):
    base = Path(library or tmp_path / "uv/cpython-3.13")
    environment = tmp_path / "vibe/venv/bin"
    environment.mkdir(parents=True)
    (environment / "python").symlink_to(base / "bin/python3.13")

    installed(tmp_path, "vibe")

    [_, spec] = Specs.of(HostSettings(agents_dir=str(tmp_path))).all
    assert spec.readable == (str(tmp_path / "vibe"), *([] if library else [str(base)]))


@pytest.mark.process("starts a program that stands for uv")
def test_a_machine_without_a_new_python_is_told_the_next_step(tmp_path, monkeypatch, capsys):
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setattr("admin.agent._PYTHONS", ("python3.13",))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AGENTS_DIR", str(tmp_path / "agents"))

    assert main(["vibe"]) == LACKING
    step = "Name the folder of one, PATH=/FOLDER/bin:$PATH make agent NAME=vibe, or install one"
    assert step in capsys.readouterr().err


def test_openhands_gets_the_spec_that_make_openhands_writes_with_its_name(tmp_path):
    (tmp_path / "openhands").mkdir()
    text = Install(tmp_path, table()["openhands"]).of_openhands(specs_of_openhands("/usr"))
    (tmp_path / "openhands/spec.toml").write_text(text)

    [_, spec] = Specs.of(HostSettings(agents_dir=str(tmp_path))).all

    assert (spec.id, spec.agent.title, spec.agent.version) == ("openhands", "OpenHands", "1.58")
    assert "agent-server" in spec.command[0]


def test_a_package_without_the_program_is_told_and_leaves_no_spec(tmp_path):
    install = Install(tmp_path, table()["opencode"])
    install._fetch = lambda: None

    with pytest.raises(Unable, match="Its package has no program opencode"):
        install.run()

    assert not (tmp_path / "opencode/spec.toml").exists()


def test_a_machine_without_a_package_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENTS_DIR", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "riscv64")

    assert main(["opencode"]) == LACKING
    assert capsys.readouterr().err == "opencode is not installed. There is no package of it for Linux on riscv64.\n"


def test_an_unknown_name_lists_the_names(capsys):
    assert main(["claudette"]) == 2
    said = capsys.readouterr().err
    assert said.startswith('There is no agent "claudette".\nmake agent NAME=…\n')
    assert all(table()[name].title in said for name in NAMES)
    assert "fast-agent" not in said
