"""The secrets that are masked in a conversation: those of itself, its start, its sandbox and its neighbours there.

The conversations of a sandbox share files and processes, so one may print another's secrets. An agent of a fork has the
secrets of its source.

A worker caches the masks of the conversations that it appends to, with their versions. `append_events.lua` compares the
version of the caller's mask with that of the conversation, and writes nothing if they differ. No event is thus stored
without masking a secret that another worker has added. When a conversation gets secrets, the others of its sandbox get
a new version before the agent gets the secrets. A conversation without secrets and without a sandbox has the version
"", which needs no read. The mask of a sandbox belongs to one start of its processes, which its hook key identifies.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import NamedTuple

from core.masking import NOTHING, Mask, credentials_in
from core.wire import ConversationId
from store.errors import KeyUnreadable, SecretsRefused
from store.keys import ConversationKeys
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.sandboxes.sandboxes import Places, Sandbox, Sandboxes, SandboxId

_log = logging.getLogger("request_log")

#: Maximum number of characters in all masks of a process, and of masks. The least recently used are dropped.
_MOST_CHARACTERS, _MOST_MASKS = 16 * 1024 * 1024, 1000


class VersionedMask(NamedTuple):
    """A mask, and the version of its secrets."""

    version: str
    mask: Mask


_NONE = VersionedMask("", NOTHING)


class Masks:
    """The masks that this process uses. Thread-safe."""

    def __init__(self, redis: Redis, sealer: Sealer, sandboxes: Sandboxes, places: Places) -> None:
        self._redis = redis
        self._sealer = sealer
        self._sandboxes = sandboxes
        self._places = places
        self._lock = Lock()
        self._known = OrderedDict[str, VersionedMask]()

    def of_conversation(self, conversation_id: ConversationId) -> VersionedMask:
        """Return the cached mask of a conversation; the mask without secrets if it has not been read."""
        return self._find(conversation_id) or _NONE

    def read(self, conversation_id: ConversationId) -> VersionedMask:
        """Read the secrets of a conversation and of the others in its sandbox.

        Secrets that were sealed with another SECRET_KEY are not masked. Two round trips, in a sandbox three.
        """
        version, sandbox_id = self._version(ConversationKeys(conversation_id))
        present, _ = self._places.known(SandboxId(sandbox_id)) if sandbox_id else (set[str](), ())
        secrets = self._secrets_of(present | {conversation_id})  # after the version: newer secrets do no harm
        return self._keep(conversation_id, version, [text for texts in secrets.values() for text in texts()])

    def in_sandbox(self, sandbox_id: SandboxId) -> Mask:
        """Return the mask for other outputs of a sandbox: secrets of its processes, and of all conversations in it.

        Three round trips.
        """
        present, _ = self._places.known(sandbox_id)
        [sandbox] = self._sandboxes.get_many([sandbox_id])
        secrets = self._secrets_of(present)
        if sandbox is None and not secrets:
            return NOTHING
        words = [sandbox.hook_hash.encode()] if sandbox else []
        words += [one for sealed in secrets for one in sealed]
        version, owner = sha256(b" ".join(sorted(words))).hexdigest(), f"all in {sandbox_id}"
        known = self._find(owner)
        if known and known.version == version:
            return known.mask
        texts = [text for texts in secrets.values() for text in texts()]
        return self._keep(owner, version, texts + (self._hidden(sandbox) if sandbox else [])).mask

    def _secrets_of(self, conversation_ids: Iterable[str]) -> dict[tuple[bytes, ...], Callable[[], list[str]]]:
        """Return functions that open the secrets of conversations, by the sealed values. One round trip."""
        ids = sorted(conversation_ids)
        with self._redis.pipeline(transaction=False) as pipe:
            for one in ids:
                keys = ConversationKeys(ConversationId(one))
                pipe.hgetall(keys.secrets)
                pipe.get(keys.start)
            replies = pipe.execute() if ids else []
        found = zip(ids, *[iter(replies)] * 2, strict=True)
        return {
            (*sealed.values(), body or b""): partial(self._opened, ConversationId(one), sealed, body)
            for one, sealed, body in found
            if sealed or body
        }

    def _opened(self, conversation_id: ConversationId, sealed: dict[bytes, bytes], body: bytes | None) -> list[str]:
        texts = list[str]()
        try:
            opened = self._sealer.open(conversation_id, {name.decode(): value for name, value in sealed.items()})
            texts += secret_texts(opened)
            texts += credentials_in(self._sealer.open_body(conversation_id, body) if body else None)
        except SecretsRefused as refusal:
            _log.warning("conversation %s: its secrets are not masked: %s", conversation_id, refusal)
        return texts

    def of_sandbox(self, sandbox_id: str, hook_hash: str = "") -> Mask:
        """Return the mask of a sandbox: the secrets in the environment of its processes.

        hook_hash: of the hook key in the request; the mask of that start is read once. Without, one round trip.
        """
        known = self._find(sandbox_id)
        if known and hook_hash and known.version == hook_hash:
            return known.mask
        [sandbox] = self._sandboxes.get_many([SandboxId(sandbox_id)])
        if sandbox is None:
            return known.mask if known else NOTHING
        if known and known.version == sandbox.hook_hash:
            return known.mask
        return self._keep(sandbox_id, sandbox.hook_hash, self._hidden(sandbox)).mask

    def _hidden(self, sandbox: Sandbox) -> list[str]:
        try:
            return sandbox.hidden
        except KeyUnreadable as refusal:
            _log.warning("sandbox %s: its secrets are not masked: %s", sandbox.id, refusal)
            return []

    def _version(self, keys: ConversationKeys) -> tuple[str, str]:
        """Return the version as defined in `_masked.lua`, and the sandbox; "" if detached."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.root, "secrets_version", "incarnation", "sandbox_id")
            pipe.exists(keys.secrets, keys.start)
            (version, incarnation, sandbox_id), are_there = pipe.execute()
        return (version or (incarnation if are_there else b"") or b"").decode(), (sandbox_id or b"").decode()

    def _find(self, owner: str) -> VersionedMask | None:
        with self._lock:
            if owner in self._known:
                self._known.move_to_end(owner)
            return self._known.get(owner)

    def _keep(self, owner: str, version: str, texts: list[str]) -> VersionedMask:
        known = VersionedMask(version, Mask(texts))
        with self._lock:
            self._known[owner] = known
            self._known.move_to_end(owner)
            while len(self._known) > 1 and (
                len(self._known) > _MOST_MASKS or sum(one.mask.size for one in self._known.values()) > _MOST_CHARACTERS
            ):
                self._known.popitem(last=False)
        return known


def secret_texts(secrets: Mapping[str, object]) -> Iterator[str]:
    """Yield the values of secrets as clients set them: texts, and members `value` and headers of objects.

    Values that an agent looks up itself (`LookupSecret`) are unknown here.
    """
    for secret in secrets.values():
        if isinstance(secret, str):
            yield secret
        elif isinstance(secret, dict):
            value = secret.get("value")
            yield from [value] if isinstance(value, str) else ()
            yield from credentials_in({name: of for name, of in secret.items() if name != "value"})
