"""The skills in an agent's context, which responses have on demand."""

import pytest

from tests.blueprints import API
from tests.conftest import limits_of, store_of
from tests.sockets import socket

AGENT = {"kind": "Agent", "agent_context": {"skills": [{"name": "s", "content": "long"}], "suffix": "x"}, "tools": []}

LIMITS = limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)


@pytest.fixture
def url(store, conversation):
    store.conversations.create(conversation, agent=AGENT)
    return f"{API}/{conversation}"


def states(client, conversation, query):
    """The state of a conversation by every operation that responds with one."""
    return {
        "start": client.post(f"{API}{query}", json={"conversation_id": conversation}).get_json(),
        "get": client.get(f"{API}/{conversation}{query}").get_json(),
        "batch": client.get(f"{API}{query or '?'}&ids={conversation}").get_json()[0],
        "search": client.get(f"{API}/search{query or '?'}&limit=1").get_json()["items"][0],
        "fork": client.post(f"{API}/{conversation}/fork{query}").get_json(),
    }


@pytest.mark.parametrize("query", ["", "?include_skills=false"])
def test_every_response_leaves_the_skills_out(client, conversation, url, query):
    for name, state in states(client, conversation, query).items():
        assert state["agent"] == {**AGENT, "agent_context": {"skills": [], "suffix": "x"}}, name


def test_every_response_has_the_skills_when_they_are_asked_for(client, conversation, url):
    for name, state in states(client, conversation, "?include_skills=true").items():
        assert state["agent"] == AGENT, name


def test_another_word_than_a_boolean_is_refused_before_anything_is_created(client, conversation):
    response = client.post(f"{API}?include_skills=perhaps", json={"conversation_id": conversation})

    assert (response.status_code, response.get_json()["detail"][0]["loc"]) == (422, ["query", "include_skills"])
    assert client.get(f"{API}/{conversation}").status_code == 404


@pytest.mark.parametrize("agent", [None, {}, {"agent_context": None}, {"agent_context": {"skills": None}}])
def test_an_agent_without_skills_is_returned_as_it_is(client, store, conversation, agent):
    store.conversations.create(conversation, agent=agent)

    assert client.get(f"{API}/{conversation}").get_json()["agent"] == agent


@pytest.mark.process("asks a real server")
def test_the_full_state_of_a_socket_leaves_the_skills_out(server, backend, conversation):
    _, url_of_store = backend
    store_of(url_of_store, LIMITS).conversations.create(conversation, agent=AGENT)

    with socket(server, conversation) as listener:
        assert listener.receive()["value"]["agent"]["agent_context"]["skills"] == []
