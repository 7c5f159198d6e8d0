"""Start tasks under claims, renewals, advances and ends that are late, repeated and in any order: an end is final."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st

from agents.commands import Commands
from store.errors import ConversationNotFound, SandboxNotFound, StartIsReady
from store.sandboxes import start_tasks
from store.sandboxes.sandboxes import SandboxId
from store.sandboxes.start_tasks import FINISHED, MOST_ATTEMPTS, StartTask
from supervisor.start_tasks import StartDriver
from tests.agents import SPECS, agent_client
from tests.conftest import unchecked
from tests.store.conftest import forget
from tests.store.sandboxes.test_start_tasks import LEASE, LIMITS, fresh


class StartTaskMachine(stateful.RuleBasedStateMachine):
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
        start = self.store.start_tasks.create({}, echo={})
        known = {"status": "WORKING", "lease": None, "ended": False, "attempts": 0}
        self.model[start.id] = {**known, "conversation": start.conversation_id}
        return start.id

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

    @stateful.rule(identity=ids, by_conversation=st.booleans())
    def end(self, identity, by_conversation):
        known = self.model[identity]
        if by_conversation:
            expected = set() if known["status"] in FINISHED else {identity}
            assert self.store.start_tasks.end_of(known["conversation"]) == expected
        elif known["status"] == "READY":
            with pytest.raises(StartIsReady):
                self.store.start_tasks.end(identity)
        else:
            assert self.store.start_tasks.end(identity).status == "ERROR"
        if known["status"] != "READY":
            known["status"] = "ERROR"

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


class Lives(stateful.RuleBasedStateMachine):
    """Drivers do their steps in order, each at any time: a killed one is one whose next step never comes.

    The steps are those of `supervisor/start_tasks.py`. A start task that was ended, and that a supervisor has cleared
    away after that, has nothing from then on; nor does a sandbox that was deleted come back.
    """

    store = None
    drives = stateful.Bundle("drives")

    def __init__(self):
        super().__init__()
        forget(self.store.start_tasks._redis, "{starts}*")
        forget(self.store.start_tasks._redis, "{sandboxes}*")
        self.store.sandboxes.beat("h", "supervisor")
        commands = Commands(self.store, agent_client(1), SPECS)
        self.driver = StartDriver(self.store, commands, SPECS, shared=False, start_seconds=60)
        self.shared = self.store.sandboxes.start("spec").id
        self.starts: dict[str, StartTask] = {}
        self.next: dict[str, int] = {}  #: by lease, the number of the driver's next step
        self.ended: set[str] = set()
        self.cleared: set[str] = set()  #: of these
        self.ready: set[str] = set()
        self.deleted: set[SandboxId] = set()

    @stateful.initialize(target=drives, is_shared=st.booleans())
    def begin(self, is_shared):
        self.create(is_shared)
        return self.claim()

    @stateful.precondition(lambda self: len(self.starts) < 2)
    @stateful.rule(is_shared=st.booleans())
    def create(self, is_shared):
        start = self.store.start_tasks.create({"sandbox_id": self.shared} if is_shared else {}, echo={})
        identity = self.shared if is_shared else SandboxId(f"{start.id[:20]}own")
        self.starts[start.id] = replace(start, sandbox_id=identity, own_sandbox=not is_shared)

    @stateful.rule(target=drives)
    def claim(self):
        claimed = self.store.start_tasks.claim()
        if claimed is None:
            return stateful.multiple()
        assert claimed[0].id not in self.ended
        self.next[claimed[1]] = 0
        return (claimed[0].id, claimed[1])

    @stateful.rule(drive=drives)
    def let_the_lease_end(self, drive):
        self.store.start_tasks._redis.zadd("{starts}:due", {drive[0]: 0}, xx=True)

    @stateful.rule(drive=drives, times=st.integers(1, 6))
    def go_on(self, drive, times):
        steps = (self.name, self.start_sandbox, self.reach, self.take_place, self.create_conversation, self.finish)
        for number in range(self.next[drive[1]], min(self.next[drive[1]] + times, len(steps))):
            if steps[number](self.starts[drive[0]], drive[1]) is False:
                return
            self.next[drive[1]] += 1

    @stateful.rule(drive=drives, times=st.integers(1, 5), by_conversation=st.booleans())
    def go_on_though_it_ends_amid(self, drive, times, by_conversation):
        self.go_on(drive, times)
        self.end(drive, by_conversation)
        self.clear()
        self.go_on(drive, 6)

    def name(self, start, lease):
        own = "1" if start.own_sandbox else ""
        return self.advances(start, lease, sandbox_id=start.sandbox_id, own_sandbox=own)

    def start_sandbox(self, start, _):
        if start.own_sandbox:
            with suppress(SandboxNotFound):
                self.store.sandboxes.start("spec", SandboxId(start.sandbox_id), start_id=start.id)

    def reach(self, start, lease):
        return self.advances(start, lease, status="STARTING_CONVERSATION", agent_server_url="http://agent")

    def take_place(self, start, _):
        self.store.sandboxes.places.take(start.sandbox_id, start.conversation_id, made=True, start_id=start.id)

    def create_conversation(self, start, _):
        with suppress(ConversationNotFound):
            app = {"start_id": start.id}
            self.store.conversations.create(start.conversation_id, sandbox_id=start.sandbox_id, app=app)

    def finish(self, start, lease):
        if self.store.start_tasks.finish(start.id, lease, "READY"):
            assert start.id not in self.ended
            self.ready.add(start.id)

    def advances(self, start, lease, **fields):
        is_driven = self.store.start_tasks.advance(start.id, lease, **fields)
        assert not (is_driven and start.id in self.ended)
        return is_driven

    @stateful.rule(drive=drives)
    def delete_its_sandbox(self, drive):
        start = self.starts[drive[0]]
        if start.own_sandbox:
            with suppress(SandboxNotFound):
                self.store.sandboxes.ask(SandboxId(start.sandbox_id), "delete")
                self.deleted.add(SandboxId(start.sandbox_id))

    @stateful.rule(drive=drives, by_conversation=st.booleans())
    def end(self, drive, by_conversation):
        start = self.starts[drive[0]]
        if by_conversation:
            self.ended |= self.store.start_tasks.end_of(start.conversation_id)
        else:
            with suppress(StartIsReady):
                self.store.start_tasks.end(start.id)
                self.ended.add(start.id)
        assert not self.ended & self.ready

    @stateful.rule()
    def clear(self):
        self.driver.clear_failed()
        self.cleared |= self.ended

    @stateful.invariant()
    def nothing_comes_to_life_after_an_end(self):
        gone = [self.starts[one] for one in self.cleared]
        assert not any(self.store.conversations.get_many([start.conversation_id for start in gone]))
        own = {SandboxId(start.sandbox_id) for start in gone if start.own_sandbox}
        assert not any(self.store.sandboxes.get_many([*own, *self.deleted]))
        for start in gone:
            places = f"{{sandboxes}}:places:{start.sandbox_id}"
            assert self.store.start_tasks._redis.zscore(places, start.conversation_id) is None


def run(machine, examples, steps):
    stateful.run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(20),
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_an_end_is_final_in_any_order_of_claims_renewals_and_advances(redis_url, monkeypatch, examples):
    monkeypatch.setattr(start_tasks, "LEASE", LEASE)
    StartTaskMachine.store = fresh(redis_url)
    run(StartTaskMachine, examples, 30)


def test_nothing_of_a_start_that_was_ended_comes_to_life_whatever_step_of_whichever_driver_is_late(
    redis_url, monkeypatch, examples
):
    monkeypatch.setattr(start_tasks, "LEASE", LEASE)
    Lives.store = fresh(redis_url, limits=unchecked(LIMITS, max_sandboxes=10_000))
    run(Lives, examples, 40)
