"""Count, search, get and send over HTTP."""

import json
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.conftest import event, message, recorded


@pytest.fixture
def url(client, conversation):
    """The events of a conversation that has three: 10:00, 11:00 and 12:00."""
    client.post(f"/api/v1/webhooks/events/{conversation}", json=THREE(conversation))
    return f"/api/conversations/{conversation}/events"


def THREE(conversation):
    return [
        {**message("Please DEPLOY", "user"), "id": f"m1-{conversation}", "timestamp": "2026-11-20T10:00:00"},
        {**event("ActionEvent", "agent"), "id": f"a1-{conversation}", "timestamp": "2026-11-20T11:00:00.000001"},
        {**message("deployed", "agent"), "id": f"m2-{conversation}", "timestamp": "2026-11-20T14:00:00+02:00"},
    ]


def count(client, url, **query):
    response = client.get(f"{url}/count", query_string=query)
    assert response.status_code == 200, response.get_data()
    return response.get_json()


def search(client, url, **query):
    response = client.get(f"{url}/search", query_string=query)
    assert response.status_code == 200, response.get_data()
    page = response.get_json()
    assert set(page) == {"items", "next_page_id"}
    return [item["id"][:2] for item in page["items"]]


@pytest.mark.parametrize("path", ["/api/conversations/{}/events", "/api/v1/conversation/{}/events"])
def test_a_histogram_counts_the_events_of_equal_parts_of_a_window(client, url, conversation, path):
    window = {"timestamp__gte": "2026-11-20T10:00:00", "timestamp__lt": "2026-11-20T13:00:00"}

    found = client.get(f"{path.format(conversation)}/histogram", query_string={**window, "buckets": 3})

    assert found.get_json() == {
        "from": "2026-11-20T10:00:00.000000Z",
        "to": "2026-11-20T13:00:00.000000Z",
        "bucket_seconds": 3600.0,
        "total": 3,
        "series": {"MessageEvent": [1, 0, 1], "ActionEvent": [0, 1, 0]},
    }


def test_a_histogram_is_by_kind_in_60_buckets_from_the_first_event_to_just_after_the_last(client, url):
    found = client.get(f"{url}/histogram").get_json()

    assert (found["from"], found["to"]) == ("2026-11-20T10:00:00.000000Z", "2026-11-20T12:00:00.000001Z")
    assert found["bucket_seconds"] == 7200.000001 / 60
    assert {name: (len(numbers), sum(numbers)) for name, numbers in found["series"].items()} == {
        "MessageEvent": (60, 2),
        "ActionEvent": (60, 1),
    }


def test_a_histogram_by_source_has_a_series_for_each_source(client, url):
    found = client.get(f"{url}/histogram", query_string={"by": "source", "buckets": 1}).get_json()

    assert found["series"] == {"agent": [2], "user": [1]}


def test_a_conversation_without_events_has_an_empty_histogram(client, conversation):
    client.post("/api/conversations", json={"conversation_id": conversation})

    found = client.get(f"/api/conversations/{conversation}/events/histogram").get_json()

    assert found == {"from": None, "to": None, "bucket_seconds": 0.0, "total": 0, "series": {}}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"by": "body"}, "one of kind, source"),
        ({"buckets": "0"}, "from 1 to 200"),
        ({"buckets": "201"}, "from 1 to 200"),
        ({"buckets": "many"}, "from 1 to 200"),
        ({"timestamp__gte": "yesterday"}, "date-time"),
        ({"timestamp__lt": ""}, "date-time"),
    ],
)
def test_a_histogram_refuses_bad_input_by_its_name(client, url, query, words):
    response = client.get(f"{url}/histogram", query_string=query)

    [fault] = response.get_json()["detail"]
    assert response.status_code == 422
    assert fault["loc"] == ["query", *query]
    assert words in fault["msg"]


