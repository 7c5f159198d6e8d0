"""Planted secrets: none is in the file of Redis, a log, an error, or DATA_DIR outside the work folders."""

import json
import stat
from contextlib import suppress
from uuid import UUID

import psutil
import pytest

from store.sandboxes.sandboxes import SandboxId
from tests.conftest import limits_of, store_of
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi, found_in
from tests.v1.conftest import AGENT
from tests.v1.processes import agents, hook_key

pytestmark = pytest.mark.process("starts a server that logs everything, and fails a start")

SECRET_KEY, SECRET, OF_SPEC = (f"planted-{name}-0123456789" for name in ("secret-key", "secret", "of-spec"))

SPECS = f"""
[[spec]]
id = "planted"
{AGENT.replace("restarts = 0", "restarts = 5").replace("LANG =", f'TOKEN = "{OF_SPEC}", LANG =')}

[[spec]]
id = "broken"
command = ["/bin/sh", "-c", "exit 3"]
created_at = 2026-11-21T00:00:00Z
initial_env = {{ TOKEN = "{OF_SPEC}" }}
"""


@pytest.fixture
def api(tmp_path):
    """A server with an embedded store, all of whose data are in `data`."""
    (tmp_path / "specs.toml").write_text(SPECS)
    settings = {"SANDBOX_SPECS": str(tmp_path / "specs.toml"), "SECRET_KEY": SECRET_KEY, "LOG_LEVEL": "debug"}
    with supervised_server(tmp_path, REDIS_URL="", DATA_DIR=str(tmp_path / "data"), **settings) as (client, _):
        yield WireApi(client)


def keys_of(api, folder, sandbox_id) -> list[str]:
    """The keys of a running sandbox: its session key, its hook key, and the key of its files."""
    wait_until(lambda: hook_key(folder, sandbox_id), "the agent server")
    limits = limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)
    store = store_of((folder / "store.url").read_text().strip(), limits, SECRET_KEY)
    files_key = store.sandboxes.get(SandboxId(sandbox_id)).files_key  # its agent has wiped it from the environment
    return [api.wait_for(sandbox_id, "RUNNING")["session_api_key"], hook_key(folder, sandbox_id), files_key]


def errors(api, conversation, keys) -> str:
    """What requests that bear secrets, and are wrong in every way, get back."""
    agent_key, hook, _ = keys
    bearer = {"Authorization": f"Bearer {hook}"}
    conversations = f"/api/conversations/{conversation}"
    wrong = [
        ("POST", f"/api/v1/webhooks/events/{conversation}", {"json": [{"id": agent_key}], "headers": bearer}),
        ("POST", f"/api/v1/webhooks/events/{UUID(int=1)}", {"json": [], "headers": bearer}),
        ("POST", f"/api/v1/webhooks/events/{conversation}", {"content": b"{", "headers": bearer}),
        ("POST", f"{conversations}/secrets", {"json": {"secrets": {"TOKEN": [SECRET]}}}),
        ("POST", f"{conversations}/secrets", {"json": {"secrets": SECRET}}),
        ("POST", "/api/v1/app-conversations", {"json": {"secrets": {"TOKEN": 1, "OTHER": SECRET}}}),
        ("POST", "/api/v1/sandboxes?sandbox_spec_id=unheard", {}),
        ("GET", "/api/nowhere", {"headers": {"X-Session-API-Key": agent_key}}),
    ]
    responses = [api.client.request(method, path, **options) for method, path, options in wrong]
    assert all(response.status_code >= 400 for response in responses), responses
    return "\n".join(response.text for response in responses)


def test_no_planted_secret_is_found_where_none_may_be(api, tmp_path):
    # Given a conversation with secrets whose agent server has crashed, and a sandbox that failed
    data = tmp_path / "data"
    start = {"sandbox_spec_id": "planted", "secrets": {"TOKEN": SECRET}}
    conversation = api.app_conversation(**start)
    sandbox_id, identity = conversation["sandbox_id"], str(UUID(conversation["id"]))
    keys = keys_of(api, data, sandbox_id)
    api.call("POST", f"/conversations/{identity}/secrets", json={"secrets": {"LATER": SECRET}})
    for agent in agents(data):
        with suppress(psutil.Error):
            agent.kill()
    wait_until(lambda: api.count(conversation["id"], kind="ConversationErrorEvent") == 1, "the note of the crash")
    keys += keys_of(api, data, sandbox_id)
    broken = api.wait_for(api.start_sandbox("broken")["id"], "ERROR")

    # Then no response has one beside the two that show the session key of a running sandbox
    planted = [SECRET_KEY, SECRET, OF_SPEC, *keys]
    shown = [
        errors(api, identity, keys[3:]),
        api.client.get("/openapi.json").text,
        api.client.get("/server_info").text,
        json.dumps(broken),
        json.dumps(api.call("GET", f"/v1/sandboxes/{sandbox_id}/logs")),
        json.dumps(api.call("GET", f"/conversations/{identity}")),
        json.dumps(api.events(conversation["id"])),
        json.dumps(api.call("GET", "/v1/app-conversations/start-tasks/search")),
    ]
    assert [(secret, text) for secret in planted for text in shown if secret in text] == []
    assert len(set(keys)) == 5  # the key of the files stays

    # And no file has one, of the server's or of a sandbox outside its work folder, and others may read none
    assert list((data / "appendonlydir").iterdir())
    assert found_in(data, planted, but="work") == []
    assert found_in(tmp_path, planted, but="data") == [f"{tmp_path}/specs.toml: {OF_SPEC[:8]}…"]
    open_to_others = [
        path
        for path in (data, *data.rglob("*"))
        if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]
    assert open_to_others == []
    api.clean()
