"""`--json` of each command: the page says what it prints, and the command prints that."""

import json
import re
from pathlib import Path
from uuid import uuid4

import click
import pytest
from agent_server_client import PendingAction
from agent_server_client._sync import Client, Conversation
from agent_server_client._sync_files import Files
from agent_server_client.cli import agentctl, program
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.program import CommandSession
from agent_server_client.models import GitChange, GitDiff, Push
from agent_server_client.wire import Output

from notifications.devices import Rings
from tests.client.responses import responding
from tests.client.test_questions import waiting_action
from tests.conftest import action, message
from tests.fitting import operations
from tests.servers import PROJECT

_TABLE = (PROJECT / "docs/client.md").read_text().partition("\n## JSON\n")[2].partition("\n## ")[0]


_SCHEMAS = json.loads((PROJECT / "docs/openapi.json").read_text())["components"]["schemas"]


def rows() -> dict[str, tuple[str, list[list[str]]]]:
    """By command: what it prints, and its members, of which some have alternatives; none of texts.

    A cell "as `NAME`" stands for the members of that schema of the OpenAPI document.
    """
    found = {}
    for line in _TABLE.splitlines():
        if line.startswith("| `"):
            commands, prints, members = (cell.strip() for cell in line.strip("|").split("|"))
            every = members.partition(";")[0].split(", ") if not members.startswith("texts") else []
            of_schema = re.findall(r"^as `([A-Za-z]+)`", members)
            names = [re.findall("`([a-z_]+)`", one) for one in every if not of_schema]
            names += [[one] for schema in of_schema for one in _SCHEMAS[schema]["properties"]]
            found |= dict.fromkeys(re.findall("`([a-z ]+)`", commands), (prints, names))
    return found


def test_the_page_has_a_row_for_each_command():
    groups = {name: one for name, one in agentctl.commands.items() if isinstance(one, click.Group)}
    every = {*agentctl.commands, *(f"{name} {of}" for name, one in groups.items() for of in one.commands)}
    assert every - {"chat"} == set(rows())


@pytest.fixture
def in_sandbox(monkeypatch):
    """What a sandbox says without one."""
    kinds = {GitChange: {"path": "a.txt", "status": "ADDED"}, GitDiff: {"original": None, "modified": "x"}}
    assert all(set(kind.__annotations__) == set(members) for kind, members in kinds.items())
    monkeypatch.setattr(Files, "list", lambda *_: ["a.txt"])
    monkeypatch.setattr(Files, "upload", lambda *_: None)
    monkeypatch.setattr(Files, "download", lambda *_: [Path("a.txt")])
    monkeypatch.setattr(Conversation, "changes", lambda *_, **__: [kinds[GitChange]])
    monkeypatch.setattr(Conversation, "diff", lambda *_, **__: kinds[GitDiff])
    words = {"branch": "main", "proposed_branch": "agent/x", "proposed_title": "X"}
    monkeypatch.setattr(
        Conversation, "remote", lambda *_: {"path": ".", "url": "x", "base": "", "lacks": None, **words}
    )
    made = {"branch": "agent/x", "commit": "0" * 40, "url": "x", "pull_request": None, "offered_url": None}
    assert set(Push.__annotations__) == set(made)
    monkeypatch.setattr(Conversation, "push", lambda *_, **__: made)
    monkeypatch.setattr(Conversation, "execute", lambda *_: iter([Output("x", "", 0)]))
    monkeypatch.setattr(Client, "start", lambda client, *_, **__: client.conversation(str(uuid4())))


