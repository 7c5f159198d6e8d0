"""Sandboxes as pods: real processes behind the API server of tests/kubernetes_api."""

import itertools
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from runtimes import Launch, ProcessState, ResourceUsage, RuntimeCallFailed
from runtimes.kubernetes import KubernetesRuntime
from runtimes.kubernetes.manifests import HELD_POLICY, HOST_ID, POLICY, SANDBOX_ID, name_of
from tests.runtimes.kubernetes.conftest import both_ways, documents, resources
from tests.servers import free_port, wait_until

pytestmark = pytest.mark.kubernetes("starts pods")

SERVES = "import http.server as s, sys; s.test(s.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='0.0.0.0')"


def saying(launch: Launch, text: str, **changes) -> Launch:
    """The launch of that sandbox with this Python text as its command."""
    return replace(launch, command=(sys.executable, "-c", text, "{AGENT_SERVER}"), **changes)


def pod_of(cluster, launch: Launch) -> dict:
    return cluster.objects.get("pods", name_of(launch.sandbox_id))


def until_running(runtime, cluster, launch: Launch):
    handle = runtime.start(launch)
    wait_until(lambda: pod_of(cluster, launch)["status"]["phase"] != "Pending", "the start of the pod")
    return handle


def until_gone(runtime, handle) -> str:
    """How a pod ended, once it has."""
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end of the pod")
    return runtime.observe(handle).detail


def test_a_pod_says_whose_it_is_and_has_the_settings_of_its_launch(runtime, cluster, host, launch):
    handle = until_running(runtime, cluster, replace(launch, memory_bytes=1 << 28, cpus=0.5, disk_bytes=1 << 30))

    pod = pod_of(cluster, launch)
    assert pod["metadata"]["labels"] == {
        "agent-server.sandbox": launch.sandbox_id,
        "agent-server.host": host,
        "agent-server.start": "1",
    }
    assert pod["metadata"]["annotations"] == {SANDBOX_ID: launch.sandbox_id, HOST_ID: host}
    [container] = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": str(1 << 28), "cpu": "500m"}
    assert container["workingDir"] == "/workspace"
    [claim] = cluster.objects.all("persistentvolumeclaims")
    assert claim["spec"]["resources"]["requests"]["storage"] == str(1 << 30)
    assert (handle["ports"], handle["working_dir"]) == (launch.ports, "/workspace")
    assert json.loads(json.dumps(handle)) == handle
    wait_until(lambda: runtime.logs(handle, 9) == f"one\ntwo\n{launch.ports['AGENT_SERVER']}", "its lines")
    assert runtime.logs(handle, 1) == f"… earlier lines are not shown\n{launch.ports['AGENT_SERVER']}"
    assert runtime.observe(handle).state is ProcessState.RUNNING


@both_ways
def test_the_environment_is_a_secret_and_no_pod_shows_it(runtime, cluster, launch):
    port = launch.ports["AGENT_SERVER"]
    handle = until_running(
        runtime,
        cluster,
        saying(launch, "import os; print(os.environ['GIVEN'], flush=True); import time; time.sleep(600)"),
    )

    assert f"at {port}" not in json.dumps(pod_of(cluster, launch))
    wait_until(lambda: runtime.logs(handle, 9).startswith(f"at {port}"), "the value")


def test_a_word_of_the_command_that_a_cluster_would_replace_stays_as_it_is(runtime, cluster, launch):
    handle = until_running(
        runtime, cluster, saying(launch, "print('$(PATH) $$', flush=True); import time; time.sleep(600)")
    )
    wait_until(lambda: runtime.logs(handle, 9).startswith("$(PATH) $"), "the line")


@pytest.mark.kubernetes("starts a pod twice")
@both_ways
def test_the_service_reaches_the_pod_of_each_start_at_one_address(runtime, cluster, launch):
    serves = saying(launch, SERVES)
    port, addresses = launch.ports["AGENT_SERVER"], set()
    for start in (1, 2):
        handle = runtime.start(replace(serves, start=start))
        addresses.add(handle["host"])
        url = f"http://{handle['host']}:{port}/"
        wait_until(lambda url=url: httpx.get(url, trust_env=False).status_code == 200, "the answer")
    assert len(addresses) == 1


