"""The kept files of pods: read and filled by `tar` in a pod that has the volume.

That is the sandbox's own pod while it runs, else a carrier: a pod of the same image that only waits. A supervisor that
is killed leaves its carrier, which the next one removes, and the cluster ends it in any case. A volume bears the label
FILLING until it is filled: so a half-filled one is recognised, filled again, and never started in.

Guarantees: memory is bounded, whatever a file's or an archive's size. Links are kept as links. An archive is unpacked
inside the carrier, so that a link in it leads nowhere else. A volume is filled as a whole or not at all.

Limitations: an archive of a sandbox that runs may break off, because a file grew while it was read. A carrier takes the
time that a pod takes to start. The use of a volume is not measured: its size is its limit.
"""

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from uuid import uuid4

from runtimes import Launch, RuntimeFailure, State, reading
from runtimes.containers import packed, readable, unrooted
from runtimes.kubernetes.cluster import POLL, Cluster, Kind, Object, naming, output_of
from runtimes.kubernetes.manifests import CARRIER, FILLING, NO_GRACE, carrier, claim, name_of, observation, work_folder

#: seconds in which a carrier must run
_CARRIER_TIMEOUT = 120.0


class Files:
    """The part of a KubernetesRuntime that is about kept files."""

    def __init__(self, host: str) -> None:
        """host: the name under which its objects are known."""
        self._cluster = Cluster()
        self._host = host
        self._identity = uuid4().hex

    def disk_bytes(self, sandbox_id: str) -> int | None:
        """Not known: no part of the API tells it."""

    def occupied_bytes(self, sandbox_id: str) -> int | None:  # noqa: ARG002
        """Not known: the file system is another machine's, or the engine's."""
        return None

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """The files of a sandbox, as a tar stream. Raises RuntimeFailure where there are none."""
        return self._packed(launch)

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """The path of every file in a folder of the agent, from there. Cost: reads the volume."""
        work = work_folder(launch)
        return reading.names_in(partial(self._packed, launch), reading.below(work, work, folder), work)

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """A file of a folder of the agent; None if there is none. Cost: reads the volume up to the file."""
        work = work_folder(launch)
        start = reading.below(work, work, folder)
        return reading.content_in(partial(self._packed, launch), reading.joined(start, path), most, work)

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the volume of a new sandbox; one that is filled stays.

        Raises RuntimeFailure, and what tar_stream.py defines for a stream that is refused. Then there is no volume.
        """
        name = name_of(launch.sandbox_id)
        with naming(f"the files of sandbox {launch.sandbox_id} cannot be written"):
            found = self._cluster.find(Kind.CLAIM, name)
            if found is not None and FILLING not in found["metadata"]["labels"]:
                return
            if found is not None:
                self._remove_claim(name)
            body = claim(launch, self._host)
            body["metadata"]["labels"][FILLING] = "true"
            if self._cluster.create(Kind.CLAIM, body) is None:
                raise RuntimeFailure("another supervisor fills them")
            try:
                with self._carrier(launch) as pod:
                    command = ("tar", "-x", "-p", "-f", "-", "-C", work_folder(launch))
                    for _ in output_of(self._cluster.connection(), pod, command, unrooted(readable(chunks))):
                        pass
                self._cluster.unlabel(Kind.CLAIM, name, FILLING)
            except BaseException:
                self._cluster.delete(Kind.CLAIM, name)
                raise

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill the volume of a new sandbox with another one's files, likewise."""
        with contextlib.closing(self._packed(replace(launch, sandbox_id=source_id))) as chunks:
            self.unpack(launch, chunks)

    def discard_leftovers(self, pods: Iterable[Object]) -> None:
        """Remove the carriers among these pods that another supervisor left."""
        for pod in pods:
            if pod["metadata"]["labels"].get(CARRIER, self._identity) != self._identity:
                self._cluster.delete(Kind.POD, pod["metadata"]["name"], grace_seconds=NO_GRACE)

    def _remove_claim(self, name: str) -> None:
        self._cluster.delete(Kind.CLAIM, name)
        if not self._cluster.ended(Kind.CLAIM, name):
            raise RuntimeFailure("a half-filled volume of an earlier supervisor is still in use")

    def _packed(self, launch: Launch) -> Generator[bytes]:
        with naming(f"the files of sandbox {launch.sandbox_id} cannot be read"), self._reader(launch) as pod:
            command = ("tar", "-c", "-f", "-", "-C", work_folder(launch), ".")
            with contextlib.closing(output_of(self._cluster.connection(), pod, command)) as chunks:
                yield from packed(chunks, launch.disk_bytes)

    @contextlib.contextmanager
    def _reader(self, launch: Launch) -> Iterator[str]:
        """The name of a pod that has the sandbox's volume."""
        name = name_of(launch.sandbox_id)
        own = self._cluster.find(Kind.POD, name)
        if own is not None and _runs(own):
            yield name
        elif self._cluster.find(Kind.CLAIM, name) is None:
            raise RuntimeFailure("it has no volume")
        else:
            with self._carrier(launch) as pod:
                yield pod

    @contextlib.contextmanager
    def _carrier(self, launch: Launch) -> Iterator[str]:
        body = carrier(launch, self._host, self._identity)
        name = body["metadata"]["name"]
        self._cluster.create(Kind.POD, body)
        try:
            self._wait_for(name)
            yield name
        finally:
            self._cluster.delete(Kind.POD, name, grace_seconds=NO_GRACE)

    def _wait_for(self, name: str) -> None:
        """Wait until a carrier runs. Raises RuntimeFailure with the reason if it does not."""
        deadline = time.monotonic() + _CARRIER_TIMEOUT
        while (pod := self._cluster.find(Kind.POD, name)) is not None and not _runs(pod):
            seen = observation(pod)
            if seen.state is State.GONE or time.monotonic() > deadline:
                raise RuntimeFailure(f"no pod can read its volume: {seen.detail or f'{_CARRIER_TIMEOUT:g} s are over'}")
            time.sleep(POLL)


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
