"""What a supervisor removes, keeps and resumes on its host."""

from dataclasses import replace

from runtimes import RuntimeFailure, State
from tests.conftest import store_of
from tests.supervisor.conftest import LIMITS


def test_processes_of_an_unknown_sandbox_are_ended_and_its_files_stay(runtime, upkeep):
    runtime.known_ids = ["first"]

    upkeep.tidy()
    assert runtime.count("stop") == 1
    assert runtime.known_ids == ["first"]

    runtime.state = State.GONE
    upkeep.tidy()
    assert runtime.count("stop") == 1


def test_an_unknown_sandbox_that_cannot_be_ended_does_not_block_others(runtime, upkeep):
    runtime.known_ids = ["first", "second", "third"]
    runtime.failures["stop first"] = NotImplementedError()
    runtime.failures["stop second"] = RuntimeFailure("a process would not end")

    upkeep.tidy()

    assert [one for verb, one in runtime.called if verb == "stop"] == ["first", "second", "third"]


def test_a_sandbox_that_was_deleted_while_its_host_was_lost_is_removed_once_the_host_is_back(
    sandboxes, runtime, upkeep, running
):
    sandboxes._redis.zincrby("{sandboxes}:hosts", -120_000_000, "h")
    assert sandboxes.get(running.id).status == "MISSING"
    sandboxes.ask(running.id, "delete")
    assert sandboxes.get_many([running.id]) == [None]
    assert runtime.count("remove") == 0

    runtime.failures["remove"] = RuntimeFailure("its folder cannot be removed")
    upkeep.tidy()
    runtime.failures.clear()
    upkeep.tidy()
    upkeep.tidy()

    assert runtime.count("remove") == 2
    assert runtime.known_ids == []


def test_a_failed_sandbox_is_deleted_after_the_days_that_it_is_kept(redis_url, sandboxes, running):
    kept = store_of(redis_url, replace(LIMITS, keep_failed_days=1))
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


def test_a_failed_sandbox_that_no_host_ever_took_is_removed_at_once(redis_url, sandboxes):
    kept = store_of(redis_url, replace(LIMITS, keep_failed_days=1))
    waiting = sandboxes.start("spec")
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {waiting.id: 0})
    failed = sandboxes.get(waiting.id)
    assert failed.status == "ERROR"
    sandboxes._redis.hset(f"{{sandboxes}}:box:{waiting.id}", "changed_at", 0)
    sandboxes._redis.zadd("{sandboxes}:created:ERROR", {waiting.id: 0})

    kept.sandboxes.expire_failed()

    assert sandboxes.get_many([waiting.id]) == [None]


def test_a_failed_sandbox_that_no_host_took_waits_for_a_host_again_after_a_resume(sandboxes):
    waiting = sandboxes.start("spec")
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {waiting.id: 0})
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
