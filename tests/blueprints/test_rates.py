"""Rate limits: of one key, of one address; counted in Redis, and only what the settings say."""

import functools
import json
from contextlib import suppress
from uuid import uuid4

import pytest
from flask import g, request
from werkzeug.exceptions import Unauthorized

from app import create_app
from blueprints.rates import count_failure
from blueprints.websocket import SocketClosed, first_frame
from core.access import Principal
from settings import ConfigError
from settings.config import Config
from store.sandboxes.sandboxes import Sandboxes
from store.sandboxes.start_tasks import StartTasks
from tests.blueprints import NOWHERE
from tests.round_trips import counted
from tests.test_error_shape import assert_error


@pytest.fixture(scope="module")
def servers(redis_url):
    """Apps with limits, which tests share; a request is that of the principal in `asked_by` of its environ."""

    @functools.cache
    def make(_number: int, url: str, **settings):
        settings = {"rate_limit_writes": "none", "rate_limit_starts": "none", "rate_limit_failures": "none", **settings}
        app = create_app(Config.of(redis_url=url or redis_url, redis_timeout=10, **settings))

        def ask() -> None:
            if request.environ.get("key is wrong"):
                count_failure()
                raise Unauthorized
            g.principal = request.environ["asked_by"] or g.principal

        app.before_request_funcs[None].insert(2, ask)
        return app

    return make


@pytest.fixture
def limited(servers):
    """Make a client of an app with some limits, whose requests come from an address of their own."""

    def make(principal: Principal | None = None, number: int = 1, url: str = "", **settings):
        client = servers(number, url, **settings).test_client()
        client.environ_base.update(REMOTE_ADDR=address, asked_by=principal)
        return client

    address = f"fd00::{uuid4().hex[:4]}:{uuid4().hex[:4]}"
    return make


#: limits of writes and of failures, and of reads and of starts: those that do not meet
FEW = {"rate_limit_writes": "2/minute", "rate_limit_failures": "2/minute"}
SOME = {"rate_limit_reads": "2/hour", "rate_limit_starts": "1/minute"}


def alice(**members) -> Principal:
    return Principal("alice", uuid4().hex, **members)


def statuses(client, number: int, path: str = "/api/conversations") -> list[int]:
    return [client.post(path).status_code for _ in range(number)]


