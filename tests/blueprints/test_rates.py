"""Rate limits: of one key, of one address; counted in Redis, and only what the settings say."""

from uuid import uuid4

import pytest
from flask import g
from werkzeug.exceptions import Unauthorized

from access import Principal
from app import create_app
from blueprints.rates import count_failure
from config import Config, ConfigError
from store.sandboxes.sandboxes import Sandboxes
from store.sandboxes.start_tasks import StartTasks
from tests.round_trips import counted
from tests.test_error_shape import assert_error


@pytest.fixture
def limited(redis_url):
    """Make a client of an app with some limits, whose requests come from an address of their own."""

    def make(principal: Principal | None = None, url: str = redis_url, **settings):
        settings = {"rate_limit_writes": "none", "rate_limit_starts": "none", "rate_limit_failures": "none", **settings}
        app = create_app(Config(redis_url=url, redis_timeout=10, **settings))
        if principal:
            app.before_request_funcs[None].insert(2, lambda: setattr(g, "principal", principal))
        client = app.test_client()
        client.environ_base["REMOTE_ADDR"] = address
        return client

    address = f"fd00::{uuid4().hex[:4]}"
    return make


def alice(**members) -> Principal:
    return Principal("alice", uuid4().hex, **members)


def statuses(client, number: int, path: str = "/api/conversations") -> list[int]:
    return [client.post(path).status_code for _ in range(number)]


def test_writes_with_one_key_are_limited_and_the_response_names_setting_and_time(limited):
    client = limited(alice(), rate_limit_writes="2/minute")
    assert statuses(client, 2) == [201, 201]

    refused = client.post("/api/conversations")

    assert_error(refused, 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "2/minute" in refused.get_json()["detail"]
    assert "RATE_LIMIT_WRITES" in refused.get_json()["detail"]
    assert refused.headers["X-Request-Id"]
    assert client.get("/api/conversations/count").status_code == 200


def test_each_key_has_a_limit_of_its_own_on_all_servers(limited):
    first, same = alice(), alice()
    clients = [limited(one, rate_limit_writes="2/minute") for one in (first, first, same)]

    assert statuses(clients[0], 2) == [201, 201]
    assert statuses(clients[1], 1) == [429]
    assert statuses(clients[2], 1) == [201]


@pytest.mark.parametrize("principal", [None, alice(sandbox_id="box")], ids=["without a key", "of a sandbox"])
def test_a_request_without_a_clients_key_has_no_limit_of_writes(limited, principal):
    assert statuses(limited(principal, rate_limit_writes="1/minute"), 3) == [201] * 3


def test_webhooks_are_exempt(limited):
    client = limited(alice(), rate_limit_writes="1/minute")

    for _ in range(3):
        assert client.post(f"/api/v1/webhooks/events/{uuid4()}", json=[]).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/sandboxes",
        "/api/v1/app-conversations",
        "/api/v1/app-conversations/stream-start",
        "/api/v1/sandboxes/x/resume",
    ],
)
@pytest.mark.parametrize("has_key", [False, True], ids=["of an address", "of a key"])
def test_starts_are_limited(limited, path, has_key, monkeypatch):
    client = limited(alice() if has_key else None, rate_limit_starts="1/minute")
    monkeypatch.setattr(Sandboxes, "start", _refuse)
    monkeypatch.setattr(StartTasks, "create", _refuse)

    assert statuses(client, 2, path)[0] != 429
    assert "RATE_LIMIT_STARTS" in client.post(path).get_json()["detail"]
    assert statuses(client, 2, "/api/conversations") == [201, 201]


def _refuse(*_args, **_options):
    raise Unauthorized("not in this test")


def test_reads_are_limited_only_when_a_setting_says_so(limited):
    client = limited(alice(), rate_limit_reads="2/hour")
    reads = [client.get("/api/conversations/count").status_code for _ in range(3)]

    assert reads == [200, 200, 429]
    assert statuses(client, 1) == [201]


def test_a_read_costs_no_further_round_trip(limited):
    client = limited(alice(), rate_limit_writes="100/minute", rate_limit_starts="100/minute")
    client.get("/api/conversations/count")

    with counted() as trips:
        client.get("/api/conversations/count")

    assert trips.number == 1


def test_failures_of_one_address_are_limited_and_a_right_key_is_not(limited):
    client = limited(rate_limit_failures="2/minute")

    def guard() -> None:
        if client.application.config.get("WRONG"):
            count_failure()
            raise Unauthorized

    client.application.before_request_funcs[None].insert(0, guard)
    client.application.config["WRONG"] = True
    assert statuses(client, 3) == [401, 401, 429]
    refused = client.post("/api/conversations")
    assert "RATE_LIMIT_FAILURES" in refused.get_json()["detail"]
    assert int(refused.headers["Retry-After"]) >= 1

    client.environ_base["REMOTE_ADDR"] = f"fd01::{uuid4().hex[:4]}"
    assert statuses(client, 1) == [401]
    client.environ_base["REMOTE_ADDR"] = "fd00::1"
    client.application.config["WRONG"] = False
    assert statuses(client, 1) == [201]


def test_a_store_that_is_away_is_503_and_no_error_of_the_limit(limited):
    client = limited(
        alice(), url="unix:///nowhere/redis.sock", rate_limit_writes="1/minute", rate_limit_starts="1/minute"
    )

    assert_error(client.post("/api/conversations"), 503)
    assert_error(client.post("/api/v1/app-conversations"), 503)
    assert client.get("/alive").status_code == 200


def test_the_window_of_a_limit_ends(limited, store):
    principal = alice()
    client = limited(principal, rate_limit_writes="1/minute")
    assert statuses(client, 2) == [201, 429]
    redis = store.sandboxes._redis
    [counter] = redis.scan_iter(f"rate:*{principal.key_id}*")
    assert 0 < redis.ttl(counter) <= 60

    redis.pexpire(counter, 0)

    assert statuses(client, 2) == [201, 429]


@pytest.mark.parametrize("value", ["many", "0/minute", "5", "5/fortnight", "-1/second", "5 per minute", ""])
def test_a_limit_of_another_form_is_refused_at_the_start(value):
    with pytest.raises(ConfigError, match="RATE_LIMIT_WRITES must be NUMBER/second"):
        Config(rate_limit_writes=value)
