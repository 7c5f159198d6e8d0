"""What every command of `agentctl` does where it is refused, by the table of commands itself: a new one is covered."""

import json
import re
from functools import partial
from pathlib import Path
from uuid import uuid4

import click
import httpx
import pytest
from agent_server_client import Client
from agent_server_client.cli import agentctl, program
from click.testing import CliRunner

from app import create_app
from settings.config import Config
from tests.conftest import action, message, status
from tests.servers import free_port

ADMIN = "an-admin-key-of-the-tests"

#: what exits without a request: they read the configuration alone, or need a terminal
OFFLINE = {"profiles", "completion", "chat", "hook", "hook status", "hook remove"}

#: what a key with the scope `read` may do
READS = {
    "agents",
    "back",
    "ls",
    "logs",
    "status",
    "whoami",
    "inbox",
    "download",
    "diff",
    "mode",
    "open",
    "rules",
    "rules ls",
    "rules diff",
    "rules rehearse",
    "devices",
    "devices ls",
    "devices test",
    "devices rm",
}

#: what takes the id of something that waits, which the table of exit codes tells from a thing that is missing
DECIDES = {"approve", "reject"}

#: a file that a command reads before it asks the server
RULES = str(Path(__file__).with_name("rules.toml"))
OF_COMMAND = {"rules diff": RULES, "rules apply": RULES, "rules rehearse": RULES}


def leaves(group: click.Group, path: str = "") -> dict[str, click.Command]:
    """The commands by the words that name them; a group is one where it does something itself."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        words = f"{path} {name}".strip()
        if not isinstance(command, click.Group) or command.invoke_without_command:
            found[words] = command
        if isinstance(command, click.Group):
            found |= leaves(command, words)
    return found


COMMANDS = leaves(agentctl)


def takes_an_id(command: click.Command) -> bool:
    return any("ID" in (one.metavar or "") for one in command.params if isinstance(one, click.Argument))


def typed(words: str, identity: str) -> list[str]:
    """A command with all that it needs. identity: for its argument of an id."""
    line = words.split()
    for one in COMMANDS[words].params:
        if isinstance(one, click.Option):
            line += ["--person", "hello"] if words == "grants add" and one.name == "person" else []
            line += ["--yes"] if "--yes" in one.opts else []
            if one.required:
                line += [one.opts[0], one.type.choices[0] if isinstance(one.type, click.Choice) else "hello"]
        elif "ID" in (one.metavar or ""):
            line.append(identity)
        elif one.required and isinstance(one.type, click.Choice):
            line.append(one.type.choices[0])
        elif one.required or (words in OF_COMMAND and isinstance(one.type, click.Path)):
            line.append(OF_COMMAND.get(words, __file__) if isinstance(one.type, click.Path) else "hello")
    return [*line, "true"] if words == "sh" else line


@pytest.fixture(scope="module")
def guarded(redis_url):
    return create_app(
        Config.of(
            redis_url=redis_url,
            redis_timeout=10,
            secret_key="a key for tests only",
            api_keys=(ADMIN,),
            rate_limit_failures="none",
            rate_limit_starts="none",
        )
    )


@pytest.fixture
def ctl(guarded, monkeypatch, tmp_path):
    """Runs a command in pipes, with a key. url: of a real server, instead of the app in this process."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(line: list[str], key: str = ADMIN, *, url: str = ""):
        options = {} if url else {"transport": httpx.WSGITransport(guarded)}
        monkeypatch.setattr(program, "Client", partial(Client, **options))
        monkeypatch.setattr(program, "_FIRST", 0.0)
        environment = {"AGENT_SERVER_URL": url or "http://127.0.0.1", "AGENT_SERVER_KEY": key, "FORCE_COLOR": None}
        return CliRunner().invoke(agentctl, line, env=environment, prog_name="agentctl", input="")

    return run


