"""Hooks of agents in terminals on a real server: they wait, hang up, and are left by their askers."""

import json
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.approvals.terminals import AskedTerminal, TerminalInbox
from tests.core.test_hooks import CLAUDE_ASKS, COPILOT_ASKS
from tests.servers import TIMEOUT, agent_server, store_server, wait_until

pytestmark = pytest.mark.process("a real server, whose sweep ends leases")

ADMIN = "an-admin-key-for-tests-only"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asking")
    with (
        store_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, SESSION_API_KEY=ADMIN, MAX_FOLLOWERS_PER_KEY="1000") as (one, _),
        httpx.Client(base_url=one.base_url, timeout=60) as anyone,
    ):
        one.headers["X-Session-API-Key"] = ADMIN
        made = one.post("/api/v1/keys", json={"name": "hook", "scopes": ["ask"]}).json()
        yield SimpleNamespace(one=one, anyone=anyone, keys={"ask key": made["key"]})


@pytest.fixture
def inbox(house):
    return TerminalInbox(house)


class LiveHook(threading.Thread):
    """A hook of an agent that waits for its answer."""

    def __init__(self, house, agent: str, event: dict, **query) -> None:
        super().__init__(daemon=True)
        self.client = httpx.Client(base_url=house.anyone.base_url, timeout=60)
        self.path, self.event, self.query = f"/api/v1/hooks/{agent}", event, query
        self.headers = {"X-Session-API-Key": house.keys["ask key"], "X-Agent-Host": "laptop", "X-Agent-User": "ada"}
        self.pieces: list[bytes] = []
        self.start()

    def run(self) -> None:
        options = {"json": self.event, "headers": self.headers, "params": self.query}
        with suppress(httpx.TransportError), self.client.stream("POST", self.path, **options) as response:
            for piece in response.iter_raw():  # a test may hang up meanwhile
                self.pieces.append(piece)

    @property
    def answer(self):
        self.join(30)
        return json.loads(b"".join(self.pieces))


def item_of(inbox, session: str) -> SimpleNamespace:
    """The item of a session that waits."""
    found: list[dict] = []

    def look() -> bool:
        items = inbox.server.get("/api/v1/pending-actions").json()["items"]
        found[:] = [
            one for one in items if session in json.dumps(one["asked_from"]) or session in one["arguments"].values()
        ]
        return bool(found)

    wait_until(look, "the request")
    [item] = found
    return SimpleNamespace(id=f"{item['conversation_id']}.{item['action_id']}", **item)


def test_a_hook_waits_with_line_feeds_and_gets_its_agents_form(house, inbox):
    hook = LiveHook(house, "claude", {**CLAUDE_ASKS, "tool_input": {"command": "drip"}})
    item = item_of(inbox, "drip")
    wait_until(lambda: len(hook.pieces) >= 2, "two line feeds")
    assert b"".join(hook.pieces).strip() == b""
    assert inbox.decides(item, "approve").status_code == 200

    assert hook.answer == {
        "hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
    }


def test_a_hook_that_hangs_up_withdraws(house, inbox):
    hook = LiveHook(house, "copilot", {**COPILOT_ASKS, "toolInput": {"command": "hang up"}})
    item = item_of(inbox, "hang up")
    hook.client.close()

    wait_until(lambda: inbox.entries(item.conversation_id), "the withdrawal")
    assert inbox.entries(item.conversation_id)[-1][:2] == ("withdrawn", "terminal")


def test_a_hook_whose_patience_ends_has_no_opinion(house, inbox):
    hook = LiveHook(house, "qwen", {**CLAUDE_ASKS, "tool_input": {"command": "patience"}}, patience=1)
    item = item_of(inbox, "patience")

    assert hook.answer == {}
    assert inbox.decides(item, "approve").json()["problems"][0]["problem"] == "in_terminal"


def test_a_waiting_hook_takes_no_yes_that_whoever_has_its_key_tells(house, inbox):
    """The terminal's own answer needs no hook, so an agent that reads the key cannot allow its call by telling one."""
    hook = LiveHook(house, "claude", {**CLAUDE_ASKS, "tool_input": {"command": "told"}})
    AskedTerminal(house).tells(item_of(inbox, "told"), "allowed")
    gate = LiveHook(
        house, "claude", {**CLAUDE_ASKS, "hook_event_name": "PreToolUse", "tool_input": {"command": "gate"}}
    )
    AskedTerminal(house).tells(item_of(inbox, "gate"), "withdrawn")

    assert hook.answer == {}
    assert gate.answer["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_a_long_poll_ends_with_the_decision(house, inbox):
    terminal = AskedTerminal(house)
    asked = terminal.asks()
    threading.Timer(0.3, inbox.decides, (asked, "reject")).start()
    began = time.monotonic()
    path = f"/api/v1/permission-requests/{asked.id}?wait=20"
    found = house.anyone.get(path, headers={"X-Session-API-Key": terminal.key}).json()

    assert (found["state"], time.monotonic() - began < 5) == ("rejected", True)


def test_a_lease_ends_within_two_seconds_and_looking_renews_it(house, inbox):
    terminal = AskedTerminal(house)
    asked = terminal.asks(lease_seconds=1)
    for _ in range(6):
        time.sleep(0.4)
        assert terminal.state(asked)["state"] == "pending"
    left = time.monotonic()
    wait_until(lambda: not inbox.items(asked.conversation_id), "the end of the lease")

    assert time.monotonic() - left < 3
    assert inbox.entries(asked.conversation_id) == [("withdrawn", "lease", "")]


@pytest.mark.parametrize("path", ["events/{}", "terminals/{}", "bash-events"])
def test_no_socket_opens_for_a_key_of_a_hook(house, path):
    """Not even that of its own session, whose log it does not read."""
    terminal = AskedTerminal(house)
    address = str(house.anyone.base_url).replace("http", "ws").rstrip("/")
    url = f"{address}/sockets/{path.format(terminal.asks().conversation_id)}?session_api_key={terminal.key}"
    with pytest.raises(InvalidStatus) as refusal, connect(url, open_timeout=TIMEOUT):
        pass

    assert refusal.value.response.status_code == 403


def test_a_revoked_key_ends_what_waits(house, inbox):
    made = house.one.post("/api/v1/keys", json={"name": "gone", "scopes": ["ask"]}).json()
    home = SimpleNamespace(**{**vars(house), "keys": {"ask key": made["key"]}})
    hook = LiveHook(home, "claude", {**CLAUDE_ASKS, "tool_input": {"command": "revoked"}})
    gate = LiveHook(
        home, "claude", {**CLAUDE_ASKS, "hook_event_name": "PreToolUse", "tool_input": {"command": "closed"}}
    )
    item_of(inbox, "revoked")
    item_of(inbox, "closed")
    house.one.delete(f"/api/v1/keys/{made['id']}")
    hook.join(10)

    assert not hook.is_alive()
    assert gate.answer["hookSpecificOutput"]["permissionDecision"] == "deny"
