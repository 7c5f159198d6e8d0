"""The hosts of a fleet stop and start in turn behind the balancer of deploy/fleet, while clients append and follow: no
request is cut, no event is lost or doubled, and every follower reconnects at its cursor."""

import csv
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from tests.servers import PROJECT, TIMEOUT, agent_server, free_port, program, running, store_server, wait_until
from tests.test_live import SocketReader, StreamReader
from tests.test_rolling_restart import appending, assert_complete, wait_for_appends

pytestmark = pytest.mark.faults("drains two servers behind a balancer, one after the other")

CONFIGURATION = PROJECT / "deploy" / "fleet" / "haproxy.cfg"

#: seconds of a drain, longer than the test: it ends each drain when the balancer has taken the host out
DRAIN = 600


class RollingHost:
    """A server on a port that it keeps when it starts again."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        self.name, self.port = name, free_port()
        self._log = folder / f"{name}.log"
        self._settings = {"REDIS_URL": url, "HOST_ID": name, "PORT": str(self.port), "DRAIN_SECONDS": str(DRAIN)}
        self._running = ExitStack()

    def start(self) -> None:
        server = agent_server(self._log, **self._settings, GRACEFUL_TIMEOUT="60", WEB_CONCURRENCY="1")
        self.client, self.master = self._running.enter_context(server)
        wait_until(lambda: self.client.get("/ready").status_code == 200, f"{self.name} to be ready")

    def drain(self) -> None:
        self.master.send_signal(signal.SIGTERM)
        wait_until(lambda: self.client.get("/ready").status_code == 503, f"{self.name} to drain")

    def stop(self) -> None:
        """End the drain, and wait for the end of the server."""
        self.master.send_signal(signal.SIGTERM)
        assert self.master.wait(TIMEOUT) == 0
        self._running.close()


class Balancer:
    """HAProxy with the configuration of deploy/fleet, before hosts of this machine."""

    def __init__(self, folder: Path, hosts: list[RollingHost]) -> None:
        self.port = free_port()
        self.file, self._control = folder / "haproxy.cfg", folder / "control"
        text, bound = re.subn(r"bind :8000$", f"bind 127.0.0.1:{self.port}", CONFIGURATION.read_text(), flags=re.M)
        for host in hosts:
            text, named = re.subn(rf"\b{host.name}:8000$", f"127.0.0.1:{host.port}", text, flags=re.M)
            assert (bound, named) == (1, 1)
        self.file.write_text(text.replace("global\n", f"global\n  stats socket {self._control}\n", 1))

    def sees(self, host: RollingHost) -> str:
        """UP or DOWN, with a count of checks while it changes."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self._control))
            control.sendall(b"show stat\n")
            with control.makefile() as shown:
                lines = shown.read().removeprefix("# ").strip().splitlines()
        [status] = [row["status"] for row in csv.DictReader(lines) if row["svname"] == host.name]
        return status


class Fleet:
    """Two hosts on one Redis, a balancer before them, and a client of the balancer."""

    def __init__(self, hosts: list[RollingHost], balancer: Balancer, client: httpx.Client) -> None:
        self.hosts, self.balancer, self.client = hosts, balancer, client

    def wait_until_seen(self, host: RollingHost, status: str) -> None:
        wait_until(lambda: self.balancer.sees(host) == status, f"the balancer to see {host.name} {status}")


@pytest.fixture
def fleet(tmp_path) -> Iterator[Fleet]:
    haproxy = program("haproxy")
    with store_server(tmp_path) as (url, _), ExitStack() as stack:
        hosts = [RollingHost(tmp_path, name, url) for name in ("host1", "host2")]
        for host in hosts:
            host.start()
            stack.callback(host.stop)
            stack.callback(host.drain)
        balancer = Balancer(tmp_path, hosts)
        stack.enter_context(running([haproxy, "-db", "-f", str(balancer.file)]))
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{balancer.port}", timeout=TIMEOUT))
        whole = Fleet(hosts, balancer, client)
        for host in hosts:
            whole.wait_until_seen(host, "UP")
        yield whole


class Ends:
    """Of a reader: keeps how each of its connections has ended, the code of a socket or an error."""

    def __init__(self, client: httpx.Client, conversation: str) -> None:
        super().__init__(client, conversation)
        self.ends: list[object] = []

    def follow(self, last: int) -> None:
        try:
            self.read(last)
            self.ends.append("its end")
        except ConnectionClosed as closed:
            self.ends.append(closed.rcvd and closed.rcvd.code)
        except Exception as error:
            self.ends.append(error)


class SocketEnds(Ends, SocketReader):
    pass


class StreamEnds(Ends, StreamReader):
    pass


def test_a_rolling_restart_of_the_hosts_cuts_no_request_and_loses_no_event(fleet):
    with appending(fleet.client) as appenders:
        readers = [kind(fleet.client, one.conversation) for one in appenders for kind in (SocketEnds, StreamEnds)]
        for reader in readers:
            reader.start()
        wait_until(lambda: all(reader.received for reader in readers), "the followers")
        for host in fleet.hosts:
            host.drain()
            fleet.wait_until_seen(host, "DOWN")
            host.stop()
            wait_for_appends(appenders)
            host.start()
            fleet.wait_until_seen(host, "UP")
            wait_for_appends(appenders)
        wait_until(lambda: all(reader.ends for reader in readers), "an end of each follower's connection")

    assert_complete(fleet.client, appenders, readers)
    assert {end for reader in readers if isinstance(reader, SocketEnds) for end in reader.ends} == {1012}
    assert {end for reader in readers if isinstance(reader, StreamEnds) for end in reader.ends} == {"its end"}
