"""Single decisions, edits and deadlines of a reference agent in a real sandbox, and its kill in between."""

from uuid import UUID

import pytest

from tests.servers import wait_until
from tests.v1.processes import agents

pytestmark = pytest.mark.faults("starts a sandbox for each test, and kills an agent")

ALWAYS = {"kind": "AlwaysConfirm"}
COMMANDS = "run: echo a >> ran\nrun: echo b >> ran\nrun: echo c >> ran"


def pending(api, conversation):
    return [one["id"] for one in api.call("GET", f"/conversations/{UUID(conversation)}/pending_actions")]


@pytest.fixture
def waiting(api):
    """A conversation whose agent waits for decisions about three actions, and their ids."""

    def begin(spec="asks"):
        message = {"content": [{"type": "text", "text": "hello"}]}
        conversation = api.app_conversation(sandbox_spec_id=spec, initial_message=message)["id"]
        api.until(conversation, "finished")
        api.call("POST", f"/conversations/{UUID(conversation)}/confirmation_policy", json={"policy": ALWAYS})
        api.send(conversation, COMMANDS)
        wait_until(lambda: len(pending(api, conversation)) == 3, "the actions")
        return conversation, pending(api, conversation)

    return begin


def decide(api, conversation, *decisions, status=200):
    path = f"/v1/conversation/{conversation}/pending-actions/decisions"
    body = [{"action_id": one, "decision": verb, **members} for one, verb, members in decisions]
    return api.call("POST", path, json={"decisions": body}, status=status)


def ran(api, conversation):
    """What the commands have written, as another command reads it."""
    api.call(
        "POST", f"/conversations/{UUID(conversation)}/confirmation_policy", json={"policy": {"kind": "NeverConfirm"}}
    )
    seen = api.count(conversation, kind="ObservationEvent")
    api.send(conversation, "run: cat ran")
    wait_until(lambda: api.count(conversation, kind="ObservationEvent") > seen, "the reading")
    last = api.events(conversation, kind="ObservationEvent")[-1]
    return last["observation"]["content"][-1]["text"].split()


def closed(api, conversation):
    return {one["action_id"]: one["kind"] for one in api.events(conversation) if "action_id" in one}


def test_a_reference_agent_in_a_sandbox_takes_single_decisions_and_an_edit(api, waiting):
    conversation, (a, b, c) = waiting()
    assert api.conversation(conversation)["capabilities"] == ["decide_each", "edit", "history"]

    decide(api, conversation, (a, "reject", {"reason": "no"}), (b, "edit", {"arguments": {"command": "echo B >> ran"}}))
    assert pending(api, conversation) == [c]
    decide(api, conversation, (c, "approve", {}))

    api.until(conversation, "finished")
    wait_until(lambda: len(closed(api, conversation)) == 3, "the ends of the actions")
    assert closed(api, conversation) == {a: "UserRejectObservation", b: "ObservationEvent", c: "ObservationEvent"}
    assert ran(api, conversation) == ["B", "c"]
    assert api.conversation(conversation)["unapproved_resumes"] == 0


def test_an_agent_that_is_killed_between_single_decisions_executes_them_when_the_last_is_taken(api, waiting, folder):
    conversation, (a, b, c) = waiting("tough")
    decide(api, conversation, (b, "approve", {}))
    sandbox = api.conversation(conversation)["sandbox_id"]

    [victim] = [one for one in agents(folder) if sandbox in one.environ().get("OH_CONVERSATIONS_PATH", "")]
    victim.kill()
    wait_until(lambda: api.count(conversation, kind="ConversationErrorEvent"), "the note of the end")
    api.wait_for(sandbox, "RUNNING")

    assert pending(api, conversation) == [a, c]
    assert closed(api, conversation) == {}
    decide(api, conversation, (b, "reject", {}), status=409)
    decide(api, conversation, (a, "reject", {}), (c, "reject", {}))
    api.until(conversation, "finished")
    assert ran(api, conversation) == ["b"]


def test_the_deadline_of_a_start_request_is_that_of_its_conversation(api):
    conversation = api.app_conversation(sandbox_spec_id="asks", confirmation_seconds=3600)
    assert conversation["confirmation_seconds"] == 3600
    api.send(conversation["id"], "run: echo a")
    wait_until(lambda: pending(api, conversation["id"]), "the action")

    listed = api.call("GET", "/v1/pending-actions", params={"conversation_id": str(UUID(conversation["id"]))})
    [item] = listed["items"]
    assert item["expires_at"] is not None
    assert sorted(item["can"]) == ["approve", "edit", "reject"]
