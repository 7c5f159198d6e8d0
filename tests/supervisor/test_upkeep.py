"""What a supervisor does for all sandboxes of its host: leftovers end, what ran resumes, and the pools stay full."""

import logging
from dataclasses import replace

import pytest

from agents.commands import Commands
from runtimes import ProcessState, RuntimeCallFailed
from settings.specs import Specs
from store.sandboxes.start_tasks import Pool
from supervisor.start_tasks import StartDriver
from supervisor.upkeep import MOST_REMOVALS, Upkeep, WarmPools, pool_of
from tests.agents import agent_client
from tests.conftest import store_of, unchecked
from tests.store.conftest import present_for, silent_for
from tests.supervisor.conftest import LIMITS, SPEC, handle
from tests.supervisor.test_endings import passes


def test_processes_of_an_unknown_sandbox_are_ended_and_its_files_stay(runtime, upkeep):
    runtime.known_ids = ["first"]

    upkeep.tidy()
    assert runtime.count("stop") == 1
    assert runtime.known_ids == ["first"]

    runtime.state = ProcessState.GONE
    upkeep.tidy()
    assert runtime.count("stop") == 1


def test_an_unknown_sandbox_that_cannot_be_ended_does_not_block_others(runtime, upkeep):
    runtime.known_ids = ["first", "second", "third"]
    runtime.failures["stop first"] = NotImplementedError()
    runtime.failures["stop second"] = RuntimeCallFailed("a process would not end")

    upkeep.tidy()

    assert [one for verb, one in runtime.called if verb == "stop"] == ["first", "second", "third"]


def test_a_runtime_that_cannot_be_asked_and_a_sandbox_that_cannot_be_seen_do_not_block_others(
    one_store, runtime, monkeypatch
):
    broken = type(runtime)()
    monkeypatch.setattr(broken, "known", lambda: 1 / 0)
    runtime.known_ids = ["first", "second"]
    runtime.failures["observe first"] = RuntimeCallFailed("its state cannot be read")

    Upkeep(one_store, {"broken": broken, "scripted": runtime}, "h").tidy()

    assert [one for verb, one in runtime.called if verb == "stop"] == ["second"]


def test_a_sandbox_that_was_deleted_while_its_host_was_lost_is_removed_once_the_host_is_back(
    sandboxes, runtime, upkeep, running
):
    silent_for(sandboxes, 120)
    assert sandboxes.get(running.id).status == "MISSING"
    sandboxes.ask(running.id, "delete")
    assert sandboxes.get_many([running.id]) == [None]
    assert runtime.count("remove") == 0

    runtime.failures["remove"] = RuntimeCallFailed("its folder cannot be removed")
    upkeep.tidy()
    runtime.failures.clear()
    upkeep.tidy()
    upkeep.tidy()

    assert runtime.count("remove") == 2
    assert runtime.known_ids == []


def test_a_deletion_from_a_runtime_that_this_host_lacks_holds_up_no_other(one_store, runtime, upkeep, monkeypatch):
    monkeypatch.setattr(one_store.sandboxes, "removals", lambda *_: [("lacking", "one"), ("scripted", "two")])
    runtime.known_ids = ["unknown"]

    upkeep.tidy()

    assert ("remove", "two") in runtime.called
    assert ("stop", "unknown") in runtime.called


def test_a_removal_that_fails_for_hours_is_given_up_and_named(one_store, sandboxes, runtime, clock, caplog):
    redis, removals = sandboxes._redis, "{sandboxes}:removals:h"
    redis.sadd(removals, "scripted fails", "scripted works", "lacking some", b"\xff\xfe")
    runtime.known_ids = ["works"]
    runtime.failures["remove fails"] = RuntimeCallFailed("its folder cannot be removed")
    upkeep = Upkeep(one_store, {"scripted": runtime}, "h", clock=clock)

    upkeep.tidy()
    assert redis.smembers(removals) == {b"scripted fails", b"lacking some"}
    for _ in range(6 * 180):  # six hours
        clock.now += 20
        upkeep.tidy()

    assert [one for verb, one in runtime.called if verb == "remove"].count("fails") == MOST_REMOVALS
    assert not redis.exists(removals)
    assert "sandbox fails: its removal failed 12 times and is given up" in caplog.text
    assert upkeep._tries == {}


