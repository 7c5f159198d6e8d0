"""agentctl and the keys of a server that is open, and the way in to one that is not."""

import json

import pytest
from agent_server_client.cli import agentctl
from click.testing import CliRunner

from tests.client.terminal import terminal
from tests.conftest import limits_of, store_of
from tests.shared import ADMIN, shared_server

pytestmark = pytest.mark.process("runs the command against a real server")

WARNING, FIRST = "With a first key, it asks for a key from its next start", "agentctl keys new me --scope admin"


@pytest.fixture
def url():
    """The address of an open server, which has no keys before a test and none after it."""
    client = shared_server().client
    yield str(client.base_url).rstrip("/")
    for key in client.get("/api/v1/keys").json():
        client.delete(f"/api/v1/keys/{key['id']}").raise_for_status()


def ctl(url: str, *words: str, key: str = "", code: int = 0):
    environment = {"AGENT_SERVER_URL": url, "AGENT_SERVER_KEY": key}
    result = CliRunner().invoke(agentctl, words, env=environment, prog_name="agentctl")
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_a_first_key_that_is_no_admins_is_made_with_a_warning_before_it(url):
    made = ctl(url, "keys", "new", "ci")

    assert made.stderr.index(WARNING) < made.stderr.index("It is not shown again")
    assert FIRST in made.stderr
    assert made.stdout.startswith("key_")


def test_an_admins_key_is_made_with_what_it_changes_and_the_next_one_needs_no_warning(url):
    admin, later = ctl(url, "keys", "new", "me", "--scope", "admin"), ctl(url, "keys", "new", "ci", "--json")

    assert "From its next start it asks for a key" in admin.stderr
    assert WARNING not in admin.stderr + later.stderr
    assert "AGENT_SERVER_KEY" in admin.stderr
    assert "From its next start" in json.loads(later.stdout)["notice"]


def test_a_person_is_asked_before_the_first_key(url):
    with terminal("keys", "new", "ci", AGENT_SERVER_URL=url) as shown:
        shown.wait_for(FIRST)
        shown.wait_for("Make the key ci all the same?")
        shown.press("\n")
        shown.wait_for("No key was made")
        assert shown.end() == 1
    assert shared_server().client.get("/api/v1/keys").json() == []
    with terminal("keys", "new", "ci", "--yes", AGENT_SERVER_URL=url) as shown:
        assert shown.end() == 0


def test_a_key_that_an_open_server_does_not_know_is_told_once(url):
    status = ctl(url, "status", key="no-key-of-this-server")

    assert status.stderr.count("does not know your key") == 1
    assert "AGENT_SERVER_KEY" in status.stderr
    assert "the server is open: it needs no key" in status.stdout
    known = ctl(url, "keys", "new", "me", "--scope", "admin").stdout.strip()
    assert "does not know" not in ctl(url, "status", key=known).stderr


def test_a_hook_gets_a_key_as_soon_as_the_next_start_asks_for_one(url, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "agentctl/hooks.json"

    ctl(url, "hook", "install", "claude")
    assert json.loads(file.read_text())["key"] == ""
    ctl(url, "keys", "new", "me", "--scope", "admin")
    ctl(url, "hook", "install", "claude")

    assert json.loads(file.read_text())["key"].startswith("key_")


def test_a_hook_without_the_key_that_a_server_asks_for_names_the_command_that_makes_one(monkeypatch, tmp_path):
    server = str(shared_server(ADMIN).client.base_url).rstrip("/")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "agentctl/hooks.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"url": server, "key": ""}))
    file.chmod(0o600)

    assert "Repeat `agentctl hook install NAME`" in ctl(server, "hook", "status").stderr


def test_the_status_says_of_each_spec_what_isolates_its_sandboxes(url):
    server = shared_server()
    bare = {"kind": "none", "network": "host", "reaches": [], "lacks": []}
    named = {"kind": "bubblewrap", "network": "named", "reaches": [], "lacks": []}
    sandboxes = store_of(server.url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120)).sandboxes
    assert sandboxes.beat("a-host", "its supervisor")
    specs = [{"spec": "bare", **bare}, {"spec": "by-name", **named}]
    sandboxes.hosts.note("a-host", {**named, "specs": specs}, "1.2.3")

    lines = [line.strip() for line in ctl(url, "status").stdout.splitlines()]

    assert "bare: NOT ISOLATED, reaches the network of that machine" in lines
    assert "by-name: isolated by bubblewrap, reaches by name what the spec allows" in lines


@pytest.mark.parametrize("key", ["", "no-key-of-this-server"])
def test_a_missing_or_wrong_key_names_the_way_in(key):
    url = str(shared_server(ADMIN).client.base_url).rstrip("/")

    told = ctl(url, "ls", key=key, code=5).stderr

    begin = "The key is wrong, was revoked or has expired" if key else "This server needs a key"
    assert told.startswith(f"Error: {begin}: put one into AGENT_SERVER_KEY, or `key`")
    for place in ("config.toml", "agentctl keys new NAME", "the server's log says at its start"):
        assert place in told
    assert told.count(". ") == 1
    assert json.loads(ctl(url, "ls", "--json", key=key, code=5).stderr)["status"] == 401
