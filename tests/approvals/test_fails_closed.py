"""ADR 0030: every timeout and every restart fails closed. docs/approvals.md names these tests."""

import pytest

from tests.approvals import DecidedConversation, decision
from tests.conftest import action
from tests.servers import agent_server, store_server, wait_until


@pytest.mark.parametrize(
    ("path", "body"), [("events/respond_to_confirmation", {"accept": True}), ("run", None)], ids=["accept", "run"]
)
def test_a_decision_after_the_deadline_approves_nothing(house, conversation, path, body):
    held = DecidedConversation(house.one, conversation, confirmation_seconds=1)
    act = action("too late")
    held.appends(act)
    house.lapse(held, act)

    response = held.decides(decision(act))
    assert response.status_code == 409
    assert response.json()["problems"][0]["problem"] in ("expired", "not_pending")  # the server may have rejected it

    house.two.post(f"/api/conversations/{conversation}/{path}", json=body)
    assert (held.pending, held.approved) == ([], [])
    [entry] = held.entries
    assert (entry["decision"], entry["actor"]["kind"]) == ("reject", "expiry")


@pytest.mark.faults("kills a server and its store, and starts both again")
def test_what_waits_still_waits_after_the_server_and_the_store_were_killed(tmp_path, conversation):
    with store_server(tmp_path) as (url, store), agent_server(tmp_path / "log", REDIS_URL=url) as (client, server):
        held = DecidedConversation(client, conversation)
        first, second = action("one"), action("two")
        held.appends(first, second)
        held.decides(decision(first))
        before = held.lines
        server.kill()
        store.kill()
        store.wait()
        server.wait()
    with store_server(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        held.server = client
        assert (held.status, held.pending) == ("waiting_for_confirmation", [second["id"]])
        assert held.lines == before
        assert held.decides(decision(second, "reject")).status_code == 200
        assert [one["decision"] for one in held.entries] == ["approve", "reject"]


@pytest.mark.faults("kills the store of a server of its own")
def test_nothing_is_approved_while_the_store_is_away(tmp_path, conversation):
    with store_server(tmp_path) as (url, store), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        held = DecidedConversation(client, conversation)
        act = action()
        held.appends(act)
        store.kill()
        store.wait()
        assert held.decides(decision(act)).status_code == 503
        with store_server(tmp_path):
            wait_until(lambda: held.pending == [act["id"]], "the store")
            assert (held.approved, held.lines) == ([], [])
