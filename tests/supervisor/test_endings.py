"""A crash is followed by a restart, a rest by PAUSED, a fault by ERROR; the files stay in each case."""

from dataclasses import replace
from uuid import uuid4

import pytest

from runtimes import PartlyMeasured, ProcessState, RuntimeCallFailed
from store.errors import SandboxRefuses
from supervisor.sandboxes import LONGEST_BACKOFF
from tests.store.conftest import silent_for
from tests.supervisor.conftest import SPEC, hook_key
from tests.supervisor.test_sandboxes import FAILURES

LONG_AGO = -700 * 1_000_000  #: µs: longer than crashes are counted


def passes(sandboxes, sandbox, seconds):
    """Let so many seconds pass for a sandbox: its times lie further back."""
    key = f"{{sandboxes}}:box:{sandbox.id}"
    for name in ("starting_at", "changed_at", "active_at", "start_after", "created_at"):
        if (at := sandboxes._redis.hget(key, name)) is not None:
            sandboxes._redis.hset(key, name, int(at) - round(seconds * 1e6))


def crash(sandboxes, reconciler, runtime, sandbox):
    """One crash of a running sandbox, and what the reconciler makes of it."""
    runtime.state = ProcessState.GONE
    reconciler.reconcile(sandboxes.get(sandbox.id))
    runtime.state = ProcessState.RUNNING
    return sandboxes.get(sandbox.id)


def restarted(sandboxes, reconciler, sandbox):
    """The start that follows once the backoff is over; the sandbox is RUNNING."""
    passes(sandboxes, sandbox, 60)
    reconciler.reconcile(sandboxes.get(sandbox.id))
    assert sandboxes.report(sandbox.id, "h", "supervisor", "RUNNING", detail="")
    return sandboxes.get(sandbox.id)


def test_a_crashed_sandbox_starts_again_after_a_backoff_with_a_new_number_and_a_new_key(
    sandboxes, runtime, reconciler, running
):
    fallen = crash(sandboxes, reconciler, runtime, running)
    assert (fallen.status, fallen.handle, fallen.wanted) == ("STARTING", None, "running")
    assert "exit code 3" in fallen.detail
    assert "restart 1 of 3" in fallen.detail

    assert fallen.start_after > fallen.crashes[-1]
    reconciler.reconcile(replace(fallen, seen_at=fallen.start_after - 1))
    assert runtime.count("start") == 0  # the backoff is not over

    again = restarted(sandboxes, reconciler, running)
    assert runtime.count("start") == 1
    assert again.start == running.start + 1
    assert again.session_api_key != running.session_api_key
    assert sandboxes.of_hook_key(hook_key(runtime.launches[running.id])) == running.id
    assert again.files_key == running.files_key
    assert runtime.count("remove") == 0


@pytest.mark.parametrize("wanted", ["running", "paused"])
def test_a_sandbox_whose_processes_may_still_live_is_an_error_and_is_not_started_beside_them(
    sandboxes, runtime, reconciler, clock, running, wanted
):
    if wanted == "paused":
        sandboxes.ask(running.id, "pause")
    runtime.failures["stop"] = RuntimeCallFailed("nothing shows that all of its processes have ended")

    failed = crash(sandboxes, reconciler, runtime, running)
    assert failed.status == "ERROR"
    assert failed.handle is not None
    assert "exit code 3. Its remaining processes cannot be ended: nothing shows" in failed.detail
    passes(sandboxes, running, 60)
    clock.now += LONGEST_BACKOFF
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("start") == 0

    runtime.failures.clear()
    clock.now += LONGEST_BACKOFF
    reconciler.reconcile(sandboxes.get(running.id))
    assert (sandboxes.get(running.id).status, sandboxes.get(running.id).handle) == ("ERROR", None)


