"""Failures of a runtime: a supervisor reports the reason, retries with backoff, never calls a live sandbox gone."""

import logging
from dataclasses import replace
from uuid import uuid4

import pytest

from runtimes import ProcessState, RuntimeCallFailed
from runtimes.isolation.entrance import Confinement
from runtimes.launch import Order
from schemas.sandboxes import SandboxInfo
from supervisor.launches import launch
from supervisor.sandboxes import LONGEST_BACKOFF
from tests.store.conftest import silent_for
from tests.supervisor.conftest import SPEC, handle

FAILURES = [RuntimeCallFailed("its folder cannot be removed"), NotImplementedError("its folder cannot be removed")]


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_failed_deletion_is_an_error_with_its_reason_that_shows_no_key_and_takes_no_room(
    sandboxes, runtime, reconciler, running, failure
):
    runtime.failures["remove"] = failure
    sandboxes.ask(running.id, "delete")

    reconciler.reconcile(sandboxes.get(running.id))

    shown = SandboxInfo().dump(sandboxes.get(running.id))
    assert shown["status"] == "ERROR"
    assert "deletion" in shown["status_detail"]
    assert "its folder cannot be removed" in shown["status_detail"]
    assert shown["session_api_key"] is None
    other = sandboxes.start("spec")  # of one that may run
    assert sandboxes.claim("h") == other.id


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_deletion_that_fails_is_retried_with_backoff_until_it_is_done(
    sandboxes, runtime, reconciler, clock, running, failure
):
    runtime.failures["remove"] = failure
    sandboxes.ask(running.id, "delete")

    for _ in range(100):
        reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("remove") == 1

    for _ in range(1000):  # polls, twice a second
        clock.now += 0.5
        reconciler.reconcile(sandboxes.get(running.id))
    assert 500 / LONGEST_BACKOFF <= runtime.count("remove") <= 10 + 500 / LONGEST_BACKOFF

    runtime.failures.clear()
    clock.now += LONGEST_BACKOFF
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get_many([running.id]) == [None]
    assert runtime.known_ids == []


def test_a_repeated_unexpected_error_logs_one_traceback(sandboxes, runtime, reconciler, clock, running, caplog):
    runtime.failures["observe"] = KeyError("nobody foresaw this")

    with caplog.at_level(logging.WARNING, "supervisor"):
        for _ in range(1000):
            clock.now += 0.5
            reconciler.reconcile(sandboxes.get(running.id))

    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert len(caplog.records) < 70


def test_another_request_is_served_at_once_while_an_earlier_one_waits_for_its_retry(
    sandboxes, runtime, reconciler, running
):
    runtime.failures["pause"] = RuntimeCallFailed("a process of the sandbox would not stop")
    sandboxes.ask(running.id, "pause")
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).status == "RUNNING"  # and never PAUSED

    sandboxes.ask(running.id, "delete")
    reconciler.reconcile(sandboxes.get(running.id))

    assert sandboxes.get_many([running.id]) == [None]


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_failed_start_is_an_error_with_its_reason(sandboxes, runtime, reconciler, failure):
    runtime.failures["start"] = failure
    started = sandboxes.start("spec")
    sandboxes.claim("h")

    reconciler.reconcile(sandboxes.get(started.id))

    failed = sandboxes.get(started.id)
    assert failed.status == "ERROR"
    assert "its folder cannot be removed" in failed.detail


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_sandbox_that_became_another_supervisors_before_or_during_its_start_does_not_run_here(
    sandboxes, runtime, reconciler, monkeypatch, when
):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    start = runtime.start

    def taken(launched):
        silent_for(sandboxes, 5)
        assert sandboxes.beat("h", "another")
        return launched and start(launched)

    if when == "before":
        taken(None)
    else:
        monkeypatch.setattr(runtime, "start", taken)

    reconciler.reconcile(sandboxes.get(started.id))

    assert runtime.called == ([] if when == "before" else [("start", started.id), ("stop", started.id)])
    assert (sandboxes.get(started.id).status, sandboxes.get(started.id).handle) == ("STARTING", None)


def test_what_is_left_of_a_failed_sandboxs_processes_is_ended_until_that_succeeds(
    sandboxes, runtime, reconciler, clock, running
):
    runtime.state, runtime.failures["stop"] = ProcessState.BROKEN, RuntimeCallFailed("a process would not end")
    reconciler.reconcile(running)
    ended = sandboxes.get(running.id)
    assert (ended.status, ended.handle is None) == ("ERROR", False)

    runtime.failures.clear()
    clock.now += LONGEST_BACKOFF
    for _ in range(5):
        reconciler.reconcile(sandboxes.get(running.id))

    assert runtime.known_ids == [running.id]
    assert runtime.count("stop") == 2
    assert sandboxes.get(running.id).handle is None
    assert sandboxes.get(running.id).detail == ended.detail