def test_processes_that_cannot_be_ended_are_tried_again_ever_later(one_store, runtime, clock):
    runtime.known_ids = ["unknown"]
    runtime.failures["stop unknown"] = RuntimeCallFailed("a process would not end")
    upkeep = Upkeep(one_store, {"scripted": runtime}, "h", clock=clock)
    for _ in range(24 * 180):  # a day
        clock.now += 20
        upkeep.tidy()

    assert 24 < runtime.count("stop") < 40


def test_a_failed_sandbox_is_deleted_after_the_days_that_it_is_kept(redis_url, sandboxes, running):
    kept = store_of(redis_url, unchecked(LIMITS, keep_failed_days=1))
    sandboxes.report(running.id, "h", "supervisor", "ERROR", handle=None)
    kept.sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "running"

    box, day = f"{{sandboxes}}:box:{running.id}", 86_400_000_000
    sandboxes._redis.hset(box, "changed_at", running.seen_at - day)
    kept.sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "running"  # it was created less than a day ago

    for index in (":created", ":created:ERROR", ":created:*:spec", ":created:ERROR:spec"):
        sandboxes._redis.zincrby(f"{{sandboxes}}{index}", -day, running.id)
    sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "running"  # 0 days keep it

    kept.sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "deleted"


def test_sandboxes_that_failed_just_now_hide_none_that_failed_long_ago(redis_url, sandboxes, running):
    kept = store_of(redis_url, unchecked(LIMITS, keep_failed_days=1))
    sandboxes.report(running.id, "h", "supervisor", "ERROR", handle=None)
    sandboxes._redis.hset(f"{{sandboxes}}:box:{running.id}", "changed_at", 0)
    older = {f"older-{number}": 1 for number in range(100)}
    sandboxes._redis.zadd("{sandboxes}:created:ERROR", {**older, running.id: 2})
    for one in older:
        sandboxes._redis.hset(f"{{sandboxes}}:box:{one}", "changed_at", running.seen_at)

    kept.sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "running"
    kept.sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "deleted"

    sandboxes._redis.hset(f"{{sandboxes}}:box:{running.id}", "wanted", "running")
    for _ in range(2):  # from the oldest again
        kept.sandboxes.expire_failed()
    assert sandboxes.get(running.id).wanted == "deleted"


def test_a_failed_sandbox_that_no_host_ever_took_is_removed_at_once(redis_url, sandboxes):
    kept = store_of(redis_url, unchecked(LIMITS, keep_failed_days=1))
    waiting = sandboxes.start("spec")
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {waiting.id: 0})
    present_for(sandboxes._redis, "{sandboxes}", LIMITS.sandbox_start_seconds)
    failed = sandboxes.get(waiting.id)
    assert failed.status == "ERROR"
    sandboxes._redis.hset(f"{{sandboxes}}:box:{waiting.id}", "changed_at", 0)
    sandboxes._redis.zadd("{sandboxes}:created:ERROR", {waiting.id: 0})

    kept.sandboxes.expire_failed()

    assert sandboxes.get_many([waiting.id]) == [None]


def test_a_failed_sandbox_that_no_host_took_waits_for_a_host_again_after_a_resume(sandboxes):
    waiting = sandboxes.start("spec")
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {waiting.id: 0})
    present_for(sandboxes._redis, "{sandboxes}", LIMITS.sandbox_start_seconds)
    assert sandboxes.get(waiting.id).status == "ERROR"

    sandboxes.ask(waiting.id, "resume")

    assert sandboxes.claim("h") == waiting.id