def test_a_crash_loop_ends_in_error_with_its_files_and_a_resume_starts_it_again(
    sandboxes, runtime, reconciler, running
):
    for number in range(SPEC.restarts):
        assert crash(sandboxes, reconciler, runtime, running).status == "STARTING", number
        restarted(sandboxes, reconciler, running)

    failed = crash(sandboxes, reconciler, runtime, running)
    assert (failed.status, failed.handle) == ("ERROR", None)
    assert "crashed 4 times in ten minutes" in failed.detail
    assert "resume" in failed.detail
    assert runtime.count("remove") == 0
    assert runtime.known_ids.count(running.id) >= 1
    assert sandboxes.of_hook_key(hook_key(runtime.launches[running.id])) is None

    sandboxes.ask(running.id, "resume")
    assert sandboxes.get(running.id).status == "STARTING"
    assert restarted(sandboxes, reconciler, running).status == "RUNNING"


def test_no_text_that_a_failed_sandbox_leaves_shows_a_secret_of_its_conversations(
    one_store, sandboxes, runtime, reconciler, running
):
    conversation = str(uuid4())
    one_store.conversations.create(conversation, sandbox_id=running.id, app={}, secrets={"TOKEN": "sesame-ghp_1"})
    runtime.printed = f"TOKEN=sesame-ghp_1\nkey {running.session_api_key}\nsesame-g"
    hidden = "TOKEN=<secret-hidden>\nkey <secret-hidden>\n<secret-hidden>"
    sent = []
    one_store.sandboxes.send_log = lambda _, text: sent.append(text)

    reconciler.send_log(running, 100, "reply")
    for _ in range(SPEC.restarts):
        crash(sandboxes, reconciler, runtime, running)
        restarted(sandboxes, reconciler, running)
    runtime.printed = f"TOKEN=sesame-ghp_1\nkey {sandboxes.get(running.id).session_api_key}\nsesame-g"
    failed = crash(sandboxes, reconciler, runtime, running)

    assert sent == [hidden]
    assert (failed.status, failed.detail.endswith(hidden)) == ("ERROR", True)
    assert sandboxes.log(running.id, 100) == hidden
    errors, _ = one_store.events.search(conversation, kind="ConversationErrorEvent")
    assert any(b"<secret-hidden>" in raw for raw in errors)
    assert not any(b"sesame" in raw for raw in errors)


def test_crashes_of_more_than_ten_minutes_ago_do_not_count(sandboxes, runtime, reconciler, running):
    long_ago = [running.seen_at + LONG_AGO] * SPEC.restarts
    sandboxes.report(running.id, "h", "supervisor", crashes=long_ago)

    assert crash(sandboxes, reconciler, runtime, running).status == "STARTING"


@pytest.mark.parametrize("spec", [replace(SPEC, restarts=0)])
def test_a_spec_without_restarts_leaves_a_crashed_sandbox_in_error(sandboxes, runtime, reconciler, running, spec):
    assert crash(sandboxes, reconciler, runtime, running).status == "ERROR"


def test_a_first_start_that_crashes_is_an_error_at_once(sandboxes, runtime, reconciler):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    runtime.state = ProcessState.GONE

    reconciler.reconcile(sandboxes.get(started.id))

    assert sandboxes.get(started.id).status == "ERROR"


def test_a_paused_sandbox_whose_processes_vanish_stays_paused_and_starts_again_when_it_is_resumed(
    sandboxes, runtime, reconciler, running
):
    sandboxes.ask(running.id, "pause")
    reconciler.reconcile(sandboxes.get(running.id))
    runtime.state = ProcessState.GONE
    reconciler.reconcile(sandboxes.get(running.id))

    rests = sandboxes.get(running.id)
    assert (rests.status, rests.handle) == ("PAUSED", None)
    assert "its files are kept" in rests.detail
    for _ in range(3):
        reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("start") == 0

    runtime.state = ProcessState.RUNNING
    sandboxes.ask(running.id, "resume")
    assert restarted(sandboxes, reconciler, running).start == running.start + 1


