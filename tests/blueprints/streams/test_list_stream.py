"""What the streams of the lists tell: items as the lists have them, and no keys of sandboxes."""

import pytest

from tests.blueprints.streams import follow, until_live
from tests.conftest import message


def made(client, **members) -> str:
    return client.post("/api/conversations", json=members).raise_for_status().json()["id"]


def changed(events, identity: str) -> dict:
    """The next change of an item; those of other items are skipped."""
    return next(data for name, data, _ in events if data.get("id") == identity and name == "changed")


def items(client) -> list[dict]:
    return client.get("/api/v1/conversations/search").raise_for_status().json()["items"]


@pytest.mark.process("follows a real server")
def test_a_change_is_the_item_of_the_search_and_a_deletion_its_id(server):
    with follow(server, "conversations", "") as events:
        until_live(events)
        identity = made(server, title="Mine", tags={"team": "red"})
        server.post(f"/api/v1/webhooks/events/{identity}", json=[message("hello")]).raise_for_status()

        change = changed(events, identity)
        while change["events"] == 0:
            change = changed(events, identity)
        assert change == next(item for item in items(server) if item["id"] == identity)
        server.delete(f"/api/conversations/{identity}").raise_for_status()
        assert next(data for name, data, _ in events if name == "deleted") == {"id": identity}


@pytest.mark.process("follows a real server")
def test_the_page_that_is_read_after_ready_and_the_changes_since_miss_nothing(server):
    with follow(server, "conversations", "") as events:
        until_live(events)
        ids = [made(server, title=f"No. {number}") for number in range(5)]
        page = {item["id"] for item in items(server)}
        ids += [made(server, title=f"No. {number}") for number in range(5, 10)]

        known = set(page)
        while not set(ids) <= known:
            known.add(next(events)[1]["id"])


def test_no_stream_of_sandboxes_shows_a_key_not_even_to_those_who_may_see_it(keyed, key, keyed_store):
    keyed_store.sandboxes.beat("h", "supervisor")
    with (
        follow(keyed, "sandboxes", "", headers=key("admin")[1]) as may_see,
        follow(keyed, "sandboxes", "", headers=key()[1]) as may_not,
    ):
        until_live(may_see), until_live(may_not)
        one = keyed_store.sandboxes.start("spec")
        keyed_store.sandboxes.claim("h")
        keyed_store.sandboxes.begin(one.id, "h", "supervisor", "process")
        urls = [{"name": "AGENT_SERVER", "url": "http://agent", "port": 1}]
        keyed_store.sandboxes.report(
            one.id, "h", "supervisor", "RUNNING", handle={"pid": 1}, urls=urls, agent_url="http://a"
        )

        [shown] = keyed.get("/api/v1/sandboxes", params={"id": one.id}).json()
        assert shown["session_api_key"]
        for events in (may_see, may_not):
            item = changed(events, one.id)
            while item["status"] != "RUNNING":
                item = changed(events, one.id)
            assert item == {**shown, "session_api_key": None}
