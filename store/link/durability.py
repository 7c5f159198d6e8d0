"""What must hold before a write is acknowledged, and how that is known: from the same round trip that writes.

| durability   | a write is acknowledged when                | what is sent after the write, on the same connection |
|--------------|---------------------------------------------|-------------------------------------------------------|
| `none`       | Redis replies                               | nothing                                               |
| `fsync`      | it is on the disk of the server that has it | `CONFIG GET`: the server syncs before it replies      |
| `replicas:N` | N replicas have it in memory                | `WAIT N`                                              |

`WAIT` is about the writes of its own connection, and a script that is repeated may have nothing left to write:
`store/scripts` has it write a mark then, so that a repeat proves what the first call has written.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redis.connection import AbstractConnection
from redis.exceptions import ResponseError

from core.bounds import Durability
from store.errors import TemporaryRefusal

#: the settings by which Redis syncs each write to its disk before it replies
SYNCED = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}

#: seconds after which a proof that should have come is not waited for any more
_MARGIN = 0.5


class NotKept(TemporaryRefusal):
    """A write is not known to be kept as DURABILITY asks. It may have happened, and a repeat finds it."""


def unsynced(settings: Mapping[str, str]) -> str | None:
    """The settings that keep Redis from syncing each write, as words; None where it does."""
    wrong = [
        f"{name} is {settings.get(name, 'not shown')}" for name, value in SYNCED.items() if settings.get(name) != value
    ]
    return " and ".join(wrong) or None


def proving(kind: type[AbstractConnection], durability: Durability, timeout: float) -> type[AbstractConnection]:
    """The class of connections that prove what is sent as `proven`. timeout: seconds in which replicas confirm."""
    if not durability.is_proven:
        return kind
    members = {"_durability": durability, "_seconds": timeout}
    return type(f"Proving{kind.__name__}", (_ProvingConnection, kind), members)


class _ProvingConnection(AbstractConnection):
    """Sends a question after each command of the option `proven`, in one packet, and reads both replies as one.

    A command that is not proven raises NotKept instead of its reply.
    """

    _durability: Durability
    _seconds: float

    _is_proof_due = False  #: the reply to the question comes after the next reply

    def send_command(self, *args: Any, **options: Any) -> None:
        if not options.pop("proven", False):
            super().send_command(*args, **options)
            return
        replicas = ("WAIT", self._durability.replicas, round(self._seconds * 1000))
        question = ("CONFIG", "GET", *SYNCED) if self._durability.fsync else replicas
        self.send_packed_command(self.pack_commands([args, question]))
        self._is_proof_due = True

    def read_response(self, *args: Any, **options: Any) -> Any:
        if not self._is_proof_due:
            return super().read_response(*args, **options)
        self._is_proof_due = False
        try:
            reply = super().read_response(*args, **options)
        except ResponseError:
            with suppress(ResponseError):
                self._read_proof()
            raise
        if fault := self._fault():
            raise NotKept(
                f"{fault}, as DURABILITY={self._durability} asks. "
                "It may have happened, and may be lost yet; a repeat finds it"
            )
        return reply

    def disconnect(self, *args: Any, **options: Any) -> None:
        self._is_proof_due = False
        super().disconnect(*args, **options)

    def _read_proof(self) -> Any:
        return super().read_response(timeout=self._seconds + _MARGIN, disconnect_on_error=True)

    def _fault(self) -> str | None:
        try:
            proof = self._read_proof()
        except ResponseError as refusal:
            return f"Redis does not say whether this write is kept ({refusal})"
        if not self._durability.fsync:
            number = self._durability.replicas
            is_few = proof < number
            return f"Fewer than {number} replicas have confirmed this write in {self._seconds:g} s" if is_few else None
        wrong = unsynced(_texts(proof))
        return f"This write is not known to be on the disk of Redis ({wrong})" if wrong else None


def _texts(reply: Any) -> dict[str, str]:
    """Names and values, which RESP3 has as a map and RESP2 as a list."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
