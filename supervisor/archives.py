"""Packs sandboxes' files for clients, fills new sandboxes from archives and other sandboxes, and reads single files.

Each archive is a job in its own thread, so it delays no other sandbox. A host runs two at once. The runtime supplies
the files as a tar stream, which is compressed here in bounded memory. `store/sandboxes/files.py` describes its way to
the worker. Names and single files can be read from running, paused and ended sandboxes.
"""

import itertools
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from agents.inquiries import kept_folder
from core.filenames import as_text, from_text
from core.wire import ConversationId, Micros, Seq, now
from runtimes import FileOverLimit, FolderNotKept, Launch, Runtime, RuntimeCallFailed
from runtimes.git import NotRecorded
from runtimes.shadow import Shadow
from runtimes.tar_stream import PIECE, MemberRefused, TarTooLarge, TarUnreadable
from settings.specs import Specs
from store import Store
from store.errors import UNAVAILABLE, ConversationNotFound, StoreError
from store.sandboxes.files import MOST_BYTES, MOST_NAMES, LookupResult, StreamOutcome, StreamSender
from store.sandboxes.sandboxes import Sandbox, SandboxId
from supervisor.launches import files_of
from supervisor.presence import in_thread

log = logging.getLogger("supervisor")

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: log2 of the maximum memory that a frame may require of its reader: 8 MiB. Source: RFC 8878, 3.1.1.1.2.
_WINDOW_LOG = 23

#: Bytes per call of the decompressor: a frame may have only 9 bytes, and each frame copies the rest.
_STEP = 16 * 1024

#: Delay in seconds after which compressed bytes are flushed.
_SHORT = 1.0

_COMPRESSION: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
_DECOMPRESSION: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}


#: Maximum number of archives that a host packs and unpacks at once.
MOST_AT_ONCE = 2

#: Maximum number of folders that a host records at once; duration in seconds of a long record; and rest after it, as a
#: multiple of its duration. The cost of a record is outside of the sandbox's limits.
_MOST_RECORDED, _LONG, _REST = 2, 1.0, 9

#: Maximum time in µs between sending a message to an agent and its appearance in the agent's log.
_ON_ITS_WAY = 60_000_000

#: Maximum age of a long read's result, in seconds: on a busy host every read is long.
_STALE = 15.0

#: Maximum bytes of a list of file names, and of any reply, which is stored in Redis until it is read.
MOST_LISTED, MOST_REPLY = 1 << 20, 16 << 20

#: Timeout in seconds for ending a cancelled job.
_END_TIMEOUT = 2.0

_OUTCOMES: dict[type[Exception], StreamOutcome] = {
    TarUnreadable: StreamOutcome.UNREADABLE,
    MemberRefused: StreamOutcome.REFUSED,
    TarTooLarge: StreamOutcome.TOO_LARGE,
}
_BUSY = f"The host of the sandbox packs or unpacks {MOST_AT_ONCE} archives, which is its maximum: try again shortly"
_ENDS = "The supervisor of the sandbox's host ended"


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress to a single frame, with a checksum."""
    compressor, given_at = zstd.ZstdCompressor(options=_COMPRESSION), 0.0
    for chunk in chunks:
        data = compressor.compress(chunk)
        if not data and time.monotonic() - given_at > _SHORT:
            data = compressor.flush(compressor.FLUSH_BLOCK)
        if data:
            given_at = time.monotonic()
            yield data
    yield compressor.flush()


def decompressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of all frames, in chunks of at most 256 KiB. Raises TarUnreadable, also at an early end."""
    decompressor = None
    try:
        for data in _steps(chunks):
            while data or decompressor is not None:
                decompressor = decompressor or zstd.ZstdDecompressor(options=_DECOMPRESSION)
                if piece := decompressor.decompress(data, PIECE):
                    yield piece
                data = b""
                if decompressor.eof:
                    data, decompressor = decompressor.unused_data, None
                elif decompressor.needs_input:
                    break
    except zstd.ZstdError as error:
        raise TarUnreadable(f"It is not a zstd archive, or one with a window of more than 8 MiB: {error}") from None
    if decompressor is not None:
        raise TarUnreadable("It ends too early: the archive is incomplete")


