"""The scripted model on a machine of its own: an isolated sandbox does not reach the loopback of its host."""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.servers import program, running, wait_until

PORT = 9999


@contextlib.contextmanager
def model_elsewhere() -> Iterator[str]:
    """The URL of a model in a network of its own, at the other end of a cable. Skips the test of anyone but root."""
    ip, unshare, nsenter = program("ip"), program("unshare"), program("nsenter")
    if os.geteuid() != 0:
        pytest.skip("only root gives the scripted model a machine of its own, outside this host's loopback")
    # 198.18.0.0/15 belongs to tests of networks. Source: RFC 2544
    network = f"198.18.{random.randrange(256)}.{random.randrange(64) * 4}".rsplit(".", 1)
    here, there = (f"{network[0]}.{int(network[1]) + number}" for number in (1, 2))
    with running([unshare, "--net", sys.executable, "-m", "tests.interop.model", "0.0.0.0", str(PORT)]) as machine:
        cable = f"oh{uuid4().hex[:8]}"
        into = [nsenter, f"--net=/proc/{machine.pid}/ns/net"]
        wait_until(lambda: is_apart(machine.pid), "the machine of the model")
        for command in (
            [ip, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)],
            [ip, "address", "add", f"{here}/30", "dev", cable],
            [ip, "link", "set", cable, "up"],
            [*into, ip, "address", "add", f"{there}/30", "dev", "eth0"],
            [*into, ip, "link", "set", "eth0", "up"],
        ):
            subprocess.run(command, check=True)
        wait_until(lambda: httpx.get(f"http://{there}:{PORT}/").status_code, "the model")
        yield f"http://{there}:{PORT}/v1"


def is_apart(pid: int) -> bool:
    """Whether a process has left this network."""
    return not Path(f"/proc/{pid}/ns/net").samefile("/proc/self/ns/net")
