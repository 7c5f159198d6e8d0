"""Any order of approvals, rejections, grants, revocations and owners, compared with a model of a quorum of two."""

import json
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.approvals import Rule
from core.people import Grant, Person
from store.approvals.audit import DecisionActor
from store.approvals.decisions import Decision, StaleDecision
from store.errors import RightsChanged
from store.link.connection import LazyCluster
from tests.chance import often
from tests.conftest import action, as_events

PEOPLE = ("ada", "bob", "eve", "pam")
STEPS = st.tuples(st.sampled_from(("approve", "approve", "reject", "grant", "revoke", "own")), st.sampled_from(PEOPLE))


class QuorumModel:
    """What should be so: who may approve, who owns the conversation, whose approvals count, and how it ended."""

    def __init__(self):
        self.granted, self.owner, self.votes, self.end = set(), "ada", [], ""

    def decide(self, who, verb):
        """The problem of a decision; empty where it is taken, None where the person may not ask."""
        if who not in self.granted:
            return None
        if self.end:
            return "not_pending"
        if verb == "reject":
            self.end = verb
            return ""
        standing = [one for one in self.votes if one in self.granted and one != self.owner]
        if who == self.owner:
            return "own"
        if who in standing:
            return "voted"
        self.votes = [*standing, who]
        self.end = "approve" if len(self.votes) == 2 else ""
        return ""


class Real:
    """The same at a store."""

    def __init__(self, store):
        self.store, self.id, self.grants = store, str(uuid4()), {}
        store.conversations.create(self.id, confirmation_policy={"kind": "AlwaysConfirm"}, owner="ada")
        self.action = action()
        store.events.append(self.id, as_events([self.action]))

    def decide(self, who, verb):
        principal = self.store.access.people.admit(Person(who), self.id)
        if principal is None or not principal.may("approve"):
            return None
        actor = DecisionActor("person", who, "", True, principal.rights, who, principal.key_id)
        decisions = [Decision(self.action["id"], verb)]
        try:
            self.store.approvals.confirmations.decide_each(self.id, decisions, actor)
        except StaleDecision as stale:
            return stale.problems[0]["problem"]
        return ""

    def grant(self, who):
        self.grants[who] = self.store.access.people.grant(Grant("approve", who)).id

    def revoke(self, who):
        self.store.access.people.revoke(self.grants.pop(who))

    def own(self, who, before):
        self.store.conversations.give(self.id, who, before=before, actor=DecisionActor("key", "admin"))

    def ends(self):
        entries = map(json.loads, self.store.approvals.audit.of(self.id, limit=100))
        return [(one["decision"], one.get("agreed")) for one in entries if one["decision"] in ("approve", "reject")]


@settings(max_examples=often(25, 500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, min_size=4, max_size=16))
def test_any_order_of_steps_ends_as_the_model_says(store, steps):
    rule = store.approvals.rules.make(
        Rule("ask", "terminal", quorum=2, not_by_owner=True), what=f"rule {uuid4()}"
    ).rule.id
    model, real = QuorumModel(), Real(store)
    try:
        for who in PEOPLE[:3]:
            real.grant(who)
            model.granted.add(who)
        for what, who in steps:
            if what in ("approve", "reject"):
                assert real.decide(who, what) == model.decide(who, what), (what, who)
            elif what == "grant" and who not in model.granted:
                real.grant(who)
                model.granted.add(who)
            elif what == "revoke" and who in model.granted:
                real.revoke(who)
                model.granted.discard(who)
            elif what == "own" and who != model.owner:
                real.own(who, model.owner)
                model.owner = who
        agreed = model.votes if model.end == "approve" else None
        assert real.ends() == ([(model.end, agreed)] if model.end else [])
    finally:
        store.approvals.rules.revoke(rule)
        for who in [*real.grants]:
            real.revoke(who)


def test_a_right_that_was_read_before_it_was_revoked_decides_nothing(store):
    if isinstance(store.conversations._redis, LazyCluster):
        pytest.skip("in a cluster a right is read directly before the decision: store/access/people.py")
    real = Real(store)
    real.grant("ada")
    principal = store.access.people.admit(Person("ada"), real.id)
    real.revoke("ada")
    actor = DecisionActor("person", "ada", "", True, principal.rights, "ada", principal.key_id)
    with pytest.raises(RightsChanged):
        store.approvals.confirmations.decide_each(real.id, [Decision(real.action["id"], "approve")], actor)
    assert real.ends() == []