@pytest.fixture
def made(guarded):
    """A conversation in which an action waits, and a key with the scope `read`."""
    client, headers = guarded.test_client(), {"Authorization": f"Bearer {ADMIN}"}
    identity = str(uuid4())
    body = {"conversation_id": identity, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert client.post("/api/conversations", json=body, headers=headers).status_code < 300
    events = [message("hello"), status("running"), action("ls"), status("waiting_for_confirmation")]
    assert client.post(f"/api/v1/webhooks/events/{identity}", json=events, headers=headers).status_code == 200
    key = client.post("/api/v1/keys", json={"name": identity, "scopes": ["read"]}, headers=headers).json["key"]
    return identity, key


ASKING = sorted(set(COMMANDS) - OFFLINE)
WITH_ID = sorted(words for words in COMMANDS if takes_an_id(COMMANDS[words]) and words not in OFFLINE)


def said(result) -> str:
    assert "\x1b" not in result.output, "a colour in a pipe"
    return " ".join(result.stderr.split())


@pytest.mark.parametrize("words", WITH_ID)
@pytest.mark.parametrize("identity", ["00000000-0000-4000-8000-000000000001", "beef"], ids=["whole", "beginning"])
def test_an_unknown_id_ends_a_command_with_4_or_6_and_names_the_command_that_lists_them(ctl, words, identity):
    result = ctl(typed(words, identity))
    assert result.exit_code == (6 if words in DECIDES else 4), result.output
    assert re.search(r"`agentctl (ls|keys|inbox|rules|grants|devices)[^`]*` (shows|lists|has)", said(result)), (
        result.stderr
    )


@pytest.mark.parametrize("words", ASKING)
def test_a_server_that_refuses_connections_ends_a_command_with_3_and_says_where_it_was_looked_for(ctl, words):
    url = f"http://127.0.0.1:{free_port()}"
    result = ctl(typed(words, str(uuid4())), url=url)
    assert result.exit_code == 3, result.output
    assert f"{url} does not answer" in said(result)
    assert "Check that the server runs there. The address is that of AGENT_SERVER_URL" in said(result)


@pytest.mark.parametrize("words", ASKING)
@pytest.mark.parametrize("key", ["w" * 40, ""], ids=["wrong", "none"])
def test_a_wrong_key_and_a_missing_one_end_a_command_with_5_and_say_where_it_goes(ctl, words, key):
    result = ctl(typed(words, str(uuid4())), key)
    assert result.exit_code == 5, result.output
    assert "An admin makes it by `agentctl keys new NAME`" in said(result)


@pytest.mark.parametrize("words", ASKING)
def test_a_key_without_the_scope_ends_a_command_with_5_and_says_who_gives_it(ctl, made, words):
    identity, key = made
    result = ctl(typed(words, identity), key)
    if words in READS:
        assert result.exit_code in (0, 1, 4), result.output  # it has no sandbox
        return
    assert result.exit_code == 5, result.output
    assert re.search(r"(?i)an admin makes one by `agentctl keys new NAME --scope \w+", said(result)), result.stderr


@pytest.mark.parametrize("words", sorted(COMMANDS))
@pytest.mark.parametrize("wrong", ["an unknown option", "nothing", "an empty id"])
def test_a_wrong_command_line_ends_a_command_with_2_and_is_json_where_json_is_asked_for(ctl, words, wrong):
    if wrong == "an unknown option" and words == "sh":
        pytest.skip("what it does not know is a word of the command in the sandbox")
    required = any(isinstance(one, click.Argument) and one.required for one in COMMANDS[words].params)
    if (wrong == "nothing" and not required) or (wrong == "an empty id" and not takes_an_id(COMMANDS[words])):
        pytest.skip("it is no wrong command line here")
    line = {
        "an unknown option": [*typed(words, "beef"), "--no-such-option"],
        "nothing": words.split(),
        "an empty id": typed(words, ""),
    }[wrong]

    plain, as_json = ctl(line), ctl([*line, "--json"])

    assert (plain.exit_code, as_json.exit_code) == (2, 2), (plain.output, as_json.output)
    assert "Usage:" in plain.stderr
    told = json.loads(as_json.stderr)
    assert (told["status"], told["exit_code"]) == (None, 2)
    assert f"See `agentctl {words} --help`" in told["error"]
    assert not as_json.stdout


@pytest.mark.parametrize("line", [["nope"], ["--nope", "ls"], ["keys", "nope"], ["--profile", "nope", "ls"]])
def test_a_wrong_command_line_of_the_program_is_json_too(ctl, line):
    told = json.loads(ctl([*line, "--json"]).stderr)
    assert told["exit_code"] == 2


def options_of(command: click.Command):
    return [one for one in command.params if isinstance(one, click.Option)]


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_each_help_page_begins_with_a_list_entry_and_each_option_says_what_it_does(words):
    command = COMMANDS[words]
    first, _, rest = (command.help or "").partition("\n")
    assert re.fullmatch(r"[A-Z][^.]*\.( It is shown once, here\.)?", first), first
    assert not rest or rest.startswith("\n"), "the first line is a paragraph"
    for one in options_of(command):
        assert one.help, one.opts
        assert re.match(r"[A-Z]", one.help.lstrip("`")), one.help


def test_what_is_asked_before_it_happens_goes_unasked_with_the_same_option_everywhere():
    unasked = {words for words, command in COMMANDS.items() for one in options_of(command) if "--yes" in one.opts}
    assert {"approve", "reject", "rm", "send", "keys new", "rules apply"} <= unasked
    for words in unasked:
        assert any({"-y", "--yes"} <= set(one.opts) for one in options_of(COMMANDS[words])), words


def test_the_key_of_a_hook_asks_and_does_nothing_else(ctl, guarded, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))

    result = ctl(["hook", "install", "claude"])

    assert result.exit_code == 0, result.output
    settings = tmp_path / "agentctl/hooks.json"
    key = json.loads(settings.read_text())["key"]
    assert key not in result.output
    assert settings.stat().st_mode & 0o077 == 0
    client, headers = guarded.test_client(), {"Authorization": f"Bearer {key}"}
    session = {"id": "s1", "cwd": "/x", "host": "laptop"}
    asked = {"agent": {"name": "claude-code"}, "session": session, "tool_name": "Bash", "arguments": {"command": "ls"}}
    assert client.post("/api/v1/permission-requests", json=asked, headers=headers).status_code == 201
    assert client.get("/api/v1/pending-actions", headers=headers).status_code == 403
    assert client.post("/api/v1/keys", json={"name": "x", "scopes": ["read"]}, headers=headers).status_code == 403