@pytest.mark.kubernetes("starts a pod, and waits for its end")
@both_ways
def test_concurrent_starts_of_one_sandbox_start_one_pod(cluster, host, launch):
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: KubernetesRuntime(host).start(launch), range(8)))

    assert len({handle["pod"] for handle in handles}) == 1
    assert [handle["pod"] for handle in KubernetesRuntime(host).known()] == [handles[0]["pod"]]


@both_ways
def test_another_supervisor_of_the_host_adopts_the_pod(runtime, cluster, host, launch):
    first = until_running(runtime, cluster, launch)

    adopted = KubernetesRuntime(host)
    assert adopted.start(launch) == first
    assert adopted.observe(first).state is ProcessState.RUNNING
    assert [known["pod"] for known in adopted.known()] == [first["pod"]]


@pytest.mark.kubernetes("starts a pod at three moments of a start before")
@both_ways
@pytest.mark.parametrize("made", [1, 2, 3])
def test_a_start_goes_on_where_a_killed_supervisor_has_ended(runtime, cluster, launch, monkeypatch, made):
    """made: objects that the killed one had made."""
    create, count = runtime._cluster.create, iter(range(made))

    def create_until_killed(kind, body):
        next(count)
        return create(kind, body)

    with monkeypatch.context() as killed:
        killed.setattr(runtime._cluster, "create", create_until_killed)
        with pytest.raises(StopIteration):
            runtime.start(launch)

    handle = until_running(runtime, cluster, replace(launch, start=2))
    assert runtime.observe(handle).state is ProcessState.RUNNING


@pytest.mark.kubernetes("starts a pod twice")
@both_ways
def test_a_later_start_replaces_the_pod_and_finds_the_files(runtime, cluster, launch):
    first = until_running(
        runtime, cluster, saying(launch, "open('/workspace/kept', 'w').write('kept'); import time; time.sleep(600)")
    )
    folder = cluster.node.claim_folder(name_of(launch.sandbox_id))
    wait_until(lambda: (folder / "kept").read_text() == "kept", "the file")

    second = until_running(
        runtime,
        cluster,
        saying(launch, "print(open('/workspace/kept').read(), flush=True); import time; time.sleep(600)", start=2),
    )

    assert second["pod"] != first["pod"]
    wait_until(lambda: runtime.logs(second, 9).startswith("kept"), "the line")
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert until_gone(runtime, first) == "its pod was deleted"


@pytest.mark.kubernetes("starts two pods")
@both_ways
def test_a_start_that_comes_too_late_leaves_the_pod_of_a_later_start(runtime, cluster, launch):
    handle = until_running(runtime, cluster, replace(launch, start=2))

    with pytest.raises(RuntimeCallFailed, match="was started again meanwhile: start 2"):
        runtime.start(launch)

    assert runtime.observe(handle).state is ProcessState.RUNNING


@pytest.mark.kubernetes("starts a pod, and waits for its end")
@both_ways
def test_a_pause_ends_the_pod_and_keeps_its_volume_and_its_address(runtime, cluster, launch):
    handle = until_running(runtime, cluster, launch)
    for _ in range(2):
        runtime.pause(handle)
    assert resources(cluster) - {"sandboxes"} == {"persistentvolumeclaims", "services"}
    [known] = runtime.known()
    assert (known["sandbox_id"], known["pod"]) == (launch.sandbox_id, None)
    assert runtime.observe(known).state is ProcessState.GONE


@pytest.mark.kubernetes("starts two pods")
@both_ways
def test_a_removal_leaves_nothing_and_may_be_repeated(runtime, cluster, launch, other):
    until_running(runtime, cluster, launch)
    runtime.start(other)
    for _ in range(2):
        runtime.remove(launch.sandbox_id)
    assert [known["sandbox_id"] for known in runtime.known()] == [other.sandbox_id]
    runtime.remove(other.sandbox_id)
    assert resources(cluster) == set()


@pytest.mark.kubernetes("starts two pods")
def test_a_host_knows_its_own_pods_alone(runtime, cluster, launch, other):
    runtime.start(launch)
    KubernetesRuntime("tests-other").start(other)
    assert [known["sandbox_id"] for known in runtime.known()] == [launch.sandbox_id]


