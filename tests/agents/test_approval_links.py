"""Decisions by a one-time link."""

import pytest

from agents.approval_links import (
    ActionDecided,
    LinkExpired,
    LinkUsed,
    decide_by_link,
    show_link,
)
from core.approvals import ApprovalLinks, action_digest, shown_arguments
from core.wire import Micros, micros, now
from tests.conftest import SECRET_KEY, action, as_events, status

LINKS = ApprovalLinks((SECRET_KEY,), public_url="http://localhost", seconds=3600)


def link_to(conversation, act, **options):
    digest = action_digest(act["tool_name"], shown_arguments(act["action"]))
    return LINKS.read(LINKS.make(conversation, act["id"], digest, "chat", **options).rpartition("/")[2])


@pytest.fixture
def proposed(store, conversation, sandbox):
    """Two actions of an agent in a sandbox that wait for a decision."""
    actions = [action("one"), action("two")]
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    batch = as_events([status("running"), *actions, status("waiting_for_confirmation")])
    store.events.append(conversation, batch, sandbox_id=sandbox.id)
    return actions


def test_one_of_several_actions_that_are_decided_together_is_refused_and_the_link_says_why(
    store, commands, conversation, proposed, agent
):
    link = link_to(conversation, proposed[0])

    assert show_link(store, link).together == 2
    with pytest.raises(ActionDecided, match="one decision for all actions that wait"):
        decide_by_link(commands, link, "approve", "", "")
    assert len(store.approvals.confirmations.pending(conversation)) == 2
    assert agent.decisions == []


def test_the_agent_in_a_sandbox_receives_the_decision_of_a_link_once(store, commands, waiting, agent):
    [act] = store.approvals.confirmations.pending(waiting)
    link = link_to(waiting, {"id": act["id"], "tool_name": act["tool_name"], "action": act["arguments"]})
    assert show_link(store, link).together == 0

    decide_by_link(commands, link, "reject", "too risky", "192.0.2.1")

    [received] = agent.decisions
    assert (received["accept"], received["reason"]) == (False, "too risky")
    for verb in ("reject", "approve"):
        with pytest.raises(LinkUsed):
            decide_by_link(commands, link, verb, "", "")
    assert len(agent.decisions) == 1


def test_a_link_about_an_earlier_wait_of_an_action_decides_nothing_and_a_link_about_this_one_does(
    store, commands, waiting, agent
):
    [act] = store.approvals.confirmations.pending(waiting)
    words = {"id": act["id"], "tool_name": act["tool_name"], "action": act["arguments"]}
    began = micros(act["since"])

    for verb in ("approve", "reject"):
        with pytest.raises(ActionDecided, match="Nothing was decided by this link"):
            decide_by_link(commands, link_to(waiting, words, since=Micros(began - 1)), verb, "", "")
    assert [one["id"] for one in store.approvals.confirmations.pending(waiting)] == [act["id"]]
    assert agent.decisions == []

    decide_by_link(commands, link_to(waiting, words, since=began), "approve", "", "")
    assert len(agent.decisions) == 1


def test_a_link_whose_end_passes_between_the_page_and_the_form_decides_nothing(store, commands, conversation):
    store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"})
    act = action()
    store.events.append(conversation, as_events([act]))

    with pytest.raises(LinkExpired):
        decide_by_link(commands, link_to(conversation, act, deadline=now()), "approve", "", "")
    assert [one["id"] for one in store.approvals.confirmations.pending(conversation)] == [act["id"]]
