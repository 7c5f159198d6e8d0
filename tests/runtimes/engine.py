"""A small Docker engine for tests: what the runtime asks of the Engine's HTTP API, over a unix socket.

Written from the public reference of that API, version 1.47. Its containers have a state and a log; nothing runs in one.
"""

import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4


class Engine(ThreadingMixIn, UnixStreamServer):
    """Serves until `shutdown`. `containers` is what it holds, by id; `calls` what it was asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Handler)
        self.containers: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        self.refuse_start = ""
        self.next_port = 40000
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def find(self, name: str) -> dict[str, Any] | None:
        return next((one for one in self.containers.values() if name in (one["Id"], one["Name"].lstrip("/"))), None)

    def only(self) -> dict[str, Any]:
        [container] = self.containers.values()
        return container

    def set_state(self, container: dict[str, Any], status: str, **members: Any) -> None:
        container["State"] |= {"Status": status, "Running": status in ("running", "paused"), **members}
        container["State"]["Paused"] = status == "paused"


class Handler(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.handle_call()

    do_POST = do_DELETE = do_GET

    def handle_call(self) -> None:
        url = urlsplit(self.path)
        path, self.query = re.sub(r"^/v1\.\d+", "", url.path), {k: v[0] for k, v in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length) or b"null") if length else None
        with self.server.lock:
            self.server.calls.append((self.command, path))
            if path == "/version":
                return self.answer(200, {"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "27.3.1"})
            if path == "/containers/create":
                return self.create()
            if path == "/containers/json":
                return self.list()
            match = re.fullmatch(r"/containers/([^/]+)(?:/(\w+))?", path)
            assert match, path
            container = self.server.find(match[1])
            if container is None:
                return self.answer(404, {"message": f"No such container: {match[1]}"})
            return getattr(self, f"on_{match[2] or 'remove'}")(container)

    def create(self) -> None:
        if self.server.find(self.query["name"]):
            return self.answer(409, {"message": f'The container name "/{self.query["name"]}" is already in use'})
        if self.body["Image"] == "absent":
            return self.answer(404, {"message": "No such image: absent:latest"})
        identity = uuid4().hex * 2
        self.server.containers[identity] = {
            "Id": identity,
            "Name": f"/{self.query['name']}",
            "Config": self.body,
            "State": {
                "Status": "created",
                "Running": False,
                "Paused": False,
                "ExitCode": 0,
                "Error": "",
                "OOMKilled": False,
            },
            "NetworkSettings": {"Ports": {}},
            "Log": b"",
        }
        return self.answer(201, {"Id": identity, "Warnings": []})

    def list(self) -> None:
        wanted = json.loads(self.query.get("filters", "{}")).get("label", [])
        found = []
        for one in self.server.containers.values():
            labels = [f"{name}={value}" for name, value in one["Config"]["Labels"].items()]
            if set(wanted) <= set(labels) and (self.query.get("all") == "1" or one["State"]["Running"]):
                found.append({"Id": one["Id"], "Names": [one["Name"]]})
        self.answer(200, found)

    def on_json(self, container: dict[str, Any]) -> None:
        self.answer(200, {name: value for name, value in container.items() if name != "Log"})

    def on_start(self, container: dict[str, Any]) -> None:
        if self.server.refuse_start:
            return self.answer(500, {"message": self.server.refuse_start})
        if container["State"]["Running"]:
            return self.answer(304)
        for port in container["Config"]["HostConfig"]["PortBindings"]:
            self.server.next_port += 1
            published = [{"HostIp": "127.0.0.1", "HostPort": str(self.server.next_port)}]
            container["NetworkSettings"]["Ports"][port] = published
        self.server.set_state(container, "running")
        return self.answer(204)

    def on_pause(self, container: dict[str, Any]) -> None:
        if container["State"]["Status"] != "running":
            return self.answer(409, {"message": "Container is not running, or already paused"})
        self.server.set_state(container, "paused")
        return self.answer(204)

    def on_unpause(self, container: dict[str, Any]) -> None:
        if container["State"]["Status"] != "paused":
            return self.answer(500, {"message": "Container is not paused"})
        self.server.set_state(container, "running")
        return self.answer(204)

    def on_logs(self, container: dict[str, Any]) -> None:
        lines = container["Log"].splitlines(keepends=True)[-int(self.query["tail"]) :]
        self.answer(200, b"".join(struct.pack(">BxxxL", 1, len(line)) + line for line in lines))

    def on_remove(self, container: dict[str, Any]) -> None:
        if container["State"]["Running"] and self.query.get("force") != "True":
            return self.answer(409, {"message": "container is running: stop it before removal or force remove"})
        del self.server.containers[container["Id"]]
        return self.answer(204)

    def answer(self, status: int, body: Any = None) -> None:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream" if isinstance(body, bytes) else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