@pytest.mark.kubernetes("starts a pod, and waits for its end")
@pytest.mark.parametrize("identity", ["a" * 128, "Ends-with-", "UPPER.and_lower"])
def test_an_id_and_a_host_that_no_label_can_have_are_kept_whole(cluster, launch, identity):
    host = f"host of a person: {identity}"
    runtime = KubernetesRuntime(host)
    until_running(runtime, cluster, replace(launch, sandbox_id=identity))
    assert [known["sandbox_id"] for known in runtime.known()] == [identity]


@pytest.mark.kubernetes("starts a pod, and waits for its end")
@both_ways
def test_a_pod_that_ends_by_itself_reports_its_exit_code_and_its_log_stays(runtime, launch):
    handle = runtime.start(saying(launch, "print('no model'); raise SystemExit(3)"))
    assert until_gone(runtime, handle) == "exit code 3"
    assert runtime.logs(handle, 9) == "no model"
    with pytest.raises(RuntimeCallFailed, match="cannot be started: exit code 3\nno model"):
        runtime.start(launch)


@pytest.mark.kubernetes("starts a pod, and waits for its end")
def test_a_pod_that_is_killed_from_outside_is_gone(runtime, cluster, launch):
    handle = until_running(runtime, cluster, launch)
    cluster.node.process_of(pod_of(cluster, launch)).kill()
    assert until_gone(runtime, handle) == "exit code 137: ended by SIGKILL"


@pytest.mark.kubernetes("starts a pod, and waits for its end")
@both_ways
def test_a_pod_that_is_deleted_from_outside_is_gone(runtime, cluster, launch):
    handle = until_running(runtime, cluster, launch)
    cluster.objects.delete("pods", name_of(launch.sandbox_id), {})
    assert until_gone(runtime, handle) in ("its pod is being deleted", "its pod was deleted")
    runtime.stop(handle)
    assert runtime.logs(handle, 9) == ""


@pytest.mark.kubernetes("starts a pod, and waits for its end")
@pytest.mark.parametrize(
    ("status", "detail"),
    [
        ({"reason": "OOMKilled", "exitCode": 137}, "it needed more memory than it may have"),
        ({"exitCode": 128, "reason": "StartError", "message": "no such file"}, "exit code 128: no such file"),
        ({}, "how is not known"),
    ],
)
def test_a_pod_reports_how_its_container_ended(runtime, cluster, launch, status, detail):
    handle = until_running(runtime, cluster, launch)
    states = [{"name": "sandbox", "state": {"terminated": status}}]
    cluster.objects.update_status(name_of(launch.sandbox_id), handle["pod"], phase="Failed", containerStatuses=states)
    assert until_gone(runtime, handle) == detail


def test_a_pod_that_its_node_evicts_says_why(runtime, cluster, launch):
    handle = until_running(runtime, cluster, launch)
    reason = {"reason": "Evicted", "message": "The node was low on resource: memory."}
    cluster.objects.update_status(name_of(launch.sandbox_id), handle["pod"], phase="Failed", **reason)
    assert until_gone(runtime, handle) == "Evicted: The node was low on resource: memory."


def test_an_image_that_cannot_be_pulled_is_named_with_what_to_do(runtime, cluster, launch):
    handle = runtime.start(replace(launch, image="no-such-image"))
    assert until_gone(runtime, handle) == (
        "its image cannot be pulled: check `image` of its spec, and the registry's credentials: "
        'failed to pull image "no-such-image": not found'
    )


def test_an_image_whose_user_is_root_is_refused(runtime, cluster, launch):
    cluster.node.images["root:1"] = []
    cluster.node.root_images.add("root:1")
    assert "image will run as root" in until_gone(runtime, runtime.start(replace(launch, image="root:1")))


@both_ways
def test_a_pod_that_no_node_takes_is_waited_for_and_says_what_for(runtime, cluster, launch):
    handle = runtime.start(replace(launch, cpus=1000.0))
    wait_until(lambda: runtime.observe(handle).detail, "the scheduler's word")
    seen = runtime.observe(handle)
    assert seen.state is ProcessState.RUNNING
    assert seen.detail.startswith("no node accepts its pod:  0/1 nodes are available: 1 Insufficient cpu.")
    assert seen.detail.endswith("Add nodes, pause sandboxes, or lower the limits of its spec")


