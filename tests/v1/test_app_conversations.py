"""App conversations over HTTP: every path, status, field and default. Source: docs/wire.md; the app-server wire."""

import json
from uuid import UUID, uuid4

import httpx
import pytest

from tests.servers import wait_until

pytestmark = pytest.mark.process("starts a sandbox for each test")

CONVERSATION = {
    "id",
    "created_by_user_id",
    "sandbox_id",
    "selected_repository",
    "selected_branch",
    "git_provider",
    "title",
    "trigger",
    "pr_number",
    "llm_model",
    "agent_kind",
    "metrics",
    "parent_conversation_id",
    "sub_conversation_ids",
    "public",
    "tags",
    "created_at",
    "updated_at",
    "sandbox_status",
    "execution_status",
    "conversation_url",
    "session_api_key",
    "unapproved_resumes",
    "capabilities",
    "confirmation_seconds",
    "goes_on_when_allowed",
    "approval_mode",
    "acp_server",
    "launched_agent_profile",
}
TEXT = {"content": [{"type": "text", "text": "run: uname -a"}]}


def test_an_app_conversation_goes_through_the_whole_loop(api):
    conversation = api.app_conversation(initial_message=TEXT)["id"]
    api.until(conversation, "waiting_for_confirmation")
    assert api.decide(conversation, False, reason="not yet") == {"success": True}
    assert api.decide(conversation, True) == {"success": False}
    wait_until(lambda: api.count(conversation, kind="UserRejectObservation") == 1, "the rejection")

    assert api.send(conversation, "run: echo it is $((40 + 2))") == {
        "success": True,
        "sandbox_status": "RUNNING",
        "message": None,
    }
    api.until(conversation, "waiting_for_confirmation")
    assert api.decide(conversation, True) == {"success": True}

    wait_until(lambda: api.count(conversation, kind="ObservationEvent") == 1, "the observation")
    [seen] = api.events(conversation, kind__eq="ObservationEvent")
    assert seen["observation"]["content"] == [{"type": "text", "text": "it is 42\n"}]
    api.until(conversation, "finished")
    assert [event["rejection_reason"] for event in api.events(conversation, kind__eq="UserRejectObservation")] == [
        "not yet"
    ]


def test_a_message_never_approves_pending_actions(api):
    conversation = api.app_conversation(initial_message=TEXT)["id"]
    api.until(conversation, "waiting_for_confirmation")

    api.send(conversation, "hello")

    wait_until(lambda: api.count(conversation, kind="UserRejectObservation") == 1, "the rejection")
    assert api.count(conversation, kind="ObservationEvent") == 0


def test_a_policy_reaches_the_agent(api):
    conversation = api.app_conversation()["id"]
    api.call(
        "POST",
        f"/conversations/{UUID(conversation)}/events/confirmation_policy".replace("/events", ""),
        json={"policy": {"kind": "NeverConfirm"}},
    )
    api.send(conversation, "run: echo free")
    wait_until(lambda: api.count(conversation, kind="ObservationEvent") == 1, "the observation")


def test_pause_and_interrupt_reach_the_agent(api):
    conversation = api.app_conversation(sandbox_spec_id="free")["id"]
    api.send(conversation, "run: sleep 30")
    wait_until(lambda: api.count(conversation, kind="ActionEvent") == 1, "the action")

    api.call("POST", f"/conversations/{UUID(conversation)}/interrupt")

    api.until(conversation, "paused")
    wait_until(lambda: api.count(conversation, kind="ObservationEvent") == 1, "the end of the action")
    api.call("POST", f"/conversations/{UUID(conversation)}/run")
    api.until(conversation, "finished")


def test_secrets_reach_the_agent_and_no_response_shows_them(api):
    task = api.start_task(sandbox_spec_id="free", secrets={"TOKEN": "hidden-value"})
    assert task["request"]["secrets"] == {"TOKEN": "**********"}
    conversation = api.finished(task["id"])["app_conversation_id"]
    assert "hidden-value" not in json.dumps(api.task(task["id"]))

    api.send(conversation, "run: printf $TOKEN | tr a-z A-Z")

    wait_until(lambda: api.count(conversation, kind="ObservationEvent") == 1, "the observation")
    [seen] = api.events(conversation, kind__eq="ObservationEvent")
    assert seen["observation"]["content"][0]["text"] == "HIDDEN-VALUE"


