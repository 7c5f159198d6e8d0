"""The kept files of container sandboxes: archived, filled, copied and measured by the engine, while nothing runs.

A carrier is a container that is made, never started, and removed: through it the engine reads and writes the volume
that it mounts. Its label CARRIER is the identity of the runtime that made it. A supervisor that is killed leaves its
carrier, which the next one removes. A carrier that fills a new volume bears the label FILLS until it is removed: so a
half-filled volume is recognised, removed, and never started in.

Guarantees: memory is bounded, whatever a file's or an archive's size. Links are kept as links and never followed. An
archive is unpacked inside the carrier's own root, so that a link in it leads nowhere else. A volume is filled as a
whole or not at all.

Limitations: an archive of a sandbox that runs may break off, because a file grew while it was read. Owners are not
kept: all files of a filled volume are the owner's of the image's working folder.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from runtimes import Launch, RuntimeFailure, reading
from runtimes.containers import HOST, Owner, owner_of_first, packed, placed, readable
from runtimes.docker.engine import Engine, docker, name_of, volume, work_folder

if TYPE_CHECKING:
    from docker.models.containers import Container

#: labels of a carrier: the identity of the runtime that made it, and the sandbox whose volume it fills
CARRIER, FILLS = "agent-server.carrier", "agent-server.fills"

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

    def occupied_bytes(self, sandbox_id: str) -> int | None:  # noqa: ARG002
        """Not known: the file system is another machine's, or the engine's."""
        return None

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
        """The files of a frozen sandbox, as a tar stream. Raises RuntimeFailure where there are none."""
        return self._packed(launch, launch.sandbox_id)

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """The path of every file in a folder of the agent, from there. Cost: reads the volume."""
        work = self._work_of(launch)
        packed = partial(self._packed, launch, launch.sandbox_id)
        return reading.names_in(packed, reading.below(work, work, folder), work)

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """A file of a folder of the agent; None if there is none. Cost: reads the volume up to the file."""
        work = self._work_of(launch)
        packed = partial(self._packed, launch, launch.sandbox_id)
        return reading.content_in(packed, reading.joined(reading.below(work, work, folder), path), most, work)

    def _work_of(self, launch: Launch) -> str:
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be read") as engine:
            return work_folder(engine, launch)

    def unpack(self, launch: Launch, chunks: Iterable[bytes], most_bytes: int | None = None) -> None:
        """Fill the volume of a new sandbox; one that is filled stays. most_bytes: of the stream, which is read whole.

        Raises RuntimeFailure, and what tar_stream.py defines for a stream that is refused. Then there is no volume.
        """
        with self._engine.client(f"the files of sandbox {launch.sandbox_id} cannot be written") as engine:
            self.discard_leftovers(engine, f"{FILLS}={launch.sandbox_id}")
            if _exists(engine, name_of(launch.sandbox_id)):
                return
            try:
                with self._carrier(engine, launch, launch.sandbox_id, {FILLS: launch.sandbox_id}) as carrier:
                    owner = _owner_in_image(engine, launch, carrier)
                    carrier.put_archive("/", placed(readable(chunks), _MOUNT, owner, most_bytes))
            except BaseException:
                _remove_volume(engine, launch.sandbox_id)
                raise

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill the volume of a new sandbox with another one's files, likewise."""
        with contextlib.closing(self._packed(launch, source_id)) as chunks:
            self.unpack(launch, chunks)

    def discard_leftovers(self, engine: "docker.DockerClient", label: str) -> None:
        """Remove the carriers with a label that another supervisor left, and the volumes that they had half filled."""
        for carrier in engine.containers.list(all=True, filters={"label": [label, CARRIER]}, sparse=True):
            labels = carrier.attrs["Labels"]
            if labels[CARRIER] != self._identity:
                remove_container(carrier)
                if FILLS in labels:
                    _remove_volume(engine, labels[FILLS])

    def _packed(self, launch: Launch, sandbox_id: str) -> Generator[bytes]:
        with self._engine.client(f"the files of sandbox {sandbox_id} cannot be read") as engine:
            engine.volumes.get(name_of(sandbox_id))
            with (
                self._carrier(engine, launch, sandbox_id, {}) as carrier,
                _archived(carrier, f"/{_MOUNT}/.") as chunks,
            ):
                yield from packed(chunks, launch.disk_bytes)

    @contextlib.contextmanager
    def _carrier(
        self, engine: "docker.DockerClient", launch: Launch, sandbox_id: str, labels: dict[str, str]
    ) -> Iterator["Container"]:
        carrier = engine.containers.create(
            launch.image or "",
            ["never started"],
            labels={**labels, CARRIER: self._identity, HOST: self._host},
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
