"""The kinds of Redis that tests run on."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.clusters import cluster
from tests.servers import fakeredis_server, redis_server, valkey_server


@contextlib.contextmanager
def redis_cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A cluster of three primaries and three replicas; the process of its first primary."""
    with cluster(folder) as nodes:
        yield nodes.url, nodes.nodes[0].process


BACKENDS = {
    "fakeredis": fakeredis_server,
    "server": redis_server,
    "cluster": redis_cluster,
    "valkey": valkey_server,
}

#: the backends of every test that touches Redis; tests/store, where the scripts are tested, runs on all backends
MOST_BACKENDS = ("fakeredis", "server", "cluster")
