"""A sandbox as JSON of the public API: the manifests of its pod, service, volume and secret, and its state.

Where agent-sandbox (agents.x-k8s.io) is used, a Sandbox of its API has the name of the pod, which the controller makes
and ends. `podTemplate` is the pod of a start and `operatingMode` what it shall be. The volume, the service and the
secret are the runtime's own in any case: the volume is filled before there is a Sandbox, and lives on where somebody
deletes the Sandbox, which would take a volume of its `volumeClaimTemplates` with it.

The controller (agent-sandbox 0.5):
- makes a pod where there is none, also after somebody deleted one, and none after one that ended by itself
- copies the template's labels to a pod that is there, so a template changes only while there is no pod
- ends the pod of a suspended Sandbox, if it made that pod itself
"""

import hashlib
import math
import posixpath
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from runtimes import Launch, Observation, RuntimeFailure, State, filled
from runtimes.containers import CARRIER, CPUS, HOST, MEMORY_BYTES, OUT_OF_MEMORY, SANDBOX, START, WORK, exit_sentence
from runtimes.isolation import NAMED
from runtimes.kubernetes.cluster import (
    MORE_ROOM,
    POLL,
    SANDBOX_GROUP,
    SANDBOX_VERSION,
    Cluster,
    ClusterRefused,
    Object,
    ObjectKind,
    Snapshot,
)

#: annotations with the exact ids of a sandbox and of its host, of which labels have no more than fits one
SANDBOX_ID, HOST_ID = "agent-server.sandbox-id", "agent-server.host-id"

#: label of a volume that is only half filled
FILLING = "agent-server.filling"

#: the NetworkPolicy that must be in the namespace before a pod starts there
POLICY = "agent-server-sandboxes"

#: label of a pod whose spec says `egress = "named"` or `"none"`, with that word; the NetworkPolicy that lets it reach
#: the webhooks, and no resolver; the Service of the proxy, and its port
HELD, HELD_POLICY, EGRESS_SERVICE, EGRESS_PORT = (
    "agent-server.egress",
    "agent-server-sandboxes-held",
    "agent-server-egress",
    8080,
)

#: where a pod finds its way out by name on its own loopback
_EGRESS_INSIDE = 11_023
EGRESS_URL = f"http://127.0.0.1:{_EGRESS_INSIDE}"

#: in the secret of a sandbox, what its way out shows the proxy
_HOOK_KEY = "AGENT_SERVER_HOOK_KEY"

#: bytes of a volume whose spec has no limit of its files
_VOLUME_BYTES = 10 << 30

#: group of the working folder and of /tmp, which the image's user gets beside its own
_GROUP = 10001

#: seconds between SIGTERM and SIGKILL: of a pod, and of one whose work is not kept. Of 0 a cluster forgets a pod whose
#: processes may live
GRACE, NO_GRACE = 5, 1

#: seconds after which the cluster ends a pod that only reads or fills a volume
_CARRIER_SECONDS = 3600

#: what a pod is kept away from, as `runtimes/isolation/` has it for processes
ISOLATION = {
    "kind": "container",
    "network": "internet",
    "reaches": [f"What the NetworkPolicy {POLICY} of the cluster lets it reach, where the cluster enforces policies."],
    "lacks": [],
}


#: what a label can have as its value
_LABEL = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)

#: why a container waits that will not start by itself, and what to do. Source: the kubelet's reasons
_HOPELESS = {
    "InvalidImageName": "the name of its image is not valid: correct `image` of its spec",
    "ErrImageNeverPull": "its image is not on the node and may not be pulled",
    "ImagePullBackOff": "its image cannot be pulled: check `image` of its spec, and the registry's credentials",
    "CreateContainerConfigError": "its container cannot be made",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be run",
}

_ROOM = "Add nodes, pause sandboxes, or lower the limits of its spec"

#: seconds for which the cluster is not asked again whether it serves the API; a failure of that question lasts as long
_ASKED = 5.0

#: seconds in which the controller makes a pod; and those for which it reports one failure, which it retries, until that
#: failure is the start's
_MADE, _FAILING = 30.0, 2.0


@dataclass(frozen=True)
class Held:
    """What a pod that reaches no resolver is given: addresses by names, and the image that carries its way out."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    image: str = ""


def name_of(sandbox_id: str) -> str:
    """The name of a sandbox's pod, service, volume and secret. Names have small letters only, and ids are longer."""
    return f"agent-server-{hashlib.sha256(sandbox_id.encode()).hexdigest()[:32]}"


