"""Every route that reads or writes a conversation does with a cold one what it does with a warm one, or nothing."""

import json
from urllib.parse import quote
from uuid import uuid4

import pytest

from core.wire import ConversationId
from tests.cold import ColdObjects, cold_client
from tests.conftest import action, as_events, event, message, recorded
from tests.fitting import FittingOperation, operations

C, V1 = "/api/conversations/{conversation_id}", "/api/v1/conversation/{conversation_id}"
APP = "/api/v1/app-conversations/{conversation_id}"

FILTERS = [
    {},
    {"kind": "MessageEvent"},
    {"kind": "ActionEvent", "source": "agent"},
    {"source": "environment"},
    {"kind": "NoSuchEvent"},
    {"body": "{needle}"},
    {"body": "{needle}", "source": "user"},
    {"body": "{needle}", "timestamp__gte": "2026-01-01"},
    {"body": ""},
    {"timestamp__gte": "2026-11-20T20:37:23"},
    {"timestamp__lt": "2026-11-20T20:37:23", "kind": "MessageEvent"},
]
PAGES = [
    *({**one, "limit": 40} for one in FILTERS),
    {"limit": 40, "sort_order": "TIMESTAMP_DESC"},
    {"limit": 7, "sort_order": "TIMESTAMP_DESC", "kind": "MessageEvent"},
]

#: what names the conversation that an operation is about
ABOUT = {"conversation_id", "cid", "conversation_id__eq"}

#: the queries of operations that read a conversation: of each that is asked in more than one way, or needs a query
QUERIES: dict[str, list[dict]] = {
    f"{C}/events/count": FILTERS,
    f"{C}/events/histogram": [{}, {"by": "kind", "buckets": 5}],
    f"{C}/events/search": [*PAGES, {"after_seq": 3, "limit": 50}],
    f"{C}/events": [{"event_ids": ["{event}", "unknown", "{last}"]}],
    f"{V1}/events/search": PAGES,
    f"{V1}/events/count": FILTERS,
    f"{V1}/events": [{"id": ["{event}", "{last}"]}],
    "/api/v1/audit": [{"conversation_id": "{conversation}"}],
    "/api/v1/messages/search": [{"text": "{needle}"}, {"text": "{needle}", "limit": 1}],
    "/api/conversations": [{"ids": "{conversation}"}],
    "/api/conversations/search": [{"limit": 3}],
    "/api/v1/conversations/search": [{"limit": 3}, {"text": "{title}"}],
    "/api/v1/app-conversations": [{"ids": "{conversation}"}],
    "/api/v1/app-conversations/search": [{"limit": 3}],
    "/api/v1/app-conversations/start-tasks/search": [{"conversation_id__eq": "{conversation}"}],
    "/api/v1/app-conversations/start-tasks/count": [{"conversation_id__eq": "{conversation}"}],
    "/api/v1/pending-actions": [{"conversation_id": "{conversation}"}],
    "/api/v1/pending-actions/count": [{"conversation_id": "{conversation}"}],
}


def queries_of(operation: FittingOperation) -> list[dict]:
    """The queries with which an operation is asked about a conversation."""
    asked_by = [one["name"] for one in operation.parameters("query") if one["name"] == "cid"]
    return QUERIES.get(operation.path, [dict.fromkeys(asked_by, "{conversation}")])


def reads_a_conversation(operation: FittingOperation) -> bool:
    """Whether an operation reads one. Those of streams: tests/store/conversations/test_cold.py."""
    names = {one["name"] for place in ("path", "query") for one in operation.parameters(place)}
    is_about = names & ABOUT or "conversations" in operation.path or "messages" in operation.path
    is_asked_by_task = operation.path == "/api/v1/app-conversations/start-tasks"
    return (
        bool(operation.method == "GET" and is_about and not operation.path.endswith("/stream")) and not is_asked_by_task
    )


READS = {one.path: queries_of(one) for one in operations() if reads_a_conversation(one)}

ASKED = [(path, query) for path, queries in READS.items() for query in queries]

#: operations that need no log and so leave it where it is
LEAVE_IT = {
    C,
    f"{C}/pending_actions",
    f"{V1}/pending-actions/decisions",
    f"{V1}/pending-actions/{{action_id}}/answers",
    f"{V1}/audit",
    *(path for path in READS if "{conversation_id}" not in path and "messages" not in path),
}


@pytest.fixture(scope="module")
def objects():
    return ColdObjects()


@pytest.fixture(scope="module")
def keeper(cold_url, objects):
    """A client of an app whose conversations may become cold."""
    return cold_client(cold_url, objects)


@pytest.fixture(scope="module")
def known(keeper):
    """A conversation at rest, and the words that stand in the queries for what is its own."""
    conversation, needle = str(uuid4()), f"Needle-{uuid4().hex}"
    assert keeper.post("/api/conversations", json={"conversation_id": conversation, "title": needle}).status_code == 201
    events = [*recorded("never_confirm"), message(f"a {needle.upper()} here"), message(f"{needle}", "agent"), event()]
    webhook = f"/api/v1/webhooks/events/{conversation}"
    assert keeper.post(webhook, json=events).status_code == 200
    words = {"conversation": conversation, "needle": needle, "title": needle.lower()}
    return {**words, "event": events[3]["id"], "last": events[-1]["id"]}


