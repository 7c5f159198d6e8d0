"""Hooks go into a person's files and come out again, and every other byte stays."""

import json
import os
import stat

import pytest
from agentctl.hooks import edits, install, settings

from tests.servers import PROJECT

#: the two forms of entries
JSON_AGENTS = ("claude", "copilot")

#: files as people have them
KEPT = {
    "missing": None,
    "empty": "",
    "blank": "\n\n",
    "a mark alone": "\ufeff",
    "nothing in it": "{}",
    "nothing in it on two lines": "{\n}\n",
    "a blank in it": "{ }",
    "settings": '{\n  "model": "opus",\n  "permissions": {"allow": ["Bash(ls)"]}\n}\n',
    "no line end": '{"model": "opus"}',
    "tabs": '{\n\t"model": "opus",\n\t"env": {\n\t\t"A": "1"\n\t}\n}\n',
    "four blanks": '{\n    "model": "opus"\n}\n',
    "CRLF": '{\r\n  "model": "opus"\r\n}\r\n',
    "CRLF and no hooks yet": '{\r\n  "hooks": {}\r\n}\r\n',
    "a mark at its start": '\ufeff{\n  "model": "opus"\n}\n',
    "comments": '// mine\n{\n  // the model\n  "model": "opus", /* not "hooks": { */\n}\n// end\n',
    "a comment alone": "{\n  // nothing yet\n}\n",
    "trailing commas": '{\n  "hooks": {"Stop": [{"hooks": [],},],},\n}\n',
    "no hooks yet": '{"hooks": {}}',
    "no hooks of this event yet": '{"hooks": {"PermissionRequest": [], "permissionRequest": []}}',
    "hooks of the person's": json.dumps(
        {"hooks": {"PermissionRequest": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}]}},
        indent=2,
    ),
    "another hook of ours": json.dumps({"hooks": {"Notification": [{"hooks": [{"command": "agentctl inbox"}]}]}}),
    "strings that look like JSON": '{"a": "}\\"{ // no", "b": "\\u007b", "ü": "ä"}',
    "minified": '{"a":{"b":[1,2,{"c":null}]},"d":-1.5e3,"e":true}',
}

