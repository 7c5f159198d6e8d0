"""Streams of files between a worker and the supervisor whose host has the sandbox: archives and single files.

Any worker may serve the client, and one host has the files. The sender writes chunks of at most 256 KiB, of which at
most 16 wait in Redis, and the receiver takes them. Chunks are numbered, so that a command which redis-py repeats
neither duplicates nor loses any. Each side records how it ended the stream, and a stream without an end never counts as
whole: after 30 s of silence it is aborted, and Redis deletes it within a minute.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import uuid4

from core.refused import RefusalKind
from core.wire import ConversationId, Seq
from store.errors import (
    ArchiveFailed,
    ArchiveRefused,
    ArchivesBusy,
    ArchiveTooLarge,
    ArchiveUnreadable,
    HostSilent,
    StoreError,
)
from store.keys import SandboxKeys
from store.link.commands import Redis
from store.link.health import Health
from store.link.signals import answer, answered, ask_supervisors
from store.record import HashRecord, pairs
from store.sandboxes.sandboxes import SandboxId
from store.scripts import Scripts
from store.scripts.calls import SendChunk

#: Size of a full chunk in bytes, and maximum number of queued chunks.
CHUNK, MOST_WAITING = 256 * 1024, 16

#: Seconds after which a partial chunk is sent, so that a slow sender does not look dead.
_SHORT = 1.0

#: Seconds of silence after which the other side counts as gone, and timeout for the first chunk of a supervisor.
SILENCE, _BEGIN = 30.0, 5.0

#: Seconds between two polls, and expiry of an unused stream, in ms.
_POLL, _KEPT = 0.02, 60_000


_FORGOTTEN = "The transfer of the archive was broken off"

#: Maximum size of a file in one response, in bytes, and of a list of files, in names. Source of the latter: the
#: app-server wire.
MOST_BYTES, MOST_NAMES = 8 << 20, 2000

#: Timeout of a supervisor's reply, in seconds.
FILE_TIMEOUT = 20.0


class StreamOutcome(StrEnum):
    """How a side ended a stream."""

    WHOLE = "whole"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    TOO_LARGE = "too large"
    BUSY = "busy"
    FAILED = "failed"


_ERRORS: dict[StreamOutcome, Callable[[str], StoreError]] = {
    StreamOutcome.UNREADABLE: ArchiveUnreadable,
    StreamOutcome.REFUSED: ArchiveRefused,
    StreamOutcome.TOO_LARGE: ArchiveTooLarge,
    StreamOutcome.BUSY: ArchivesBusy,
    StreamOutcome.FAILED: ArchiveFailed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(HashRecord):
    """A stream in progress. sent, received: an outcome and its sentence; None until that side has ended."""

    key = f"{SandboxKeys.root}:transfer:ID"
    first: int = 0  #: number of the first chunk in the list
    next: int = 0  #: number of the next chunk to send
    sent: tuple[StreamOutcome, str] | None = None  #: how the sender ended it; missing: not yet
    received: tuple[StreamOutcome, str] | None = None  #: how the receiver ended it; missing: not yet


class Archives:
    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def open(self) -> str:
        """Begin a stream and return its id."""
        transfer_id = str(uuid4())
        self._scripts.open_transfer(SandboxKeys.root, id=transfer_id, kept=_KEPT)
        return transfer_id

    def sender(self, transfer_id: str) -> "StreamSender":
        return StreamSender(self._scripts, transfer_id)

    def receiver(self, transfer_id: str, given_up: Callable[[], bool] = lambda: False) -> "StreamReceiver":
        """given_up: once it returns true, the receiver stops waiting and fails."""
        return StreamReceiver(self._scripts, transfer_id, given_up)

    def of_sandbox(self, sandbox_id: SandboxId) -> "StreamReceiver":
        """Return the archive of a sandbox's files, after its supervisor has begun to send it.

        Raises HostSilent, ArchivesBusy and ArchiveFailed. A later chunk may also raise ArchiveFailed.
        """
        receiver = self.receiver(self.open())
        ask_supervisors(self._redis, "archive", sandbox_id, transfer=receiver.id)
        receiver.begin(_BEGIN)
        return receiver


class StreamSender:
    """The sending side of a stream. Every call raises the error with which the receiver ended the stream."""

    def __init__(self, scripts: Scripts, transfer_id: str) -> None:
        self.id = transfer_id
        self._scripts = scripts
        self._held = bytearray()
        self._number = 0
        self._sent_at = 0.0

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes in chunks. Waits while too many chunks are queued."""
        self._held += data
        while len(self._held) >= CHUNK or (self._held and time.monotonic() - self._sent_at >= _SHORT):
            self._send()

    def end(self) -> None:
        """Send the rest, and mark the stream as whole."""
        while self._held:
            self._send()
        self._close(StreamOutcome.WHOLE, "")

    def fail(self, outcome: StreamOutcome, words: str) -> None:
        """End the stream with an error, which the receiver raises."""
        self._close(outcome, words)

    def confirmed(self, seconds: float) -> None:
        """Wait until the receiver has used the whole stream. Raises ArchiveFailed on timeout, in seconds."""
        deadline = time.monotonic() + seconds
        while (ending := self._close(StreamOutcome.WHOLE, "")) is None:
            if time.monotonic() > deadline:
                raise ArchiveFailed(f"The archive was sent, but not used within {seconds:g} s")
            time.sleep(_POLL)
        _raise(ending)

    def _send(self) -> None:
        chunk = bytes(self._held[:CHUNK])
        deadline = time.monotonic() + SILENCE
        while (reply := self._offer(chunk)) == "full":
            if time.monotonic() > deadline:
                raise ArchiveFailed(f"Nobody has received the archive for {SILENCE:g} s")
            time.sleep(_POLL)
        match reply:
            case SendChunk.Closed(found):
                _raise(Transfer.read(pairs(found)).received)
            case None:
                raise ArchiveFailed(_FORGOTTEN)
        del self._held[:CHUNK]
        self._number += 1
        self._sent_at = time.monotonic()

    def _offer(self, chunk: bytes) -> SendChunk.Closed | Literal["sent", "full"] | None:
        """Send the next chunk, unless MOST_WAITING chunks are queued."""
        return self._scripts.send_chunk(
            SandboxKeys.root, id=self.id, kept=_KEPT, number=self._number, most=MOST_WAITING, chunk=chunk
        )

    def _close(self, outcome: StreamOutcome, words: str) -> tuple[StreamOutcome, str] | None:
        """End the sending side. Return how the receiver ended the stream, None if it has not."""
        return _closed(self._scripts, self.id, "sent", outcome, words).received