@pytest.mark.parametrize("spec", [replace(SPEC, idle_stop_seconds=60)])
def test_a_sandbox_that_was_paused_for_long_gives_its_memory_back(sandboxes, runtime, reconciler, running, spec):
    runtime.state = ProcessState.PAUSED
    sandboxes.ask(running.id, "pause")
    reconciler.reconcile(sandboxes.get(running.id))
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("stop") == 0

    passes(sandboxes, running, 61)
    reconciler.reconcile(sandboxes.get(running.id))

    rests = sandboxes.get(running.id)
    assert (rests.status, rests.handle, rests.wanted) == ("PAUSED", None, "paused")
    assert runtime.count("stop") == 1
    assert "60 s" in rests.detail


def test_a_resume_that_comes_while_a_sandbox_is_stopped_is_not_lost(sandboxes, endings, running):
    sandboxes.ask(running.id, "pause")
    seen = sandboxes.get(running.id)
    sandboxes.report(running.id, "h", "supervisor", "PAUSED")
    sandboxes.ask(running.id, "resume")

    endings.stop(seen, "It was paused for 60 s")

    now = sandboxes.get(running.id)
    assert (now.status, now.wanted, now.handle) == ("STARTING", "running", None)


@pytest.mark.parametrize("spec", [replace(SPEC, max_seconds=60)])
def test_a_sandbox_whose_time_is_over_rests_with_its_files_and_has_its_time_again_after_a_resume(
    sandboxes, runtime, reconciler, running, spec
):
    passes(sandboxes, running, 61)
    reconciler.reconcile(sandboxes.get(running.id))

    rests = sandboxes.get(running.id)
    assert (rests.status, rests.handle) == ("PAUSED", None)
    assert "Its 60 s are over" in rests.detail

    sandboxes.ask(running.id, "resume")
    reconciler.reconcile(sandboxes.get(running.id))
    sandboxes.report(running.id, "h", "supervisor", "RUNNING", detail="")
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).status == "RUNNING"


@pytest.mark.parametrize("spec", [replace(SPEC, disk_bytes=1000)])
def test_a_sandbox_whose_files_take_more_than_they_may_is_paused_with_the_reason(
    sandboxes, runtime, reconciler, clock, running, spec
):
    runtime.used = 1000
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).disk_bytes == 1000
    runtime.used = 1001
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("disk_bytes") == 1  # once a minute

    clock.now += 61
    reconciler.reconcile(sandboxes.get(running.id))
    reconciler.reconcile(sandboxes.get(running.id))

    paused = sandboxes.get(running.id)
    assert (paused.status, paused.disk_bytes) == ("PAUSED", 1001)
    assert "disk_mb" in paused.detail


@pytest.mark.parametrize("spec", [replace(SPEC, disk_bytes=1000)])
def test_a_measurement_has_the_limit_as_its_bound(sandboxes, runtime, reconciler, running, spec):
    reconciler.reconcile(sandboxes.get(running.id))

    assert runtime.bounds == [spec.disk_bytes]


def test_measurements_take_a_tenth_of_the_time_at_most(sandboxes, runtime, reconciler, clock, running):
    runtime.measuring = lambda: setattr(clock, "now", clock.now + 30)
    reconciler.reconcile(sandboxes.get(running.id))
    clock.now += 269
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("disk_bytes") == 1

    clock.now += 2
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("disk_bytes") == 2


@pytest.mark.parametrize("spec", [replace(SPEC, disk_bytes=1600)])
def test_a_disk_that_fills_quickly_has_its_sandboxes_measured_before_the_minute_is_over(
    sandboxes, runtime, reconciler, clock, running, spec
):
    runtime.used, runtime.occupied = 1000, 50_000
    reconciler.reconcile(sandboxes.get(running.id))
    runtime.occupied = 50_601
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("disk_bytes") == 1  # not twice within 5 s

    clock.now += 6
    runtime.occupied = 50_600
    reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("disk_bytes") == 1  # whoever wrote that, the sandbox is within its limit

    runtime.used, runtime.occupied = 1601, 50_601
    reconciler.reconcile(sandboxes.get(running.id))
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).status == "PAUSED"


