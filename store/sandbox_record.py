"""One sandbox as Redis holds it, and the settings of all. Fields: `store/keys.py`."""

import json
import secrets
import string
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NewType

from wire import Micros

SandboxId = NewType("SandboxId", str)

#: most characters of the detail
MOST_DETAIL = 8 * 1024

_DIGITS = string.digits + string.ascii_letters


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of sandboxes and of start tasks. Times are in seconds or days, as their names say; 0 days: never."""

    most: int
    pause_idlest: bool
    host_seconds: float
    start_seconds: float
    most_stopped: int = 1_000_000
    keep_failed_days: float = 0.0
    start_task_days: float = 36_500.0

    @property
    def spans(self) -> list[int]:
        """µs after which a host is lost, and a sandbox that no host takes has failed."""
        return [round(self.host_seconds * 1e6), round(self.start_seconds * 1e6)]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox at the time of its reading. Times are in µs by Redis' clock; the handle is its runtime's.

    A sandbox without a handle has no processes: only its files, if it was started before.
    """

    id: SandboxId
    spec_id: str
    status: str
    wanted: str
    host: str
    session_api_key: str = field(repr=False)
    files_key: str = field(repr=False)  #: seals what its agent server writes to its files; stays for the sandbox's life
    start: int  #: number of its last start of processes, 0 before the first
    created_at: Micros
    starting_at: Micros
    changed_at: Micros  #: its last change of status
    active_at: Micros
    runtime: str  #: name of the runtime that has its files; empty before its first start
    handle: dict[str, Any] | None
    agent_url: str
    urls: list[dict[str, Any]]
    detail: str
    disk_bytes: int | None  #: of its files, as measured last
    crashes: list[Micros]  #: when its processes crashed, as far as its spec's restarts count them
    start_after: Micros  #: its next start waits for that time: the backoff after a crash
    resumes: bool  #: it ran when its server ended: RESUME_SANDBOXES starts it again
    source: dict[str, Any] | None  #: where the files of its first start come from; None: it starts with none
    seen_at: Micros = field(compare=False)  #: the time of the reading, which its ages are measured to

    @property
    def isolated_by(self) -> dict[str, Any] | None:
        """What isolates its processes, as its runtime says; None while it has none."""
        return (self.handle or {}).get("isolation")


def read_sandbox(fields: list[bytes], now: bytes) -> Sandbox:
    """A sandbox from the names and values of its hash. A field that an older release did not write has its default."""
    words = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    texts = ("id", "spec_id", "status", "wanted", "host", "session_api_key", "agent_url", "detail")
    values: dict[str, Any] = {name: words[name] for name in texts}
    values |= {name: int(words[name]) for name in ("created_at", "starting_at", "active_at")}
    values |= {name: int(words.get(name) or 0) for name in ("start", "start_after")}
    values |= {"changed_at": int(words.get("changed_at") or words["created_at"])}
    values |= {name: json.loads(words.get(name) or "null") for name in ("handle", "disk_bytes", "source")}
    values |= {name: json.loads(words.get(name) or "[]") for name in ("urls", "crashes")}
    values |= {
        "files_key": words.get("files_key", ""),
        "runtime": words.get("runtime", ""),
        "resumes": bool(words.get("resumes")),
    }
    return Sandbox(**values, seen_at=Micros(int(now)))


def shortened(detail: str) -> str:
    """A detail with its reason, which stands first, and its last lines: at most MOST_DETAIL characters."""
    half = MOST_DETAIL // 2 - 2
    return detail if len(detail) <= MOST_DETAIL else f"{detail[:half]}\n…\n{detail[-half:]}"


def random_text(length: int) -> str:
    """Random letters and digits, of nearly six bits each."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def key_hash(session_api_key: str) -> str:
    """The hash under which a session key is looked up."""
    return sha256(session_api_key.encode("utf-8", "surrogatepass")).hexdigest()
