"""DURABILITY as an operator meets it: refused values, what the start prints, the embedded store."""

import os
import subprocess
import sys

import pytest

from app import create_app
from core.approvals import action_digest, shown_arguments
from settings import ConfigError
from settings.config import Config
from tests.conftest import SECRET_KEY, action, message
from tests.servers import PROJECT, agent_server, store_server, valkey_program, wait_until
from tests.sockets import socket


def test_another_value_is_refused_with_a_sentence_that_names_the_allowed_ones():
    for value in ("always", "FSYNC", "replicas", "replicas:", "replicas:0", "replicas:100", "replicas:-1"):
        with pytest.raises(ConfigError) as refused:
            Config.of(durability=value)

        assert str(refused.value) == f"DURABILITY must be fsync, none or replicas:N with N from 1 to 99, not {value!r}"


@pytest.mark.process("starts a program")
def test_a_server_does_not_start_with_another_value():
    ended = subprocess.run(
        [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"],
        cwd=PROJECT,
        env={**os.environ, "DURABILITY": "always"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode != 0
    assert (
        "agent-server: DURABILITY must be fsync, none or replicas:N with N from 1 to 99, not 'always'" in ended.stderr
    )


LACKS = pytest.mark.parametrize(
    ("durability", "words"),
    [
        ("fsync", "DURABILITY=fsync does not hold: appendfsync is everysec."),
        ("replicas:1", "DURABILITY=replicas:1 does not hold: 0 replicas are connected and up to date."),
    ],
)


@LACKS
def test_an_app_whose_store_lacks_something_is_not_ready(redis_url, durability, words):
    refused = create_app(Config.of(redis_url=redis_url, durability=durability)).test_client().get("/ready")

    assert (refused.status_code, words in refused.get_json()["detail"]) == (503, True)


@pytest.mark.process("starts a server")
@LACKS
def test_the_start_prints_what_the_store_lacks_and_the_server_is_not_ready(tmp_path, conversation, durability, words):
    with (
        store_server(tmp_path) as (url, _),
        agent_server(tmp_path / "log", REDIS_URL=url, DURABILITY=durability) as (client, _),
    ):
        assert words in (tmp_path / "log").read_text()
        refused = client.get("/ready")
        assert (refused.status_code, words in refused.json()["detail"]) == (503, True)
        append = client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("early")])
        assert (append.status_code, append.headers["Retry-After"]) == (503, "1")


@pytest.mark.process("starts a server with an embedded store")
@pytest.mark.parametrize(("setting", "told"), [("", "fsync"), ("none", "none")])
def test_the_embedded_store_syncs_unless_the_setting_says_that_nobody_asks(tmp_path, conversation, setting, told):
    valkey_program()
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "DURABILITY": setting}
    with agent_server(tmp_path / "log", **environment) as (client, _):
        wait_until(lambda: client.get("/ready").status_code == 200, "the store")
        assert client.get("/ready").json()["store"]["durability"] == told
        assert client.get("/server_info").json()["notice"] is None
        assert client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("kept")]).status_code == 200


@pytest.fixture
def unsynced(redis_url, client, conversation):
    """The URL of a Redis that syncs once a second, where a conversation waits for a decision; its action."""
    policy = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert client.post("/api/conversations", json=policy).status_code == 201
    proposed = action()
    assert client.post(f"/api/v1/webhooks/events/{conversation}", json=[proposed]).status_code == 200
    return redis_url, proposed


@pytest.mark.process("starts a server")
def test_a_message_over_a_socket_that_is_not_known_to_be_kept_is_answered_so(tmp_path, conversation, unsynced):
    url, _ = unsynced
    with (
        agent_server(tmp_path / "log", REDIS_URL=url, DURABILITY="fsync", AUTH="open") as (client, _),
        socket(client, conversation) as listener,
    ):
        listener.receive()
        listener.send({"role": "user", "content": [{"type": "text", "text": "hello"}]})

        [*_, refusal] = listener.receive_until(kind="ServerErrorEvent")
        assert "appendfsync is everysec" in refusal["detail"]
        assert "It may have happened" in refusal["detail"]


def test_the_page_of_a_link_says_that_a_decision_may_have_been_taken(conversation, unsynced):
    url, proposed = unsynced
    app = create_app(Config.of(redis_url=url, durability="fsync", secret_key=SECRET_KEY, public_url="http://localhost"))
    digest = action_digest(proposed["tool_name"], shown_arguments(proposed["action"]))
    link = app.extensions["server"].links.make(conversation, proposed["id"], digest, "the team's chat")

    page = app.test_client().post(link.removeprefix("http://localhost"), data={"decision": "approve"})

    assert (page.status_code, page.headers["Retry-After"]) == (503, "1")
    assert "Redis cannot say that it is kept. If you have sent a decision" in page.get_data(as_text=True)
