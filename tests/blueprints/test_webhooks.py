"""Appending by webhook: all or nothing, once per id, as it came."""

import io
import json
from itertools import product
from threading import Semaphore
from uuid import uuid4

import pytest

from blueprints import webhooks
from core.wire import MOST_EVENT_BYTES
from tests.conftest import action, event, message, status


@pytest.fixture
def url(conversation):
    return f"/api/v1/webhooks/events/{conversation}"


@pytest.fixture
def events_url(conversation):
    return f"/api/conversations/{conversation}/events"


def refused(client, url, body) -> list[dict]:
    """Post an invalid batch; returns the faults of the response."""
    response = client.post(
        url, data=body if isinstance(body, bytes) else json.dumps(body), content_type="application/json"
    )
    assert response.status_code == 422
    return response.get_json()["detail"]


def test_an_unknown_conversation_is_created(client, url, events_url, conversation):
    assert client.get(f"/api/conversations/{conversation}").status_code == 404

    response = client.post(url, json=[event(), event()])

    assert (response.status_code, response.get_json()) == (200, {"success": True, "appended": 2, "seq": 2})
    assert client.get(f"{events_url}/count").get_json() == 2
    assert client.get(f"/api/conversations/{conversation}").get_json()["execution_status"] == "idle"


def test_the_id_may_lack_dashes(client, url, events_url):
    assert client.post(url.replace("-", ""), json=[event()]).status_code == 200

    assert client.get(f"{events_url}/count").get_json() == 1


def test_repeated_ids_are_accepted_and_change_nothing(client, url, events_url):
    first, second = event(), event()
    client.post(url, json=[first, first])

    again = client.post(url, json=[{**first, "source": "agent"}, second])

    assert again.get_json() == {"success": True, "appended": 1, "seq": 2}
    assert client.get(f"{events_url}/search").get_json()["items"] == [first, second]
    assert client.get(f"{events_url}/count?source=agent").get_json() == 0


def test_five_hundred_events_are_a_batch_and_one_more_is_not(client, url, events_url):
    assert client.post(url, json=[event() for _ in range(500)]).get_json()["appended"] == 500

    [fault] = refused(client, url, [event() for _ in range(501)])

    assert (fault["loc"], fault["type"]) == (["body"], "too_long")
    assert client.get(f"{events_url}/count").get_json() == 500


def test_faults_of_events_are_named_and_nothing_is_kept(client, url, conversation):
    lacking = event()
    del lacking["kind"]

    faults = refused(client, url, [event(), lacking, {**event(), "id": ""}])

    assert faults[0] == {"loc": ["body", 1, "kind"], "msg": "Field required", "type": "missing"}
    assert (faults[1]["loc"], faults[1]["type"]) == (["body", 2, "id"], "string_too_short")
    assert client.get(f"/api/conversations/{conversation}").status_code == 404


def test_odd_kinds_and_sources_are_matched_literally(client, url, events_url):
    names = ["a:b", "{x}", "*", "%3A", "ünï", "部署", "x" * 128, "a\x00b", "conv:{1}:log"]
    for name in names:
        client.post(url, json=[event(name, "user"), event("PauseEvent", name), event("PauseEvent", "user")])

    for name in names:
        assert client.get(f"{events_url}/count", query_string={"kind": name}).get_json() == 1
        assert client.get(f"{events_url}/count", query_string={"source": name}).get_json() == 1
    assert client.get(f"{events_url}/count").get_json() == 3 * len(names)


@pytest.mark.parametrize(
    "raw",
    [
        b'{ "id":"ID" ,"kind":"X","source":"s","timestamp":"2026-11-20",  "n": 1.00, "e": 1e2, "z": 1E400}',
        b'{"timestamp":"2026-11-20","source":"s","kind":"a.b.X","id":"ID","big":123456789012345678901234567890}',
        b'{"id":"ID","kind":"X","source":"s","timestamp":"2026-11-20","t":"\\u0000\\ud83d\\ude00\\ud800 \\/ \\u00e9"}',
        '{"id":"ID","kind":"X","source":"s","timestamp":"2026-11-20","t":"😀 é 部署"}'.encode(),
        b'{"id":"ID","kind":"X","source":"s","timestamp":"2026-11-20","none":null,"empty":[],"o":{},"o":1}',
    ],
)
def test_an_event_is_returned_byte_for_byte(client, url, events_url, raw):
    raw = raw.replace(b"ID", uuid4().hex.encode())
    identity = json.loads(raw)["id"]
    client.post(url, data=b" [\n" + raw + b"\t]\n", content_type="application/json")

    assert client.get(f"{events_url}/{identity}").get_data() == raw
    assert client.get(f"{events_url}/search").get_data() == b'{"items":[' + raw + b'],"next_page_id":null}'
    assert client.get(f"{events_url}?event_ids={identity}").get_data() == b"[" + raw + b"]"


