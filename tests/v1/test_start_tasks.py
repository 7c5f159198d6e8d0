"""Starts of app conversations over HTTP: the task that is returned at once, its ends, its lists, its stream."""

import json
import re
from uuid import UUID, uuid4

import pytest

from tests.servers import wait_until
from tests.v1.test_app_conversations import CONVERSATION

pytestmark = pytest.mark.process("starts a sandbox for each test")

TASK = {
    "id",
    "created_by_user_id",
    "status",
    "detail",
    "failure_status",
    "failed_in",
    "app_conversation_id",
    "sandbox_id",
    "agent_server_url",
    "request",
    "created_at",
    "updated_at",
}


def test_a_start_returns_its_task_at_once(api):
    task = api.start_task(title="Kernel")

    assert set(task) == TASK
    assert re.fullmatch(r"[0-9a-f]{32}", task["id"])
    assert task["status"] == "WORKING"
    assert task["app_conversation_id"] is None
    assert task["sandbox_id"] is None
    assert task["request"]["title"] == "Kernel"
    assert task["request"]["agent_type"] == "default"
    assert task["request"]["pr_number"] == []
    for _ in range(10):  # from either worker
        assert api.task(task["id"]) is not None


def test_an_empty_start_request_is_valid(api):
    response = api.client.post("/api/v1/app-conversations")
    assert response.status_code == 200
    assert api.finished(response.json()["id"])["status"] == "READY"


def test_a_ready_task_names_its_conversation_and_sandbox(api):
    task = api.finished(api.start_task()["id"])

    assert task["status"] == "READY"
    assert task["detail"] is None
    assert re.fullmatch(r"[0-9a-f]{32}", task["app_conversation_id"])
    conversation = api.conversation(task["app_conversation_id"])
    assert set(conversation) == CONVERSATION
    sandbox = api.sandbox(task["sandbox_id"])
    assert conversation["sandbox_id"] == sandbox["id"]
    assert conversation["sandbox_status"] == "RUNNING"
    assert conversation["execution_status"] == "idle"
    assert conversation["session_api_key"] == sandbox["session_api_key"]
    [url] = sandbox["exposed_urls"]
    assert task["agent_server_url"] == url["url"]
    assert conversation["conversation_url"] == f"{url['url']}/api/conversations/{conversation['id']}"
    assert conversation["title"] == f"Conversation {conversation['id'][:5]}"
    assert conversation["agent_kind"] == "openhands"
    assert conversation["sub_conversation_ids"] == []
    assert conversation["tags"] == {}
    assert conversation["created_at"].endswith("Z")


def test_a_repository_is_cloned_before_the_conversation_begins_or_the_start_fails_and_says_why(api):
    def runs(conversation, command):
        """What a command of an agent prints."""
        api.send(conversation, f"run: {command}")
        wait_until(lambda: api.count(conversation, kind="ObservationEvent") == 1, "the observation")
        [seen] = api.events(conversation, kind__eq="ObservationEvent")
        return seen["observation"]["content"][0]["text"].strip()

    def started(**request):
        task = api.start_task(sandbox_id=first["sandbox_id"], **request)
        return api.finished(task["id"])

    first = api.app_conversation(sandbox_spec_id="free")
    named = "-c user.name=Ada -c user.email=ada@example.org"
    made = f"git init -q -b dev src/shop && cd src/shop && echo hello > a && git add a && git {named} commit -qm First"
    theirs = runs(first["id"], f"{made} && pwd -P")

    task = started(selected_repository=f"file://{theirs}", selected_branch="dev")
    assert (task["status"], task["detail"]) == ("READY", None)
    api.call(
        "POST",
        f"/conversations/{UUID(task['app_conversation_id'])}/confirmation_policy",
        json={"policy": {"kind": "NeverConfirm"}},
    )
    assert runs(task["app_conversation_id"], "cat shop/a") == "hello"
    task = started(selected_repository="file:///nowhere/name")
    assert (task["status"], task["failed_in"]) == ("ERROR", "PREPARING_REPOSITORY")
    assert task["detail"].startswith("The repository file:///nowhere/name was not cloned: fatal: ")

    again = api.finished(api.start_task(sandbox_id=first["sandbox_id"], failed_start_id=task["id"])["id"])
    [told] = api.events(again["app_conversation_id"], kind__eq="ConversationErrorEvent")
    assert told["code"] == "StartedWithoutRepository"
    assert task["detail"] in told["detail"]
    assert api.conversation(again["app_conversation_id"])["selected_repository"] is None


