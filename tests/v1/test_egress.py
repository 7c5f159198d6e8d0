"""A whole server whose sandboxes have a way out by name: the model answers, and its key is nowhere inside."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import psutil
import pytest

from runtimes.isolation.abilities import abilities
from settings.specs import BUNDLED
from tests.runtimes.host import lacking
from tests.servers import program, supervised_server, wait_until

pytestmark = pytest.mark.process("starts a server, sandboxes and a model")

#: what must stay outside, each by the setting or the variable that the server has it in
CANARIES = {
    name: f"sk-canary-{name.lower().replace('_', '')}-{uuid4().hex}"
    for name in ("LLM_API_KEY", "GIT_TOKEN", "REGISTRY_TOKEN", "SECRET_KEY")
}
KEY = CANARIES["LLM_API_KEY"]

#: the secret of a user, which comes with the start of a conversation
OF_USER = f"sk-canary-usertoken-{uuid4().hex}"

SERVICES = """
[[spec.service]]
name = "git"
base_url = "https://git.example.org/api"
headers = { Authorization = "Bearer {env:GIT_TOKEN}" }

[[spec.service]]
name = "registry"
base_url = "https://registry.example.org"
headers = { X-Api-Key = "{env:REGISTRY_TOKEN}" }

[[spec.service]]
name = "user"
base_url = "{env:LLM_BASE_URL}"
headers = { Authorization = "token {secrets.USER_TOKEN}" }
"""

#: reads what a program inside may: environments, command lines and memory of every process, and every file that was
#: changed today. It prints whose canaries it found; one that it plants itself shows that it looks. Its pattern is no
#: match of itself, and the agent would mask a key in what it prints
SWEEP = f"""echo 'sk-can''ary-planted-' > planted; echo "$USER_TOKEN" > token; {sys.executable} - <<'END'
import glob, os, re, time, urllib.request
pattern, found, read = re.compile(rb"sk-canary-([a-z]+)-"), set(), 0
def look(path, *ranges):
    global read
    try:
        with open(path, "rb", buffering=0) as file:
            for start, size in ranges or [(0, 8 << 20)]:
                try:
                    data = (file.seek(start), file.read(size))[1] or b""
                except (OSError, OverflowError):
                    continue
                found.update(pattern.findall(data))
                read += len(data)
    except OSError:
        pass
for process in glob.glob("/proc/[0-9]*"):
    look(process + "/environ")
    look(process + "/cmdline")
    try:
        lines = [line.split() for line in open(process + "/maps") if " r" in line]
    except OSError:
        continue
    spans = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    look(process + "/mem", *((start, min(end - start, 64 << 20)) for start, end in spans))
for folder, folders, names in (one for top in ("/", os.getcwd()) for one in os.walk(top)):
    folders[:] = [one for one in folders if os.path.join(folder, one) not in ("/proc", "/sys", "/usr")]
    for path in (os.path.join(folder, one) for one in names):
        try:
            if os.stat(path).st_mtime > time.time() - 86400 and os.path.isfile(path):
                look(path)
        except OSError:
            pass
of_user = urllib.request.urlopen(os.environ["HTTPS_PROXY"] + "/user/me").read().decode()
print("user", of_user, "by", open("token").read().strip()[:11])
print("found", sorted(one.decode() for one in found), "in MB:", read >> 20)
END
echo via $HTTPS_PROXY"""


class _EgressModel(BaseHTTPRequestHandler):
    """Proposes a command first, and ends when it has the output."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proposes: str
    shown: list[str]
    read: list[str]
    users: list[str]

    def do_POST(self) -> None:
        last = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]
        self.shown.append(self.headers["Authorization"])
        if last["role"] == "user":
            arguments = json.dumps({"command": self.proposes, "security_risk": "LOW"})
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

    def do_GET(self) -> None:
        self.users.append(self.headers["Authorization"])
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"knows")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[str, type[_EgressModel]]]:
    """The base URL of a model on this machine, and what it was shown and read."""
    kind = type("Model", (_EgressModel,), {"shown": [], "read": [], "users": [], "proposes": SWEEP})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", kind
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def client(request, model, tmp_path_factory):
    environment = {"LLM_MODEL": "gpt", "LLM_BASE_URL": model[0], **CANARIES}
    if request.param == "bubblewrap":
        program("bwrap")
        if abilities().bubblewrap:
            lacking(abilities().bubblewrap)
    else:
        environment["PATH"] = "/nowhere"  # where bubblewrap is not
        if not abilities().landlock:
            lacking("this kernel has no Landlock")
    folder = tmp_path_factory.mktemp("egress")
    (folder / "specs.toml").write_text(BUNDLED.read_text() + SERVICES)
    with supervised_server(folder, SANDBOX_SPECS=str(folder / "specs.toml"), **environment) as (client, _):
        yield client