@pytest.mark.parametrize("text", ["a\x00b", "😀", "\ud800 lone", "\udfff", "İ"])
def test_any_text_can_be_kept_and_found(client, url, events_url, text):
    client.post(url, json=[message(f"before {text} after")])

    assert client.get(f"{events_url}/count?body=AFTER").get_json() == 1
    [found] = client.get(f"{events_url}/search").get_json()["items"]
    assert found["llm_message"]["content"][0]["text"] == f"before {text} after"


def test_the_largest_event_is_kept_and_a_longer_event_is_refused(client, url, events_url):
    frame = len(json.dumps(event(text="")))
    assert client.post(url, json=[event(text="x" * (MOST_EVENT_BYTES - frame))]).status_code == 200

    [fault] = refused(client, url, [event(), event(text="x" * (MOST_EVENT_BYTES - frame + 1))])

    assert (fault["loc"], fault["type"]) == (["body", 1], "too_long")
    assert client.get(f"{events_url}/count").get_json() == 1


ODD = [
    {"timestamp": "0001-01-01T00:00:00+23:59"},
    {"timestamp": "9999-12-31T23:59:59-23:59"},
    {"action": {"kind": ["x"]}, "security_risk": {}, "tool_name": 5, "tool_call_id": [], "llm_response_id": {}},
    {"action": "text"},
    {"action": []},
    {"llm_message": 7, "extended_content": 7, "key": {}, "value": float("1e308")},
]


def test_members_of_any_shape_are_kept(client, url, events_url):
    client.post(url, json=[status("waiting_for_confirmation")])
    kinds = ("ActionEvent", "ObservationEvent", "AgentErrorEvent", "MessageEvent")
    sent = [{**event(kind, "agent", action={"kind": "X"}), **odd} for kind, odd in product(kinds, ODD)]

    for one in sent:
        assert client.post(url, json=[one]).get_json()["appended"] == 1

    assert [client.get(f"{events_url}/{one['id']}").get_json() for one in sent] == sent
    pending = client.get(events_url.replace("/events", "/pending_actions")).get_json()
    assert [one["id"] for one in pending] == [one["id"] for one in sent if one["kind"] == "ActionEvent"]


def test_a_number_too_large_for_a_float_is_never_returned_as_infinity(client, url, conversation):
    raw = b'[{"id":"a","kind":"ActionEvent","source":"agent","timestamp":"2026-11-20","action":{"n":1e999}},'
    raw += b'{"id":"b","kind":"ConversationStateUpdateEvent","source":"s","timestamp":"2026-11-20","key":"stats",'
    raw += b'"value":{"n":-1e999}},'
    raw += b'{"id":"c","kind":"ConversationStateUpdateEvent","source":"s","timestamp":"2026-11-20",'
    raw += b'"key":"execution_status","value":"waiting_for_confirmation"}]'

    assert client.post(url, data=raw, content_type="application/json").status_code == 200

    for path in ("", "/pending_actions", "/events/search"):
        body = client.get(f"/api/conversations/{conversation}{path}").get_data()
        assert b"1e999" in body
        assert b"Infinity" not in body


def test_a_body_of_too_many_levels_is_refused(client, url):
    [fault] = refused(client, url, b"[" * 100_000 + b"]" * 100_000)

    assert fault["type"] == "json_invalid"
    assert "64 levels" in fault["msg"]


def test_a_body_of_ten_megabytes_is_413(client, url):
    response = client.post(url, data=b"[" + b" " * 10_000_000, content_type="application/json")

    assert response.status_code == 413
    assert response.get_json() == {"detail": "The body is longer than 8388608 bytes"}


def test_a_repeated_id_in_a_batch_counts_once_and_the_first_event_stays(client, url, events_url):
    first = event()

    response = client.post(url, json=[first, {**first, "kind": "Other"}, event(), first])

    assert response.get_json() == {"success": True, "appended": 2, "seq": 2}
    assert client.get(f"{events_url}/{first['id']}").get_json() == first
    assert client.get(f"{events_url}/count?kind=Other").get_json() == 0


def test_a_batch_that_is_sent_again_leaves_the_conversation_unchanged(client, url, conversation):
    # Given a conversation with one event
    batch = [event()]
    client.post(url, json=batch)
    before = client.get(f"/api/conversations/{conversation}").get_json()

    # When the agent, which received no response, sends the batch again
    client.post(url, json=batch)

    # Then the conversation is unchanged, its `updated_at` included
    assert client.get(f"/api/conversations/{conversation}").get_json() == before


