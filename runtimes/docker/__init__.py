"""Sandboxes as containers of a Docker engine, which is found as the docker program finds it (DOCKER_HOST, …).

Needs the packages of requirements/docker.txt. The engine keeps all state. Container and volume are named after their
sandbox, and have labels with the sandbox and its host. The container's label START is the number of the start, so that
each start happens once. Its ports are published on loopback. A container reaches the server as `host.docker.internal`;
the server must listen on an address that containers reach. A user of the engine's socket is root on its host.

The engine archives, fills, copies and measures files, also while nothing runs. A carrier is a container that is
created, never started, and deleted: through it the engine reads and writes the mounted volume. Its label CARRIER is the
identity of its runtime. The next supervisor deletes the carriers of a killed one. A carrier that fills a new volume has
the label FILLS until it is deleted, so a half-filled volume is recognised, deleted and never started in. Memory is
bounded for files and archives of any size. Links are kept and never followed. An archive is unpacked inside the
carrier's root, so that its links lead nowhere else. A volume is filled atomically.

Limitations: an archive of a running sandbox may be truncated, because a file grew during the read. Owners are not kept:
all files of a filled volume get the owner of the image's working folder.

Persistent: the working folder, in the sandbox's own volume. It outlives every container and ends with `remove`. On
first use it takes the content, the owner and the mode of the folder in the image. Owner and mode decide who may write
there; a working folder that the image lacks is root's. An image whose working folder is / or unset gets /workspace. All
other files of a container end with it, also with a writable root.

Guarantees, unless the launch says otherwise:
- no capabilities, and no program in the container gets privileges that its caller lacks
- a read-only root. Writable: /tmp and /run (memory) and the working folder
- limits of memory, cpus and processes
- a network whose containers cannot reach each other: NETWORK, which the first start creates and later starts share. It
  is also the name of the bridge on the host, for firewall rules; `docker network rm` deletes it
- no metadata service: each container has the addresses of METADATA itself, so calls are refused inside the container.
  169.254.0.0/16 is on its own bridge, so the host routes no other link-local address for it. Only NET_ADMIN (routes) or
  NET_RAW (hand-made frames) circumvents that

A launch with the network `named` or `none` gets a container with a loopback only. A process of this host
(`isolation/container.py`) carries its ports in, its webhooks out, and connections by name to the egress proxy. The
container reaches nothing else, whatever its capabilities. That needs a supervisor as root on the engine's machine.

Limitations:
- with another network, a container reaches the internet, the host's other networks, and every port that the host binds
  to an address other than loopback. Rules of the host's firewall for the bridge (`-i agent-server`) can enforce limits
- the size of a volume is measured (`disk_bytes`) and not enforced: the engine's `storage_opt` limits only a container's
  root, which is read-only. A container can fill the memory of /tmp and /run and the disk of the engine's volumes
- `docker volume prune` deletes the files of stopped sandboxes; Docker 23 and later do so only with `--all`
- an agent that empties its working folder finds the image's content there at the next start
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cuts import last_lines_of_more
from runtimes import Handle, Launch, Observation, ProcessState, ResourceUsage, RuntimeCallFailed, folders_of, reading
from runtimes.containers import (
    CARRIER,
    HOST,
    LAST_LINES,
    OUT_OF_MEMORY,
    SANDBOX,
    START,
    Owner,
    Volumes,
    exit_sentence,
    owner_of_first,
    packed,
    placed,
    readable,
)
from runtimes.docker.engine import (
    CARRIED,
    EGRESS_URL,
    ISOLATION,
    Engine,
    arguments,
    docker,
    name_of,
    real_folder,
    volume,
    work_folder,
)
from runtimes.isolation import NAMED
from runtimes.isolation.container import CarryOrder, carried_ports, carry_for
from runtimes.shadow import Shadow, beside
from runtimes.starts import DEFAULT_RANGE, EGRESS_SOCKET

if TYPE_CHECKING:
    from docker.models.containers import Container

#: Label of a carrier: the sandbox whose volume it fills.
FILLS = "agent-server.fills"

#: Mount point of the volume in a carrier; no image has this folder.
_MOUNT = "agent-server-files"

#: Lifetime of measured sizes, in seconds. A measurement reads the folders of all volumes.
_SIZES_SECONDS = 20.0

#: Size of one read from the engine, in bytes.
_CHUNK = 1 << 20

#: Default number of consecutive failures of a health check, as in the engine.
_RETRIES = 3

#: Grace period between SIGTERM and SIGKILL, in seconds.
_GRACE = 5

#: Timeout for a container with a taken name to appear and for a volume to be free, and poll interval, in seconds.
_CONFLICT_TIMEOUT, _CONFLICT_POLL = 10.0, 0.05


class DockerRuntime(Volumes):
    """`runtimes.Runtime` for the containers and volumes of one host. Thread-safe."""

    freezes = True

    def __init__(
        self,
        host: str,
        folder: Path = Path(),
        ports: range = DEFAULT_RANGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """host: labels its volumes. folder: of the host's sandboxes, where the egress proxy listens. ports: of the
        host, for sandboxes with carried connections. clock: seconds, for the age of measured sizes.
        """
        super().__init__(host, folder)
        self._engine, self._range, self._clock = Engine(), ports, clock
        self._measuring = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._sizes_until = float("-inf")

    def shadow(self, launch: Launch, folder: str) -> Shadow | None:
        """Return the volume's shadow repository; None if the engine's volumes are on another machine, out of reach."""
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be read") as engine:
            work = work_folder(engine, launch)
            place = Path(engine.volumes.get(name_of(launch.sandbox_id)).attrs["Mountpoint"])
        if not place.is_absolute() or not os.access(place, os.R_OK | os.X_OK):
            return None
        return Shadow(beside(self._folder / launch.sandbox_id), place, reading.below(work, work, folder))

    def start(self, launch: Launch) -> Handle:
        """Start a container, once per sandbox and start number. End a container of an earlier start first.

        A container that ended before its ports could be read is deleted, and its ending is the failure's message.
        """
        what = f"sandbox {launch.sandbox_id} cannot be started"
        with self._engine.client(what) as engine:
            self.discard_leftovers(engine, f"{FILLS}={launch.sandbox_id}")
            container = self._started(engine, launch) or self._create(engine, launch)
            try:
                if container.status == "created":
                    container.start()
                    container.reload()
                if launch.network in CARRIED:
                    handle = _carried(container, launch, self._ports_carried(container, launch, what))
                else:
                    handle = _handle(launch.sandbox_id, container.id, _ports(container, launch, what))
                asked = container.attrs["Config"]["WorkingDir"]
                real = real_folder(engine, container.id or "", asked)
                return Handle({**handle, "working_dir": real, **({"linked_dir": asked} if real != asked else {})})
            except (docker.errors.APIError, RuntimeCallFailed):
                remove_container(container)
                raise

    def _ports_carried(self, container: "Container", launch: Launch, what: str) -> dict[str, int]:
        """Return the host's ports by name, for a container with carried connections. Raises RuntimeCallFailed."""
        pid = container.attrs["State"]["Pid"]
        if not pid:
            raise _ended(container, what)
        egress = str(self._folder / EGRESS_SOCKET) if launch.network == NAMED else ""
        order = CarryOrder(container.id or "", pid, launch.ports, {}, launch.webhooks, launch.hook_key, egress)
        try:
            return carry_for(order, self._range)
        except RuntimeCallFailed as failure:
            container.reload()
            if not container.attrs["State"]["Running"]:
                raise _ended(container, what) from None
            raise RuntimeCallFailed(f"{what}: {failure}") from None

    def folders(self, handle: Handle) -> dict[str, str]:
        """Return the paths of the agent's folder from the start."""
        return folders_of(handle)

    def known(self) -> list[Handle]:
        """Return the containers and volumes of this host, running or not; empty if no engine responds.

        A volume without a container still has a handle: it is GONE and may be stopped. Leftovers of an earlier
        supervisor's archives and copies are deleted first.
        """
        handles = {}
        with contextlib.suppress(RuntimeCallFailed), self._engine.client("the engine cannot be asked") as engine:
            mine: dict[str, str | list[str] | bool] = {"label": f"{HOST}={self._host}"}
            self.discard_leftovers(engine, f"{HOST}={self._host}")
            for one in engine.volumes.list(filters=mine):
                identity = one.attrs["Labels"][SANDBOX]
                handles[identity] = _handle(identity)
            for container in engine.containers.list(all=True, filters=mine, sparse=True):
                if identity := container.attrs["Labels"].get(SANDBOX):  # otherwise a carrier
                    handles[identity] = _handle(identity, container.id)
        return list(handles.values())

    def observe(self, handle: Handle) -> Observation:
        """Return the container's state. A failing health check counts as GONE. Raises RuntimeCallFailed."""
        with self._engine.client("the engine cannot be asked") as engine:
            try:
                container = _container_of(engine, handle)
            except docker.errors.NotFound:
                return Observation(ProcessState.GONE, "its container was deleted")
            if container.status == "paused":
                return Observation(ProcessState.PAUSED)
            if container.status not in ("running", "restarting", "created"):
                return Observation(ProcessState.GONE, _ending(container.attrs["State"]))
            if _is_unhealthy(container.attrs):
                return Observation(ProcessState.GONE, "its container reports that it is unhealthy")
            if handle.get("is_carried") and carried_ports(str(container.id)) is None:
                return Observation(ProcessState.GONE, "the process that carries its connections was ended")
            return Observation(ProcessState.RUNNING)

    def pause(self, handle: Handle) -> None:
        self._move(handle, "pause", "paused")

    def resume(self, handle: Handle) -> None:
        self._move(handle, "unpause", "running")

    def stop(self, handle: Handle) -> None:
        """End the sandbox's container gracefully, also a paused one, and delete it. The volume stays."""
        with self._engine.client(f"sandbox {handle['sandbox_id']} cannot be stopped") as engine:
            _end(engine, handle["sandbox_id"])

    def remove(self, sandbox_id: str) -> None:
        """Delete the container and the volume, and any other container with the volume."""
        with self._engine.client(f"sandbox {sandbox_id} cannot be removed") as engine:
            name, deadline = name_of(sandbox_id), time.monotonic() + _CONFLICT_TIMEOUT
            while True:
                with contextlib.suppress(docker.errors.NotFound):
                    remove_container(engine.containers.get(name))
                for container in engine.containers.list(all=True, filters={"volume": name}, sparse=True):
                    remove_container(container)
                try:
                    engine.volumes.get(name).remove()
                except docker.errors.NotFound:
                    break
                except docker.errors.APIError as error:
                    if error.status_code != 409 or time.monotonic() > deadline:  # 409: a new container uses it
                        raise
                time.sleep(_CONFLICT_POLL)
        self._forget(sandbox_id)

    def usage(self, sandbox_id: str) -> ResourceUsage:
        """Return the engine's measurements of the container. Memory is without caches that the kernel can drop."""
        with contextlib.suppress(RuntimeCallFailed), self._engine.client("the engine cannot be asked") as engine:
            return _usage(engine.containers.get(name_of(sandbox_id)).stats(stream=False, one_shot=True))
        return ResourceUsage(None, None)

    def logs(self, handle: Handle, tail: int) -> str:
        """Return the last lines of the container's output, as far as the engine keeps them."""
        if tail <= 0:
            return ""
        with contextlib.suppress(RuntimeCallFailed), self._engine.client("the engine cannot be asked") as engine:
            return _last_lines(_container_of(engine, handle), tail)
        return ""

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the volume of a new sandbox. A filled volume is unchanged.

        Raises RuntimeCallFailed and the errors of tar_stream.py for a refused stream. Then there is no volume.
        """
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be written") as engine:
            self.discard_leftovers(engine, f"{FILLS}={launch.sandbox_id}")
            if _exists(engine, name_of(launch.sandbox_id)):
                return
            try:
                with self._carrier(engine, launch, {FILLS: launch.sandbox_id}) as carrier:
                    owner = _owner_in_image(engine, launch, carrier)
                    carrier.put_archive("/", placed(readable(chunks), _MOUNT, owner))
            except BaseException:
                _remove_volume(engine, launch.sandbox_id)
                raise

    def disk_bytes(self, sandbox_id: str, most: int | None = None) -> int | None:  # noqa: ARG002
        """Return the size of all files, some seconds old; None if the engine does not report it."""
        with self._measuring:
            if self._clock() >= self._sizes_until:
                self._sizes = self._measured()
                self._sizes_until = self._clock() + _SIZES_SECONDS
            return self._sizes.get(name_of(sandbox_id))

    def _measured(self) -> dict[str, int]:
        with contextlib.suppress(RuntimeCallFailed), self._engine.client("volumes cannot be measured") as engine:
            # The package's own call also measures images and containers.
            url = f"{engine.api.base_url}/v{engine.api.api_version}/system/df"
            response = engine.api.get(url, params={"type": "volume"}, timeout=engine.api.timeout)
            response.raise_for_status()
            volumes = response.json()["Volumes"] or []
            return {one["Name"]: one["UsageData"]["Size"] for one in volumes if one["UsageData"]["Size"] >= 0}
        return {}

    def discard_leftovers(self, engine: "docker.DockerClient", label: str) -> None:
        """Delete another supervisor's carriers with a label, and the volumes that they half filled."""
        for carrier in engine.containers.list(all=True, filters={"label": [label, CARRIER]}, sparse=True):
            labels = carrier.attrs["Labels"]
            if labels[CARRIER] != self._identity:
                remove_container(carrier)
                if FILLS in labels:
                    _remove_volume(engine, labels[FILLS])

    def _work_of(self, launch: Launch) -> str:
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be read") as engine:
            return work_folder(engine, launch)

    def _packed(self, launch: Launch) -> Generator[bytes]:
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be read") as engine:
            engine.volumes.get(name_of(launch.sandbox_id))
            with (
                self._carrier(engine, launch, {}) as carrier,
                _archived(carrier, f"/{_MOUNT}/.") as chunks,
            ):
                yield from packed(chunks, launch.disk_bytes)

    @contextlib.contextmanager
    def _carrier(self, engine: "docker.DockerClient", launch: Launch, labels: dict[str, str]) -> Iterator["Container"]:
        carrier = engine.containers.create(
            launch.image or "",
            ["never started"],
            labels={**labels, CARRIER: self._identity, HOST: self._host},
            mounts=[volume(launch.sandbox_id, self._host, f"/{_MOUNT}", copies=False)],
            network_mode="none",
        )
        try:
            yield carrier
        finally:
            remove_container(carrier)

    def _move(self, handle: Handle, verb: str, status: str) -> None:
        with self._engine.client(f"sandbox {handle['sandbox_id']}: {verb}") as engine:
            try:
                container = _container_of(engine, handle)
                if container.status != status:
                    _change(container, verb, status)
            except docker.errors.NotFound:
                raise RuntimeCallFailed(
                    f"the sandbox {handle['sandbox_id']} ended: its container was deleted"
                ) from None

    def _started(self, engine: "docker.DockerClient", launch: Launch) -> "Container | None":
        """Return the container of this start, if any. End an earlier start's container; refuse a later start."""
        try:
            container = engine.containers.get(name_of(launch.sandbox_id))
        except docker.errors.NotFound:
            return None
        start = int(container.labels.get(START, 0))
        if start > launch.start:
            raise RuntimeCallFailed(f"sandbox {launch.sandbox_id} was started again meanwhile: start {start}")
        if start == launch.start:
            return container
        _end(engine, launch.sandbox_id)
        return None

    def _create(self, engine: "docker.DockerClient", launch: Launch) -> "Container":
        settings, deadline = arguments(engine, launch, self._host), time.monotonic() + _CONFLICT_TIMEOUT
        while True:
            try:
                made = engine.containers.create(**settings)
                real = real_folder(engine, made.id or "", settings["working_dir"])
                if real == settings["mounts"][0]["Target"]:
                    return made
                # Behind a symlink the image may have a volume, which the engine would mount over the sandbox's.
                remove_container(made)
                settings["mounts"] = [volume(launch.sandbox_id, self._host, real, copies=True)]
            except docker.errors.APIError as error:
                if error.status_code != 409:
                    raise
            # Another start was faster: the name is taken before the container exists.
            if container := self._started(engine, launch):
                return container
            if time.monotonic() > deadline:
                raise RuntimeCallFailed(f"another container has had its name for {_CONFLICT_TIMEOUT:g} s")
            time.sleep(_CONFLICT_POLL)


