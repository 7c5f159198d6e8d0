"""The interface of the runtimes `process.py`, `docker/` and `kubernetes/`. No Redis, no Flask.

A sandbox is its files and its identity; its processes come and go. `stop` ends the processes and keeps the files, a
later `start` uses them again, and only `remove` deletes them.

A runtime keeps no state in memory. `start` returns a handle, JSON that the caller stores and passes to every call about
processes. After a crash the next supervisor therefore adopts the sandboxes, and a repeated `start` returns the handle
of the running processes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NewType, Protocol

if TYPE_CHECKING:
    from runtimes.shadow import Shadow

#: The server's folder.
PROJECT = Path(__file__).parent.parent

#: JSON by which a runtime finds a sandbox: `runtime`, `sandbox_id`, `ports` {name: host port}. `start` adds
#: `working_dir`, the absolute path of the agent's folder as its `pwd` prints it; `linked_dir`, a path of it with a
#: symlink; and `host`, if the ports are on another machine. For a pod `working_dir` is the path in its spec. Call
#: `folders` to get the real path.
Handle = NewType("Handle", dict[str, Any])


class RuntimeCallFailed(Exception):
    """A call of a runtime failed. The message is a sentence for the operator."""


class FolderNotKept(RuntimeCallFailed):
    """A folder of an agent is outside of the sandbox's persistent folder."""


class FileOverLimit(RuntimeCallFailed):
    """A file is larger than the caller accepts."""


class PartlyMeasured(RuntimeCallFailed):
    """Directories were moved or unreadable during a measurement. `least`: the bytes that were found."""

    def __init__(self, least: int) -> None:
        super().__init__(f"not all of its files could be measured: they take {least} bytes or more")
        self.least = least


def filled(text: str, values: Mapping[str, object]) -> str:
    """Replace each `{NAME}` in a text by the value of that name."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def folders_of(handle: Handle) -> dict[str, str]:
    """Return the members of a start's handle that describe the agent's folder."""
    return {name: handle.get(name, "") for name in ("working_dir", "linked_dir")}


class ProcessState(StrEnum):
    """The state of a sandbox's processes, not of its agent server."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"  #: all processes have ended
    BROKEN = "broken"  #: the files are unusable; processes may be alive


@dataclass(frozen=True, slots=True)
class Observation:
    state: ProcessState
    detail: str = ""  #: how a GONE sandbox ended, if known; why a BROKEN one is unusable
    by_order: bool = False  #: the runtime ended it; otherwise a GONE sandbox crashed


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Resource usage of a sandbox's processes; None if unknown."""

    memory_bytes: int | None
    cpu_seconds: float | None  #: since their start
    is_visited: bool = False  #: a port other than the agent server's has had a connection within the last minute


@dataclass(frozen=True, slots=True)
class Launch:
    """Parameters of a start.

    Placeholders in arguments and variables, all as the sandbox sees them: `{NAME}` is the port of that name, `{WORK}`
    the absolute path of the persistent working folder, `{WEBHOOKS}` the URL for webhooks, `{EGRESS}` the URL of the
    egress proxy, and in a process `{PROJECT}` the server's folder. A limit of None is the runtime's default; 0 is
    unlimited."""

    sandbox_id: str
    command: tuple[str, ...]
    #: the whole environment, without the server's variables; not in the repr, because it has secrets
    env: Mapping[str, str] = field(repr=False)
    working_dir: str  #: relative to the sandbox's folder
    start: int = 1  #: number of this start; processes of an earlier start are ended first
    ports: Mapping[str, int] = field(default_factory=lambda: {"AGENT_SERVER": 8000})  #: name → port in a container
    image: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    disk_bytes: int | None = None  #: size of the volume for its files; without a volume, of one file of a process
    webhooks: str = ""  #: base URL of the server's webhooks; empty: none
    hook_key: str = field(default="", repr=False)  #: the key of the webhooks
    # for processes only; docs/isolation.md
    isolation: str = "none"  #: auto, required, none
    readable: tuple[str, ...] = ()  #: further paths that a confined sandbox can read
    #: `named` or `none`, for processes also `internet`, for containers also a network of the engine
    network: str | None = None
    #: of containers and pods: its folder as their processes see it, if the image has a symlink in the way; else ""
    seen_dir: str = ""
    # for containers only; the head of runtimes/docker/__init__.py lists the default that each loosens
    capabilities: tuple[str, ...] = ()
    new_privileges: bool = False
    read_only: bool = True


class Runtime(Protocol):
    """A runtime. All calls are idempotent; all except `observe` and `logs` raise RuntimeCallFailed."""

    in_folder: bool  #: whether the files of sandboxes are in the host's folder
    freezes: bool  #: whether a paused sandbox keeps its processes; otherwise a pause is a stop, and a resume a start

    def start(self, launch: Launch) -> Handle:
        """Start a sandbox with its files, once per start number. Does not wait for its agent server."""

    def folders(self, handle: Handle) -> dict[str, str]:
        """Return `working_dir` and `linked_dir` of a sandbox whose agent server responds, as in a handle."""
        ...

    def known(self) -> list[Handle]:
        """Return the handles of all sandboxes on this host, also of those with files only."""
        ...

    def observe(self, handle: Handle) -> Observation:
        """Return the current state of a sandbox."""

    def pause(self, handle: Handle) -> None:
        """Freeze every process of the sandbox, and return when all are frozen."""

    def resume(self, handle: Handle) -> None:
        """Thaw every process, also one that was stopped from outside."""

    def stop(self, handle: Handle) -> None:
        """End every process of the sandbox, and keep its files."""

    def remove(self, sandbox_id: str) -> None:
        """End every process of the sandbox, and delete its files."""

    def disk_bytes(self, sandbox_id: str, most: int | None = None) -> int | None:
        """Return the disk usage of the files in bytes; None if unknown. Raises PartlyMeasured.

        most: a runtime that walks the files stops when this is exceeded.
        """

    def occupied_bytes(self, sandbox_id: str) -> int | None:
        """Return the bytes and inodes in use on the sandbox's file system, cheaply; None if unknown."""

    def usage(self, sandbox_id: str) -> ResourceUsage:
        """Return the current resource usage of its processes."""
        ...

    def logs(self, handle: Handle, tail: int) -> str:
        """Return the last `tail` lines of output, below a line that counts the earlier ones."""

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """Stream the working folder as an uncompressed tar with members "./…". Links to the outside are not followed.

        Raises RuntimeCallFailed, also within the stream, which is then incomplete.
        """

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """Return the relative path of every file in a folder of the agent, without generated ones (`reading.py`).

        folder: the agent's path, relative to its working directory or absolute. Raises FolderNotKept.
        """

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """Read a file in a folder of the agent; None if there is none. Raises FolderNotKept and FileOverLimit."""

    def shadow(self, launch: Launch, folder: str) -> "Shadow | None":
        """Return the shadow repository of a folder of the agent; None if the runtime has none.

        It ends with the sandbox. Raises FolderNotKept.
        """

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the working folder of a new sandbox from a tar stream, which may be hostile.

        Reads the stream to its end, and fills the folder atomically. A folder that is already filled is unchanged.
        Raises the errors of `tar_stream.py` for a refused stream.
        """

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill the folder of a new sandbox atomically with a copy of another sandbox's files on this host."""

    def recall(self, launch: Launch, source_id: str, folder: str, conversation: str, seq: int) -> None:
        """Fill the folder of a new sandbox atomically with another sandbox's folder as recorded beside an event.

        Raises NotRecorded.
        """
