"""Real supervisors, each a process with a folder of its own, all of the host name `twin`."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from tests.servers import running


def _environment(url: str, folder: Path, **environment: str) -> dict[str, str]:
    settings = {
        "REDIS_URL": url,
        "HOST_ID": "twin",
        "DATA_DIR": str(folder),
        "STOP_SANDBOXES": "0",
        "HOST_SECONDS": "3600",
    }
    return {**os.environ, **settings, **environment}


@contextmanager
def supervisor(redis: Redis, folder: Path, *words: str, **environment: str):
    """A supervisor of the host `twin` with a folder of its own; its process and the file of its log."""
    folder.mkdir(exist_ok=True)
    url = f"unix://{redis.get_connection_kwargs()['path']}"
    log = folder / "log"
    command = [sys.executable, "-m", "supervisor", *words]
    with (
        log.open("ab") as output,
        running(command, env=_environment(url, folder, **environment), stdout=output, stderr=output) as process,
    ):
        yield process, log


def says(log: Path, sentence: str) -> bool:
    return sentence in log.read_text()