@contextlib.contextmanager
def _archived(carrier: "Container", path: str) -> Iterator[Iterator[bytes]]:
    """Open the engine's tar stream of a path. A symlink is followed. Raises the engine's errors."""
    chunks, _ = carrier.get_archive(path, chunk_size=_CHUNK)
    with contextlib.closing(chunks):  # type: ignore[type-var]  # a generator. The engine locks the carrier until then
        yield chunks


def _owner_in_image(engine: "docker.DockerClient", launch: Launch, carrier: "Container") -> Owner:
    """Return the owner that docker gives to a new volume; root if the image lacks the folder."""
    try:
        with _archived(carrier, f"{work_folder(engine, launch)}/.") as chunks:
            return owner_of_first(chunks)
    except docker.errors.NotFound:
        return Owner(0, 0, 0o755)


def _remove_volume(engine: "docker.DockerClient", sandbox_id: str) -> None:
    with contextlib.suppress(docker.errors.NotFound):
        engine.volumes.get(name_of(sandbox_id)).remove()


def _exists(engine: "docker.DockerClient", name: str) -> bool:
    try:
        engine.volumes.get(name)
    except docker.errors.NotFound:
        return False
    return True


def remove_container(container: "Container") -> None:
    """Kill and delete a container with the volumes of its image. Does nothing if it is gone."""
    try:
        container.remove(force=True, v=True)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if error.status_code != 409:
            raise
        with contextlib.suppress(docker.errors.NotFound):  # a concurrent call deletes it
            container.wait(condition="removed")


