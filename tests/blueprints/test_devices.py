"""Devices over HTTP: whoever adds one alone sees, tests and ends it, and no response shows its address."""

import pytest

from app import create_app
from settings.config import Config
from store.devices import MOST_OWN
from tests.conftest import SECRET_KEY
from tests.notifications import forget_notifications, receiver
from tests.notifications.push_service import PushService

ADMIN = "an-admin-key-of-the-tests"


@pytest.fixture
def phone():
    """The push service of a browser."""
    with receiver(kind=PushService) as one:
        yield one


def app_of(redis_url, **settings):
    values = dict(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=(ADMIN,), push_private=1)
    return create_app(Config.of(**(values | settings)))


@pytest.fixture
def served(redis_url, store):
    forget_notifications(store)
    yield app_of(redis_url)
    forget_notifications(store)


@pytest.fixture
def as_key(served):
    """Makes a client with a key of its own."""

    def make(*scopes: str):
        client = served.test_client()
        made = client.post("/api/v1/keys", json={"name": "ada", "scopes": scopes}, headers=bearer(ADMIN)).json
        client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {made['key']}"
        client.key_id = made["id"]
        return client

    return make


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def body(phone: PushService, **members) -> dict:
    return {**phone.subscription, "name": "Pixel", **members}


def items(client) -> list[dict]:
    return client.get("/api/v1/devices").json["items"]


def test_a_device_is_added_listed_renewed_and_ended(as_key, phone):
    client = as_key("read")
    added = client.post("/api/v1/devices", json=body(phone))

    assert added.status_code == 201
    assert (added.json["name"], added.json["host"], added.json["shows"]) == ("Pixel", "127.0.0.1", "everything")
    assert items(client) == [added.json]
    again = client.post("/api/v1/devices", json=body(phone, shows="nothing")).json
    assert (again["id"], again["shows"]) == (added.json["id"], "nothing")
    assert len(items(client)) == 1

    assert client.delete(f"/api/v1/devices/{again['id']}").status_code == 200
    assert items(client) == []
    assert client.delete(f"/api/v1/devices/{again['id']}").status_code == 404


def test_no_response_and_no_value_in_redis_shows_where_a_device_is(as_key, phone, store):
    client = as_key("read")
    shown = client.post("/api/v1/devices", json=body(phone)).text + client.get("/api/v1/devices").text
    shown += client.get("/api/v1/notifications", headers=bearer(ADMIN)).text
    redis = store.devices._redis
    shown += repr([redis.hgetall(key) for key in redis.scan_iter("{notify}:device:*")])
    shown += repr(redis.get("{notify}:push_key"))

    for secret in ("a-path-that-is-secret", *phone.subscription["keys"].values(), "PRIVATE KEY"):
        assert secret not in shown


def test_another_persons_device_is_not_there(as_key, phone):
    ada, eve = as_key("read"), as_key("admin")
    identity = ada.post("/api/v1/devices", json=body(phone)).json["id"]

    assert items(eve) == []
    assert eve.delete(f"/api/v1/devices/{identity}").status_code == 404
    assert eve.post(f"/api/v1/devices/{identity}/test").status_code == 404
    assert len(items(ada)) == 1
    assert phone.received == []


def test_a_browser_that_another_key_adds_is_that_keys_alone(as_key, phone):
    ada, grace = as_key("read"), as_key("read")
    ada.post("/api/v1/devices", json=body(phone))
    grace.post("/api/v1/devices", json=body(phone))

    assert items(ada) == []
    assert len(items(grace)) == 1


def test_the_devices_of_a_revoked_key_end_with_it(as_key, phone, served):
    client = as_key("approve")
    client.post("/api/v1/devices", json=body(phone))
    served.test_client().delete(f"/api/v1/keys/{client.key_id}", headers=bearer(ADMIN))

    listed = served.test_client().get("/api/v1/notifications", headers=bearer(ADMIN)).json["items"]
    assert [one for one in listed if one["kind"] == "device"] == []


def test_the_devices_of_a_settings_key_end_when_the_settings_have_another(served, redis_url, phone, store):
    first = served.test_client()
    first.post("/api/v1/devices", json=body(phone), headers=bearer(ADMIN))
    assert len(store.devices.all()) == 1

    changed = app_of(redis_url, api_keys=("another-key-of-the-settings",))
    assert (
        changed.test_client().get("/api/v1/devices", headers=bearer("another-key-of-the-settings")).json["items"] == []
    )
    assert store.devices.all() == []


def test_the_devices_of_an_open_server_end_when_it_needs_a_key(redis_url, store, phone):
    forget_notifications(store)
    open_app = app_of(redis_url, api_keys=(), auth="open")
    assert open_app.test_client().post("/api/v1/devices", json=body(phone)).status_code == 201
    assert len(items(open_app.test_client())) == 1

    keyed = app_of(redis_url)
    keyed.test_client().get("/api/v1/devices", headers=bearer(ADMIN))
    assert store.devices.all() == []


