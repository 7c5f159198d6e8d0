"""Sandboxes as pods of the whole server: gunicorn, a supervisor, and the agent server in real processes."""

import sys
from uuid import uuid4

import pytest

from runtimes.kubernetes.manifests import name_of
from tests.image import answered
from tests.runtimes.kubernetes.conftest import KINDS
from tests.servers import PROJECT, free_port, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.test_faults import supervisor_of
from tests.v1.test_folders import listed, read

pytestmark = pytest.mark.kubernetes("starts whole servers, and kills a supervisor")

SPEC = """
[[spec]]
id = "{id}"
created_at = 2026-11-21T00:00:00Z
runtime = "kubernetes"
image = "{image}"
command = ["{python}", "-m", "reference_agent", "--host", "0.0.0.0", "--port", "{{AGENT_SERVER}}"]
initial_env = {{ PYTHONPATH = "{project}" }}
ports = {{ AGENT_SERVER = {agent_port} }}
restarts = {restarts}
limits = {{ memory_mb = 300, cpus = 0.75, disk_mb = 100 }}
conversation = {{ confirmation_policy = {{ kind = "AlwaysConfirm" }} }}
"""


@pytest.fixture(scope="module")
def server(cluster_of_module, tmp_path_factory):
    """A server whose sandboxes are pods: its api, its master process."""
    folder = tmp_path_factory.mktemp("pods")
    place = {"python": sys.executable, "project": PROJECT, "agent_port": free_port()}
    specs = [
        SPEC.format(id="pod", image="agent:1", restarts=3, **place),
        SPEC.format(id="no-image", image="nobody/has:1", restarts=0, **place),
    ]
    (folder / "specs.toml").write_text("".join(specs))
    port = free_port()
    settings = {
        "SANDBOX_SPECS": f"{folder}/specs.toml",
        "HOST_ID": f"tests-{uuid4().hex[:8]}",
        "HOST": "0.0.0.0",
        "PORT": str(port),
        "AUTH": "open",
        # An address of this machine that a pod of another machine could have reached: no loopback that means itself.
        "WEBHOOK_BASE_URL": f"http://127.0.0.2:{port}/api/v1/webhooks",
        "KUBECONFIG": str(cluster_of_module.kubeconfig(folder / "kubeconfig")),
    }
    with supervised_server(folder, **settings) as (client, master):
        yield WireApi(client), master
    # The server ends its sandboxes and keeps their files; each test deletes its own.
    assert left(cluster_of_module) == []


@pytest.fixture
def api(server, cluster_of_module):
    """Calls of that server, whose sandboxes are deleted after the test, until nothing of them is left."""
    api, _ = server
    yield api
    api.clean()
    wait_until(lambda: left(cluster_of_module) == [], "the end of every pod and volume")


@pytest.fixture
def cluster(cluster_of_module):
    return cluster_of_module


def left(cluster) -> list[str]:
    return [f"{kind} {one['metadata']['name']}" for kind in KINDS for one in cluster.objects.all(kind)]


def pod_of(cluster, sandbox_id: str) -> dict:
    return cluster.objects.get("pods", name_of(sandbox_id))


def kill(cluster, sandbox_id: str) -> str:
    """Kill the process of a sandbox's pod from outside; the pod's uid."""
    pod = pod_of(cluster, sandbox_id)
    cluster.node.process_of(pod).kill()
    return pod["metadata"]["uid"]


def until_replaced(cluster, api, sandbox_id: str, uid: str) -> None:
    wait_until(lambda: pod_of(cluster, sandbox_id)["metadata"]["uid"] != uid, "another pod")
    api.wait_for(sandbox_id, "RUNNING")


def test_an_app_conversation_works_in_a_pod_and_goes_on_after_a_pause_that_ends_the_pod(api, cluster):
    conversation = api.app_conversation(title="In a pod")
    sandbox_id = conversation["sandbox_id"]
    assert answered(api, conversation["id"], "echo kept > note && cat note") == "kept"
    running = api.sandbox(sandbox_id)
    assert running["status"] == "RUNNING"
    [container] = pod_of(cluster, sandbox_id)["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": str(300 << 20), "cpu": "750m"}
    [claim] = cluster.objects.all("persistentvolumeclaims")
    assert claim["spec"]["resources"]["requests"]["storage"] == str(100 << 20)

    api.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")

    paused = api.sandbox(sandbox_id)
    assert paused["status"] == "PAUSED"
    assert paused["status_detail"].startswith("It was paused: its processes have ended, its files are kept")
    assert cluster.objects.all("pods") == cluster.objects.all("secrets") == []
    assert "serving on" in api.call("GET", f"/v1/sandboxes/{sandbox_id}/logs")["log"]
    api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
    assert api.wait_for(sandbox_id, "RUNNING")["exposed_urls"] == running["exposed_urls"]
    assert answered(api, conversation["id"], "cat note") == "kept"