def test_a_histogram_of_an_unknown_conversation_is_404(client, conversation):
    response = client.get(f"/api/conversations/{conversation}/events/histogram")

    assert (response.status_code, response.get_json()) == (404, {"detail": "Conversation not found"})


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["m1", "a1", "m2"]),
        ({"kind": "MessageEvent"}, ["m1", "m2"]),
        ({"kind": "openhands.sdk.event.llm_convertible.message.MessageEvent"}, ["m1", "m2"]),
        ({"kind": "messageevent"}, []),
        ({"kind": "NoSuchEvent"}, []),
        ({"kind": ""}, []),
        ({"source": "agent"}, ["a1", "m2"]),
        ({"source": "nobody"}, []),
        ({"source": ""}, []),
        ({"kind": "MessageEvent", "source": "agent"}, ["m2"]),
        ({"body": "deploy"}, ["m1", "m2"]),
        ({"body": "PLEASE"}, ["m1"]),
        ({"body": ""}, ["m1", "m2"]),
        ({"body": "", "kind": "ActionEvent"}, []),
        ({"body": "deploy", "kind": "ActionEvent"}, []),
        ({"body": "deploy", "source": "agent"}, ["m2"]),
        ({"body": "", "source": "agent", "timestamp__gte": "2026-11-20T12:00:00"}, ["m2"]),
        ({"body": "deploy", "timestamp__lt": "2026-11-20T12:00:00"}, ["m1"]),
        ({"timestamp__gte": "2026-11-20T11:00:00.000001Z"}, ["a1", "m2"]),
        ({"timestamp__gte": "2026-11-20T11:00:00.000002Z"}, ["m2"]),
        ({"timestamp__lt": "2026-11-20T11:00:00.000001"}, ["m1"]),
        ({"timestamp__lt": "2026-11-20T11:00:00.000002"}, ["m1", "a1"]),
        ({"timestamp__gte": "2026-11-20 12:00"}, ["m2"]),
        ({"timestamp__gte": "2026-11-20T14:00:00 02:00"}, ["m2"]),
        ({"timestamp__gte": "2026-11-20T07:30:00-0430"}, ["m2"]),
        ({"timestamp__gte": "2026-11-20"}, ["m1", "a1", "m2"]),
        ({"timestamp__lt": "2026-11-21"}, ["m1", "a1", "m2"]),
        ({"timestamp__lt": "9999-12-31T23:59:59.999999"}, ["m1", "a1", "m2"]),
        ({"timestamp__gte": "0001-01-01"}, ["m1", "a1", "m2"]),
        ({"timestamp__gte": "2026-11-20T12:00:00", "timestamp__lt": "2026-11-20T11:00:00"}, []),
        ({"kind": "ActionEvent", "source": "agent", "timestamp__gte": "2026-11-20T11:00:00"}, ["a1"]),
        ({"unknown": "filter"}, ["m1", "a1", "m2"]),
    ],
)
def test_count_and_search_agree_on_every_filter(client, url, query, found):
    assert count(client, url, **query) == len(found)
    assert search(client, url, **query) == found
    assert search(client, url, **query, sort_order="TIMESTAMP_DESC") == found[::-1]


@pytest.mark.parametrize("name", ["timestamp__gte", "timestamp__lt"])
@pytest.mark.parametrize(
    "value",
    ["", "garbage", "1700000000", "-1", "-0001-01-01", "2026-02-30", "24:00", "2026-11-20T24:00:00", "２０２６-11-20"],
)
def test_a_text_other_than_a_date_time_is_refused(client, url, name, value):
    for operation in ("count", "search"):
        response = client.get(f"{url}/{operation}", query_string={name: value})
        assert response.status_code == 422
        [fault] = response.get_json()["detail"]
        assert (fault["loc"], fault["type"]) == (["query", name], "datetime_parsing")


@pytest.mark.parametrize("limit", ["0", "-1", "101", "abc", "", "1.5", "９", "9" * 30])
def test_a_limit_is_from_one_to_a_hundred(client, url, limit):
    response = client.get(f"{url}/search", query_string={"limit": limit})

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == ["query", "limit"]
    assert "from 1 to 100" in fault["msg"]


def test_a_search_has_two_sort_orders(client, url):
    response = client.get(f"{url}/search?sort_order=CREATED_AT")

    assert response.status_code == 422
    assert "TIMESTAMP, TIMESTAMP_DESC" in response.get_json()["detail"][0]["msg"]


