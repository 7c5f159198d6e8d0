"""For sandboxes as pods: a cluster of this test process's own, whose account has the rights of deploy/kubernetes."""

import contextlib
import itertools
import sys
from dataclasses import replace
from importlib import import_module
from uuid import uuid4

import pytest
import yaml

from runtimes import Launch
from runtimes.kubernetes import KubernetesRuntime
from tests.kubernetes_api import KubernetesApi
from tests.kubernetes_api.objects import ApiError
from tests.servers import PROJECT, free_port, wait_until

DEPLOY = PROJECT / "deploy/kubernetes"

#: the kinds of objects that a sandbox is
KINDS = ("sandboxes", "pods", "services", "secrets", "persistentvolumeclaims")

#: runs a test twice: where the runtime makes the pods, and where agent-sandbox's controller does
both_ways = pytest.mark.parametrize(
    "way",
    ["pods", pytest.param("agent-sandbox", marks=pytest.mark.kubernetes("the same by agent-sandbox's controller"))],
    indirect=True,
)

PRINTS_AND_STAYS = "import sys, time; print(*sys.argv[1:], sep='\\n', flush=True); time.sleep(600)"


def documents(name: str) -> list[dict]:
    """The manifests of a file of deploy/kubernetes."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def resources(cluster: KubernetesApi) -> set[str]:
    """The kinds of which the cluster has objects of sandboxes."""
    return {kind for kind in KINDS if cluster.objects.all(kind)}


@pytest.fixture(scope="module")
def cluster_of_module(tmp_path_factory):
    [role] = [one for one in documents("rbac.yaml") if one["kind"] == "Role"]
    for name in ("config", "client.api.core_v1_api", "client.api.networking_v1_api", "client.api.custom_objects_api"):
        import_module(f"kubernetes.{name}")  # takes seconds, once in a process
    api = KubernetesApi(tmp_path_factory.mktemp("cluster"), role["rules"])
    for policy in documents("network-policy.yaml"):
        api.objects.create("networkpolicies", policy)
    api.node.images["agent:1"] = []
    yield api
    api.close()


@pytest.fixture
def way(request):
    """What the cluster has: `pods` alone, or `agent-sandbox` too."""
    return getattr(request, "param", "pods")


@pytest.fixture
def cluster(cluster_of_module, tmp_path, monkeypatch, way):
    """The cluster, which the environment names; the objects of sandboxes are removed after the test."""
    api = cluster_of_module
    api.has_agent_sandbox = way == "agent-sandbox"
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    yield api
    for resource in KINDS:
        for one in api.objects.all(resource):
            with contextlib.suppress(ApiError):  # its end was faster
                api.objects.delete(resource, one["metadata"]["name"], {"gracePeriodSeconds": 0})
    wait_until(lambda: not resources(api), "the end of every object")


@pytest.fixture
def host():
    """The name of a host of this test alone."""
    return f"tests-{uuid4().hex[:8]}"


@pytest.fixture
def runtime(cluster, host):
    """By its clock each look is a second after the last one: none shows what an earlier one saw."""
    return KubernetesRuntime(host, clock=itertools.count().__next__)


@pytest.fixture
def launch():
    """A sandbox that prints three lines and stays."""
    return Launch(
        f"Box_{uuid4().hex[:8]}",
        (sys.executable, "-c", PRINTS_AND_STAYS, "one", "two", "{AGENT_SERVER}"),
        {"GIVEN": "at {AGENT_SERVER}"},
        "/workspace",
        ports={"AGENT_SERVER": free_port(), "VSCODE": free_port()},
        image="agent:1",
    )


@pytest.fixture
def other(launch):
    """A second sandbox."""
    return replace(launch, sandbox_id=f"{launch.sandbox_id}-2")
