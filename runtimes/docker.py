"""Sandboxes as containers of a Docker engine, which is found as the docker program finds it (DOCKER_HOST, …).

Needs the packages of requirements-docker.txt. The engine keeps all state: a container bears the name of its
sandbox, so that a start happens once, and a label with its host. Its ports are published on loopback. A container
reaches the server as `host.docker.internal`; the server must listen on an address that containers reach. A user of the
engine's socket is root on its host.

Guarantees, unless the launch says otherwise:
- no capabilities, and no program in the container gets privileges that its caller lacks
- a read-only root. Writable are /tmp and /run (memory) and the working folder (a volume, which ends with the
  container); the image's owner and mode decide who may write there, and a working folder that the image lacks is root's
- limits of memory, cpus and processes
- a network whose containers cannot reach each other: NETWORK, which the first start makes and later starts share. It is
  also the name of the bridge on the host, for firewall rules; `docker network rm` ends it
- no metadata service: each container has the addresses of METADATA itself, so that a call of one is refused inside
  the container, and 169.254.0.0/16 lies on its own bridge, so that the host routes no other link-local address for
  it. Only NET_ADMIN (routes) or NET_RAW (frames of its own making) gets around that

Limitation: a container reaches the internet, the host's other networks, and every port that the host binds
to an address other than loopback. Rules of the host's firewall for the bridge (`-i agent-server`) can enforce that.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

try:
    import docker
    from docker.errors import APIError, DockerException, NotFound
    from docker.models.containers import Container
except ModuleNotFoundError:  # the one dependency that is optional
    docker = None  # type: ignore[assignment]

from runtimes import Handle, Launch, Observation, RuntimeFailure, State, filled

#: labels of a container: its sandbox, and the host of the supervisor that started it
SANDBOX, HOST = "agent-server.sandbox", "agent-server.host"

#: the network of all sandboxes, and the name of its bridge on the host: at most 15 characters
NETWORK = "agent-server"

#: link-local addresses of metadata services: of most clouds; of containers of Amazon's ECS and EKS; of Google's GKE
METADATA = ("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.252")

#: limits of a sandbox without limits in its spec: bytes of memory, cpus, processes
_MEMORY_BYTES, _CPUS, _PROCESSES = 2 << 30, 1.0, 512

#: seconds that the engine may take to respond
_TIMEOUT = 30

#: times that a health check may fail in a row unless the image says otherwise: the engine's own default
_RETRIES = 3

#: option of a network: whether its containers reach each other
_JOINS = "com.docker.network.bridge.enable_icc"

#: bytes of each of the two files in which the engine keeps a container's output
_LOG_BYTES = 1 << 20


#: seconds in which a container whose name is taken must show itself, and between two polls of it
_CONFLICT_TIMEOUT, _CONFLICT_POLL = 10.0, 0.05


class DockerRuntime:
    """`runtimes.Runtime` for the containers of one host. Any number of threads may use it."""

    def __init__(self, host: str) -> None:
        """host: the name under which its containers are known."""
        self._host = host
        self._own = threading.local()  # a client's connections are for one thread at a time

    def start(self, launch: Launch) -> Handle:
        """Start a container, once per sandbox. A container of that name that has ended is replaced."""
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
        """The container's state. One with a failing health check counts as GONE. Raises RuntimeFailure."""
        with self._engine("the engine cannot be asked") as engine:
            try:
                container = engine.containers.get(handle["container"])
            except NotFound:
                return Observation(State.GONE, "its container was removed")
            if container.status == "paused":
                return Observation(State.PAUSED)
            if container.status not in ("running", "restarting", "created"):
                return Observation(State.GONE, _ending(container.attrs["State"]))
            if _is_unhealthy(container.attrs):
                return Observation(State.GONE, "its container says that it is unhealthy")
            return Observation(State.RUNNING)

    def pause(self, handle: Handle) -> None:
        """Freeze the container; the engine does it."""
        self._move(handle, "pause", "paused")

    def resume(self, handle: Handle) -> None:
        """Let the container go on; the engine does it."""
        self._move(handle, "unpause", "running")

    def stop(self, handle: Handle) -> None:
        """Remove the container and its volumes."""
        with self._engine(f"sandbox {handle['sandbox_id']} cannot be stopped") as engine, contextlib.suppress(NotFound):
            engine.containers.get(handle["container"]).remove(force=True, v=True)

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that the container printed, as far as the engine keeps them."""
        if tail <= 0:
            return ""
        with contextlib.suppress(RuntimeFailure), self._engine("the engine cannot be asked") as engine:
            try:
                text: bytes = engine.containers.get(handle["container"]).logs(tail=tail)
            except NotFound:
                return ""
            return "\n".join(text.decode(errors="replace").splitlines()[-tail:])
        return ""

    def pack(self, launch: Launch) -> Iterator[bytes]:
        raise RuntimeFailure(f"the files of the container of {launch.sandbox_id} cannot be packed")

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:  # noqa: ARG002
        raise RuntimeFailure(f"the files of the container of {launch.sandbox_id} cannot be filled from an archive")

    def copy(self, launch: Launch, source_id: str) -> None:  # noqa: ARG002
        raise RuntimeFailure(f"the files of the container of {launch.sandbox_id} cannot be copied")

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
        settings, deadline = self._settings(engine, launch, name), time.monotonic() + _CONFLICT_TIMEOUT
        while True:
            try:
                return engine.containers.create(**settings)
            except APIError as error:
                if error.status_code != 409:
                    raise
            # Another start was faster: it has the name before it has the container.
            with contextlib.suppress(NotFound):
                return engine.containers.get(name)
            if time.monotonic() > deadline:
                raise RuntimeFailure(f"another container has had the name {name} for {_CONFLICT_TIMEOUT:g} s")
            time.sleep(_CONFLICT_POLL)

    def _settings(self, engine: "docker.DockerClient", launch: Launch, name: str) -> dict[str, Any]:
        if launch.isolated:
            raise RuntimeFailure("isolated is for processes: a container is")
        memory = launch.memory_bytes or _MEMORY_BYTES
        return {
            "image": launch.image,
            "command": [filled(word, launch.ports) for word in launch.command],
            "name": name,
            "labels": {SANDBOX: launch.sandbox_id, HOST: self._host},
            "environment": {key: filled(text, launch.ports) for key, text in launch.env.items()},
            "ports": {f"{port}/tcp": ("127.0.0.1", None) for port in launch.ports.values()},
            "extra_hosts": {"host.docker.internal": "host-gateway"},
            "init": True,
            "mem_limit": memory,
            "memswap_limit": memory,
            "nano_cpus": round((launch.cpus or _CPUS) * 1e9),
            "pids_limit": launch.processes or _PROCESSES,
            "cap_drop": ["ALL"],
            "cap_add": list(launch.capabilities),
            "security_opt": [] if launch.new_privileges else ["no-new-privileges"],
            "log_config": {"Type": "json-file", "Config": {"max-size": str(_LOG_BYTES), "max-file": "2"}},
            **_network(engine, launch),
            **_folders(engine, launch, memory),
        }

    @contextlib.contextmanager
    def _engine(self, what: str) -> Iterator["docker.DockerClient"]:
        """The client of this thread; its errors as a RuntimeFailure."""
        if docker is None:
            raise RuntimeFailure(f"{what}: its spec wants docker; pip install -r requirements-docker.txt")
        try:
            if not hasattr(self._own, "client"):
                self._own.client = docker.from_env(timeout=_TIMEOUT)
            yield self._own.client
        except APIError as error:
            raise RuntimeFailure(f"{what}: {error.explanation or error}") from error
        except (DockerException, OSError) as error:
            raise RuntimeFailure(f"{what}: no engine answers: {error}") from error


def _folders(engine: "docker.DockerClient", launch: Launch, memory: int) -> dict[str, Any]:
    """The working folder, and the writable folders."""
    folder = launch.working_dir
    if not folder.startswith("/"):
        folder = engine.images.get(launch.image or "").attrs["Config"].get("WorkingDir") or "/"
    if not launch.read_only:
        return {"working_dir": folder}
    return {
        "working_dir": folder,
        "read_only": True,
        "volumes": [] if folder == "/" else [folder],
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,size={memory // 2}", "/run": "rw,nosuid,nodev,noexec,size=16m"},
    }


def _network(engine: "docker.DockerClient", launch: Launch) -> dict[str, Any]:
    """The network that the launch names, or else the runtime's own."""
    if launch.network:
        return {"network": launch.network}
    try:
        network = engine.networks.get(NETWORK)
    except NotFound:
        options = {_JOINS: "false", "com.docker.network.bridge.name": NETWORK}
        try:
            network = engine.networks.create(NETWORK, driver="bridge", options=options)
        except APIError:  # the bridge of that name is there: another start was faster
            network = engine.networks.get(NETWORK)
    if network.attrs.get("Options", {}).get(_JOINS) != "false":
        raise RuntimeFailure(f"the engine's network {NETWORK} lets containers reach each other: remove it")
    endpoint = engine.api.create_endpoint_config(link_local_ips=list(METADATA))
    return {"network": NETWORK, "networking_config": {NETWORK: endpoint}}


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


def _is_unhealthy(attrs: dict[str, Any]) -> bool:
    """Whether the container's health check failed as often in a row as it may.

    The health status is not used: the engine sets it to unhealthy whenever it stops checking, so at every pause.
    """
    check, health = attrs["Config"].get("Healthcheck") or {}, attrs["State"].get("Health") or {}
    return bool(health.get("FailingStreak", 0) >= (check.get("Retries") or _RETRIES))


def _ending(state: dict[str, Any]) -> str:
    """How a container ended, as the engine reports it."""
    if state.get("OOMKilled"):
        return "it needed more memory than it may have"
    return state.get("Error") or f"exit code {state.get('ExitCode')}"
