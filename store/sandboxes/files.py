"""Files of sandboxes on their way between a worker and the supervisor whose host has them: archives and single files.

Any worker may have the client, and one host has the files. So one side sends chunks of at most 256 KiB, of which at
most 16 wait in Redis, and the other side receives them. Chunks are numbered: a command that redis-py repeats doubles
none and loses none. Each side says how it ended the stream, and a stream that nobody ended is never taken for a whole
one: where the other side is silent for 30 s it is broken off, and Redis forgets it within a minute.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import uuid4

from core.refused import Kind
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
from store.record import Record, pairs
from store.sandboxes.sandboxes import SandboxId
from store.scripts import Scripts
from store.scripts.calls import SendChunk

#: bytes of a full chunk, and most chunks that wait
CHUNK, MOST_WAITING = 256 * 1024, 16

#: seconds after which a chunk is sent that is not full: so that a slow sender does not look dead
_SHORT = 1.0

#: seconds of silence after which the other side is gone, and in which a supervisor must begin to send
SILENCE, _BEGIN = 30.0, 5.0

#: seconds between two polls, and ms that Redis keeps a stream that nobody uses
_POLL, _KEPT = 0.02, 60_000


_FORGOTTEN = "The transfer of the archive was broken off"

#: bytes of a file in one response, and names of a list of files. Source of the latter: the app-server wire
MOST_BYTES, MOST_NAMES = 8 << 20, 2000

#: seconds in which a supervisor replies
FILE_TIMEOUT = 20.0


class Outcome(StrEnum):
    """How a side ended a stream."""

    WHOLE = "whole"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    TOO_LARGE = "too large"
    BUSY = "busy"
    FAILED = "failed"


_ERRORS: dict[Outcome, Callable[[str], StoreError]] = {
    Outcome.UNREADABLE: ArchiveUnreadable,
    Outcome.REFUSED: ArchiveRefused,
    Outcome.TOO_LARGE: ArchiveTooLarge,
    Outcome.BUSY: ArchivesBusy,
    Outcome.FAILED: ArchiveFailed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Record):
    """A stream under way. sent, received: an outcome and its sentence; None while that side goes on."""

    key = f"{SandboxKeys.root}:transfer:ID"
    first: int = 0  #: number of the chunk at the head of the list
    next: int = 0  #: number of the chunk to be sent next
    sent: tuple[Outcome, str] | None = None  #: how the sender ended it; missing: it goes on
    received: tuple[Outcome, str] | None = None  #: how the receiver ended it


class Archives:
    """The streams of all hosts."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def open(self) -> str:
        """Begin a stream; its id."""
        transfer_id = str(uuid4())
        self._scripts.open_transfer(SandboxKeys.root, id=transfer_id, kept=_KEPT)
        return transfer_id

    def sender(self, transfer_id: str) -> "Sender":
        return Sender(self._scripts, transfer_id)

    def receiver(self, transfer_id: str, given_up: Callable[[], bool] = lambda: False) -> "Receiver":
        """given_up: once it is true, the receiver waits no longer and fails."""
        return Receiver(self._scripts, transfer_id, given_up)

    def of_sandbox(self, sandbox_id: SandboxId) -> "Receiver":
        """The archive of a sandbox's files; its supervisor has begun to send it.

        Raises HostSilent, ArchivesBusy, and ArchiveFailed, which may also come with a later chunk.
        """
        receiver = self.receiver(self.open())
        ask_supervisors(self._redis, "archive", sandbox_id, transfer=receiver.id)
        receiver.begin(_BEGIN)
        return receiver


