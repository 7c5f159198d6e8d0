"""One sandbox as Redis holds it, and the settings of all. Fields: `store/keys.py`.

Fields of a sandbox: `id`, `spec_id`, `status`, `wanted` (`running`, `paused`, `deleted`), `host`, `runtime` (that has
its files), `handle` (JSON of the runtime; empty while no processes are there), `agent_url`, `urls` (JSON), `agent_key`
(its session key, sealed), `session_hash` (SHA-256 of it), `hook_hash` (of its hook key), `files_key` (sealed), `start`
(number of its last start of processes), `source` (JSON), `detail` (8 KiB), `disk_bytes`, `memory_bytes`, `cpu_cores`,
`crashes` (JSON, µs), `start_after` (µs), `resumes`, `gives_way` (`1`: see `agents/room.py`), `warm` (see `warm.py`),
`settled` (the start after which its conversations were settled), `trace` (W3C traceparent of the request that asked for
its start, until that has ended), `created_at`, `starting_at`, `changed_at`,
`active_at` (µs).
"""

import json
import secrets
import string
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NewType

from store.errors import KeyUnreadable
from store.link.secrets import Sealer
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
    most_conversations: int = 1_000_000  #: in one sandbox
    most_starts: int = 1_000_000  #: that are under way

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
    agent_key: str = field(repr=False)  #: sealed; empty before its first start
    sealed_files_key: str = field(repr=False)
    hook_hash: str  #: SHA-256 of its hook key; empty before its first start, and of one that an older release started
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
    memory_bytes: int | None  #: of its processes, as measured last while it ran
    cpu_cores: float | None  #: that its processes used, likewise
    crashes: list[Micros]  #: when its processes crashed, as far as its spec's restarts count them
    start_after: Micros  #: its next start waits for that time: the backoff after a crash
    resumes: bool  #: it ran when its server ended: RESUME_SANDBOXES starts it again
    gives_way: bool  #: it pauses while it is idle, for others too; see `agents/room.py`
    warm: str  #: version of its spec while it waits for its first use, see `warm.py`; empty: it is bound
    source: dict[str, Any] | None  #: where the files of its first start come from; None: it starts with none
    trace: str  #: W3C traceparent of the request that asked for its start; empty: none, or the start has ended
    seen_at: Micros = field(compare=False)  #: the time of the reading, which its ages are measured to
    sealer: Sealer = field(repr=False, compare=False)

    @property
    def session_api_key(self) -> str:
        """What clients and this server show its agent server; each start has another one. Raises KeyUnreadable."""
        return self.sealer.open_key(self.id, self.agent_key)

    @property
    def files_key(self) -> str:
        """Seals what its agent server writes to its files; stays for the sandbox's life. Raises KeyUnreadable."""
        return self.sealer.open_key(self.id, self.sealed_files_key)

    @property
    def shown_key(self) -> str | None:
        """The session key as clients see it: None unless the sandbox is RUNNING, bound, and the key can be read."""
        if self.status != "RUNNING" or self.warm:
            return None
        try:
            return self.session_api_key
        except KeyUnreadable:
            return None

    @property
    def working_dir(self) -> str | None:
        """The folder of its agent, an absolute path as the sandbox sees it; None while it has no processes."""
        return (self.handle or {}).get("working_dir")

    @property
    def isolated_by(self) -> dict[str, Any] | None:
        """What isolates its processes, as its runtime says; None while it has none."""
        return (self.handle or {}).get("isolation")


def read_sandbox(fields: list[bytes], now: bytes, sealer: Sealer) -> Sandbox:
    """A sandbox from the names and values of its hash. A field that an older release did not write has its default."""
    words = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    texts = ("id", "spec_id", "status", "wanted", "host", "agent_url", "detail")
    values: dict[str, Any] = {name: words[name] for name in texts}
    values |= {name: int(words[name]) for name in ("created_at", "starting_at", "active_at")}
    values |= {name: int(words.get(name) or 0) for name in ("start", "start_after")}
    values |= {"changed_at": int(words.get("changed_at") or words["created_at"])}
    nullable = ("handle", "source", "disk_bytes", "memory_bytes", "cpu_cores")
    values |= {name: json.loads(words.get(name) or "null") for name in nullable}
    values |= {name: json.loads(words.get(name) or "[]") for name in ("urls", "crashes")}
    values |= {
        "agent_key": words.get("agent_key", ""),
        "sealed_files_key": words.get("files_key", ""),
        "hook_hash": words.get("hook_hash", ""),
        "runtime": words.get("runtime", ""),
        "resumes": bool(words.get("resumes")),
        "gives_way": bool(words.get("gives_way")),
        "warm": words.get("warm", ""),
        "trace": words.get("trace", ""),
    }
    return Sandbox(**values, seen_at=Micros(int(now)), sealer=sealer)


def shortened(detail: str) -> str:
    """A detail with its reason, which stands first, and its last lines: at most MOST_DETAIL characters."""
    half = MOST_DETAIL // 2 - 2
    return detail if len(detail) <= MOST_DETAIL else f"{detail[:half]}\n…\n{detail[-half:]}"


def random_text(length: int) -> str:
    """Random letters and digits, of nearly six bits each."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def key_hash(key: str) -> str:
    """The hash under which a hook key is looked up."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
