"""Who may do what: every rule of the app with every kind of key. Source: docs/access.md."""

import contextlib
import io
import json
import re
import time
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.test import create_environ, run_wsgi_app
from werkzeug.wsgi import ClosingIterator

from app import create_app
from blueprints.api import Blueprint
from blueprints.guard import Guard
from core.access import SettingsKeys
from core.wire import now
from docs import make
from schemas.access import MOST_NAME
from settings.config import Config
from store.access import Quota, TooManyFollowersOfKey
from tests.conftest import as_events, message
from tests.servers import wait_until
from tests.shared import ADMIN

KINDS = ("nobody", "wrong", "read", "write", "approve", "admin", "ask", "hook", "foreign hook", "session")

#: scope that a rule declares → the kinds of key that pass
PASS = {
    "open": set(KINDS),
    "read": {"read", "write", "approve", "admin"},
    "write": {"write", "admin"},
    "approve": {"approve", "admin"},
    "admin": {"admin"},
    "ask": {"admin", "ask"},
    "hook": {"hook", "foreign hook"},
}


#: the paths that need no key
OPEN = ("/alive", "/health", "/ready", "/api/v1/web-client/config")


@pytest.fixture(scope="module")
def guarded(redis_url):
    return create_app(
        Config.of(
            redis_url=redis_url,
            redis_timeout=10,
            secret_key="a key for tests only",
            api_keys=(ADMIN, "another-admin-key-of-them"),
            rate_limit_failures="none",
            rate_limit_starts="none",
        )
    )


@pytest.fixture(scope="module")
def keys(guarded):
    """A key of each kind, and the sandbox of the hook key."""
    store, client = guarded.extensions["server"].store, guarded.test_client()
    made = {
        scope: client.post("/api/v1/keys", json={"name": scope, "scopes": [scope]}, headers=bearer(ADMIN)).json["key"]
        for scope in ("read", "write", "approve", "ask")
    }
    store.sandboxes.beat("guarded", "supervisor")
    sandboxes = [store.sandboxes.start("spec", host="guarded") for _ in range(2)]
    hooks = [store.sandboxes.begin(one.id, "guarded", "supervisor", "process") for one in sandboxes]
    made["session"] = store.sandboxes.get(sandboxes[0].id).session_api_key
    return {**made, "nobody": None, "wrong": "w" * 40, "admin": ADMIN, "hook": hooks[0], "foreign hook": hooks[1]}, (
        sandboxes[0].id
    )


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def rules(app):
    """Method, path with ids in it, and the view's declaration, of every rule but those of pages and assets."""
    for rule in app.url_map.iter_rules():
        declared = getattr(app.view_functions[rule.endpoint], "needs", None)
        if declared is None or rule.websocket:
            continue
        for method in rule.methods - {"HEAD", "OPTIONS"}:
            yield method, rule.rule, declared


def expected(declared, kind, path):
    """The status of the refusal, None where the request passes."""
    if declared.scope == "link":
        return 403  # the token of the path is none, whoever asks
    if kind in PASS[declared.scope]:
        return 401 if kind == "foreign hook" and "<sandbox_id>" in path else None
    if kind == "session":
        return None if declared.session else 401
    if "hook" in kind:
        return None if declared.hook else 403
    if declared.scope == "hook":
        return 401
    return 401 if kind in ("nobody", "wrong") else 403


class Body(io.RawIOBase):
    """A body that knows whether somebody reads of it."""

    is_read = False

    def readable(self):
        return True

    def readinto(self, _):
        self.is_read = True
        return 0


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Nothing"])
def test_no_body_is_read_of_one_who_may_not_send_it(guarded, header):
    read = []
    for method, rule, _ in rules(guarded):
        path = re.sub(r"<[^>]*>", str(uuid4()), rule)
        environ = create_environ(path, method=method, headers={header: "some-key"}, content_type="application/json")
        environ |= {"wsgi.input": (body := Body()), "CONTENT_LENGTH": str(8 << 20)}
        with contextlib.closing(ClosingIterator(run_wsgi_app(guarded, environ)[0])):
            read += [f"{method} {rule}"] if body.is_read else []
    assert read == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_answers_every_key_as_its_scope_says(guarded, keys, kind):
    by_kind, sandbox_id = keys
    key, client = by_kind[kind], guarded.test_client()
    found = {}
    for number, (method, rule, declared) in enumerate(rules(guarded)):
        is_bearer = (number + KINDS.index(kind)) % 2  # each rule is asked both ways
        shown = {} if key is None else bearer(key) if is_bearer else {"X-Session-API-Key": key}
        path = re.sub(r"<[^>]*conversation_id>", str(uuid4()), rule)
        path = path.replace("<sandbox_id>", sandbox_id if "webhooks" in rule else "unknown")
        path = re.sub(r"<[^>]*>", "unknown", path)
        # A body that no operation takes, a spec that is not there, secrets that no sandbox shows: what passes the guard
        # has no effect, and waits for no agent.
        response = client.open(
            path,
            method=method,
            query_string={"sandbox_spec_id": "unknown"},
            headers={**shown, "X-Expose-Secrets": "plaintext"},
            data=None if method == "GET" else "x",
            content_type="text/plain",
        )
        response.close()
        refused = response.status_code if response.status_code in (401, 403) else None
        if refused != expected(declared, kind, rule) or response.status_code == 500:
            found[f"{method} {rule}"] = (response.status_code, response.get_json())
    assert found == {}