def test_pages_continue_each_other(client, conversation):
    # Given a log longer than a page, of few instants
    events = [{**event(), "timestamp": f"2026-11-20T10:00:0{number % 3}"} for number in range(230)]
    client.post(f"/api/v1/webhooks/events/{conversation}", json=events)
    url = f"/api/conversations/{conversation}/events/search"

    # When a client reads all pages of the default hundred
    sizes, ids, page_id = [], [], ""
    while page_id is not None:
        page = client.get(url, query_string={"page_id": page_id}).get_json()
        sizes.append(len(page["items"]))
        ids += [item["id"] for item in page["items"]]
        page_id = page["next_page_id"]

    # Then every event is returned once, by time and then in the order of appending
    assert sizes == [100, 100, 30]
    assert ids == [one["id"] for one in sorted(events, key=lambda one: one["timestamp"])]


@pytest.mark.parametrize("order", ["TIMESTAMP", "TIMESTAMP_DESC"])
@pytest.mark.parametrize("filters", [{}, {"body": "odd"}, {"kind": "MessageEvent"}, {"source": "agent", "body": ""}])
def test_a_walk_meets_every_event_once_also_among_equal_times(client, conversation, order, filters):
    # Given messages and others of two instants, of two sources, appended in turn
    log = [
        {**kind(source), "timestamp": f"2026-11-20T10:00:0{number % 2}"}
        for number in range(8)
        for kind, source in (
            (lambda source: message("odd", source), "agent"),
            (event_of("X"), "agent"),
            (event_of("X"), "user"),
        )
    ]
    client.post(f"/api/v1/webhooks/events/{conversation}", json=log)
    url = f"/api/conversations/{conversation}/events"

    # When a client reads all pages of three
    ids, page_id, pages = [], None, 0
    while page_id is not None or not pages:
        query = {**filters, "limit": 3, "sort_order": order, **({"page_id": page_id} if page_id else {})}
        page = client.get(f"{url}/search", query_string=query).get_json()
        ids += [item["id"] for item in page["items"]]
        page_id, pages = page["next_page_id"], pages + 1

    # Then each event is returned once, by time and then in the order of appending, or in exactly the reverse order
    wanted = [one for one in log if not filters or one["kind"] == "MessageEvent"]
    expected = [one["id"] for one in sorted(wanted, key=lambda one: one["timestamp"])]
    assert ids == (expected if order == "TIMESTAMP" else expected[::-1])
    assert len(ids) == count(client, url, **filters)
    assert pages == -(-len(ids) // 3)


def event_of(kind):
    return lambda source: event(kind, source)


def test_a_cursor_outside_the_range_of_times_is_its_nearer_end(client, url, conversation):
    late = {"timestamp__gte": "2026-11-20T11:30:00"}

    assert search(client, url, page_id=f"m1-{conversation}", **late) == ["m2"]
    assert search(client, url, page_id=f"m1-{conversation}", sort_order="TIMESTAMP_DESC", **late) == []


@pytest.mark.parametrize("order", ["", "timestamp", "DESC"])
def test_no_other_value_is_a_sort_order(client, url, order):
    response = client.get(f"{url}/search", query_string={"sort_order": order})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["query", "sort_order"]


@pytest.mark.parametrize("name", ["kind", "source", "body"])
@pytest.mark.parametrize("value", ["x" * 10_240, "{conv}:log", "*", "%", "\x00", "😀", "[a-z]"])
def test_a_filter_of_any_text_is_no_error(client, url, name, value):
    assert count(client, url, **{name: value}) == 0
    assert search(client, url, **{name: value}) == []


@pytest.mark.parametrize("query", ["source=%FF", "body=%ED%A0%80", "kind=%F7%80"])
def test_a_filter_that_is_not_utf_8_matches_nothing(client, url, query):
    assert client.get(f"{url}/count?{query}").get_json() == 0


@pytest.mark.parametrize("body", [{}, {"body": "deploy"}])
def test_a_cursor_is_the_first_event_of_its_page_and_need_not_pass_the_filter(client, url, conversation, body):
    action_id = f"a1-{conversation}"

    assert search(client, url, page_id=action_id)[0] == "a1"
    assert search(client, url, page_id=action_id, kind="MessageEvent", **body) == ["m2"]
    assert search(client, url, page_id=action_id, kind="MessageEvent", sort_order="TIMESTAMP_DESC", **body) == ["m1"]


@pytest.mark.parametrize("body", [{}, {"body": "deploy"}])
def test_an_unknown_or_foreign_cursor_is_refused(client, url, body):
    foreign, other = event(), str(uuid4())
    client.post(f"/api/v1/webhooks/events/{other}", json=[foreign])

    for cursor in ("nope", foreign["id"], "\x00"):
        response = client.get(f"{url}/search", query_string={"page_id": cursor, **body})
        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"] == ["query", "page_id"]


@pytest.mark.parametrize(
    ("fields", "body", "found"),
    [
        ({"extended_content": [{"text": "x"}], "llm_message": {"content": [], "reasoning_content": "y"}}, "x y", 1),
        ({"llm_message": {"content": [{"type": "text", "text": "ﬁne ΣΊΣΥΦΟΣ"}]}}, "FINE σίσυφος", 1),
        ({"llm_message": {"content": [{"type": "text", "text": "a.b"}]}}, "a?b", 0),
        ({"kind": "openhands.sdk.event.MessageEvent", "llm_message": {"content": [{"text": "deploy"}]}}, "deploy", 1),
        (
            {"llm_message": {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}},
            "ONE TWO",
            1,
        ),
        ({"llm_message": {"content": [{"type": "text", "text": "a"}]}, "extended_content": [{"text": "b"}]}, "a b", 1),
        ({"llm_message": {"content": [], "reasoning_content": "because"}}, "because", 1),
        ({"llm_message": {"content": [{"type": "image", "image_urls": ["deploy"]}]}}, "deploy", 0),
        ({"llm_message": {"content": [{"type": "text", "text": "Straße"}]}}, "STRASSE", 1),
        ({"llm_message": {"content": [{"type": "text", "text": "İstanbul"}]}}, "istanbul", 0),
        ({"llm_message": {"content": "plain text"}}, "plain", 1),
        ({"llm_message": None}, "x", 0),
        ({"llm_message": {"content": [1, None, {"text": 5}]}}, "5", 0),
        ({"thought": [{"text": "deploy"}]}, "deploy", 0),
    ],
)
def test_the_text_of_a_message_is_searched(client, conversation, fields, body, found):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[{**event("MessageEvent", "agent"), **fields}])
    url = f"/api/conversations/{conversation}/events"

    assert count(client, url, body=body) == found
    assert count(client, url, body="") == 1


