"""Sandboxes in the store: what may be asked in which status, what a supervisor may see, caps, claims and lost hosts."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st

import wire
from schemas.sandboxes import STATUSES
from store import Limits
from store.errors import NoSupervisor, SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes import SandboxId
from tests.conftest import store_of

UNKNOWN = SandboxId("unknown")


@pytest.fixture
def sandboxes(redis_url):
    """No sandbox, one living host "h"; three may run."""
    return fresh(redis_url)


def fresh(url: str, *, pause_idlest: bool = False, most: int = 3, host_seconds: float = 10, start_seconds: float = 120):
    limits = Limits(most=most, pause_idlest=pause_idlest, host_seconds=host_seconds, start_seconds=start_seconds)
    store = store_of(url, limits)
    redis = store.sandboxes._redis
    for key in redis.scan_iter("{sandboxes}*"):
        redis.delete(key)
    assert store.sandboxes.beat("h", "supervisor")
    return store.sandboxes


def running(sandboxes, host: str = "h"):
    """A sandbox that its host has brought to RUNNING."""
    started = sandboxes.start("spec")
    assert sandboxes.claim(host) == started.id
    assert sandboxes.report(started.id, host, "RUNNING", handle={"pid": 1}, urls=[], agent_url="http://agent")
    return sandboxes.get(started.id)


def in_status(sandboxes, status: str):
    sandbox = sandboxes.start("spec") if status == "STARTING" else running(sandboxes)
    if status == "STARTING":
        sandboxes.claim("h")
    elif status == "PAUSED":
        sandboxes.ask(sandbox.id, "pause")
        assert sandboxes.report(sandbox.id, "h", "PAUSED")
    elif status != "RUNNING":
        assert sandboxes.report(sandbox.id, "h", status)
    return sandboxes.get(sandbox.id)


def test_a_new_one_waits_for_a_host_and_has_a_key_that_finds_it(sandboxes):
    started = sandboxes.start("spec")

    assert (started.status, started.wanted, started.host, started.handle) == ("STARTING", "running", "", None)
    assert started.created_at == started.starting_at == started.active_at
    assert sandboxes.of_key(started.session_api_key) == started.id
    assert sandboxes.of_key("x" * 43) is None
    assert sandboxes.of_host("h") == []
    assert sandboxes.claim("h") == started.id
    assert sandboxes.claim("h") is None
    assert [one.id for one in sandboxes.of_host("h")] == [started.id]


def test_a_start_is_once_per_id(sandboxes):
    first = sandboxes.start("spec", SandboxId("mine"))
    second = sandboxes.start("other", SandboxId("mine"))

    assert first == second
    assert len(sandboxes.search(status=None, spec_id=None, limit=10, start=None)[0]) == 1


#: what a client may ask in which status, and what it then is; None: refused
MOVES = {
    "pause": {"STARTING": None, "RUNNING": "RUNNING", "PAUSED": "PAUSED", "ERROR": None, "MISSING": None},
    "resume": {"STARTING": "STARTING", "RUNNING": "RUNNING", "PAUSED": "STARTING", "ERROR": None, "MISSING": None},
    "delete": dict.fromkeys(STATUSES, "deleted"),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("verb", MOVES)
def test_what_may_be_asked_in_which_status(sandboxes, verb, status):
    sandbox = in_status(sandboxes, status)
    following = MOVES[verb][status]

    if following is None:
        with pytest.raises(SandboxRefuses, match=status):
            sandboxes.ask(sandbox.id, verb)
        assert sandboxes.get(sandbox.id) == sandbox
        return
    for _ in range(2):  # asked again it is wanted still
        sandboxes.ask(sandbox.id, verb)
        if verb == "delete" and status == "MISSING":  # nobody is there who could end it
            assert sandboxes.get_many([sandbox.id]) == [None]
            return
    now = sandboxes.get(sandbox.id)
    assert now.wanted == {"pause": "paused", "resume": "running", "delete": "deleted"}[verb]
    if verb != "delete":
        assert now.status == following


#: what a supervisor may see behind a status
SEEN = {
    "STARTING": {"RUNNING", "ERROR", "MISSING"},
    "RUNNING": {"PAUSED", "STARTING", "ERROR", "MISSING"},
    "PAUSED": {"STARTING", "ERROR", "MISSING"},
    "MISSING": {"RUNNING", "PAUSED", "STARTING", "ERROR"},
    "ERROR": set(),
}


def seen_as(sandbox, seen: str) -> str:
    """What is made of a report: one that is paused, and wanted to run, is on its way to run."""
    overtaken = seen == "PAUSED" and sandbox.wanted == "running" and sandbox.status != "STARTING"
    return "STARTING" if overtaken else seen


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("seen", STATUSES)
def test_what_may_be_seen_behind_which_status(sandboxes, status, seen):
    sandbox = in_status(sandboxes, status)

    noted = sandboxes.report(sandbox.id, "h", seen)

    told = seen_as(sandbox, seen)
    assert noted == (told == status or told in SEEN[status])
    assert sandboxes.get(sandbox.id).status == (told if told in SEEN[status] else status)


def test_a_resume_that_overtakes_a_pause_wins(sandboxes):
    sandbox = running(sandboxes)
    sandboxes.ask(sandbox.id, "pause")
    sandboxes.ask(sandbox.id, "resume")
    sandboxes.report(sandbox.id, "h", "PAUSED")  # the pause was under way

    assert sandboxes.get(sandbox.id).status == "STARTING"
    assert sandboxes.report(sandbox.id, "h", "RUNNING")


def test_only_its_host_may_report(sandboxes):
    sandbox = running(sandboxes)
    assert not sandboxes.report(sandbox.id, "other", "ERROR")
    assert not sandboxes.report(UNKNOWN, "h", "ERROR")
    assert sandboxes.get(sandbox.id).status == "RUNNING"


def test_what_is_gone_leaves_nothing(sandboxes):
    sandbox = running(sandboxes)
    sandboxes.ask(sandbox.id, "delete")
    assert sandboxes.report(sandbox.id, "h", "GONE")

    assert sandboxes.get_many([sandbox.id]) == [None]
    assert sandboxes.of_key(sandbox.session_api_key) is None
    assert sandboxes.of_host("h") == []
    assert sandboxes.search(status=None, spec_id=None, limit=10, start=None) == ([], None)
    left = {key for key in sandboxes._redis.scan_iter("{sandboxes}*")}
    assert left == {b"{sandboxes}:hosts", b"{sandboxes}:supervisors"}


def test_an_unknown_one_cannot_be_asked(sandboxes):
    for verb in MOVES:
        with pytest.raises(SandboxNotFound):
            sandboxes.ask(UNKNOWN, verb)
    with pytest.raises(SandboxNotFound):
        sandboxes.get(UNKNOWN)
    with pytest.raises(SandboxNotFound):
        sandboxes.log(UNKNOWN, 1)


def test_use_is_noted_and_makes_no_sandbox(sandboxes):
    sandbox = running(sandboxes)
    sandboxes.touch(sandbox.id)
    sandboxes.touch(UNKNOWN)

    assert sandboxes.get(sandbox.id).active_at > sandbox.active_at
    assert sandboxes.get_many([UNKNOWN]) == [None]


def test_a_cap_holds_also_when_many_ask_at_once(sandboxes):
    def start(_):
        try:
            return sandboxes.start("spec").id
        except TooManySandboxes:
            return None

    with ThreadPoolExecutor(8) as pool:
        started = [one for one in pool.map(start, range(16)) if one]

    assert len(started) == 3
    with pytest.raises(TooManySandboxes, match="3 sandboxes run and 3 may"):
        sandboxes.start("spec")


def test_what_is_paused_makes_room_and_needs_room_to_resume(sandboxes):
    first, _, _ = [running(sandboxes) for _ in range(3)]
    sandboxes.ask(first.id, "pause")
    sandboxes.report(first.id, "h", "PAUSED")
    fourth = running(sandboxes)
    with pytest.raises(TooManySandboxes):
        sandboxes.ask(first.id, "resume")
    assert sandboxes.get(first.id).status == "PAUSED"
    sandboxes.ask(fourth.id, "delete")
    sandboxes.ask(first.id, "resume")


def test_the_longest_idle_one_is_paused_where_it_is_so_set(redis_url):
    sandboxes = fresh(redis_url, pause_idlest=True, most=2)
    first, second = running(sandboxes), running(sandboxes)
    sandboxes.touch(first.id)

    third = sandboxes.start("spec")

    assert sandboxes.get(second.id).wanted == "paused"
    assert sandboxes.get(first.id).wanted == "running"
    assert sandboxes.claim("h") is None  # not before the other one has really stopped
    sandboxes.report(second.id, "h", "PAUSED")
    assert sandboxes.claim("h") == third.id


def test_without_a_living_host_nothing_starts(redis_url):
    sandboxes = fresh(redis_url, host_seconds=2)
    sandboxes._redis.zadd("{sandboxes}:hosts", {"h": wire.now() - 3_000_000})
    with pytest.raises(NoSupervisor):
        sandboxes.start("spec")


def test_the_sandboxes_of_a_lost_host_are_missing_whoever_looks(redis_url):
    sandboxes = fresh(redis_url)
    one, two, three = [running(sandboxes) for _ in range(3)]
    sandboxes.report(two.id, "h", "ERROR")
    sandboxes.ask(three.id, "delete")
    sandboxes._redis.zadd("{sandboxes}:hosts", {"h": wire.now() - 11_000_000})

    found = {one.id: one.status for one in sandboxes.search(status=None, spec_id=None, limit=9, start=None)[0]}

    assert found == {one.id: "MISSING", two.id: "ERROR"}
    assert "does not answer" in sandboxes.get(one.id).detail
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.report(one.id, "h", "RUNNING", detail="")


def test_one_that_no_host_takes_has_failed(redis_url):
    sandboxes = fresh(redis_url, start_seconds=1)
    started = sandboxes.start("spec")
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {started.id: wire.now() - 2_000_000})

    failed = sandboxes.get(started.id)

    assert failed.status == "ERROR"
    assert "No supervisor has taken it" in failed.detail
    assert sandboxes.claim("h") is None


def test_a_host_has_one_supervisor_until_that_is_lost(sandboxes):
    assert sandboxes.beat("h", "supervisor")
    assert not sandboxes.beat("h", "another")
    assert sandboxes.beat("other", "another")
    sandboxes._redis.zadd("{sandboxes}:hosts", {"h": wire.now() - 11_000_000})
    assert sandboxes.beat("h", "another")
    assert not sandboxes.beat("h", "supervisor")


def test_a_claim_is_one_hosts(sandboxes):
    ids = {sandboxes.start("spec").id for _ in range(3)}
    with ThreadPoolExecutor(6) as pool:
        claimed = [one for one in pool.map(lambda n: sandboxes.claim(f"h{n % 2}"), range(6)) if one]
    assert len(claimed) == 3
    assert set(claimed) == ids


def test_a_log_is_asked_of_the_host_and_kept_of_what_failed(sandboxes):
    sandbox = running(sandboxes)
    with pytest.raises(NoSupervisor):
        sandboxes.log(sandbox.id, 5)
    sandboxes.report(sandbox.id, "h", "ERROR", log="one\ntwo\nthree", detail="why")
    assert sandboxes.log(sandbox.id, 2) == "two\nthree"


class Machine(stateful.RuleBasedStateMachine):
    """Any order of what clients ask, supervisors see and hosts do: listings and indexes agree with the sandboxes."""

    store = None
    ids = stateful.Bundle("ids")

    def __init__(self):
        super().__init__()
        redis = self.store._redis
        for key in redis.scan_iter("{sandboxes}*"):
            redis.delete(key)
        self.store.beat("h", "supervisor")
        self.known = set()

    @stateful.rule(target=ids)
    def start(self):
        try:
            identity = self.store.start("spec").id
        except TooManySandboxes:
            return SandboxId("refused")
        self.known.add(identity)
        return identity

    @stateful.rule(identity=ids, verb=st.sampled_from(list(MOVES)))
    def ask(self, identity, verb):
        present = self.store.get_many([identity])[0]
        try:
            self.store.ask(identity, verb)
        except SandboxNotFound:
            assert present is None
        except (SandboxRefuses, TooManySandboxes):
            assert self.store.get(identity) == present

    @stateful.rule()
    def claim(self):
        self.store.claim("h")

    @stateful.rule(identity=ids, seen=st.sampled_from([*STATUSES, "GONE"]))
    def report(self, identity, seen):
        present = self.store.get_many([identity])[0]
        noted = self.store.report(identity, "h", seen)
        if present is None or present.host != "h":
            assert not noted
        elif seen == "GONE":
            assert self.store.get_many([identity]) == [None]
        else:
            told = seen_as(present, seen)
            assert noted == (told == present.status or told in SEEN[present.status])

    @stateful.invariant()
    def listings_agree(self):
        living = [one for one in self.store.get_many(sorted(self.known)) if one is not None]
        ids = {one.id for one in living}
        assert {one.id for one in self.store.search(status=None, spec_id=None, limit=99, start=None)[0]} == ids
        for status in STATUSES:
            found = self.store.search(status=status, spec_id=None, limit=99, start=None)[0]
            assert {one.id for one in found} == {one.id for one in living if one.status == status}
        assert {one.id for one in self.store.of_host("h")} == {one.id for one in living if one.host == "h"}
        for one in living:
            assert self.store.of_key(one.session_api_key) == one.id


def test_any_order_of_asking_seeing_and_claiming(request, redis_url):
    is_slow = request.node.callspec.params["redis_url"] == "fakeredis"  # each pipeline costs it 40 ms
    Machine.store = fresh(redis_url, host_seconds=3600)
    stateful.run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=1 if is_slow else 25,
            stateful_step_count=10 if is_slow else 25,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
