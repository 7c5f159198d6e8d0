"""Count, search, get and send over HTTP."""

from itertools import product
from urllib.parse import quote
from uuid import uuid4

import pytest

from store.errors import ConversationNotFound, EventNotFound
from tests.conftest import action, event, message, observation, recorded


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


def test_a_histogram_of_an_unknown_conversation_is_404(client, conversation):
    response = client.get(f"/api/conversations/{conversation}/events/histogram")

    assert (response.status_code, response.get_json()) == (404, {"detail": ConversationNotFound.words})


#: filters, and which of the three events pass
FILTERS = [
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
]


def test_count_and_search_agree_on_every_filter(client, url):
    wrong = []
    for query, found in FILTERS:
        seen = (
            count(client, url, **query),
            search(client, url, **query),
            search(client, url, **query, sort_order="TIMESTAMP_DESC"),
        )
        if seen != (len(found), found, found[::-1]):
            wrong.append((query, seen))

    assert wrong == []


NO_QUERIES = [
    ("count", {"timestamp__gte": "garbage"}, "datetime_parsing"),
    ("search", {"timestamp__lt": ""}, "datetime_parsing"),
    ("search", {"limit": "101"}, "less_than_equal"),
    ("search", {"sort_order": "DESC"}, "enum"),
    ("histogram", {"timestamp__gte": "yesterday"}, "datetime_parsing"),
    ("histogram", {"by": "body"}, "enum"),
    ("histogram", {"buckets": "0"}, "greater_than_equal"),
]


def test_a_query_that_cannot_be_is_refused_by_the_name_of_its_parameter(client, url):
    for operation, query, type in NO_QUERIES:
        response = client.get(f"{url}/{operation}", query_string=query)

        assert response.status_code == 422, query
        [fault] = response.get_json()["detail"]
        assert (fault["loc"], fault["type"]) == (["query", *query], type)


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


def test_a_walk_meets_every_event_once_also_among_equal_times(client, conversation):
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
    filtered = ({}, {"body": "odd"}, {"kind": "MessageEvent"}, {"source": "agent", "body": ""})

    for order, filters in product(("TIMESTAMP", "TIMESTAMP_DESC"), filtered):
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
        assert ids == (expected if order == "TIMESTAMP" else expected[::-1]), (order, filters)
        assert len(ids) == count(client, url, **filters)
        assert pages == -(-len(ids) // 3)


def event_of(kind):
    return lambda source: event(kind, source)


def test_a_cursor_outside_the_range_of_times_is_its_nearer_end(client, url, conversation):
    late = {"timestamp__gte": "2026-11-20T11:30:00"}

    assert search(client, url, page_id=f"m1-{conversation}", **late) == ["m2"]
    assert search(client, url, page_id=f"m1-{conversation}", sort_order="TIMESTAMP_DESC", **late) == []


def test_a_filter_of_any_text_is_no_error(client, url):
    values = ("x" * 10_240, "{conv}:log", "*", "%", "\x00", "😀", "[a-z]")
    queries = [{name: value} for name in ("kind", "source", "body") for value in values]

    found = [(query, count(client, url, **query), search(client, url, **query)) for query in queries]

    assert found == [(query, 0, []) for query in queries]


def test_a_filter_that_is_not_utf_8_is_refused_by_its_name(client, url):
    for query in ("source=%FF", "body=%ED%A0%80", "kind=%F7%80"):
        [fault] = client.get(f"{url}/count?{query}").get_json()["detail"]
        assert (fault["loc"], fault["type"]) == (["query", query.partition("=")[0]], "string_unicode")


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


def test_the_text_of_a_message_is_searched(client, conversation):
    fields = {"llm_message": {"content": [{"type": "text", "text": "one"}]}, "extended_content": [{"text": "Straße"}]}
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[{**event("MessageEvent", "agent"), **fields}])
    url = f"/api/conversations/{conversation}/events"

    assert [count(client, url, body=body) for body in ("ONE STRASSE", "", "two")] == [1, 1, 0]


@pytest.fixture
def worked(client, conversation):
    """A conversation in which an agent ran a command and finished: the ids of its events begin with a, o, m, f."""
    ran = action(action={"kind": "TerminalAction", "command": "Python3 -m build"}) | {"id": f"a1-{conversation}"}
    done = action(action={"kind": "FinishAction", "message": "python3 built it"}) | {"id": f"f1-{conversation}"}
    said = {**message("build it"), "id": f"m1-{conversation}"}
    seen = {**observation(ran), "observation": {"content": [{"type": "text", "text": "no python3"}]}}
    log = [said, ran, {**seen, "id": f"o1-{conversation}"}, done]
    for second, one in enumerate(log):
        one["timestamp"] = f"2026-11-20T12:00:0{second}"
    assert client.post(f"/api/v1/webhooks/events/{conversation}", json=log).status_code == 200