def _end(engine: "docker.DockerClient", sandbox_id: str) -> None:
    with contextlib.suppress(docker.errors.NotFound):
        container = engine.containers.get(name_of(sandbox_id))
        container.stop(timeout=_GRACE)
        remove_container(container)


def _change(container: "Container", verb: str, status: str) -> None:
    """Ask the engine to change a container to a status. Raises the engine's errors."""
    try:
        getattr(container, verb)()
    except docker.errors.APIError as error:
        container.reload()
        if error.status_code != 409 or container.status != status:  # 409: a concurrent call was faster
            raise


def _container_of(engine: "docker.DockerClient", handle: Handle) -> "Container":
    """Return the container of a handle, by name if the handle has no container. Raises NotFound."""
    return engine.containers.get(handle["container"] or name_of(handle["sandbox_id"]))


def _ports(container: "Container", launch: Launch, what: str) -> dict[str, int]:
    """Return the host's ports by name. Raises RuntimeCallFailed with the ending of a container without ports."""
    ports = {}
    for name, port in launch.ports.items():
        published = container.ports.get(f"{port}/tcp")
        if not published:
            raise _ended(container, what)
        ports[name] = int(published[0]["HostPort"])
    return ports


def _ended(container: "Container", what: str) -> RuntimeCallFailed:
    """Return the failure of a start whose container ended: its ending and its last lines."""
    last = _last_lines(container, LAST_LINES)
    return RuntimeCallFailed(f"{what}: {_ending(container.attrs['State'])}\n{last}".strip())