class Sender:
    """The side of a stream that has the bytes. Every call raises what the receiver ended the stream with."""

    def __init__(self, scripts: Scripts, transfer_id: str) -> None:
        self.id = transfer_id
        self._scripts = scripts
        self._held = bytearray()
        self._number = 0
        self._sent_at = 0.0

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes, as soon as there are enough of them; waits while too many chunks wait for the receiver."""
        self._held += data
        while len(self._held) >= CHUNK or (self._held and time.monotonic() - self._sent_at >= _SHORT):
            self._send()

    def end(self) -> None:
        """Send what is left, and that it was all."""
        while self._held:
            self._send()
        self._close(Outcome.WHOLE, "")

    def fail(self, outcome: Outcome, words: str) -> None:
        """Say that the stream does not become whole; the receiver raises that."""
        self._close(outcome, words)

    def confirmed(self, seconds: float) -> None:
        """Wait until the receiver has used the whole stream. Raises ArchiveFailed after so many seconds."""
        deadline = time.monotonic() + seconds
        while (ending := self._close(Outcome.WHOLE, "")) is None:
            if time.monotonic() > deadline:
                raise ArchiveFailed(f"The archive was sent and not used within {seconds:g} s")
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
        """Send the next chunk, unless MOST_WAITING chunks wait."""
        return self._scripts.send_chunk(
            SandboxKeys.root, id=self.id, kept=_KEPT, number=self._number, most=MOST_WAITING, chunk=chunk
        )

    def _close(self, outcome: Outcome, words: str) -> tuple[Outcome, str] | None:
        """How the receiver ended the stream, None while it goes on."""
        return _closed(self._scripts, self.id, "sent", outcome, words).received


class Receiver:
    """The side of a stream that uses the bytes: an iterator of chunks, which ends only where the sender said so.

    Raises what the sender ended the stream with, and ArchiveFailed where it is silent.
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
        """Wait so long for the first chunk. Raises HostSilent; the stream is closed then, and after any failure."""
        try:
            self._ahead = self._take(seconds, HostSilent(seconds))
        except BaseException:
            self.close(Outcome.FAILED, "Nobody waits for the archive")
            raise

    def close(self, outcome: Outcome = Outcome.WHOLE, words: str = "") -> None:
        """Say how the stream ended for this side; the sender raises that unless it is whole. The first call counts."""
        _closed(self._scripts, self.id, "received", outcome, words)

    def _take(self, seconds: float, silent: StoreError) -> bytes | None:
        """The next chunk, None after the last one."""
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


def _closed(scripts: Scripts, transfer_id: str, side: str, outcome: Outcome, words: str) -> Transfer:
    """How the sender and the receiver ended a stream, after one side has."""
    fields = Transfer.fields_of(**{side: (outcome, words)})
    reply = scripts.close_transfer(SandboxKeys.root, id=transfer_id, kept=_KEPT, fields=fields)
    return Transfer(received=(Outcome.FAILED, _FORGOTTEN)) if reply is None else Transfer.read(pairs(reply))


def _raise(ending: tuple[Outcome, str] | None) -> None:
    """Raise the error that an ending stands for, if it is not that of a whole stream."""
    outcome, words = ending or (Outcome.WHOLE, "")
    if outcome != Outcome.WHOLE:
        raise _ERRORS[Outcome(outcome)](words)


class Found(StrEnum):
    """What a supervisor found of a file, or of a folder."""

    CONTENT = "content"
    NOTHING = "nothing"
    NOT_KEPT = "not_kept"
    NOT_RECORDED = "not_recorded"
    TOO_LONG = "too_long"
    BUSY = "busy"
    FAILED = "failed"


class FileNotKept(StoreError):
    """The folder of the conversation is not among the files that its sandbox keeps."""

    kind = Kind.MISSING


class FolderNotRecorded(StoreError):
    """The folder of the conversation was not recorded at this moment."""

    kind = Kind.CONFLICT


class FileMissing(StoreError):
    """The path is not a file in the folder: it does not exist, is a directory, or leads outside."""

    kind = Kind.MISSING
    words = (
        "There is no such file in the conversation's folder. GET /api/v1/app-conversations/ID/files lists those that "
        "are there"
    )


class FileTooLong(StoreError):
    """The file is larger than MOST_BYTES."""

    kind = Kind.TOO_LONG


class FileUnreadable(StoreError):
    """The host of the sandbox cannot read its files."""

    kind = Kind.BAD_AGENT


