"""A runtime that cannot freeze: a pause ends the processes, and a start waits for what a cluster has not given yet."""

from dataclasses import replace

import pytest

from runtimes import Observation, ProcessState, RuntimeCallFailed
from settings.specs import Specs
from supervisor.launches import launch
from supervisor.sandboxes import Reconciler
from tests.agents import agent_client
from tests.supervisor.conftest import SPEC


@pytest.fixture
def runtime(runtime):
    runtime.freezes = False
    return runtime


def test_a_pause_is_a_stop_and_a_resume_is_another_start(sandboxes, runtime, reconciler, running):
    sandboxes.ask(running.id, "pause")
    reconciler.reconcile(sandboxes.get(running.id))

    paused = sandboxes.get(running.id)
    assert (paused.status, paused.handle) == ("PAUSED", None)
    assert paused.detail.startswith("It was paused: ")
    assert (runtime.count("stop"), runtime.count("pause")) == (1, 0)

    sandboxes.ask(running.id, "resume")
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).start == running.start + 1
    assert runtime.count("resume") == 0


def test_a_resume_while_a_pause_ends_the_processes_starts_them_again(sandboxes, runtime, reconciler, running):
    sandboxes.ask(running.id, "pause")
    read = sandboxes.get(running.id)
    sandboxes.ask(running.id, "resume")

    reconciler.reconcile(read)

    assert sandboxes.get(running.id).status == "STARTING"


def test_a_start_that_takes_too_long_says_what_it_waited_for(
    one_store, sandboxes, runtime, host, endings, archives, recovery, monkeypatch
):
    monkeypatch.setattr(
        runtime, "observe", lambda _: Observation(ProcessState.RUNNING, "no node accepts its pod:  0/3 nodes")
    )
    sandbox = sandboxes.start("spec")
    assert sandboxes.claim("h") == sandbox.id

    words = (agent_client(1), recovery, endings, archives)
    impatient = Reconciler(one_store, Specs([SPEC]), {"scripted": runtime}, replace(host, start_seconds=1e-6), *words)
    for _ in range(2):
        impatient.reconcile(sandboxes.get(sandbox.id))

    failed = sandboxes.get(sandbox.id)
    assert failed.status == "ERROR"
    assert "did not answer within 1e-06 s: no node accepts its pod:  0/3 nodes. Its files are kept" in failed.detail


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/api", "http://localhost/api", "http://[::1]:1/api"])
def test_a_pod_is_not_started_that_would_post_its_webhooks_to_itself(sandboxes, running, url):
    spec = replace(SPEC, runtime="kubernetes", image="agent:1")
    with pytest.raises(RuntimeCallFailed, match="set WEBHOOK_BASE_URL to a URL of the server's Service"):
        launch(running, spec, url, "key")
    assert launch(running, spec, "http://agent-server.agents.svc:8000/api", "key").webhooks.startswith("http://agent")
