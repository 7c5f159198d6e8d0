"""Idempotency-Keys: one record per key of a client, with the digest of the request and its response.

Source: docs/wire.md.

A request claims its record before it does anything. The claim has a lease. During the lease a repeat is refused. After
the lease, when the worker was killed, a repeat is a new attempt with the same seed (`attempts.py`). If the lease
expires while the request still runs, no harm is done: both attempts create the same ids.

An end of a claim that Redis does not accept, for instance during a failover, is sent again. Otherwise a repeat would
wait for the lease of a request that ended long ago.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from uuid import UUID, uuid4

from core.refused import RefusalKind
from store.errors import UNAVAILABLE, StoreError
from store.keys import IdempotencyKeys
from store.link.attempts import Attempt
from store.record import HashRecord, pairs
from store.scripts import Scripts
from store.scripts.calls import ClaimIdempotencyKey

_log = logging.getLogger(__name__)

#: Seconds for which a record is kept, and seconds of a claim's lease.
KEPT, LEASE = 86_400, 60.0

#: Maximum size of a stored response, in bytes.
MOST_KEPT_BYTES = 8 * 1024


#: Seconds between two attempts.
_RETRY = 0.5

#: Maximum number of queued ends, each with a response of at most 8 KiB. Beyond it the oldest are dropped, and their
#: leases expire.
MOST_WAITING = 1_000


class IdempotencyKeyBusy(StoreError):
    """An earlier request with this Idempotency-Key is still running."""

    kind = RefusalKind.BUSY
    words = "A request with this Idempotency-Key is in progress: repeat it shortly for its response"


class IdempotencyKeyReused(StoreError):
    """The Idempotency-Key was used for another request."""

    kind = RefusalKind.MEMBER
    place = "header"
    member = "Idempotency-Key"
    words = "Another request used this Idempotency-Key: a new request needs a new key"


class TooManyIdempotencyKeys(StoreError):
    """The client has the maximum number of remembered Idempotency-Keys."""

    kind = RefusalKind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"This client has used {number} Idempotency-Keys within 24 hours, and the limit is {most} "
            "(MAX_IDEMPOTENCY_KEYS): this request did nothing. Send it without the header, or try again later"
        )


class ResponseNotKept(StoreError):
    """The request with this Idempotency-Key succeeded, but its response was not kept."""

    kind = RefusalKind.CONFLICT
    words = (
        "The request with this Idempotency-Key succeeded. Its response was not stored, because it holds a key or is "
        "too long. Read what the request created instead"
    )


@dataclass(frozen=True, slots=True)
class KeptResponse:
    status: int
    content_type: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)  #: without Content-Type


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord(HashRecord):
    """The stored request and response of an Idempotency-Key."""

    key = f"{IdempotencyKeys.root('CLIENT')}:key:KEY"
    fingerprint: str  #: digest of the request
    seed: str  #: seed of the ids that its attempts mint
    token: str = ""  #: token of the last attempt that claimed it
    lease: int = 0  #: µs; 0: released
    later: bool = False  #: an attempt may have reached an agent
    status: str = ""  #: status of the response; empty: the response is not stored
    content_type: str = ""  #: Content-Type of the response; each further line is another header of it
    body: str = ""

    @property
    def response(self) -> KeptResponse | None:
        """Return the response; None if it is not stored."""
        content_type, *lines = self.content_type.split("\n")
        headers = {name: value for name, _, value in (one.partition(": ") for one in lines)}
        return KeptResponse(int(self.status), content_type, self.body, headers) if self.status else None

    @classmethod
    def fields_with(cls, response: KeptResponse | None) -> dict[str, str]:
        """Return the fields that store a response. Headers contain no line feed."""
        if response is None:
            return cls.fields_of(status="", content_type="", body="")
        lines = [response.content_type, *(f"{name}: {value}" for name, value in response.headers.items())]
        return cls.fields_of(status=response.status, content_type="\n".join(lines), body=response.body)


class Idempotency:
    """The records of all clients. The records of a client share a slot. Of its keys only digests are stored."""

    def __init__(self, scripts: Scripts, *, most: int) -> None:
        """most: maximum number of records of one client."""
        self._scripts = scripts
        self._most = most
        self._late = LateEnds(most_seconds=LEASE)

    def begin(self, client: str, key: str, fingerprint: str) -> Attempt | KeptResponse:
        """Claim the record of a key for an attempt, or return its stored response. One round trip.

        Raises IdempotencyKeyBusy, IdempotencyKeyReused, TooManyIdempotencyKeys.
        """
        token = uuid4().hex
        reply = self._scripts.claim_idempotency_key(
            _root(client),
            key=_digest(key),
            fingerprint=fingerprint,
            token=token,
            seed=str(uuid4()),
            lease=round(LEASE * 1e6),
            span=KEPT * 1_000_000,
            most=self._most,
        )
        match reply:
            case ClaimIdempotencyKey.Claimed(seed, is_later):
                return Attempt(UUID(seed), token, is_later=is_later)
            case ClaimIdempotencyKey.Finished(found):
                record = IdempotencyRecord.read(pairs(found))
                return record.response or Attempt(UUID(record.seed), is_finished=True)
            case ClaimIdempotencyKey.Full(number):
                raise TooManyIdempotencyKeys(number, self._most)
            case "busy":
                raise IdempotencyKeyBusy
            case "reused":
                raise IdempotencyKeyReused

    def finish(self, client: str, key: str, attempt: Attempt, response: KeptResponse | None) -> None:
        """Record that an attempt succeeded. response: not stored if it is None or larger than MOST_KEPT_BYTES."""
        kept = response if response and len(response.body.encode()) <= MOST_KEPT_BYTES else None
        self._end(client, key, attempt, IdempotencyRecord.fields_with(kept))

    def release(self, client: str, key: str, attempt: Attempt) -> None:
        """Record that an attempt failed and may have had effects. A repeat may start at once."""
        is_later = attempt.is_later or attempt.reached_agent
        self._end(client, key, attempt, IdempotencyRecord.fields_of(lease=0, later=is_later))

    def forget(self, client: str, key: str, attempt: Attempt) -> None:
        """Record that an attempt was refused without effect. The key is free again, also for another request."""
        self._end(client, key, attempt, {})

    def _end(self, client: str, key: str, attempt: Attempt, fields: Mapping[str, str]) -> None:
        end = partial(
            self._scripts.end_idempotency_claim,
            _root(client),
            key=_digest(key),
            token=attempt.token,
            span=KEPT * 1_000_000,
            fields=fields,
        )
        try:
            end()
        except UNAVAILABLE:
            self._late.add(end)
            raise


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _root(client: str) -> str:
    return IdempotencyKeys.root(_digest(client)[:32])


class LateEnds:
    """The ends that this process still has to send, and the thread that sends them."""

    def __init__(self, *, most_seconds: float) -> None:
        """most_seconds: after which an end is dropped, because the lease of its claim has expired."""
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, Callable[[], object]]] = deque(maxlen=MOST_WAITING)
        self._is_sending = False

    def add(self, end: Callable[[], object]) -> None:
        """Call `end` until Redis accepts it."""
        with self._lock:
            self._waiting.append((time.monotonic() + self._most_seconds, end))
            if self._is_sending:
                return
            self._is_sending = True
        threading.Thread(target=self._send, name="late ends", daemon=True).start()

    def _send(self) -> None:
        while True:
            time.sleep(_RETRY)
            with self._lock:
                due = list(self._waiting)
            sent = []
            for waiting in due:
                until, end = waiting
                try:
                    if time.monotonic() < until:
                        end()
                except UNAVAILABLE:
                    continue  # in a cluster the next end may go to another node
                except Exception:  # this thread must go on with the other ends
                    _log.exception("the end of a claim of an Idempotency-Key could not be sent")
                sent.append(waiting)
            with self._lock:
                for waiting in sent:
                    if waiting in self._waiting:
                        self._waiting.remove(waiting)
                if not self._waiting:
                    self._is_sending = False
                    return