@pytest.mark.kubernetes("starts two pods")
@both_ways
def test_a_quota_that_is_used_up_is_named_with_what_to_do(runtime, cluster, launch, other):
    cluster.objects.most_pods = 1
    try:
        runtime.start(launch)
        with pytest.raises(RuntimeCallFailed, match=r"exceeded quota.*Delete or pause sandboxes, or raise"):
            runtime.start(other)
    finally:
        cluster.objects.most_pods = None
    runtime.start(other)


@both_ways
def test_no_pod_starts_in_a_namespace_without_the_network_policy(runtime, cluster, launch):
    cluster.objects.delete("networkpolicies", POLICY, {})
    try:
        with pytest.raises(RuntimeCallFailed, match=r"the namespace agents has no NetworkPolicy .* kubectl apply -k"):
            runtime.start(launch)
    finally:
        [policy] = [one for one in documents("network-policy.yaml") if one["metadata"]["name"] == POLICY]
        cluster.objects.create("networkpolicies", policy)
    assert resources(cluster) == set()


@pytest.fixture
def held(cluster, host):
    """A runtime that knows the image of the way out, in a cluster that has the Services of deploy/kubernetes."""
    for name in ("server.yaml", "egress.yaml"):
        [service] = [one for one in documents(name) if one["kind"] == "Service"]
        cluster.objects.create("services", service)
    return KubernetesRuntime(host, egress_image="agent-server:latest", clock=itertools.count().__next__)


def named(launch: Launch, **changes) -> Launch:
    hooks = "http://agent-server:8000/api/v1/webhooks"
    return replace(launch, network="named", hook_key="hook", webhooks=hooks, **changes)


def address_of(cluster, service: str) -> str:
    return cluster.objects.get("services", service)["spec"]["clusterIP"]


def test_a_pod_whose_way_out_is_named_knows_the_addresses_of_the_webhooks_and_the_proxy_alone(held, cluster, launch):
    handle = until_running(held, cluster, named(launch))

    pod = pod_of(cluster, launch)
    addresses = {one["hostnames"][0]: one["ip"] for one in pod["spec"]["hostAliases"]}
    assert addresses == {name: address_of(cluster, name) for name in ("agent-server", "agent-server-egress")}
    assert pod["metadata"]["labels"]["agent-server.egress"] == "named"
    assert [one["image"] for one in pod["spec"]["initContainers"]] == ["agent-server:latest"]
    assert (handle["egress_url"], handle["isolation"]["network"]) == ("http://127.0.0.1:11023", "named")
    held.stop(handle)
    closed = held.start(replace(named(launch), network="none", start=2))
    assert "egress_url" not in closed
    assert pod_of(cluster, launch)["metadata"]["labels"]["agent-server.egress"] == "none"


@pytest.mark.kubernetes("starts no pod, and waits for none")
def test_no_pod_with_a_named_way_out_starts_where_a_part_of_it_is_missing(runtime, held, cluster, launch):
    with pytest.raises(RuntimeCallFailed, match="set KUBERNETES_EGRESS_IMAGE"):
        runtime.start(named(launch))
    policies = {one["metadata"]["name"]: one for one in documents("network-policy.yaml")}
    everybody = {"matchExpressions": [{"key": "agent-server.sandbox", "operator": "Exists"}]}
    earlier = {**policies[POLICY], "spec": {**policies[POLICY]["spec"], "podSelector": everybody}}
    for name, other, sentence in (
        (HELD_POLICY, None, f"has no NetworkPolicy {HELD_POLICY}"),
        (POLICY, earlier, "holds for sandboxes whose spec says egress too"),
    ):
        cluster.objects.delete("networkpolicies", name, {})
        try:
            if other:
                cluster.objects.create("networkpolicies", other)
            with pytest.raises(RuntimeCallFailed, match=sentence):
                held.start(named(launch))
        finally:
            if other:
                cluster.objects.delete("networkpolicies", name, {})
            cluster.objects.create("networkpolicies", policies[name])
    cluster.objects.delete("services", "agent-server-egress", {})
    with pytest.raises(RuntimeCallFailed, match="has no Service agent-server-egress"):
        held.start(named(launch))
    assert resources(cluster) <= {"services"}


