"""Sandboxes as containers of a Docker engine, which is found as the docker program finds it (DOCKER_HOST, …).

Needs the packages of requirements-docker.txt. The engine keeps what there is to know: a container is named for its
sandbox, so that a start happens once, and labelled with its host. Its ports are published on loopback. It reaches
the server as `host.docker.internal`; the server must listen on an address that containers reach, and who may use the
engine's socket is root on its host.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

try:
    import docker
    from docker.errors import APIError, DockerException, NotFound
    from docker.models.containers import Container
except ModuleNotFoundError:  # the one dependency that is optional
    docker = None  # type: ignore[assignment]

from runtimes import Handle, Launch, Observation, RuntimeFailure, State, filled

#: labels of a container: its sandbox, and the host whose supervisor started it
SANDBOX, HOST = "agent-server.sandbox", "agent-server.host"

#: seconds that the engine may take to answer
_PATIENCE = 30

#: bytes of each of the two files in which the engine keeps a container's output
_LOG_BYTES = 1 << 20


class DockerRuntime:
    """`runtimes.Runtime` for the containers of one host. Any number of threads may use it."""

    def __init__(self, host: str) -> None:
        """host: the name under which its containers are known."""
        self._host = host
        self._own = threading.local()  # a client's connections are for one thread at a time

    def start(self, launch: Launch) -> Handle:
        """Start a container, once per sandbox. One of the name that has ended is replaced."""
        with self._engine(f"sandbox {launch.sandbox_id} cannot be started") as engine:
            name = _name(launch.sandbox_id)
            try:
                container = engine.containers.get(name)
                if container.status in ("exited", "dead"):
                    container.remove(force=True, v=True)
                    container = self._create(engine, launch, name)
            except NotFound:
                container = self._create(engine, launch, name)
            if container.status not in ("running", "paused"):
                try:
                    container.start()
                except APIError:
                    container.remove(force=True, v=True)
                    raise
                container.reload()
            return _handle(launch.sandbox_id, container, launch)

    def known(self) -> list[Handle]:
        """Every container of this host, running or not; none where no engine answers."""
        with contextlib.suppress(RuntimeFailure), self._engine("the engine cannot be asked") as engine:
            found = engine.containers.list(all=True, filters={"label": f"{HOST}={self._host}"})
            return [_handle(container.labels[SANDBOX], container, None) for container in found]
        return []

    def observe(self, handle: Handle) -> Observation:
        """What the engine says. A container whose own health check fails counts as gone. Raises RuntimeFailure."""
        with self._engine("the engine cannot be asked") as engine:
            try:
                container = engine.containers.get(handle["container"])
            except NotFound:
                return Observation(State.GONE, "its container was removed")
            if container.status == "paused":
                return Observation(State.PAUSED)
            if container.status not in ("running", "restarting", "created"):
                return Observation(State.GONE, _ending(container.attrs["State"]))
            if container.health == "unhealthy":
                return Observation(State.GONE, "its container says that it is unhealthy")
            return Observation(State.RUNNING)

    def pause(self, handle: Handle) -> None:
        """Have the engine freeze the container."""
        self._move(handle, "pause", "paused")

    def resume(self, handle: Handle) -> None:
        """Have the engine let the container go on."""
        self._move(handle, "unpause", "running")

    def stop(self, handle: Handle) -> None:
        """Remove the container and its volumes."""
        with self._engine(f"sandbox {handle['sandbox_id']} cannot be stopped") as engine, contextlib.suppress(NotFound):
            engine.containers.get(handle["container"]).remove(force=True, v=True)

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that it printed, as far as the engine keeps them."""
        if tail <= 0:
            return ""
        with contextlib.suppress(RuntimeFailure), self._engine("the engine cannot be asked") as engine:
            try:
                text: bytes = engine.containers.get(handle["container"]).logs(tail=tail)
            except NotFound:
                return ""
            return "\n".join(text.decode(errors="replace").splitlines()[-tail:])
        return ""

    def _move(self, handle: Handle, verb: str, status: str) -> None:
        with self._engine(f"sandbox {handle['sandbox_id']}: {verb}") as engine:
            try:
                container = engine.containers.get(handle["container"])
                if container.status != status:
                    getattr(container, verb)()
            except NotFound:
                raise RuntimeFailure(f"the sandbox {handle['sandbox_id']} ended: its container was removed") from None
            except APIError as error:
                container.reload()
                if error.status_code != 409 or container.status != status:  # 409: another one was faster
                    raise

    def _create(self, engine: "docker.DockerClient", launch: Launch, name: str) -> "Container":
        try:
            return engine.containers.create(**self._settings(launch, name))
        except APIError as error:
            if error.status_code != 409:
                raise
            return engine.containers.get(name)  # another one was faster

    def _settings(self, launch: Launch, name: str) -> dict[str, Any]:
        if launch.isolated:
            raise RuntimeFailure("isolated is for processes: a container is")
        return {
            "image": launch.image,
            "command": [filled(word, launch.ports) for word in launch.command],
            "name": name,
            "labels": {SANDBOX: launch.sandbox_id, HOST: self._host},
            "environment": {key: filled(text, launch.ports) for key, text in launch.env.items()},
            "working_dir": launch.working_dir if launch.working_dir.startswith("/") else None,
            "ports": {f"{port}/tcp": ("127.0.0.1", None) for port in launch.ports.values()},
            "extra_hosts": {"host.docker.internal": "host-gateway"},
            "init": True,
            "mem_limit": launch.memory_bytes,
            "memswap_limit": launch.memory_bytes,
            "nano_cpus": launch.cpus and round(launch.cpus * 1e9),
            "pids_limit": launch.processes,
            "log_config": {"Type": "json-file", "Config": {"max-size": str(_LOG_BYTES), "max-file": "2"}},
        }

    @contextlib.contextmanager
    def _engine(self, what: str) -> Iterator["docker.DockerClient"]:
        """The client of this thread; its errors as a RuntimeFailure."""
        if docker is None:
            raise RuntimeFailure(f"{what}: its spec wants docker; pip install -r requirements-docker.txt")
        try:
            if not hasattr(self._own, "client"):
                self._own.client = docker.from_env(timeout=_PATIENCE)
            yield self._own.client
        except APIError as error:
            raise RuntimeFailure(f"{what}: {error.explanation or error}") from error
        except (DockerException, OSError) as error:
            raise RuntimeFailure(f"{what}: no engine answers: {error}") from error


def _name(sandbox_id: str) -> str:
    return f"agent-server-{sandbox_id}"


def _handle(sandbox_id: str, container: "Container", launch: Launch | None) -> Handle:
    """launch: None where the ports are not asked for."""
    ports = {}
    for name, port in (launch.ports if launch else {}).items():
        published = container.ports.get(f"{port}/tcp")
        if not published:
            raise RuntimeFailure(f"sandbox {sandbox_id} cannot be started: {_ending(container.attrs['State'])}")
        ports[name] = int(published[0]["HostPort"])
    return Handle({"runtime": "docker", "sandbox_id": sandbox_id, "container": container.id, "ports": ports})


def _ending(state: dict[str, Any]) -> str:
    """How a container ended, as the engine tells it."""
    if state.get("OOMKilled"):
        return "it needed more memory than it may have"
    return state.get("Error") or f"exit code {state.get('ExitCode')}"