def test_only_sandboxes_that_ran_when_their_server_ended_are_resumed(sandboxes, endings, upkeep, running):
    endings.end_all()
    upkeep.resume_all()
    assert sandboxes.get(running.id).status == "STARTING"

    sandboxes.report(running.id, "h", "supervisor", "RUNNING")
    sandboxes.ask(running.id, "pause")
    sandboxes.report(running.id, "h", "supervisor", "PAUSED")
    endings.end_all()
    endings.stop(sandboxes.get(running.id), "It was paused for 60 s")
    upkeep.resume_all()
    assert sandboxes.get(running.id).status == "PAUSED"


WARM = replace(SPEC, warm=1, idle_pause_seconds=1, max_seconds=1)


@pytest.fixture
def spec():
    return WARM


@pytest.fixture
def one_store(redis_url, sandboxes):
    return store_of(redis_url, unchecked(LIMITS, max_sandboxes=3))


@pytest.fixture
def pools(one_store, spec):
    return WarmPools(one_store, Specs([spec]))


@pytest.fixture
def warm(one_store, pools, runtime):
    """A warm sandbox that the runtime has started."""
    pools.fill()
    claimed = one_store.sandboxes.claim("h")
    runtime.known_ids.append(claimed)
    assert one_store.sandboxes.begin(claimed, "h", "supervisor", "scripted")
    details = {"handle": handle(claimed), "urls": [], "agent_url": "http://127.0.0.1:1"}
    assert one_store.sandboxes.report(claimed, "h", "supervisor", "RUNNING", **details)
    return one_store.sandboxes.get(claimed)


def is_left(store, sandbox) -> bool:
    return store.sandboxes.get_many([sandbox.id]) != [None]


def test_a_warm_sandbox_that_crashes_is_deleted_with_its_files_and_its_pool_waits(
    one_store, runtime, reconciler, pools, warm
):
    runtime.state = ProcessState.GONE

    reconciler.reconcile(warm)
    reconciler.reconcile(one_store.sandboxes.get(warm.id))

    assert not is_left(one_store, warm)
    assert runtime.known_ids == []
    assert one_store.sandboxes.warm.fill(pool_of(WARM)) == "waits"


def test_a_sandbox_that_is_claimed_while_it_crashes_is_started_again(one_store, runtime, reconciler, warm):
    assert one_store.sandboxes.warm.claim(pool_of(WARM), "start") == warm.id
    runtime.state = ProcessState.GONE

    reconciler.reconcile(warm)  # as it was read before the claim

    again = one_store.sandboxes.get(warm.id)
    assert (again.status, again.wanted) == ("STARTING", "running")
    assert "restart 1 of 3" in again.detail


def test_a_warm_sandbox_that_cannot_be_started_leaves_nothing(one_store, runtime, reconciler, pools):
    pools.fill()
    claimed = one_store.sandboxes.claim("h")
    runtime.failures["start"] = RuntimeCallFailed("there is no such program")

    reconciler.reconcile(one_store.sandboxes.get(claimed))
    assert one_store.sandboxes.get(claimed).wanted == "deleted"
    runtime.failures.clear()
    reconciler.reconcile(one_store.sandboxes.get(claimed))

    assert one_store.sandboxes.get_many([claimed]) == [None]
    assert one_store.sandboxes.warm.fill(pool_of(WARM)) == "waits"


def test_a_warm_sandbox_is_never_too_old_and_never_idle(one_store, runtime, reconciler, warm):
    passes(one_store.sandboxes, warm, 1000)

    reconciler.reconcile(one_store.sandboxes.get(warm.id))

    assert one_store.sandboxes.get(warm.id).wanted == "running"
    assert runtime.count("pause") == runtime.count("stop") == 0


