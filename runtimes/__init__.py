"""Runtimes of sandboxes: one small interface, of `process.py`, `docker/` and `kubernetes/`. No Redis, no Flask.

A sandbox is its files and its identity; processes come and go. `stop` ends the processes and keeps the files, a later
`start` uses them again, and only `remove` removes them.

A runtime keeps no state in memory: `start` returns a handle, JSON that the caller stores, and every call about
processes takes that handle. So after a kill the next supervisor adopts the sandboxes, and a repeated `start` returns
the handle of what runs already instead of starting it twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NewType, Protocol

if TYPE_CHECKING:
    from runtimes.shadow import Shadow

#: the server's folder
PROJECT = Path(__file__).parent.parent

#: the key by which a runtime finds a sandbox; JSON; has `runtime`, `sandbox_id`, `ports` {name: host port}; that of a
#: start has also `working_dir`, the agent's folder as its own `pwd` prints it, an absolute path, `linked_dir`, another
#: path of it where a symlink is in the way, and `host` where the ports are another host's than this machine's. That of
#: a pod has the path of its spec as `working_dir`: only a process in the pod can tell the other, which `folders` asks
Handle = NewType("Handle", dict[str, Any])


class RuntimeFailure(Exception):
    """A call of a runtime failed; the message is a sentence for the operator."""


class FolderNotKept(RuntimeFailure):
    """A folder of an agent lies outside of the sandbox's kept folder."""


class FileTooLong(RuntimeFailure):
    """A file has more bytes than the caller takes."""


class PartlyMeasured(RuntimeFailure):
    """Directories were moved, or could not be read, while files were measured: there are `least` bytes or more."""

    def __init__(self, least: int) -> None:
        super().__init__(f"not all of its files could be measured: they take {least} bytes or more")
        self.least = least


def filled(text: str, values: Mapping[str, object]) -> str:
    """The text with each `{NAME}` replaced by the value of that name."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def folders_of(handle: Handle) -> dict[str, str]:
    """What the handle of a start has of the agent's folder."""
    return {name: handle.get(name, "") for name in ("working_dir", "linked_dir")}


class State(StrEnum):
    """The state of a sandbox's processes. The state of its agent server is not a runtime's concern."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"  #: its processes have ended
    BROKEN = "broken"  #: its files cannot be used; processes may live


@dataclass(frozen=True, slots=True)
class Observation:
    state: State
    detail: str = ""  #: how a sandbox that is GONE ended, as far as that is known; why one is BROKEN
    by_order: bool = False  #: it is GONE because the runtime ended it, not because it crashed


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of a sandbox use; None where the runtime cannot tell."""

    memory_bytes: int | None
    cpu_seconds: float | None  #: since their start: the difference of two is what was used between them
    is_visited: bool = False  #: a port of it but the agent server's has, or had within a minute, a connection


@dataclass(frozen=True, slots=True)
class Launch:
    """The order to start a sandbox. `{NAME}` in an argument or a variable stands for the port of that name,
    `{WORK}` for the absolute path of the kept working folder, `{WEBHOOKS}` for the URL to post webhooks to, `{EGRESS}`
    for the URL of the way out by name, and in a process `{PROJECT}` for the server's folder, all as the sandbox sees
    them. A limit of None is the runtime's own, and one of 0 is none."""

    sandbox_id: str
    command: tuple[str, ...]
    #: the whole environment: none of the server's variables reaches a sandbox; it has secrets, so no repr shows it
    env: Mapping[str, str] = field(repr=False)
    working_dir: str  #: relative: inside the sandbox's own folder
    start: int = 1  #: number of this start: processes of an earlier one are ended first
    ports: Mapping[str, int] = field(default_factory=lambda: {"AGENT_SERVER": 8000})  #: name → port in a container
    image: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    disk_bytes: int | None = (
        None  #: the size of a volume, where one is made for its files; else of one file of a process
    )
    webhooks: str = ""  #: base URL of the server's webhooks; empty: the sandbox posts none
    hook_key: str = field(default="", repr=False)  #: what they bear
    # for processes only; docs/isolation.md
    isolation: str = "none"  #: auto, required, none
    readable: tuple[str, ...] = ()  #: further paths that a confined sandbox can read
    #: `named` or `none`, for processes also `internet`, for containers also a network of the engine
    network: str | None = None
    #: of containers and pods: its folder as their processes see it, where an image has a symlink in the way; else empty
    seen_dir: str = ""
    # for containers only; the head of runtimes/docker/__init__.py lists the default that each loosens
    capabilities: tuple[str, ...] = ()
    new_privileges: bool = False
    read_only: bool = True


