"""Responses to a pause or a deletion that the supervisor has not done. Source: docs/wire.md, 9."""

import pytest

from blueprints import sandboxes as blueprint


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


def test_a_failed_deletion_reports_its_reason_and_shows_an_error_without_a_key(client, store, sandbox):
    client.delete(f"/api/v1/sandboxes/{sandbox.id}")
    store.sandboxes.report(
        sandbox.id, "idle-host", "supervisor", "ERROR", detail="Its deletion fails and is retried: no way"
    )

    assert "no way" in client.delete(f"/api/v1/sandboxes/{sandbox.id}").json["detail"]
    [shown] = client.get(f"/api/v1/sandboxes?id={sandbox.id}").json
    assert (shown["status"], shown["session_api_key"]) == ("ERROR", None)


@pytest.mark.parametrize("status", ["ERROR", "MISSING"])
def test_a_pause_of_a_sandbox_that_ends_meanwhile_is_409(client, store, sandbox, monkeypatch, status):
    def end(*_):
        monkeypatch.undo()  # what reports waits too, for a turn
        store.sandboxes.report(sandbox.id, "idle-host", "supervisor", status)

    monkeypatch.setattr("store.sandboxes.sandboxes.time.sleep", end)
    response = client.post(f"/api/v1/sandboxes/{sandbox.id}/pause")

    assert response.status_code == 409
    assert status in response.json["detail"]
