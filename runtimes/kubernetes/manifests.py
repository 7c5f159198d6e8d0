"""A sandbox as JSON of the public API: the manifests of its pod, service, volume and secret, and its state.

With agent-sandbox (agents.x-k8s.io), a Sandbox of its API has the name of the pod, which the controller creates and
ends. `podTemplate` is the pod of a start, and `operatingMode` its desired state. The runtime itself owns the volume,
the service and the secret: the volume is filled before there is a Sandbox, and survives a deletion of the Sandbox,
which would delete a volume of its `volumeClaimTemplates`.

The controller (agent-sandbox 0.5):
- creates a missing pod, also after somebody deleted it, but not after a pod ended by itself
- copies the template's labels to an existing pod, so a template changes only while there is no pod
- ends the pod of a suspended Sandbox, if it created that pod itself
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

from runtimes import Launch, Observation, ProcessState, RuntimeCallFailed, filled
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

#: Annotations with the exact ids of a sandbox and its host. Labels have only values of a restricted form.
SANDBOX_ID, HOST_ID = "agent-server.sandbox-id", "agent-server.host-id"

#: Label of a half-filled volume.
FILLING = "agent-server.filling"

#: The NetworkPolicy that must be in the namespace before a pod starts.
POLICY = "agent-server-sandboxes"

#: Label of a pod whose spec says `egress = "named"` or `"none"`, with that word; the NetworkPolicy that allows only the
#: webhooks and no resolver; the Service of the proxy, and its port.
HELD, HELD_POLICY, EGRESS_SERVICE, EGRESS_PORT = (
    "agent-server.egress",
    "agent-server-sandboxes-held",
    "agent-server-egress",
    8080,
)

#: A pod's port for the way out by name, on its own loopback.
_EGRESS_INSIDE = 11_023
EGRESS_URL = f"http://127.0.0.1:{_EGRESS_INSIDE}"

#: Key in a sandbox's secret: identifies it to the proxy.
_HOOK_KEY = "AGENT_SERVER_HOOK_KEY"

#: Default size of a volume, in bytes.
_VOLUME_BYTES = 10 << 30

#: Group of the working folder and of /tmp, added to the image's user.
_GROUP = 10001

#: Grace period between SIGTERM and SIGKILL, in seconds: of a pod, and of a pod without work to keep. With 0 a cluster
#: forgets a pod whose processes may be alive.
GRACE, NO_GRACE = 5, 1

#: Seconds after which the cluster ends a pod that only reads or fills a volume.
_CARRIER_SECONDS = 3600

#: The isolation of a pod, in the form of `runtimes/isolation/`.
ISOLATION = {
    "kind": "container",
    "network": "internet",
    "reaches": [f"What the NetworkPolicy {POLICY} of the cluster lets it reach, where the cluster enforces policies."],
    "lacks": [],
}


#: Matches the valid values of a label.
_LABEL = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)

#: Why a container will never start, and what to do. Source: the kubelet's reasons
_HOPELESS = {
    "InvalidImageName": "the name of its image is not valid: correct `image` of its spec",
    "ErrImageNeverPull": "its image is not on the node and must not be pulled",
    "ImagePullBackOff": "its image cannot be pulled: check `image` of its spec, and the registry's credentials",
    "CreateContainerConfigError": "its container cannot be created",
    "CreateContainerError": "its container cannot be created",
    "RunContainerError": "its container cannot be run",
}

_ROOM = "Add nodes, pause sandboxes, or lower the limits of its spec"

#: Lifetime of the cached answer whether the cluster serves the API, and of a failure, in seconds.
_ASKED = 5.0

#: Seconds for the controller to create a pod, and seconds of the same reported failure until the start fails with it.
_MADE, _FAILING = 30.0, 2.0


@dataclass(frozen=True)
class PodWayOut:
    """Settings of a pod without a resolver: addresses by name, and the image that carries its way out."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    image: str = ""


def name_of(sandbox_id: str) -> str:
    """Return the name of a sandbox's pod, service, volume and secret: short, without capitals, unlike the id."""
    return f"agent-server-{hashlib.sha256(sandbox_id.encode()).hexdigest()[:32]}"


def label(text: str) -> str:
    """Return an id as the value of a label: itself if valid, otherwise its digest."""
    return text if _LABEL.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:32]


def work_folder(launch: Launch) -> str:
    """Return the absolute path of the pod's persistent folder, never /."""
    return posixpath.normpath(launch.working_dir) if launch.working_dir.startswith("/") else WORK


