"""Returns of the bundled agent's conversations to earlier events, in place: their files, their context, and back."""

from uuid import UUID

import pytest

from tests.agents.scripted_model import calls, finish, run
from tests.servers import wait_until
from tests.v1 import WireApi
from tests.v1.processes import in_sandboxes
from tests.v1.test_forks import (  # noqa: F401 - fixtures
    PATH,
    changed_by_steps,
    files_of,
    forking,
    home,
    ids,
    model,
    recorded,
    records,
    talked,
    work_of,
)

pytestmark = pytest.mark.process("starts a sandbox again for each return")


def returned(api, conversation, event_id=None, *, status=200):
    """The response to a return to an event; None: to the undoing of the last one."""
    body = {"event_id": event_id} if event_id else {"undo": True}
    return api.call("POST", f"{PATH}/{conversation['id']}/return", status=status, json=body)


def test_a_conversation_returns_to_each_moment_and_back_with_its_files_and_its_context(forking, home, model):  # noqa: F811
    # Given a conversation whose agent changes files by commands and by its tool, each of which waits
    api = WireApi(forking)
    conversation, work, moments = changed_by_steps(api, home, model)
    log, end = ids(api, conversation), files_of(work)

    # When it returns from moment to moment, then the files are those of then, bit for bit, in the same sandbox
    for record, files in [moments[4], moments[1], moments[3], moments[0]]:
        made = returned(api, conversation, record["event_ids"][-1])
        assert files_of(work_of(home, conversation)) == files
        assert made["event_id"] == record["event_ids"][-1]
        assert api.conversation(conversation["id"])["execution_status"] == "idle"
        assert api.call("GET", f"/conversations/{UUID(conversation['id'])}/pending_actions") == []

    # And the log has all that it had, and says where it returned to
    assert ids(api, conversation)[: len(log)] == log
    returns = [one for one in api.events(conversation["id"]) if one.get("key") == "returned_to"]
    assert [one["value"]["event_id"] for one in returns] == [
        moments[number][0]["event_ids"][-1] for number in (4, 1, 3, 0)
    ]
    assert api.count(conversation["id"]) == len(ids(api, conversation))

    # And the agent goes on from there, and is told nothing of what came after
    model.script += [calls(run("cat plain.txt > copy.txt; ls > names.txt")), calls(finish("copied"))]
    api.send(conversation["id"], "Copy it.", run=True)
    api.until(conversation["id"], "waiting_for_confirmation")
    api.decide(conversation["id"], True)
    api.until(conversation["id"], "finished")
    told = str(model.asked[-1])
    assert "to a moment before this action" in told
    assert "plan.txt" not in told
    assert (work_of(home, conversation) / "copy.txt").exists()
    went_on = files_of(work_of(home, conversation))

    # And a return to the end of the log before all of that has its files, and one step undoes it
    recorded(api, conversation)
    returned(api, conversation, log[-1])
    assert files_of(work_of(home, conversation)) == end
    returned(api, conversation)
    assert files_of(work_of(home, conversation)) == went_on
    returned(api, conversation)
    assert files_of(work_of(home, conversation)) == end
    api.clean()


def refusal(api, conversation, event_id=None):
    return returned(api, conversation, event_id, status=409)["detail"]


def test_what_cannot_be_had_is_said_before_anything_changes(api, talked, folder):  # noqa: F811
    log, files = ids(api, talked), files_of(work_of(folder, talked))
    [record] = records(api, talked)

    first, _ = api.events(talked["id"], kind__eq="ObservationEvent")
    assert "were not recorded at this event" in refusal(api, talked, first["id"])
    assert "nothing to undo" in refusal(api, talked)
    api.send(talked["id"], "run: sleep 60", run=True)
    api.until(talked["id"], "running")
    assert "pause it first" in refusal(api, talked, record["event_ids"][-1])
    api.call("POST", f"/conversations/{UUID(talked['id'])}/interrupt")
    api.until(talked["id"], "paused")
    task = api.start_task(sandbox_id=talked["sandbox_id"])
    assert api.finished(task["id"])["status"] == "READY"
    assert "1 more conversations" in refusal(api, talked, record["event_ids"][-1])

    assert ids(api, talked)[: len(log)] == log
    assert files_of(work_of(folder, talked)) == files


def test_a_waiting_action_is_to_be_decided_first(api, folder):
    message = {"content": [{"type": "text", "text": "run: echo 1 > a"}], "run": True}
    conversation = api.app_conversation(sandbox_spec_id="asks", initial_message=message)
    api.until(conversation["id"], "waiting_for_confirmation")
    event_id = recorded(api, conversation)["event_ids"][-1]

    assert "decide it first" in refusal(api, conversation, event_id)
    assert not (work_of(folder, conversation) / "a").exists()


def sleeps(folder):
    return [one for one in in_sandboxes(folder) if one.name() == "sleep"]


def test_a_paused_sandbox_is_woken_by_a_return_and_its_programs_have_ended(api, talked, folder):  # noqa: F811
    event_id = records(api, talked)[-1]["event_ids"][-1]
    api.send(talked["id"], "run: sleep 900 & echo 3 > a", run=True)
    wait_until(lambda: (work_of(folder, talked) / "a").read_text() == "3\n", "the command")
    api.until(talked["id"], "finished")
    assert sleeps(folder)
    api.call("POST", f"/v1/sandboxes/{talked['sandbox_id']}/pause")
    api.wait_for(talked["sandbox_id"], "PAUSED")

    returned(api, talked, event_id)

    assert (work_of(folder, talked) / "a").read_text() == "2\n"
    assert api.sandbox(talked["sandbox_id"])["status"] == "RUNNING"
    assert not sleeps(folder)


def test_a_repeat_with_the_same_idempotency_key_is_one_return(api, talked):  # noqa: F811
    body, headers = {"event_id": records(api, talked)[-1]["event_ids"][-1]}, {"Idempotency-Key": "one"}
    path = f"/api{PATH}/{talked['id']}/return"

    first, second = (api.client.post(path, json=body, headers=headers) for _ in range(2))

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert len([one for one in api.events(talked["id"]) if one.get("key") == "returned_to"]) == 1