class Runtime(Protocol):
    """The calls of a runtime. All but `observe` and `logs` raise RuntimeFailure; each may be repeated without harm."""

    in_folder: bool  #: whether the files of its sandboxes are in the host's folder
    freezes: bool  #: whether a paused sandbox keeps its processes; else a pause is a stop, and a resume is a start

    def start(self, launch: Launch) -> Handle:
        """Start a sandbox with its kept files, once per start number; does not wait for its agent server."""

    def folders(self, handle: Handle) -> dict[str, str]:
        """`working_dir` and `linked_dir` of a sandbox whose agent server answers, as a handle has them."""
        ...

    def known(self) -> list[Handle]:
        """The handles of all sandboxes of which anything is here: processes, or only files."""
        ...

    def observe(self, handle: Handle) -> Observation:
        """The present state of a sandbox."""

    def pause(self, handle: Handle) -> None:
        """Freeze every process of the sandbox; returns when all are stopped. A paused sandbox stays as it is."""

    def resume(self, handle: Handle) -> None:
        """Let every process go on, also one that was stopped from outside. A running sandbox stays as it is."""

    def stop(self, handle: Handle) -> None:
        """End every process of the sandbox and keep its files. A sandbox that has ended stays as it is."""

    def remove(self, sandbox_id: str) -> None:
        """End every process of the sandbox and remove all of its files. One that is gone stays gone."""

    def disk_bytes(self, sandbox_id: str, most: int | None = None) -> int | None:
        """Bytes that the kept files take on the disk; None if that is not known. Raises PartlyMeasured.

        most: a runtime that walks through the files ends the walk where they take more.
        """

    def occupied_bytes(self, sandbox_id: str) -> int | None:
        """Bytes and inodes in use on the file system that has its files, at little cost; None where not known."""

    def usage(self, sandbox_id: str) -> Usage:
        """What its processes use now."""
        ...

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that the sandbox printed, at most `tail`, below one that tells of earlier ones."""

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """The kept working folder as an uncompressed tar stream, its members "./…"; nothing outside is followed.

        Raises RuntimeFailure within the stream too, which is not whole then.
        """

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """The path of every file in a folder of the agent, from there; what tools make, as `reading.py` has it, is not.

        folder: as the agent names it, relative to its working directory or absolute. Raises FolderNotKept.
        """

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """A file of a folder of the agent; None if there is none. Raises FolderNotKept, FileTooLong."""

    def shadow(self, launch: Launch, folder: str) -> "Shadow | None":
        """The shadow repository of a folder of the agent, which ends with the sandbox; None: the runtime has none.

        Raises FolderNotKept.
        """

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the working folder of a sandbox that was never started from a tar stream, which may be hostile.

        The stream is read to its end, and the folder is filled as a whole or not at all; one that is filled stays as
        it is. Raises what `tar_stream.py` defines for a stream that is refused.
        """

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill such a folder with a copy of another sandbox's files on this host, as a whole or not at all."""

    def recall(self, launch: Launch, source_id: str, folder: str, conversation: str, seq: int) -> None:
        """Fill such a folder with a folder of another sandbox as it was recorded beside an event, likewise.

        Raises NotRecorded.
        """