def _carried(container: "Container", launch: Launch, ports: dict[str, int]) -> Handle:
    handle = _handle(launch.sandbox_id, container.id, ports)
    isolation = {**ISOLATION, "network": launch.network, "reaches": []}
    way_out = {"egress_url": EGRESS_URL} if launch.network == NAMED else {}
    return Handle({**handle, "isolation": isolation, "is_carried": True, **way_out})


def _handle(sandbox_id: str, container: str | None = None, ports: dict[str, int] | None = None) -> Handle:
    """container: its id; None for a volume without a container."""
    words = {"runtime": "docker", "sandbox_id": sandbox_id, "container": container, "ports": ports or {}}
    return Handle({**words, "isolation": ISOLATION})


def _usage(stats: Any) -> ResourceUsage:
    """Return usage from the engine's figures, which are missing for a stopped container."""
    memory, used = stats.get("memory_stats") or {}, None
    if "usage" in memory:
        pages = memory.get("stats") or {}  # cgroup v2 or v1
        used = int(memory["usage"]) - int(pages.get("inactive_file", pages.get("total_inactive_file", 0)))
    nanoseconds = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return ResourceUsage(used, nanoseconds / 1e9 if used is not None and nanoseconds is not None else None)


def _last_lines(container: "Container", tail: int) -> str:
    text: bytes = container.logs(tail=tail + 1)
    return last_lines_of_more(text.decode(errors="replace"), tail)


def _is_unhealthy(attrs: dict[str, Any]) -> bool:
    """Return whether the container's health check has reached its maximum of consecutive failures.

    The health status is not used: the engine sets it to unhealthy whenever it stops checking, as in every pause.
    """
    check, health = attrs["Config"].get("Healthcheck") or {}, attrs["State"].get("Health") or {}
    return bool(health.get("FailingStreak", 0) >= (check.get("Retries") or _RETRIES))


def _ending(state: dict[str, Any]) -> str:
    """Describe a container's end as the engine reports it."""
    if state.get("OOMKilled"):
        return OUT_OF_MEMORY
    return str(state.get("Error") or exit_sentence(int(state.get("ExitCode") or 0)))
