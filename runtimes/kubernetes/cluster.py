"""The objects of one namespace of a cluster, and commands in its pods.

Each object is the plain JSON of the public API, as in a manifest. The API server's errors become sentences.

The cluster is kubectl's: from KUBECONFIG, otherwise from ~/.kube/config. A process in a pod without both uses the pod's
service account. The namespace is that of the kubeconfig's context, or the pod's own.

A command in a pod runs over a WebSocket with the channels of v5.channel.k8s.io. A message begins with its channel: 0
standard input, 1 standard output, 2 standard error, 3 the command's result, 255 the end of the channel in its body.
Memory is bounded by one message. Needs Kubernetes 1.30 or newer.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from runtimes import RuntimeCallFailed

#: Maximum number of concurrent requests, each on its own connection.
_CONNECTIONS = 32

#: Advice about an exhausted ResourceQuota.
MORE_ROOM = ". Delete or pause sandboxes, or raise the namespace's ResourceQuota"

#: The folder that the cluster mounts in a pod with a service account.
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


#: Timeouts of connecting to the API server and of its response, in seconds.
_TIMEOUT = (5.0, 30.0)

_PAGE = 500

#: Poll interval for a change of an object, in seconds.
POLL = 0.1

#: The API of agent-sandbox, and its name for Sandboxes.
SANDBOX_GROUP, SANDBOX_VERSION, _SANDBOXES = "agents.x-k8s.io", "v1beta1", "sandboxes"

_STDIN, _STDOUT, _STDERR, _ENDED, _CLOSE = 0, 1, 2, 3, 255

#: Timeout for the pod to receive or send data, in seconds.
_EXEC_TIMEOUT = 60.0

#: Maximum size of a command's error output, in bytes.
_MOST_WORDS = 2000


class ClusterRefused(RuntimeCallFailed):
    """The API server refused a call. status: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Prefix the message of a cluster failure in the block with `what`. Other failures are unchanged."""
    try:
        yield
    except RuntimeCallFailed as error:
        if type(error) not in (RuntimeCallFailed, ClusterRefused):
            raise
        raise RuntimeCallFailed(f"{what}: {error}") from error


@dataclass(frozen=True)
class ClusterConnection:
    """The client's objects. Thread-safe."""

    core: Any
    networking: Any
    custom: Any
    namespace: str
    host: str  #: URL of the API server

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the client's errors into ClusterRefused, or into RuntimeCallFailed without a response."""
        client, urllib3 = import_module("kubernetes.client"), import_module("urllib3")
        try:
            yield
        except client.ApiException as error:
            raise _refusal(error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RuntimeCallFailed(f"no API server responds at {self.host}: {error}") from error


def connect() -> ClusterConnection:
    """Load the client and its settings without a request. Raises RuntimeCallFailed if either is missing."""
    try:
        # The import takes 36 MB and a third of a second, which only supervisors with such a spec should pay.
        client, config = import_module("kubernetes.client"), import_module("kubernetes.config")
    except ModuleNotFoundError as error:
        raise RuntimeCallFailed(
            f"its spec needs kubernetes, and there is no package {error.name}: "
            "pip install -r requirements/kubernetes.txt"
        ) from None
    settings = client.Configuration()
    file = os.environ.get("KUBECONFIG", "")
    try:
        if file or not _ACCOUNT.exists():
            config.load_kube_config(file or None, client_configuration=settings)
            context = config.list_kube_config_contexts(file or None)[1]["context"]
            namespace = context.get("namespace") or "default"
        else:
            config.load_incluster_config(client_configuration=settings)
            namespace = (_ACCOUNT / "namespace").read_text().strip()
    except Exception as error:  # a malformed file causes many kinds of errors in the client
        raise RuntimeCallFailed(
            f"no cluster is configured: set KUBECONFIG to a kubeconfig, or run the supervisor in a pod with a "
            f"service account: {error}"
        ) from error
    settings.retries = False  # the supervisor retries and reports it
    settings.connection_pool_maxsize = _CONNECTIONS
    api = client.ApiClient(settings)
    return ClusterConnection(
        client.CoreV1Api(api), client.NetworkingV1Api(api), client.CustomObjectsApi(api), namespace, settings.host
    )


def _refusal(error: Any) -> ClusterRefused:
    """Return the API server's error with what to do about it. error: an ApiException."""
    try:
        message = str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the API server responds with status {error.status}: {error.reason}"
    if error.status == 401:
        message += ". The API server does not accept the supervisor's credentials: renew those of KUBECONFIG"
    elif error.status == 403 and "exceeded quota" in message:
        message += MORE_ROOM
    elif error.status == 403 and "cannot" in message:
        message += ". Give the supervisor's account the Role of deploy/kubernetes/rbac.yaml"
    return ClusterRefused(message, error.status)


Object = dict[str, Any]


class ObjectKind(StrEnum):
    """The kinds of objects in use, by their names in the client's methods."""

    POD = "pod"
    SERVICE = "service"
    SECRET = "secret"
    CLAIM = "persistent_volume_claim"
    POLICY = "network_policy"
    SANDBOX = "custom_object"


class Cluster:
    """Thread-safe. Every method raises RuntimeCallFailed, and ClusterRefused for a refused call."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded: ClusterConnection | None = None

    def connection(self) -> ClusterConnection:
        """Return the connection, made on the first call."""
        with self._loading:
            if self._loaded is None:
                self._loaded = connect()
            return self._loaded

    def find(self, kind: ObjectKind, name: str) -> Object | None:
        """Return the object of a name; None if it does not exist."""
        try:
            return self._object("read", kind, name=name)
        except ClusterRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    def listed(self, kind: ObjectKind, labels: str) -> list[Object]:
        """Return all objects that match a label selector, read in pages."""
        items: list[Object] = []
        further: Object = {}
        while True:
            page = self._object("list", kind, label_selector=labels, limit=_PAGE, **further)
            items += page["items"]
            if not page["metadata"].get("continue"):
                return items
            further = {"_continue": page["metadata"]["continue"]}

    def create(self, kind: ObjectKind, body: Object) -> Object | None:
        """Create an object. Return None if the name is taken; that object is unchanged."""
        try:
            return self._object("create", kind, body=body)
        except ClusterRefused as refusal:
            if refusal.status == 409:
                return None
            raise

    def put(self, kind: ObjectKind, body: Object) -> None:
        """Create an object, or replace the object of that name."""
        if self.create(kind, body) is None:
            self._object("replace", kind, name=body["metadata"]["name"], body=body)

    def delete(self, kind: ObjectKind, name: str, *, grace_seconds: int | None = None) -> None:
        """Request the deletion of an object, which may take a while. Does nothing if it is gone."""
        body: Object = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self._object("delete", kind, name=name, body=body)
        except ClusterRefused as refusal:
            if refusal.status != 404:
                raise

    def unlabel(self, kind: ObjectKind, name: str, label: str) -> None:
        self._object("patch", kind, name=name, body={"metadata": {"labels": {label: None}}})

    def change(self, kind: ObjectKind, name: str, operations: list[Object]) -> None:
        """Apply all operations of a JSON patch to an object, or none."""
        self._object("patch", kind, name=name, body=operations, _content_type="application/json-patch+json")

    def serves_sandboxes(self) -> bool:
        """Return whether the API of agent-sandbox is installed."""
        connection = self.connection()
        try:
            with connection.errors():
                connection.custom.get_api_resources(SANDBOX_GROUP, SANDBOX_VERSION, _request_timeout=_TIMEOUT)
        except ClusterRefused as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    def ended(self, kind: ObjectKind, name: str, *, seconds: float = 30.0) -> bool:
        """Wait for the end of an object. Return False on timeout."""
        deadline = time.monotonic() + seconds
        while self.find(kind, name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def log(self, pod: str, tail: int) -> bytes:
        connection = self.connection()
        with connection.errors():
            words = {"_preload_content": False, "_request_timeout": _TIMEOUT, "tail_lines": tail}
            return bytes(connection.core.read_namespaced_pod_log(pod, connection.namespace, **words).data)

    def memory(self, labels: str) -> dict[str, str]:
        """Return the memory of pods by name, as quantities, from the cluster's metrics server."""
        connection = self.connection()
        with connection.errors():
            metrics = connection.custom.list_namespaced_custom_object(
                "metrics.k8s.io",
                "v1beta1",
                connection.namespace,
                "pods",
                label_selector=labels,
                _request_timeout=_TIMEOUT,
            )
        return {one["metadata"]["name"]: one["containers"][0]["usage"]["memory"] for one in metrics["items"]}

    def _object(self, verb: str, kind: ObjectKind, **words: Any) -> Object:
        """Return the response to a call of the client: {create,delete,list,patch,read,replace}_namespaced_KIND."""
        connection = self.connection()
        api = connection.networking if kind is ObjectKind.POLICY else connection.core
        if kind is ObjectKind.SANDBOX:
            api, verb = connection.custom, "get" if verb == "read" else verb
            words |= {"group": SANDBOX_GROUP, "version": SANDBOX_VERSION, "plural": _SANDBOXES}
        with connection.errors():
            response = getattr(api, f"{verb}_namespaced_{kind}")(
                namespace=connection.namespace, _preload_content=False, _request_timeout=_TIMEOUT, **words
            )
            return dict(json.loads(response.data))


def output_of(
    connection: ClusterConnection, pod: str, command: Iterable[str], stdin: Iterable[bytes] | None = None
) -> Generator[bytes]:
    """Yield the output of a command in a pod. Standard input is sent whole before anything is read.

    Raises RuntimeCallFailed for a failed command, also after the last piece, and the errors of `stdin`.
    """
    words = [*(("command", word) for word in command), ("stdout", "true"), ("stderr", "true")]
    if stdin is not None:
        words.append(("stdin", "true"))
    path = f"/api/v1/namespaces/{connection.namespace}/pods/{pod}/exec?{urlencode(words)}"
    socket = _opened(connection, path)
    try:
        if stdin is not None:
            _send(socket, stdin)
        yield from _received(socket)
    except (OSError, _socket_error()) as error:
        raise RuntimeCallFailed(f"the connection with the pod broke off: {error}") from error
    finally:
        socket.shutdown()  # at once: a close would wait for the other side


def _socket_error() -> type[Exception]:
    error: type[Exception] = import_module("websocket").WebSocketException
    return error


def _opened(connection: ClusterConnection, path: str) -> Any:
    client = import_module("kubernetes.stream.ws_client")
    settings = connection.core.api_client.configuration
    headers = {"sec-websocket-protocol": client.V5_CHANNEL_PROTOCOL}
    for setting in settings.auth_settings().values():
        headers[setting["key"]] = setting["value"]
    url = client.get_websocket_url(f"{connection.host}{path}")
    try:
        socket = client.create_websocket(settings, url, headers)
    except (OSError, _socket_error()) as error:
        raise RuntimeCallFailed(f"no command can be run in the pod: {error}") from error
    socket.settimeout(_EXEC_TIMEOUT)
    return socket


def _send(socket: Any, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        try:
            socket.send_binary(bytes([_STDIN]) + chunk)
        except (OSError, _socket_error()):
            return  # it reads no more; its error is read next
    socket.send_binary(bytes([_CLOSE, _STDIN]))


def _received(socket: Any) -> Generator[bytes]:
    words = b""
    while True:
        data = socket.recv()
        if isinstance(data, str):
            data = data.encode()
        if not data:
            raise RuntimeCallFailed("the connection with the pod broke off before its command had ended")
        channel, content = data[0], data[1:]
        if channel == _STDOUT:
            yield content
        elif channel == _STDERR:
            words += content
            if len(words) > _MOST_WORDS:
                words = "… ".encode() + words.removeprefix("… ".encode())[-_MOST_WORDS + 4 :]
        elif channel == _ENDED:
            ended = json.loads(content)
            if ended.get("status") != "Success":
                reason = words.decode(errors="replace").strip() or ended.get("message") or "no output"
                raise RuntimeCallFailed(f"its command failed: {reason}")
            return


Found = TypeVar("Found")


class Snapshot(Generic[Found]):
    """A cached result or failure of one call. Only one thread at a time makes the call."""

    def __init__(self, ask: Callable[[], Found], seconds: float, clock: Callable[[], float]) -> None:
        """seconds: lifetime of a result. clock: seconds."""
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._asking = threading.Lock()
        self._until = float("-inf")
        self._cached: Found | RuntimeCallFailed

    def value(self) -> Found:
        """Raises RuntimeCallFailed, as the call did."""
        with self._asking:
            if self._clock() >= self._until:
                try:
                    self._cached = self._ask()
                except RuntimeCallFailed as error:
                    self._cached = error
                self._until = self._clock() + self._seconds
            cached = self._cached
        if isinstance(cached, RuntimeCallFailed):
            raise RuntimeCallFailed(str(cached)) from cached
        return cached
