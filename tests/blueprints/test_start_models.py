"""The model that a start asks for: one that the bundled agent cannot use is refused, any other reaches it."""

from uuid import uuid4

import pytest

from agents.starts import template_of
from core.wire import ConversationId
from settings.specs import Specs
from tests.apps import serve_with

APPS = "/api/v1/app-conversations"


@pytest.fixture(autouse=True)
def host(store):
    """A host without a supervisor: a start waits."""
    store.sandboxes.beat("h", "supervisor")


def test_a_model_of_a_start_is_refused_where_the_agent_has_none(client, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", "")
    serve_with(monkeypatch, client.application, specs=Specs.load(""))

    response = client.post(APPS, json={"llm_model": "gpt-9"})

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == ["body", "llm_model"]
    assert "LLM_MODEL=… LLM_API_KEY=…" in fault["msg"]
    assert "`run: `" in fault["msg"]
    assert client.post(APPS, json={}).status_code == 200


def test_a_model_is_refused_in_a_sandbox_and_below_a_parent_whose_agent_has_none(client, store, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", "")
    serve_with(monkeypatch, client.application, specs=Specs.load(""))
    sandbox = store.sandboxes.start("reference-agent", host="h")
    parent = ConversationId(str(uuid4()))
    store.conversations.create(parent, sandbox_id=sandbox.id)

    for place in ({"sandbox_id": sandbox.id}, {"parent_conversation_id": parent}):
        response = client.post(APPS, json={"llm_model": "gpt-9", **place})
        assert response.status_code == 422, place
        assert response.get_json()["detail"][0]["loc"] == ["body", "llm_model"]
        assert client.post(APPS, json=place).status_code == 200
    for place in ({"sandbox_id": "none"}, {"parent_conversation_id": str(uuid4())}):
        assert client.post(APPS, json={"llm_model": "gpt-9", **place}).status_code == 200  # its start fails by itself


def test_a_model_of_a_start_is_used_where_the_agent_has_one(client, store, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", "gpt-8")
    serve_with(monkeypatch, client.application, specs=(specs := Specs.load("")))

    assert client.post(APPS, json={"llm_model": "gpt-9"}).status_code == 200

    sandbox = store.sandboxes.start("reference-agent", host="h")
    assert template_of(specs.get(None), sandbox, "gpt-9")["agent"] == {"llm": {"model": "gpt-9"}}
    assert "agent" not in template_of(specs.get(None), sandbox)