def test_a_rule_that_declares_no_scope_stops_the_start(redis_url):
    app = create_app(Config.of(redis_url=redis_url))
    app._got_first_request = False
    app.add_url_rule("/undeclared", view_func=lambda: "")
    with pytest.raises(LookupError, match="does not declare who may call it"):
        Guard(app, app.extensions["server"].store, SettingsKeys(()), Quota(1, TooManyFollowersOfKey), is_open=True)

    blueprint = Blueprint("undeclared", __name__)
    with pytest.raises(LookupError, match="lacks @needs"):
        blueprint.get("/path")(lambda: "")


def test_the_table_in_the_docs_is_current():
    assert make.ACCESS.read_text() == make.access(), "run `make docs`"


WRONG_KEYS = [
    ({}, "A key is needed"),
    ({"Authorization": "Basic YTpi"}, "must be: Bearer KEY"),
    ({"Authorization": "Bearer"}, "must be: Bearer KEY"),
    ({"Authorization": "Bearer nope"}, "wrong"),
    ({"Authorization": f"Bearer {ADMIN}x"}, "wrong"),
    ({"Authorization": f"Bearer {ADMIN[:-1]}"}, "wrong"),
    ({"X-Session-API-Key": "ü" * 30}, "wrong"),
    ({"X-Session-API-Key": "k" * 8000}, "wrong"),
    ({"X-Session-API-Key": ""}, "wrong"),
    ({"X-Session-API-Key": ADMIN, "Authorization": "Bearer another-admin-key-of-them"}, "two different keys"),
]


def test_a_wrong_key_is_401_and_says_why(guarded):
    for headers, words in WRONG_KEYS:
        response = guarded.test_client().get("/api/conversations/count", headers=headers)

        assert response.status_code == 401, headers
        assert words in response.get_json()["detail"]
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_a_key_in_the_query_opens_no_plain_request(guarded):
    response = guarded.test_client().get("/api/conversations/count", query_string={"session_api_key": ADMIN})

    assert response.status_code == 401
    assert response.get_json()["detail"] == "A key in the query is only valid for sockets: send it in a header"


def test_the_same_key_in_both_headers_is_one_key(guarded):
    both = {"X-Session-API-Key": ADMIN, **bearer(ADMIN)}
    assert guarded.test_client().get("/api/conversations/count", headers=both).status_code == 200


def test_what_is_wrong_within_a_path_is_told_to_those_who_may_read(guarded):
    client = guarded.test_client()
    assert client.get("/api/conversations/no-uuid").status_code == 401
    assert client.get("/api/conversations/no-uuid", headers=bearer(ADMIN)).status_code == 422
    assert client.get("/no-such-path").status_code == 404


def test_the_document_says_who_may_call_what(guarded):
    document = guarded.test_client().get("/openapi.json").get_json()
    by_path = {
        (method, path): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method != "parameters"
    }
    for (method, path), operation in by_path.items():
        is_open = operation["security"] == []
        assert is_open == (path in OPEN), (method, path)
        assert ("401" in operation["responses"]) != is_open
    assert set(document["components"]["securitySchemes"]) == {"bearer", "key"}
    assert by_path["post", "/api/v1/webhooks/conversations"]["security"] == [{"bearer": []}]
    assert "403" in by_path["post", "/api/v1/sandboxes"]["responses"]


# keys


