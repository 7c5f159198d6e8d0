"""Start tasks under claims, renewals, advances and ends that are late, repeated and in any order: an end is final."""

from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st

from store.sandboxes import start_tasks
from store.sandboxes.start_tasks import FINISHED, MOST_ATTEMPTS
from tests.store.conftest import forget
from tests.store.sandboxes.test_start_tasks import LEASE, fresh


class Machine(stateful.RuleBasedStateMachine):
    """The model knows of each start task its status, its last lease, whether that has ended, and its failures."""

    store = None
    ids = stateful.Bundle("ids")
    leases = stateful.Bundle("leases")  #: (id, lease) of every claim, also of those that are over

    def __init__(self):
        super().__init__()
        self.redis = self.store.start_tasks._redis
        forget(self.redis, "{starts}*")
        self.model: dict[str, dict] = {}

    def is_driven(self, identity, lease):
        known = self.model.get(identity)
        return bool(known) and known["status"] not in FINISHED and known["lease"] == lease

    def claimable(self):
        waiting = [(one, known) for one, known in self.model.items() if known["status"] not in FINISHED]
        return {one for one, known in waiting if known["lease"] is None or known["ended"]}

    @stateful.rule(target=ids)
    def create(self):
        identity = self.store.start_tasks.create({}, echo={}).id
        self.model[identity] = {"status": "WORKING", "lease": None, "ended": False, "attempts": 0}
        return identity

    @stateful.rule(target=leases)
    def claim(self):
        allowed = self.claimable()
        claimed = self.store.start_tasks.claim()
        tried = {one for one in allowed if self.model[one]["attempts"] >= MOST_ATTEMPTS}
        for one in tried:
            if self.store.start_tasks.get_many([one])[0].status == "ERROR":
                self.model[one]["status"] = "ERROR"
        if claimed is None:
            assert allowed <= tried
            return ("nothing", "nothing")
        start, lease = claimed
        assert start.status not in FINISHED
        assert start.id in allowed - tried
        self.model[start.id] |= {"lease": lease, "ended": False, "attempts": start.attempts}
        return (start.id, lease)

    @stateful.rule(identity=ids)
    def let_the_lease_end(self, identity):
        known = self.model[identity]
        if known["status"] not in FINISHED and known["lease"] and not known["ended"]:
            self.redis.zincrby("{starts}:due", -round((LEASE + 1) * 1e6), identity)
            known["ended"] = True

    @stateful.rule(claim=leases)
    def renew(self, claim):
        expected = self.is_driven(*claim)
        assert self.store.start_tasks.renew(*claim) == expected
        if expected:
            self.model[claim[0]]["ended"] = False

    @stateful.rule(claim=leases)
    def fail_once(self, claim):
        expected = self.is_driven(*claim)
        assert self.store.start_tasks.postpone(*claim, LEASE, counter="attempts") == expected
        if expected:
            self.model[claim[0]]["ended"] = False
            self.model[claim[0]]["attempts"] += 1

    @stateful.rule(claim=leases, status=st.sampled_from(["WAITING_FOR_SANDBOX", "STARTING_CONVERSATION"]))
    def advance(self, claim, status):
        expected = self.is_driven(*claim)
        assert self.store.start_tasks.advance(*claim, status=status) == expected
        if expected:
            self.model[claim[0]] |= {"status": status, "ended": False}

    @stateful.rule(claim=leases, end=st.sampled_from(FINISHED))
    def finish(self, claim, end):
        known = self.model.get(claim[0])
        repeated = bool(known) and known["lease"] == claim[1] and known["status"] == end
        expected = self.is_driven(*claim) or repeated
        assert self.store.start_tasks.finish(*claim, end, "why") == expected
        if expected:
            self.model[claim[0]]["status"] = end

    @stateful.rule(identity=st.one_of(ids, st.just("nothing")))
    def put_back_finished_or_missing_tasks(self, identity):
        if identity not in self.model or self.model[identity]["status"] in FINISHED:
            self.redis.zadd("{starts}:due", {identity: 0})

    @stateful.rule()
    def claim_a_failed_one(self):
        failed = self.store.start_tasks.claim_failed()
        if failed is not None:
            assert self.model[failed.id]["status"] == "ERROR"
            self.store.start_tasks.cleared(failed.id)

    @stateful.rule(identity=stateful.consumes(ids))
    def forget(self, identity):
        self.store.start_tasks.forget(identity)
        self.model.pop(identity)

    @stateful.invariant()
    def stored_start_tasks_agree_with_the_model(self):
        found = self.store.start_tasks.get_many(list(self.model))
        assert [one and one.status for one in found] == [known["status"] for known in self.model.values()]
        failed = {identity.decode() for identity in self.redis.zrange("{starts}:failed", 0, -1)}
        assert failed <= {one for one, known in self.model.items() if known["status"] == "ERROR"}
        assert self.store.start_tasks.count() == len(self.model)
        unfinished = {one for one, known in self.model.items() if known["status"] not in FINISHED}
        assert unfinished <= {identity.decode() for identity in self.redis.zrange("{starts}:due", 0, -1)}


def test_an_end_is_final_in_any_order_of_claims_renewals_and_advances(redis_url, monkeypatch, examples):
    monkeypatch.setattr(start_tasks, "LEASE", LEASE)
    Machine.store = fresh(redis_url)
    stateful.run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(20),
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