def test_no_secret_is_in_the_repr_of_a_sandbox_its_launch_and_its_handle(running):
    described = launch(running, SPEC, "http://127.0.0.1:1/api/v1/webhooks", "the hook key")

    assert running.session_api_key in str(dict(described.env))
    confinement = Confinement("none", hook_key=described.hook_key)
    order = Order(dict(running.handle), ["/bin/true"], dict(described.env), ".", 1, confinement, None, None, 1.0, 1.0)
    for shown in (repr(running), str(running), repr(described), repr(running.handle), repr(order)):
        for key in (running.session_api_key, running.files_key, "the hook key"):
            assert key not in shown
    assert running.id in repr(running)


def test_the_pages_that_may_use_the_server_may_use_its_sandboxes_too(running):
    described = launch(
        running, SPEC, "http://127.0.0.1:1/api/v1/webhooks", "hook", ("https://a.example", "https://b.example")
    )

    origins = {name: value for name, value in described.env.items() if "CORS" in name}
    assert origins == {"OH_ALLOW_CORS_ORIGINS_0": "https://a.example", "OH_ALLOW_CORS_ORIGINS_1": "https://b.example"}


@pytest.fixture
def elsewhere(sandboxes, running):
    """A sandbox that the supervisor of another folder has started, which had the host's name before."""
    assert sandboxes.begin(running.id, "h", "supervisor", "scripted", "another folder")
    assert sandboxes.report(running.id, "h", "supervisor", "", handle=handle(running.id))
    return running


@pytest.mark.parametrize("verb", ["nothing", "pause", "delete"])
def test_a_supervisor_that_takes_a_host_over_touches_no_sandbox_of_another_folder(
    sandboxes, runtime, reconciler, endings, elsewhere, verb
):
    runtime.state = ProcessState.GONE  # as it looks from here
    if verb != "nothing":
        sandboxes.ask(elsewhere.id, verb)
    for _ in range(2):
        reconciler.reconcile(sandboxes.get(elsewhere.id))
    endings.end_all()

    seen = sandboxes.get(elsewhere.id)
    assert (seen.status, runtime.called) == ("MISSING", [])
    assert "Its files are in another folder" in seen.detail
    assert seen.handle is not None


def test_a_sandbox_is_of_its_folder_again_when_the_supervisor_of_that_is_back(
    sandboxes, runtime, reconciler, host, elsewhere, agent
):
    reconciler.reconcile(sandboxes.get(elsewhere.id))
    assert sandboxes.get(elsewhere.id).status == "MISSING"
    reconciler._host = replace(host, folder="another folder")
    assert sandboxes.report(elsewhere.id, "h", "supervisor", "", agent_url=agent.url)

    reconciler.reconcile(sandboxes.get(elsewhere.id))

    seen = sandboxes.get(elsewhere.id)
    assert (seen.status, seen.detail, runtime.count("stop")) == ("RUNNING", "", 0)


def test_a_start_whose_agent_server_tells_nothing_of_its_conversations_ends(
    sandboxes, one_store, reconciler, host, runtime, clock, agent
):
    reconciler._host = replace(host, start_seconds=30)
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    for _ in range(2):  # the second start of its processes
        assert sandboxes.begin(started.id, "h", "supervisor", "scripted")
    runtime.known_ids.append(started.id)
    sandboxes.report(started.id, "h", "supervisor", "", handle=handle(started.id), agent_url=agent.url, urls=[])
    conversation = str(uuid4())
    one_store.conversations.create(conversation, sandbox_id=started.id, app={})
    agent.broken[conversation] = 503

    def look(seconds: int) -> str:
        clock.now += LONGEST_BACKOFF  # no retry is waited for
        sandbox = sandboxes.get(started.id)
        reconciler.reconcile(replace(sandbox, seen_at=sandbox.seen_at + seconds * 1_000_000))
        return sandboxes.get(started.id).status

    assert [look(seconds) for seconds in (0, 10, 20, 29)] == ["STARTING"] * 4
    assert look(42) == "ERROR"
    assert "did not report its conversations within 30 s" in sandboxes.get(started.id).detail