def test_only_the_text_of_messages_is_searched(client, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("never_confirm"))
    url = f"/api/conversations/{conversation}/events"

    assert count(client, url, body="system prompt") == 0
    assert count(client, url, body="0000000001") == 0


def test_an_event_is_returned_by_its_id(client, url, conversation):
    first = THREE(conversation)[0]

    assert client.get(f"{url}/m1-{conversation}").get_json()["timestamp"] == first["timestamp"]
    assert client.get(f"{url}/nope").get_json() == {"detail": "Event not found"}
    assert client.get(f"{url}/nope").status_code == 404


def test_an_id_may_hold_a_slash(client, url, conversation):
    odd = {**event(), "id": "a/b c?"}
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[odd])

    assert client.get(f"{url}/a/b%20c%3F").get_json() == odd


@pytest.mark.parametrize("odd", ["/x", "a//b", "../x", ".", "search/", "%2F", "😀", "\x00", '"'])
def test_an_event_with_any_id_is_returned_by_its_id(client, url, conversation, odd):
    one = {**event(), "id": odd}
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[one])

    assert client.get(f"{url}/{quote(odd)}").get_json() == one
    assert client.get(url, json=[odd]).get_json() == [one]
    assert client.get(url, query_string={"event_ids": odd}).get_json() == [one]


def test_a_batch_get_keeps_the_order_of_its_ids_with_null_for_unknown_ones(client, url, conversation):
    ids = [f"m2-{conversation}", "nope", f"m1-{conversation}", f"m2-{conversation}"]

    by_body = client.get(url, json=ids).get_json()
    by_query = client.get(url, query_string={"event_ids": ids}).get_json()

    assert by_body == by_query
    assert [one and one["id"] for one in by_body] == [ids[0], None, ids[2], ids[3]]
    assert client.get(url, json=[]).get_json() == []


@pytest.mark.parametrize("body", [{}, "a", 1, None, [1], [None], ["\ud800"], ["x"] * 101])
def test_a_batch_get_accepts_up_to_a_hundred_ids(client, url, body):
    response = client.get(url, data=json.dumps(body), content_type="application/json")

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"][0] == "body"


