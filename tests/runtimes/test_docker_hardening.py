"""Operations that a container cannot do unless its spec allows them, tried inside real containers."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from runtimes import RuntimeCallFailed
from runtimes.docker import DockerRuntime
from runtimes.docker.engine import METADATA, NETWORK
from tests.servers import running, wait_until

pytestmark = pytest.mark.docker("starts containers")

#: prints the data or the error of one connection, which has a source address or is bound to a device, if named
CONNECT = """
import socket, sys
connection = socket.socket()
connection.settimeout(3)
try:
    if sys.argv[3:] == ["eth0"]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    elif sys.argv[3:]:
        connection.bind((sys.argv[3], 0))
    connection.connect((sys.argv[1], int(sys.argv[2])))
    print("got", connection.recv(99).decode())
except OSError as error:
    print("refused" if isinstance(error, ConnectionRefusedError) else "no way", error)
"""

#: waits for connections and greets them
GREETS = "import socket; s = socket.create_server(('0.0.0.0', 8000))\nwhile True: s.accept()[0].sendall(b'hello')"


def said(container, *command: str) -> str:
    return container.exec_run(list(command)).output.decode()


def connected(container, *words: object) -> str:
    return said(container, "python", "-c", CONNECT, *map(str, words))


@pytest.fixture
def runtime(host):
    return DockerRuntime(host)


@pytest.fixture
def started(runtime, engine, launch):
    """Start a sandbox with these changes; its container."""
    return lambda **changes: engine.container_of(runtime.start(replace(launch, **changes)))


def greets(address: tuple[str, str]) -> bool:
    with socket.create_connection(address, 1) as client:
        return client.recv(5) == b"hello"


@contextlib.contextmanager
def listener(address: str):
    """The port of a program of this machine that greets every client of the address."""
    with socket.create_server((address, 0)) as server:

        def greet():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as client:
                        client.sendall(b"hello")

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def address_of_this_machine(address: str):
    """Give this machine an address within the block."""
    if os.geteuid():
        pytest.skip("only root can give this machine a link-local address")
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=True)


def status(container) -> dict[str, str]:
    lines = said(container, "cat", "/proc/self/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_sandbox_has_no_capabilities_and_gets_no_new_privileges(started):
    seen = status(started())

    assert {seen[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
    assert seen["NoNewPrivs"] == "1"


def test_a_spec_can_allow_capabilities_and_new_privileges(started):
    container = started(capabilities=("NET_RAW", "CHOWN"), new_privileges=True)

    assert int(status(container)["CapBnd"], 16) == 1 << 13 | 1 << 0
    assert status(container)["NoNewPrivs"] == "0"


@pytest.mark.parametrize(("user", "writable"), [("", ["/tmp", "/workspace"]), ("root", ["/tmp", "/run"])])
def test_a_sandbox_writes_its_working_folder_and_tmp_and_run_alone(started, user, writable):
    tries = "for f in /tmp /run /workspace /app /venv /etc /root; do touch $f/x 2>/dev/null && echo $f; done"

    assert started().exec_run(["sh", "-c", tries], user=user).output.decode().split() == writable


def test_the_working_folder_of_the_image_is_writable_where_the_spec_names_none(started):
    container = started(working_dir=".")

    assert said(container, "pwd").strip() == "/app"
    assert "No such" not in said(container, "ls", "/app/app.py")
    assert {mount["Destination"] for mount in container.attrs["Mounts"]} >= {"/app"}


def test_a_spec_can_allow_a_writable_root(started):
    container = started(read_only=False)

    assert not container.attrs["HostConfig"]["ReadonlyRootfs"]
    assert said(container, "sh", "-c", "touch /var/tmp/x && echo written").strip() == "written"


def test_a_sandbox_without_limits_in_its_spec_has_those_of_the_runtime(started):
    limits = started().attrs["HostConfig"]

    assert (limits["Memory"], limits["MemorySwap"]) == (2 << 30, 2 << 30)
    assert (limits["NanoCpus"], limits["PidsLimit"]) == (1_000_000_000, 512)


def test_sandboxes_cannot_reach_each_other(started, launch):
    one, two = (started(sandbox_id=f"{launch.sandbox_id}-{n}", command=("python", "-c", GREETS)) for n in "ab")
    [address] = [network["IPAddress"] for network in two.attrs["NetworkSettings"]["Networks"].values()]

    assert "got hello" in connected(two, address, 8000)  # it listens
    assert "no way" in connected(one, address, 8000)
    interfaces = {line.split()[-1] for line in said(one, "cat", "/proc/net/if_inet6").splitlines()}
    assert interfaces <= {"lo"}  # nor by IPv6


def test_sandboxes_of_a_network_that_their_spec_names_can_reach_each_other(started, launch, engine):
    network = engine.client.networks.create(f"together-{launch.sandbox_id}")
    options = {"command": ("python", "-c", GREETS), "network": network.name}
    one, two = (started(sandbox_id=f"{launch.sandbox_id}-{n}", **options) for n in "ab")
    try:
        address = two.attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"]
        assert "got hello" in connected(one, address, 8000)
    finally:
        for container in (one, two):
            container.remove(force=True, v=True)
        network.remove()


@pytest.mark.parametrize("address", METADATA)
def test_a_sandbox_cannot_reach_a_metadata_service(started, engine, image, address):
    sandbox = started()
    with address_of_this_machine(address), listener(address) as port:
        elsewhere = engine.client.containers.run(image, ["python", "-c", CONNECT, address, str(port)], remove=True)
        assert b"got hello" in elsewhere  # a container of the engine's own network reaches it

        own = sandbox.attrs["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
        for words in [(), (own,), (address,), ("eth0",)]:
            assert "refused" in connected(sandbox, address, port, *words)


@pytest.fixture
def router():
    """Run `ip` on this machine and on another one, a network namespace, to which it routes 169.254.7.7."""
    if os.geteuid():
        pytest.skip("only root can make a network namespace")
    name = f"t{uuid4().hex[:8]}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", "198.18.7.1/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", "198.18.7.2/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "address", "add", "169.254.7.7/32", "dev", "eth0")
        ip("-n", name, "route", "add", "default", "via", "198.18.7.1")
        ip("route", "add", "169.254.7.7/32", "via", "198.18.7.2")
        yield name
    finally:
        ip("netns", "delete", name)


def test_a_sandbox_reaches_no_link_local_address_that_its_host_routes(started, router, engine, image):
    address, sandbox = ("169.254.7.7", "8000"), started()
    with running(["ip", "netns", "exec", router, sys.executable, "-c", GREETS]):
        wait_until(lambda: greets(address), "the other machine")
        elsewhere = engine.client.containers.run(image, ["python", "-c", CONNECT, *address], remove=True)
        assert b"got hello" in elsewhere  # a container of the engine's own network reaches it

        own = sandbox.attrs["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
        for words in [(own,), (), ("eth0",)]:
            assert "no way" in connected(sandbox, *address, *words)


def test_a_sandbox_reaches_the_host_as_host_docker_internal(started):
    with listener("0.0.0.0") as port:
        assert "got hello" in connected(started(), "host.docker.internal", port)


@pytest.fixture
def network(engine, monkeypatch):
    """The runtime's network has this name, which nothing on the engine has had."""
    name = f"net-{uuid4().hex[:8]}"
    monkeypatch.setattr("runtimes.docker.engine.NETWORK", name)
    yield name
    for found in engine.client.networks.list(names=[name]):
        for container in engine.client.containers.list(all=True, filters={"network": name}):
            container.remove(force=True, v=True)
        found.remove()


def test_concurrent_first_starts_make_one_network(engine, network, host, launch):
    launches = [replace(launch, sandbox_id=f"{launch.sandbox_id}-{n}") for n in range(6)]

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: DockerRuntime(host).start(one), launches))

    [made] = engine.client.networks.list(names=[network])
    assert len(made.attrs.get("Containers") or engine.client.networks.get(made.id).attrs["Containers"]) == 6


def test_a_network_of_that_name_that_joins_containers_is_refused(engine, network, runtime, launch):
    engine.client.networks.create(network)

    with pytest.raises(RuntimeCallFailed, match=r"lets containers reach each other\. Remove it"):
        runtime.start(launch)