def test_a_right_that_is_missing_is_named_with_where_it_is(runtime, cluster, launch, monkeypatch):
    monkeypatch.setattr(cluster, "rules", [rule for rule in cluster.rules if "secrets" not in rule["resources"]])
    with pytest.raises(RuntimeCallFailed, match=r'cannot create resource "secrets".*deploy/kubernetes/rbac\.yaml'):
        runtime.start(launch)


def test_a_variable_whose_name_no_secret_can_have_is_refused_by_name(runtime, launch):
    with pytest.raises(RuntimeCallFailed, match=r"data\[A B\]"):
        runtime.start(replace(launch, env={"A B": "1"}))


@pytest.mark.kubernetes("starts two pods")
def test_what_a_pod_uses_is_what_the_metrics_server_says(cluster, host, launch, other, monkeypatch):
    now = iter(range(0, 600, 60))
    runtime = KubernetesRuntime(host, clock=lambda: next(now))
    assert runtime.usage(launch.sandbox_id) == ResourceUsage(None, None)
    monkeypatch.setattr(cluster, "memory", {name_of(launch.sandbox_id): "2048Ki"})
    assert runtime.usage(launch.sandbox_id) == ResourceUsage(2 << 20, None)
    assert runtime.usage(other.sandbox_id) == ResourceUsage(None, None)


@pytest.mark.kubernetes("starts two pods")
def test_a_look_at_every_sandbox_of_a_host_asks_the_cluster_once(cluster, host, launch, other):
    runtime = KubernetesRuntime(host, clock=lambda: 0.0)
    handles = [runtime.start(one) for one in (launch, other)]
    cluster.requests.clear()

    for _ in range(5):
        assert [runtime.observe(handle).state for handle in handles] == [ProcessState.RUNNING] * 2

    assert cluster.requests == ["list pods"]


@pytest.mark.kubernetes("starts two pods")
def test_a_page_of_a_long_list_is_followed_by_the_next(runtime, cluster, launch, other, monkeypatch):
    monkeypatch.setattr("runtimes.kubernetes.cluster._PAGE", 1)
    runtime.start(launch)
    runtime.start(other)
    assert {known["sandbox_id"] for known in runtime.known()} == {launch.sandbox_id, other.sandbox_id}


def test_an_api_server_that_does_not_answer_is_named(cluster, tmp_path, monkeypatch, launch):
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "nobody", url=url)))
    runtime = KubernetesRuntime("host-a")
    with pytest.raises(RuntimeCallFailed, match=f"cannot be started: no API server responds at {url}"):
        runtime.start(launch)
    assert runtime.known() == []
    assert runtime.usage(launch.sandbox_id) == ResourceUsage(None, None)
    for call in (lambda: runtime.remove("box"), lambda: next(runtime.pack(launch))):
        with pytest.raises(RuntimeCallFailed, match="no API server responds"):
            call()


def test_credentials_that_are_refused_are_named(cluster, tmp_path, monkeypatch, launch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "stranger", token="another")))
    with pytest.raises(RuntimeCallFailed, match="does not accept the supervisor's credentials"):
        KubernetesRuntime("host-a").start(launch)


@pytest.mark.parametrize("text", [None, "", "clusters: 7"])
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path, monkeypatch, launch, text):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(RuntimeCallFailed, match="no cluster is configured: set KUBECONFIG"):
        KubernetesRuntime("host-a").start(launch)


def test_a_start_without_the_package_names_the_package_to_install(monkeypatch, launch):
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(RuntimeCallFailed, match=r"pip install -r requirements/kubernetes\.txt"):
        KubernetesRuntime("host-a").start(launch)


def test_a_supervisor_without_such_a_spec_asks_no_cluster(cluster, host):
    asked = len(cluster.requests)
    assert KubernetesRuntime(host, in_use=False).known() == []
    assert len(cluster.requests) == asked
