"""Containers whose spec names their way out, on a real engine with the whole server: what they reach, and what not."""

import os
import signal
import socket
import sys
from dataclasses import replace
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import pytest

from runtimes import ProcessState, RuntimeCallFailed
from runtimes.docker import DockerRuntime
from runtimes.docker.engine import METADATA
from runtimes.isolation.container import CarryOrder, carried_ports
from tests.engine import ran
from tests.runtimes.test_docker_hardening import listener
from tests.servers import WITH_DOCKER, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.test_egress import CANARIES, KEY, OF_USER, SERVICES, SWEEP, finished, model

__all__ = ["model"]

pytestmark = pytest.mark.docker("starts containers and a whole server")

SPEC = """
[[spec]]
id = "{id}"
created_at = 2026-11-21T00:00:00Z
runtime = "docker"
image = "{image}"
working_dir = "/workspace"
command = ["python", "-m", "reference_agent", "--host", "127.0.0.1", "--port", "{{AGENT_SERVER}}"]
initial_env = {{ PYTHONPATH = "/app" }}
{more}

[spec.secret_env]
LLM_MODEL = "{{env:LLM_MODEL}}"
LLM_API_KEY = "{{env:LLM_API_KEY}}"
LLM_BASE_URL = "{{env:LLM_BASE_URL}}"

[spec.conversation]
confirmation_policy = {{ kind = "AlwaysConfirm" }}
"""

#: prints what comes of one connection or datagram of each line of the standard input: "KIND HOST PORT"
TRIES = """
import socket, sys
for line in sys.stdin.read().splitlines():
    kind, host, port = line.split()
    try:
        if kind == "abstract":
            socket.socket(socket.AF_UNIX).connect("\\0" + host)
        elif kind == "packet":
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW).bind((host, 0))
        elif kind == "raw":
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).sendto(b"12345678", (host, 0))
        elif kind == "udp":
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", (host, int(port)))
        elif kind == "name":
            socket.getaddrinfo(host, int(port))
        else:
            socket.create_connection((host, int(port)), 3)
        print("passed", line)
    except OSError as error:
        print("stopped", line, error)
"""

#: prints the status of each request that the lines of the standard input are: "PORT METHOD TARGET"
ASKS = """
import socket, sys
for line in sys.stdin.read().splitlines():
    port, request = line.split(" ", 1)
    with socket.create_connection(("127.0.0.1", int(port)), 10) as client:
        client.sendall(f"{request} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n".encode())
        print(client.recv(65536).decode().partition("\\r\\n")[0])
"""


def fed(container, program: str, lines: list[str], user: str = "") -> list[str]:
    """What a program prints in a container that reads these lines."""
    text = "\n".join(lines)
    result = container.exec_run(["sh", "-c", f"python -c '{program}' <<'END'\n{text}\nEND"], user=user)
    return result.output.decode().splitlines()


@pytest.fixture(scope="module")
def server(engine, image, model, tmp_path_factory):
    """A server whose containers have a way out by name, and one sort that has root, NET_ADMIN and NET_RAW."""
    folder, host = tmp_path_factory.mktemp("way-out"), f"tests-{uuid4().hex[:8]}"
    named = 'egress = "named"\npresets = []\nhosts = ["allowed.example"]'
    loose = f'{named}\ncapabilities = ["NET_ADMIN", "NET_RAW"]'
    more = {"named": named, "loose": loose, "closed": 'egress = "none"'}
    specs = [SPEC.format(id=name, image=image, more=text) for name, text in more.items()]
    specs.insert(1, SERVICES)  # of the first one
    (folder / "specs.toml").write_text("".join(specs))
    settings = {
        "SANDBOX_SPECS": f"{folder}/specs.toml",
        "HOST_ID": host,
        "AUTH": "open",
        "DOCKER_HOST": engine.url,
        **WITH_DOCKER,
    }
    with supervised_server(folder, **settings, **CANARIES, LLM_MODEL="gpt", LLM_BASE_URL=model[0]) as (client, _):
        yield WireApi(client), client
    assert engine.client.containers.list(all=True, filters={"label": f"agent-server.host={host}"}) == []


@pytest.fixture
def api(server):
    yield server[0]
    server[0].clean()


def container_of(engine, sandbox):
    return engine.client.containers.get(f"agent-server-{sandbox['id']}")


def test_an_agent_in_a_container_reaches_its_model_and_no_key_is_inside_or_in_what_leaves_it(
    api, server, engine, model
):
    _, client = server
    _, seen = model
    seen.shown.clear()
    seen.read.clear()
    seen.users.clear()
    seen.proposes = SWEEP.replace(sys.executable, "python")
    conversation = str(uuid4())
    finished(client, conversation)
    sandbox = client.get("/api/v1/app-conversations", params={"ids": conversation}).json()[0]["sandbox_id"]

    assert set(seen.shown) == {f"Bearer {KEY}"}
    assert "found ['planted'] in MB: " in seen.read[0]
    assert "via http://127.0.0.1:1023" in seen.read[0]
    assert seen.users == [f"token {OF_USER}"]
    paths = [f"/api/conversations/{conversation}/export", f"/api/v1/sandboxes/{sandbox}/archive"]
    paths += [f"/api/v1/sandboxes/{sandbox}/logs", "/api/v1/sandboxes/search", "/api/v1/sandbox-specs/search"]
    left = [client.get(path).raise_for_status().content for path in paths]
    left.append(str(engine.client.containers.get(f"agent-server-{sandbox}").attrs).encode())
    canaries = {**CANARIES, "USER_TOKEN": OF_USER}
    assert not [name for name, canary in canaries.items() for each in left if canary.encode() in each]