class StreamReceiver:
    """The receiving side of a stream: an iterator of chunks, which stops only at the end that the sender marked.

    Raises the error with which the sender ended the stream, and ArchiveFailed if the sender is silent.
    """

    def __init__(self, scripts: Scripts, transfer_id: str, given_up: Callable[[], bool]) -> None:
        self.id = transfer_id
        self._scripts = scripts
        self._given_up = given_up
        self._number = 0
        self._ahead: bytes | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk, self._ahead = self._ahead, None
        if chunk is None:
            chunk = self._take(SILENCE, ArchiveFailed(f"Nothing more of the archive came for {SILENCE:g} s"))
        if chunk is None:
            raise StopIteration
        return chunk

    def begin(self, seconds: float) -> None:
        """Wait for the first chunk. Raises HostSilent on timeout, in seconds. Any failure closes the stream."""
        try:
            self._ahead = self._take(seconds, HostSilent(seconds))
        except BaseException:
            self.close(StreamOutcome.FAILED, "Nobody waits for the archive")
            raise

    def close(self, outcome: StreamOutcome = StreamOutcome.WHOLE, words: str = "") -> None:
        """End the receiving side; the sender raises an outcome other than WHOLE. The first call counts."""
        _closed(self._scripts, self.id, "received", outcome, words)

    def _take(self, seconds: float, silent: StoreError) -> bytes | None:
        """Return the next chunk, None after the last one."""
        deadline = time.monotonic() + seconds
        while True:
            reply = self._scripts.take_chunk(SandboxKeys.root, id=self.id, kept=_KEPT, number=self._number)
            if reply is None:
                raise ArchiveFailed(_FORGOTTEN)
            sent = Transfer.read(pairs(reply.transfer)).sent
            _raise(sent)
            if reply.chunk is not None:
                self._number += 1
                return reply.chunk
            if sent is not None:
                return None
            if self._given_up():
                raise ArchiveFailed("The archive is not wanted any more")
            if time.monotonic() > deadline:
                raise silent
            time.sleep(_POLL)


def _closed(scripts: Scripts, transfer_id: str, side: str, outcome: StreamOutcome, words: str) -> Transfer:
    """Record how one side ended a stream, and return how both did."""
    fields = Transfer.fields_of(**{side: (outcome, words)})
    reply = scripts.close_transfer(SandboxKeys.root, id=transfer_id, kept=_KEPT, fields=fields)
    return Transfer(received=(StreamOutcome.FAILED, _FORGOTTEN)) if reply is None else Transfer.read(pairs(reply))


def _raise(ending: tuple[StreamOutcome, str] | None) -> None:
    """Raise the error of an outcome, unless the stream is whole."""
    outcome, words = ending or (StreamOutcome.WHOLE, "")
    if outcome != StreamOutcome.WHOLE:
        raise _ERRORS[StreamOutcome(outcome)](words)


class LookupResult(StrEnum):
    """The result of a supervisor's look-up of a file or a folder."""

    CONTENT = "content"
    NOTHING = "nothing"
    NOT_KEPT = "not_kept"
    NOT_RECORDED = "not_recorded"
    TOO_LONG = "too_long"
    BUSY = "busy"
    FAILED = "failed"