def test_kinds_and_sources_that_join_to_the_same_text_stay_distinct(client, url, events_url):
    pairs = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("{a", "b}"), ("*", "*"), ("a b", "ä"), ("a", "b")]
    client.post(url, json=[event(kind, source) for kind, source in pairs])

    for kind, source in pairs:
        query = {"kind": kind, "source": source}
        assert client.get(f"{events_url}/count", query_string=query).get_json() == 1
        [found] = client.get(f"{events_url}/search", query_string=query).get_json()["items"]
        assert (found["kind"], found["source"]) == (kind, source)
    assert client.get(f"{events_url}/count", query_string={"kind": "a"}).get_json() == 2


def test_the_names_of_an_event_are_counted_in_characters(client, url, events_url):
    longest = {name: f"{name}{uuid4().hex}".ljust(128, "😀") for name in ("id", "kind", "source")}

    assert client.post(url, json=[event(**longest)]).status_code == 200

    [found] = client.get(f"{events_url}/search", query_string={"kind": longest["kind"]}).get_json()["items"]
    assert {name: found[name] for name in longest} == longest
    assert client.get(events_url, query_string={"event_ids": longest["id"]}).get_json() == [found]


def test_a_body_other_than_json_is_refused(client, url, conversation):
    [fault] = refused(client, url, b'["\xff"]')

    assert (fault["loc"], fault["type"]) == (["body"], "json_invalid")
    assert client.get(f"/api/conversations/{conversation}").status_code == 404


def test_an_invalid_event_after_valid_ones_refuses_the_whole_batch(client, url, conversation):
    good = json.dumps(event()).encode()

    [fault] = refused(client, url, b"[" + good + b"," + good + b",}]")

    assert fault["type"] == "json_invalid"
    assert client.get(f"/api/conversations/{conversation}").status_code == 404


def test_a_batch_needs_a_json_content_type(client, url):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None):
        response = client.post(url, data=json.dumps([event()]), content_type=content_type)
        assert response.status_code == 415, content_type
        assert "application/json" in response.get_json()["detail"]
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"):
        response = client.post(url, data=json.dumps([event()]), content_type=content_type)
        assert response.status_code == 200, content_type


def test_brackets_in_text_are_no_nesting(client, url, events_url):
    one = event(text="[{" * 1000)

    assert client.post(url, json=[one]).status_code == 200

    assert client.get(f"{events_url}/{one['id']}").get_json() == one


def test_events_of_the_server_have_a_seq_too(client, url, events_url, conversation):
    policy = {"kind": "AlwaysConfirm"}
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": policy})

    response = client.post(url, json=[action()])

    assert response.get_json() == {"success": True, "appended": 1, "seq": 2}
    assert client.get(f"{events_url}/count").get_json() == 2


class UnreadableBody(io.BytesIO):
    """A body that fails the test when the server reads it."""

    def read(self, *_):
        raise AssertionError("the body was read")

    readinto = readline = read


UNKNOWN_KEYS = [
    ("/events/{conversation}", "no sandbox's"),
    ("/some-sandbox/events/{conversation}", "no sandbox's"),
    ("/some-sandbox/events/{conversation}", None),
    ("/conversations", "no sandbox's"),
    ("/conversations", None),
    ("/some-sandbox/conversations", None),
]


def test_a_key_is_checked_before_the_body_is_read(client, conversation):
    for path, key in UNKNOWN_KEYS:
        response = client.post(
            "/api/v1/webhooks" + path.format(conversation=conversation),
            input_stream=UnreadableBody(b"[]"),
            content_type="application/json",
            headers={"X-Session-API-Key": key} if key else {},
        )
        assert response.status_code == 401, (path, key)


class TestPlacesOfLongBatches:
    @pytest.fixture
    def places(self, monkeypatch):
        """Take both places; `asked` has the seconds that each batch was ready to wait for one."""
        taken = Semaphore(0)
        acquire, taken.asked = taken.acquire, []
        taken.acquire = lambda timeout: taken.asked.append(timeout) or acquire(blocking=False)
        monkeypatch.setattr(webhooks, "_places", taken)
        return taken

    def test_a_short_batch_waits_for_no_long_one(self, client, url, places):
        assert client.post(url, json=[event()]).status_code == 200
        assert places.asked == []

    def test_a_long_one_that_has_waited_goes_without_a_place(self, client, url, places):
        assert client.post(url, json=[event() for _ in range(200)]).get_json()["appended"] == 200
        assert places.asked == [2.0]
        assert not places.acquire(timeout=0)  # and gives back none that it did not have

    def test_its_place_ends_with_its_refusal(self, client, url, places):
        places.release()

        refused(client, url, [event() for _ in range(501)])

        assert places.acquire(timeout=0)
