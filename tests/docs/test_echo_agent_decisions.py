"""The echo agent takes single decisions and edits: it executes what was approved, once, and nothing else."""

import random
import signal
import subprocess
import sys
import threading
from uuid import uuid4

import pytest

from tests.conftest import status
from tests.docs.test_echo_agent import echo_agent, start, user_of
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.process("starts a server and an agent")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    with store_server(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url) as (client, _):
        yield client


@pytest.fixture
def effects(tmp_path):
    path = tmp_path / "effects"
    path.touch()
    return path


def events(server, conversation, **query):
    query |= {"limit": 100}
    return server.get(f"/api/conversations/{conversation}/events/search", params=query).json()["items"]


def state(server, conversation):
    return server.get(f"/api/conversations/{conversation}").json()


def until(server, conversation, value):
    wait_until(lambda: state(server, conversation)["execution_status"] == value, value)


def proposed(server, conversation, user, text):
    """The ids of the actions that wait after a message."""
    user.sends(text)
    user.waits_for(key="execution_status", value="waiting_for_confirmation")
    pending = server.get(f"/api/conversations/{conversation}/pending_actions").json()
    return [one["id"] for one in pending]


def decide(server, conversation, *decisions):
    """Each decision is verb, action id and further members."""
    body = [{"decision": verb, "action_id": action_id, **members} for verb, action_id, members in decisions]
    response = server.post(f"/api/v1/conversation/{conversation}/pending-actions/decisions", json={"decisions": body})
    assert response.status_code == 200, response.text


def observations(server, conversation):
    """By action id the texts of its observation."""
    return {
        one["action_id"]: [part["text"] for part in one["observation"]["content"]]
        for one in events(server, conversation, kind="ObservationEvent")
    }


@pytest.mark.process("starts two agents one after the other")
def test_the_agent_says_what_it_is_capable_of_and_the_log_has_no_event_of_it(server, conversation):
    start(server, conversation, "NeverConfirm")
    for _ in range(2):
        with echo_agent(conversation, server.base_url), user_of(server, conversation) as user:
            user.sends("hello")
            user.waits_for(key="execution_status", value="finished")

    assert state(server, conversation)["capabilities"] == ["decide_each", "edit"]
    assert {one.get("key") for one in events(server, conversation)} == {None, "execution_status"}


def test_single_decisions_are_followed_and_edited_arguments_take_the_place_of_the_proposed_ones(
    server, conversation, effects
):
    start(server, conversation, "AlwaysConfirm")
    with echo_agent(conversation, server.base_url), user_of(server, conversation) as user:
        a, b, c = proposed(
            server, conversation, user, "\n".join(f"run: echo {name} | tee -a {effects}" for name in "abc")
        )

        edited = {"command": f"echo A | tee -a {effects}"}
        decide(server, conversation, ("edit", a, {"arguments": edited}), ("reject", b, {"reason": "no"}))
        assert effects.read_text() == ""
        decide(server, conversation, ("approve", c, {}))

        until(server, conversation, "finished")
    assert effects.read_text().split() == ["A", "c"]
    seen = observations(server, conversation)
    assert seen.keys() == {a, c}
    assert (seen[a][0].startswith("A person has edited the arguments: "), seen[a][1], seen[c]) == (True, "A\n", ["c\n"])


@pytest.mark.process("starts an agent for each case")
@pytest.mark.parametrize("arguments", [{}, {"command": 5}])
def test_edited_arguments_without_a_command_are_observed_as_an_error_and_execute_nothing(
    server, conversation, effects, arguments
):
    start(server, conversation, "AlwaysConfirm")
    with echo_agent(conversation, server.base_url), user_of(server, conversation) as user:
        [a] = proposed(server, conversation, user, f"run: echo a >> {effects}")
        decide(server, conversation, ("edit", a, {"arguments": arguments}))
        until(server, conversation, "finished")

    [seen] = events(server, conversation, kind="ObservationEvent")
    assert (seen["observation"]["exit_code"], effects.read_text()) == (2, "")


def test_an_action_that_waited_and_was_not_approved_is_never_executed(server, conversation, effects):
    """Something else may make the conversation run: a status that an agent posts decides nothing."""
    start(server, conversation, "AlwaysConfirm")
    with echo_agent(conversation, server.base_url), user_of(server, conversation) as user:
        proposed(server, conversation, user, f"run: echo a >> {effects}")
        server.post(f"/api/v1/webhooks/events/{conversation}", json=[status("running")])
        until(server, conversation, "finished")

    assert (observations(server, conversation), effects.read_text()) == ({}, "")


@pytest.mark.process("starts two agents one after the other")
def test_a_copy_of_a_conversation_that_waited_executes_nothing_unapproved(server, conversation, effects):
    start(server, conversation, "AlwaysConfirm")
    with echo_agent(conversation, server.base_url), user_of(server, conversation) as user:
        proposed(server, conversation, user, f"run: echo a >> {effects}")
    copy = server.post(f"/api/conversations/{conversation}/fork", json={}).json()["id"]

    with echo_agent(copy, server.base_url):
        wait_until(lambda: server.post(f"/api/conversations/{copy}/run").status_code == 200, "the agent of the copy")
        until(server, copy, "finished")

    assert (observations(server, copy), effects.read_text()) == ({}, "")


@pytest.mark.faults("kills the agent at random moments")
@pytest.mark.parametrize("seed", range(6))
def test_a_kill_at_any_moment_loses_no_decision_and_doubles_none(server, effects, seed):
    """Limitation: a command during which the agent is killed is executed again; it appends one line each time."""
    conversation = str(uuid4())
    start(server, conversation, "AlwaysConfirm")
    command = [sys.executable, "docs/examples/echo_agent.py", conversation, str(server.base_url).rstrip("/")]
    chance = random.Random(seed)
    agents = []
    ended = threading.Event()

    def keep_alive():
        while not ended.is_set():
            agents.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            if len(agents) > 5:
                return  # the last one lives
            ended.wait(chance.uniform(0.3, 1.2))
            agents[-1].send_signal(signal.SIGKILL)
            agents[-1].wait()

    keeper = threading.Thread(target=keep_alive)
    keeper.start()
    try:
        with user_of(server, conversation) as user:
            text = "\n".join(f"run: echo {name} >> {effects}" for name in "abc")
            a, b, c = proposed(server, conversation, user, text)
            decide(server, conversation, ("edit", b, {"arguments": {"command": f"echo B >> {effects}"}}))
            decide(server, conversation, ("reject", a, {}), ("approve", c, {}))
            until(server, conversation, "finished")
    finally:
        ended.set()
        keeper.join()
        for agent in agents:
            agent.kill()
            agent.wait()

    assert observations(server, conversation).keys() == {b, c}
    assert {*effects.read_text().split()} == {"B", "c"}
    closed = [one["action_id"] for one in events(server, conversation) if "action_id" in one]
    assert sorted(closed) == sorted([a, b, c])