def test_a_key_is_shown_once_and_opens_until_it_is_revoked(guarded):
    client = guarded.test_client()
    made = client.post("/api/v1/keys", json={"name": "Ada's", "scopes": ["write", "read"]}, headers=bearer(ADMIN))
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    key = made.get_json().pop("key")
    assert len(key) > 43

    listed = client.get("/api/v1/keys", headers=bearer(ADMIN)).get_json()
    [found] = [one for one in listed if one["id"] == made.get_json()["id"]]
    assert (found["name"], found["scopes"], found["used_at"], found["expires_at"]) == (
        "Ada's",
        ["read", "write"],
        None,
        None,
    )
    assert key not in json.dumps(listed)

    assert client.get("/api/conversations/count", headers=bearer(key)).status_code == 200
    assert next(
        one for one in client.get("/api/v1/keys", headers=bearer(ADMIN)).get_json() if one["id"] == found["id"]
    )["used_at"]
    assert client.delete(f"/api/v1/keys/{found['id']}", headers=bearer(ADMIN)).status_code == 200
    assert client.get("/api/conversations/count", headers=bearer(key)).status_code == 401
    assert client.delete(f"/api/v1/keys/{found['id']}", headers=bearer(ADMIN)).status_code == 404


@pytest.mark.process("waits for what threads do")
def test_a_key_that_expires_opens_nothing_after_that(guarded):
    client = guarded.test_client()
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    made = client.post(
        "/api/v1/keys", json={"name": "short", "scopes": ["read"], "expires_at": later}, headers=bearer(ADMIN)
    )
    key, identity = made.get_json()["key"], made.get_json()["id"]
    assert client.get("/api/conversations/count", headers=bearer(key)).status_code == 200

    # When its time has come
    guarded.extensions["server"].store.sandboxes._redis.hset(f"{{access}}:key:{identity}", "expires_at", now())

    wait_until(lambda: client.get("/api/conversations/count", headers=bearer(key)).status_code == 401, "its end")


