"""Starts of the Python client: they wait for a place, and a refused one has a status and words."""

import httpx
import pytest
from agent_server_client import AgentServerError
from agent_server_client.cli.conversations import _without_model

from tests.client.responses import responding

_ID = "00000000-0000-4000-8000-000000000000"
_NO_PLACE = "All 20 places are taken: the start waits for one"


def task(status: str, **members) -> dict:
    known = {"id": "t", "status": status, "detail": None, "app_conversation_id": None, "sandbox_id": None}
    return {**known, **members}


def answered(*tasks: dict) -> list[httpx.Response]:
    """The response to a start, and those to the polls after it."""
    first, *others = tasks
    return [httpx.Response(200, json=first), *(httpx.Response(200, json=[one]) for one in others)]


READY = task("READY", app_conversation_id=_ID)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("agent_server_client._sync._POLL", 0.0)


def test_a_start_that_is_refused_for_want_of_a_place_is_asked_for_again():
    later = httpx.Response(429, headers={"Retry-After": "0"}, json={"detail": _NO_PLACE})
    client, requests = responding(later, later, *answered(READY), retry_seconds=0.0)
    seen = []

    conversation = client.start("go", on_progress=lambda one: seen.append((one.status, one.detail)))

    assert (conversation.id, conversation.turn.message, len(requests)) == (_ID, "go", 3)
    assert seen == [("WAITING_FOR_SANDBOX", _NO_PLACE)] * 2 + [("READY", None)]


def test_a_start_that_waits_for_a_place_is_followed_however_short_its_own_time_is():
    waits = task("WAITING_FOR_SANDBOX", detail=_NO_PLACE)
    client, _ = responding(*answered(waits, waits, READY))
    seen = []

    assert client.start("go", seconds=0.0, on_progress=lambda one: seen.append(one.detail)).id == _ID
    assert seen == [_NO_PLACE, None]


def test_no_place_fails_at_once_where_nobody_wants_to_wait():
    refused = httpx.Response(429, headers={"Retry-After": "0"}, json={"detail": _NO_PLACE})
    client, requests = responding(refused)

    with pytest.raises(AgentServerError, match=_NO_PLACE) as error:
        client.start("go", place_seconds=0)
    assert (error.value.status, error.value.retry_after, len(requests)) == (429, 0.0, 1)


def test_a_start_is_ended_that_has_waited_long_enough():
    waits = task("WAITING_FOR_SANDBOX", detail=_NO_PLACE)
    client, requests = responding(*answered(waits), httpx.Response(200, json=waits))

    with pytest.raises(AgentServerError, match="Give a larger place_seconds") as error:
        client.start("go", place_seconds=0)
    assert error.value.status == 429
    assert (requests[-1].method, requests[-1].url.path) == ("DELETE", "/api/v1/app-conversations/start-tasks/t")


@pytest.mark.parametrize(("members", "status"), [({"failure_status": 422}, 422), ({}, 502)])
def test_a_failed_start_has_the_status_of_its_cause(members, status):
    client, _ = responding(*answered(task("ERROR", detail="No such model", **members)))

    with pytest.raises(AgentServerError, match=f"{status}: No such model") as error:
        client.start("go")
    assert error.value.status == status


def test_a_start_that_is_too_slow_has_a_status():
    client, _ = responding(*answered(task("WORKING")))

    with pytest.raises(AgentServerError, match="takes longer than 0 s, and continues") as error:
        client.start("go", seconds=0.0)
    assert error.value.status == 504


def spec(identity: str, **environment: str) -> dict:
    return {"id": identity, "agent": {"name": identity, "title": identity}, "initial_env": environment}


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([spec("reference-agent")], "Its operator sets LLM_MODEL and LLM_API_KEY"),
        ([spec("reference-agent"), spec("claude", LLM_MODEL="sonnet")], "Others have their own: claude."),
        ([{**spec("old", LLM_MODEL="gpt"), "agent": None}], "Its operator sets LLM_MODEL"),
    ],
    ids=["no other", "another", "an older server"],
)
def test_a_person_whose_agent_has_no_model_is_told_which_others_have_one(specs, words):
    client, _ = responding(httpx.Response(200, json={"items": specs, "next_page_id": None}))

    assert words in _without_model(client)
