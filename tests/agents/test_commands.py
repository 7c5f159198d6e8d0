"""Commands to an agent, against a scripted agent server on real sockets: retries, labels, echoes, later attempts.

What this server sends to an agent is expected to come back, and what never reached the agent is not. An agent receives
nothing twice, whatever was lost.
"""

import time
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import pytest

from agents.client import AgentRefused, AgentUnreachable
from agents.commands import Commands, NotReachable, relabel, tell
from agents.deletions import delete
from settings.egress import PLACEHOLDER, Service
from settings.specs import Specs
from store.approvals.effects import message_claim, policy_claim
from store.errors import ActionsWait, ConversationNotFound
from store.link.attempts import Attempt, OutcomeUnknown, enter
from store.sandboxes.sandboxes import SandboxId
from supervisor.endings import Recovery
from tests.agents import SPECS, agent_client, propose
from tests.conftest import as_events, event, message, status


def test_a_message_is_forwarded_with_the_key_and_only_the_agent_writes_it(
    store, commands, conversation, sandbox, agent
):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    content = [{"type": "text", "text": "hello"}]

    commands.send(conversation, content=content, run=True)

    assert agent.posted("/events") == [{"role": "user", "content": content, "run": True}]
    assert agent.keys == {sandbox.session_api_key}
    assert store.events.count(conversation) == 0


def test_idempotent_calls_are_tried_twice_and_others_once(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [0]
    commands.change_status(conversation, "pause")
    assert len(agent.posted("/pause")) == 2

    agent.statuses = [0, 0]
    with pytest.raises(AgentUnreachable):
        commands.send(conversation, content=[], run=False)
    with pytest.raises(AgentUnreachable):
        commands.change_status(conversation, "run")
    assert len(agent.posted("/events")) == len(agent.posted("/run")) == 1


def test_a_run_approves_nothing_that_the_agent_has_not_posted_yet(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})

    commands.change_status(conversation, "run")

    assert agent.posted("/run") == [{"accepts": False}]


@pytest.mark.parametrize("reported", ["PAUSED", "MISSING", "ERROR"])
def test_no_call_goes_to_a_sandbox_that_does_not_run(store, commands, conversation, sandbox, agent, reported):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    if reported == "PAUSED":
        store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", reported)

    with pytest.raises(NotReachable, match=reported):
        commands.send(conversation, content=[], run=True)
    assert agent.requests == []


def test_no_call_goes_to_a_forgotten_sandbox(store, commands, conversation):
    store.conversations.create(conversation, sandbox_id=SandboxId("forgotten"), app={})
    with pytest.raises(NotReachable, match="MISSING"):
        commands.set_policy(conversation, {"kind": "NeverConfirm"})
    delete(commands, conversation)


def test_a_secret_that_a_service_names_stays_outside_and_its_agent_gets_a_placeholder(
    store, conversation, sandbox, agent
):
    service = Service("git", "https://git.example", {"Authorization": "token {secrets.GIT}"})
    spec = SPECS.get(sandbox.spec_id)
    commands = Commands(store, agent_client(2), Specs([replace(spec, services=(*spec.services, service))]))
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    given, inside = {"GIT": "canary", "MINE": "inside"}, {"GIT": PLACEHOLDER, "MINE": "inside"}

    commands.put_secrets(conversation, given)
    assert agent.posted("/secrets") == [{"secrets": inside}]
    assert store.conversations.secrets_in(sandbox.id) == ([given], [])

    agent.forgotten.add(conversation)
    commands.change_status(conversation, "run")
    assert [start["secrets"] for start in agent.posted("/conversations")] == [inside]


