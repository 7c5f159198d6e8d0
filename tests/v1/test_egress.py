"""A whole server whose sandboxes have a way out by name: the model answers, and its key is nowhere inside."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import psutil
import pytest

from runtimes.isolation.abilities import abilities
from tests.runtimes.host import lacking
from tests.servers import program, supervised_server, wait_until

pytestmark = pytest.mark.process("starts a server, sandboxes and a model")

KEY = f"sk-canary-{uuid4().hex}"

#: counts the lines with the key in what a command may read: its environment, that of every process, and all files. The
#: pattern does not find itself; the agent would mask the key itself in what it prints
SWEEP = (
    "(env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; find . -type f -exec cat {} + 2>/dev/null)"
    " | grep -ac 'sk-can[a]ry'; echo via $HTTPS_PROXY"
)


class _Model(BaseHTTPRequestHandler):
    """Proposes SWEEP first, and ends when it has the output."""

    protocol_version = "HTTP/1.1"
    shown: list[str]
    read: list[str]

    def do_POST(self) -> None:
        last = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]
        self.shown.append(self.headers["Authorization"])
        if last["role"] == "user":
            arguments = json.dumps({"command": SWEEP, "security_risk": "LOW"})
            function = {"name": "terminal", "arguments": arguments}
            delta = {"tool_calls": [{"index": 0, "id": "call", "type": "function", "function": function}]}
        else:
            self.read.append(json.dumps(last))
            delta = {"content": "It is done."}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for choice in ({"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": "stop"}):
            self.wfile.write(f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[str, type[_Model]]]:
    """The base URL of a model on this machine, and what it was shown and read."""
    kind = type("Model", (_Model,), {"shown": [], "read": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", kind
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def client(request, model, tmp_path_factory):
    environment = {"LLM_MODEL": "gpt", "LLM_API_KEY": KEY, "LLM_BASE_URL": model[0]}
    if request.param == "bubblewrap":
        program("bwrap")
        if abilities().bubblewrap:
            lacking(abilities().bubblewrap)
    else:
        environment["PATH"] = "/nowhere"  # where bubblewrap is not
        if not abilities().landlock:
            lacking("this kernel has no Landlock")
    folder = tmp_path_factory.mktemp("egress")
    with supervised_server(folder, **environment) as (client, _):
        yield client


def finished(client, conversation: str) -> None:
    """Have a conversation propose its command, approve it, and wait for its end."""
    path = f"/api/conversations/{conversation}"
    message = {"content": [{"type": "text", "text": "Look around."}]}
    client.post("/api/v1/app-conversations", json={"conversation_id": conversation, "initial_message": message})
    waiting = "waiting_for_confirmation"
    wait_until(lambda: client.get(path).json().get("execution_status") == waiting, "an action that waits")
    assert client.post(f"{path}/events/respond_to_confirmation", json={"accept": True}).json() == {"success": True}
    wait_until(lambda: client.get(path).json()["execution_status"] == "finished", "the end of the run")


def test_the_model_answers_and_its_key_is_nowhere_inside(client, model):
    _, seen = model
    seen.shown.clear()
    seen.read.clear()
    conversation = str(uuid4())
    finished(client, conversation)

    assert set(seen.shown) == {f"Bearer {KEY}"}
    assert "0\\nvia http://127.0.0.1:" in seen.read[0]
    assert KEY not in client.get(f"/api/conversations/{conversation}/events/search").text


def test_a_proxy_that_is_killed_is_started_again(client, model):
    def proxies() -> list[psutil.Process]:
        ours = [each for each in psutil.process_iter() if each.pid != os.getpid()]
        return [each for each in ours if is_proxy_of(each)]

    def is_proxy_of(process: psutil.Process) -> bool:
        try:
            return process.cmdline()[1:3] == ["-m", "egress"] and process.environ().get("LLM_API_KEY") == KEY
        except (psutil.Error, OSError):
            return False

    wait_until(proxies, "the proxy")
    [before] = proxies()
    before.send_signal(signal.SIGKILL)
    wait_until(lambda: [each for each in proxies() if each.pid != before.pid], "the next proxy")
    finished(client, str(uuid4()))