def test_a_paused_sandbox_hides_its_url_and_keeps_its_events(api):
    conversation = api.app_conversation(initial_message=TEXT)["id"]
    api.until(conversation, "waiting_for_confirmation")
    number = api.count(conversation)
    sandbox = api.conversation(conversation)["sandbox_id"]
    api.call("POST", f"/v1/sandboxes/{sandbox}/pause")

    paused = api.conversation(conversation)
    assert paused["sandbox_status"] == "PAUSED"
    assert paused["conversation_url"] is paused["session_api_key"] is paused["execution_status"] is None
    assert api.count(conversation) == number
    assert "PAUSED" in api.call("POST", f"/conversations/{UUID(conversation)}/pause", status=409)["detail"]


def test_a_decision_wakes_a_paused_sandbox(api):
    conversation = api.app_conversation(initial_message=TEXT)["id"]
    api.until(conversation, "waiting_for_confirmation")
    api.call("POST", f"/v1/sandboxes/{api.conversation(conversation)['sandbox_id']}/pause")

    assert api.decide(conversation, True) == {"success": True}

    wait_until(
        lambda: api.count(conversation, kind="ObservationEvent") == 1, "the action that was accepted during the pause"
    )


def test_a_message_wakes_a_paused_sandbox_and_is_answered(api):
    conversation = api.app_conversation()["id"]
    api.call("POST", f"/v1/sandboxes/{api.conversation(conversation)['sandbox_id']}/pause")

    assert api.send(conversation, "hello")["sandbox_status"] == "RUNNING"

    wait_until(lambda: api.count(conversation, kind="MessageEvent", source="agent") == 1, "the agent's reply")
    assert api.conversation(conversation)["sandbox_status"] == "RUNNING"


def test_a_conversation_in_a_given_sandbox_that_is_paused_resumes_it(api):
    sandbox = api.running_sandbox()["id"]
    api.call("POST", f"/v1/sandboxes/{sandbox}/pause")

    conversation = api.app_conversation(sandbox_id=sandbox)

    assert conversation["sandbox_id"] == sandbox
    assert conversation["sandbox_status"] == "RUNNING"


def test_a_child_lives_in_the_sandbox_of_its_parent(api):
    parent = api.app_conversation(selected_repository="owner/name", llm_model="m", sandbox_id=api.sandbox_with("name"))
    child = api.app_conversation(parent_conversation_id=parent["id"])

    assert child["parent_conversation_id"] == parent["id"]
    assert child["sandbox_id"] == parent["sandbox_id"]
    assert (child["selected_repository"], child["llm_model"]) == ("owner/name", "m")
    assert api.conversation(parent["id"])["sub_conversation_ids"] == [child["id"]]
    listed = api.call("GET", "/v1/app-conversations/search")["items"]
    assert [item["id"] for item in listed] == [parent["id"]]
    both = api.call("GET", "/v1/app-conversations/search", params={"include_sub_conversations": "true"})["items"]
    assert [item["id"] for item in both] == [child["id"], parent["id"]]
    assert api.call("GET", "/v1/app-conversations/count") == 1
    assert api.call("GET", "/v1/app-conversations/count", params={"include_sub_conversations": "true"}) == 2

    api.call("DELETE", f"/v1/app-conversations/{parent['id']}")
    assert api.conversation(child["id"]) is None
    wait_until(lambda: api.sandbox(parent["sandbox_id"]) is None, "the end of the sandbox")


def test_a_deletion_removes_the_start_task_and_the_sandbox_too(api):
    task = api.finished(api.start_task()["id"])
    conversation = task["app_conversation_id"]

    assert api.call("DELETE", f"/v1/app-conversations/{conversation}") == {"success": True}

    assert api.conversation(conversation) is None
    assert api.task(task["id"]) is None
    wait_until(lambda: api.sandbox(task["sandbox_id"]) is None, "the end of the sandbox")
    api.call("DELETE", f"/v1/app-conversations/{conversation}", status=404)


def test_the_legacy_path_deletes_an_app_conversation_and_its_sandbox_too(api):
    conversation = api.app_conversation()
    api.call("DELETE", f"/conversations/{UUID(conversation['id'])}")
    assert api.conversation(conversation["id"]) is None
    wait_until(lambda: api.sandbox(conversation["sandbox_id"]) is None, "the end of the sandbox")


def test_a_sandbox_that_serves_another_conversation_stays(api):
    one = api.app_conversation()
    two = api.app_conversation(sandbox_id=one["sandbox_id"])
    api.call("DELETE", f"/v1/app-conversations/{one['id']}")

    assert api.conversation(two["id"])["sandbox_status"] == "RUNNING"
    api.send(two["id"], "still there?")
    wait_until(lambda: api.count(two["id"], kind="MessageEvent", source="agent") == 1, "a message of the agent")