def test_the_time_of_a_warm_sandbox_begins_with_its_claim(one_store, reconciler, warm):
    passes(one_store.sandboxes, warm, 1000)
    one_store.sandboxes.warm.claim(pool_of(WARM), "start")

    reconciler.reconcile(one_store.sandboxes.get(warm.id))

    assert one_store.sandboxes.get(warm.id).status == "RUNNING"


def test_the_end_of_a_server_removes_its_warm_sandboxes_and_keeps_those_that_are_bound(
    one_store, runtime, endings, pools, warm
):
    one_store.sandboxes.warm.claim(pool_of(WARM), "start")
    pools.fill()
    other = one_store.sandboxes.claim("h")
    assert one_store.sandboxes.report(other, "h", "supervisor", "RUNNING", handle=handle(other), runtime="scripted")

    endings.end_all()

    assert one_store.sandboxes.get_many([other]) == [None]
    assert one_store.sandboxes.get(warm.id).status == "PAUSED"
    assert [called for called in runtime.called if called[0] == "remove"] == [("remove", other)]


def test_a_store_that_lost_its_data_gets_its_pools_again(one_store, pools, warm):
    for key in one_store.sandboxes._redis.scan_iter("{sandboxes}*"):
        one_store.sandboxes._redis.delete(key)

    for _ in range(2):
        pools.fill()

    [found] = one_store.sandboxes.search(status=None, spec_id="spec", limit=10, start=None)[0]
    assert found.warm == WARM.version


# the driver


@pytest.fixture
def driver(one_store, spec):
    specs = Specs([spec])
    return StartDriver(one_store, Commands(one_store, agent_client(5), specs), specs, shared=False, start_seconds=60)


def driven(store, driver, owner=""):
    """A start task of a key after its first drive."""
    store.start_tasks._redis.delete("{starts}:due", "{starts}:failed", "{starts}:present")
    task = store.start_tasks.create({}, echo={}, owner=owner)
    driver.drive(*store.start_tasks.claim())
    return store.start_tasks.get_many([task.id])[0]


def answers_at(store, sandbox, url):
    store.sandboxes.report(sandbox.id, "h", "supervisor", "", agent_url=url)


def test_a_start_in_a_warm_sandbox_is_ready_without_a_supervisors_help(one_store, driver, warm, agent):
    answers_at(one_store, warm, agent.url)

    task = driven(one_store, driver)

    assert (task.status, task.sandbox_id, task.own_sandbox) == ("READY", warm.id, True)
    assert len(agent.posted("/conversations")) == 1


def test_a_start_takes_the_workspace_sandbox_of_its_key_before_a_warm_one(one_store, driver, warm, agent, spec):
    answers_at(one_store, warm, agent.url)
    mine = one_store.sandboxes.workspaces.named("a key")
    one_store.sandboxes.start(spec.id, mine, owner="a key")
    assert one_store.sandboxes.claim("h") == mine
    assert one_store.sandboxes.begin(mine, "h", "supervisor", "scripted")
    details = {"handle": handle(mine), "urls": [], "agent_url": agent.url}
    assert one_store.sandboxes.report(mine, "h", "supervisor", "RUNNING", **details)

    assert driven(one_store, driver, "another key").sandbox_id == warm.id
    task = driven(one_store, driver, "a key")

    assert (task.status, task.sandbox_id) == ("READY", mine)
    assert one_store.sandboxes.workspaces.known("a key") != mine


def test_a_start_goes_on_without_a_workspace_that_does_not_answer_and_its_key_keeps_it(
    one_store, driver, warm, agent, spec
):
    answers_at(one_store, warm, agent.url)
    mine = one_store.sandboxes.workspaces.named("a key")
    one_store.sandboxes.start(spec.id, mine, owner="a key")
    assert one_store.sandboxes.claim("h") == mine
    assert one_store.sandboxes.begin(mine, "h", "supervisor", "scripted")
    details = {"handle": handle(mine), "urls": [], "agent_url": "http://127.0.0.1:9"}
    assert one_store.sandboxes.report(mine, "h", "supervisor", "RUNNING", **details)

    task = driven(one_store, driver, "a key")

    assert (task.status, task.sandbox_id) == ("READY", warm.id)
    assert one_store.sandboxes.workspaces.known("a key") == mine
    assert one_store.sandboxes.get(mine).wanted == "running"