def test_a_refusal_repeats_the_detail_of_the_agent(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [409]
    with pytest.raises(AgentRefused, match="409: as scripted"):
        commands.change_status(conversation, "run")


def test_a_message_to_an_agent_finds_no_detached_conversation(store, commands, conversation):
    store.conversations.create(conversation)
    with pytest.raises(ConversationNotFound):
        commands.send_to_agent(conversation, content=[], run=True)
    assert store.events.count(conversation) == 0


@pytest.fixture
def linked(store, conversation, sandbox):
    """A conversation in a sandbox that runs, with tags that its agent knows."""
    store.conversations.create(conversation, sandbox_id=sandbox.id, title="Old", tags={"old": "1"}, app={})
    return conversation


def told(agent):
    return [body for path, body in agent.requests if path.startswith("PATCH ")]


def labels(store, conversation):
    state = store.conversations.get(conversation)
    return state["title"], state["tags"], "labels_due" in state


@pytest.fixture
def agent_reports(store, linked, sandbox):
    """The agent's own idea of the tags, by both webhooks."""

    def report(tags):
        full = event("ConversationStateUpdateEvent", "environment", key="full_state", value={"tags": tags})
        store.events.append(linked, as_events([full]), sandbox_id=sandbox.id)
        store.conversations.in_sandboxes.report(sandbox.id, linked, {"tags": tags})

    return report


@pytest.mark.parametrize("own", [None, {}])
def test_an_agent_that_runs_is_told_a_title_and_tags(store, commands, agent, linked, own):
    relabel(commands, linked, own, title="New", tags={"new": "2"})

    assert told(agent) == [{"title": "New", "tags": {"new": "2"}}]
    assert labels(store, linked) == ("New", {"new": "2"}, False)


def test_an_agent_is_told_nothing_when_neither_title_nor_tags_change(store, commands, agent, linked):
    relabel(commands, linked, title="Old")
    relabel(commands, linked, {"public": True})

    assert told(agent) == []


def test_a_detached_conversation_has_nobody_to_be_told(store, commands, agent, conversation):
    store.conversations.create(conversation)

    relabel(commands, conversation, title="New")

    assert labels(store, conversation) == ("New", {}, False)
    with pytest.raises(ConversationNotFound):
        relabel(commands, conversation, {}, title="Newer")


@pytest.mark.parametrize("status", [0, 404, 405, 422, 500])
def test_an_agent_that_fails_gets_the_labels_with_the_next_change(
    store, commands, agent, linked, agent_reports, status
):
    agent.statuses = [status, status] if status == 0 else [status]
    relabel(commands, linked, tags={"new": "2"})
    assert labels(store, linked) == ("Old", {"new": "2"}, True)

    agent_reports({"old": "1"})
    assert labels(store, linked) == ("Old", {"new": "2"}, True)

    relabel(commands, linked, title="Newer")
    assert told(agent)[-1] == {"title": "Newer", "tags": {"new": "2"}}
    assert labels(store, linked) == ("Newer", {"new": "2"}, False)


def test_a_paused_sandbox_is_not_woken_for_a_title_and_its_agent_is_told_when_it_runs_again(
    store, commands, agent, linked, sandbox, agent_reports
):
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")

    relabel(commands, linked, title="New", tags={})

    assert store.sandboxes.get(sandbox.id).wanted == "paused"
    assert told(agent) == []
    agent_reports({"old": "1"})

    Recovery(store).tell_labels(sandbox, agent.server())
    Recovery(store).tell_labels(sandbox, agent.server())

    assert told(agent) == [{"title": "New", "tags": {}}]
    assert labels(store, linked) == ("New", {}, False)


def test_an_agent_that_does_not_respond_stops_no_supervisor(store, commands, agent, linked, sandbox):
    agent.statuses = [0] * 4
    relabel(commands, linked, title="New")

    Recovery(store).tell_labels(sandbox, agent.server())

    assert labels(store, linked) == ("New", {"old": "1"}, True)


def test_a_change_while_the_agent_is_told_stays_due(store, agent, linked):
    store.conversations.update(linked, title="New")
    state = store.conversations.get(linked)
    agent.on_request = lambda _path: store.conversations.update(linked, title="Newer")

    tell(store, agent.server(), state)

    assert told(agent) == [{"title": "New", "tags": {"old": "1"}}]
    assert labels(store, linked) == ("Newer", {"old": "1"}, True)


def test_an_agent_that_knows_the_labels_reports_tags_as_before(store, commands, agent, linked, agent_reports):
    relabel(commands, linked, title="New")

    agent_reports({"theirs": "3"})

    assert labels(store, linked) == ("New", {"theirs": "3"}, False)


def test_a_deleted_conversation_is_not_told(commands, store, linked):
    store.conversations.delete(linked)

    with pytest.raises(ConversationNotFound):
        relabel(commands, linked, title="New")


def test_telling_an_unreachable_agent_raises_an_error(store, agent, linked):
    store.conversations.update(linked, title="New")
    agent.statuses = [0, 0]

    with pytest.raises(AgentUnreachable):
        tell(store, agent.server(), store.conversations.get(linked))


CONTENT = [{"type": "text", "text": "hello"}]
ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def begun(store, sandbox):
    identity = str(uuid4())
    store.conversations.create(identity, sandbox_id=sandbox.id, app={})
    return identity


def expected(store, conversation) -> list[str]:
    """The claims that the agent of a conversation may make."""
    members = store.events._redis.zrange(f"conv:{{{conversation}}}:echoes", 0, -1)
    return sorted(member.decode().rpartition(" ")[0] for member in members)


def test_a_message_is_expected_before_the_agent_has_it(store, commands, agent, begun):
    seen = []
    agent.on_request = lambda _path: seen.append(expected(store, begun))
    commands.send(begun, content=CONTENT, run=False)
    assert seen == [[message_claim(CONTENT)]]


def test_a_message_that_the_agent_refuses_is_not_expected(store, commands, agent, begun):
    agent.statuses = [422]
    with pytest.raises(AgentRefused):
        commands.send(begun, content=CONTENT, run=False)
    assert expected(store, begun) == []


def test_a_message_that_is_not_sent_because_the_agent_waits_is_not_expected(store, commands, agent, begun):
    agent.state = {"execution_status": "waiting_for_confirmation"}  # for an action that it has not posted yet
    with pytest.raises(ActionsWait):
        commands.send(begun, content=CONTENT, run=False, rejects=False)
    assert expected(store, begun) == []


def test_a_message_without_a_response_stays_expected(store, commands, agent, begun):
    agent.statuses = [0]
    with pytest.raises(AgentUnreachable):
        commands.send(begun, content=CONTENT, run=False)
    assert expected(store, begun) == [message_claim(CONTENT)]


def test_a_message_after_an_undelivered_rejection_is_not_expected(store, commands, agent, sandbox):
    identity = str(uuid4())
    proposed = propose(store, identity, sandbox.id)
    agent.statuses = [0]
    with pytest.raises(AgentUnreachable):
        commands.send(identity, content=CONTENT, run=False)
    assert expected(store, identity) == [f"reject {proposed['id']}"]


@pytest.mark.parametrize("accept", [True, False])
def test_a_rejection_is_expected_and_an_acceptance_is_not(store, commands, agent, sandbox, accept):
    identity = str(uuid4())
    agent.latest = propose(store, identity, sandbox.id)["id"]
    assert commands.decide(identity, accept=accept, reason="no")
    assert expected(store, identity) == ([] if accept else [f"reject {agent.latest}"])


def test_a_policy_is_expected_before_the_agent_has_it(store, commands, agent, begun):
    seen = []
    agent.on_request = lambda _path: seen.append(expected(store, begun))
    commands.set_policy(begun, ALWAYS)
    assert seen == [[policy_claim(ALWAYS)]]


TEXT = [{"type": "text", "text": "hello"}]


@pytest.fixture
def attempt():
    """Begin an attempt, with one seed for all attempts of the test."""
    seed = uuid4()

    def begin(**members) -> Attempt:
        present = Attempt(seed, "token", **members)
        enter(present)
        return present

    yield begin
    enter(None)


@pytest.fixture
def idle(store, conversation, sandbox):
    """A conversation whose agent waits for nothing."""
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    return conversation


def test_a_message_that_may_have_reached_the_agent_is_not_sent_again(commands, idle, agent, attempt):
    first = attempt()
    commands.send(idle, content=TEXT, run=False)
    assert first.reached_agent
    sent = len(agent.requests)

    attempt(is_later=True)
    with pytest.raises(OutcomeUnknown):
        commands.send(idle, content=TEXT, run=False)

    assert len(agent.requests) == sent


def test_a_run_that_may_have_reached_the_agent_is_not_sent_again(commands, idle, agent, attempt):
    attempt(is_later=True)
    with pytest.raises(OutcomeUnknown):
        commands.change_status(idle, "run")

    assert not agent.requests


def test_a_message_without_a_response_counts_as_received(commands, idle, agent, attempt):
    agent.statuses = [0]
    first = attempt()
    with pytest.raises(AgentUnreachable):
        commands.send(idle, content=TEXT, run=False)

    assert first.reached_agent


def test_a_pause_is_sent_again(commands, idle, agent, attempt):
    attempt(is_later=True)
    commands.change_status(idle, "pause")

    assert len(agent.requests) == 1


def test_the_repeat_of_an_outstanding_decision_succeeds_and_leaves_the_delivery_to_a_supervisor(
    commands, store, waiting, agent, attempt
):
    agent.statuses = [0]
    attempt()
    assert commands.decide(waiting, accept=True, reason="")
    sent = len(agent.requests)

    attempt(is_later=True)
    assert commands.decide(waiting, accept=True, reason="")

    assert len(agent.requests) == sent
    assert store.approvals.deliveries.get(waiting).accept


def test_the_repeat_of_a_settled_decision_finds_that_it_has_won(commands, waiting, agent, attempt):
    attempt()
    assert commands.decide(waiting, accept=False, reason="no")
    sent = len(agent.requests)

    attempt(is_later=True)
    assert commands.decide(waiting, accept=False, reason="no")

    assert len(agent.requests) == sent


def test_the_repeat_of_a_decision_that_nothing_remembers_does_not_claim_that_another_one_won(
    commands, store, waiting, agent, attempt
):
    attempt()
    assert commands.decide(waiting, accept=False, reason="no")
    store.events._redis.hdel(f"conv:{{{waiting}}}", "decision_id")  # as a later decision of another action does

    attempt(is_later=True)
    with pytest.raises(OutcomeUnknown):
        commands.decide(waiting, accept=False, reason="no")


@pytest.fixture
def awaited(store, sandbox, begun, monkeypatch):
    """Commands that wait for what the agent posts, which it does within the wait that `waits` counts."""
    awaiting = Commands(store, agent_client(2), SPECS, shown_seconds=30)

    def posts(*events):
        waits = []

        def sleep(seconds):
            waits.append(seconds)
            if len(waits) == 2:
                store.events.append(begun, as_events([*events]), sandbox_id=sandbox.id)

        monkeypatch.setattr("agents.commands.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
        return awaiting, waits

    return posts


def test_a_message_is_done_when_the_log_has_it(store, awaited, begun):
    commands, waits = awaited(message("hello"))

    commands.send(begun, content=CONTENT, run=False)

    assert len(waits) == 2
    assert store.events.count(begun, kind="MessageEvent", source="user") == 1


@pytest.mark.parametrize("verb", ["pause", "interrupt"])
def test_a_pause_is_done_when_the_state_shows_it(store, agent, awaited, begun, verb):
    agent.state = {"execution_status": "paused"}
    commands, waits = awaited(status("paused"))

    commands.change_status(begun, verb)

    assert len(waits) == 2
    assert store.conversations.get(begun)["execution_status"] == "paused"


def test_a_pause_of_an_agent_that_still_works_waits_for_nothing(agent, awaited, begun):
    agent.state = {"execution_status": "running"}
    commands, waits = awaited()

    commands.change_status(begun, "pause")

    assert waits == []


def test_a_message_that_the_agent_does_not_post_is_done_too(store, agent, begun):
    Commands(store, agent_client(2), SPECS, shown_seconds=0.05).send(begun, content=CONTENT, run=False)

    assert len(agent.posted("/events")) == 1
    assert expected(store, begun) == [message_claim(CONTENT)]