@pytest.mark.parametrize("path", ["/api/conversations/{}/events", "/api/v1/conversation/{}/events"])
def test_text_finds_commands_outputs_and_the_final_answer(client, conversation, worked, path):
    url = path.format(conversation)

    assert search(client, url, text="PYTHON3") == ["a1", "o1", "f1"]
    assert search(client, url, text="build it") == ["m1"]
    assert search(client, url, text="python3", kind="ActionEvent", sort_order="TIMESTAMP_DESC") == ["f1", "a1"]
    assert search(client, url, text="python3", timestamp__gte="2026-11-20T12:00:03") == ["f1"]
    assert search(client, url, text="it", body="build") == ["m1"]
    assert search(client, url, text="nowhere") == []
    assert search(client, url, text="") == ["m1", "a1", "o1", "f1"]


def test_text_filters_a_log_that_is_read_after_a_seq_too(client, conversation, worked):
    url = f"/api/conversations/{conversation}/events"
    assert search(client, url, text="python3", after_seq=2) == ["o1", "f1"]


@pytest.mark.parametrize("order", ["TIMESTAMP", "TIMESTAMP_DESC"])
def test_a_search_by_text_reads_a_part_of_the_log_at_a_time_and_goes_on_by_its_cursor(
    client, conversation, worked, monkeypatch, order
):
    monkeypatch.setattr("store.conversations.events.SEARCHED_EVENTS", 2)
    query, pages = {"text": "python3", "sort_order": order, "limit": 1}, []
    while not pages or query["page_id"]:
        page = client.get(f"/api/conversations/{conversation}/events/search", query_string=query).get_json()
        assert len(page["items"]) <= 1
        pages += [item["id"][:2] for item in page["items"]] or [None]
        query["page_id"] = page["next_page_id"]

    found = ["a1", "o1", "f1"]
    assert [one for one in pages if one] == (found if order == "TIMESTAMP" else found[::-1])
    query = {"text": "build it", "sort_order": "TIMESTAMP_DESC"}
    page = client.get(f"/api/conversations/{conversation}/events/search", query_string=query).get_json()
    assert (page["items"], page["next_page_id"]) == ([], f"a1-{conversation}")


def test_only_the_text_of_messages_is_searched(client, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("never_confirm"))
    url = f"/api/conversations/{conversation}/events"

    assert count(client, url, body="system prompt") == 0
    assert count(client, url, body="0000000001") == 0


def test_an_event_is_returned_by_its_id(client, url, conversation):
    first = THREE(conversation)[0]

    assert client.get(f"{url}/m1-{conversation}").get_json()["timestamp"] == first["timestamp"]
    assert client.get(f"{url}/nope").get_json() == {"detail": EventNotFound.words}
    assert client.get(f"{url}/nope").status_code == 404


def test_an_id_may_hold_a_slash(client, url, conversation):
    odd = {**event(), "id": "a/b c?"}
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[odd])

    assert client.get(f"{url}/a/b%20c%3F").get_json() == odd


def test_an_event_with_any_id_is_returned_by_its_id(client, url, conversation):
    events = [{**event(), "id": odd} for odd in ("/x", "a//b", "../x", ".", "search/", "%2F", "😀", "\x00", '"')]
    client.post(f"/api/v1/webhooks/events/{conversation}", json=events)

    for one in events:
        assert client.get(f"{url}/{quote(one['id'])}").get_json() == one
        assert client.get(url, json=[one["id"]]).get_json() == [one]
        assert client.get(url, query_string={"event_ids": one["id"]}).get_json() == [one]


def test_a_batch_get_keeps_the_order_of_its_ids_with_null_for_unknown_ones(client, url, conversation):
    ids = [f"m2-{conversation}", "nope", f"m1-{conversation}", f"m2-{conversation}"]

    by_body = client.get(url, json=ids).get_json()
    by_query = client.get(url, query_string={"event_ids": ids}).get_json()

    assert by_body == by_query
    assert [one and one["id"] for one in by_body] == [ids[0], None, ids[2], ids[3]]
    assert client.get(url, json=[]).get_json() == []


def test_a_batch_get_accepts_up_to_a_hundred_ids(client, url):
    response = client.get(url, json=["x"] * 101)

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


def test_a_malformed_message_is_refused(client, url):
    response = client.post(url, json={"content": [{"type": "text", "text": 5}]})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["body", "content", 0, "text"]
    assert count(client, url) == 3


@pytest.mark.parametrize("text", ["a\x00b", "😀", "\u2028\u202e", ""])
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
