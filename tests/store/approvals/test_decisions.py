"""A conversation under confirmation as a state machine, driven against a model in plain Python."""

import json
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from store.approvals.effects import RISKS, held_risks
from tests.conftest import action, as_events, event, observation, status

POLICIES = [
    {"kind": "NeverConfirm"},
    {"kind": "AlwaysConfirm"},
    {"kind": "ConfirmRisky", "threshold": "MEDIUM", "confirm_unknown": False},
    {"kind": "ConfirmRisky", "threshold": "HIGH", "confirm_unknown": True},
]


def machine(store):
    class ConfirmationMachine(RuleBasedStateMachine):
        """The model has policy, status, the open undecided actions, and all events about them."""

        def __init__(self):
            super().__init__()
            self.id = str(uuid4())
            store.conversations.create(self.id)
            self.policy, self.status, self.open, self.decided = POLICIES[0], "idle", [], []
            self.expected = []  # the expected log, as (kind, status or action id)

        def append(self, *events):
            store.events.append(self.id, as_events(list(events)))

        def turn(self, value):
            self.status = value
            self.expected.append(("ConversationStateUpdateEvent", value))

        @rule(policy=st.sampled_from(POLICIES))
        def set_policy(self, policy):
            store.approvals.confirmations.set_policy(self.id, policy)
            if policy != self.policy:
                self.expected.append(("ConversationStateUpdateEvent", policy))
            self.policy = policy

        @rule(risks=st.lists(st.sampled_from([*RISKS, "UNKNOWN"]), min_size=1, max_size=3))
        def propose(self, risks):
            batch = [action(security_risk=risk, llm_response_id="r") for risk in risks]
            self.append(*batch)
            self.open += batch
            self.expected += [("ActionEvent", one["id"]) for one in batch]
            held = held_risks(self.policy).split(",")
            if any(risk in held for risk in risks) and self.status != "waiting_for_confirmation":
                self.turn("waiting_for_confirmation")

        @rule(number=st.integers(0, 5), by_call=st.booleans())
        def observe(self, number, by_call):
            known = self.open + self.decided
            if not known:
                return
            one = known[number % len(known)]
            seen = event("AgentErrorEvent", "agent", tool_call_id=one["tool_call_id"]) if by_call else observation(one)
            self.append(seen)
            self.open = [other for other in self.open if other is not one]
            self.expected.append((seen["kind"], None if by_call else one["id"]))

        @rule(value=st.sampled_from(["running", "waiting_for_confirmation", "finished", "paused"]))
        def agent_reports(self, value):
            self.append(status(value))
            self.turn(value)

        @rule(accept=st.booleans())
        def decide(self, accept):
            pending = self.open if self.status == "waiting_for_confirmation" else []
            assert store.approvals.confirmations.decide(self.id, accept=accept, reason="no") is bool(pending)
            if pending and accept:
                self.turn("running")
                self.decided, self.open = self.decided + pending, []
            elif pending:
                self.reject()

        def reject(self):
            self.turn("idle")
            self.expected += [("UserRejectObservation", one["id"]) for one in self.open]
            self.open = []

        @rule(run=st.booleans())
        def message(self, run):
            store.events.send(self.id, content=[], run=run)
            if self.status == "waiting_for_confirmation" and self.open:
                self.reject()
            elif self.status in ("finished", "stuck", "waiting_for_confirmation") and not run:
                self.turn("idle")
            self.expected.append(("MessageEvent", None))
            if run and self.status != "running":
                self.turn("running")

        @precondition(lambda self: self.expected)
        @rule()
        def full_state_from_agent(self):
            self.append(event("ConversationStateUpdateEvent", key="full_state", value={"execution_status": "idle"}))
            self.status = "idle"

        @invariant()
        def the_store_agrees(self):
            waiting = self.status == "waiting_for_confirmation"
            pending = [one["id"] for one in store.approvals.confirmations.pending(self.id)]
            assert pending == ([one["id"] for one in self.open] if waiting else [])
            assert store.conversations.get(self.id)["execution_status"] == self.status
            assert store.events.count(self.id) == len(self.expected)

        def teardown(self):
            raws, seq = [], 0
            while seq < len(self.expected):  # in the order of appending, not of time
                page, seq = store.streams.events.read(self.id, seq, wait=0, limit=100)
                raws += page
            assert [described(json.loads(raw)) for raw in raws] == self.expected

    return ConfirmationMachine


def described(written: dict):
    kind = written["kind"]
    if kind == "ConversationStateUpdateEvent":
        return (kind, written["value"])
    return (kind, written["id"] if kind == "ActionEvent" else written.get("action_id"))


def test_a_conversation_agrees_with_the_model(store, examples):
    run_state_machine_as_test(
        machine(store),
        settings=settings(
            max_examples=examples(8), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("policy", [{}, {"kind": "x"}, {"kind": "ConfirmRisky", "threshold": "UNKNOWN"}, {"kind": 1}])
def test_an_invalid_policy_is_refused(policy):
    with pytest.raises(ValueError, match="not a confirmation policy"):
        held_risks(policy)


class Twice:
    """Scripts whose every call is sent twice, as redis-py does when the first reply is lost."""

    def __init__(self, scripts):
        self._scripts = scripts

    def __getattr__(self, name):
        script = getattr(self._scripts, name)

        def call(*args, **named):
            script(*args, **named)
            return script(*args, **named)

        return call


def test_every_write_may_be_sent_twice(store, conversation):
    scripts = store.approvals.confirmations._scripts
    for part in (store.events, store.conversations, store.approvals.confirmations):
        part._scripts = Twice(scripts)
    try:
        # the second reply of each write is that of the first
        assert store.conversations.create(conversation, initial_message=[{"type": "text", "text": "go"}]) is True
        store.approvals.confirmations.set_policy(conversation, {"kind": "AlwaysConfirm"})
        store.events.append(conversation, as_events([action(), action()]))
        assert store.approvals.confirmations.decide(conversation, accept=False, reason="no") is True
        assert store.approvals.confirmations.decide(conversation, accept=False, reason="no") is False
        store.events.append(conversation, as_events([action()]))
        store.events.send(conversation, content=[], run=True)
        kinds = [json.loads(raw)["kind"] for raw in store.events.search(conversation)[0]]
        store.conversations.delete(conversation)
    finally:
        for part in (store.events, store.conversations, store.approvals.confirmations):
            part._scripts = scripts

    # and each event is there once: message, running, policy, two actions, waiting, idle and two rejections;
    # then an action, waiting, idle and its rejection, message, running
    assert sorted(kinds) == sorted(
        ["MessageEvent"] * 2
        + ["ActionEvent"] * 3
        + ["UserRejectObservation"] * 3
        + ["ConversationStateUpdateEvent"] * 7
    )