@pytest.mark.parametrize("spec", [replace(SPEC, disk_bytes=1600)])
def test_files_that_could_not_all_be_measured_take_what_was_known_at_least_and_are_measured_again_soon(
    sandboxes, runtime, reconciler, clock, running, spec
):
    runtime.used = 1500
    reconciler.reconcile(sandboxes.get(running.id))

    clock.now += 61
    runtime.failures["disk_bytes"] = PartlyMeasured(10)
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).disk_bytes == 1500
    for seconds, number in ((4, 2), (2, 3), (6, 3), (5, 4)):  # again after 5 s, then after 10
        clock.now += seconds
        reconciler.reconcile(sandboxes.get(running.id))
        assert runtime.count("disk_bytes") == number

    clock.now += 61
    runtime.failures["disk_bytes"] = PartlyMeasured(1601)
    reconciler.reconcile(sandboxes.get(running.id))
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).status == "PAUSED"


def test_files_that_cannot_be_used_are_an_error_and_the_processes_end(sandboxes, runtime, reconciler, running):
    runtime.state = ProcessState.BROKEN

    reconciler.reconcile(running)

    failed = sandboxes.get(running.id)
    assert (failed.status, failed.handle) == ("ERROR", None)
    assert "cannot be used" in failed.detail
    assert runtime.count("stop") == 1


def test_a_status_detail_is_plain_text_and_the_log_stays_as_it_was_printed(sandboxes, runtime, reconciler, running):
    runtime.state, runtime.printed = ProcessState.BROKEN, "\x1b[31mno key given\x1b[0m\r\n\x1b]0;title\x07bye\x00"

    reconciler.reconcile(running)

    failed = sandboxes.get(running.id)
    assert failed.detail.splitlines()[1:] == ["no key given", "bye"]
    assert sandboxes.log(running.id, 100) == "\n".join(runtime.printed.splitlines()[-100:])


def test_a_deletion_removes_the_files_of_a_sandbox_whose_handle_was_never_stored(sandboxes, runtime, reconciler, clock):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    sandboxes.begin(started.id, "h", "supervisor", "scripted")
    runtime.known_ids.append(started.id)
    sandboxes.ask(started.id, "delete")

    runtime.failures["remove"] = RuntimeCallFailed("its folder cannot be removed")
    reconciler.reconcile(sandboxes.get(started.id))
    assert sandboxes.get(started.id).status == "ERROR"

    runtime.failures.clear()
    clock.now += LONGEST_BACKOFF
    reconciler.reconcile(sandboxes.get(started.id))
    assert sandboxes.get_many([started.id]) == [None]
    assert runtime.known_ids == []


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_failure_at_the_end_of_a_supervisor_does_not_block_other_sandboxes(
    sandboxes, runtime, endings, running, failure
):
    runtime.failures["stop"] = failure
    endings.end_all()
    assert sandboxes.get(running.id).status == "RUNNING"  # a sandbox that was not ended is not reported as ended

    runtime.failures.clear()
    endings.end_all()
    rests = sandboxes.get(running.id)
    assert (rests.status, rests.handle, rests.resumes) == ("PAUSED", None, True)


def test_a_sandbox_that_rests_on_disk_rests_again_when_its_lost_host_is_back(
    sandboxes, runtime, endings, reconciler, running
):
    endings.end_all()
    silent_for(sandboxes, 120)
    assert sandboxes.get(running.id).status == "MISSING"

    assert sandboxes.beat("h", "supervisor")
    reconciler.reconcile(sandboxes.get(running.id))

    rests = sandboxes.get(running.id)
    assert (rests.status, rests.wanted, rests.handle) == ("PAUSED", "paused", None)
    assert "its files are kept" in rests.detail
    assert runtime.count("start") == 0


def test_a_sandbox_of_a_lost_host_cannot_be_resumed_until_the_host_is_back(sandboxes, running):
    silent_for(sandboxes, 120)
    assert sandboxes.get(running.id).status == "MISSING"
    with pytest.raises(SandboxRefuses, match="on the host h, which has its files and does not answer"):
        sandboxes.ask(running.id, "resume")

    assert sandboxes.beat("h", "supervisor")
    sandboxes.ask(running.id, "resume")
    assert sandboxes.get(running.id).status == "STARTING"
