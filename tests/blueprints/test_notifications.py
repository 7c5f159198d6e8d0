"""Notifications over HTTP: what is stuck is shown, a test reports at once, and no response shows a secret."""

import json

import pytest

from app import create_app
from notifications.sending import targets_of
from settings.config import Config
from tests.conftest import SECRET_KEY
from tests.notifications import SECRET, entry, forget_notifications, push, receiver
from tests.servers import free_port

NOTHING = {
    "queued": 0,
    "oldest_at": None,
    "tries": 0,
    "next_try_at": None,
    "sent": 0,
    "last_success_at": None,
    "last_failure_at": None,
    "last_failure": None,
    "given_up": 0,
    "dropped": 0,
    "disabled_at": None,
}


@pytest.fixture(scope="module")
def listening():
    with receiver() as one:
        yield one


@pytest.fixture
def hook(listening):
    """A webhook that has received nothing."""
    for received in (listening.received, listening.taken, listening.ids):
        received.clear()
    return listening


@pytest.fixture(scope="module")
def served(redis_url, listening):
    """The app with two targets: a webhook that is there, and one that is not; and with their ids."""
    settings = f"{listening.setting} http://127.0.0.1:{free_port()}/hush|{SECRET}"
    config = Config.of(
        redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, notify_webhooks=settings, notify_private=1
    )
    return create_app(config), [target.id for target in targets_of(config.notify)]


@pytest.fixture
def notified(served, store, hook):
    """A client of the app, whose targets have received nothing, its store, and the ids of its targets."""
    forget_notifications(store)
    app, ids = served
    yield app.test_client(), app.extensions["server"].store, ids
    forget_notifications(store)


def listed(client) -> list[dict]:
    response = client.get("/api/v1/notifications")
    assert response.status_code == 200
    assert "hush" not in response.text
    assert "secret" not in response.text
    return response.json["items"]


def test_without_targets_nothing_is_listed_and_nothing_can_be_tested(client, store):
    forget_notifications(store)

    assert client.get("/api/v1/notifications").json["items"] == []
    refused = client.post("/api/v1/notifications/test")
    assert refused.status_code == 409
    assert refused.json["detail"].startswith("There is no target to test: neither NOTIFY_URLS")


def test_the_targets_of_the_settings_are_listed_before_anything_happens(notified, hook):
    client, _, (here, gone) = notified
    first, second = listed(client)

    assert first == {"id": here, "name": f"http://127.0.0.1:{hook.port}", "kind": "webhook", **NOTHING}
    assert second["id"] == gone


def test_a_stuck_target_is_shown_with_the_reason(notified):
    client, store, (here, gone) = notified
    store.notifications.targets.open({here: "here", gone: "gone"}, again=True)
    store.notifications.targets.add([here, gone], [("msg_1", ["{}"] * 2), ("msg_2", ["{}"] * 2)])
    store.notifications.targets.close(store.notifications.targets.claim(here, "token", 60), "sent")
    store.notifications.targets.close(
        store.notifications.targets.claim(gone, "token", 60), "failed", "it answered 503", again_in=600
    )
    first, second = listed(client)

    assert (first["queued"], first["sent"], first["last_failure"]) == (1, 1, None)
    assert first["last_success_at"].endswith("Z")
    assert (second["queued"], second["tries"], second["last_failure"]) == (2, 1, "it answered 503")
    assert second["oldest_at"] <= second["last_failure_at"] < second["next_try_at"]


def test_a_target_of_another_host_is_shown_without_a_kind(notified):
    client, store, _ = notified
    store.notifications.targets.open({"0123456789ab": "https://elsewhere"}, again=True)

    assert listed(client)[-1] == {"id": "0123456789ab", "name": "https://elsewhere", "kind": None, **NOTHING}


def test_what_waits_in_the_outboxes_is_shown(notified):
    client, store, _ = notified
    push(store, "approvals", entry(1), entry(2))

    assert client.get("/api/v1/notifications").json["outboxes"] == [
        {"name": "approvals", "waiting": 2, "dropped": 0},
        {"name": "conversations", "waiting": 0, "dropped": 0},
        {"name": "sandboxes", "waiting": 0, "dropped": 0},
    ]


def test_a_test_of_all_targets_reports_each_outcome(notified, hook):
    client, _, (here, gone) = notified
    response = client.post("/api/v1/notifications/test")

    assert response.status_code == 200
    first, second = response.json
    assert (first["id"], first["delivered"], first["detail"]) == (here, True, "")
    assert (second["id"], second["delivered"], second["detail"]) == (
        gone,
        False,
        "it takes no connection (ConnectError)",
    )
    assert "hush" not in response.text
    [payload] = hook.taken
    assert payload["type"] == "notification.test"
    assert hook.ids[0].startswith("msg_test-")


def test_a_test_of_one_target_leaves_the_others_alone(notified, hook):
    client, _, (_, gone) = notified
    [outcome] = client.post("/api/v1/notifications/test", json={"target": gone}).json

    assert outcome["id"] == gone
    assert hook.received == []


def test_a_test_that_succeeds_makes_what_waits_due_at_once(notified):
    client, store, (here, _) = notified
    store.notifications.targets.open({here: "here"}, again=True)
    store.notifications.targets.add([here], [("msg_1", ["{}"])])
    store.notifications.targets.close(
        store.notifications.targets.claim(here, "token", 60), "failed", "it answered 503", again_in=3600
    )
    assert store.notifications.targets.claim(here, "token", 60) is None

    assert client.post("/api/v1/notifications/test", json={"target": here}).json[0]["delivered"]

    assert store.notifications.targets.claim(here, "token", 60).id == "msg_1"


@pytest.mark.parametrize("body", [{"target": "unknown"}, {"target": 1}, {"target": ""}, {"target": "x" * 65}])
def test_a_test_of_an_unknown_target_is_refused_by_name(notified, hook, body):
    client, _, ids = notified
    response = client.post("/api/v1/notifications/test", json=body)

    assert response.status_code == 422
    assert response.json["detail"][0]["loc"] == ["body", "target"]
    if body["target"] == "unknown":
        assert all(one in response.json["detail"][0]["msg"] for one in ids)
    assert hook.received == []


def test_nothing_in_redis_or_in_the_repr_of_the_app_shows_a_url_or_a_secret(notified, hook):
    client, store, ids = notified
    store.notifications.targets.open(dict.fromkeys(ids, "name"), again=True)
    store.notifications.targets.add(ids, [("msg_1", [json.dumps({"link": "https://agents.example.org/hush"})] * 2)])
    client.post("/api/v1/notifications/test")
    redis = store.notifications.targets._redis
    dumped = [
        repr(redis.hgetall(key) if b"queue" not in key else redis.xrange(key))
        for key in redis.scan_iter("{notify}*")
        if not key.endswith(b"seen")
    ]

    assert not [text for text in dumped if "hush" in text or "secret" in text or SECRET in text]
    assert not [one for one in client.application.extensions["server"].desk._targets if "hush" in repr(one)]
