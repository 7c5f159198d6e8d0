"""Runtimes of sandboxes: one small interface, implemented by `process.py` and `docker.py`. No Redis, no Flask.

A runtime keeps no state in memory: `start` returns a handle, JSON that the caller stores, and every other call takes
that handle. So after a kill the next supervisor adopts the sandboxes, and a `start` for an id that runs already returns
that sandbox's handle instead of starting a second sandbox.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType, Protocol

Handle = NewType(
    "Handle", dict[str, Any]
)  #: the key by which a runtime finds a sandbox; JSON; has `runtime`, `sandbox_id`, `ports` {name: host port}


class RuntimeFailure(Exception):
    """A call of a runtime failed; the message is a sentence for the operator."""


def filled(text: str, values: Mapping[str, object]) -> str:
    """The text with each `{NAME}` replaced by the value of that name."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


class State(StrEnum):
    """The state of a sandbox's processes. The state of its agent server is not a runtime's concern."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Observation:
    state: State
    detail: str = ""  #: how a sandbox that is GONE ended, as far as that is known


@dataclass(frozen=True, slots=True)
class Launch:
    """The order to start a sandbox. `{NAME}` in an argument or a variable stands for the port of that name."""

    sandbox_id: str
    command: tuple[str, ...]
    #: the whole environment: none of the server's variables reaches a sandbox; it has secrets, so no repr shows it
    env: Mapping[str, str] = field(repr=False)
    working_dir: str  #: relative: inside the sandbox's own folder
    ports: Mapping[str, int] = field(default_factory=lambda: {"AGENT_SERVER": 8000})  #: name → port in a container
    image: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    isolated: bool = False
    # for containers only; the head of runtimes/docker.py lists the default that each loosens
    network: str | None = None
    capabilities: tuple[str, ...] = ()
    new_privileges: bool = False
    read_only: bool = True


class Runtime(Protocol):
    """The calls of a runtime. All but `observe` and `logs` raise RuntimeFailure; each may be repeated without harm."""

    def start(self, launch: Launch) -> Handle:
        """Start a sandbox, once per id, and return without waiting for its agent server."""

    def known(self) -> list[Handle]:
        """The handles of all sandboxes that any process started here and no process stopped."""
        ...

    def observe(self, handle: Handle) -> Observation:
        """The present state of a sandbox."""

    def pause(self, handle: Handle) -> None:
        """Freeze every process of the sandbox; returns when all stand still. A paused sandbox stays as it is."""

    def resume(self, handle: Handle) -> None:
        """Let every process go on. A running sandbox stays as it is."""

    def stop(self, handle: Handle) -> None:
        """End every process of the sandbox and remove its folder or container. A sandbox that is gone stays gone."""

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that the sandbox printed, at most `tail`; empty if there are none."""

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """The kept working folder as an uncompressed tar stream, its members "./…"; nothing outside is followed.

        Raises RuntimeFailure within the stream too, which is not whole then.
        """

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the working folder of a sandbox that was never started from a tar stream, which may be hostile.

        The stream is read to its end, and the folder is filled as a whole or not at all; one that is filled stays as
        it is. Raises what `tar_stream.py` defines for a stream that is refused.
        """

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill such a folder with a copy of another sandbox's files on this host, as a whole or not at all."""