NO_KEYS = [
    ({"scopes": ["read"]}, "name"),
    ({"name": "", "scopes": ["read"]}, "name"),
    ({"name": "a\nb", "scopes": ["read"]}, "name"),
    ({"name": "x" * (MOST_NAME + 1), "scopes": ["read"]}, "name"),
    ({"name": "x", "scopes": []}, "scopes"),
    ({"name": "x", "scopes": ["root"]}, "scopes"),
    ({"name": "x", "scopes": "read"}, "scopes"),
    ({"name": "x", "scopes": ["read"], "expires_at": "soon"}, "expires_at"),
    ({"name": "x", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
]


def test_a_key_that_cannot_be_made_is_422_and_names_the_member(guarded):
    for body, place in NO_KEYS:
        response = guarded.test_client().post("/api/v1/keys", json=body, headers=bearer(ADMIN))

        assert response.status_code == 422, body
        assert place in response.get_json()["detail"][0]["loc"]


@pytest.mark.parametrize(
    ("path", "body"),
    [("keys", {"name": "once", "scopes": ["read"]}), ("tickets", {"conversation_id": str(uuid4())})],
)
def test_a_response_that_shows_a_key_is_not_kept_for_a_repeat(guarded, path, body):
    client, headers = guarded.test_client(), {**bearer(ADMIN), "Idempotency-Key": str(uuid4())}
    assert client.post(f"/api/v1/{path}", json=body, headers=headers).status_code == 201
    again = client.post(f"/api/v1/{path}", json=body, headers=headers)
    assert (again.status_code, "key" in again.get_json()) == (409, False)


def test_no_redis_value_holds_a_key(guarded):
    client = guarded.test_client()
    made = client.post("/api/v1/keys", json={"name": "planted", "scopes": ["read"]}, headers=bearer(ADMIN)).get_json()
    redis = guarded.extensions["server"].store.sandboxes._redis
    stored = [redis.hgetall(key) for key in redis.scan_iter("{access}:key:*")]
    assert made["name"].encode() in {one[b"name"] for one in stored}
    assert made["key"] not in str(stored) + str([redis.hgetall(key) for key in redis.scan_iter("{access}:digests")])


# what a scope leaves out


@pytest.fixture
def waiting(guarded, conversation):
    """A detached conversation with an action that waits."""
    client, admin = guarded.test_client(), bearer(ADMIN)
    body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert client.post("/api/conversations", json=body, headers=admin).status_code == 201
    act = [
        {
            "id": str(uuid4()),
            "timestamp": "2026-11-20T20:37:22",
            "source": "agent",
            "kind": "ActionEvent",
            "action": {"kind": "TerminalAction", "command": "rm -rf /"},
            "tool_name": "terminal",
            "tool_call_id": "1",
            "llm_response_id": "1",
        }
    ]
    assert client.post(f"/api/v1/webhooks/events/{conversation}", json=act, headers=admin).status_code == 200
    assert pending(guarded, conversation)
    return conversation


def pending(guarded, conversation):
    return guarded.extensions["server"].store.approvals.confirmations.pending(conversation)


@pytest.mark.parametrize(
    ("path", "body"),
    [("run", None), ("events", {"role": "user", "content": [{"type": "text", "text": "go on"}], "run": True})],
)
def test_write_alone_answers_nothing_that_waits(guarded, keys, waiting, path, body):
    client, url = guarded.test_client(), f"/api/conversations/{waiting}/{path}"

    response = client.post(url, json=body, headers=bearer(keys[0]["write"]))
    assert response.status_code == 403
    assert "scope approve" in response.get_json()["detail"]
    assert len(pending(guarded, waiting)) == 1

    assert client.post(url, json=body, headers=bearer(ADMIN)).status_code == 200
    assert pending(guarded, waiting) == []


def test_write_alone_runs_and_sends_where_nothing_waits(guarded, keys, conversation):
    client, write = guarded.test_client(), bearer(keys[0]["write"])
    assert client.post("/api/conversations", json={"conversation_id": conversation}, headers=write).status_code == 201
    body = {"role": "user", "content": [{"type": "text", "text": "hello"}], "run": False}
    assert client.post(f"/api/conversations/{conversation}/events", json=body, headers=write).status_code == 200
    assert client.post(f"/api/conversations/{conversation}/run", headers=write).status_code == 200


def test_approve_decides_and_writes_nothing_else(guarded, keys, waiting):
    client, approve = guarded.test_client(), bearer(keys[0]["approve"])
    body = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    assert client.post(f"/api/conversations/{waiting}/events", json=body, headers=approve).status_code == 403
    decided = client.post(
        f"/api/conversations/{waiting}/events/respond_to_confirmation", json={"accept": True}, headers=approve
    )
    assert decided.get_json() == {"success": True}


def test_a_key_that_may_only_read_or_write_sees_no_session_key(guarded, keys):
    by_kind, sandbox_id = keys
    store = guarded.extensions["server"].store
    running = {"handle": {"pid": 1}, "urls": [], "agent_url": "http://agent"}
    store.sandboxes.beat("guarded", "supervisor")  # the tests before may have taken longer than the host's lease
    store.sandboxes.report(sandbox_id, "guarded", "supervisor", "RUNNING", **running)
    seen = {}
    for kind in ("read", "write", "approve", "admin"):
        client = guarded.test_client()
        [one] = client.get("/api/v1/sandboxes", query_string={"id": sandbox_id}, headers=bearer(by_kind[kind])).json
        page = client.get("/api/v1/sandboxes/search", headers=bearer(by_kind[kind])).json["items"]
        seen[kind] = one["session_api_key"] is not None
        assert seen[kind] == any(each["session_api_key"] for each in page if each["id"] == sandbox_id)
    assert seen == {"read": False, "write": False, "approve": True, "admin": True}


def test_an_app_without_keys_lets_everyone_in(redis_url, conversation):
    client = create_app(Config.of(redis_url=redis_url)).test_client()
    assert isinstance(client.application, Flask)
    store = client.application.extensions["server"].store
    store.events.append(conversation, as_events([message("hello")]))
    assert client.get(f"/api/conversations/{conversation}/events/count").get_json() == 1
    assert client.get(f"/api/conversations/{conversation}", headers=bearer("unknown")).status_code == 200


def test_a_query_that_is_no_unicode_is_named_after_the_key_and_ignored_by_probes(guarded):
    client, shown = guarded.test_client(), {"Authorization": f"Bearer {ADMIN}"}
    for path in ("/", "/metrics", "/server_info", *OPEN[:3]):
        assert client.get(f"{path}?%ff", headers=shown).status_code == 200, path
    for path in (
        "/api/conversations/search",
        f"/api/conversations/{uuid4()}/events/search",
        "/api/v1/sandboxes/search",
    ):
        assert client.get(f"{path}?%ff").status_code == 401, path
        refused = client.get(f"{path}?a%ff=1", headers=shown)
        assert refused.status_code == 422, path
        assert refused.get_json()["detail"][0]["loc"] == ["query", "a\ufffd"], path