def test_a_test_rings_the_device_and_says_so(as_key, phone):
    client = as_key("read")
    identity = client.post("/api/v1/devices", json=body(phone)).json["id"]
    outcome = client.post(f"/api/v1/devices/{identity}/test").json

    assert (outcome["delivered"], outcome["name"]) == (True, "Pixel")
    assert phone.taken[0]["title"] == "This device rings"
    assert phone.claims[0]["aud"] == f"http://127.0.0.1:{phone.port}"
    headers = phone.received[0][0]
    assert (headers["urgency"], headers["ttl"]) == ("high", "300")


@pytest.mark.parametrize("status", [404, 410])
def test_a_device_that_its_push_service_does_not_know_ends(as_key, phone, status):
    client = as_key("read")
    identity = client.post("/api/v1/devices", json=body(phone)).json["id"]
    phone.does = [status]
    outcome = client.post(f"/api/v1/devices/{identity}/test").json

    assert not outcome["delivered"]
    assert outcome["detail"] == f"its push service responded {status}: the device gets no more notifications"
    assert items(client) == []


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_of_a_push_service_is_not_followed(as_key, phone, status):
    client = as_key("read")
    identity = client.post("/api/v1/devices", json=body(phone)).json["id"]
    phone.does = [status]

    assert "redirects are not followed" in client.post(f"/api/v1/devices/{identity}/test").json["detail"]
    assert len(phone.received) == 1


def test_an_owner_has_ten_devices_at_most(as_key, phone):
    client = as_key("read")
    for number in range(MOST_OWN):
        added = client.post("/api/v1/devices", json=body(phone, endpoint=f"{phone.url}/{number}"))
        assert added.status_code == 201
    refused = client.post("/api/v1/devices", json=body(phone))

    assert refused.status_code == 409
    assert refused.json["detail"] == "You have 10 devices that ring: end one first, by DELETE /api/v1/devices/ID"
    assert client.post("/api/v1/devices", json=body(phone, endpoint=f"{phone.url}/3")).status_code == 201  # a renewal


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://push.example.org/x", "Input should begin with https://"),
        ("https://127.0.0.1/x", "private: PUSH_PRIVATE=1 allows it"),
        ("https://[::ffff:10.0.0.1]/x", "private: PUSH_PRIVATE=1 allows it"),
        ("https://169.254.169.254/x", "link-local"),
        ("https://localhost/x", "private: PUSH_PRIVATE=1 allows it"),
        ("https://redis/x", "private: PUSH_PRIVATE=1 allows it"),
        ("https://me@push.example.org/x", "Input should be the URL of a push service"),
        ("https://push.example.org:99999/x", "Input should be the URL of a push service"),
        ("https://[x/", "Input should be the URL of a push service"),
        ("ftp://push.example.org", "Input should be the URL of a push service"),
    ],
)
def test_an_endpoint_that_is_no_public_https_url_is_refused_by_name(redis_url, phone, endpoint, why):
    client = app_of(redis_url, push_private=0).test_client()
    refused = client.post("/api/v1/devices", json=body(phone, endpoint=endpoint), headers=bearer(ADMIN))

    assert refused.status_code == 422
    assert refused.json["detail"][0]["loc"] == ["body", "endpoint"]
    assert why in refused.json["detail"][0]["msg"]


@pytest.mark.parametrize(("member", "value"), [("p256dh", "B" * 87), ("p256dh", "x"), ("auth", "x"), ("auth", None)])
def test_keys_that_no_browser_gives_are_refused_by_name(served, phone, member, value):
    keys = {**phone.subscription["keys"], member: value}
    refused = served.test_client().post("/api/v1/devices", json=body(phone, keys=keys), headers=bearer(ADMIN))

    assert refused.status_code == 422
    assert refused.json["detail"][0]["loc"] == ["body", "keys", member]


def test_a_server_without_a_secret_key_says_what_its_operator_does(redis_url, phone):
    client = app_of(redis_url, secret_key="").test_client()

    for refused in (
        client.get("/api/v1/devices", headers=bearer(ADMIN)),
        client.post("/api/v1/devices", json=body(phone), headers=bearer(ADMIN)),
    ):
        assert refused.status_code == 503
        assert "SECRET_KEY" in refused.json["detail"]


def test_all_workers_have_one_key_for_push_services(redis_url, served):
    keys = {
        one.test_client().get("/api/v1/devices", headers=bearer(ADMIN)).json["application_server_key"]
        for one in (served, app_of(redis_url))
    }

    assert len(keys) == 1
    assert len(keys.pop()) == 87
