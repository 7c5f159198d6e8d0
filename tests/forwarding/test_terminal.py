"""A terminal in a real sandbox, over /sockets/terminals: who may open it, what it does, what the audit has of it."""

import json
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.servers import TIMEOUT, supervised_server, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts a whole server and a sandbox")

KEY = "the-first-key-of-the-settings"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server with a key, and a conversation in its sandbox."""
    settings = {"SESSION_API_KEY": KEY, "WEB_CONCURRENCY": "2"}
    with supervised_server(tmp_path_factory.mktemp("terminals"), **settings) as (client, _):
        client.headers["X-Session-API-Key"] = KEY
        yield client, WireApi(client).app_conversation(title="Shown")["id"]


@contextmanager
def terminal(client, conversation, query="", key=""):
    address = f"{str(client.base_url).replace('http', 'ws').rstrip('/')}/sockets/terminals/{conversation}{query}"
    headers = {"X-Session-API-Key": key} if key else {}
    with connect(address, additional_headers=headers, open_timeout=TIMEOUT, close_timeout=1) as connection:
        yield connection


def ticket(client, conversation, *scopes):
    body = {"conversation_id": conversation, "scopes": scopes or ("write", "approve")}
    return "?ticket=" + client.post("/api/v1/tickets", json=body).raise_for_status().json()["ticket"]


def reads(connection, wanted):
    found = b""
    while wanted not in found:
        found += connection.recv(TIMEOUT)
    return found


def end_of(connection):
    try:
        while True:
            connection.recv(TIMEOUT)
    except ConnectionClosed as end:
        return end.rcvd.code, end.rcvd.reason


def test_a_ticket_opens_one_terminal_which_is_audited(whole):
    client, conversation = whole
    query = ticket(client, conversation)

    with terminal(client, conversation, query) as one:
        one.send(json.dumps({"cols": 77, "rows": 33}))
        one.send(json.dumps({"input": "stty size; echo $((6*7))-\r"}))
        reads(one, b"42-")
        one.send(json.dumps({"input": "exit\r"}))
        assert end_of(one) == (1000, "The shell has ended")

    with pytest.raises(InvalidStatus), terminal(client, conversation, query):
        pass

    def audited():
        return client.get(f"/api/v1/conversation/{conversation}/audit").json()["items"]

    wait_until(lambda: len(audited()) == 2, "both entries")
    opened, closed = audited()
    assert (opened["decision"], closed["decision"]) == ("terminal_opened", "terminal_closed")
    assert opened["actor"]["kind"] == "key"
    assert opened["action_ids"] == opened["digests"] == []
    assert closed["previous"] == opened["hash"]


def test_a_key_with_write_alone_gets_no_terminal_and_a_sentence(whole):
    client, conversation = whole
    key = client.post("/api/v1/keys", json={"name": "writer", "scopes": ["write"]}).json()["key"]

    with terminal(client, conversation, key=key) as one:
        code, reason = end_of(one)
    assert code == 1008
    assert "scopes write and approve" in reason


@pytest.mark.parametrize("scope", ["approve", "read"])
def test_a_key_without_write_is_refused_before_the_socket(whole, scope):
    client, conversation = whole
    key = client.post("/api/v1/keys", json={"name": "short", "scopes": [scope]}).json()["key"]

    with pytest.raises(InvalidStatus) as refused, terminal(client, conversation, key=key):
        pass
    assert refused.value.response.status_code == 403


def test_a_message_that_is_neither_text_nor_a_size_ends_the_terminal(whole):
    client, conversation = whole
    for sent in ({}, {"input": "x" * 4097}, {"cols": 0, "rows": 9}, {"input": "x", "cols": 9, "rows": 9}, [1]):
        with terminal(client, conversation, ticket(client, conversation)) as one:
            one.send(json.dumps(sent))
            assert end_of(one)[0] == 1008, sent


def test_a_conversation_without_a_sandbox_says_so(whole):
    client, _ = whole
    detached = client.post("/api/conversations", json={}).json()["id"]

    with terminal(client, detached, ticket(client, detached)) as one:
        code, reason = end_of(one)
    assert code == 1008
    assert "no sandbox" in reason