REFUSED = {
    "cut off": ('{"model": "opus"', r"line 1, column 17: a comma or } is missing"),
    "a list": ("[]", "it is no JSON object"),
    "two objects": ("{}\n{}", "line 2, column 1: there is more after the object"),
    "no quotes": ("{model: 1}", "line 1, column 2: a name in quotes is missing"),
    "hooks is a list": ('{"hooks": []}', "`hooks` should be an object"),
    "an event is an object": ('{"hooks": {"Stop": {}}}', "`hooks.Stop` should be a list"),
    "hooks twice": ('{"hooks": {}, "hooks": {}}', "it has 'hooks' twice in one object"),
    "deep": ("[" * 5000, "nested too deeply"),
}


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home folder, without agents and without agentctl on the PATH."""
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(install.shutil, "which", lambda name: f"/bin/{name}" if name == "agentctl" else None)
    return tmp_path


def placed(name, text):
    """The file of an agent, with a text."""
    path = install.file_of(name, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is not None:
        path.write_bytes(text.encode())
    return path


def content(path):
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("name", JSON_AGENTS)
@pytest.mark.parametrize("kind", KEPT)
def test_a_removed_hook_leaves_the_file_byte_for_byte_as_it_was(name, kind):
    path = placed(name, KEPT[kind])
    before = content(path)

    assert install.install(name, path, gate=False, require=False)
    installed = content(path)
    again = install.install(name, path, gate=False, require=False)

    assert edits.parse(installed.decode()).value["hooks"][install.FORMS[name].asks[0]]
    assert (again, content(path)) == (False, installed)
    assert install.is_installed(name, path)
    assert install.remove(name, path)
    assert content(path) == before
    assert not install.remove(name, path)


@pytest.mark.parametrize("kind", KEPT)
def test_a_gate_of_copilot_is_an_option_of_its_question(kind):
    path = placed("copilot", KEPT[kind])
    before = content(path)
    install.install("copilot", path, gate=False, require=False)

    assert install.install("copilot", path, gate=True, require=False)

    hooks = edits.parse(content(path).decode()).value["hooks"]
    lines = [(event, one.get("bash", "")) for event, entries in hooks.items() for one in entries]
    own = [(event, line) for event, line in lines if line.startswith("agentctl hook copilot")]
    assert ("permissionRequest", "agentctl hook copilot --gate") in own
    assert [event for event, line in own if line.endswith("--gate")] == ["permissionRequest"]
    assert len(own) == len(install.FORMS["copilot"].tells) + 1
    install.remove("copilot", path)
    assert content(path) == before


@pytest.mark.parametrize("kind", KEPT)
def test_other_options_replace_the_hook_and_a_removal_still_restores_the_file(kind):
    path = placed("claude", KEPT[kind])
    before = content(path)
    install.install("claude", path, gate=False, require=False)

    assert install.install("claude", path, gate=True, require=True)

    hooks = edits.parse(path.read_text()).value["hooks"]
    [gate] = [one for entry in hooks["PreToolUse"] for one in entry["hooks"]]
    assert gate == {"type": "command", "command": "agentctl hook claude", "timeout": 86400, "onFailure": "block"}
    install.remove("claude", path)
    assert content(path) == before


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_cannot_be_read_as_an_agent_reads_it_stays_and_is_refused_with_its_place(kind):
    text, words = REFUSED[kind]
    path = placed("claude", text)

    with pytest.raises(install.CannotEdit, match=words.replace("(", r"\(").replace("}", r"\}")):
        install.install("claude", path, gate=False, require=False)

    assert path.read_text() == text


def test_what_is_not_text_stays():
    path = placed("claude", "")
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(install.CannotEdit, match="is not UTF-8"):
        install.install("claude", path, gate=False, require=False)
    assert path.read_bytes() == b'{"a": "\xff"}'


def test_a_link_stays_a_link_and_its_file_keeps_its_mode(home):
    real = home / "dotfiles.json"
    real.write_text('{"a": 1}')
    real.chmod(0o640)
    path = placed("claude", None)
    path.symlink_to(real)

    install.install("claude", path, gate=False, require=False)

    assert path.is_symlink()
    assert "agentctl hook claude" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    install.remove("claude", path)
    assert (path.is_symlink(), real.read_text()) == (True, '{"a": 1}')


def test_a_link_to_nothing_and_a_read_only_file_are_refused(home):
    path = placed("claude", None)
    path.symlink_to(home / "gone")
    with pytest.raises(install.CannotEdit, match="is a link to a file that is missing"):
        install.install("claude", path, gate=False, require=False)
    path.unlink()
    path.write_text("{}")
    path.chmod(0o444)

    with pytest.raises(install.CannotEdit, match=r"is read-only\. It was not changed: chmod u\+w"):
        install.install("claude", path, gate=False, require=False)

    assert path.read_text() == "{}"


def test_what_is_no_file_of_settings_is_refused_at_once(home):
    """A link to a device, or a pipe, would be read for ever."""
    path = placed("claude", None)
    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"), path.mkdir):
        make()
        with pytest.raises(install.CannotEdit, match=r"is no regular file\. It was not changed"):
            install.install("claude", path, gate=False, require=False)
        path.rmdir() if path.is_dir() else path.unlink()
    path.write_text(" " * (1 << 20) + "{}")

    with pytest.raises(install.CannotEdit, match="has more than 1048576 bytes"):
        install.install("claude", path, gate=False, require=False)


def test_a_link_in_the_place_of_a_draft_is_not_followed(home):
    path, victim = placed("claude", "{}"), home / "victim"
    victim.write_text("mine")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.symlink_to(victim)

    with pytest.raises(install.CannotEdit, match="cannot be written: File exists"):
        install.install("claude", path, gate=False, require=False)

    assert (victim.read_text(), path.read_text(), draft.is_symlink()) == ("mine", "{}", True)


def test_a_project_whose_file_is_elsewhere_is_refused(home):
    project = home / "project"
    project.mkdir()
    (project / ".claude").symlink_to(home)

    with pytest.raises(install.CannotEdit, match="is a link out of this project"):
        install.file_of("claude", project)


def test_what_a_person_changed_meanwhile_stays():
    path = placed("claude", '{"model": "opus"}')
    install.install("claude", path, gate=False, require=False)
    value = json.loads(path.read_text())
    value["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "mine"}]})
    value["hooks"]["PostToolUse"][0]["hooks"].append({"type": "command", "command": "mine too"})
    value["model"] = "sonnet"
    path.write_text(json.dumps(value, indent=4))

    install.remove("claude", path)

    assert json.loads(path.read_text()) == {
        "model": "sonnet",
        "hooks": {
            "Stop": [{"hooks": [{"type": "command", "command": "mine"}]}],
            "PostToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "mine too"}]}],
        },
    }


def test_hooks_come_after_those_of_the_person_because_codex_trusts_a_place_of_the_list():
    path = placed("codex", KEPT["hooks of the person's"])
    install.install("codex", path, gate=False, require=False)
    lines = [one["hooks"][0]["command"] for one in json.loads(path.read_text())["hooks"]["PermissionRequest"]]
    assert lines == ["mine", "agentctl hook codex"]


def test_a_removal_on_another_machine_leaves_no_empty_lists(home):
    path = placed("claude", '{"model": "opus"}')
    install.install("claude", path, gate=False, require=False)
    (home / ".config/agentctl/hooks.json").unlink()

    install.remove("claude", path)

    assert path.read_text() == '{"model": "opus"}'


def test_the_plugin_of_opencode_is_a_file_of_ours_alone(home):
    path = install.file_of("opencode", None)
    assert install.install("opencode", path, gate=True, require=False)
    assert not install.install("opencode", path, gate=True, require=False)
    assert "const GATE = true;" in path.read_text()
    assert '["agentctl", "hook", "opencode"]' in path.read_text()
    assert install.remove("opencode", path)
    assert not path.exists()
    path.write_text("// of the person\n")

    with pytest.raises(install.CannotEdit, match="is not ours and stays"):
        install.install("opencode", path, gate=False, require=False)

    assert not install.remove("opencode", path)
    assert path.read_text() == "// of the person\n"


def test_the_settings_are_the_persons_alone(home):
    settings.write({"url": "http://home", "key": "k"})
    path = home / ".config/agentctl/hooks.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(settings.BadSettings, match="chmod 600"):
        settings.read()


def test_the_versions_that_were_measured_are_those_of_the_page_and_of_the_test_packages():
    page = (PROJECT / "docs/hooks.md").read_text()
    packages = (PROJECT / "tests/interop/hooks/packages").read_text().split()
    measured = [form.measured for form in install.FORMS.values()]
    assert [one.rpartition("@")[2] for one in packages] == measured
    assert all(f"`{one.rpartition('@')[0]}` | {one.rpartition('@')[2]} |" in page for one in packages)
