"""Deadlines of pending actions (`confirmation_seconds`)."""

from pathlib import Path
from uuid import uuid4

import pytest

from agents.commands import relabel
from agents.expiry import DeadlineNeedsApproval, with_deadline
from app import create_app
from core.access import Principal
from settings.config import Config
from settings.specs import BUNDLED, Specs
from store.errors import ConversationNotFound
from supervisor.start_tasks import new_conversation
from tests.agents import SPECS
from tests.blueprints import API, log, refused

YEAR = 31_536_000
APP = "/api/v1/app-conversations"
PERSON = Principal("person", scopes=frozenset({"write", "approve"}))


@pytest.fixture
def timed(tmp_path) -> Specs:
    """The bundled spec with a deadline of its own."""
    path = Path(tmp_path, "specs.toml")
    path.write_text(BUNDLED.read_text().replace("max_seconds = 43200", "confirmation_seconds = 60"))
    return Specs.load(str(path))


def own(store, conversation):
    return store.conversations.get(conversation)["confirmation_seconds"]


def field(store, conversation):
    return store.conversations._redis.hget(f"conv:{{{conversation}}}", "confirmation_seconds")


@pytest.mark.parametrize(("seconds", "stored"), [(0, b"0"), (1, b"1"), (YEAR, b"31536000"), (None, None)])
def test_a_start_request_sets_the_seconds_and_null_leaves_the_default(client, store, conversation, seconds, stored):
    body = {"conversation_id": conversation, "confirmation_seconds": seconds}

    assert client.post(API, json=body).get_json()["confirmation_seconds"] == seconds

    assert client.get(f"{API}/{conversation}").get_json()["confirmation_seconds"] == seconds
    assert field(store, conversation) == stored


def test_seconds_out_of_bounds_are_refused_in_a_start_and_in_a_change(client, conversation):
    body = {"conversation_id": conversation, "confirmation_seconds": YEAR + 1}
    for path in (API, APP):
        assert refused(client.post(path, json=body), "confirmation_seconds")

    client.post(API, json={"conversation_id": conversation, "confirmation_seconds": 7})
    for path in (API, APP):
        assert refused(client.patch(f"{path}/{conversation}", json=body), "confirmation_seconds")
    assert client.get(f"{API}/{conversation}").get_json()["confirmation_seconds"] == 7


def test_a_change_sets_the_seconds_and_null_removes_them_without_an_event(client, store, conversation):
    client.post(API, json={"conversation_id": conversation, "title": "Old"})

    for seconds, stored in ((30, b"30"), (30, b"30"), (0, b"0"), (None, None), (None, None)):
        assert client.patch(f"{API}/{conversation}", json={"confirmation_seconds": seconds}).status_code == 200
        assert field(store, conversation) == stored
        assert client.get(f"{API}/{conversation}").get_json()["confirmation_seconds"] == seconds

    assert log(client, f"{API}/{conversation}") == []


def test_a_change_without_the_seconds_keeps_them(client, store, conversation):
    client.post(API, json={"conversation_id": conversation, "confirmation_seconds": 30})

    client.patch(f"{API}/{conversation}", json={"title": "New", "tags": None})

    assert own(store, conversation) == 30


def test_a_change_of_an_unknown_conversation_is_404(client):
    for path in (API, APP):
        assert client.patch(f"{path}/{uuid4()}", json={"confirmation_seconds": None}).status_code == 404
        assert client.patch(f"{path}/{uuid4()}", json={"confirmation_seconds": 5}).status_code == 404


def test_an_app_conversation_is_changed_and_shown_with_its_seconds(client, store, conversation, sandbox):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={}, confirmation_seconds=5)
    assert client.get(f"{APP}?ids={conversation}").get_json()[0]["confirmation_seconds"] == 5

    changed = client.patch(f"{APP}/{conversation}", json={"confirmation_seconds": 6, "public": True}).get_json()

    assert (changed["confirmation_seconds"], changed["public"]) == (6, True)
    assert client.patch(f"{APP}/{conversation}", json={"title": "New"}).get_json()["confirmation_seconds"] == 6
    assert own(store, conversation) == 6


