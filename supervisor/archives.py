"""Packs sandboxes' files for clients, and fills new sandboxes from archives and from other sandboxes.

Each is a job of a thread of its own, so it holds up no other sandbox; a host has two at once. The files come from the
runtime as a tar stream, which is compressed here; see `store/sandboxes/archives.py` for its way to the worker.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from runtimes import Launch, Runtime, RuntimeFailure
from runtimes.tar_stream import ArchiveTooLarge, ArchiveUnreadable, MemberRefused
from specs import Specs
from store import Store
from store.errors import UNAVAILABLE, StoreError
from store.sandboxes.archives import Outcome, Sender
from store.sandboxes.sandbox_record import Sandbox, SandboxId
from supervisor.launches import files_of
from supervisor.zstd import compressed, decompressed

log = logging.getLogger("supervisor")

#: archives that a host packs and unpacks at once
MOST_AT_ONCE = 2

#: seconds in which a job that is broken off ends
_END_TIMEOUT = 2.0

_OUTCOMES: dict[type[Exception], Outcome] = {
    ArchiveUnreadable: Outcome.UNREADABLE,
    MemberRefused: Outcome.REFUSED,
    ArchiveTooLarge: Outcome.TOO_LARGE,
}
_BUSY = (
    f"The host of the sandbox packs or unpacks {MOST_AT_ONCE} archives, as many as it may at once: try again shortly"
)
_ENDS = "The supervisor of the sandbox's host ended"


@dataclass(frozen=True)
class _Fill:
    """The job that fills one sandbox."""

    job: "Future[None]"
    given_up: threading.Event


class Archives:
    """The archives of one host. Any number of threads may use it."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        runtimes: Mapping[str, Runtime],
        host: str,
        *,
        most_bytes: int,
    ) -> None:
        """most_bytes: of an uploaded archive, uncompressed."""
        self._store = store
        self._specs = specs
        self._runtimes = runtimes
        self._host = host
        self._most_bytes = most_bytes
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "archive")
        self._free = threading.Semaphore(MOST_AT_ONCE)
        self._jobs: set[Future[None]] = set()
        self._fills: dict[SandboxId, _Fill] = {}
        self._ended = threading.Event()

    def send(self, sandbox_id: SandboxId, transfer: str) -> None:
        """Begin to send the archive of a sandbox to the worker that asked for it, if the sandbox is this host's."""
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        if sandbox is None or sandbox.host != self._host:
            return
        sender = self._store.archives.sender(transfer)
        if self._begin(self._send, sandbox, sender) is None:
            sender.fail(Outcome.BUSY, _BUSY)

    def fill(self, sandbox: Sandbox, order: Launch, runtime: Runtime) -> bool:
        """Fill the folder of a sandbox that was never started from its source. True once the folder is whole.

        Until then each call returns at once. Raises RuntimeFailure, and one of UNAVAILABLE, where it cannot be filled;
        then there is no folder, and the sender of the archive has the reason.
        """
        assert sandbox.source is not None
        fill = self._fills.get(sandbox.id)
        if fill is not None and fill.job.done():
            del self._fills[sandbox.id]
            fill.job.result()
            return True
        if fill is None:
            given_up = threading.Event()
            if job := self._begin(self._fill, sandbox.source, order, runtime, given_up):
                self._fills[sandbox.id] = _Fill(job, given_up)
            elif "archive" in sandbox.source:  # a client waits; a copy begins when another job has ended
                self._store.archives.receiver(sandbox.source["archive"]).close(Outcome.BUSY, _BUSY)
                raise RuntimeFailure(_BUSY)
        return False

    def is_filling(self, sandbox_id: SandboxId) -> bool:
        return sandbox_id in self._fills

    def stopped(self, sandbox_id: SandboxId) -> bool:
        """Have the filling of a sandbox end; True once nothing fills it. A copy goes on to its end."""
        fill = self._fills.get(sandbox_id)
        if fill is None:
            return True
        fill.given_up.set()
        if fill.job.done():
            del self._fills[sandbox_id]
        return fill.job.done()

    def end(self) -> None:
        """Break off what is under way, and tell the other sides."""
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(set(self._jobs), _END_TIMEOUT)

    def _begin(self, act: Callable[..., None], *args: Any) -> "Future[None] | None":
        """Run a job in a thread, None if there are as many as there may be."""
        if self._ended.is_set() or not self._free.acquire(blocking=False):
            return None
        job = self._pool.submit(act, *args)
        self._jobs.add(job)

        def end(job: "Future[None]") -> None:
            self._jobs.discard(job)
            self._free.release()

        job.add_done_callback(end)
        return job

    def _send(self, sandbox: Sandbox, sender: Sender) -> None:
        try:
            with closing(self._packed(sandbox)) as tar:
                for data in compressed(tar):
                    if self._ended.is_set():
                        raise RuntimeFailure(_ENDS)
                    sender.write(data)
            sender.end()
        except StoreError as error:  # the client has gone
            log.info("the archive of sandbox %s: %s", sandbox.id, error)
        except UNAVAILABLE as error:
            log.warning("the archive of sandbox %s: the store does not answer: %s", sandbox.id, error)
        except Exception as error:
            trace = None if isinstance(error, RuntimeFailure) else error
            log.warning("the archive of sandbox %s: %s", sandbox.id, error, exc_info=trace)
            with suppress(*UNAVAILABLE):
                sender.fail(Outcome.FAILED, f"The files of the sandbox cannot be packed: {error}")

    def _packed(self, sandbox: Sandbox) -> Generator[bytes]:
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            raise RuntimeFailure(f"There is no spec {sandbox.spec_id} on host {self._host}")
        yield from self._runtimes[spec.runtime].pack(files_of(sandbox, spec))

    def _fill(self, source: dict[str, Any], order: Launch, runtime: Runtime, given_up: threading.Event) -> None:
        if "archive" in source:
            self._unpack(source, order, runtime, given_up)
        else:
            runtime.copy(order, source["sandbox"])

    def _unpack(self, source: dict[str, Any], order: Launch, runtime: Runtime, given_up: threading.Event) -> None:
        receiver = self._store.archives.receiver(
            source["archive"], given_up=lambda: given_up.is_set() or self._ended.is_set()
        )
        try:
            tar = decompressed(receiver) if source["format"] == "zstd" else receiver
            runtime.unpack(order, self._bounded(tar))
        except UNAVAILABLE:
            raise
        except Exception as error:
            words = f"The archive cannot be unpacked: {error}"
            receiver.close(_OUTCOMES.get(type(error), Outcome.FAILED), words)
            if isinstance(error, StoreError | RuntimeFailure):
                raise RuntimeFailure(words) from error
            raise
        receiver.close()

    def _bounded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        number = 0
        for chunk in chunks:
            number += len(chunk)
            if number > self._most_bytes:
                raise ArchiveTooLarge(f"It has more than {self._most_bytes} bytes uncompressed (MAX_ARCHIVE_BYTES)")
            yield chunk