def test_a_claimed_sandbox_that_does_not_answer_is_deleted_and_the_next_one_is_taken(
    one_store, driver, runtime, warm, agent, spec
):
    one_store.sandboxes.warm.declare([larger := Pool(spec.id, spec.version, 2)])
    assert one_store.sandboxes.warm.fill(larger) == "added"
    second = one_store.sandboxes.claim("h")
    assert one_store.sandboxes.begin(second, "h", "supervisor", "scripted")
    details = {"handle": handle(second), "urls": [], "agent_url": agent.url}
    assert one_store.sandboxes.report(second, "h", "supervisor", "RUNNING", **details)

    task = driven(one_store, driver)  # no agent server answers at the address of the first

    assert (task.status, task.sandbox_id) == ("READY", second)
    assert one_store.sandboxes.get(warm.id).wanted == "deleted"


def test_a_failed_start_deletes_the_sandbox_that_it_claimed_last_of_all(one_store, driver, warm, agent):
    answers_at(one_store, warm, agent.url)
    agent.status_of = lambda path: 200 if path == "/alive" else 500

    task = driven(one_store, driver)

    assert task.status == "ERROR"
    assert one_store.sandboxes.get(warm.id).wanted == "deleted"


def test_a_start_that_failed_right_after_its_claim_leaves_no_sandbox(one_store, driver, warm):
    one_store.start_tasks._redis.delete("{starts}:due", "{starts}:failed", "{starts}:present")
    task = one_store.start_tasks.create({}, echo={})
    _, lease = one_store.start_tasks.claim()
    assert one_store.sandboxes.warm.claim(pool_of(WARM), task.id) == warm.id
    assert one_store.start_tasks.finish(task.id, lease, "ERROR", "its driver was killed before it wrote the claim down")

    driver.clear_failed()

    assert one_store.sandboxes.get(warm.id).wanted == "deleted"


HERE = replace(SPEC, warm=1, secret_env={"LLM_API_KEY": "of this host"})
THERE = replace(HERE, secret_env={"LLM_API_KEY": "of another host"})


def test_the_earlier_supervisor_says_once_that_it_fills_nothing_and_shows_no_value(redis_url, sandboxes, caplog):
    store = store_of(redis_url, unchecked(LIMITS, max_sandboxes=3))
    here, there = WarmPools(store, Specs([HERE])), WarmPools(store, Specs([THERE]))
    with caplog.at_level(logging.WARNING, "supervisor"):
        here.fill()
        there.fill()
        assert caplog.messages == []
        here.fill()
        here.fill()

    [said] = caplog.messages
    assert SPEC.id in said
    assert "{env:…}" in said
    assert "of this host" not in said


@pytest.mark.parametrize("status", ["MISSING", "ERROR"])
def test_what_was_deleted_of_another_folder_is_removed_by_the_supervisor_of_that_folder(
    one_store, sandboxes, runtime, reconciler, running, host, status
):
    reconciler._host = replace(host, folder="mine")
    assert sandboxes.begin(running.id, "h", "supervisor", "scripted", "another")
    sandboxes.report(running.id, "h", "supervisor", status, handle=None)
    sandboxes.ask(running.id, "delete")
    if sandboxes.get_many([running.id]) != [None]:
        reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get_many([running.id]) == [None]

    Upkeep(one_store, {"scripted": runtime}, "h", folder="mine").tidy()
    assert runtime.count("remove") == 0

    for _ in range(2):
        Upkeep(one_store, {"scripted": runtime}, "h", folder="another").tidy()
    assert runtime.count("remove") == 1
