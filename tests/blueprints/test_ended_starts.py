"""The end of a start over HTTP: by its own id and by that of its conversation, and what all who know of it are told."""

import json
from uuid import UUID, uuid4

import pytest

from core.wire import ConversationId
from store.sandboxes.start_tasks import ENDED, Failure
from tests.test_error_shape import assert_error

APP, TASKS = "/api/v1/app-conversations", "/api/v1/app-conversations/start-tasks"
SAID = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture(autouse=True)
def host(store):
    """A host without a supervisor: a start waits."""
    store.sandboxes.beat("h", "supervisor")


def begin(client, **options):
    response = client.post(APP, **{"json": {"title": "x"}, **options})
    assert response.status_code == 200
    return response.get_json()


def read(client, task):
    return client.get(TASKS, query_string={"ids": task["id"]}).get_json()[0]


def conversation_of(store, task):
    return store.start_tasks.get_many([task["id"]])[0].conversation_id


def test_a_conversation_that_starts_is_deleted_by_its_id_and_its_start_says_why_it_ended(client, conversation):
    task = begin(client, json={"conversation_id": conversation})

    assert client.delete(f"{APP}/{conversation}").get_json() == {"success": True}

    ended = read(client, task)
    assert (ended["status"], ended["detail"], ended["app_conversation_id"]) == ("ERROR", ENDED, None)
    assert_error(client.delete(f"{APP}/{conversation}"), 404)


@pytest.mark.parametrize("form", ["bare", "dashed"])
def test_a_start_is_ended_by_its_own_id_and_a_repeat_changes_nothing(client, form):
    task = begin(client)
    path = f"{TASKS}/{task['id'] if form == 'bare' else UUID(task['id'])}"

    first, again = client.delete(path), client.delete(path)

    assert first.status_code == again.status_code == 200
    assert first.get_json() == again.get_json() == read(client, task)
    assert (first.get_json()["status"], first.get_json()["detail"]) == ("ERROR", ENDED)


def test_what_is_no_start_or_is_ready_is_not_ended(client, store):
    assert_error(client.delete(f"{TASKS}/{uuid4()}"), 404)
    wrong = client.delete(f"{TASKS}/some-start")
    assert_error(wrong, 422)
    assert wrong.get_json()["detail"][0]["loc"] == ["path", "start_task_id"]
    task = begin(client)
    while claimed := store.start_tasks.claim():
        store.start_tasks.finish(claimed[0].id, claimed[1], "READY")
    refused = client.delete(f"{TASKS}/{task['id']}")
    assert_error(refused, 409)
    assert conversation_of(store, task) in refused.get_json()["detail"]


def test_a_start_that_is_streamed_ends_its_stream_when_it_is_ended(client, conversation):
    response = client.post(f"{APP}/stream-start", json={"conversation_id": conversation})
    pieces = iter(response.response)
    text = next(pieces)
    client.delete(f"{APP}/{conversation}")
    states = json.loads(text + b"".join(pieces))
    assert [state["status"] for state in states] == ["WORKING", "ERROR"]
    assert states[-1]["detail"] == ENDED


def test_a_stream_whose_start_went_with_its_conversation_ends_with_a_state_that_says_so(client, store, conversation):
    response = client.post(f"{APP}/stream-start", json={"conversation_id": conversation})
    pieces = iter(response.response)
    text = next(pieces)
    store.start_tasks.forget(json.loads(text + b"]")[0]["id"])
    last = json.loads(text + b"".join(pieces))[-1]
    assert (last["status"], last["detail"]) == ("ERROR", "The conversation has started, and was deleted since")


def test_the_messages_of_a_start_that_is_ended_go_and_another_start_of_that_id_gets_its_own(
    client, store, conversation
):
    task = begin(client, json={"conversation_id": conversation})
    queue = f"/api/v1/conversations/task-{task['id']}/pending-messages"
    assert client.post(queue, json=SAID).status_code == 201

    client.delete(f"{TASKS}/{task['id']}")

    assert store.conversations.queued_messages.waiting_for(conversation) == 0
    refused = client.post(queue, json=SAID)
    assert_error(refused, 409)
    assert ENDED in refused.get_json()["detail"]
    other = begin(client, json={"conversation_id": conversation})
    assert other["id"] != task["id"]
    client.post(f"/api/v1/conversations/task-{other['id']}/pending-messages", json=SAID)
    assert store.conversations.queued_messages.waiting_for(conversation) == 1
    client.delete(f"{APP}/{conversation}")


def test_the_repeat_of_a_start_that_was_ended_starts_no_other(client, store):
    once = {"headers": {"Idempotency-Key": str(uuid4())}}
    task = begin(client, **once)
    client.delete(f"{TASKS}/{task['id']}")
    before = store.start_tasks.count()

    assert begin(client, **once)["id"] == task["id"]

    assert store.start_tasks.count() == before
    assert read(client, task)["status"] == "ERROR"


def test_the_legacy_path_ends_the_start_of_a_client_s_own_agent(client, store, conversation):
    start, _ = store.start_tasks.create_once(ConversationId(conversation), {"kept": {}}, {"body": {}}, echo={})

    assert client.delete(f"/api/conversations/{conversation}").status_code == 200

    [ended] = store.start_tasks.get_many([start.id])
    assert (ended.status, ended.failure) == ("ERROR", Failure(410, ENDED))
    assert not store.start_tasks._redis.exists(f"{{starts}}:body:{start.id}")
    assert_error(client.delete(f"/api/conversations/{conversation}"), 404)


def test_a_parent_is_deleted_with_the_child_that_starts(client, store, conversation):
    store.conversations.create(ConversationId(conversation), sandbox_id="gone", app={})
    child = begin(client, json={"parent_conversation_id": conversation})

    assert client.delete(f"{APP}/{conversation}").status_code == 200

    assert read(client, child)["detail"] == ENDED
