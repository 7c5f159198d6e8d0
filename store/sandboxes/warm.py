"""Warm sandboxes: a spec with `warm = N` keeps N of them, which run before anybody needs them.

A warm sandbox is a sandbox as any other, without a conversation: it counts for MAX_SANDBOXES, and its processes have no
secret but its own keys, which nobody is shown. The first use binds it for good: the claim of a start task, a
conversation that is started in it, a pause, a resume. Until then its end loses nothing, so one that is too old, too
many, failed or in the way of a start is deleted, and its pool is filled again. Fields and keys: `store/keys.py`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from redis import Redis

from core.bounds import Limits
from store.keys import SandboxKeys, claimed_key
from store.link.attempts import minted_text
from store.link.secrets import Sealer
from store.sandboxes.sandboxes import SandboxId, random_text
from store.scripts import Scripts


class Pool(NamedTuple):
    """What a spec keeps warm. most: sandboxes of all hosts together."""

    spec_id: str
    version: str
    most: int


class WarmSandboxes:
    """The pools of all specs. Each method takes one round trip; what a script decides is decided for all hosts."""

    def __init__(self, redis: "Redis", scripts: Scripts, limits: Limits, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._limits = limits
        self._sealer = sealer

    def declare(self, pools: Iterable[Pool]) -> None:
        """Say what is kept warm from now on, whatever was said before; the warm sandboxes of other specs end."""
        words = [word for pool in pools if pool.most for word in pool]
        self._scripts.declare_warm_pools([SandboxKeys.root], words)

    def fill(self, pool: Pool) -> str:
        """Start one warm sandbox where one is missing, and end those of other versions.

        Returns "added"; "full"; "waits" for a backoff, for room or for a host; "other": another version was declared
        since; "undeclared". Raises SecretsRefused.
        """
        identity = SandboxId(minted_text("sandbox"))
        files_key = self._sealer.seal_key(identity, random_text(43))
        args = [pool.spec_id, pool.version, identity, files_key, self._limits.most]
        [outcome] = self._scripts.fill_warm_pool([SandboxKeys.root], args) or ("undeclared",)
        return str(outcome)

    def claim(self, pool: Pool, start_id: str, *, gives_way: bool = False, owner: str = "") -> SandboxId | None:
        """Bind a warm sandbox that is RUNNING to a start task, which gets the same one again; None: there is none.

        gives_way: see `agents/waking.py`. owner: id of the key that starts the conversation.
        """
        args = [pool.spec_id, pool.version, start_id, self._limits.spans[0], "1" if gives_way else "", owner]
        claimed = self._scripts.claim_warm_sandbox([SandboxKeys.root], args)
        return SandboxId(claimed.decode()) if claimed else None

    def claimed_by(self, start_id: str) -> SandboxId | None:
        """The sandbox that a start task has claimed in the last hour; it may be gone."""
        stored: Any = self._redis.get(claimed_key(start_id))
        return SandboxId(stored.decode()) if stored else None

    def discard(self, sandbox_id: SandboxId, *, failed: bool = False) -> bool:
        """Have a warm sandbox deleted by its supervisor; False if it is bound by now, or gone.

        failed: its processes failed, so its pool starts no other one for a while.
        """
        return bool(self._scripts.discard_warm_sandbox([SandboxKeys.root], [sandbox_id, "1" if failed else ""]))
