"""Sandboxes of agent-sandbox, of the whole server: the supervisor pauses, resumes, restarts and adopts them."""

import pytest

from tests.image import answered
from tests.runtimes.kubernetes.test_sandboxes import api, cluster, kill, left, pod_of, server, until_replaced
from tests.servers import wait_until
from tests.v1.test_faults import supervisor_of

pytestmark = pytest.mark.kubernetes("starts a whole server, and kills its supervisor")

__all__ = ["api", "cluster", "server"]


@pytest.fixture(scope="module")
def cluster_of_module(cluster_of_module):
    cluster_of_module.has_agent_sandbox = True
    return cluster_of_module


def mode_of(cluster) -> str:
    [sandbox] = cluster.objects.all("sandboxes")
    return sandbox["spec"]["operatingMode"]


def test_an_app_conversation_goes_on_after_a_pause_a_crash_and_a_killed_supervisor(server, api, cluster):
    _, master = server
    conversation = api.app_conversation(title="In a Sandbox")
    sandbox_id = conversation["sandbox_id"]
    assert answered(api, conversation["id"], "echo kept > note && cat note") == "kept"
    urls = api.sandbox(sandbox_id)["exposed_urls"]

    api.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")

    assert api.sandbox(sandbox_id)["status"] == "PAUSED"
    assert (mode_of(cluster), cluster.objects.all("pods")) == ("Suspended", [])
    api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
    assert api.wait_for(sandbox_id, "RUNNING")["exposed_urls"] == urls

    until_replaced(cluster, api, sandbox_id, kill(cluster, sandbox_id))

    uid = pod_of(cluster, sandbox_id)["metadata"]["uid"]
    killed = supervisor_of(master)
    killed.kill()
    wait_until(lambda: supervisor_of(master).pid != killed.pid, "another supervisor")
    assert answered(api, conversation["id"], "cat note") == "kept"
    assert (pod_of(cluster, sandbox_id)["metadata"]["uid"], mode_of(cluster)) == (uid, "Running")

    api.call("DELETE", f"/v1/sandboxes/{sandbox_id}")

    wait_until(lambda: left(cluster) == [], "the end of every object")