def test_a_batch_get_without_ids_is_refused(client, url):
    assert client.get(url).get_json()["detail"] == [{"loc": ["body"], "msg": "Field required", "type": "missing"}]
    assert client.get(url, query_string={"event_ids": ["x"] * 101}).status_code == 422
    assert client.get(url, query_string={"event_ids": ["x"] * 100}).get_json() == [None] * 100


def test_a_message_is_an_event_in_the_shape_of_agents(client, url):
    content = [{"type": "text", "text": "hi", "cache_prompt": True}, {"type": "image", "image_urls": ["u"]}]

    assert client.post(url, json={"role": "user", "content": content, "sender": "me"}).get_json() == {"success": True}

    sent = client.get(f"{url}/search?sort_order=TIMESTAMP_DESC&limit=1").get_json()["items"][0]
    assert sent == {
        "id": sent["id"],
        "timestamp": sent["timestamp"],
        "source": "user",
        "llm_message": {
            "role": "user",
            "content": [content[0], {"type": "image", "image_urls": ["u"], "cache_prompt": False}],
            "thinking_blocks": [],
        },
        "activated_skills": [],
        "extended_content": [],
        "kind": "MessageEvent",
    }
    assert count(client, url, body="HI") == 1


def test_a_message_may_be_empty(client, url):
    assert client.post(url, json={}).status_code == 200

    assert count(client, url) == 4


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"content": "hi"}, ["body", "content"]),
        ({"content": ["hi"]}, ["body", "content", 0]),
        ({"content": [{"type": "video"}]}, ["body", "content", 0, "type"]),
        ({"content": [{"type": "text"}]}, ["body", "content", 0, "text"]),
        ({"content": [{"type": "text", "text": 5}]}, ["body", "content", 0, "text"]),
        ({"content": [{"type": "text", "text": "a", "odd": 1}]}, ["body", "content", 0, "odd"]),
        ({"content": [{"type": "image", "image_urls": "u"}]}, ["body", "content", 0, "image_urls"]),
        ({"content": [{"type": "text", "text": "x" * (1024 * 1024)}]}, ["body", "content"]),
        ({"content": [{"type": "image", "image_urls": ["u"], "text": "a"}]}, ["body", "content", 0, "text"]),
        ({"content": [{"type": "text", "text": "a", "cache_prompt": 1}]}, ["body", "content", 0, "cache_prompt"]),
        ({"content": None}, ["body", "content"]),
        ({"run": None}, ["body", "run"]),
        *(({"role": role}, ["body", "role"]) for role in ("assistant", "system", "tool", "", None, 5)),
        ({"run": "yes"}, ["body", "run"]),
        ([], ["body"]),
    ],
)
def test_a_malformed_message_is_refused(client, url, body, loc):
    response = client.post(url, json=body)

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == loc
    assert count(client, url) == 3


@pytest.mark.parametrize("text", ["a\x00b", "😀", "lone \ud800", ""])
def test_a_message_of_any_text_is_returned_unchanged(client, url, text):
    client.post(url, json={"content": [{"type": "text", "text": text}]})

    [sent] = client.get(f"{url}/search?sort_order=TIMESTAMP_DESC&limit=1").get_json()["items"]
    assert sent["llm_message"]["content"][0]["text"] == text


@pytest.mark.parametrize("before", ["idle", "paused", "finished", "error", "stuck"])
def test_a_message_with_run_starts_the_agent(client, url, conversation, before):
    state = event("ConversationStateUpdateEvent", "environment", key="execution_status", value=before)
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[state])

    client.post(url, json={"run": True})

    assert client.get(f"/api/conversations/{conversation}").get_json()["execution_status"] == "running"


@pytest.mark.parametrize(
    ("before", "after"),
    [("finished", "idle"), ("stuck", "idle"), ("error", "error"), ("paused", "paused"), ("running", "running")],
)
def test_a_message_without_run_changes_only_an_ended_conversation(client, url, conversation, before, after):
    state = event("ConversationStateUpdateEvent", "environment", key="execution_status", value=before)
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[state])

    client.post(url, json={"content": []})

    assert client.get(f"/api/conversations/{conversation}").get_json()["execution_status"] == after