@pytest.fixture
def freeze(keeper, known):
    """Make the conversation cold."""
    cold = keeper.application.extensions["server"].store.conversations.cold

    def do():
        cold.thaw(ConversationId(known["conversation"]))
        assert cold.freeze(ConversationId(known["conversation"]))

    return do


def filled(value, known: dict):
    if isinstance(value, list):
        return [filled(one, known) for one in value]
    return value.format(**known) if isinstance(value, str) else value


def answers(client, path: str, query: dict, known: dict, before_each=lambda: None) -> list[tuple]:
    """Status, type and bytes of every page."""
    place = {"conversation_id": known["conversation"], "event_id": known["event"]}
    place |= dict.fromkeys(("rest", "file_path", "bash_event_id", "sha", "action_id"), "x")
    url = path.format(**{name: quote(one) for name, one in place.items()})
    query, found = {name: filled(value, known) for name, value in query.items()}, []
    while True:
        before_each()
        response = client.get(url, query_string=query)
        assert response.status_code < 500, response.get_data(as_text=True)
        found.append((response.status_code, response.mimetype, response.get_data()))
        body = response.get_json() if response.mimetype == "application/json" else None
        following = body.get("next_page_id") if isinstance(body, dict) else None
        if not following or "after_seq" in query or "search" not in path or "{conversation_id}" not in path:
            return found
        query = {**query, "page_id": following}


def test_every_query_is_of_an_operation_that_reads_a_conversation():
    assert {*QUERIES} - {*READS} == set()


def test_every_operation_answers_for_a_cold_conversation_as_before(keeper, known, freeze):
    cold, others = keeper.application.extensions["server"].store.conversations.cold, []
    for path, query in ASKED:
        cold.thaw(ConversationId(known["conversation"]))
        before = answers(keeper, path, query, known)
        if answers(keeper, path, query, known, freeze) != before:
            others.append((path, query))
    assert others == []


def test_operations_that_need_no_log_leave_it_in_its_object(keeper, known, freeze, objects):
    for path, query in ASKED:
        if path in LEAVE_IT:
            freeze()
            objects.is_away = True
            try:
                answers(keeper, path, query, known)
            finally:
                objects.is_away = False


def test_operations_that_need_a_log_that_is_away_answer_rightly_or_with_503(keeper, known, freeze, objects):
    for path, query in [one for one in ASKED if one[0] not in LEAVE_IT]:
        before = answers(keeper, path, query, known)
        freeze()
        objects.is_away = True
        place = {"conversation_id": known["conversation"], "event_id": known["event"]}
        place |= dict.fromkeys(("rest", "file_path", "bash_event_id", "sha", "action_id"), "x")
        url, words = path.format(**place), {name: filled(value, known) for name, value in query.items()}
        try:
            response = keeper.get(url, query_string=words)
        finally:
            objects.is_away = False

        if response.status_code == 503:
            assert f"{known['conversation']} are in cold storage (COLD_URL)" in response.get_json()["detail"]
        else:
            assert (response.status_code, response.mimetype, response.get_data()) == before[0], (path, query)


def test_a_count_of_all_events_needs_no_log(keeper, known, freeze, objects):
    freeze()
    gets = objects.gets

    assert keeper.get(f"{C.format(conversation_id=known['conversation'])}/events/count").get_json() == 87
    assert objects.gets == gets


def test_a_place_of_objects_that_is_away_is_503_and_named_in_the_log_alone(keeper, known, freeze, objects, caplog):
    freeze()
    objects.is_away = True
    try:
        response = keeper.get(f"{C.format(conversation_id=known['conversation'])}/events/search")
    finally:
        objects.is_away = False

    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    detail = response.get_json()["detail"]
    assert f"{known['conversation']} are in cold storage (COLD_URL)" in detail
    assert detail.endswith("the place of its object cannot be reached, or refuses")
    assert "the place of the tests is away" in caplog.text


def test_an_append_to_a_cold_conversation_appends_once(keeper, known, freeze):
    url, webhook = C.format(conversation_id=known["conversation"]), f"/api/v1/webhooks/events/{known['conversation']}"
    before = keeper.get(f"{url}/export").get_data()
    freeze()
    new = message("after the cold")

    for _ in range(2):  # as a client that had no response
        assert keeper.post(webhook, json=[new]).status_code == 200

    after = keeper.get(f"{url}/export").get_data().splitlines()
    assert after[1:-2] == before.splitlines()[1:-1]
    assert json.loads(after[-2]) == new


def test_a_stream_of_a_cold_conversation_waits_for_its_place_and_has_every_event(keeper, known, freeze, objects):
    url = C.format(conversation_id=known["conversation"])
    expected = [json.loads(line)["id"] for line in keeper.get(f"{url}/export").get_data().splitlines()[1:-1]]
    freeze()
    objects.is_away = True

    stream = keeper.get(f"{url}/events/stream", headers={"Last-Event-ID": "0"})
    assert stream.status_code == 200
    chunks = stream.iter_encoded()
    next(chunks)  # the interval of retries
    objects.is_away = False
    found = b""
    while found.count(b"\ndata: ") < len(expected):
        found += next(chunks)
    stream.close()

    assert [json.loads(line[6:])["id"] for line in found.splitlines() if line.startswith(b"data: ")] == expected


