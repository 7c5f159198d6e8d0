"""A host for isolation tests: what a sandbox must not reach, each a real thing, and what stands for the internet."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest

import runtimes.starts
from runtimes import Handle, Launch, cgroup
from runtimes.isolation.abilities import abilities
from runtimes.process import ProcessRuntime
from tests.quick import serve
from tests.servers import PROJECT, program, wait_until

#: in everything that a sandbox must not read
PLANTED = "planted-secret"

#: what the webhooks of a sandbox bear, whatever it sends
HOOK_KEY = "the-hook-key-of-the-sandbox"

METADATA = "169.254.169.254"

#: a machine of the internet, and the host's address towards it. Source: RFC 5737
FAR, NEAR = "203.0.113.10", "203.0.113.1"

INSIDE = PROJECT / "tests" / "runtimes" / "inside.py"


def lacking(what: str) -> NoReturn:
    """Skip the test at home and fail it in CI: this machine cannot do what it needs."""
    pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)


def require_cgroup() -> None:
    """Skip the test where no cgroup v2 may be made below this process's; in CI that fails for root, who could."""
    if not (cgroup.own() and os.access(cgroup.own(), os.W_OK)):
        lacks = "no cgroup v2 here below which another may be made"
        lacking(lacks) if os.geteuid() == 0 else pytest.skip(lacks)


def require(kind: str, monkeypatch, *, users: bool = False) -> None:
    """Have sandboxes of isolation "auto" get that kind. Skips where it is not there, fails in CI.

    users: whether each gets a user of its own under Landlock.
    """
    real = abilities()
    if kind == "bubblewrap":
        program("bwrap")
        lacks = real.bubblewrap
    else:
        lacks = "" if real.landlock else "this kernel has no Landlock"
        forced = replace(real, bubblewrap="this test does without", users=users)
        monkeypatch.setattr(runtimes.starts, "abilities", lambda: forced)
    if lacks:
        lacking(lacks)


@contextlib.contextmanager
def greeting(family: int, address, text: str = PLANTED) -> Iterator[socket.socket]:
    """A listener that sends a text to everyone who connects."""
    with socket.socket(family) as listener:
        if family == socket.AF_INET:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(50)

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with contextlib.suppress(OSError), client:
                        client.sendall(text.encode())

        threading.Thread(target=greet, daemon=True).start()
        yield listener
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@dataclass
class HostApiServer:
    """A server with webhooks, and the requests that it got."""

    port: int
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def hooks(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1/webhooks"


@contextlib.contextmanager
def api() -> Iterator[HostApiServer]:
    class HostHandler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            got.requests.append((self.command, self.path, dict(self.headers.items()), body))
            text = PLANTED.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), HostHandler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # of a client that breaks off
    got = HostApiServer(server.server_port)
    serve(server)
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def a_terminal() -> Iterator[str]:
    """A terminal of the server's user; its path."""
    master, side = os.openpty()
    try:
        yield os.ttyname(side)
    finally:
        os.close(master)
        os.close(side)


@contextlib.contextmanager
def secret_process() -> Iterator[int]:
    """A process of the server's user whose environment has a secret, as the server's has; its id."""
    with subprocess.Popen(["/bin/sleep", "600"], env={"SECRET_KEY": PLANTED}) as process:
        yield process.pid
        process.kill()


@contextlib.contextmanager
def metadata_service() -> Iterator[None]:
    """A listener at the address of clouds' metadata services; only root can give the host that address."""
    command = ["ip", "addr", "{}", f"{METADATA}/32", "dev", "lo"]
    subprocess.run([word.format("add") for word in command], check=True)
    try:
        with greeting(socket.AF_INET, (METADATA, 80)):
            yield
    finally:
        subprocess.run([word.format("del") for word in command], check=True)


@contextlib.contextmanager
def internet() -> Iterator[None]:
    """Another machine: a network namespace behind a cable, with listeners on ports 443 and 8443. Only for root."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root, with the program ip, can make a network that stands for the internet")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from runtimes.isolation import kernel; from tests.runtimes.host import greeting\n"
        "import socket, subprocess, contextlib\n"
        "kernel.unshare(kernel.CLONE_NEWNET); print('made', flush=True); sys.stdin.readline()\n"
        f"for words in ('link set lo up', 'addr add {FAR}/24 dev far', 'link set far up'):\n"
        "    subprocess.run(['ip', *words.split()], check=True)\n"
        "with contextlib.ExitStack() as stack:\n"
        "    for port in (443, 8443):\n"
        f"        stack.enter_context(greeting(socket.AF_INET, ('{FAR}', port), 'the internet'))\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
    )
    near = f"near{uuid4().hex[:8]}"
    far = [sys.executable, "-c", code, str(PROJECT)]
    with subprocess.Popen(far, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "made\n"
            cable = f"link add {near} type veth peer name far netns {process.pid}"
            for words in (cable, f"addr add {NEAR}/24 dev {near}", f"link set {near} up"):
                subprocess.run(["ip", *words.split()], check=True)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            subprocess.run(["ip", "link", "del", near], check=False)
            process.send_signal(signal.SIGKILL)


def tried(runtime: ProcessRuntime, launch: Launch, tries: list[tuple]) -> tuple[Handle, dict[str, str]]:
    """A sandbox that has tried something from inside; the outcomes by name."""
    run = uuid4().hex
    env = {"TRIES": json.dumps(tries), "RUN": run, "PORT": "{AGENT_SERVER}", "HOOKS": "{WEBHOOKS}", **launch.env}
    handle = runtime.start(replace(launch, env=env))

    def outcomes() -> dict[str, str]:
        lines = [json.loads(line) for line in runtime.logs(handle, 1000).splitlines() if line.startswith("[")]
        return {name: outcome for name, outcome, in_run in lines if in_run == run}

    wait_until(lambda: "done" in outcomes(), "the tries")
    return handle, outcomes()


def a_launch(name: str = "box", **options) -> Launch:
    command = (sys.executable, "-u", str(INSIDE))
    options = {"isolation": "auto", "network": "none", "readable": (str(INSIDE),), "hook_key": HOOK_KEY, **options}
    return Launch(name, command, options.pop("env", {}), ".", **options)


@contextlib.contextmanager
def runtime_in(folder: Path) -> Iterator[ProcessRuntime]:
    """A runtime in a folder of a server's data; its sandboxes end with the block."""
    runtime = ProcessRuntime(folder / "sandboxes" / "host", grace=0.5, private=(folder,))
    try:
        yield runtime
    finally:
        for handle in runtime.known():
            runtime.stop(handle)
