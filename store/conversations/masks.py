"""What is masked in the events of a conversation: its secrets, those of its start, and those of its sandbox.

A worker keeps the masks of the conversations that it appends to, for their present versions. `append_events.lua`
compares the version that the caller has masked by with that of the conversation, and writes nothing where they differ:
so no event is stored that another worker's secret should have been masked in. A conversation without secrets has the
version "", which needs no read. The mask of a sandbox is that of one start of its processes, which its hook key names.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, NamedTuple

from redis import Redis

from core.masking import NOTHING, Mask
from core.redaction import credentials_in
from core.wire import ConversationId
from store.errors import KeyUnreadable, SecretsRefused
from store.keys import ConversationKeys
from store.link.secrets import Sealer
from store.sandboxes.sandboxes import Sandboxes, SandboxId
from store.sandboxes.start_tasks import StartBodies

_log = logging.getLogger("request_log")

#: most characters of what one process looks for, in all conversations; and most masks. The least used go first
_MOST_CHARACTERS, _MOST_MASKS = 16 * 1024 * 1024, 1000


class Known(NamedTuple):
    """A mask, and the version of what it masks."""

    version: str
    mask: Mask


_NONE = Known("", NOTHING)


class Masks:
    """The masks that this process needs at present. Any thread may use it."""

    def __init__(self, redis: "Redis", sealer: Sealer, bodies: StartBodies, sandboxes: Sandboxes) -> None:
        self._redis = redis
        self._sealer = sealer
        self._bodies = bodies
        self._sandboxes = sandboxes
        self._lock = Lock()
        self._known = OrderedDict[str, Known]()

    def of_conversation(self, conversation_id: ConversationId) -> Known:
        """The mask of a conversation as it was read last; where it was not, that of one without secrets."""
        return self._find(conversation_id) or _NONE

    def read(self, conversation_id: ConversationId) -> Known:
        """Read the secrets of a conversation. Three round trips. Secrets of another SECRET_KEY are not masked."""
        keys, texts = ConversationKeys(conversation_id), list[str]()
        version = self._version(keys)  # first: secrets that are newer than it do no harm
        try:
            sealed: Any = self._redis.hgetall(keys.secrets)
            opened = self._sealer.open(conversation_id, {name.decode(): value for name, value in sealed.items()})
            texts += secret_texts(opened)
            texts += credentials_in(self._bodies.of(conversation_id))
        except SecretsRefused as refusal:
            _log.warning("conversation %s: its secrets are not masked in its events: %s", conversation_id, refusal)
        return self._keep(conversation_id, version, texts)

    def of_sandbox(self, sandbox_id: str, hook_hash: str = "") -> Mask:
        """The mask of a sandbox: what its processes have secretly in their environment.

        hook_hash: that of the hook key which was just shown; the mask of that start is read once. Without, one round
        trip.
        """
        known = self._find(sandbox_id)
        if known and hook_hash and known.version == hook_hash:
            return known.mask
        [sandbox] = self._sandboxes.get_many([SandboxId(sandbox_id)])
        if sandbox is None:
            return known.mask if known else NOTHING
        if known and known.version == sandbox.hook_hash:
            return known.mask
        try:
            texts = sandbox.hidden
        except KeyUnreadable as refusal:
            _log.warning("sandbox %s: its secrets are not masked in events: %s", sandbox_id, refusal)
            texts = []
        return self._keep(sandbox_id, sandbox.hook_hash, texts).mask

    def _version(self, keys: ConversationKeys) -> str:
        """As `_masked.lua` has it."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.root, "secrets_version", "incarnation")
            pipe.exists(keys.secrets, keys.start)
            (version, incarnation), are_there = pipe.execute()
        return (version or (incarnation if are_there else b"") or b"").decode()

    def _find(self, owner: str) -> Known | None:
        with self._lock:
            if owner in self._known:
                self._known.move_to_end(owner)
            return self._known.get(owner)

    def _keep(self, owner: str, version: str, texts: list[str]) -> Known:
        known = Known(version, Mask(texts))
        with self._lock:
            self._known[owner] = known
            self._known.move_to_end(owner)
            while len(self._known) > 1 and (
                len(self._known) > _MOST_MASKS or sum(one.mask.size for one in self._known.values()) > _MOST_CHARACTERS
            ):
                self._known.popitem(last=False)
        return known


def secret_texts(secrets: Mapping[str, Any]) -> Iterator[str]:
    """The values of secrets as clients set them: texts, and what objects have as `value` or in headers.

    What an agent looks up by itself (`LookupSecret`) is not known here.
    """
    for secret in secrets.values():
        if isinstance(secret, str):
            yield secret
        elif isinstance(secret, dict):
            value = secret.get("value")
            yield from [value] if isinstance(value, str) else ()
            yield from credentials_in({name: of for name, of in secret.items() if name != "value"})