def _steps(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for at in range(0, len(chunk), _STEP):
            yield chunk[at : at + _STEP]


@dataclass(frozen=True)
class _Fill:
    """A job that fills a sandbox."""

    job: "Future[None]"
    given_up: threading.Event


class HostArchives:
    """The archives of a host. Thread-safe."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        runtimes: Mapping[str, Runtime],
        host: str,
        *,
        most_bytes: int,
    ) -> None:
        """most_bytes: maximum uncompressed size of an uploaded archive."""
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

    def send(self, sandbox: Sandbox, transfer: str) -> None:
        """Start sending the archive of a sandbox to the worker that requested it."""
        sender = self._store.sandboxes.archives.sender(transfer)
        if self._begin(self._send, sandbox, sender) is None:
            sender.fail(StreamOutcome.BUSY, _BUSY)

    def fill(self, sandbox: Sandbox, order: Launch, runtime: Runtime) -> bool:
        """Fill the folder of a new sandbox from its source. Does not block; return true once the folder is complete.

        Raises RuntimeCallFailed and one of UNAVAILABLE if the fill fails. Then there is no folder, and the archive's
        sender has the reason.
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
            elif "archive" in sandbox.source:  # a client waits for an archive; a copy waits for a free job
                self._store.sandboxes.archives.receiver(sandbox.source["archive"]).close(StreamOutcome.BUSY, _BUSY)
                raise RuntimeCallFailed(_BUSY)
        return False

    def is_filling(self, sandbox_id: SandboxId) -> bool:
        return sandbox_id in self._fills

    def stopped(self, sandbox_id: SandboxId) -> bool:
        """Stop the filling of a sandbox. Return true once no job fills it. A copy continues to its end."""
        fill = self._fills.get(sandbox_id)
        if fill is None:
            return True
        fill.given_up.set()
        if fill.job.done():
            del self._fills[sandbox_id]
        return fill.job.done()

    def end(self) -> None:
        """Cancel all jobs, and report that to the other sides."""
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(set(self._jobs), _END_TIMEOUT)

    def _begin(self, act: Callable[..., None], *args: Any) -> "Future[None] | None":
        """Run a job in a thread; None if the maximum number of jobs is running.

        Raises RuntimeError if the system has no free thread. A later job's thread then runs this job too.
        """
        if self._ended.is_set() or not self._free.acquire(blocking=False):
            return None

        def do() -> None:
            try:
                act(*args)
            finally:
                self._free.release()

        job = self._pool.submit(do)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    def _send(self, sandbox: Sandbox, sender: StreamSender) -> None:
        try:
            with closing(self._packed(sandbox)) as tar:
                for data in compressed(tar):
                    if self._ended.is_set():
                        raise RuntimeCallFailed(_ENDS)
                    sender.write(data)
            sender.end()
        except StoreError as error:  # the client has disconnected
            log.info("the archive of sandbox %s: %s", sandbox.id, error)
        except UNAVAILABLE as error:
            log.warning("the archive of sandbox %s: the store does not answer: %s", sandbox.id, error)
        except Exception as error:
            trace = None if isinstance(error, RuntimeCallFailed) else error
            log.warning("the archive of sandbox %s: %s", sandbox.id, error, exc_info=trace)
            with suppress(*UNAVAILABLE):
                sender.fail(StreamOutcome.FAILED, f"The files of the sandbox cannot be packed: {error}")

    def _packed(self, sandbox: Sandbox) -> Generator[bytes]:
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            raise RuntimeCallFailed(f"There is no spec {sandbox.spec_id} on host {self._host}")
        yield from self._runtimes[spec.runtime].pack(files_of(sandbox, spec))

    def _fill(self, source: dict[str, Any], order: Launch, runtime: Runtime, given_up: threading.Event) -> None:
        if "archive" in source:
            self._unpack(source, order, runtime, given_up)
        elif "conversation" in source:
            seq = source["seq"]
            runtime.recall(order, source["sandbox"], source["folder"], source["conversation"], seq)
        else:
            runtime.copy(order, source["sandbox"])

    def _unpack(self, source: dict[str, Any], order: Launch, runtime: Runtime, given_up: threading.Event) -> None:
        receiver = self._store.sandboxes.archives.receiver(
            source["archive"], given_up=lambda: given_up.is_set() or self._ended.is_set()
        )
        try:
            tar = decompressed(receiver) if source["format"] == "zstd" else receiver
            runtime.unpack(order, self._bounded(tar))
        except UNAVAILABLE:
            raise
        except Exception as error:
            words = f"The archive cannot be unpacked: {error}"
            receiver.close(_OUTCOMES.get(type(error), StreamOutcome.FAILED), words)
            if isinstance(error, StoreError | RuntimeCallFailed):
                raise RuntimeCallFailed(words) from error
            raise
        receiver.close()

    def _bounded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        number = 0
        for chunk in chunks:
            number += len(chunk)
            if number > self._most_bytes:
                raise TarTooLarge(f"It has more than {self._most_bytes} bytes uncompressed (MAX_ARCHIVE_BYTES)")
            yield chunk


class _Walk(NamedTuple):
    """A long read of a folder for a client."""

    until: float  #: its result is valid until this time
    refusal: str  #: why the folder was not recorded; empty if it was


class HostFiles:
    """The files of a host's sandboxes. Thread-safe."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        runtimes: Mapping[str, Runtime],
        host: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        """clock, rest: in seconds."""
        self._store = store
        self._specs = specs
        self._runtimes = runtimes
        self._host = host
        self._clock, self._rest = clock, rest
        self._room = threading.BoundedSemaphore(_MOST_RECORDED)
        self._lock = threading.Lock()  #: guards `_walks` and `_recording`
        self._walks: dict[tuple[SandboxId, str], _Walk] = {}  #: long reads by sandbox and folder
        self._recording: dict[SandboxId, dict[str, int]] = {}  #: running records: conversation → next seq

    def send_names(self, sandbox: Sandbox, folder: str, reply: str) -> None:
        """Reply with the names of the files in an agent's folder."""

        def listed(runtime: Runtime, order: Launch) -> bytes:
            with closing(runtime.names(order, from_text(folder))) as names:  # type: ignore[type-var]  # a generator
                return json.dumps(list(_first(names))).encode()

        self._send(sandbox, reply, listed)

    def send_content(self, sandbox: Sandbox, folder: str, path: str, reply: str) -> None:
        """Reply with a file in an agent's folder."""
        self._send(sandbox, reply, lambda runtime, order: runtime.content(order, folder, from_text(path), MOST_BYTES))

    def record(self, sandbox: Sandbox, conversation_id: str, seq: int) -> None:
        """Record the folder of a conversation at an event, in the background.

        One thread records a sandbox at a time, and rests after a long record. Requests in the meantime are combined
        into one, at the last event. Requests that are pending when the process ends are lost, as a lost signal would
        be.
        """
        with self._lock:
            if (waiting := self._recording.get(sandbox.id)) is not None:
                waiting[conversation_id] = max(seq, waiting.get(conversation_id, 0))
                return
            waiting = self._recording[sandbox.id] = {conversation_id: seq}
        in_thread(self._record_all, sandbox, waiting, name="record", undo=partial(self._recording.pop, sandbox.id))

    def _record_all(self, sandbox: Sandbox, waiting: dict[str, int]) -> None:
        """Record all pending requests."""
        while True:
            with self._lock:
                if not waiting:
                    del self._recording[sandbox.id]
                    return
                conversation_id, seq = waiting.popitem()
            with self._room:
                began = self._clock()
                try:
                    self._record(sandbox, ConversationId(conversation_id), seq)
                except UNAVAILABLE as error:
                    log.warning("the folder of conversation %s: the store does not answer: %s", conversation_id, error)
                except Exception:
                    log.exception("the folder of conversation %s is not recorded", conversation_id)
                took = self._clock() - began
            if took > _LONG:
                self._rest(_REST * took)

    def _record(self, sandbox: Sandbox, conversation_id: ConversationId, seq: int) -> None:
        spec = self._specs.find(sandbox.spec_id)
        try:
            state = self._store.conversations.in_sandboxes.get(conversation_id)
            if spec is None or state["sandbox_id"] != sandbox.id:
                return
            if shadow := self._runtimes[spec.runtime].shadow(files_of(sandbox, spec), kept_folder(state)):
                shadow.record(conversation_id, seq, partial(self._events_at_rest, conversation_id, Seq(seq)))
        except ConversationNotFound:
            return
        except RuntimeCallFailed as error:
            log.info("the folder of conversation %s: %s", conversation_id, error)

    def _events_at_rest(self, conversation_id: ConversationId, seq: Seq, after: int) -> list[str]:
        """Return the events after `after` at which the conversation's folder was as at the event `seq`.

        Empty while the agent works or is about to work. Limitation: programs that the agent left running, and people in
        terminals, may still change files.
        """
        store, state = self._store, self._store.conversations.get(conversation_id)
        if state["seq"] != seq or state["execution_status"] == "running":
            return []
        if store.sandboxes.echoes.expects_any(conversation_id, Micros(now() - _ON_ITS_WAY)):
            return []
        open_ids = store.approvals.confirmations.open_ids(conversation_id)
        if state["execution_status"] == "waiting_for_confirmation":
            delivery = store.approvals.deliveries.get(conversation_id)
            if delivery and {*open_ids} & {*delivery.actions}:
                return []
        elif open_ids:  # it was paused while an action runs
            return []
        return store.events.since_the_last_result(conversation_id, Seq(max(0, after)), seq)

    def send_moments(self, sandbox: Sandbox, folder: str, reply: str, conversation_id: str) -> None:
        """Reply with the records of a conversation's folder from which a fork can start."""

        def found(runtime: Runtime, order: Launch) -> bytes:
            return json.dumps(shadow_of(runtime, order, folder).moments(conversation_id)).encode()

        self._send(sandbox, reply, found)

    def send_changes(
        self, sandbox: Sandbox, folder: str, reply: str, conversation_id: str, since: int, until: int | None
    ) -> None:
        """Reply with the files that differ between two moments of a conversation; see `Shadow.changes`."""

        def changed(runtime: Runtime, order: Launch) -> bytes:
            with self._walk(sandbox, folder, until) as walks:
                found = shadow_of(runtime, order, folder).changes(conversation_id, since, until, walks=walks)
            return json.dumps([one._replace(path=as_text(one.path))._asdict() for one in found]).encode()

        self._send(sandbox, reply, changed)

    def send_difference(
        self,
        sandbox: Sandbox,
        folder: str,
        path: str,
        reply: str,
        conversation_id: str,
        since: int,
        until: int | None,
    ) -> None:
        """Reply with a file at two moments of a conversation."""

        def differ(runtime: Runtime, order: Launch) -> bytes:
            with self._walk(sandbox, folder, until) as walks:
                both = shadow_of(runtime, order, folder).contents(
                    conversation_id, from_text(path), since, until, walks=walks
                )
            original, modified = (None if one is None else one.decode(errors="replace") for one in both)
            return json.dumps({"modified": modified, "original": original}).encode()

        self._send(sandbox, reply, differ)

    @contextmanager
    def _walk(self, sandbox: Sandbox, folder: str, until: int | None) -> Iterator[bool]:
        """Yield whether the request reads the folder.

        The result of a long read stays valid for _REST times its duration, at most for _STALE. A NotRecorded stays
        valid for _REST times the duration. Then this raises NotRecorded, with the remaining time.
        """
        place = (sandbox.id, folder)
        with self._lock:
            last = self._walks.get(place)
        if until is not None or (last and self._clock() < last.until and not last.refusal):
            yield False
            return
        if last and self._clock() < last.until:
            raise NotRecorded(f"{last.refusal}. It is read again after {last.until - self._clock():.0f} s")
        began, refusal = self._clock(), ""
        try:
            yield True
        except NotRecorded as error:
            refusal = str(error)
            raise
        finally:
            now = self._clock()
            if now - began > _LONG:
                rest = _REST * (now - began)
                with self._lock:
                    walks = {one: walk for one, walk in self._walks.items() if now < walk.until}
                    self._walks = walks | {place: _Walk(now + (rest if refusal else min(rest, _STALE)), refusal)}

    def _send(self, sandbox: Sandbox, reply: str, read: Callable[[Runtime, Launch], bytes | None]) -> None:
        files = self._store.sandboxes.files
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            files.answer(
                reply, LookupResult.FAILED, f"There is no spec {sandbox.spec_id} on host {self._host}".encode()
            )
            return
        try:
            found = read(self._runtimes[spec.runtime], files_of(sandbox, spec))
        except FolderNotKept as error:
            files.answer(reply, LookupResult.NOT_KEPT, str(error).encode())
        except NotRecorded as error:
            files.answer(reply, LookupResult.NOT_RECORDED, str(error).encode())
        except FileOverLimit as error:
            files.answer(reply, LookupResult.TOO_LONG, str(error).encode())
        except RuntimeCallFailed as error:
            log.warning("the files of sandbox %s: %s", sandbox.id, error)
            files.answer(reply, LookupResult.FAILED, f"The files of the sandbox cannot be read: {error}".encode())
        else:
            if found is not None and len(found) > MOST_REPLY:
                files.answer(reply, LookupResult.TOO_LONG, f"The answer has more than {MOST_REPLY} bytes".encode())
                return
            files.answer(reply, LookupResult.NOTHING if found is None else LookupResult.CONTENT, found or b"")


def _first(names: Iterable[bytes]) -> Iterator[str]:
    """Return the first names of a list: at most MOST_NAMES names and MOST_LISTED bytes."""
    size = 0
    for name in itertools.islice(names, MOST_NAMES):
        size += len(name)
        if size > MOST_LISTED:
            return
        yield as_text(name)


def shadow_of(runtime: Runtime, order: Launch, folder: str) -> Shadow:
    """Return the shadow repository of an agent's folder. Raises NotRecorded, FolderNotKept."""
    shadow = runtime.shadow(order, folder)
    if shadow is None:
        raise NotRecorded(
            "This server cannot read the volumes of its containers, so their folders are not recorded: "
            "ask for changes without `since`"
        )
    return shadow
