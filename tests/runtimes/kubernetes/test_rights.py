"""The supervisor's Role grants what the runtime asks for, and nothing else."""

from dataclasses import replace

import pytest

from runtimes.kubernetes.manifests import name_of
from tests.runtimes.kubernetes.conftest import both_ways, documents
from tests.runtimes.kubernetes.test_pods import until_running

pytestmark = pytest.mark.kubernetes("starts pods, and removes them")

#: newer clusters ask for this one when a command is run in a pod, older ones for `get`
EITHER = "create pods/exec"

#: the group of which a cluster without agent-sandbox is asked nothing
SANDBOXES = "agents.x-k8s.io"


@both_ways
def test_each_right_is_used_and_none_is_missing(runtime, cluster, launch, other, way):
    cluster.requests.clear()
    cluster.memory[name_of(launch.sandbox_id)] = "1Mi"
    handle = until_running(runtime, cluster, launch)
    archive = b"".join(runtime.pack(launch))
    runtime.unpack(other, [archive])
    runtime.logs(handle, 9)
    runtime.usage(launch.sandbox_id)
    runtime.observe(handle)
    runtime.known()
    runtime.pause(handle)
    leftover = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name_of(launch.sandbox_id)}}
    cluster.objects.create("secrets", leftover)
    until_running(runtime, cluster, replace(launch, start=2))
    runtime.remove(launch.sandbox_id)

    [role] = [one for one in documents("rbac.yaml") if one["kind"] == "Role"]
    granted = {
        f"{verb} {resource} {group}".rstrip()
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if group != SANDBOXES or way == "agent-sandbox"
    }
    assert granted - {EITHER} == set(cluster.requests)
