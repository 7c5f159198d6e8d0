"""A sandbox as plain JSON of the public API: the manifests of its pod, service, volume and secret, and its state."""

import hashlib
import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from runtimes import Launch, Observation, RuntimeFailure, State, filled
from runtimes.containers import CPUS, HOST, MEMORY_BYTES, OUT_OF_MEMORY, SANDBOX, START, WORK, exit_sentence
from runtimes.isolation import NAMED

#: annotations with the exact ids of a sandbox and of its host, of which labels have no more than fits one
SANDBOX_ID, HOST_ID = "agent-server.sandbox-id", "agent-server.host-id"

#: label of a pod that only reads or fills a volume: the identity of the runtime that made it; and of a volume that is
#: only half filled
CARRIER, FILLING = "agent-server.carrier", "agent-server.filling"

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


@dataclass(frozen=True)
class Held:
    """What a pod that reaches no resolver is given: addresses by names, and the image that carries its way out."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    image: str = ""


#: what a label can have as its value
_LABEL = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)


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


#: why a container waits that will not start by itself, and what to do. Source: the kubelet's reasons
_HOPELESS = {
    "InvalidImageName": "the name of its image is not valid: correct `image` of its spec",
    "ErrImageNeverPull": "its image is not on the node and may not be pulled",
    "ImagePullBackOff": "its image cannot be pulled: check `image` of its spec, and the registry's credentials",
    "CreateContainerConfigError": "its container cannot be made",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be run",
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


_ROOM = "Add nodes, pause sandboxes, or lower the limits of its spec"


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