def test_a_path_below_what_the_agents_own_pwd_prints_is_opened_and_so_is_the_one_of_its_spec(api):
    """The node has the volume elsewhere than at /workspace, as an image has it behind a symlink."""
    identity = api.app_conversation(title="Behind a symlink")["id"]
    pwd = answered(api, identity, "echo found > a.txt; ln -s $(pwd)/a.txt b.txt; ln -s /workspace/a.txt c.txt; pwd")
    assert not pwd.startswith("/workspace")
    sandbox_id = api.conversation(identity)["sandbox_id"]

    for _ in ("while it runs", "after its pod has ended"):
        for folder in (pwd, "/workspace"):
            assert {read(api, identity, f"{folder}/{name}.txt") for name in "abc"} == {"found\n"}
            assert listed(api, identity, folder) == ["a.txt"]
        for beside in (f"{pwd}2/a.txt", f"{pwd}/../a.txt", "/workspace2/a.txt"):
            assert read(api, identity, beside, status=422)["detail"][0]["loc"] == ["query", "file_path"]
        api.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")


def test_a_pod_that_is_killed_from_outside_is_started_again_and_its_conversation_goes_on(api, cluster):
    conversation = api.app_conversation(title="Goes on")
    sandbox_id = conversation["sandbox_id"]
    assert answered(api, conversation["id"], "echo kept > note && echo written") == "written"
    events = api.events(conversation["id"])

    until_replaced(cluster, api, sandbox_id, kill(cluster, sandbox_id))

    assert answered(api, conversation["id"], "cat note") == "kept"
    assert api.events(conversation["id"])[: len(events)] == events


def test_a_supervisor_adopts_the_pods_of_a_killed_one(server, api, cluster):
    _, master = server
    running, paused = api.running_sandbox(), api.running_sandbox()
    api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
    uid = pod_of(cluster, running["id"])["metadata"]["uid"]
    killed = supervisor_of(master)

    killed.kill()

    wait_until(lambda: supervisor_of(master).pid != killed.pid, "another supervisor")
    conversation = api.app_conversation(sandbox_id=running["id"], title="Adopted")
    assert answered(api, conversation["id"], "echo adopted") == "adopted"
    assert pod_of(cluster, running["id"])["metadata"]["uid"] == uid
    api.call("POST", f"/v1/sandboxes/{paused['id']}/resume")
    api.wait_for(paused["id"], "RUNNING")


def test_a_deletion_of_a_paused_sandbox_leaves_nothing(api, cluster):
    sandbox = api.running_sandbox()
    api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")

    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    wait_until(lambda: api.sandbox(sandbox["id"]) is None, "the end of the sandbox")
    assert left(cluster) == []


def test_an_image_that_cannot_be_pulled_is_an_error_that_says_so(api):
    sandbox = api.start_sandbox("no-image")
    detail = api.wait_for(sandbox["id"], "ERROR")["status_detail"]
    assert "its image cannot be pulled: check `image` of its spec" in detail


def test_the_archive_of_a_paused_sandbox_becomes_the_files_of_another(api, cluster):
    source = api.running_sandbox()["id"]
    (cluster.node.claim_folder(name_of(source)) / "note").write_text("kept")
    api.call("POST", f"/v1/sandboxes/{source}/pause")
    archive = api.client.get(f"/api/v1/sandboxes/{source}/archive")
    assert archive.status_code == 200
    headers = {"Content-Type": "application/zstd"}

    made = api.call("POST", "/v1/sandboxes?from=archive", content=archive.content, headers=headers)

    api.wait_for(made["id"], "RUNNING")
    assert (cluster.node.claim_folder(name_of(made["id"])) / "note").read_text() == "kept"
