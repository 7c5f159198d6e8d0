"""What holds for every stream of server-sent events: its text, its place, its refusals, the keys of its clients."""

import re
from contextlib import ExitStack
from uuid import uuid4

import httpx
import pytest

from tests.blueprints import away
from tests.blueprints.streams import OF_A_CONVERSATION, STREAMS, begin, change, follow, tells, until_live
from tests.servers import wait_until

EACH = pytest.mark.parametrize("name", STREAMS)

#: the place of a stream in a query
PLACE = {name: "after_seq" if name == "events" else "last_event_id" for name in STREAMS}


def path_of(name: str, conversation: str) -> str:
    return STREAMS[name].path.format(id=conversation)


# what a client gets


@pytest.mark.process("follows a real server")
@EACH
def test_a_stream_has_the_headers_and_lines_that_a_browser_expects(server, conversation, name):
    begin(server, conversation)

    with server.stream("GET", path_of(name, conversation)) as response:
        text = ""
        for line in response.iter_lines():
            text += f"{line}\n"
            if re.fullmatch(STREAMS[name].head.replace("PLACE", STREAMS[name].place), text):
                break
            assert not line.startswith(":"), text  # silence: it has sent all that it has

    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Accel-Buffering"] == "no"


@EACH
def test_a_quiet_stream_is_kept_open_by_comments(keyed, key, conversation, name):
    begin(keyed, conversation)

    with keyed.stream("GET", path_of(name, conversation), headers=key()[1]) as response:
        lines, place = response.iter_lines(), ""
        while not (line := next(lines)).startswith(":"):
            place = line.removeprefix("id: ") if line.startswith("id: ") else place

    assert re.fullmatch(STREAMS[name].place, place)
    assert line == f": {place}"  # the place after which a client that was cut off goes on


@pytest.mark.process("follows a real server")
@pytest.mark.parametrize("name", OF_A_CONVERSATION)
def test_a_stream_tells_of_a_change_and_goes_on_after_the_last_place_of_its_client(server, conversation, name):
    begin(server, conversation)
    with follow(server, name, conversation) as events:
        place = until_live(events)
        word = change(server, conversation)
        assert tells(events, word)

    for options in ({"headers": {"Last-Event-ID": place}}, {"params": {PLACE[name]: place}}):
        if name == "inbox":  # httpx drops the query of a URL for that of its options
            options.setdefault("params", {})["conversation_id"] = conversation
        with follow(server, name, conversation, **options) as events:
            assert tells(events, word)


@pytest.mark.process("follows a real server")
@pytest.mark.parametrize("place", ["headers", "params"])
@pytest.mark.parametrize("name", ["inbox", "conversations", "sandboxes"])
def test_a_client_whose_place_is_not_held_is_told_so_and_starts_over(server, conversation, name, place):
    begin(server, conversation)
    held = "1-1" if name == "inbox" else "1"

    options = {place: {"Last-Event-ID": held} if place == "headers" else {"last_event_id": held}}
    with follow(server, name, conversation, **options) as events:
        assert next(events) == ("reset", {"reason": "dropped"}, "")
        assert next(events)[0] == ("snapshot" if name == "inbox" else "ready")


@EACH
def test_an_invalid_place_is_refused(client, conversation, name):
    path = path_of(name, conversation).partition("?")[0]

    for place, options in (
        (["header", "Last-Event-ID"], {"headers": {"Last-Event-ID": "x"}}),
        (["query", PLACE[name]], {"query_string": {PLACE[name]: "x"}}),
    ):
        with client.get(path, **options) as refused:
            assert (refused.status_code, refused.get_json()["detail"][0]["loc"]) == (422, place)


# endings


@EACH
def test_a_stream_that_begins_while_the_worker_ends_asks_the_browser_to_reconnect(
    client, store, conversation, name, monkeypatch
):
    client.post("/api/conversations", json={"conversation_id": conversation})
    monkeypatch.setattr(store.streams.events, "_stopping", True)

    with client.get(path_of(name, conversation)) as response:
        assert (response.status_code, response.mimetype) == (200, "text/event-stream")
        assert response.data == b"retry: 1000\n\n"


@EACH
def test_a_store_that_is_away_refuses_a_stream_before_it_begins(conversation, name):
    with away().test_client().get(path_of(name, conversation)) as refused:
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)


@EACH
def test_a_revoked_key_ends_its_streams_and_no_other(keyed, key, conversation, name):
    begin(keyed, conversation)
    (identity, headers), (_, others) = key(), key()
    with ExitStack() as stack:
        events = stack.enter_context(follow(keyed, name, conversation, headers=headers))
        other = stack.enter_context(follow(keyed, "inbox", conversation, headers=others))
        until_live(events), until_live(other)

        keyed.delete(f"/api/v1/keys/{identity}").raise_for_status()

        assert [one for one, _, _ in events if one not in ("", "changed")] == []
        assert tells(other, change(keyed, conversation))


@pytest.mark.parametrize(("name", "another"), [("inbox", "inbox"), ("conversations", "sandboxes"), ("events", "inbox")])
def test_the_streams_of_a_key_count_together_and_a_client_that_leaves_gives_its_place_back(
    keyed, key, conversation, name, another
):
    begin(keyed, conversation)
    headers = key()[1]
    with follow(keyed, name, conversation, headers=headers) as events:
        until_live(events)
        refused = keyed.get(path_of(another, conversation), headers=headers)

    assert (refused.status_code, "MAX_FOLLOWERS_PER_KEY" in refused.json()["detail"]) == (429, True)

    def has_room():
        with follow(keyed, another, conversation, headers=headers) as again:
            return until_live(again)

    wait_until(has_room, "the place of the client that left")


@pytest.mark.parametrize("name", ["inbox", "conversations", "sandboxes"])
def test_a_ticket_without_a_conversation_opens_a_stream_of_all_once_and_nothing_else(keyed, key, conversation, name):
    begin(keyed, conversation)
    path = path_of(name, conversation).partition("?")[0]

    def ticket(**about):
        made = keyed.post("/api/v1/tickets", json=about, headers=key()[1])  # each key has a place of its own
        return {"ticket": made.raise_for_status().json()["ticket"]}

    with httpx.Client(base_url=keyed.base_url, transport=keyed._transport) as browser:
        opened = ticket()
        with browser.stream("GET", path, params=opened) as response:
            assert "event: reset" in response.iter_lines()
        assert browser.get(path, params=opened).status_code == 401
        assert browser.get(path, params=ticket(conversation_id=str(uuid4()))).status_code == 403
        assert browser.get(path_of("events", conversation), params=ticket()).status_code == 403
        assert browser.get("/api/v1/pending-actions", params=ticket()).status_code == 401
