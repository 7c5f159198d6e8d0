"""Cold conversations, whose log lies in a compressed object outside Redis until it is needed.

A conversation is cold while its hash has the field `cold`, the name of its object. `freeze` writes the object, `thaw`
restores the log. `store/scripts` thaws before a script that needs the log, and calls the script again. Each freeze uses
a new name, which is registered before the object is written. Orphaned objects are therefore found after any kill, and
an abandoned object is never needed again. A log is split into pieces, which its object names. A single piece is stored
in the object itself.

A thaw stages the log under keys of its own, which expire. Then one short script adopts all of it. After a kill the
conversation is as cold as before, and the next thaw continues with what is staged.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol
from uuid import uuid4

from core.wire import ConversationId, Micros, micros
from settings.limits import ConversationLimits
from store.conversations.lists import name_in_log
from store.errors import UNREADABLE, TemporaryRefusal
from store.keys import ColdKeys, ConversationKeys
from store.link.commands import Redis
from store.listing import Cursor, Listing, ListingFilter
from store.log.frames import (
    FrameUnreadable,
    Frozen,
    Range,
    digest_of,
    head,
    head_name,
    piece_name,
    pieces,
    ranges_in,
    read_head,
)
from store.log.text import as_frame
from store.scripts import IsCold, Scripts

_log = logging.getLogger(__name__)


#: Maximum number of events, members and fields of one round trip, and its bytes.
_EVENTS, _MEMBERS, _FIELDS, _BYTES = 500, 5_000, 1_000, 1024 * 1024

#: ms after which the staged part of a log expires, unless another piece follows.
_ASIDE = 600_000

#: Maximum number of attempts at a thaw whose staged data expire.
_MOST_TRIES = 2

_SECOND = 1_000_000

#: Seconds, as µs: for which a thawed conversation stays in Redis; for which one that is too large stays; timeout of a
#: freeze; before a possibly orphaned object is deleted (long enough to notice that a failover of Redis lost a thaw);
#: between two checks of an object that is needed.
_THAWED, _STAYS, _FREEZING, _LEFT, _LOOK = (seconds * _SECOND for seconds in (3600, 30 * 86400, 1800, 3600, 86400))

#: Maximum number of conversations that one search for resting ones reads.
_SCANNED = 500

#: Number of locks that keep one process from thawing a conversation twice at once.
_LOCKS = 64

_BUSY = (b"running", b"waiting_for_confirmation")

#: Fields of a cold conversation: its object, that object's digest, and the expected content of the object.
_STORED = ["cold", "cold_digest", "incarnation", "revision", "text_chunk"]

_STATE = ["execution_status", "cold", "aside_until", "delivery_id", "imported_at"]


class ObjectMissing(Exception):
    """No object has that name."""


class ObjectsAway(Exception):
    """The place of the objects is unreachable or refuses. The message says why."""


class StillCold(TemporaryRefusal):
    """A cold conversation cannot be thawed now. The request gets 503, and a supervisor retries.

    Its cause names places and addresses, so it is logged, and not shown to clients.
    """

    def __init__(self, conversation_id: ConversationId, why: str) -> None:
        super().__init__(f"The events of the conversation {conversation_id} are in cold storage (COLD_URL): {why}")


class Objects(Protocol):
    """A place for objects: bytes by name. A name has letters, digits and hyphens, and never gets a second content.

    Each call raises ObjectsAway if the place is unreachable.
    """

    def put(self, name: str, content: bytes) -> None:
        """Store an object. Returns after all of it is on stable storage."""

    def get(self, name: str) -> bytes:
        """Return an object. Raises ObjectMissing."""

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""

    def names(self) -> Iterator[str]:
        """Return the names of all objects."""


class Checked(NamedTuple):
    name: str
    is_needed: bool  #: a conversation needs it; otherwise it will be deleted, or its conversation is not in this Redis
    fault: str | None  #: None: it is intact


class _ColdConversation(NamedTuple):
    of: Frozen
    may: set[str] | None  #: allowed parts of its log; None: any
    digest: str | None = None  #: digest of its object; None: unknown


def checks(redis: Redis, objects: Objects) -> Iterator[Checked]:
    """Check every object: first those that cold conversations need, then all others in the place.

    One object, or one piece, is in memory at a time. It only reads, and servers may run meanwhile.

    Raises ObjectsAway, or one of UNAVAILABLE.
    """
    for member, _ in redis.zscan_iter(ColdKeys.objects, count=100):
        if needed := _needing(redis, member.decode()):
            yield from _checked(redis, objects, member.decode(), needed)
    for name in objects.names():
        is_piece = head_name(name)[1] is not None  # checked with its object
        if is_piece or (_needing(redis, name) and redis.zscore(ColdKeys.objects, name) is not None):
            continue
        yield from _checked(redis, objects, name, _needing(redis, name))


def owner(name: str) -> ConversationId:
    return ConversationId(head_name(name)[0].rpartition("-")[0])


def _needing(redis: Redis, name: str) -> _ColdConversation | None:
    """Return the cold conversation whose log is in an object, or None."""
    keys = ConversationKeys(owner(name))
    stored, digest, *state = redis.hmget(keys.root, *_STORED)
    if stored != name.encode():
        return None
    incarnation, revision, last_chunk = ((word or b"").decode() for word in state)
    pairs = (pair.decode() for pair in redis.smembers(keys.pairs))
    return _ColdConversation(
        Frozen(name, keys.id, incarnation, revision),
        ColdKeys.moved(int(last_chunk), pairs),
        digest.decode() if digest else None,
    )


def _checked(redis: Redis, objects: Objects, name: str, needed: _ColdConversation | None) -> Iterator[Checked]:
    """Check an object with its pieces. Yields nothing if it is gone or orphaned at the end of the check."""
    try:
        content = objects.get(name)
        of, may, kept = needed or _as_it_says(name, content)
        digests, inner = read_head(of, content, kept)
        for number, digest in enumerate(digests):
            _check_piece(objects, piece_name(name, number), digest, may, inner)
    except ObjectMissing as missing:
        if needed and _needing(redis, name):
            yield Checked(name, True, f"the object {missing} is missing")
    except FrameUnreadable as error:
        if not needed or _needing(redis, name):
            yield Checked(name, needed is not None, str(error))
    else:
        yield Checked(name, needed is not None, None)


def _check_piece(objects: Objects, name: str, digest: str, may: set[str] | None, inner: bytes) -> None:
    """Raise FrameUnreadable or ObjectMissing for a bad piece. inner: the piece, if the log's object contains it."""
    try:
        ranges_in(inner or objects.get(name), digest, may)
    except FrameUnreadable as error:
        raise FrameUnreadable(f"its piece {name}: {error}") from None


