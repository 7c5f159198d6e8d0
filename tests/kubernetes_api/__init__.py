"""A small Kubernetes API server over HTTP, written from the public API, whose one node runs pods as real processes.

It keeps the objects of one namespace (`objects.py`), runs them (`node.py`), runs commands in pods (`remote.py`), has
agent-sandbox where a test installs it (`agent_sandbox.py`), and refuses what the rules of a Role do not grant. A test
reads what the cluster has from `objects` and `node`.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.kubernetes_api.agent_sandbox import SandboxController
from tests.kubernetes_api.node import Addresses, KubernetesNode
from tests.kubernetes_api.objects import KINDS, ApiError, KubernetesObjects, Object
from tests.kubernetes_api.remote import attach

NAMESPACE, TOKEN = "agents", "the supervisor's token"

_GROUPS = {"networkpolicies": "networking.k8s.io", "metrics": "metrics.k8s.io"}
#: formats of a patch that is an object
_PATCHES = ("application/merge-patch+json", "application/strategic-merge-patch+json")

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class KubernetesApi:
    """A cluster of one node, which ends with `close`."""

    def __init__(self, folder: Path, rules: list[Object]) -> None:
        """rules: of the Role that the one account has."""
        addresses = Addresses()
        self.objects = KubernetesObjects(NAMESPACE, addresses)
        self.node = KubernetesNode(folder, self.objects, addresses)
        self.rules = rules
        self.controller = SandboxController(self.objects)
        self.has_agent_sandbox = False  #: whether its API is served
        self.memory: dict[str, str] = {}  #: what the metrics server has measured, by the pod's name
        self.requests: list[str] = []  #: each as its verb and its resource
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.controller.close()
        self.node.close()

    def kubeconfig(self, path: Path, *, url: str = "", token: str = TOKEN) -> Path:
        """A kubeconfig for this cluster."""
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": url or self.url}}],
            "users": [{"name": "supervisor", "user": {"token": token}}],
            "contexts": [
                {"name": "tests", "context": {"cluster": "tests", "user": "supervisor", "namespace": NAMESPACE}}
            ],
            "current-context": "tests",
        }
        path.write_text(yaml.safe_dump(found))
        return path

    def allows(self, group: str, resource: str, verb: str) -> bool:
        return any(
            group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
            for rule in self.rules
        )


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(_ClusterHandler):
        cluster = api

    return Handler


class _ClusterHandler(BaseHTTPRequestHandler):
    cluster: KubernetesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        try:
            found = self._routed(body)
        except ApiError as error:
            status = {"kind": "Status", "status": "Failure", "code": error.status}
            found = {**status, "message": str(error), "reason": error.reason}
            self._send(error.status, json.dumps(found).encode())
        else:
            if found is not None:
                text = found if isinstance(found, bytes) else json.dumps(found).encode()
                self._send(201 if self.command == "POST" else 200, text)

    def _routed(self, body: Object) -> Object | bytes | None:
        """The response to a request; None where it was sent already."""
        url = urlsplit(self.path)
        if url.path.rstrip("/") == "/apis/agents.x-k8s.io/v1beta1" and self.cluster.has_agent_sandbox:
            return {"kind": "APIResourceList", "groupVersion": "agents.x-k8s.io/v1beta1", "resources": []}
        if "/namespaces/" not in url.path:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        _, _, rest = url.path.partition("/namespaces/")
        namespace, resource, *further = rest.split("/")
        name, part = further[0] if further else "", "/".join(further[1:])
        group = "" if url.path.startswith("/api/") else url.path.split("/")[2]
        self._check_rights(group, namespace, resource, part, name)
        objects = self.cluster.objects
        if group == _GROUPS["metrics"]:
            return self._metrics()
        if resource not in KINDS or (resource == "sandboxes" and not self.cluster.has_agent_sandbox):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        match self.command, part:
            case "GET", "exec":
                attach(self, self.cluster.node, objects.get("pods", name), parse_qs(url.query)["command"])
                return None
            case "GET", "log":
                return self._log(objects.get("pods", name), int(query["tailLines"]))
            case "GET", _ if name:
                return objects.get(resource, name)
            case "GET", _:
                return self._page(resource, query)
            case "POST", _:
                return objects.create(resource, body)
            case "PUT", _:
                return objects.replace(resource, name, body)
            case "PATCH", _:
                if self.headers["Content-Type"] == "application/json-patch+json":
                    return objects.change(resource, name, body)
                if self.headers["Content-Type"] not in _PATCHES or resource == "sandboxes":
                    raise ApiError(415, "UnsupportedMediaType", f"the body of the patch was in {self.headers}")
                return objects.merge(resource, name, body)
        return objects.delete(resource, name, body)

    def _check_rights(self, group: str, namespace: str, resource: str, part: str, name: str) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        verb = _VERBS.get(self.command) or ("get" if name else "list")
        full = f"{resource}/{part}" if part else resource
        self.cluster.requests.append(f"{verb} {full} {group}".rstrip())
        if namespace != NAMESPACE or not self.cluster.allows(group, full, verb):
            who = f'User "supervisor" cannot {verb} resource "{full}" in API group "{group}"'
            raise ApiError(403, "Forbidden", f'{full} is forbidden: {who} in the namespace "{namespace}"')

    def _metrics(self) -> Object:
        """What the metrics server says; 404 where none is installed."""
        if not self.cluster.memory:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        used = self.cluster.memory.items()
        return {
            "items": [{"metadata": {"name": name}, "containers": [{"usage": {"memory": text}}]} for name, text in used]
        }

    def _log(self, pod: Object, tail: int) -> bytes:
        if pod["status"]["phase"] == "Pending":
            raise ApiError(400, "BadRequest", "container is waiting to start")
        lines = self.cluster.node.log_of(pod["metadata"]["uid"]).splitlines(keepends=True)
        return b"".join(lines[-tail:] if tail else [])

    def _page(self, resource: str, query: dict[str, str]) -> Object:
        pairs = [pair.partition("=") for pair in query.get("labelSelector", "").split(",") if pair]
        found = self.cluster.objects.all(resource, {key: value for key, _, value in pairs})
        first, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(found)
        further = str(first + limit) if first + limit < len(found) else ""
        return {"kind": "List", "metadata": {"continue": further}, "items": found[first : first + limit]}

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
