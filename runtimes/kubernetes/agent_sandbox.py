"""Sandboxes as objects of agent-sandbox (agents.x-k8s.io), whose controller makes the pod and ends it.

A Sandbox has the name of its pod. `podTemplate` is the pod of a start and `operatingMode` what it shall be. The volume,
the service and the secret are the runtime's own in any case: the volume is filled before there is a Sandbox, and lives
on where somebody deletes the Sandbox, which would take a volume of its `volumeClaimTemplates` with it.

The controller (agent-sandbox 0.5):
- makes a pod where there is none, also after somebody deleted one, and none after one that ended by itself
- copies the template's labels to a pod that is there, so a template changes only while there is no pod
- ends the pod of a suspended Sandbox, if it made that pod itself
"""

import time
from collections.abc import Callable

from runtimes import RuntimeFailure
from runtimes.containers import START
from runtimes.kubernetes.cluster import (
    MORE_ROOM,
    POLL,
    SANDBOX_GROUP,
    SANDBOX_VERSION,
    Cluster,
    Kind,
    Object,
    Refused,
    Snapshot,
)

#: seconds for which the cluster is not asked again whether it serves the API; a failure of that question lasts as long
_ASKED = 5.0

#: seconds in which the controller makes a pod; and those for which it reports one failure, which it retries, until that
#: failure is the start's
_MADE, _FAILING = 30.0, 2.0


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
        if self._cluster.create(Kind.SANDBOX, body) is None:
            known = self._cluster.find(Kind.SANDBOX, name)
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
            self._cluster.change(Kind.SANDBOX, name, changes)
        return self._made(name, start)

    def suspend(self, name: str) -> None:
        """Have the controller end the pod of a Sandbox; nothing where there is no Sandbox of that name."""
        if self._served.value():
            try:
                changes = [{"op": "add", "path": "/spec/operatingMode", "value": "Suspended"}]
                self._cluster.change(Kind.SANDBOX, name, changes)
            except Refused as refusal:
                if refusal.status != 404:
                    raise

    def remove(self, name: str) -> None:
        """Remove a Sandbox, whose pod has ended."""
        if self._served.value():
            self._cluster.delete(Kind.SANDBOX, name)

    def _made(self, name: str, start: str) -> Object:
        """Wait for the pod of a start. The Sandbox is suspended where there is none, for its controller goes on."""
        deadline, failing = time.monotonic() + _MADE, float("inf")
        while True:
            pod = self._cluster.find(Kind.POD, name)
            if pod is not None:
                labelled = pod["metadata"]["labels"].get(START, "0")
                _check_order(labelled, start)
                if labelled == start and "deletionTimestamp" not in pod["metadata"]:
                    return pod
            sandbox = self._cluster.find(Kind.SANDBOX, name)
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
