"""Sandboxes as objects of agent-sandbox: what differs from pods that the runtime makes. The controller is our own."""

import functools
from dataclasses import replace

import pytest

from runtimes import ProcessState, RuntimeCallFailed
from runtimes.kubernetes import KubernetesRuntime, manifests
from runtimes.kubernetes.manifests import HOST_ID, SANDBOX_ID, name_of
from tests.kubernetes_api.agent_sandbox import TRACKING
from tests.runtimes.kubernetes.conftest import resources
from tests.runtimes.kubernetes.test_pods import pod_of, until_gone, until_running
from tests.servers import wait_until

pytestmark = pytest.mark.kubernetes("starts pods, and waits for the controller that makes them")


@pytest.fixture
def way():
    return "agent-sandbox"


@pytest.fixture
def controller(cluster):
    """The controller, which a test may stop."""
    yield cluster.controller
    cluster.controller.running = True


def sandbox_of(cluster, launch) -> dict:
    return cluster.objects.get("sandboxes", name_of(launch.sandbox_id))


def test_a_start_makes_a_sandbox_whose_controller_makes_the_pod(runtime, cluster, host, launch):
    cluster.requests.clear()
    handle = until_running(runtime, cluster, launch)

    assert "create pods" not in cluster.requests
    assert resources(cluster) == {"sandboxes", "pods", "services", "secrets", "persistentvolumeclaims"}
    sandbox, pod = sandbox_of(cluster, launch), pod_of(cluster, launch)
    assert pod["metadata"]["uid"] == handle["pod"]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == sandbox["metadata"]["uid"]
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if key != TRACKING}
    assert labels == sandbox["metadata"]["labels"]
    assert labels == {
        "agent-server.sandbox": launch.sandbox_id,
        "agent-server.host": host,
        "agent-server.start": "1",
    }
    assert pod["metadata"]["annotations"] == {SANDBOX_ID: launch.sandbox_id, HOST_ID: host}
    assert sandbox["spec"]["operatingMode"] == "Running"
    assert sandbox["spec"]["podTemplate"]["spec"] == pod["spec"]


def test_a_pause_suspends_the_sandbox_and_a_resume_runs_the_next_pod_in_it(runtime, cluster, launch):
    first = until_running(runtime, cluster, launch)
    uid = sandbox_of(cluster, launch)["metadata"]["uid"]

    runtime.pause(first)

    assert sandbox_of(cluster, launch)["spec"]["operatingMode"] == "Suspended"
    assert runtime.observe(first).state is ProcessState.GONE

    second = until_running(runtime, cluster, replace(launch, start=2, memory_bytes=1 << 28))

    sandbox = sandbox_of(cluster, launch)
    assert (sandbox["metadata"]["uid"], sandbox["metadata"]["labels"]["agent-server.start"]) == (uid, "2")
    assert sandbox["spec"]["operatingMode"] == "Running"
    [container] = pod_of(cluster, launch)["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == str(1 << 28)
    assert second["pod"] != first["pod"]
    assert second["host"] == first["host"]


def test_a_pod_that_the_controller_makes_again_is_of_no_start_and_ends_with_a_stop(runtime, cluster, launch):
    handle = until_running(runtime, cluster, launch)
    cluster.objects.delete("pods", name_of(launch.sandbox_id), {"gracePeriodSeconds": 0})
    wait_until(
        lambda: [one["metadata"]["uid"] for one in cluster.objects.all("pods")] not in ([], [handle["pod"]]),
        "the pod that the controller makes",
    )
    assert until_gone(runtime, handle) == "its pod was deleted"

    runtime.stop(handle)

    assert cluster.objects.all("pods") == []


def test_a_sandbox_that_somebody_deletes_loses_no_files_and_is_made_again(runtime, cluster, launch):
    handle = until_running(runtime, cluster, launch)
    folder = cluster.node.claim_folder(name_of(launch.sandbox_id))
    (folder / "note").write_text("kept")
    cluster.objects.delete("sandboxes", name_of(launch.sandbox_id), {})
    until_gone(runtime, handle)

    until_running(runtime, cluster, replace(launch, start=2))

    assert (folder / "note").read_text() == "kept"


def test_a_sandbox_changes_from_pods_to_agent_sandbox_and_back_with_its_files_and_its_address(cluster, host, launch):
    addresses = set()
    for start, setting in enumerate(("pods", "auto", "agent-sandbox", "pods"), 1):
        runtime = KubernetesRuntime(host, sandboxes=setting)
        addresses.add(until_running(runtime, cluster, replace(launch, start=start))["host"])
        of_controller = "ownerReferences" in pod_of(cluster, launch)["metadata"]
        assert of_controller == (setting != "pods")
        (cluster.node.claim_folder(name_of(launch.sandbox_id)) / str(start)).touch()
    assert len(addresses) == 1
    assert len(list(cluster.node.claim_folder(name_of(launch.sandbox_id)).iterdir())) == 4
    runtime.remove(launch.sandbox_id)
    assert resources(cluster) == set()


def test_a_cluster_without_agent_sandbox_is_named_where_the_setting_wants_it(cluster, host, launch):
    cluster.has_agent_sandbox = False
    with pytest.raises(
        RuntimeCallFailed, match=r"KUBERNETES_SANDBOXES is agent-sandbox, and the cluster does not serve"
    ):
        KubernetesRuntime(host, sandboxes="agent-sandbox").start(launch)


def test_a_controller_that_makes_no_pod_is_named_and_makes_none_later(
    runtime, cluster, controller, launch, monkeypatch
):
    monkeypatch.setattr(manifests, "_MADE", 0.2)
    controller.running = False

    with pytest.raises(
        RuntimeCallFailed, match=r"agent-sandbox's controller made no pod in 0\.2 s\. Check that it runs"
    ):
        runtime.start(launch)

    assert sandbox_of(cluster, launch)["spec"]["operatingMode"] == "Suspended"


def test_a_controller_that_ends_no_pod_is_named(runtime, cluster, controller, launch, monkeypatch):
    handle = until_running(runtime, cluster, launch)
    monkeypatch.setattr(runtime._cluster, "ended", functools.partial(runtime._cluster.ended, seconds=0.2))
    controller.running = False

    with pytest.raises(RuntimeCallFailed, match=r"has not ended; .*; else see whether agent-sandbox's controller runs"):
        runtime.stop(handle)


def test_a_start_that_comes_too_late_leaves_the_sandbox_of_a_later_start_that_was_paused(runtime, cluster, launch):
    runtime.pause(until_running(runtime, cluster, replace(launch, start=2)))

    with pytest.raises(RuntimeCallFailed, match="was started again meanwhile: start 2"):
        runtime.start(launch)

    assert sandbox_of(cluster, launch)["spec"]["operatingMode"] == "Suspended"
