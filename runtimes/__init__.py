"""Where sandboxes really run: one small interface, implemented by `process.py` and `docker.py`. No Redis, no Flask.

A runtime keeps nothing in memory that it needs again: `start` returns a handle, JSON that the caller stores, and every
other call takes it. So a supervisor that was killed is followed by one that adopts its sandboxes, and a `start` for an
id that runs already returns that sandbox's handle instead of starting a second one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType, Protocol

Handle = NewType(
    "Handle", dict[str, Any]
)  #: how a runtime finds a sandbox again; JSON; has `runtime`, `sandbox_id`, `ports` {name: host port}


class RuntimeFailure(Exception):
    """A runtime could not do what it was asked; the message is a sentence for the operator."""


def filled(text: str, values: Mapping[str, object]) -> str:
    """A text in which `{NAME}` stands for the value of that name."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


class State(StrEnum):
    """What a runtime sees of a sandbox. Whether its agent server answers is not its concern."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Observation:
    state: State
    detail: str = ""  #: of what is gone: how it ended, as far as that is known


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `{NAME}` in an argument or a value of the environment stands for the port of that name."""

    sandbox_id: str
    command: tuple[str, ...]
    #: all of it: nothing of the server's own environment reaches a sandbox; it has secrets, so no repr shows it
    env: Mapping[str, str] = field(repr=False)
    working_dir: str  #: relative: inside the sandbox's own folder
    ports: Mapping[str, int] = field(default_factory=lambda: {"AGENT_SERVER": 8000})  #: name → port in a container
    image: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    isolated: bool = False
    # of a container alone; runtimes/docker.py says what each loosens
    network: str | None = None
    capabilities: tuple[str, ...] = ()
    new_privileges: bool = False
    read_only: bool = True


class Runtime(Protocol):
    """What can be asked of it. All but `observe` and `logs` raise RuntimeFailure; each may be repeated without harm."""

    def start(self, launch: Launch) -> Handle:
        """Start a sandbox, once per id, and return without waiting for its agent server."""

    def known(self) -> list[Handle]:
        """The handles of all sandboxes that were started here, by any process, and not stopped."""
        ...

    def observe(self, handle: Handle) -> Observation:
        """The present state of a sandbox."""

    def pause(self, handle: Handle) -> None:
        """Freeze every process of the sandbox; returns when all stand still. A paused sandbox stays as it is."""

    def resume(self, handle: Handle) -> None:
        """Let every process go on. A running sandbox stays as it is."""

    def stop(self, handle: Handle) -> None:
        """End every process of the sandbox and remove all that it has. A sandbox that is gone stays gone."""

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that it printed, at most `tail`; empty if there are none."""
