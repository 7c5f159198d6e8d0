"""Responses to a pause or a deletion that the supervisor has not done. Source: docs/wire.md, 9."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from blueprints import sandboxes as blueprint
from tests.agents import SPECS


@pytest.fixture
def sandbox(store, monkeypatch):
    """A sandbox that runs on a host whose supervisor does nothing; requests have a short timeout."""
    monkeypatch.setattr(blueprint, "DONE_TIMEOUT", 0.2)
    store.sandboxes.beat("idle-host", "supervisor")
    sandbox = store.sandboxes.start("spec")
    while store.sandboxes.get(sandbox.id).host != "idle-host":
        assert store.sandboxes.claim("idle-host")
    store.sandboxes.report(
        sandbox.id, "idle-host", "supervisor", "RUNNING", agent_url="http://127.0.0.1:1", urls=[], handle={}
    )
    yield sandbox
    store.sandboxes.report(sandbox.id, "idle-host", "supervisor", "GONE")


@pytest.mark.parametrize(
    ("method", "path", "said"), [("POST", "/pause", "not paused yet"), ("DELETE", "", "not deleted yet")]
)
def test_a_request_that_exceeds_its_timeout_is_503_and_continues(client, store, sandbox, method, path, said):
    response = client.open(f"/api/v1/sandboxes/{sandbox.id}{path}", method=method)

    assert response.status_code == 503
    assert said in response.json["detail"]
    assert int(response.headers["Retry-After"]) > 0
    assert store.sandboxes.get(sandbox.id).wanted in ("paused", "deleted")


def test_a_secret_with_the_way_out_is_shown_as_the_sandbox_has_it(client, store, sandbox, monkeypatch):
    model = {"LLM_MODEL": "gpt", "LLM_BASE_URL": "https://model.example", "LLM_API_KEY": "of the operator"}
    spec = replace(SPECS.all[0], id="spec", egress="named", secret_env=model)
    monkeypatch.setattr("blueprints.access.current_specs", SimpleNamespace(find=lambda _: spec))
    assert store.sandboxes.begin(sandbox.id, "idle-host", "supervisor", "process")  # makes its session key
    handle = {"egress_url": "http://127.0.0.1:1023"}
    store.sandboxes.report(
        sandbox.id, "idle-host", "supervisor", "RUNNING", agent_url="http://127.0.0.1:1", urls=[], handle=handle
    )

    shown = client.get(
        f"/api/v1/sandboxes/{sandbox.id}/settings/secrets/LLM_BASE_URL",
        headers={"X-Session-API-Key": store.sandboxes.get(sandbox.id).session_api_key},
    )

    assert (shown.status_code, shown.get_data(as_text=True)) == (200, "http://127.0.0.1:1023/model")


def test_a_failed_deletion_reports_its_reason_and_shows_an_error_without_a_key(client, store, sandbox):
    client.delete(f"/api/v1/sandboxes/{sandbox.id}")
    store.sandboxes.report(
        sandbox.id, "idle-host", "supervisor", "ERROR", detail="Its deletion fails and is retried: no way"
    )

    assert "no way" in client.delete(f"/api/v1/sandboxes/{sandbox.id}").json["detail"]
    [shown] = client.get(f"/api/v1/sandboxes?id={sandbox.id}").json
    assert (shown["status"], shown["session_api_key"]) == ("ERROR", None)


def listed(client, sandbox, query="limit=100") -> bool:
    return sandbox.id in [one["id"] for one in client.get(f"/api/v1/sandboxes/search?{query}").json["items"]]


def test_a_sandbox_that_is_being_deleted_is_in_no_list_and_shows_no_key(client, store, sandbox, conversation):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    assert listed(client, sandbox, "status__eq=RUNNING&sandbox_spec_id__eq=spec")
    changes = partial(store.streams.sandboxes._scripts.read_list_changes, "{sandboxes}", number=0, most=1)
    after = changes().last

    store.sandboxes.ask(sandbox.id, "delete")

    for query in ("limit=100", "status__eq=RUNNING", "sandbox_spec_id__eq=spec&status__eq=RUNNING"):
        assert not listed(client, sandbox, query)
    assert store.sandboxes.listed([sandbox.id]) == [None]
    assert changes().last > after
    [shown] = client.get(f"/api/v1/sandboxes?id={sandbox.id}").json
    assert (shown["session_api_key"], shown["exposed_urls"]) == (None, None)
    assert shown["status_detail"] == "It is being deleted"
    [of_it] = client.get(f"/api/v1/app-conversations?ids={conversation}").json
    assert (of_it["sandbox_status"], of_it["session_api_key"], of_it["conversation_url"]) == ("MISSING", None, None)


def test_a_page_of_sandboxes_is_full_where_others_are_being_deleted(client, store, sandbox):
    store.sandboxes.beat("idle-host", "supervisor")
    newer = [store.sandboxes.start("spec") for _ in range(3)]
    while any(not store.sandboxes.get(one.id).host for one in newer):
        assert store.sandboxes.claim("idle-host")
    for one in newer:
        store.sandboxes.ask(one.id, "delete")

    page = client.get("/api/v1/sandboxes/search?limit=1").json

    assert [one["id"] for one in page["items"]] == [sandbox.id]
    for one in newer:
        store.sandboxes.report(one.id, "idle-host", "supervisor", "GONE")


def test_a_sandbox_whose_deletion_fails_is_listed_again(client, store, sandbox):
    store.sandboxes.report(sandbox.id, "idle-host", "supervisor", "ERROR")
    store.sandboxes.ask(sandbox.id, "delete")
    assert not listed(client, sandbox)

    store.sandboxes.report(sandbox.id, "idle-host", "supervisor", "ERROR", detail="Its deletion fails")

    assert listed(client, sandbox, "status__eq=ERROR")


@pytest.mark.parametrize("status", ["ERROR", "MISSING"])
def test_a_pause_of_a_sandbox_that_ends_meanwhile_is_409(client, store, sandbox, monkeypatch, status):
    def end(*_):
        monkeypatch.undo()  # what reports waits too, for a turn
        store.sandboxes.report(sandbox.id, "idle-host", "supervisor", status)

    monkeypatch.setattr("store.sandboxes.sandboxes.time.sleep", end)
    response = client.post(f"/api/v1/sandboxes/{sandbox.id}/pause")

    assert response.status_code == 409
    assert status in response.json["detail"]
