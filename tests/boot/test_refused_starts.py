"""A start that cannot succeed says why in one sentence, and leaves nothing behind."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app import create_app
from settings.config import Config
from tests.servers import PROJECT


def ended(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def http_url() -> Iterator[str]:
    """A URL of Redis that leads to a web server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.process("starts a command, and waits for its second try")
def test_a_redis_url_that_leads_to_a_web_server_is_refused_in_a_sentence(http_url):
    refused = ended("-m", "admin", "migrate", REDIS_URL=http_url)

    assert refused.returncode == 1
    assert "does not speak the protocol of Redis" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.process("starts a web server")
def test_a_server_whose_redis_url_leads_to_a_web_server_says_that_it_is_unavailable(http_url):
    response = create_app(Config.of(redis_url=http_url)).test_client().get("/api/conversations/search")

    assert response.status_code == 503


@pytest.mark.process("starts gunicorn, which refuses")
def test_an_address_that_another_program_has_is_refused_before_anything_is_started(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = ("-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()")
        refused = ended(*command, PORT=port, HOST="127.0.0.1", DATA_DIR=str(tmp_path / "data"), REDIS_URL="")

    assert refused.returncode != 0
    assert f"agent-server: cannot listen on 127.0.0.1:{port} (HOST, PORT): Address already in use" in refused.stderr
    assert refused.stderr.count("\n") <= 2
    assert not (tmp_path / "data").exists()
