"""The kept files of container sandboxes: archived, filled, copied and measured by the engine, while nothing runs.

A carrier is a container that is made, never started, and removed: through it the engine reads and writes the volume
that it mounts. It is known by its label CARRIER, the runtime that made it. A supervisor that is killed leaves its
carrier; `known` of the next supervisor removes it.

Guarantees: memory is bounded, whatever a file's or an archive's size. Links are kept as links and never followed. An
archive is unpacked inside the carrier's own root, so that a link in it leads nowhere else.

Limitations: an archive of a sandbox that runs may break off, because a file grew while it was read; sockets are
left out. Owners are kept by `copy`; after `unpack` all files are the owner's of the image's working folder. A copy
between specs whose images have other users keeps the numbers of the first image's users.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from runtimes import Launch, RuntimeFailure
from runtimes.docker.engine import Engine, docker
from runtimes.docker.settings import HOST, name_of, volume, work_folder
from runtimes.docker.tar_stream import Owner, owner_of_first, placed, whole

if TYPE_CHECKING:
    from docker.models.containers import Container

#: label of a carrier: the identity of the runtime that made it
CARRIER = "agent-server.carrier"

#: the folder of a carrier's root at which the volume is mounted; no image has it
_MOUNT = "agent-server-files"

#: seconds for which measured sizes are used again: one measurement reads the folders of all volumes
_SIZES_SECONDS = 20.0

#: bytes that are read from the engine at once
_CHUNK = 1 << 20


class Files:
    """The part of a DockerRuntime that is about kept files."""

    def __init__(self, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        """host: the name under which its volumes are known. clock: seconds, for the age of measured sizes."""
        self._engine = Engine()
        self._host = host
        self._clock = clock
        self._identity = uuid4().hex
        self._measuring = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._sizes_until = float("-inf")

    def disk_bytes(self, sandbox_id: str) -> int | None:
        """The sizes of all files together, as of some seconds ago; None where the engine does not tell."""
        with self._measuring:
            if self._clock() >= self._sizes_until:
                self._sizes = self._measured()
                self._sizes_until = self._clock() + _SIZES_SECONDS
            return self._sizes.get(name_of(sandbox_id))

    def _measured(self) -> dict[str, int]:
        with contextlib.suppress(RuntimeFailure), self._engine.client("volumes cannot be measured") as engine:
            # The package's own call measures images and containers too.
            url = f"{engine.api.base_url}/v{engine.api.api_version}/system/df"
            response = engine.api.get(url, params={"type": "volume"}, timeout=engine.api.timeout)
            response.raise_for_status()
            volumes = response.json()["Volumes"] or []
            return {one["Name"]: one["UsageData"]["Size"] for one in volumes if one["UsageData"]["Size"] >= 0}
        return {}

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """The files of a sandbox that stands still, as a tar stream. Raises RuntimeFailure where there are none."""
        return self._packed(launch, launch.sandbox_id, f"/{_MOUNT}/.")

    def unpack(self, launch: Launch, chunks: Iterable[bytes], most_bytes: int | None = None) -> None:
        """Fill the volume of a new sandbox. most_bytes: of the stream. Raises RuntimeFailure and then keeps nothing."""
        with self._filling(launch) as (engine, carrier):
            owner = _owner_in_image(engine, launch, carrier)
            carrier.put_archive("/", placed(chunks, _MOUNT, owner, most_bytes))

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill the volume of a new sandbox with another's files. Raises RuntimeFailure and then keeps nothing."""
        packed = contextlib.closing(self._packed(launch, source_id, f"/{_MOUNT}"))
        with packed as chunks, self._filling(launch) as (_, carrier):
            carrier.put_archive("/", chunks)

    def _packed(self, launch: Launch, sandbox_id: str, path: str) -> Generator[bytes]:
        """The stream of a path of a carrier; its members are below the last name of the path."""
        with self._engine.client(f"the files of sandbox {sandbox_id} cannot be read") as engine:
            engine.volumes.get(name_of(sandbox_id))
            with self._carrier(engine, launch, sandbox_id) as carrier, _archived(carrier, path) as chunks:
                yield from whole(chunks)

    @contextlib.contextmanager
    def _filling(self, launch: Launch) -> Iterator[tuple["docker.DockerClient", "Container"]]:
        """A carrier of the sandbox's volume. A failure removes the volume, if this call made it."""
        name = name_of(launch.sandbox_id)
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be written") as engine:
            is_new = not _exists(engine, name)
            try:
                with self._carrier(engine, launch, launch.sandbox_id) as carrier:
                    yield engine, carrier
            except BaseException:
                if is_new and _exists(engine, name):
                    engine.volumes.get(name).remove()
                raise

    @contextlib.contextmanager
    def _carrier(self, engine: "docker.DockerClient", launch: Launch, sandbox_id: str) -> Iterator["Container"]:
        carrier = engine.containers.create(
            launch.image or "",
            ["never started"],
            labels={CARRIER: self._identity, HOST: self._host},
            mounts=[volume(sandbox_id, self._host, f"/{_MOUNT}", copies=False)],
            network_mode="none",
        )
        try:
            yield carrier
        finally:
            remove_container(carrier)


@contextlib.contextmanager
def _archived(carrier: "Container", path: str) -> Iterator[Iterator[bytes]]:
    """The engine's tar stream of a path, which it follows if it is a link itself. Raises the engine's errors."""
    chunks, _ = carrier.get_archive(path, chunk_size=_CHUNK)
    with contextlib.closing(chunks):  # type: ignore[type-var]  # a generator. The engine locks the carrier until then
        yield chunks


def _owner_in_image(engine: "docker.DockerClient", launch: Launch, carrier: "Container") -> Owner:
    """The owner that docker gives to a new volume; root, if the image lacks the folder."""
    try:
        with _archived(carrier, f"{work_folder(engine, launch)}/.") as chunks:
            return owner_of_first(chunks)
    except docker.errors.NotFound:
        return Owner(0, 0, 0o755)


def _exists(engine: "docker.DockerClient", name: str) -> bool:
    try:
        engine.volumes.get(name)
    except docker.errors.NotFound:
        return False
    return True


def remove_container(container: "Container") -> None:
    """Kill and remove a container with the volumes that its image asks for. One that is gone stays gone."""
    try:
        container.remove(force=True, v=True)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if error.status_code != 409:
            raise
        with contextlib.suppress(docker.errors.NotFound):  # another call removes it at this moment
            container.wait(condition="removed")