@pytest.mark.parametrize("spec", ["named", "loose", "closed"])
def test_nothing_leads_past_the_proxy_whatever_the_container_may(api, engine, spec):
    sandbox, other = api.running_sandbox(spec), api.running_sandbox("named")
    container = container_of(engine, sandbox)
    bridge = engine.client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    with listener("0.0.0.0") as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("198.51.100.1", 9))
        hosts = [bridge, route.getsockname()[0], *METADATA, "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"]
        tries = [f"tcp {host} {number}" for host in hosts for number in (port, 443)]
        tries += [f"udp {host} 53" for host in hosts]
        tries += [f"name {name} 443" for name in ("example.org", "host.docker.internal", "allowed.example")]
        tries += [f"raw {host} 0" for host in hosts[:2]] + ["packet eth0 0"]
        tries += [f"abstract agent-server-container-{container_of(engine, one).id} 0" for one in (sandbox, other)]
        tries += [f"tcp 127.0.0.1 {urlsplit(one['url']).port}" for one in other["exposed_urls"]]
        said = fed(container, TRIES, tries, user="root")

    assert len(said) == len(tries)
    assert [line for line in said if not line.startswith("stopped ")] == []
    links = ran(container, "cat /proc/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in links] == ["lo"]


def test_the_proxy_refuses_what_is_not_named_and_the_webhooks_lead_to_the_webhooks_alone(api, engine):
    sandbox = api.running_sandbox("named")
    refused = ["CONNECT 1.1.1.1:443", "CONNECT [::1]:443", "CONNECT 127.1:443", "CONNECT 0x7f.1:443"]
    refused += ["CONNECT localhost:443", "CONNECT other.example:443", "CONNECT allowed.example:22"]
    refused += [
        "GET http://169.254.169.254/latest",
        "GET http://allowed.example/",
        "GET /git/../../x",
        "GET /git/%252e./x",
    ]
    said = fed(container_of(engine, sandbox), ASKS, [f"1023 {one}" for one in refused])
    hooks = fed(
        container_of(engine, sandbox), ASKS, ["1022 GET /api/v1/sandboxes/search", "1022 POST /api/v1/sandboxes"]
    )

    assert [line.split()[1] for line in said + hooks] == ["403"] * (len(refused) + len(hooks))
    asked = api.call("GET", "/v1/destinations")["items"]
    named = {(one["name"], one["port"]) for one in asked if one["sandbox_id"] == sandbox["id"]}
    assert named == {("other.example", 443), ("allowed.example", 22), ("allowed.example", 80)}


def test_a_container_whose_way_out_is_closed_has_its_webhooks_and_no_proxy(api, engine):
    sandbox = api.running_sandbox("closed")

    said = fed(container_of(engine, sandbox), TRIES, ["tcp 127.0.0.1 1022", "tcp 127.0.0.1 1023"])

    assert [line.split()[0] for line in said] == ["passed", "stopped"]
    assert api.sandbox(sandbox["id"])["isolation"]["network"] == "none"


# the process that carries


@pytest.fixture
def carrying(host, launch, tmp_path):
    """A runtime, and the launch of a sandbox with a way out by name that serves its folder."""
    serves = ("python", "-m", "http.server", "{AGENT_SERVER}")
    return DockerRuntime(host, tmp_path), replace(launch, command=serves, network="named", hook_key="hook")


def carrier_of(handle) -> psutil.Process:
    """The process that carries for a container."""
    name = f"@agent-server-container-{handle['container']}"
    [found] = [each for each in psutil.net_connections("unix") if each.laddr == name and each.pid]
    return psutil.Process(found.pid)


def test_a_container_is_carried_for_once_and_a_later_supervisor_finds_its_ports(carrying, host, tmp_path):
    runtime, launch = carrying
    handle = runtime.start(launch)

    assert DockerRuntime(host, tmp_path).start(launch) == handle
    assert carried_ports(handle["container"]) == handle["ports"]
    assert handle["egress_url"] == "http://127.0.0.1:1023"
    with socket.create_connection(("127.0.0.1", handle["ports"]["AGENT_SERVER"]), 10):
        pass


def test_a_container_is_gone_without_the_process_that_carries_and_that_ends_with_the_container(carrying, engine):
    runtime, launch = carrying
    first = runtime.start(launch)
    runtime.pause(first)
    assert runtime.observe(first).state is ProcessState.PAUSED
    runtime.resume(first)
    os.kill(carrier_of(first).pid, signal.SIGKILL)
    wait_until(lambda: runtime.observe(first).state is ProcessState.GONE, "the end of the process")
    assert runtime.observe(first).detail == "the process that carries its connections was ended"

    second = runtime.start(replace(launch, start=2))
    process = carrier_of(second)
    runtime.stop(second)
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "the end of the process")
    assert carried_ports(second["container"]) is None


def test_a_container_of_an_engine_that_numbers_processes_otherwise_is_not_carried_for(carrying, engine, monkeypatch):
    runtime, launch = carrying

    monkeypatch.setattr(
        "runtimes.docker.CarryOrder", lambda container, _, *rest: CarryOrder(container, os.getpid(), *rest)
    )
    with pytest.raises(RuntimeCallFailed, match="another machine than this server, or in another pid namespace"):
        runtime.start(launch)

    assert engine.holders(launch.sandbox_id) == []
