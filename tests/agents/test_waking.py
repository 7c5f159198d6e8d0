"""The use of a sandbox that is paused, and of a conversation that its agent server has forgotten."""

import threading

import pytest

from agents.client import AgentRefused
from agents.commands import Commands
from agents.deletions import delete
from agents.waking import NotReachable
from store.errors import TooManySandboxes
from tests.agents import SPECS, agent_client, propose, running_sandbox
from tests.conftest import limits_of, store_of, unchecked
from tests.servers import wait_until

pytestmark = pytest.mark.process("a supervisor on a thread wakes sandboxes")

TEXT = [{"type": "text", "text": "hello"}]
SETTING = {"kind": "NeverConfirm"}
WAKING = {
    "message": lambda commands, one: commands.send(one, content=TEXT, run=False),
    "app message": lambda commands, one: commands.send_to_agent(one, content=TEXT, run=True),
    "run": lambda commands, one: commands.change_status(one, "run"),
    "policy": lambda commands, one: commands.set_policy(one, SETTING),
    "analyzer": lambda commands, one: commands.set_security_analyzer(one, None),
    "secrets": lambda commands, one: commands.put_secrets(one, {}),
}


@pytest.fixture
def patient(store):
    return Commands(store, agent_client(5), SPECS, wake_seconds=60)


@pytest.fixture
def paused(store, conversation, sandbox):
    """A conversation in a sandbox that is paused."""
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={"llm_model": "some/model"})
    pause(store, sandbox)
    return conversation


def pause(store, sandbox):
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")


def resume_when_asked(store, sandbox, status: str = "RUNNING") -> threading.Thread:
    """Be the supervisor: report the status once the resume of the sandbox is asked for."""

    def act():
        wait_until(lambda: store.sandboxes.get(sandbox.id).wanted == "running", "the request to resume")
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", status, detail="its files are gone")

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize("status", ["ERROR", "MISSING"])
def test_a_sandbox_that_fails_while_it_wakes_refuses_the_command_with_its_status(
    store, patient, paused, sandbox, agent, status
):
    supervisor = resume_when_asked(store, sandbox, status)
    with pytest.raises(NotReachable, match=status) as refusal:
        patient.send(paused, content=TEXT, run=True)
    supervisor.join()
    assert (refusal.value.status, agent.requests) == (status, [])
    assert refusal.value.is_passing == (status == "MISSING")  # its host may come back


def test_a_sandbox_that_does_not_wake_in_time_refuses_the_command_for_now(store, paused, agent):
    commands = Commands(store, agent_client(5), SPECS, wake_seconds=0.2)
    with pytest.raises(NotReachable, match=r"STARTING after 0\.2 s") as refusal:
        commands.send(paused, content=TEXT, run=True)
    assert refusal.value.is_passing
    assert agent.requests == []


def test_a_failed_sandbox_is_not_woken_and_the_refusal_names_the_resume(store, patient, paused, sandbox):
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "ERROR", detail="it crashed")
    with pytest.raises(NotReachable, match=f"ERROR: POST /api/v1/sandboxes/{sandbox.id}/resume"):
        patient.send(paused, content=TEXT, run=True)
    assert store.sandboxes.get(sandbox.id).status == "ERROR"


def test_a_sandbox_is_not_woken_beyond_the_cap(redis_url, store, paused, agent):
    full = store_of(redis_url, unchecked(limits_of(1), max_sandboxes=0))
    with pytest.raises(TooManySandboxes):
        Commands(full, agent_client(5), SPECS, wake_seconds=60).send(paused, content=TEXT, run=True)
    assert agent.requests == []


@pytest.mark.parametrize("what", WAKING)
def test_a_command_wakes_the_sandbox_and_is_sent(store, patient, paused, sandbox, agent, what):
    supervisor = resume_when_asked(store, sandbox)
    WAKING[what](patient, paused)
    supervisor.join()
    assert len(agent.requests) == 1


@pytest.mark.parametrize("what", WAKING)
def test_a_server_that_may_not_wake_refuses_the_command_at_once(store, commands, paused, sandbox, agent, what):
    with pytest.raises(NotReachable, match="PAUSED") as refusal:
        WAKING[what](commands, paused)
    assert (refusal.value.is_passing, store.sandboxes.get(sandbox.id).wanted) == (False, "paused")


def test_a_command_waits_for_a_sandbox_that_is_waking_already(store, patient, paused, sandbox, agent):
    store.sandboxes.ask(sandbox.id, "resume")
    supervisor = resume_when_asked(store, sandbox)
    patient.send(paused, content=TEXT, run=True)
    supervisor.join()
    assert len(agent.posted("/events")) == 1


def test_a_pause_an_interrupt_and_a_deletion_wake_nothing(store, patient, paused, sandbox, agent):
    for verb in ("pause", "interrupt"):
        with pytest.raises(NotReachable, match="PAUSED"):
            patient.change_status(paused, verb)
    delete(patient, paused)
    assert store.sandboxes.get(sandbox.id).wanted != "running"
    assert agent.requests == []


def test_a_decision_wakes_the_sandbox_and_waits_for_nothing(store, patient, conversation, sandbox, agent):
    propose(store, conversation, sandbox.id)
    pause(store, sandbox)

    assert patient.decide(conversation, accept=True, reason="")

    assert store.sandboxes.get(sandbox.id).wanted == "running"
    assert agent.requests == []
    assert store.approvals.deliveries.get(conversation) is not None


def test_a_message_that_wakes_rejects_what_waited_and_is_sent_after_that(store, patient, conversation, sandbox, agent):
    agent.latest = propose(store, conversation, sandbox.id)["id"]
    pause(store, sandbox)
    supervisor = resume_when_asked(store, sandbox)

    patient.send(conversation, content=TEXT, run=True)

    supervisor.join()
    assert [path.rpartition("/")[2] for path, _ in agent.requests] == ["respond_to_confirmation", "events"]


# a conversation that the agent server has forgotten


@pytest.mark.parametrize("what", ["message", "app message", "run"])
def test_a_forgotten_conversation_is_started_again_and_gets_the_command(store, commands, conversation, agent, what):
    risky = {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": True}
    with running_sandbox(store, agent.url) as sandbox:
        app = {"llm_model": "some/model"}
        store.conversations.create(conversation, sandbox_id=sandbox.id, app=app, confirmation_policy=risky)
        agent.forgotten.add(conversation)

        WAKING[what](commands, conversation)

    refused, start, sent = agent.requests
    assert refused == sent
    assert start[0] == "POST /api/conversations"
    assert start[1]["conversation_id"] == conversation
    assert start[1]["confirmation_policy"] == risky  # what a client has set, not the template's
    assert "initial_message" not in start[1]


def test_a_forgotten_conversation_gets_its_secrets_again(store, commands, conversation, sandbox, agent, monkeypatch):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.forgotten.add(conversation)
    monkeypatch.setattr(store.conversations, "secrets_of", lambda _: {"TOKEN": "hidden"})

    commands.change_status(conversation, "run")

    [start] = agent.posted("/conversations")
    assert start["secrets"] == {"TOKEN": "hidden"}


def test_a_conversation_that_stays_unknown_is_refused_once(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.broken[conversation] = 404
    with pytest.raises(AgentRefused, match="404"):
        commands.change_status(conversation, "run")
    assert len(agent.requests) == 3
