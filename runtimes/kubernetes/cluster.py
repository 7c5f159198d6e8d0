"""The objects of one namespace of a cluster: each is the plain JSON of the public API, as a manifest has it."""

import json
import threading
import time
from enum import StrEnum
from typing import Any

from runtimes.kubernetes.connection import Connection, Refused, connect

#: seconds for a connection with the API server, and for its response
_TIMEOUT = (5.0, 30.0)

#: most objects of one page of a list
_PAGE = 500

#: seconds between two looks at an object that is to change
POLL = 0.1

#: the API of agent-sandbox, and its name for Sandboxes
SANDBOX_GROUP, SANDBOX_VERSION, _SANDBOXES = "agents.x-k8s.io", "v1beta1", "sandboxes"

Object = dict[str, Any]


class Kind(StrEnum):
    """The kinds of objects that are used here, as the client's methods name them."""

    POD = "pod"
    SERVICE = "service"
    SECRET = "secret"
    CLAIM = "persistent_volume_claim"
    POLICY = "network_policy"
    SANDBOX = "custom_object"


class Cluster:
    """Any number of threads may use it. Every method raises RuntimeFailure; one that is refused raises Refused."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded: Connection | None = None

    def connection(self) -> Connection:
        """The connection, made at the first call."""
        with self._loading:
            if self._loaded is None:
                self._loaded = connect()
            return self._loaded

    def find(self, kind: Kind, name: str) -> Object | None:
        """The object of that name; None if there is none."""
        try:
            return self._object("read", kind, name=name)
        except Refused as refusal:
            if refusal.status == 404:
                return None
            raise

    def listed(self, kind: Kind, labels: str) -> list[Object]:
        """All objects that a label selector finds, read in pages."""
        found: list[Object] = []
        further: Object = {}
        while True:
            page = self._object("list", kind, label_selector=labels, limit=_PAGE, **further)
            found += page["items"]
            if not page["metadata"].get("continue"):
                return found
            further = {"_continue": page["metadata"]["continue"]}

    def create(self, kind: Kind, body: Object) -> Object | None:
        """Make an object; None if there is one of that name, which stays as it is."""
        try:
            return self._object("create", kind, body=body)
        except Refused as refusal:
            if refusal.status == 409:
                return None
            raise

    def put(self, kind: Kind, body: Object) -> None:
        """Make an object, or replace the one of that name."""
        if self.create(kind, body) is None:
            self._object("replace", kind, name=body["metadata"]["name"], body=body)

    def delete(self, kind: Kind, name: str, *, grace_seconds: int | None = None) -> None:
        """Ask for the end of an object, which may take a while. One that is gone stays so."""
        body: Object = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self._object("delete", kind, name=name, body=body)
        except Refused as refusal:
            if refusal.status != 404:
                raise

    def unlabel(self, kind: Kind, name: str, label: str) -> None:
        """Take a label from an object."""
        self._object("patch", kind, name=name, body={"metadata": {"labels": {label: None}}})

    def change(self, kind: Kind, name: str, operations: list[Object]) -> None:
        """Change an object by all of these operations of a JSON patch, or by none."""
        self._object("patch", kind, name=name, body=operations, _content_type="application/json-patch+json")

    def serves_sandboxes(self) -> bool:
        """Whether the API of agent-sandbox is installed."""
        connection = self.connection()
        try:
            with connection.errors():
                connection.custom.get_api_resources(SANDBOX_GROUP, SANDBOX_VERSION, _request_timeout=_TIMEOUT)
        except Refused as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    def ended(self, kind: Kind, name: str, *, seconds: float = 30.0) -> bool:
        """Wait for the end of an object; False if it is still there after so long."""
        deadline = time.monotonic() + seconds
        while self.find(kind, name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def log(self, pod: str, tail: int) -> bytes:
        """The last lines that a pod printed."""
        connection = self.connection()
        with connection.errors():
            words = {"_preload_content": False, "_request_timeout": _TIMEOUT, "tail_lines": tail}
            return bytes(connection.core.read_namespaced_pod_log(pod, connection.namespace, **words).data)

    def memory(self, labels: str) -> dict[str, str]:
        """The memory of pods by their names, quantities, as the cluster's metrics server has measured it."""
        connection = self.connection()
        with connection.errors():
            found = connection.custom.list_namespaced_custom_object(
                "metrics.k8s.io",
                "v1beta1",
                connection.namespace,
                "pods",
                label_selector=labels,
                _request_timeout=_TIMEOUT,
            )
        return {one["metadata"]["name"]: one["containers"][0]["usage"]["memory"] for one in found["items"]}

    def _object(self, verb: str, kind: Kind, **words: Any) -> Object:
        """The response to one of the client's calls: {create,delete,list,patch,read,replace}_namespaced_KIND."""
        connection = self.connection()
        api = connection.networking if kind is Kind.POLICY else connection.core
        if kind is Kind.SANDBOX:
            api, verb = connection.custom, "get" if verb == "read" else verb
            words |= {"group": SANDBOX_GROUP, "version": SANDBOX_VERSION, "plural": _SANDBOXES}
        with connection.errors():
            response = getattr(api, f"{verb}_namespaced_{kind}")(
                namespace=connection.namespace, _preload_content=False, _request_timeout=_TIMEOUT, **words
            )
            return dict(json.loads(response.data))
