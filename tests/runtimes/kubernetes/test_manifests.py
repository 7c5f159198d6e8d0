"""What the runtime sends: each object has the fields that Kubernetes publishes for its kind, and no other."""

from dataclasses import replace

import pytest

from runtimes.kubernetes.manifests import PodWayOut, carrier, claim, manifest, pod, secret, service
from tests.kubernetes_api.schemas import NEWEST, OLDEST, fault


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_each_object_of_a_sandbox_has_the_published_fields_and_no_other(launch, version):
    limited = replace(launch, memory_bytes=1 << 28, cpus=0.5, disk_bytes=1 << 30)
    loose = replace(launch, read_only=False, capabilities=("NET_RAW",), new_privileges=True)
    named, closed = replace(launch, network="named", hook_key="hook"), replace(launch, network="none")
    held = PodWayOut({"agent-server": "10.0.0.7"}, "agent-server:latest")
    for one, way_out in ((launch, None), (limited, None), (loose, None), (named, held), (closed, held)):
        made = pod(one, "host", way_out)
        objects = [claim(one, "host"), service(one, "host"), secret(one, "host"), made]
        objects += [carrier(one, "host", "identity"), manifest(made)]
        assert [fault(found, version) for found in objects] == [""] * 6


def test_a_pod_that_a_sandbox_would_not_take_is_found(launch):
    sandbox = manifest(pod(launch, "host"))
    [container] = sandbox["spec"]["podTemplate"]["spec"]["containers"]
    container["workingFolder"] = "/"
    assert "'workingFolder' was unexpected" in fault(sandbox)


def test_a_pod_whose_way_out_is_named_has_its_label_no_resolver_and_a_container_that_carries_with_its_hook_key(launch):
    named = replace(launch, network="named", hook_key="hook", env={"HTTPS_PROXY": "{EGRESS}"})
    made = pod(named, "host", PodWayOut({"agent-server": "10.0.0.7"}, "agent-server:latest"))
    [carries] = made["spec"]["initContainers"]
    [of_key, _] = carries["env"]

    assert made["metadata"]["labels"]["agent-server.egress"] == "named"
    assert made["spec"]["dnsPolicy"] == "None"
    assert made["spec"]["hostAliases"] == [{"ip": "10.0.0.7", "hostnames": ["agent-server"]}]
    assert (carries["image"], carries["restartPolicy"]) == ("agent-server:latest", "Always")
    assert secret(named, "host")["stringData"][of_key["valueFrom"]["secretKeyRef"]["key"]] == "hook"
    assert secret(named, "host")["stringData"]["HTTPS_PROXY"] == f"http://127.0.0.1:{carries['command'][3]}"
    assert carries["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_pod_whose_way_out_is_closed_has_a_label_and_nothing_that_carries(launch):
    made = pod(replace(launch, network="none", hook_key="hook"), "host", PodWayOut({}))
    assert made["metadata"]["labels"]["agent-server.egress"] == "none"
    assert "initContainers" not in made["spec"]
    assert "hook" not in secret(replace(launch, network="none", hook_key="hook"), "host")["stringData"].values()


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
    made = manifest(pod(loose, "host"))["spec"]["podTemplate"]["spec"]
    assert made["containers"][0]["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": True,
        "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
    }
    assert made["securityContext"] == spec["securityContext"]
    assert made["automountServiceAccountToken"] is made["enableServiceLinks"] is False