def label(text: str) -> str:
    """An id as the value of a label: itself where that is allowed, else its digest."""
    return text if _LABEL.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:32]


def work_folder(launch: Launch) -> str:
    """The folder of the pod that is kept, an absolute path but /."""
    return posixpath.normpath(launch.working_dir) if launch.working_dir.startswith("/") else WORK


def claim(launch: Launch, host: str) -> dict[str, Any]:
    """The claim of the sandbox's volume, in the cluster's default storage class."""
    size = str(launch.disk_bytes or _VOLUME_BYTES)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return _object("PersistentVolumeClaim", launch, host, spec=spec)


def service(launch: Launch, host: str) -> dict[str, Any]:
    """The service, whose address stays the same as long as the sandbox's files."""
    ports = [{"name": f"port-{port}", "port": port, "targetPort": port} for port in _ports(launch)]
    # An agent server is asked before it is ready: the answer tells that it is.
    spec = {"selector": {SANDBOX: label(launch.sandbox_id)}, "ports": ports, "publishNotReadyAddresses": True}
    return _object("Service", launch, host, spec=spec)


def secret(launch: Launch, host: str) -> dict[str, Any]:
    """The environment, with the sandbox's keys: whoever may read pods does not see them."""
    values = _values(launch)
    words = {name: filled(text, values) for name, text in launch.env.items()}
    if launch.network == NAMED:
        words[_HOOK_KEY] = launch.hook_key
    return _object("Secret", launch, host, type="Opaque", stringData=words)


def pod(launch: Launch, host: str, held: Held | None = None) -> dict[str, Any]:
    """The pod of one start. held: of one that asks no resolver. Raises RuntimeFailure for a launch without an image."""
    if not launch.image:
        raise RuntimeFailure("its spec names no image")
    memory, work = launch.memory_bytes or MEMORY_BYTES, work_folder(launch)
    name, values = name_of(launch.sandbox_id), _values(launch)
    folders = _folders(work, memory) if launch.read_only else {}
    limits = {"memory": str(memory), "cpu": f"{math.ceil((launch.cpus or CPUS) * 1000)}m"}
    container = {
        "name": "sandbox",
        "image": launch.image,
        # The image's entry point stays. The cluster would replace `$(NAME)`; `$$` is its way to write one `$`.
        "args": [filled(word, values).replace("$(", "$$(") for word in launch.command],
        "envFrom": [{"secretRef": {"name": name}}],
        "workingDir": work,
        "ports": [{"containerPort": port} for port in _ports(launch)],
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": [
            {"name": "work", "mountPath": work},
            *({"name": volume["name"], "mountPath": path} for path, volume in folders.items()),
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": launch.new_privileges,
            "readOnlyRootFilesystem": launch.read_only,
            "capabilities": {"drop": ["ALL"], "add": list(launch.capabilities)},
        },
    }
    spec = {
        "restartPolicy": "Never",  # the supervisor starts it again, under another number and with other keys
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # so that the cluster's own process 1 ends what the agent's commands leave
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": {
            "fsGroup": _GROUP,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": name}}, *folders.values()],
    }
    made = _object("Pod", launch, host, spec=spec)
    made["metadata"]["labels"][START] = str(launch.start)
    if held is not None:
        made["metadata"]["labels"][HELD] = str(launch.network)
        spec |= _without_names(held)
        if launch.network == NAMED:
            spec["initContainers"] = [_way_out(name, held.image)]
    return made


def _without_names(held: Held) -> dict[str, Any]:
    """The members of a pod that asks no resolver: it knows the addresses of what it reaches, and no others."""
    aliases = [{"ip": address, "hostnames": [name]} for name, address in held.addresses.items()]
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}, "hostAliases": aliases}


