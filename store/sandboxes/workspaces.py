"""Workspace sandboxes: what a key's calls reach before it has a conversation. Source: docs/wire.md, 13.

A client of the published SDK may run a command or upload a file before it begins its conversation. Such a call starts
the one workspace sandbox of its key, and the key's next conversation of the same spec adopts it, with its files. One
that nobody has used for `Limits.workspace_seconds` is deleted with them. It is never warm, nor another key's.
"""

from typing import Any

from redis import Redis

from core.bounds import Limits
from store.keys import SandboxKeys
from store.link.attempts import minted_text
from store.sandboxes.sandboxes import SandboxId
from store.scripts import Scripts


class Workspaces:
    """At most one of each key. Each method takes one round trip, `known` two."""

    def __init__(self, redis: "Redis", scripts: Scripts, limits: Limits) -> None:
        self._redis = redis
        self._scripts = scripts
        self._limits = limits

    def named(self, owner: str) -> SandboxId | None:
        """The id of a key's workspace sandbox, which the caller has to start, once per id; None: no host lives.

        Where that start is refused, the key's next call gets the same id, and starts it.
        """
        args = [owner, minted_text("workspace"), self._limits.spans[0]]
        named = self._scripts.name_workspace([SandboxKeys.root], args)
        return SandboxId(named.decode()) if named else None

    def known(self, owner: str) -> SandboxId | None:
        """The id of a key's workspace sandbox, which no conversation has adopted; None: it has none."""
        named: Any = self._redis.hget(SandboxKeys.workspaces, owner)
        known = SandboxId(named.decode()) if named else None
        return known if known and self._redis.exists(SandboxKeys.box(known)) else None

    def adopt(self, owner: str, spec_id: str, start_id: str, *, gives_way: bool) -> SandboxId | None:
        """Bind a key's workspace sandbox of a spec to a start task, which gets it again; None: there is none."""
        args = [owner, spec_id, start_id, "1" if gives_way else ""]
        adopted = self._scripts.adopt_workspace([SandboxKeys.root], args)
        return SandboxId(adopted.decode()) if adopted else None

    def give_back(self, sandbox_id: SandboxId, start_id: str) -> bool:
        """Give one back to its key after a start task that has adopted it has failed; False of any other sandbox.

        True also where a later start of the key has it by now: that one's end decides.
        """
        return bool(self._scripts.return_workspace([SandboxKeys.root], [sandbox_id, start_id]))

    def expire(self) -> None:
        """Have those deleted that nobody has used for so long."""
        self._scripts.expire_workspaces([SandboxKeys.root], [round(self._limits.workspace_seconds * 1e6)])