@pytest.mark.parametrize("path", [f"{C}/export", f"{APP}/download"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_download_whose_log_cannot_come_back_is_refused_before_it_begins(keeper, objects, path, method):
    store, conversation = keeper.application.extensions["server"].store, ConversationId(str(uuid4()))
    store.conversations.create(conversation, sandbox_id="none", app={})
    store.events.append(conversation, as_events([message("hello")]), sandbox_id="none")
    assert store.conversations.cold.freeze(conversation)
    objects.is_away = True
    try:
        response = keeper.open(path.format(conversation_id=conversation), method=method)
    finally:
        objects.is_away = False

    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert method == "HEAD" or "in cold storage" in response.get_json()["detail"]


#: method, path and body of each write
WRITES = {
    "message": ("POST", f"{C}/events", {"content": [{"type": "text", "text": "hello"}]}),
    "message that runs": ("POST", f"{C}/events", {"content": [{"type": "text", "text": "hello"}], "run": True}),
    "append": ("POST", "/api/v1/webhooks/events/{conversation_id}", [message("new"), event(), action()]),
    "respond": ("POST", f"{C}/events/respond_to_confirmation", {"accept": True}),
    "decide": (
        "POST",
        "/api/v1/conversation/{conversation_id}/pending-actions/decisions",
        {"decisions": [{"action_id": "none", "decision": "reject"}]},
    ),
    "create": ("POST", "/api/conversations", {"conversation_id": "{conversation_id}"}),
    "rename": ("PATCH", C, {"title": "other"}),
    "tag": ("PATCH", C, {"tags": {"a": "b"}}),
    "run": ("POST", f"{C}/run", None),
    "pause": ("POST", f"{C}/pause", None),
    "interrupt": ("POST", f"{C}/interrupt", None),
    "policy": ("POST", f"{C}/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}}),
    "analyzer": ("POST", f"{C}/security_analyzer", {"security_analyzer": None}),
    "secrets": ("POST", f"{C}/secrets", {"secrets": {"A": "b"}}),
    "fork": ("POST", f"{C}/fork", {}),
    "delete": ("DELETE", C, None),
    "send to its agent": ("POST", "/api/v1/app-conversations/{conversation_id}/send-message", {"content": []}),
    "queue": ("POST", "/api/v1/conversations/{conversation_id}/pending-messages", {"role": "user", "content": []}),
}

#: writes that need no log
NEED_NONE = {"create", "delete"}

EVENTS = [message("first"), event(), message("second", "agent")]


def twins(keeper) -> list[str]:
    """Two conversations that are alike; the second one is cold."""
    ids = [str(uuid4()), str(uuid4())]
    for identity in ids:
        keeper.post("/api/conversations", json={"conversation_id": identity, "title": "twin"})
        assert keeper.post(f"/api/v1/webhooks/events/{identity}", json=EVENTS).status_code == 200
    assert keeper.application.extensions["server"].store.conversations.cold.freeze(ids[1])
    return ids


def write(client, name: str, identity: str):
    method, path, body = WRITES[name]
    data = None if body is None else json.dumps(body).replace("{conversation_id}", identity)
    return client.open(path.format(conversation_id=identity), method=method, data=data, content_type="application/json")


def state(client, identity: str) -> list:
    """What a conversation has come to, without ids and times of its own."""
    found = client.get(f"/api/conversations/{identity}")
    if found.status_code != 200:
        return [found.status_code]
    body, items = found.get_json(), client.get(f"/api/conversations/{identity}/events/search").get_json()["items"]
    told = [(one["kind"], one["source"], one.get("key"), one.get("value")) for one in items]
    return [told, *(body.get(name) for name in ("execution_status", "title", "tags", "confirmation_policy"))]


def test_a_write_does_with_a_cold_conversation_what_it_does_with_a_warm_one(keeper):
    for name in WRITES:
        warm, cold = twins(keeper)

        expected, found = write(keeper, name, warm), write(keeper, name, cold)

        assert found.status_code == expected.status_code < 500, name
        assert state(keeper, cold) == state(keeper, warm), name


def test_a_write_that_needs_a_log_that_is_away_is_503_and_writes_nothing(keeper, objects):
    for name in WRITES:
        warm, cold = twins(keeper)
        before = state(keeper, warm)
        expected = write(keeper, name, warm).status_code
        objects.is_away = True
        try:
            found = write(keeper, name, cold)
        finally:
            objects.is_away = False

        if found.status_code == 503:
            assert name not in NEED_NONE
            assert f"{cold} are in cold storage (COLD_URL)" in found.get_json()["detail"]
            assert found.headers["Retry-After"]
            assert state(keeper, cold) == before, name
        else:
            assert found.status_code == expected, name
            assert state(keeper, cold) == state(keeper, warm), name
