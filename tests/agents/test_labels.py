"""Titles and tags that clients set: the agent is told, and no failure of the agent loses them."""

import pytest

from agents.commands import Commands
from agents.labels import relabel, tell
from agents.link import AgentUnreachable, http_client
from store.errors import ConversationNotFound
from supervisor.recovery import Recovery
from tests.agents import SPECS
from tests.conftest import as_events, event


@pytest.fixture
def commands(store):
    return Commands(store, http_client(5), SPECS)


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
        store.app_conversations.report(sandbox.id, linked, {"tags": tags})

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
def test_an_agent_that_fails_loses_no_label_and_is_told_with_the_next_change(
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


def test_an_agent_that_cannot_be_reached_says_so_to_who_tells_it(store, agent, linked):
    store.conversations.update(linked, title="New")
    agent.statuses = [0, 0]

    with pytest.raises(AgentUnreachable):
        tell(store, agent.server(), store.conversations.get(linked))
