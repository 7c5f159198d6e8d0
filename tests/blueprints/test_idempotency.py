"""Idempotency-Key: a repeated POST has one effect and gets the first response; another request gets 422."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from flask import g
from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from app import create_app
from core.access import Principal
from settings.config import Config
from store.access import idempotency
from store.sandboxes.sandboxes import Sandboxes
from tests.conftest import action, message
from tests.fitting import body_of
from tests.test_error_shape import RULES, address, assert_error

POSTS = [rule for rule in RULES if "POST" in rule.methods]
ALWAYS = {"kind": "AlwaysConfirm"}
TEXT = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture
def once():
    """The headers of one Idempotency-Key."""
    return {"headers": {"Idempotency-Key": str(uuid4())}}


@pytest.fixture
def asked_by(app, monkeypatch):
    """Have all requests asked by a principal."""
    functions = list(app.before_request_funcs[None])

    def ask(principal):
        def name() -> None:
            g.principal = principal

        monkeypatch.setitem(app.before_request_funcs, None, [*functions[:2], name, *functions[2:]])

    return ask


@pytest.fixture
def url(client, conversation):
    """The URL of a conversation that exists."""
    client.post("/api/conversations", json={"conversation_id": conversation})
    return f"/api/conversations/{conversation}"


def replayed(response) -> bool:
    return response.headers.get("Idempotency-Replayed") == "true"


def count(client, url) -> int:
    return client.get(f"{url}/events/count").get_json()


def test_every_post_takes_the_header(client, monkeypatch):
    monkeypatch.setattr(Sandboxes, "of_hook_key", lambda *_: "some-sandbox")
    headers = {"Idempotency-Key": "x" * 256, "Authorization": "Bearer some key"}

    for rule in POSTS:
        response = client.post(address(rule, str(uuid4())), json=body_of(rule), headers=headers)
        assert_error(response, 400)
        assert "Idempotency-Key" in response.get_data(as_text=True), rule.endpoint


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "schlüssel"])
def test_a_key_that_is_none_is_400(client, key):
    assert_error(client.post("/api/conversations", headers={"Idempotency-Key": key}), 400)


def test_a_repeated_create_gets_the_same_response(client, once):
    first = client.post("/api/conversations", json={"title": "one"}, **once)
    again = client.post("/api/conversations", json={"title": "one"}, **once)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.data == first.data
    assert again.content_type == first.content_type
    assert (replayed(first), replayed(again)) == (False, True)
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]


def test_a_repeat_is_told_where_the_new_resource_is_as_the_first_request_was(client, once):
    wanted = {"decision": "reject", "tool_name": "browser"}
    first, again = (client.post("/api/v1/approval-rules", json=wanted, **once) for _ in range(2))

    assert (replayed(again), again.data) == (True, first.data)
    assert again.headers["Location"] == first.headers["Location"] == f"/api/v1/approval-rules/{first.get_json()['id']}"


def test_a_repeated_message_is_appended_once(client, url, once):
    for _ in range(3):
        assert client.post(f"{url}/events", json=TEXT, **once).status_code == 200

    assert count(client, url) == 1


def test_a_repeated_decision_gets_its_own_outcome(client, url, once, conversation):
    client.post(f"{url}/confirmation_policy", json={"policy": ALWAYS})
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[action()])
    decision = {"accept": True}

    won = client.post(f"{url}/events/respond_to_confirmation", json=decision, **once)
    again = client.post(f"{url}/events/respond_to_confirmation", json=decision, **once)
    other = client.post(f"{url}/events/respond_to_confirmation", json=decision)

    assert [response.get_json()["success"] for response in (won, again, other)] == [True, True, False]


def test_a_repeated_append_is_appended_once(client, url, once, conversation):
    batch = [message("once")]
    bodies = {client.post(f"/api/v1/webhooks/events/{conversation}", json=batch, **once).data for _ in range(2)}

    assert len(bodies) == 1


def test_another_request_under_the_same_key_is_422(client, url, once):
    client.post(f"{url}/events", json=TEXT, **once)

    others = [
        client.post(f"{url}/events", json={**TEXT, "run": True}, **once),
        client.post(f"{url}/events?x=1", json=TEXT, **once),
        client.post(f"{url}/pause", **once),
        client.post(f"{url}/events", json=TEXT, headers={**once["headers"], "X-OpenHands-ServerConversation-ID": "x"}),
    ]

    for other in others:
        assert other.status_code == 422
        assert other.get_json()["detail"][0]["loc"] == ["header", "Idempotency-Key"]
    assert count(client, url) == 1


def test_a_refusal_that_did_nothing_frees_the_key(client, url, once):
    assert client.post(f"{url}/events", json={"content": 1}, **once).status_code == 422
    assert client.post(f"{url}/events", data="x", content_type="text/plain", **once).status_code == 415

    corrected = client.post(f"{url}/events", json=TEXT, **once)

    assert (corrected.status_code, replayed(corrected)) == (200, False)


def test_an_error_of_the_request_itself_is_its_response(client, once, conversation):
    missing = client.post(f"/api/conversations/{conversation}/pause", **once)
    client.post("/api/conversations", json={"conversation_id": conversation})
    again = client.post(f"/api/conversations/{conversation}/pause", **once)

    assert (missing.status_code, again.status_code, replayed(again)) == (404, 404, True)


def test_a_failure_is_not_kept_and_a_repeat_has_one_effect(client, app, url, once, monkeypatch):
    store = app.extensions["server"].store
    send = store.events.send

    def fails_after_the_effect(*args, **options):
        send(*args, **options)
        raise RuntimeError("after the effect")

    monkeypatch.setattr(
        type(store.events), "send", lambda _, *args, **options: fails_after_the_effect(*args, **options)
    )
    assert client.post(f"{url}/events", json=TEXT, **once).status_code == 500
    monkeypatch.undo()
    repeated = client.post(f"{url}/events", json=TEXT, **once)

    assert (repeated.status_code, replayed(repeated)) == (200, False)
    assert count(client, url) == 1


@pytest.mark.parametrize("refusal", [TooManyRequests("full"), ServiceUnavailable("later")])
def test_a_request_that_is_refused_for_now_may_be_repeated(client, app, url, once, monkeypatch, refusal):
    def refuse(*_args, **_options):
        raise refusal

    monkeypatch.setattr(type(app.extensions["server"].store.events), "send", refuse)
    assert client.post(f"{url}/events", json=TEXT, **once).status_code == refusal.code
    monkeypatch.undo()

    assert client.post(f"{url}/events", json=TEXT, **once).status_code == 200


@pytest.mark.faults("a race of threads")
def test_concurrent_repeats_have_one_effect(app, url, once):
    def post(_) -> tuple[int, str | None]:
        response = app.test_client().post(f"{url}/events", json=TEXT, **once)
        return response.status_code, response.headers.get("Retry-After")

    with ThreadPoolExecutor(8) as threads:
        outcomes = set(threads.map(post, range(16)))

    assert outcomes <= {(200, None), (409, "1")}
    assert (200, None) in outcomes
    assert count(app.test_client(), url) == 1


@pytest.mark.faults("a race of threads")
def test_a_repeat_while_the_first_is_in_progress_is_409(client, app, url, once, monkeypatch):
    """The first request itself sends the repeat, before it has a response."""
    store, repeats = app.extensions["server"].store, []
    send = store.events.send

    def slow(_self, *args, **options):
        if not repeats:
            repeats.append(None)
            with ThreadPoolExecutor(1) as thread:
                repeats[0] = thread.submit(app.test_client().post, f"{url}/events", json=TEXT, **once).result()
        send(*args, **options)

    monkeypatch.setattr(type(store.events), "send", slow)
    first = client.post(f"{url}/events", json=TEXT, **once)

    assert first.status_code == 200
    assert_error(repeats[0], 409)
    assert repeats[0].headers["Retry-After"] == "1"


def test_two_clients_may_choose_the_same_key(client, url, once, asked_by):
    principals = [Principal("a", "k-a"), Principal("b", "k-b"), Principal("box", "k-a", sandbox_id="box")]
    for principal in principals:
        asked_by(principal)
        response = client.post(f"{url}/events", json=TEXT, **once)
        assert (response.status_code, replayed(response)) == (200, False)

    assert count(client, url) == len(principals)


def test_a_response_that_bears_a_key_is_made_again_and_nowhere_stored(client, app, once):
    store = app.extensions["server"].store
    store.sandboxes.beat("h", "supervisor")
    first = client.post("/api/v1/sandboxes", **once)
    again = client.post("/api/v1/sandboxes", **once)

    assert first.status_code == again.status_code == 200
    assert again.get_json()["id"] == first.get_json()["id"]
    assert replayed(again)
    records = [store.sandboxes._redis.hgetall(key) for key in store.sandboxes._redis.scan_iter("once:*:key:*")]
    assert records
    kept = b"".join(b"".join(one.values()) for one in records)
    assert first.get_json()["id"].encode() not in kept


def test_the_repeat_of_a_start_whose_sandbox_was_deleted_starts_no_other(client, app, once):
    store = app.extensions["server"].store
    store.sandboxes.beat("h", "supervisor")
    sandbox = client.post("/api/v1/sandboxes", **once).get_json()["id"]
    store.sandboxes.ask(sandbox, "delete")
    while host := store.sandboxes.claim("h"):
        store.sandboxes.report(host, "h", "supervisor", "GONE")

    assert client.post("/api/v1/sandboxes", **once).status_code == 404


def test_a_response_that_is_too_long_is_made_again(client, once, monkeypatch):
    monkeypatch.setattr(idempotency, "MOST_KEPT_BYTES", 100)
    first = client.post("/api/conversations", json={"title": "long"}, **once)
    again = client.post("/api/conversations", json={"title": "long"}, **once)

    assert (again.status_code, again.data) == (first.status_code, first.data)
    assert replayed(again)


def test_a_response_that_is_too_long_and_cannot_be_made_again_is_409_in_words(client, url, once, monkeypatch):
    monkeypatch.setattr(idempotency, "MOST_KEPT_BYTES", 1)
    assert client.post(f"{url}/events", json=TEXT, **once).status_code == 200
    again = client.post(f"{url}/events", json=TEXT, **once)

    assert_error(again, 409)
    assert "succeeded" in again.get_json()["detail"]
    assert count(client, url) == 1


def test_a_repeated_start_that_streams_streams_the_same_start_task(client, app, once, monkeypatch):
    monkeypatch.setattr("blueprints.app_conversations._states", lambda _, start, __: iter([start.id]))
    app.extensions["server"].store.sandboxes.beat("h", "supervisor")
    first, again = (client.post("/api/v1/app-conversations/stream-start", json={}, **once) for _ in range(2))

    assert first.data == again.data
    assert replayed(again)


def test_an_archive_is_refused_with_the_header(client, once):
    response = client.post("/api/v1/sandboxes?from=archive", data=b"x", content_type="application/zstd", **once)

    assert_error(response, 400)
    assert "archive" in response.get_json()["detail"]


def test_a_client_has_a_bounded_number_of_keys(redis_url, url):
    client = create_app(Config.of(redis_url=redis_url, redis_timeout=10, max_idempotency_keys=2)).test_client()
    functions, identity = client.application.before_request_funcs[None], str(uuid4())
    functions.insert(2, lambda: setattr(g, "principal", Principal("a", identity)))

    statuses = [
        client.post(f"{url}/events", json=TEXT, headers={"Idempotency-Key": str(number)}).status_code
        for number in (1, 2, 3, 1)
    ]

    assert statuses == [200, 200, 429, 200]


def test_a_request_without_the_header_asks_redis_for_nothing_more(app, client, url, monkeypatch):
    monkeypatch.setattr(type(app.extensions["server"].store.access.idempotency), "begin", None)

    assert client.post(f"{url}/events", json=TEXT).status_code == 200