def claim(launch: Launch, host: str) -> dict[str, Any]:
    """Return the claim of the sandbox's volume, in the cluster's default storage class."""
    size = str(launch.disk_bytes or _VOLUME_BYTES)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return _object("PersistentVolumeClaim", launch, host, spec=spec)


def service(launch: Launch, host: str) -> dict[str, Any]:
    """Return the service, whose address stays the same as long as the sandbox's files."""
    ports = [{"name": f"port-{port}", "port": port, "targetPort": port} for port in _ports(launch)]
    # An agent server is polled before it is ready; its response says whether it is.
    spec = {"selector": {SANDBOX: label(launch.sandbox_id)}, "ports": ports, "publishNotReadyAddresses": True}
    return _object("Service", launch, host, spec=spec)


def secret(launch: Launch, host: str) -> dict[str, Any]:
    """Return the secret with the environment and the sandbox's keys, hidden from readers of pods."""
    values = _values(launch)
    words = {name: filled(text, values) for name, text in launch.env.items()}
    if launch.network == NAMED:
        words[_HOOK_KEY] = launch.hook_key
    return _object("Secret", launch, host, type="Opaque", stringData=words)


def pod(launch: Launch, host: str, held: PodWayOut | None = None) -> dict[str, Any]:
    """Return the pod of one start. held: settings without a resolver. Raises RuntimeCallFailed without an image."""
    if not launch.image:
        raise RuntimeCallFailed("its spec names no image")
    memory, work = launch.memory_bytes or MEMORY_BYTES, work_folder(launch)
    name, values = name_of(launch.sandbox_id), _values(launch)
    folders = _folders(work, memory) if launch.read_only else {}
    limits = {"memory": str(memory), "cpu": f"{math.ceil((launch.cpus or CPUS) * 1000)}m"}
    container = {
        "name": "sandbox",
        "image": launch.image,
        # The image's entry point stays. The cluster would replace `$(NAME)`; `$$` escapes `$`.
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
        "shareProcessNamespace": True,  # so that the cluster's process 1 ends what the agent's commands leave
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


def _without_names(held: PodWayOut) -> dict[str, Any]:
    """Return the members of a pod without a resolver: it knows only the addresses of what it reaches."""
    aliases = [{"ip": address, "hostnames": [name]} for name, address in held.addresses.items()]
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}, "hostAliases": aliases}