class FilesBusy(StoreError):
    """Too many requests for the files of the sandbox are waiting."""

    kind = Kind.LATER


_FILE_ERRORS: dict[Found, Callable[[str], StoreError]] = {
    Found.NOT_KEPT: FileNotKept,
    Found.NOT_RECORDED: FolderNotRecorded,
    Found.TOO_LONG: FileTooLong,
    Found.BUSY: FilesBusy,
    Found.FAILED: FileUnreadable,
}


class Between(NamedTuple):
    """Two moments of a conversation: before the event `since` (0: at its start), and before `until` (None: now)."""

    conversation_id: ConversationId
    since: Seq
    until: Seq | None


class Moment(NamedTuple):
    """A record of a conversation's folder, and the events at which the folder was as recorded."""

    seq: Seq  #: of the last of the events
    event_ids: list[str]


class SandboxFiles:
    """The files of all sandboxes. Each read raises HostSilent, FilesBusy, FileNotKept, FileUnreadable, StoreFull."""

    def __init__(self, redis: Redis, health: Health) -> None:
        self._redis = redis
        self._health = health

    def names(self, sandbox_id: SandboxId, folder: str) -> list[str]:
        """The paths of the files in a folder of the agent, sorted: of the MOST_NAMES that were found first."""
        listed = self._ask("files", sandbox_id, folder=folder)
        return sorted(json.loads(listed or b"[]"))

    def content(self, sandbox_id: SandboxId, folder: str, path: str) -> bytes:
        """A file in a folder of the agent. Raises FileMissing, FileTooLong."""
        found = self._ask("file", sandbox_id, folder=folder, path=path)
        if found is None:
            raise FileMissing
        return found

    def record(self, sandbox_id: SandboxId, conversation_id: ConversationId, seq: Seq) -> None:
        """Have the folder of a conversation recorded beside an event; 0: before the first one. Nobody waits for it.

        Limitation: a signal that is lost leaves that moment unrecorded; the one before it stands for it then.
        """
        ask_supervisors(self._redis, "record", sandbox_id, conversation_id=conversation_id, seq=seq)

    def moments(self, sandbox_id: SandboxId, folder: str, conversation_id: ConversationId) -> list[Moment]:
        """The records of a conversation's folder that forks begin with, the oldest first. Raises FolderNotRecorded."""
        listed = self._ask("moments", sandbox_id, folder=folder, conversation_id=conversation_id)
        return [Moment(Seq(seq), event_ids) for seq, event_ids in json.loads(listed or b"[]")]

    def changes(self, sandbox_id: SandboxId, folder: str, between: "Between") -> list[dict[str, str]]:
        """The files of a conversation's folder that differ between two moments. Raises FolderNotRecorded."""
        listed = self._ask("changes", sandbox_id, folder=folder, **between._asdict())
        changes: list[dict[str, str]] = json.loads(listed or b"[]")
        return changes

    def difference(self, sandbox_id: SandboxId, folder: str, path: str, between: "Between") -> dict[str, str | None]:
        """A file at two such moments, as text. Raises FolderNotRecorded, FileTooLong."""
        told = self._ask("difference", sandbox_id, folder=folder, path=path, **between._asdict())
        texts: dict[str, str | None] = json.loads(told or b"{}")
        return texts

    def answer(self, reply: str, found: Found, data: bytes = b"") -> None:
        """Reply to a worker: with the content, or with the sentence of an error."""
        answer(self._redis, reply, found.encode() + b" " + data)

    def _ask(self, verb: str, sandbox_id: SandboxId, **details: object) -> bytes | None:
        self._health.require_room()  # for the reply, which lies in Redis until it is read
        word, _, data = answered(self._redis, FILE_TIMEOUT, verb, sandbox_id, **details).partition(b" ")
        found = Found(word.decode())
        if found in _FILE_ERRORS:
            raise _FILE_ERRORS[found](data.decode())
        return None if found is Found.NOTHING else data
