"""A sandbox names the conversations that only its agent server has; what was deleted here is deleted there."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from store.sandboxes.checks import Check
from supervisor.checks import Checker
from supervisor.endings import SandboxHost
from supervisor.upkeep import MOST_NAMED, Strays
from tests.agents import agent_client
from tests.conftest import action, status
from tests.conftest import message as say
from tests.supervisor.conftest import ScriptedRuntime, SupervisorClock
from tests.supervisor.logs import all_of, pending, state

LIST = "GET /api/conversations/search"


@pytest.fixture
def clock():
    return SupervisorClock()


@pytest.fixture
def strays(store, clock):
    host = SandboxHost("scripted", "supervisor", "127.0.0.1", "http://127.0.0.1:1", 60)
    return Strays(store, agent_client(2), host, clock=clock)


@pytest.fixture
def has(agent):
    """Have the agent server list these conversations, and report so many seconds without use."""

    def do(*infos: dict, idle: float = 0) -> None:
        agent.replies["/api/conversations/search"] = {"items": list(infos), "next_page_id": None}
        agent.replies["/server_info"] = {"idle_time": idle}

    return do


@pytest.fixture
def look(store, sandbox, strays):
    """Look at the sandbox; the strays that it names then."""

    def do() -> dict | None:
        strays.look(store.sandboxes.get(sandbox.id))
        return store.sandboxes.get(sandbox.id).strays

    return do


def info(**members) -> dict:
    return {"id": str(uuid4()), "title": None, "execution_status": "idle", **members}


def test_a_sandbox_names_those_of_its_agents_conversations_that_are_not_here(client, begin, sandbox, has, look):
    stray, here = info(title="Elsewhere", execution_status="running"), info(id=begin())
    has(here, stray, {"id": "none"}, {"id": 5}, info(execution_status="deleting"))
    [shown] = client.get(f"/api/v1/sandboxes?id={sandbox.id}").json
    assert shown["stray_conversations"] is None

    look()

    named = {"count": 1, "newest": [stray]}
    [shown] = client.get(f"/api/v1/sandboxes?id={sandbox.id}").json
    [listed] = [one for one in client.get("/api/v1/sandboxes/search").json["items"] if one["id"] == sandbox.id]
    assert shown["stray_conversations"] == listed["stray_conversations"] == named


def test_a_stray_is_named_no_longer_once_it_is_here_or_gone(store, sandbox, has, look):
    adopted, other = info(), info()
    has(adopted, other)
    assert look()["count"] == 2

    store.conversations.create(adopted["id"], sandbox_id=sandbox.id, app={})
    assert store.sandboxes.get(sandbox.id).strays == {"count": 1, "newest": [other]}
    assert look() == {"count": 1, "newest": [other]}

    has(adopted)
    assert look() == {"count": 0, "newest": []}


def test_a_list_of_strays_is_bounded_and_its_count_is_not_cut(has, look):
    infos = [info(title="\ud83d" + "t" * 10_000) for _ in range(MOST_NAMED + 5)]
    has(*infos)

    found = look()

    assert found["count"] == MOST_NAMED + 5
    assert [one["id"] for one in found["newest"]] == [one["id"] for one in infos[:MOST_NAMED]]
    assert {len(one["title"]) for one in found["newest"]} == {200}


def test_an_agent_server_whose_pages_never_end_is_left_after_ten(agent, has, look):
    has(info())
    agent.replies["/api/conversations/search"]["next_page_id"] = "again"

    look()

    assert agent.count(LIST) == 10


def test_a_conversation_that_was_deleted_here_is_deleted_at_its_agent_and_never_named(store, begin, agent, has, look):
    deleted = begin()
    store.conversations.delete(deleted)
    has(info(id=deleted))

    assert look() == {"count": 0, "newest": []}

    assert (f"DELETE /api/conversations/{deleted}", None) in agent.requests
    assert store.conversations.get_many([deleted]) == [None]


def test_conversations_are_listed_again_only_after_a_use_or_a_minute(agent, has, look, clock):
    has(idle=0)
    assert look() == {"count": 0, "newest": []}
    clock.now += 10
    has(idle=12)
    look()
    assert agent.count(LIST) == 1

    has(info(), idle=4)
    assert look()["count"] == 1
    has(idle=100)
    assert look()["count"] == 0  # while there is one, it may go at any time
    assert agent.count(LIST) == 3

    clock.now += 60
    look()
    assert agent.count(LIST) == 4


@pytest.mark.parametrize("code", [0, 404, 500])
def test_an_agent_server_that_lists_no_conversations_changes_nothing(agent, has, look, code):
    has()
    agent.status_of = lambda path: code if path.endswith("/search") else 200

    assert look() is None


def test_only_sandboxes_that_run_and_are_bound_are_due_each_in_its_turn(strays, sandbox, clock):
    others = [replace(sandbox, id="a", status="PAUSED"), replace(sandbox, id="b", warm="1")]
    others.append(replace(sandbox, id="c", wanted="deleted"))

    assert strays.due([sandbox, *others]) == [sandbox]
    assert strays.due([sandbox]) == []
    assert strays.due([replace(sandbox, start=2)]) != []  # its processes are others
    clock.now += 10
    assert strays.due([replace(sandbox, start=2)]) != []


def test_the_log_of_an_adopted_conversation_is_fetched_and_its_action_is_decided_here(
    client, store, sandbox, agent, conversation
):
    # Given a conversation at the agent, which waits for a decision about an action
    waits = action("uname")
    log = [say("begin"), status("running"), say("I see", source="agent"), waits, status("waiting_for_confirmation")]
    agent.logs[conversation], agent.reported[conversation] = log, "waiting_for_confirmation"
    agent.replies[f"/api/conversations/{conversation}"] = {
        "id": conversation,
        "execution_status": "waiting_for_confirmation",
        "confirmation_policy": {"kind": "AlwaysConfirm"},
    }

    # When it is adopted and compared
    adopted = client.post(f"/api/v1/sandboxes/{sandbox.id}/conversations/{conversation}/adopt")
    assert adopted.status_code == 200
    checker = Checker(store, agent_client(2), {"scripted": ScriptedRuntime()}, "scripted")
    for _ in range(4):
        checker.check(Check(conversation, sandbox.id, 0))

    # Then its log is here, once, and says of people only what this server knows
    assert [one["id"] for one in all_of(store, conversation)] == [one["id"] for one in log]
    assert all_of(store, conversation)[0]["source"] == "environment"
    assert (state(store, conversation), pending(store, conversation)) == ("waiting_for_confirmation", [waits["id"]])
    decision = {"accept": False, "reason": "No."}
    path = f"/api/conversations/{conversation}/events/respond_to_confirmation"
    assert client.post(path, json=decision).json == {"success": True}
    assert json.loads(json.dumps(agent.decisions))[-1]["accept"] is False