def test_a_null_deadline_takes_the_default_of_the_sandbox_spec(store, commands, conversation, sandbox, timed):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={}, confirmation_seconds=5)

    relabel(commands, conversation, **with_deadline(store, timed, PERSON, conversation, {"confirmation_seconds": None}))
    assert own(store, conversation) == 60

    relabel(commands, conversation, **with_deadline(store, SPECS, PERSON, conversation, {"confirmation_seconds": None}))
    assert own(store, conversation) is None


def test_a_key_that_may_not_reject_sets_no_deadline(client, store, conversation):
    """A deadline of a second would reject whatever waits."""
    client.post(API, json={"conversation_id": conversation, "confirmation_seconds": 30})
    for scopes in ({"write"}, {"read"}):
        writer = Principal("writer", scopes=frozenset(scopes))
        with pytest.raises(DeadlineNeedsApproval, match="scope approve"):
            with_deadline(store, SPECS, writer, conversation, {"confirmation_seconds": 1})
        assert with_deadline(store, SPECS, writer, conversation, {"title": "x"}) == {"title": "x"}

    assert own(store, conversation) == 30


def test_a_write_key_changes_a_title_and_is_refused_a_deadline(redis_url, conversation):
    admin = {"X-Session-API-Key": "an-admin-key-of-the-settings"}
    keys = create_app(Config.of(redis_url=redis_url, redis_timeout=10, api_keys=tuple(admin.values()))).test_client()
    made = keys.post("/api/v1/keys", json={"name": "writer", "scopes": ["write"]}, headers=admin).get_json()
    writer, path = {"X-Session-API-Key": made["key"]}, f"{API}/{conversation}"
    keys.post(API, json={"conversation_id": conversation, "confirmation_seconds": 30}, headers=writer)

    response = keys.patch(path, json={"title": "New", "confirmation_seconds": 1}, headers=writer)

    assert (response.status_code, "confirmation_seconds" in response.get_json()["detail"]) == (403, True)
    state = keys.get(path, headers=writer).get_json()
    assert (state["confirmation_seconds"], state["title"]) == (30, None)
    assert keys.patch(path, json={"title": "New"}, headers=writer).status_code == 200
    assert keys.patch(path, json={"confirmation_seconds": 1}, headers=admin).status_code == 200


def test_a_null_of_a_deleted_conversation_is_refused(store):
    with pytest.raises(ConversationNotFound):
        with_deadline(store, SPECS, PERSON, str(uuid4()), {"confirmation_seconds": None})


@pytest.mark.parametrize(("asked", "kept"), [(None, 60), (0, 0), (5, 5)])
@pytest.mark.parametrize("brought", [False, True], ids=["of an app", "of a client"])
def test_a_start_in_a_sandbox_has_its_own_seconds_or_those_of_the_spec(store, sandbox, timed, asked, kept, brought):
    request = {"confirmation_seconds": asked}
    start = store.start_tasks.create(request, echo={})
    if brought:
        body = {"agent": {}} | ({} if asked is None else {"confirmation_seconds": asked})
        start, _ = store.start_tasks.create_once(str(uuid4()), {}, {"body": body, "headers": {}}, echo={})
        request = {"kept": {"confirmation_seconds": asked}}

    new = new_conversation(store, start, request, sandbox, timed.get(None))

    assert new.kept["confirmation_seconds"] == kept
    assert new_conversation(store, start, request, sandbox, SPECS.get(None)).kept["confirmation_seconds"] == asked
    store.conversations.create(start.conversation_id, **new.kept)
    assert own(store, start.conversation_id) == kept


@pytest.mark.parametrize("seconds", [None, 0, 45])
def test_a_copy_and_a_child_of_an_agent_have_the_seconds_of_their_source(client, store, conversation, sandbox, seconds):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={}, confirmation_seconds=seconds)
    child = str(uuid4())

    store.conversations.in_sandboxes.report(sandbox.id, child, {"parent_conversation_id": conversation})
    copies = [
        store.conversations.forks.fork(conversation),
        store.conversations.forks.fork(conversation, sandbox_id=sandbox.id),
    ]

    assert [own(store, one) for one in (child, *copies)] == [seconds] * 3


def test_the_setting_and_the_schema_have_the_same_bounds(client):
    description = client.get("/openapi.json").get_json()["components"]["schemas"]
    for name in ("StartConversationRequest", "UpdateConversationRequest", "AppConversationStartRequest"):
        member = description[name]["properties"]["confirmation_seconds"]
        assert (member["minimum"], member["maximum"]) == (0, YEAR)