def test_writes_with_one_key_are_limited_and_the_response_names_setting_and_time(limited):
    client = limited(alice(), **FEW)
    assert statuses(client, 2) == [201, 201]

    refused = client.post("/api/conversations")

    assert_error(refused, 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "2/minute" in refused.get_json()["detail"]
    assert "RATE_LIMIT_WRITES" in refused.get_json()["detail"]
    assert refused.headers["X-Request-Id"]
    assert client.get("/api/conversations/count").status_code == 200


def test_each_key_has_a_limit_of_its_own_on_all_servers(limited):
    one = alice()

    assert statuses(limited(one, **FEW), 2) == [201, 201]
    assert statuses(limited(one, number=2, **FEW), 1) == [429]
    assert statuses(limited(alice(), **FEW), 1) == [201]


@pytest.mark.parametrize("principal", [None, alice(sandbox_id="box")], ids=["without a key", "of a sandbox"])
def test_a_request_without_a_clients_key_has_no_limit_of_writes(limited, principal):
    assert statuses(limited(principal, **FEW), 3) == [201] * 3


def test_webhooks_are_exempt(limited):
    client = limited(alice(), **FEW)

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
    client = limited(alice() if has_key else None, **SOME)
    monkeypatch.setattr(Sandboxes, "start", _refuse)
    monkeypatch.setattr(StartTasks, "create", _refuse)

    assert statuses(client, 2, path)[0] != 429
    assert "RATE_LIMIT_STARTS" in client.post(path).get_json()["detail"]
    assert statuses(client, 2, "/api/conversations") == [201, 201]


def _refuse(*_args, **_options):
    raise Unauthorized("not in this test")


def test_reads_are_limited_only_when_a_setting_says_so(limited):
    client = limited(alice(), **SOME)
    reads = [client.get("/api/conversations/count").status_code for _ in range(3)]

    assert reads == [200, 200, 429]
    assert statuses(client, 1) == [201]


def test_a_read_costs_no_further_round_trip(limited):
    client = limited(alice(), **FEW)
    client.get("/api/conversations/count")

    with counted() as trips:
        client.get("/api/conversations/count")

    assert trips.number == 1


def test_failures_of_one_address_are_limited_and_a_right_key_is_not(limited):
    client = limited(**FEW)
    client.environ_base["key is wrong"] = True

    assert statuses(client, 3) == [401, 401, 429]
    refused = client.post("/api/conversations")
    assert "RATE_LIMIT_FAILURES" in refused.get_json()["detail"]
    assert int(refused.headers["Retry-After"]) >= 1

    limited_one = client.environ_base["REMOTE_ADDR"]
    client.environ_base["REMOTE_ADDR"] = f"fd01::{uuid4().hex[:4]}:{uuid4().hex[:4]}"
    assert statuses(client, 1) == [401]
    client.environ_base |= {"REMOTE_ADDR": limited_one, "key is wrong": False}
    assert statuses(client, 1) == [201]


def test_a_store_that_is_away_is_503_and_no_error_of_the_limit(limited):
    client = limited(alice(), url=NOWHERE, rate_limit_writes="1/minute", rate_limit_starts="1/minute")

    assert_error(client.post("/api/conversations"), 503)
    assert_error(client.post("/api/v1/app-conversations"), 503)
    assert client.get("/alive").status_code == 200


def test_the_window_of_a_limit_ends(limited, store):
    principal = alice()
    client = limited(principal, **FEW)
    assert statuses(client, 3) == [201, 201, 429]
    redis = store.sandboxes._redis
    [counter] = redis.scan_iter(f"rate:*{principal.key_id}*")
    assert 0 < redis.ttl(counter) <= 60

    redis.pexpire(counter, 0)

    assert statuses(client, 3) == [201, 201, 429]


def test_a_limit_of_another_form_is_refused_at_the_start():
    for value in ("many", "0/minute", "5", "5/fortnight", "-1/second", "5 per minute", ""):
        with pytest.raises(ConfigError, match="RATE_LIMIT_WRITES must be NUMBER/second"):
            Config.of(rate_limit_writes=value)


class OneFrame:
    """A socket whose client sends one frame; the code and the reason of its end."""

    def __init__(self, frame: bytes) -> None:
        self.frame, self.closed = frame, (0, "")

    def accept(self) -> None: ...

    def receive_first(self, *_) -> bytes:
        return self.frame

    def close(self, *closed) -> None:
        self.closed = closed


@pytest.fixture
def closed(redis_url):
    """Show the key of a first frame from an address of its own, to an app with keys; how the socket is closed."""
    app = create_app(
        Config.of(
            redis_url=redis_url, redis_timeout=10, api_keys=("the-key-of-an-admin",), rate_limit_failures="2/minute"
        )
    )
    address = f"fd00::{uuid4().hex[:4]}:{uuid4().hex[:4]}"

    def shown(key: str) -> tuple[int, str]:
        socket = OneFrame(json.dumps({"type": "auth", "session_api_key": key}).encode())
        with app.test_request_context("/", environ_base={"REMOTE_ADDR": address}), suppress(SocketClosed):
            first_frame(socket, app.extensions["server"].guard)
        return socket.closed

    shown.client = app.test_client()
    shown.client.environ_base.update(REMOTE_ADDR=address)
    return shown


def test_wrong_keys_in_first_frames_of_sockets_are_counted_like_those_of_requests(closed):
    assert [closed("a-guess")[0], closed("another")[0]] == [4001, 4001]

    code, reason = closed("a-third")
    assert code == 1013
    assert "RATE_LIMIT_FAILURES" in reason
    assert closed("the-key-of-an-admin") == (0, "")
    assert closed.client.get("/api/conversations/count").status_code == 429


def test_wrong_keys_at_the_handshake_of_a_socket_are_counted(closed):
    def handshake() -> int:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
        return closed.client.get(f"/sockets/events/{uuid4()}?session_api_key=a-guess", headers=headers).status_code

    assert [handshake() for _ in range(3)] == [403, 403, 429]
