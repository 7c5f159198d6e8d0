"""What the runtime sends: each object has the fields that Kubernetes publishes for its kind, and no other."""

from dataclasses import replace

import pytest

from runtimes.kubernetes import agent_sandbox
from runtimes.kubernetes.manifests import carrier, claim, pod, secret, service
from tests.kubernetes_api.schemas import NEWEST, OLDEST, fault


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_each_object_of_a_sandbox_has_the_published_fields_and_no_other(launch, version):
    limited = replace(launch, memory_bytes=1 << 28, cpus=0.5, disk_bytes=1 << 30)
    loose = replace(launch, read_only=False, capabilities=("NET_RAW",), new_privileges=True)
    for one in (launch, limited, loose):
        objects = [claim(one, "host"), service(one, "host"), secret(one, "host"), pod(one, "host")]
        objects += [carrier(one, "host", "identity"), agent_sandbox.manifest(pod(one, "host"))]
        assert [fault(found, version) for found in objects] == [""] * 6


def test_a_pod_that_a_sandbox_would_not_take_is_found(launch):
    sandbox = agent_sandbox.manifest(pod(launch, "host"))
    [container] = sandbox["spec"]["podTemplate"]["spec"]["containers"]
    container["workingFolder"] = "/"
    assert "'workingFolder' was unexpected" in fault(sandbox)


def test_a_pod_is_hardened_unless_its_launch_loosens_it(launch):
    spec = pod(launch, "host")["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": []},
    }
    loose = replace(launch, read_only=False, capabilities=("NET_RAW",), new_privileges=True)
    made = agent_sandbox.manifest(pod(loose, "host"))["spec"]["podTemplate"]["spec"]
    assert made["containers"][0]["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": True,
        "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
    }
    assert made["securityContext"] == spec["securityContext"]
    assert made["automountServiceAccountToken"] is made["enableServiceLinks"] is False
