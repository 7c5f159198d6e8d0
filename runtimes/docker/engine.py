"""The Docker engine of this machine: a client per thread, and its errors as sentences."""

import contextlib
import threading
from collections.abc import Iterator

try:
    import docker
except ModuleNotFoundError:  # the one dependency that is optional
    docker = None  # type: ignore[assignment]

from runtimes import RuntimeFailure

__all__ = ["Engine", "docker"]

#: seconds that the engine may take to respond
_TIMEOUT = 30


class Engine:
    """The engine that the docker program finds. Any number of threads may use it."""

    def __init__(self) -> None:
        self._own = threading.local()  # a client's connections are for one thread at a time

    @contextlib.contextmanager
    def client(self, what: str) -> Iterator["docker.DockerClient"]:
        """The client of this thread; the engine's errors become a RuntimeFailure that begins with `what`."""
        if docker is None:
            raise RuntimeFailure(f"{what}: its spec wants docker; pip install -r requirements-docker.txt")
        try:
            if not hasattr(self._own, "client"):
                self._own.client = docker.from_env(timeout=_TIMEOUT)
            yield self._own.client
        except docker.errors.APIError as error:
            raise RuntimeFailure(f"{what}: {error.explanation or error}") from error
        except (docker.errors.DockerException, OSError) as error:
            raise RuntimeFailure(f"{what}: no engine answers: {error}") from error