def finished(client, conversation: str) -> None:
    """Have a conversation propose its command, approve it, and wait for its end."""
    path = f"/api/conversations/{conversation}"
    message = {"content": [{"type": "text", "text": "Look around."}]}
    start = {"conversation_id": conversation, "initial_message": message, "secrets": {"USER_TOKEN": OF_USER}}
    client.post("/api/v1/app-conversations", json=start).raise_for_status()
    waiting = "waiting_for_confirmation"
    wait_until(lambda: client.get(path).json().get("execution_status") == waiting, "an action that waits")
    assert client.post(f"{path}/events/respond_to_confirmation", json={"accept": True}).json() == {"success": True}
    wait_until(lambda: client.get(path).json()["execution_status"] == "finished", "the end of the run")


def test_the_model_answers_and_no_key_is_inside_or_in_what_leaves_the_sandbox(client, model):
    _, seen = model
    seen.shown.clear()
    seen.read.clear()
    seen.users.clear()
    conversation = str(uuid4())
    finished(client, conversation)
    sandbox = client.get("/api/v1/app-conversations", params={"ids": conversation}).json()[0]["sandbox_id"]

    assert set(seen.shown) == {f"Bearer {KEY}"}
    assert "found ['planted'] in MB: " in seen.read[0]
    assert "user knows by " in seen.read[0]
    assert seen.users == [f"token {OF_USER}"]
    assert "via http://127.0.0.1:" in seen.read[0]
    paths = [
        f"/api/conversations/{conversation}/events/search",
        f"/api/conversations/{conversation}/export",
        f"/api/file/download-trajectory/{conversation}",
        f"/api/v1/sandboxes/{sandbox}/logs",
        f"/api/v1/sandboxes/{sandbox}/archive",
        "/api/v1/sandboxes/search",
        "/api/v1/sandbox-specs/search",
    ]
    left = [client.get(path).raise_for_status().content for path in paths]
    left.append(client.get("/api/v1/sandboxes/no-sandbox/logs").content)  # an error's text
    canaries = {**CANARIES, "USER_TOKEN": OF_USER}
    assert not [name for name, canary in canaries.items() for each in left if canary.encode() in each]


def test_a_clients_own_loopback_url_is_the_servers_model_and_what_is_ignored_is_told(client, model, monkeypatch):
    url, seen = model
    monkeypatch.setattr(seen, "proposes", "true")
    seen.shown.clear()
    conversation, tools = str(uuid4()), [{"name": "terminal"}, {"name": "browser_tool_set"}]
    llm = {"model": "theirs", "base_url": url.replace("127.0.0.1", "localhost"), "api_key": "the clients own key"}
    body = {
        "conversation_id": conversation,
        "agent": {"kind": "Agent", "llm": llm, "tools": tools},
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/workspace"},
        "initial_message": {"content": [{"type": "text", "text": "Go."}], "run": True},
    }

    started = client.post("/api/conversations", json=body)
    wait_until(
        lambda: client.get(f"/api/conversations/{conversation}").json()["execution_status"] == "finished", "the end"
    )

    assert set(seen.shown) == {f"Bearer {KEY}"}
    told = started.headers["X-Start-Detail"]
    assert "as the service model of the spec" in told
    assert "tools are ignored: browser_tool_set." in told
    assert "the clients own key" not in told
    [start] = client.get("/api/v1/app-conversations/start-tasks/search").json()["items"][:1]
    assert (start["status"], start["detail"]) == ("READY", told)


def test_a_clients_other_loopback_url_is_told_before_the_agent_fails(client):
    llm = {"model": "theirs", "base_url": str(client.base_url).rstrip("/") + "/v1", "api_key": "x"}
    body = {"agent": {"llm": llm}, "workspace": {"working_dir": "/workspace"}}

    told = client.post("/api/conversations", json=body).headers["X-Start-Detail"]

    assert told.startswith(f"agent.llm.base_url: the sandbox does not reach {client.base_url}")
    assert "Set LLM_BASE_URL of the server" in told


def test_a_proxy_that_is_killed_is_started_again(client, model):
    def proxies() -> list[psutil.Process]:
        ours = [each for each in psutil.process_iter() if each.pid != os.getpid()]
        return [each for each in ours if is_proxy_of(each)]

    def is_proxy_of(process: psutil.Process) -> bool:
        try:
            forked = [process.cmdline()[1:3], process.parent().cmdline()[1:3]]
            return forked == 2 * [["-m", "egress"]] and process.environ().get("LLM_API_KEY") == KEY
        except (psutil.Error, OSError, AttributeError):  # one that ends has no parent
            return False

    wait_until(proxies, "the proxy")
    [before] = proxies()
    before.send_signal(signal.SIGKILL)
    wait_until(lambda: [each for each in proxies() if each.pid != before.pid], "the next proxy")
    finished(client, str(uuid4()))
