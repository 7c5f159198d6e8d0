"""Keys of a server that is open: what it says with the first one, and of a key that it does not know."""

from uuid import uuid4

import pytest

from app import create_app
from blueprints.guard import KEY_STATUS
from settings.config import Config
from tests.conftest import SECRET_KEY

KEYS, OPEN, NO_ADMIN = "/api/v1/keys", "This server is open now", "make yourself a key with the scope `admin`"
SETTINGS_KEY = "a-key-for-tests-only"


@pytest.fixture
def serving(redis_url):
    """Make clients of servers on a store without keys: serving(auth="open")."""
    options = {"redis_url": redis_url, "redis_timeout": 10, "secret_key": SECRET_KEY}

    def client(**settings):
        return create_app(Config.of(**options, **settings)).test_client()

    yield client
    last = client()
    for key in last.get(KEYS).json:
        last.delete(f"{KEYS}/{key['id']}")


def make(client, *scopes: str, **members):
    response = client.post(KEYS, json={"name": uuid4().hex, "scopes": [*scopes], **members})
    assert response.status_code == 201
    return response.json


def test_the_first_key_of_an_open_server_comes_with_what_it_changes(serving):
    client = serving()
    assert client.get("/server_info").json["auth"] == "open_until_key"

    first, admin, later = make(client, "read"), make(client, "admin"), make(client, "read")

    assert OPEN in first["notice"]
    assert NO_ADMIN in first["notice"]
    assert [OPEN in key["notice"] for key in (admin, later)] == [True, True]
    assert [NO_ADMIN in key["notice"] for key in (admin, later)] == [False, False]


def test_a_server_whose_next_start_changes_nothing_says_nothing_with_a_key(serving):
    asks, stays_open = serving(api_keys=(SETTINGS_KEY,)), serving(auth="open")
    asks.environ_base["HTTP_X_SESSION_API_KEY"] = SETTINGS_KEY

    assert [client.get("/server_info").json["auth"] for client in (asks, stays_open)] == ["keys", "open"]
    assert [make(client, "read")["notice"] for client in (asks, stays_open)] == [None, None]


def test_an_open_server_says_of_a_key_that_it_does_not_know_it_and_serves_it(serving):
    client = serving()
    known = make(client, "read")["key"]

    def status(key: str):
        response = client.get("/server_info", headers={"Authorization": f"Bearer {key}"})
        return response.status_code, response.headers.get(KEY_STATUS)

    assert status("no-key-of-this-server") == (200, "unknown")
    assert status("x" * 600) == (200, "unknown")
    assert status(known) == (200, None)
    assert KEY_STATUS not in client.get("/server_info").headers
    assert KEY_STATUS not in client.get("/server_info", headers={"Authorization": "Basic YTpi"}).headers


def test_a_server_that_needs_keys_says_nothing_more_of_a_wrong_one(serving):
    response = serving(api_keys=(SETTINGS_KEY,)).get("/server_info", headers={"X-Session-API-Key": "wrong"})

    assert response.status_code == 401
    assert KEY_STATUS not in response.headers


def test_a_worker_that_finds_stored_keys_of_no_admin_makes_a_key_that_opens_it(
    serving, redis_url, tmp_path, monkeypatch, capsys
):
    """The store did not answer when the server started: each worker asks for keys by itself."""
    make(serving(), "read")
    for name, value in {"REDIS_URL": redis_url, "DATA_DIR": str(tmp_path), "AUTH": "auto"}.items():
        monkeypatch.setenv(name, value)
    first, second = create_app().test_client(), create_app().test_client()

    assert [client.get("/server_info").status_code for client in (first, second)] == [401, 401]

    key = (tmp_path / "key").read_text().strip()
    opened = [client.get("/server_info", headers={"X-Session-API-Key": key}).status_code for client in (first, second)]
    assert opened == [200, 200]
    assert capsys.readouterr().err.count(f"/console/#key={key}") == 1