class FileNotKept(StoreError):
    """The sandbox does not keep the folder of the conversation."""

    kind = RefusalKind.MISSING


class FolderNotRecorded(StoreError):
    """The folder of the conversation was not recorded at this moment."""

    kind = RefusalKind.CONFLICT


class FileMissing(StoreError):
    """The path is not a file in the folder: it does not exist, is a directory, or leads outside."""

    kind = RefusalKind.MISSING
    words = "There is no such file in the conversation's folder. GET /api/v1/app-conversations/ID/files lists the files"


class FileTooLong(StoreError):
    """The file is larger than MOST_BYTES."""

    kind = RefusalKind.TOO_LONG


class FileUnreadable(StoreError):
    """The host of the sandbox cannot read its files."""

    kind = RefusalKind.BAD_AGENT


class FilesBusy(StoreError):
    """Too many requests for the files of the sandbox are waiting."""

    kind = RefusalKind.LATER


_FILE_ERRORS: dict[LookupResult, Callable[[str], StoreError]] = {
    LookupResult.NOT_KEPT: FileNotKept,
    LookupResult.NOT_RECORDED: FolderNotRecorded,
    LookupResult.TOO_LONG: FileTooLong,
    LookupResult.BUSY: FilesBusy,
    LookupResult.FAILED: FileUnreadable,
}


class Between(NamedTuple):
    """Two moments of a conversation: before the event `since` (0: at its start), and before `until` (None: now)."""

    conversation_id: ConversationId
    since: Seq
    until: Seq | None


class FolderSnapshot(NamedTuple):
    """A snapshot of a conversation's folder, and the events during which the folder had this content."""

    seq: Seq  #: seq of the last of the events
    event_ids: list[str]


class SandboxFiles:
    """The files of all sandboxes. Each read raises HostSilent, FilesBusy, FileNotKept, FileUnreadable, StoreFull."""

    def __init__(self, redis: Redis, health: Health) -> None:
        self._redis = redis
        self._health = health

    def names(self, sandbox_id: SandboxId, folder: str) -> list[str]:
        """Return the paths of the files in a folder of the agent, sorted. Only the first MOST_NAMES that were found."""
        listed = self._ask("files", sandbox_id, folder=folder)
        return sorted(json.loads(listed or b"[]"))

    def content(self, sandbox_id: SandboxId, folder: str, path: str) -> bytes:
        """Return a file in a folder of the agent. Raises FileMissing, FileTooLong."""
        found = self._ask("file", sandbox_id, folder=folder, path=path)
        if found is None:
            raise FileMissing
        return found

    def record(self, sandbox_id: SandboxId, conversation_id: ConversationId, seq: Seq) -> None:
        """Request a snapshot of a conversation's folder at an event, without waiting; 0: before the first event.

        Limitation: if the signal is lost, there is no snapshot at that event, and the one before serves instead.
        """
        ask_supervisors(self._redis, "record", sandbox_id, conversation_id=conversation_id, seq=seq)

    def moments(self, sandbox_id: SandboxId, folder: str, conversation_id: ConversationId) -> list[FolderSnapshot]:
        """Return the snapshots with which forks of a conversation can begin, the oldest first.

        Raises FolderNotRecorded.
        """
        listed = self._ask("moments", sandbox_id, folder=folder, conversation_id=conversation_id)
        return [FolderSnapshot(Seq(seq), event_ids) for seq, event_ids in json.loads(listed or b"[]")]

    def changes(self, sandbox_id: SandboxId, folder: str, between: "Between") -> list[dict[str, str]]:
        """Return the files of a conversation's folder that differ between two moments. Raises FolderNotRecorded."""
        listed = self._ask("changes", sandbox_id, folder=folder, **between._asdict())
        changes: list[dict[str, str]] = json.loads(listed or b"[]")
        return changes

    def difference(self, sandbox_id: SandboxId, folder: str, path: str, between: "Between") -> dict[str, str | None]:
        """Return the text of a file at both moments. Raises FolderNotRecorded, FileTooLong."""
        reply = self._ask("difference", sandbox_id, folder=folder, path=path, **between._asdict())
        texts: dict[str, str | None] = json.loads(reply or b"{}")
        return texts

    def answer(self, reply: str, found: LookupResult, data: bytes = b"") -> None:
        """Reply to a worker: with the content, or with the sentence of an error."""
        answer(self._redis, reply, found.encode() + b" " + data)

    def _ask(self, verb: str, sandbox_id: SandboxId, **details: object) -> bytes | None:
        self._health.require_room()  # for the reply, which stays in Redis until it is read
        word, _, data = answered(self._redis, FILE_TIMEOUT, verb, sandbox_id, **details).partition(b" ")
        found = LookupResult(word.decode())
        if found in _FILE_ERRORS:
            raise _FILE_ERRORS[found](data.decode())
        return None if found is LookupResult.NOTHING else data
