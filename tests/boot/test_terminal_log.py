"""A server at a terminal, as `make run` starts it: its lines are for people; elsewhere they are JSON."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading

import httpx
import pytest

from tests.servers import PROJECT, free_port, wait_until

pytestmark = pytest.mark.process("starts a server of its own")

COMMAND = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@contextlib.contextmanager
def started(folder, *, is_terminal: bool):
    """A server; a client of it, and what it has written so far."""
    port, written = free_port(), bytearray()
    here, there = pty.openpty() if is_terminal else os.pipe()
    settings = {"PORT": str(port), "DATA_DIR": str(folder), "WEB_CONCURRENCY": "1", "TERM": "xterm", "REDIS_URL": ""}
    environment = {name: value for name, value in os.environ.items() if name not in ("LOG_FORMAT", "NO_COLOR")}
    server = subprocess.Popen(COMMAND, cwd=PROJECT, env=environment | settings, stdout=there, stderr=there)
    os.close(there)

    def read() -> None:
        with contextlib.suppress(OSError):  # the last process at the terminal has ended
            while piece := os.read(here, 1 << 16):
                written.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client, lambda: written.decode().replace("\r\n", "\n")
    finally:
        server.terminate()
        server.wait(60)
        reader.join(60)
        os.close(here)


def test_a_server_at_a_terminal_writes_lines_for_people(tmp_path):
    with started(tmp_path / "data", is_terminal=True) as (client, written):
        wait_until(lambda: "the sandboxes of reference-agent" in written(), "the supervisor")
        wait_until(lambda: "the way out listens" in written(), "the way out")
        client.post("/api/v1/keys", json={"name": "me", "scopes": ["admin"]}).raise_for_status()
        client.delete("/api/v1/keys/a%1b%5B31m%0Ab").status_code  # noqa: B018 - the path is what counts
        wait_until(lambda: "DELETE" in written(), "the line of the second request")
        text = written()

    lines = COLOUR.sub("", text).splitlines()
    assert "\x1b[32m201\x1b[0m" in text
    assert all(re.match(r"\d\d:\d\d:\d\d (info   |warning|error  ) [a-z-]+: \S", line) for line in lines), lines
    assert {"agent-server", "supervisor", "egress", "request"} <= {line.split()[2].rstrip(":") for line in lines}
    assert any(re.search(r" request: POST /api/v1/keys 201 \d+ ms$", line) for line in lines)
    assert any(" DELETE /api/v1/keys/<key_id> 404 " in one and "request_id=" in one for one in lines)


def test_a_server_whose_output_a_program_reads_writes_json(tmp_path):
    with started(tmp_path / "data", is_terminal=False) as (client, written):
        wait_until(lambda: "the sandboxes of reference-agent" in written(), "the supervisor")
        client.post("/api/v1/keys", json={"name": "me", "scopes": ["admin"]}).raise_for_status()
        wait_until(lambda: '"POST"' in written(), "the line of the request")
        lines = [json.loads(line) for line in written().splitlines()]

    assert all(("message" in line) != ("key_id" in line) for line in lines)