@pytest.fixture
def words_of(ctl, client, started, tmp_path, monkeypatch):
    """The words of each command; ID: of a conversation with an action that waits."""
    one = started(title="A title")
    client.post(f"/api/v1/webhooks/events/{one}", json=[message("hello"), action("ls")])
    monkeypatch.setenv("HOME", str(tmp_path))
    profiles = tmp_path / "agentctl/config.toml"
    profiles.parent.mkdir(exist_ok=True)
    profiles.write_text('[default]\nurl = "http://127.0.0.1"\n')

    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\ndecision = "approve"\ntool_name = "terminal"\ncommand = "ls *"\n')
    rule = ("--decision", "approve", "--tool", "terminal", "--command", "git status *")

    def words(name: str) -> list[str]:
        if name == "audit":
            ctl("approve", one, "--yes")
        if name == "resume":  # it is refused while an action waits
            ctl("reject", one)
        if name == "keys":
            ctl("keys", "new", uuid4().hex)
        if name in ("rules", "rules ls"):
            ctl("rules", "add", *rule)
        if name == "rules diff":
            ctl("rules", "apply", str(file), "--prune", "--yes")
        ids = {"keys revoke": lambda: json.loads(ctl("keys", "new", uuid4().hex, "--json").stdout)["id"]}
        grant = ("--person", uuid4().hex, "--role", "ask")
        if name in ("grants", "grants ls"):
            ctl("grants", "add", *grant)
        ids["grants rm"] = lambda: json.loads(ctl("grants", "add", *grant, "--json").stdout)["id"]
        if name.startswith("devices"):
            monkeypatch.setattr(Rings, "send", lambda *_: None)  # no push service is reached
            device = next(one for one in operations() if one.name == "add_device").body()
            ids |= dict.fromkeys(("devices rm", "devices test"), lambda: made["id"])
            made = client.post("/api/v1/devices", json=device).json
        ids["rules rm"] = lambda: json.loads(ctl("rules", "add", *rule, "--json").stdout)["id"]
        more = {
            **{"run": ("x", "-d"), "send": (one, "x", "--yes"), "rm": (one, "--yes"), "approve": (one, "--yes")},
            **{
                "push": (one, "--yes"),
                "upload": (one, __file__),
                "sh": (one, "true"),
                "keys new": (uuid4().hex,),
                "completion": ("zsh",),
            },
            "download": (one, "", str(tmp_path / "to")),
            **dict.fromkeys(("rules add", "rules rehearse"), rule),
            **dict.fromkeys(("grants", "grants ls", "devices", "devices ls"), ()),
            "grants add": grant,
            **dict.fromkeys(("hook install", "hook remove"), ("claude",)),
            **dict.fromkeys(("hook", "hook status"), ()),
            **{"rules diff": (str(file),), "rules apply": (str(file), "--yes")},
            **dict.fromkeys(
                ("ls", "agents", "inbox", "status", "whoami", "profiles", "keys", "audit", "rules", "rules ls"), ()
            ),
        }
        own = (ids[name](),) if name in ids else more.get(name, (one,))
        return [*name.split(), "--json", *own]

    return words


@pytest.mark.parametrize("name", rows())
@pytest.mark.usefixtures("in_sandbox")
def test_a_command_prints_the_members_that_the_page_names(ctl, words_of, name):
    prints, members = rows()[name]

    ran = ctl(*words_of(name))
    lines = [json.loads(line) for line in ran.stdout.splitlines()]

    assert lines
    assert all(set(json.loads(line)) == {"notice"} for line in ran.stderr.splitlines())
    if prints.startswith("an array"):
        [items] = lines
        assert isinstance(items, list)
    else:
        assert prints.startswith("an object")
        items = lines
        assert len(items) == 1 or "a line" in prints
    assert items
    for item in items:
        if members:
            assert sorted(item) == sorted(one for group in members for one in group if one in item)
            assert [len(set(group) & set(item)) for group in members] == [1] * len(members)
        else:
            assert isinstance(item, str)


def test_what_waits_is_an_object_on_stderr_where_nobody_is_asked(capsys):
    session = CommandSession()
    session.as_json, session.err = True, program._Notices(stderr=True)
    client, _ = responding()

    assert Approver(session, "rules", follows=True, seconds=5).decide(PendingAction(client, waiting_action())) == "left"
    session.err.print("A word", style="dim")

    waits, notice = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (waits["waits"], waits["seconds"]) == ([waiting_action()], 5)
    assert waits["decide"].startswith("agentctl approve 9c0d1e2f-act --digest ")
    assert waits["url"].endswith(waiting_action()["conversation_id"])
    assert notice == {"notice": "A word"}


def test_an_error_has_the_members_that_the_page_names(ctl):
    told = json.loads(ctl("logs", "0000", "--json", code=4).stderr)
    assert set(told) == {"error", "status", "exit_code"}