def _way_out(name: str, image: str) -> dict[str, Any]:
    """The container beside the sandbox's that carries its connections to the proxy, and begins before it."""
    limits = {"memory": str(128 << 20), "cpu": "500m"}
    proxy = f"{EGRESS_SERVICE}:{EGRESS_PORT}"
    return {
        "name": "way-out",
        "image": image,
        "restartPolicy": "Always",  # so it runs beside the sandbox, and not before it alone
        "command": ["python", "-m", "runtimes.isolation.hooks", str(_EGRESS_INSIDE), proxy],
        "env": [
            {"name": "HOOK_KEY", "valueFrom": {"secretKeyRef": {"name": name, "key": _HOOK_KEY}}},
            {"name": "PYTHONPATH", "value": "/app"},
        ],
        "resources": {"limits": limits, "requests": {"memory": limits["memory"], "cpu": "10m"}},
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def carrier(launch: Launch, host: str, identity: str) -> dict[str, Any]:
    """A pod of the sandbox's image that has its volume, and waits. No service leads to it."""
    made = pod(launch, host)
    labels = {CARRIER: identity, HOST: label(host)}
    made["metadata"] = {"name": f"{made['metadata']['name']}-{uuid4().hex[:8]}", "labels": labels}
    [container] = made["spec"]["containers"]
    container |= {"command": ["sleep", str(_CARRIER_SECONDS)], "args": [], "envFrom": [], "ports": []}
    made["spec"]["activeDeadlineSeconds"] = _CARRIER_SECONDS
    return made


def _object(kind: str, launch: Launch, host: str, **parts: Any) -> dict[str, Any]:
    metadata = {
        "name": name_of(launch.sandbox_id),
        "labels": {SANDBOX: label(launch.sandbox_id), HOST: label(host)},
        "annotations": {SANDBOX_ID: launch.sandbox_id, HOST_ID: host},
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **parts}


def _values(launch: Launch) -> dict[str, object]:
    return {**launch.ports, "WORK": work_folder(launch), "WEBHOOKS": launch.webhooks, "EGRESS": EGRESS_URL}


def _ports(launch: Launch) -> list[int]:
    return sorted(set(launch.ports.values()))


def _folders(work: str, memory: int) -> dict[str, Any]:
    """The folders of memory that are writable beside the working folder, where the root is not."""
    sizes = {"/tmp": memory // 2, "/run": 16 << 20}
    return {
        path: {"name": path[1:], "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
        for path, size in sizes.items()
        if path != work
    }


def observation(pod: dict[str, Any]) -> Observation:
    """A pod that waits for a node or an image is RUNNING; its agent server's time to answer bounds the wait."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    state = containers[0].get("state") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return Observation(State.GONE, "its pod is being removed")
    if status.get("phase") in ("Succeeded", "Failed"):
        return Observation(State.GONE, _ending(status, state.get("terminated") or {}))
    waiting = state.get("waiting") or {}
    if hopeless := _HOPELESS.get(waiting.get("reason", "")):
        return Observation(State.GONE, f"{hopeless}: {waiting.get('message') or waiting['reason']}")
    if waiting:
        return Observation(State.RUNNING, f"its container waits: {waiting.get('message') or waiting.get('reason')}")
    for condition in status.get("conditions") or []:
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return Observation(State.RUNNING, f"no node takes its pod: {condition.get('message', '')}. {_ROOM}")
    return Observation(State.RUNNING)


def _ending(status: dict[str, Any], ended: dict[str, Any]) -> str:
    """How a pod ended, as its node reports it. ended: the last state of its container."""
    if ended.get("reason") == "OOMKilled":
        return OUT_OF_MEMORY
    if status.get("reason"):  # Evicted, NodeLost, …
        return f"{status['reason']}: {status.get('message', '')}".rstrip(": ")
    if "exitCode" not in ended:
        return "how is not known"
    how = exit_sentence(int(ended["exitCode"]))
    return f"{how}: {ended['message']}" if ended.get("message") else how


def manifest(pod: Object) -> Object:
    """The Sandbox that makes this pod."""
    metadata = pod["metadata"]
    template = {"metadata": {part: metadata[part] for part in ("labels", "annotations")}, "spec": pod["spec"]}
    spec = {"podTemplate": template, "operatingMode": "Running", "service": False}
    api = f"{SANDBOX_GROUP}/{SANDBOX_VERSION}"
    return {"apiVersion": api, "kind": "Sandbox", "metadata": metadata, "spec": spec}


def managed(pod: Object) -> bool:
    """Whether a Sandbox made this pod, whose controller alone ends it."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(one["kind"] == "Sandbox" and one["apiVersion"].startswith(f"{SANDBOX_GROUP}/") for one in owners)


class AgentSandboxes:
    """The Sandboxes of one namespace. Any number of threads may use it. Every method raises RuntimeFailure."""

    def __init__(self, cluster: Cluster, wanted: str, clock: Callable[[], float]) -> None:
        """wanted: `auto`, `pods` or `agent-sandbox`, as the setting KUBERNETES_SANDBOXES has it. clock: seconds."""
        self._cluster = cluster
        self._wanted = wanted
        self._served = Snapshot(cluster.serves_sandboxes, _ASKED, clock)

    def in_use(self) -> bool:
        """Whether a start makes a Sandbox, and not a pod."""
        if self._wanted == "pods":
            return False
        served = self._served.value()
        if self._wanted == "agent-sandbox" and not served:
            raise RuntimeFailure(
                f"KUBERNETES_SANDBOXES is agent-sandbox, and the cluster does not serve {SANDBOX_GROUP}/"
                f"{SANDBOX_VERSION}: install agent-sandbox 0.5 or newer"
            )
        return served

    def start(self, pod: Object) -> Object:
        """Make the Sandbox of a pod, or have it run that pod next; the pod that its controller made.

        There is no pod of an earlier start. A start that comes too late changes nothing.
        """
        body = manifest(pod)
        name, start = body["metadata"]["name"], body["metadata"]["labels"][START]
        if self._cluster.create(ObjectKind.SANDBOX, body) is None:
            known = self._cluster.find(ObjectKind.SANDBOX, name)
            if known is None or "deletionTimestamp" in known["metadata"]:
                raise RuntimeFailure("its Sandbox was removed meanwhile")
            before = known["metadata"]["labels"].get(START, "0")
            _check_order(before, start)
            path = f"/metadata/labels/{START}"
            changes = [
                {"op": "test", "path": path, "value": before},  # else another start was faster
                {"op": "replace", "path": path, "value": start},
                {"op": "replace", "path": "/spec", "value": body["spec"]},
            ]
            self._cluster.change(ObjectKind.SANDBOX, name, changes)
        return self._made(name, start)

    def suspend(self, name: str) -> None:
        """Have the controller end the pod of a Sandbox; nothing where there is no Sandbox of that name."""
        if self._served.value():
            try:
                changes = [{"op": "add", "path": "/spec/operatingMode", "value": "Suspended"}]
                self._cluster.change(ObjectKind.SANDBOX, name, changes)
            except ClusterRefused as refusal:
                if refusal.status != 404:
                    raise

    def remove(self, name: str) -> None:
        """Remove a Sandbox, whose pod has ended."""
        if self._served.value():
            self._cluster.delete(ObjectKind.SANDBOX, name)

    def _made(self, name: str, start: str) -> Object:
        """Wait for the pod of a start. The Sandbox is suspended where there is none, for its controller goes on."""
        deadline, failing = time.monotonic() + _MADE, float("inf")
        while True:
            pod = self._cluster.find(ObjectKind.POD, name)
            if pod is not None:
                labelled = pod["metadata"]["labels"].get(START, "0")
                _check_order(labelled, start)
                if labelled == start and "deletionTimestamp" not in pod["metadata"]:
                    return pod
            sandbox = self._cluster.find(ObjectKind.SANDBOX, name)
            if sandbox is None:
                raise RuntimeFailure("its Sandbox was removed meanwhile")
            _check_order(sandbox["metadata"]["labels"].get(START, "0"), start)
            now, failure = time.monotonic(), _failure(sandbox)
            failing = min(failing, now + _FAILING) if failure else float("inf")
            if now > min(deadline, failing):
                self.suspend(name)
                raise RuntimeFailure(
                    failure or f"agent-sandbox's controller has made no pod in {_MADE:g} s: see whether it runs"
                )
            time.sleep(POLL)


def _check_order(seen: str, start: str) -> None:
    if int(seen) > int(start):
        raise RuntimeFailure(f"it was started again meanwhile: start {seen}")


def _failure(sandbox: Object) -> str:
    """Why the controller makes no pod, and what to do; empty where it reports no failure."""
    for condition in (sandbox.get("status") or {}).get("conditions") or []:
        current = condition.get("observedGeneration") == sandbox["metadata"]["generation"]
        if current and (condition["type"], condition.get("reason")) == ("Ready", "ReconcilerError"):
            message = str(condition.get("message", ""))
            return message + (MORE_ROOM if "exceeded quota" in message else "")
    return ""