def _way_out(name: str, image: str) -> dict[str, Any]:
    """Return the sidecar container that carries connections to the proxy, and starts before the sandbox's."""
    limits = {"memory": str(128 << 20), "cpu": "500m"}
    proxy = f"{EGRESS_SERVICE}:{EGRESS_PORT}"
    return {
        "name": "way-out",
        "image": image,
        "restartPolicy": "Always",  # makes it a sidecar, not an init container that ends first
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
    """Return a pod of the sandbox's image that has its volume, and waits. No service leads to it."""
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
    """Return the writable memory folders besides the working folder, for a read-only root."""
    sizes = {"/tmp": memory // 2, "/run": 16 << 20}
    return {
        path: {"name": path[1:], "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
        for path, size in sizes.items()
        if path != work
    }


def observation(pod: dict[str, Any]) -> Observation:
    """Return a pod's state. A wait for a node or an image is RUNNING; its agent server's timeout limits the wait."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    state = containers[0].get("state") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return Observation(ProcessState.GONE, "its pod is being deleted")
    if status.get("phase") in ("Succeeded", "Failed"):
        return Observation(ProcessState.GONE, _ending(status, state.get("terminated") or {}))
    waiting = state.get("waiting") or {}
    if hopeless := _HOPELESS.get(waiting.get("reason", "")):
        return Observation(ProcessState.GONE, f"{hopeless}: {waiting.get('message') or waiting['reason']}")
    if waiting:
        return Observation(
            ProcessState.RUNNING, f"its container waits: {waiting.get('message') or waiting.get('reason')}"
        )
    for condition in status.get("conditions") or []:
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return Observation(
                ProcessState.RUNNING, f"no node accepts its pod:  {condition.get('message', '')}. {_ROOM}"
            )
    return Observation(ProcessState.RUNNING)


def _ending(status: dict[str, Any], ended: dict[str, Any]) -> str:
    """Describe a pod's end as its node reports it. ended: the last state of its container."""
    if ended.get("reason") == "OOMKilled":
        return OUT_OF_MEMORY
    if status.get("reason"):  # Evicted, NodeLost, …
        return f"{status['reason']}: {status.get('message', '')}".rstrip(": ")
    if "exitCode" not in ended:
        return "how is not known"
    how = exit_sentence(int(ended["exitCode"]))
    return f"{how}: {ended['message']}" if ended.get("message") else how


def manifest(pod: Object) -> Object:
    metadata = pod["metadata"]
    template = {"metadata": {part: metadata[part] for part in ("labels", "annotations")}, "spec": pod["spec"]}
    spec = {"podTemplate": template, "operatingMode": "Running", "service": False}
    api = f"{SANDBOX_GROUP}/{SANDBOX_VERSION}"
    return {"apiVersion": api, "kind": "Sandbox", "metadata": metadata, "spec": spec}


def managed(pod: Object) -> bool:
    """Return whether a Sandbox created this pod. Then only its controller ends it."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(one["kind"] == "Sandbox" and one["apiVersion"].startswith(f"{SANDBOX_GROUP}/") for one in owners)


class AgentSandboxes:
    """The Sandboxes of one namespace. Thread-safe. Every method raises RuntimeCallFailed."""

    def __init__(self, cluster: Cluster, wanted: str, clock: Callable[[], float]) -> None:
        """wanted: the setting KUBERNETES_SANDBOXES, `auto`, `pods` or `agent-sandbox`. clock: seconds."""
        self._cluster = cluster
        self._wanted = wanted
        self._served = Snapshot(cluster.serves_sandboxes, _ASKED, clock)

    def in_use(self) -> bool:
        """Return whether a start creates a Sandbox instead of a pod."""
        if self._wanted == "pods":
            return False
        served = self._served.value()
        if self._wanted == "agent-sandbox" and not served:
            raise RuntimeCallFailed(
                f"KUBERNETES_SANDBOXES is agent-sandbox, and the cluster does not serve {SANDBOX_GROUP}/"
                f"{SANDBOX_VERSION}: install agent-sandbox 0.5 or newer"
            )
        return served

    def start(self, pod: Object) -> Object:
        """Create the Sandbox of a pod, or let it run that pod next. Return the pod that its controller created.

        There is no pod of an earlier start. A start that comes too late changes nothing.
        """
        body = manifest(pod)
        name, start = body["metadata"]["name"], body["metadata"]["labels"][START]
        if self._cluster.create(ObjectKind.SANDBOX, body) is None:
            known = self._cluster.find(ObjectKind.SANDBOX, name)
            if known is None or "deletionTimestamp" in known["metadata"]:
                raise RuntimeCallFailed("its Sandbox was deleted meanwhile")
            before = known["metadata"]["labels"].get(START, "0")
            _check_order(before, start)
            path = f"/metadata/labels/{START}"
            changes = [
                {"op": "test", "path": path, "value": before},  # otherwise another start was faster
                {"op": "replace", "path": path, "value": start},
                {"op": "replace", "path": "/spec", "value": body["spec"]},
            ]
            self._cluster.change(ObjectKind.SANDBOX, name, changes)
        return self._made(name, start)

    def suspend(self, name: str) -> None:
        """Let the controller end the pod of a Sandbox. Does nothing without a Sandbox of that name."""
        if self._served.value():
            try:
                changes = [{"op": "add", "path": "/spec/operatingMode", "value": "Suspended"}]
                self._cluster.change(ObjectKind.SANDBOX, name, changes)
            except ClusterRefused as refusal:
                if refusal.status != 404:
                    raise

    def remove(self, name: str) -> None:
        """Delete a Sandbox whose pod has ended."""
        if self._served.value():
            self._cluster.delete(ObjectKind.SANDBOX, name)

    def _made(self, name: str, start: str) -> Object:
        """Wait for the pod of a start. On timeout, suspend the Sandbox, because its controller goes on."""
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
                raise RuntimeCallFailed("its Sandbox was deleted meanwhile")
            _check_order(sandbox["metadata"]["labels"].get(START, "0"), start)
            now, failure = time.monotonic(), _failure(sandbox)
            failing = min(failing, now + _FAILING) if failure else float("inf")
            if now > min(deadline, failing):
                self.suspend(name)
                raise RuntimeCallFailed(
                    failure or f"agent-sandbox's controller made no pod in {_MADE:g} s. Check that it runs"
                )
            time.sleep(POLL)


def _check_order(seen: str, start: str) -> None:
    if int(seen) > int(start):
        raise RuntimeCallFailed(f"it was started again meanwhile: start {seen}")


def _failure(sandbox: Object) -> str:
    """Return why the controller creates no pod, and what to do; "" if it reports no failure."""
    for condition in (sandbox.get("status") or {}).get("conditions") or []:
        current = condition.get("observedGeneration") == sandbox["metadata"]["generation"]
        if current and (condition["type"], condition.get("reason")) == ("Ready", "ReconcilerError"):
            message = str(condition.get("message", ""))
            return message + (MORE_ROOM if "exceeded quota" in message else "")
    return ""
