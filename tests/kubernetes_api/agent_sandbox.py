"""The controller of agent-sandbox 0.5, written from its public source: it makes and ends the pods of Sandboxes.

What it does as the public one: the pod has the Sandbox's name, the labels and annotations of its template, and the
Sandbox as its owner; a pod that was deleted is made again, one that ended stays; the labels of a template are copied to
a pod that is there, its spec is not; the pod of a suspended Sandbox is deleted if it is its own; a failure is told by
the condition Ready, and retried. The garbage collector deletes the pod of a Sandbox that was deleted.
"""

import threading
from typing import Any

from tests.kubernetes_api.objects import ApiError, KubernetesObjects, Object

#: label of each pod: which Sandbox it is of
TRACKING = "agents.x-k8s.io/sandbox-name-hash"


class SandboxController:
    def __init__(self, objects: KubernetesObjects) -> None:
        self.running = True  #: False: as if its pod had not been started
        self._objects = objects
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._objects.changed:
            self._ended = True
            self._objects.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._objects.changed:
                if self._ended:
                    return
                if self.running:
                    self._round()
                self._objects.changed.wait(0.05)

    def _round(self) -> None:
        sandboxes = {one["metadata"]["name"]: one for one in self._objects.all("sandboxes")}
        pods = {one["metadata"]["name"]: one for one in self._objects.all("pods")}
        for name, sandbox in sandboxes.items():
            pod = pods.get(name)
            try:
                self._reconcile(sandbox, pod)
            except ApiError as error:
                self._report(sandbox, status="False", reason="ReconcilerError", message=f"Error seen: {error}")
            else:
                self._report(sandbox, status="False", reason="DependenciesNotReady", message="")
        for name, pod in pods.items():
            [owner] = pod["metadata"].get("ownerReferences") or [{"uid": ""}]
            orphaned = owner["uid"] and owner["uid"] not in {one["metadata"]["uid"] for one in sandboxes.values()}
            if orphaned and "deletionTimestamp" not in pod["metadata"]:
                self._objects.delete("pods", name, {})

    def _reconcile(self, sandbox: Object, pod: Object | None) -> None:
        owned = pod is not None and _owner(sandbox) in pod["metadata"].get("ownerReferences", [])
        template = sandbox["spec"]["podTemplate"]
        metadata = template.get("metadata", {})
        if pod is None:
            if sandbox["spec"]["operatingMode"] == "Running":
                name = sandbox["metadata"]["name"]
                labels = {**metadata.get("labels", {}), TRACKING: name[-8:]}
                made = {"name": name, "labels": labels, "annotations": metadata.get("annotations", {})}
                made["ownerReferences"] = [_owner(sandbox)]
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}
                self._objects.create("pods", pod)
        elif sandbox["spec"]["operatingMode"] == "Suspended":
            if owned and "deletionTimestamp" not in pod["metadata"]:
                self._objects.delete("pods", pod["metadata"]["name"], {})
        elif not owned:
            raise ApiError(409, "Conflict", f'cannot adopt unowned pod "{pod["metadata"]["name"]}"')
        elif not metadata.get("labels", {}).items() <= pod["metadata"]["labels"].items():
            self._objects.merge("pods", pod["metadata"]["name"], {"metadata": {"labels": metadata["labels"]}})

    def _report(self, sandbox: Object, **words: Any) -> None:
        generation = sandbox["metadata"]["generation"]
        conditions = [{"type": "Ready", "observedGeneration": generation, **words}]
        if sandbox.get("status", {}).get("conditions") != conditions:
            name, uid = sandbox["metadata"]["name"], sandbox["metadata"]["uid"]
            self._objects.update_status(name, uid, "sandboxes", conditions=conditions)


def _owner(sandbox: Object) -> Object:
    metadata = sandbox["metadata"]
    reference = {"apiVersion": sandbox["apiVersion"], "kind": "Sandbox", "name": metadata["name"]}
    return {**reference, "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}
