"""The objects of one namespace, kept and checked as the public Kubernetes API keeps and checks them.

What is refused: unknown fields and wrong types (by the schemas that Kubernetes publishes), names, labels, quantities,
references within a pod, changes of immutable fields, a stale resource version, a name that is taken, a pod beyond the
quota.
"""

import base64
import copy
import functools
import itertools
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tests.kubernetes_api.schemas import fault

Object = dict[str, Any]

#: the API version and the kind of each resource
KINDS = {
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "secrets": ("v1", "Secret"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy"),
    "sandboxes": ("agents.x-k8s.io/v1beta1", "Sandbox"),
}

_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
#: names of services are labels that begin with a letter
_NAMES = {"services": r"(?=.{1,63}\Z)[a-z]([a-z0-9-]*[a-z0-9])?"}
_PART = r"(?=.{1,63}\Z)[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?"
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class ApiError(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def quantity(text: str) -> float:
    """Raises ValueError."""
    if not (match := _QUANTITY.fullmatch(str(text))):
        raise ValueError(text)
    return float(match[1]) * _UNITS.get(match[2] or "", 1)


class KubernetesObjects:
    """Every method may be called by any thread."""

    def __init__(self, namespace: str, addresses: Callable[[], str]) -> None:
        """addresses: gives a new address for a service."""
        self.namespace = namespace
        self.most_pods: int | None = None  #: a ResourceQuota
        self.changed = threading.Condition(threading.RLock())
        self._addresses = addresses
        self._versions = itertools.count(1)
        self._kept: dict[tuple[str, str], Object] = {}

    def get(self, resource: str, name: str) -> Object:
        with self.changed:
            if (resource, name) not in self._kept:
                raise ApiError(404, "NotFound", f'{resource} "{name}" not found')
            return copy.deepcopy(self._kept[resource, name])

    def all(self, resource: str, selector: dict[str, str] | None = None) -> list[Object]:
        with self.changed:
            found = [one for (kind, _), one in sorted(self._kept.items()) if kind == resource]
            wanted = (selector or {}).items()
            return copy.deepcopy([one for one in found if wanted <= one["metadata"].get("labels", {}).items()])

    def create(self, resource: str, body: Object) -> Object:
        check(resource, body)
        with self.changed:
            name = body["metadata"]["name"]
            if (resource, name) in self._kept:
                raise ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists')
            if resource == "pods" and self.most_pods is not None and len(self.all("pods")) >= self.most_pods:
                used = f"requested: pods=1, used: pods={len(self.all('pods'))}, limited: pods={self.most_pods}"
                raise ApiError(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: most, {used}')
            made = copy.deepcopy(body)
            made["metadata"] |= {
                "uid": str(uuid4()),
                "namespace": self.namespace,
                "creationTimestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            _complete(resource, made, self._addresses)
            return self._keep(resource, made)

    def replace(self, resource: str, name: str, body: Object) -> Object:
        check(resource, body)
        with self.changed:
            known = self.get(resource, name)
            version = body["metadata"].get("resourceVersion")
            if version is not None and version != known["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest")
            made = copy.deepcopy(body)
            made["metadata"] = known["metadata"] | made["metadata"]
            made["status"] = known.get("status", {})
            _complete(resource, made, lambda: known["spec"]["clusterIP"])
            if resource in ("pods", "persistentvolumeclaims") and made["spec"] != known["spec"]:
                raise invalid(resource, name, "spec: Forbidden: spec is immutable after creation")
            return self._keep(resource, made)

    def merge(self, resource: str, name: str, patch: Object) -> Object:
        """A JSON merge patch of the metadata."""
        with self.changed:
            known = self.get(resource, name)
            if patch.keys() - {"metadata"}:
                raise invalid(resource, name, "spec: Forbidden: spec is immutable after creation")
            for part, values in patch["metadata"].items():
                merged = known["metadata"].get(part, {}) | values
                known["metadata"][part] = {key: value for key, value in merged.items() if value is not None}
            check(resource, {key: value for key, value in known.items() if key != "status"})
            return self._keep(resource, known)

    def change(self, resource: str, name: str, operations: list[Object]) -> Object:
        """A JSON patch of operations that test, add or replace one member."""
        with self.changed:
            known = self.get(resource, name)
            before = copy.deepcopy(known["spec"])
            for operation in operations:
                *path, last = operation["path"].lstrip("/").split("/")
                holder = functools.reduce(lambda found, part: found.get(part, {}), path, known)
                if operation["op"] != "add" and last not in holder:
                    raise invalid(resource, name, f"the path {operation['path']} does not exist")
                if operation["op"] == "test" and holder[last] != operation["value"]:
                    raise invalid(resource, name, f"testing value {operation['path']} failed")
                holder[last] = operation["value"]
            check(resource, {key: value for key, value in known.items() if key != "status"})
            known["metadata"]["generation"] += known["spec"] != before
            return self._keep(resource, known)

    def update_status(self, name: str, uid: str, resource: str = "pods", /, **status: Any) -> None:
        """What the kubelet reports of a pod, or a controller of its object; nothing if it was replaced."""
        with self.changed:
            known = self._kept.get((resource, name))
            if known and known["metadata"]["uid"] == uid:
                self._keep(resource, known | {"status": known["status"] | status})

    def delete(self, resource: str, name: str, options: Object) -> Object:
        """A pod that runs, and a claim that a pod uses, go on to be there, with a time of their deletion."""
        with self.changed:
            known = self.get(resource, name)
            uid = options.get("preconditions", {}).get("uid", known["metadata"]["uid"])
            if uid != known["metadata"]["uid"]:
                raise ApiError(409, "Conflict", f"the UID in the precondition ({uid}) does not match the UID in record")
            if resource == "pods":
                usual = known["spec"].get("terminationGracePeriodSeconds", 30)
                known["metadata"]["deletionGracePeriodSeconds"] = options.get("gracePeriodSeconds", usual)
            known["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat(timespec="seconds")
            self._keep(resource, known)
            if resource not in ("pods", "persistentvolumeclaims"):
                self.forget(resource, name, uid)
            return known

    def forget(self, resource: str, name: str, uid: str) -> None:
        """The end of an object, once nothing holds it."""
        with self.changed:
            known = self._kept.get((resource, name))
            if known and known["metadata"]["uid"] == uid:
                del self._kept[resource, name]
                self.changed.notify_all()

    def _keep(self, resource: str, made: Object) -> Object:
        made["metadata"]["resourceVersion"] = str(next(self._versions))
        self._kept[resource, made["metadata"]["name"]] = made
        self.changed.notify_all()
        return copy.deepcopy(made)


def _complete(resource: str, made: Object, addresses: Callable[[], str]) -> None:
    """What the API server fills in."""
    if resource == "pods":
        made["status"] = {"phase": "Pending", "conditions": []}
    elif resource == "persistentvolumeclaims":
        made["spec"].setdefault("storageClassName", "standard")
        made["spec"].setdefault("volumeMode", "Filesystem")
        made["status"] = {"phase": "Bound"}
        made["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    elif resource == "sandboxes":
        made["spec"].setdefault("operatingMode", "Running")
        made["metadata"]["generation"], made["status"] = 1, {}
    elif resource == "services":
        made["spec"].setdefault("clusterIP", addresses())
    elif resource == "secrets":
        plain = made.pop("stringData", {})
        data = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        made["data"] = made.get("data", {}) | data


def invalid(resource: str, name: str, message: str) -> ApiError:
    return ApiError(422, "Invalid", f'{resource} "{name}" is invalid: {message}')


def check(resource: str, body: Object) -> None:
    """Raises ApiError with what a real API server would refuse."""
    if (body.get("apiVersion"), body.get("kind")) != KINDS[resource]:
        raise ApiError(400, "BadRequest", f"the API version and the kind in the data must be {KINDS[resource]}")
    if found := fault(body):
        raise ApiError(400, "BadRequest", f"strict decoding error: {found}")
    metadata = body.get("metadata") or {}
    name = metadata.get("name", "")
    if not re.fullmatch(_NAMES.get(resource, rf"(?=.{{1,253}}\Z){_SUBDOMAIN}"), name):
        raise invalid(resource, name, f"metadata.name: Invalid value: {name!r}")
    for part in ("labels", "annotations"):
        for key, value in (metadata.get(part) or {}).items():
            prefix, _, last = key.rpartition("/")
            if not re.fullmatch(_PART, last, re.A) or (prefix and not re.fullmatch(_SUBDOMAIN, prefix)):
                raise invalid(resource, name, f"metadata.{part}: Invalid value: {key!r}")
            if part == "labels" and value and not re.fullmatch(_PART, value, re.A):
                raise invalid(resource, name, f"metadata.labels: Invalid value: {value!r}")
    _CHECKS.get(resource, lambda *_: None)(name, body)


def _check_pod(name: str, body: Object) -> None:
    spec = body["spec"]
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for container in spec["containers"]:
        if not container.get("image"):
            raise invalid("pods", name, "spec.containers[0].image: Required value")
        mounts = container.get("volumeMounts", [])
        if unknown := {mount["name"] for mount in mounts} - volumes:
            raise invalid("pods", name, f"spec.containers[0].volumeMounts: Not found: {unknown}")
        if len({mount["mountPath"] for mount in mounts}) < len(mounts):
            raise invalid("pods", name, "spec.containers[0].volumeMounts: must be unique")
        for kind in ("limits", "requests"):
            _check_quantities("pods", name, container.get("resources", {}).get(kind, {}))
        ports = [port["containerPort"] for port in container.get("ports", [])]
        if not all(0 < port < 65536 for port in ports):
            raise invalid("pods", name, "spec.containers[0].ports: must be between 1 and 65535")
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        raise invalid("pods", name, "spec.restartPolicy: Unsupported value")


def _check_service(name: str, body: Object) -> None:
    ports = body["spec"].get("ports", [])
    names = [port.get("name", "") for port in ports]
    if not ports:
        raise invalid("services", name, "spec.ports: Required value")
    if len(ports) > 1 and (not all(names) or len(set(names)) < len(names)):
        raise invalid("services", name, "spec.ports: names are required and must be unique")
    if len({port["port"] for port in ports}) < len(ports):
        raise invalid("services", name, "spec.ports: Duplicate value")


def _check_claim(name: str, body: Object) -> None:
    requests = body["spec"].get("resources", {}).get("requests", {})
    if "storage" not in requests or not body["spec"].get("accessModes"):
        raise invalid(
            "persistentvolumeclaims", name, "spec: Required value: accessModes and resources.requests.storage"
        )
    _check_quantities("persistentvolumeclaims", name, requests)


def _check_secret(name: str, body: Object) -> None:
    for key in {**(body.get("stringData") or {}), **(body.get("data") or {})}:
        if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key):
            raise invalid("secrets", name, f"data[{key}]: Invalid value")


def _check_quantities(resource: str, name: str, found: dict[str, str]) -> None:
    for key, text in found.items():
        try:
            quantity(text)
        except ValueError:
            raise invalid(resource, name, f"{key}: Invalid value: {text!r}: quantities must match") from None


_CHECKS: dict[str, Callable[[str, Object], None]] = {
    "pods": _check_pod,
    "services": _check_service,
    "persistentvolumeclaims": _check_claim,
    "secrets": _check_secret,
}