def _as_it_says(name: str, content: bytes) -> _ColdConversation:
    """Return the claims of an orphaned object about its log. Raises FrameUnreadable."""
    try:
        fields, _ = json.JSONDecoder().raw_decode(content.partition(b"\n")[0].decode("utf-8", "replace"))
        return _ColdConversation(Frozen(name, owner(name), fields["incarnation"], fields["revision"]), None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrameUnreadable(f"it is damaged: {error}") from None


class ConversationChanged(Exception):
    """The conversation was deleted or replaced, or its log has returned, during a freeze or a thaw."""


class Pieces:
    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def put(self, of: Frozen, parts: Sequence[str], keep: Callable[[str, bytes], None]) -> bytes:
        """Write the pieces of a log, unless there is only one, and return the content of its object.

        parts: of the log. keep: called with the name and the content of each piece. Raises Changed.
        """
        root, digests, first = ConversationKeys(of.conversation_id).root, list[str](), b""
        for content, digest in pieces(self._ranges(root, of.incarnation, parts)):
            if len(digests) == 1:
                keep(piece_name(of.name, 0), first)
            if digests:
                keep(piece_name(of.name, len(digests)), content)
            first = first or content
            digests.append(digest)
        return head(of, digests, first if len(digests) == 1 else b"")

    def restore(self, cold: _ColdConversation, content: bytes, get: Callable[[str], bytes], aside: int) -> None:
        """Restore a log.

        content: of its object. get: returns a piece by name. aside: µs for which the log is not frozen again. Raises
        Unreadable, Changed if the log has returned already, errors of `get`, or one of UNAVAILABLE.
        """
        of, may, kept = cold
        (digests, inner), root = read_head(of, content, kept), ConversationKeys(of.conversation_id).root
        for _ in range(_MOST_TRIES):
            number = int(self._redis.get(ColdKeys.back(root, of.name)) or 0)
            while number < len(digests):
                name = piece_name(of.name, number)
                ranges = ranges_in(inner or get(name), digests[number], may)
                words = list[str | bytes]()
                for part, some in ranges:
                    words += [part, str(len(some)), *some]
                done = self._scripts.thaw_piece(root, name=of.name, piece=number, span=_ASIDE, ranges=words)
                if done is None:
                    raise ConversationChanged
                if done < number:
                    break  # the staged pieces have expired
                number = done  # may skip pieces that another process has staged
            else:
                match self._scripts.adopt_thaw(root, name=of.name, span=aside, pieces=len(digests)):
                    case "adopted":
                        return
                    case "torn":
                        raise FrameUnreadable("it has not as many events as the log")
                    case None:
                        raise ConversationChanged
        raise ConversationChanged

    def _ranges(self, root: str, incarnation: str, parts: Sequence[str]) -> Iterator[Range]:
        """Yield all of a log in ranges of limited size.

        Ids that are not packed come before packed ids: packing moves ids from one key to the other, and an id that
        moves meanwhile is found in at least one of them.
        """
        packed, _ = ColdKeys.ids
        for part in sorted(parts, key=lambda part: part == packed):
            match self._redis.type(key := root + part):
                case b"list":
                    found = self._events(root, incarnation)
                case b"hash":
                    found = self._fields(key)
                case b"zset":
                    found = self._members(key)
                case b"string":
                    found = self._bytes(key)
                case _:  # the conversation lacks this key
                    continue
            yield from ((part, words) for words in found if words)

    def _events(self, root: str, incarnation: str) -> Iterator[list[bytes]]:
        seq, last = 0, 1
        while seq < last:
            try:
                reply = self._scripts.read_log(root, seq=seq, most=_EVENTS, most_bytes=_BYTES)
            except IsCold:  # another process was faster
                raise ConversationChanged from None
            if reply is None or reply.incarnation != incarnation or (seq < reply.last and not reply.events):
                raise ConversationChanged
            last = reply.last
            seq += len(reply.events)
            yield reply.events

    def _members(self, key: str) -> Iterator[list[bytes]]:
        rank = 0
        while found := self._redis.zrange(key, rank, rank + _MEMBERS - 1, withscores=True):
            yield [word for member, score in found for word in (repr(score).encode(), member)]
            rank += len(found)

    def _fields(self, key: str) -> Iterator[list[bytes]]:
        cursor = -1
        while cursor:
            cursor, found = self._redis.hscan(key, max(cursor, 0), count=_FIELDS)
            yield [word for pair in found.items() for word in pair]

    def _bytes(self, key: str) -> Iterator[list[bytes]]:
        at, found = 0, b"-"
        while found:
            found = self._redis.getrange(key, at, at + _BYTES - 1)
            at += len(found)
            yield [found] if found else []


class Cold:
    """Freezes and thaws conversations, and finds orphaned objects."""

    def __init__(
        self, redis: Redis, scripts: Scripts, listing: Listing, bounds: ConversationLimits, objects: Objects | None
    ) -> None:
        """objects: their place; None: freeze and thaw nothing. scripts: without automatic thaw."""
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._most_bytes = bounds.cold_max_bytes
        self._pieces = Pieces(redis, scripts)
        self.objects = objects
        self._start: Cursor | None = None
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def resting(self, before: Micros, limit: int) -> list[ConversationId]:
        """Return the next conversations that may be frozen: unchanged since a time, neither cold nor excluded.

        Each call continues after the last one, and starts over after the last conversation. It scans _SCANNED
        conversations, so fewer results than `limit` do not mean that no others are left. Three round trips.
        """
        entries, self._start = self._listing.page(
            ListingFilter(updated_until=before), by="updated", descending=False, limit=_SCANNED, start=self._start
        )
        with self._redis.pipeline(transaction=False) as pipe:
            for entry in entries:
                pipe.hmget(ConversationKeys(entry.id).root, _STATE)
            states = pipe.execute() if entries else []
        found, (seconds, micro) = list[ConversationId](), self._redis.time()
        for entry, state in zip(entries, states, strict=True):
            try:
                if not _rests(state, before, at=seconds * _SECOND + micro):
                    continue
            except UNREADABLE as error:
                name_in_log(entry.id, error)
                continue
            if len(found) == limit:
                self._start = (entry.at, entry.id)
                break
            found.append(entry.id)
        return found

    def freeze(self, conversation_id: ConversationId) -> bool:
        """Move the log of a conversation into an object; True on success. Raises ObjectsAway, or one of UNAVAILABLE.

        False if the conversation is cold, is busy, is too large, has changed meanwhile, or does not exist. A change
        raises the revision, which is compared before anything is deleted.
        """
        root = ConversationKeys(conversation_id).root
        plan = self._scripts.plan_freeze(root) if self.objects else None
        if self.objects is None or plan is None:
            return False
        began, incarnation, revision, size, chunks, parts = plan
        if self._is_too_large(conversation_id, size):
            return False
        name = f"{conversation_id}-{uuid4().hex}"
        of, texts, is_cold = Frozen(name, conversation_id, incarnation, revision), parts[-chunks:], False
        try:
            content = self._pieces.put(of, parts, self._put)
            self._put_frames(root, name, texts)
            if self._redis.hmget(root, "incarnation", "revision", "cold") == [*map(str.encode, of[2:]), None]:
                self._put(name, content)
                is_cold = self._scripts.freeze_log(
                    root,
                    name=name,
                    digest=digest_of(content),
                    incarnation=incarnation,
                    revision=revision,
                    latest=began + _FREEZING,
                )
        except ConversationChanged:
            pass
        finally:
            if not is_cold:
                self._redis.unlink(*(ColdKeys.frame(root, name, text) for text in texts))
        self._note(_LOOK if is_cold else 0, [name])
        return is_cold

    def thaw(self, conversation_id: ConversationId) -> None:
        """Restore the log of a conversation, if it is cold. Raises StillCold, or one of UNAVAILABLE."""
        root = ConversationKeys(conversation_id).root
        with self._locks[hash(conversation_id) % _LOCKS]:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.hmget(root, *_STORED)
                pipe.smembers(ConversationKeys(conversation_id).pairs)
                (stored, digest, *state), pairs = pipe.execute()
            if stored is None:
                return
            name, incarnation, revision, last_chunk = (word.decode() for word in (stored, *state))
            may = ColdKeys.moved(int(last_chunk), (pair.decode() for pair in pairs))
            of = Frozen(name, conversation_id, incarnation, revision)
            with self._readable(of) as objects, suppress(ConversationChanged):
                cold = _ColdConversation(of, may, digest and digest.decode())
                self._pieces.restore(cold, objects.get(name), objects.get, _THAWED)
            self._note(_LEFT, [name])

    def thaw_below(self, root: str) -> None:
        """Thaw the conversation with this root of its keys."""
        self.thaw(ConversationId(root.partition("{")[2].partition("}")[0]))

    def set_aside(self, conversation_id: ConversationId) -> None:
        """Exclude a conversation from freezing for an hour, after an error. Raises one of UNAVAILABLE."""
        self._scripts.set_aside(ConversationKeys(conversation_id).root, span=_THAWED)

    def unneeded(self, limit: int) -> list[str]:
        """Return the names of orphaned objects: delete each, then `forget` it. At most three round trips.

        An object is returned an hour after its thaw, and about a day after its conversation's deletion. Its pieces come
        before it, so that the register has the object as long as a piece is left. limit: of objects, without their
        pieces.
        """
        pieces = {one.name: one.pieces for one in self._scripts.due_objects(ColdKeys.root, most=limit)}
        names = list(pieces)
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hget(ConversationKeys(owner(name)).root, "cold")
            held = pipe.execute() if names else []
        needed = [name for name, cold in zip(names, held, strict=True) if cold == name.encode()]
        self._note(_LOOK, needed)
        return [
            one
            for name in names
            if name not in needed
            for one in (*(piece_name(name, number) for number in reversed(range(pieces[name]))), name)
        ]

    def forget(self, names: Sequence[str]) -> None:
        """Remove deleted objects from the register. One round trip."""
        if names:
            self._scripts.forget_objects(ColdKeys.root, names=names)

    def postpone(self, names: Sequence[str]) -> None:
        """Retry in an hour to delete objects. One round trip."""
        self._note(_LEFT, names)

    def checks(self) -> Iterator[Checked]:
        """Check every object in cold storage. Raises ObjectsAway, or one of UNAVAILABLE."""
        return checks(self._redis, self.objects) if self.objects else iter(())

    def fault(self) -> str | None:
        """Describe a fault of the settings, or return None. Raises one of UNAVAILABLE.

        One round trip without cold storage.
        """
        number = 0 if self.objects else self._redis.zcard(ColdKeys.objects)
        if not number:
            return None
        return f"The events of up to {number} conversations are in cold storage, and COLD_URL is not set."

    def enter(self, names: Sequence[str]) -> int:
        """Register objects that the register may lack. Each is deleted in an hour unless its conversation needs it.

        Returns the number of objects whose conversation is not in this Redis. They are left alone: a Redis that lost
        its data, or another Redis, may need them. At most two round trips.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hexists(ConversationKeys(owner(name)).root, "incarnation")
            known = pipe.execute() if names else []
        ours = [name for name, is_known in zip(names, known, strict=True) if is_known]
        if ours:
            self._scripts.note_objects(ColdKeys.root, span=_LEFT, only_new=True, names=ours)
        return len(names) - len(ours)

    def claim(self, task: str, seconds: float) -> bool:
        """Return whether this supervisor does a task now, and nobody else for some seconds. At most two round trips."""
        key, span = ColdKeys.turn(task), round(seconds * 1000)
        if self._redis.set(key, 1, nx=True, px=span):
            return True
        if self._redis.pttl(key) > span:  # Redis expires keys by the time of day: its clock has stepped back
            self._redis.pexpire(key, span)
        return False

    def _put(self, name: str, content: bytes) -> None:
        """Register an object, then store it. Raises ObjectsAway."""
        if self.objects is None:
            raise ObjectsAway("COLD_URL is not set")
        self._note(_LEFT, [name])
        self.objects.put(name, content)

    def _put_frames(self, root: str, name: str, texts: Sequence[str]) -> None:
        """Stage each text chunk as a frame. `freeze_log` adopts the frames, and leftovers expire."""
        for text in texts:
            if chunk := self._redis.get(root + text):
                self._redis.set(ColdKeys.frame(root, name, text), as_frame(chunk), px=_FREEZING // 1000)

    def _note(self, span: int, names: Sequence[str]) -> None:
        """Schedule objects for a check after some µs. One round trip."""
        if names:
            self._scripts.note_objects(ColdKeys.root, span=span, only_new=False, names=names)

    def _is_too_large(self, conversation_id: ConversationId, size: int) -> bool:
        """Return whether a log is larger in Redis than COLD_MAX_BYTES, and exclude it for a month."""
        if size <= self._most_bytes:
            return False
        _log.warning(
            "the conversation %s stays in Redis: its log has %d bytes there, and may have %d (COLD_MAX_BYTES)",
            *(conversation_id, size, self._most_bytes),
        )
        self._scripts.set_aside(ConversationKeys(conversation_id).root, span=_STAYS)
        return True

    @contextmanager
    def _readable(self, of: Frozen) -> Iterator[Objects]:
        """Yield the place of an object. Turns errors of the place and the object into StillCold."""
        if self.objects is None:
            raise StillCold(of.conversation_id, "COLD_URL is not set")
        try:
            yield self.objects
        except ObjectMissing as missing:
            raise StillCold(of.conversation_id, f"its object {missing} is missing") from None
        except ObjectsAway as error:
            raise StillCold(of.conversation_id, "the place of its object cannot be reached, or refuses") from error
        except FrameUnreadable as error:
            raise StillCold(of.conversation_id, f"its object {of.name} cannot be used") from error


def _rests(state: Sequence[bytes | None], before: Micros, *, at: int) -> bool:
    """Return whether a conversation may be frozen, which has not changed since a time.

    The idle time of an import begins with the import, as it keeps its own times. at: now, by Redis' clock, which also
    measures how long it is excluded: at most _STAYS.
    """
    status, cold, aside_until, delivery, imported_at = state
    return (
        status is not None
        and status not in _BUSY
        and cold is None
        and delivery is None
        and not 0 < int(aside_until or 0) - at <= _STAYS
        and (imported_at is None or micros(imported_at.decode()) < before)
    )