def test_a_start_follows_a_failed_one_alone(api):
    ready = api.finished(api.start_task()["id"])
    for identity in (ready["id"], uuid4().hex):
        refused = api.call("POST", "/v1/app-conversations", json={"failed_start_id": identity}, status=422)
        [fault] = refused["detail"]
        assert fault["loc"] == ["body", "failed_start_id"]
        assert "use the id of a start task with status ERROR" in fault["msg"]


def test_the_members_of_a_start_request_are_kept(api):
    given = {
        "title": "Fix it",
        "llm_model": "some/model",
        "selected_repository": "owner/name",
        "selected_branch": "main",
        "git_provider": "github",
        "trigger": "resolver",
        "pr_number": [7],
        "public": True,
        "goes_on_when_allowed": False,
        "tags": {"team": "a"},
        "conversation_id": str(uuid4()),
    }
    conversation = api.app_conversation(sandbox_id=api.sandbox_with("name"), **given)

    assert conversation["id"] == UUID(given.pop("conversation_id")).hex
    assert {name: conversation[name] for name in given} == given


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"sandbox_id": "nosuchsandbox"}, "Sandbox not found: nosuchsandbox"),
        ({"sandbox_spec_id": "nope"}, "spec"),
        ({"sandbox_spec_id": "broken"}, "no key given"),
        ({"parent_conversation_id": str(uuid4())}, "parent"),
    ],
)
def test_a_failed_start_reports_its_reason_and_leaves_nothing(api, request_, sentence):
    task = api.finished(api.start_task(**request_)["id"])

    assert task["status"] == "ERROR"
    assert sentence in task["detail"]
    assert task["app_conversation_id"] is None
    wait_until(lambda: not api.call("GET", "/v1/sandboxes/search")["items"], "the end of its sandbox")
    assert api.call("GET", "/v1/app-conversations/count") == 0


def test_an_id_that_is_taken_fails_and_harms_nothing(api):
    first = api.app_conversation(title="mine")
    task = api.finished(api.start_task(conversation_id=first["id"])["id"])

    assert task["status"] == "ERROR"
    assert api.conversation(first["id"])["title"] == "mine"


def test_start_tasks_are_listed_counted_and_fetched(api):
    sandbox = api.running_sandbox()["id"]
    before = api.call("GET", "/v1/app-conversations/start-tasks/count")
    tasks = [api.finished(api.start_task(sandbox_id=sandbox)["id"]) for _ in range(3)]
    ids = [task["id"] for task in tasks]

    page = api.call("GET", "/v1/app-conversations/start-tasks/search", params={"limit": 2})
    assert [item["id"] for item in page["items"]] == ids[:0:-1]
    query = {"limit": 1, "page_id": page["next_page_id"]}
    rest = api.call("GET", "/v1/app-conversations/start-tasks/search", params=query)
    assert [item["id"] for item in rest["items"]] == ids[:1]
    assert api.call("GET", "/v1/app-conversations/start-tasks/count") == before + 3

    of = {"conversation_id__eq": tasks[1]["app_conversation_id"]}
    assert api.call("GET", "/v1/app-conversations/start-tasks/count", params=of) == 1
    found = api.call("GET", "/v1/app-conversations/start-tasks/search", params=of)["items"]
    assert [item["id"] for item in found] == [ids[1]]
    since = {"created_at__gte": tasks[1]["created_at"], "sort_order": "CREATED_AT"}
    found = api.call("GET", "/v1/app-conversations/start-tasks/search", params=since)["items"]
    assert [item["id"] for item in found] == ids[1:]

    unknown = uuid4().hex
    found = api.call("GET", "/v1/app-conversations/start-tasks", params={"ids": [ids[2], unknown, ids[0]]})
    assert [item and item["id"] for item in found] == [ids[2], None, ids[0]]
    api.call("GET", "/v1/app-conversations/start-tasks", status=422)


def test_stream_start_sends_every_state(api):
    with api.client.stream("POST", "/api/v1/app-conversations/stream-start", json={"title": "Streamed"}) as response:
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "application/json"
        chunks = list(response.iter_text())

    assert len(chunks) > 1
    states = json.loads("".join(chunks))
    assert all(set(state) == TASK for state in states)
    assert len({state["id"] for state in states}) == 1
    statuses = [state["status"] for state in states]
    assert statuses[0] == "WORKING"
    assert statuses[-1] == "READY"
    assert len(set(statuses)) == len(statuses)