def test_a_conversation_whose_sandbox_is_gone_can_be_read_and_takes_no_message(api):
    conversation = api.app_conversation(initial_message=TEXT)
    api.until(conversation["id"], "waiting_for_confirmation")
    api.call("DELETE", f"/v1/sandboxes/{conversation['sandbox_id']}")

    assert api.conversation(conversation["id"])["sandbox_status"] == "MISSING"
    assert api.count(conversation["id"], kind="ActionEvent") == 1
    assert "MISSING" in api.send(conversation["id"], "hello", status=410)["detail"]
    assert api.decide(conversation["id"], True) == {"success": True}
    wait_until(lambda: api.count(conversation["id"], kind="ConversationErrorEvent") == 1, "that it was not delivered")


def test_a_message_to_a_conversation_whose_sandbox_failed_is_503_with_the_reason(api):
    conversation, _ = api.failed_sandbox()

    assert api.conversation(conversation["id"])["sandbox_status"] == "ERROR"
    assert "ERROR" in api.send(conversation["id"], "hello", status=503)["detail"]


def test_a_message_to_an_agent_server_that_has_forgotten_the_conversation_starts_it_again(api):
    conversation = api.app_conversation()
    key = {"X-Session-API-Key": conversation["session_api_key"]}
    assert httpx.delete(conversation["conversation_url"], headers=key).status_code == 200

    api.send(conversation["id"], "hello", run=True)

    wait_until(lambda: api.count(conversation["id"], source="agent", kind="MessageEvent") == 1, "the reply")
    assert httpx.get(conversation["conversation_url"], headers=key).status_code == 200


def test_a_patch_changes_the_members_that_it_names(api):
    conversation = api.app_conversation(selected_branch="main")
    path = f"/v1/app-conversations/{conversation['id']}"

    changed = api.call("PATCH", path, json={"title": "New", "public": True, "tags": {"a": "b"}})

    assert {name: changed[name] for name in ("title", "public", "tags", "selected_branch")} == {
        "title": "New",
        "public": True,
        "tags": {"a": "b"},
        "selected_branch": "main",
    }
    assert api.call("PATCH", path, json={"selected_branch": None})["selected_branch"] is None
    api.call("PATCH", path, json={"title": ""}, status=422)
    api.call("PATCH", f"/v1/app-conversations/{uuid4()}", json={"title": "x"}, status=404)


def test_a_null_title_or_tags_stay_and_a_null_repository_is_detached(api):
    conversation = api.app_conversation(title="mine", tags={"a": "b"})
    path = f"/v1/app-conversations/{conversation['id']}"
    assert api.call("PATCH", path, json={"selected_repository": "o/r"})["selected_repository"] == "o/r"

    changed = api.call("PATCH", path, json={"title": None, "tags": None, "selected_repository": None})

    assert (changed["title"], changed["tags"], changed["selected_repository"]) == ("mine", {"a": "b"}, None)


def test_a_repository_that_its_child_cannot_clone_is_not_the_childs(api):
    parent = api.app_conversation()
    changes = {"selected_repository": "file:///nowhere/name"}
    api.call("PATCH", f"/v1/app-conversations/{parent['id']}", json=changes)

    task = api.finished(api.start_task(parent_conversation_id=parent["id"])["id"])

    assert task["status"] == "READY"
    assert task["detail"].startswith("The repository file:///nowhere/name was not cloned: ")
    assert api.conversation(task["app_conversation_id"])["selected_repository"] is None


@pytest.mark.parametrize("of", ["start", "change"])
def test_what_can_be_no_repository_is_refused_with_what_to_write(api, of):
    path, method = "/v1/app-conversations", "POST"
    if of == "change":
        path, method = f"{path}/{api.app_conversation()['id']}", "PATCH"
    [fault] = api.call(method, path, json={"selected_repository": "not a url"}, status=422)["detail"]
    assert fault["loc"] == ["body", "selected_repository"]
    assert fault["msg"].startswith("Write owner/name or a URL")


def test_a_long_title_of_a_start_is_cut_with_a_mark(api):
    long = "Fix the build. " * 1000

    assert api.app_conversation(title=long)["title"] == long[:199] + "…"


