"""Cold conversations: those whose log lies in one compressed object outside Redis, until something needs it.

A conversation is cold while its hash has the field `cold`, the name of its object. `freeze` puts the object there,
`thaw` brings the log back; `store/scripts` thaws before a script that needs the log, and calls the script again. Each
freezing has an object of its own name, which is registered before it is put: an object that nobody needs is found,
whatever was killed, and none that was given up is ever needed again.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol
from uuid import uuid4

from redis import Redis
from redis.exceptions import ResponseError

from store.bounds import Bounds
from store.cold_keys import ColdKeys
from store.errors import UNAVAILABLE, TemporaryRefusal
from store.keys import ConversationKeys
from store.listing import Cursor, Filter, Listing
from store.log.frozen import Unreadable, frozen, thawed
from store.log.text import as_frame
from store.scripts import Scripts
from wire import ConversationId, Micros, micros, now

_SECOND = 1_000_000

#: seconds for which one that was thawed stays warm, one that is too large stays, a freezing may take, an object that
#: may be unneeded is left (also so that a failover of Redis which forgets a thaw finds it), and between two looks at an
#: object that is needed
_WARM, _STAYS, _FREEZING, _LEFT, _LOOK = (seconds * _SECOND for seconds in (3600, 30 * 86400, 1800, 3600, 86400))

#: conversations that one search for resting ones looks at
_SCANNED = 500

#: locks of thaws: one at a time of a conversation in a process
_LOCKS = 64

_BUSY = (b"running", b"waiting_for_confirmation")

_log = logging.getLogger(__name__)


class ObjectsAway(Exception):
    """The place of the objects cannot be reached, or refuses; the message says what is wrong with it."""


class ObjectMissing(Exception):
    """There is no object of that name."""


class StillCold(TemporaryRefusal):
    """A cold conversation cannot be brought back now. The request gets 503, and a supervisor retries.

    Its cause names places and addresses: it is for the log, and not for clients.
    """

    def __init__(self, conversation_id: ConversationId, why: str) -> None:
        super().__init__(f"The events of the conversation {conversation_id} are in the archive (ARCHIVE_URL): {why}")


class Objects(Protocol):
    """A place for objects: bytes by name. A name has letters, digits and hyphens, and is used for one content.

    Each call raises ObjectsAway when the place cannot be reached.
    """

    def put(self, name: str, content: bytes) -> None:
        """Keep an object; when it returns, the whole object is on stable storage."""

    def get(self, name: str) -> bytes:
        """An object. Raises ObjectMissing."""

    def delete(self, name: str) -> None:
        """Delete an object; of a missing one it does nothing."""

    def names(self) -> Iterator[str]:
        """The names of all objects."""


class Cold:
    """Freezes conversations, thaws them, and knows the objects that nobody needs."""

    def __init__(
        self, redis: "Redis", scripts: Scripts, listing: Listing, bounds: Bounds, objects: Objects | None
    ) -> None:
        """objects: where they lie; None: nothing is frozen, and what is cold stays so."""
        self._redis: Any = redis  # returns bytes; redis-py's annotations do not say so
        self._scripts = scripts
        self._listing = listing
        self._most_bytes = bounds.archive_bytes
        self.objects = objects
        self._start: Cursor | None = None
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        scripts.on_cold = lambda root: self.thaw(_id_of(root))

    def resting(self, before: Micros, limit: int) -> list[ConversationId]:
        """The next conversations that may be frozen: unchanged since a time, neither cold nor warm.

        Each call goes on where the last one ended, and after the last conversation begins again. It scans _SCANNED
        conversations: fewer than `limit`, or none, does not mean that no others are left. Two round trips.
        """
        entries, self._start = self._listing.page(
            Filter(updated_until=before), by="updated", descending=False, limit=_SCANNED, start=self._start
        )
        with self._redis.pipeline(transaction=False) as pipe:
            for entry in entries:
                pipe.hmget(ConversationKeys(entry.id).root, _STATE)
            states: list[Any] = pipe.execute() if entries else []
        found: list[ConversationId] = []
        for entry, state in zip(entries, states, strict=True):
            if not _rests(state, before):
                continue
            if len(found) == limit:
                self._start = (entry.at, entry.id)
                break
            found.append(entry.id)
        return found

    def freeze(self, conversation_id: ConversationId) -> bool:
        """Move the log of a conversation into an object. False if the conversation is cold, does not rest, is too
        large, has changed meanwhile, or does not exist. Raises ObjectsAway, or one of UNAVAILABLE.
        """
        root = ConversationKeys(conversation_id).root
        plan = self._scripts.plan_freeze([root], []) if self.objects else None
        if self.objects is None or plan is None:
            return False
        began, incarnation, revision, size, chunks, *parts = (word.decode() for word in plan)
        if self._is_too_large(conversation_id, int(size)):
            return False
        texts = parts[-int(chunks) :]
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(root, "incarnation", "revision", "cold")
            for part in texts:
                pipe.get(root + part)
            for part in parts:
                pipe.dump(root + part)
            state, *replies = pipe.execute()
        if state != [incarnation.encode(), revision.encode(), None]:
            return False
        frames = [as_frame(chunk or b"") for chunk in replies[: len(texts)]]
        dumps = [(part, dump) for part, dump in zip(parts, replies[len(texts) :], strict=True) if dump is not None]
        name = f"{conversation_id}-{uuid4().hex}"
        content = frozen(name, conversation_id, incarnation, revision, dumps)
        self._note(_LEFT, [name])
        self.objects.put(name, content)
        args = [name, incarnation, revision, int(began) + _FREEZING, *frames]
        is_cold = bool(self._scripts.freeze_log([root], args))
        self._note(_LOOK if is_cold else 0, [name])
        return is_cold

    def thaw(self, conversation_id: ConversationId) -> None:
        """Bring the log of a conversation back, if it is cold. Raises StillCold, or one of UNAVAILABLE."""
        root = ConversationKeys(conversation_id).root
        with self._locks[hash(conversation_id) % _LOCKS]:
            stored = self._redis.hget(root, "cold")
            if stored is None:
                return
            name = stored.decode()
            words = [word for part in self._parts(conversation_id, name) for word in part]
            try:
                self._scripts.thaw_log([root], [name, _WARM, *words])
            except UNAVAILABLE:
                raise
            except ResponseError as error:  # a DUMP of a newer server
                raise StillCold(conversation_id, f"this Redis does not read its object {name}") from error
            self._note(_LEFT, [name])

    def unneeded(self, limit: int) -> list[str]:
        """Names of objects that nobody needs, now or later: delete each, then `forget` it. At most three round trips.

        An object is named an hour after its thaw, and a day or so after its conversation's deletion.
        """
        names = [name.decode() for name in self._scripts.due_objects([ColdKeys.root], [limit])]
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hget(ConversationKeys(_owner(name)).root, "cold")
            held: list[Any] = pipe.execute() if names else []
        needed = [name for name, cold in zip(names, held, strict=True) if cold == name.encode()]
        self._note(_LOOK, needed)
        return [name for name in names if name not in needed]

    def forget(self, names: Sequence[str]) -> None:
        """Take deleted objects out of the register. One round trip."""
        if names:
            self._scripts.forget_objects([ColdKeys.root], list(names))

    def fault(self) -> str | None:
        """What is wrong with the settings, as a sentence. One round trip where no archive is set. Raises one of
        UNAVAILABLE."""
        number = 0 if self.objects else self._redis.zcard(ColdKeys.objects)
        if not number:
            return None
        return f"The events of up to {number} conversations are in an archive, and ARCHIVE_URL is not set."

    def enter(self, names: Sequence[str]) -> int:
        """Enter objects that the register may lack: each is unneeded in an hour unless its conversation needs it.

        Returns how many are of no conversation that is here. They are left alone: a Redis that lost its data, or
        another one, may need them. At most two round trips.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hexists(ConversationKeys(_owner(name)).root, "incarnation")
            known: list[Any] = pipe.execute() if names else []
        ours = [name for name, is_known in zip(names, known, strict=True) if is_known]
        if ours:
            self._scripts.note_objects([ColdKeys.root], [_LEFT, "1", *ours])
        return len(names) - len(ours)

    def claim(self, task: str, seconds: float) -> bool:
        """Whether this supervisor does a task now; no other one does for so many seconds. One round trip."""
        return bool(self._redis.set(ColdKeys.turn(task), 1, nx=True, px=round(seconds * 1000)))

    def _note(self, span: int, names: Sequence[str]) -> None:
        """Have objects be looked at in so many µs. One round trip."""
        if names:
            self._scripts.note_objects([ColdKeys.root], [span, "", *names])

    def _is_too_large(self, conversation_id: ConversationId, size: int) -> bool:
        """Whether a log has more bytes in Redis than an object may have; it is left alone then for a month."""
        if size <= self._most_bytes:
            return False
        _log.warning(
            "the conversation %s stays in Redis: its log has %d bytes there, and may have %d (ARCHIVE_MAX_BYTES)",
            *(conversation_id, size, self._most_bytes),
        )
        self._scripts.keep_warm([ConversationKeys(conversation_id).root], [_STAYS])
        return True

    def _parts(self, conversation_id: ConversationId, name: str) -> list[tuple[str, bytes]]:
        """The parts of a log in an object, each with its DUMP. Raises StillCold."""
        if self.objects is None:
            raise StillCold(conversation_id, "ARCHIVE_URL is not set")
        try:
            return thawed(name, self.objects.get(name))
        except ObjectMissing:
            raise StillCold(conversation_id, f"its object {name} is missing") from None
        except ObjectsAway as error:
            raise StillCold(conversation_id, "the place of its object cannot be reached, or refuses") from error
        except Unreadable as error:
            raise StillCold(conversation_id, f"its object {name} cannot be used") from error


_STATE = ["execution_status", "cold", "warm_until", "delivery_id", "imported_at"]


def _rests(state: Sequence[bytes | None], before: Micros) -> bool:
    """Whether a conversation that was not changed since may be frozen. An import keeps its times: it begins to rest
    with the import."""
    status, cold, warm_until, delivery, imported_at = state
    return (
        status is not None
        and status not in _BUSY
        and cold is None
        and delivery is None
        and int(warm_until or 0) <= now()
        and (imported_at is None or micros(imported_at.decode()) < before)
    )


def _id_of(root: str) -> ConversationId:
    return ConversationId(root.partition("{")[2].partition("}")[0])


def _owner(name: str) -> ConversationId:
    """The conversation of an object."""
    return ConversationId(name.rpartition("-")[0])
