"""What an agent says that it is capable of: single decisions, edited arguments. Source: docs/agents.md"""

import pytest

from schemas.conversations import ConversationReport
from tests.blueprints import API
from tests.conftest import as_events, event, message

APP = "/api/v1/app-conversations"


def post(store, conversation, *events, **members):
    return store.events.append(conversation, as_events(events), **members)


def capabilities(client, conversation):
    return client.get(f"{API}/{conversation}").get_json()["capabilities"]


def said(value, key="capabilities"):
    return event("ConversationStateUpdateEvent", "environment", key=key, value=value)


def test_an_agent_says_what_it_is_capable_of_by_an_event_or_in_a_full_state(client, store, conversation):
    post(store, conversation, message("hello"))
    assert capabilities(client, conversation) == []

    post(store, conversation, said(["decide_each", "edit"]))
    assert capabilities(client, conversation) == ["decide_each", "edit"]
    stored = store.conversations._redis.hget(f"conv:{{{conversation}}}", "told.capabilities")
    assert stored == b'["decide_each", "edit"]'

    post(store, conversation, said({"capabilities": ["edit"]}, "full_state"))
    assert capabilities(client, conversation) == ["edit"]
    post(store, conversation, said([]))
    assert capabilities(client, conversation) == []


UNFIT = [None, "edit", {"edit": 1}, ["x"] * 17, ["x" * 65], [""], ["a b"], [5], [None], [["edit"]], ["\ud800"], ["é"]]


@pytest.mark.parametrize("unfit", UNFIT, ids=lambda unfit: repr(unfit)[:20])
def test_capabilities_of_another_shape_change_nothing(client, store, conversation, sandbox, unfit):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    post(store, conversation, said(["edit"]), sandbox_id=sandbox.id)

    post(store, conversation, said(unfit), said({"capabilities": unfit}, "full_state"), sandbox_id=sandbox.id)

    assert capabilities(client, conversation) == ["edit"]


@pytest.mark.parametrize("reported", [["decide_each"], *UNFIT], ids=lambda unfit: repr(unfit)[:20])
def test_the_report_of_an_agent_server_has_capabilities_too(client, store, conversation, sandbox, reported):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    told = ConversationReport().load({"id": conversation, "capabilities": reported, "max_iterations": 5})

    store.conversations.in_sandboxes.report(sandbox.id, conversation, told)

    assert capabilities(client, conversation) == (reported if reported == ["decide_each"] else [])
    assert client.get(f"{API}/{conversation}").get_json()["max_iterations"] == 5
    [shown] = client.get(f"{APP}?ids={conversation}").get_json()
    assert shown["capabilities"] == capabilities(client, conversation)


def test_a_detached_copy_has_no_capabilities_until_its_agent_says_some(client, store, conversation):
    post(store, conversation, message("hello"), said(["edit"]))

    copy = store.conversations.forks.fork(conversation)

    assert capabilities(client, copy) == []
    assert capabilities(client, conversation) == ["edit"]