def test_a_get_without_ids_returns_the_newest_page(api):
    sandbox = api.running_sandbox()["id"]
    ids = [api.app_conversation(sandbox_id=sandbox, title=f"t{n}")["id"] for n in range(3)]

    page = api.call("GET", "/v1/app-conversations", params={"limit": 2})

    assert [item["id"] for item in page["items"]] == ids[:0:-1]
    assert set(page["items"][0]) == CONVERSATION
    rest = api.call("GET", "/v1/app-conversations", params={"page_id": page["next_page_id"]})
    assert [item["id"] for item in rest["items"]] == ids[:1]
    assert rest["next_page_id"] is None
    found = api.call("GET", "/v1/app-conversations", params={"ids": [ids[1], uuid4().hex, str(UUID(ids[0]))]})
    assert [item and item["id"] for item in found] == [ids[1], None, ids[0]]
    api.call("GET", "/v1/app-conversations", params={"ids": ["x"]}, status=422)
    api.call("GET", "/v1/app-conversations", params={"ids": [uuid4().hex] * 101}, status=422)


def test_a_search_orders_filters_and_pages(api):
    sandbox = api.running_sandbox()["id"]
    titles = ["beta", "Alpha", "gamma"]
    ids = {title: api.app_conversation(sandbox_id=sandbox, title=title)["id"] for title in titles}
    times = {title: api.conversation(ids[title])["created_at"] for title in titles}
    names = {identity: title for title, identity in ids.items()}

    def found(**query):
        seen, cursor = [], {}
        while True:
            page = api.call("GET", "/v1/app-conversations/search", params={"limit": 2, **query, **cursor})
            seen += [names[item["id"]] for item in page["items"]]
            if page["next_page_id"] is None:
                break
            cursor = {"page_id": page["next_page_id"]}
        count = {name: value for name, value in query.items() if name != "sort_order"}
        assert api.call("GET", "/v1/app-conversations/count", params=count) == len(seen)
        return seen

    assert found() == titles[::-1]
    assert found(sort_order="CREATED_AT") == titles
    assert found(sort_order="TITLE") == ["Alpha", "beta", "gamma"]
    assert found(sort_order="TITLE_DESC") == ["gamma", "beta", "Alpha"]
    assert found(title__contains="a") == titles[::-1]
    assert found(title__contains="ALPHA") == ["Alpha"]
    assert found(created_at__gte=times["Alpha"]) == ["gamma", "Alpha"]
    assert found(created_at__lt=times["Alpha"]) == ["beta"]
    assert found(sandbox_id__eq=sandbox) == titles[::-1]
    assert found(sandbox_id__eq="other") == []
    api.call("PATCH", f"/v1/app-conversations/{ids['beta']}", json={"title": "beta!"})
    updated = api.conversation(ids["beta"])["updated_at"]
    assert found(sort_order="UPDATED_AT_DESC")[0] == "beta"
    assert found(updated_at__gte=updated) == ["beta"]
    assert found(updated_at__lt=updated, sort_order="CREATED_AT") == ["Alpha", "gamma"]


def test_events_can_be_read_under_the_v1_path_too(api):
    conversation = api.app_conversation(initial_message=TEXT)["id"]
    api.until(conversation, "waiting_for_confirmation")

    for identity in (conversation, str(UUID(conversation))):
        path = f"/v1/conversation/{identity}/events"
        everything = api.call("GET", f"{path}/search")["items"]
        assert api.call("GET", f"{path}/count") == len(everything)
        assert api.call("GET", f"{path}/count", params={"kind__eq": "ActionEvent"}) == 1
        newest = api.call("GET", f"{path}/search", params={"sort_order": "TIMESTAMP_DESC", "limit": 1})
        assert newest["items"] == everything[-1:]
        following = api.call("GET", f"{path}/search", params={"limit": 2})
        after = api.call("GET", f"{path}/search", params={"page_id": following["next_page_id"]})
        assert following["items"] + after["items"] == everything
    api.call("GET", f"/v1/conversation/{uuid4()}/events/count", status=404)
    api.call("GET", f"/v1/conversation/{conversation}/events/search", params={"limit": 0}, status=422)


def test_send_message_validates_its_body(api):
    conversation = api.app_conversation()["id"]
    path = f"/v1/app-conversations/{conversation}/send-message"
    api.call("POST", path, json={"content": []}, status=422)
    api.call("POST", path, json={"content": "text"}, status=422)
    api.send(conversation, "later", run=False)
    wait_until(lambda: api.count(conversation, kind="MessageEvent") == 1, "the message")
    assert api.conversation(conversation)["execution_status"] == "idle"
