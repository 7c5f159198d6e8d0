"""Names and single files of sandboxes, which a worker asks the supervisor for that has them on its host."""

import json
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any
from uuid import uuid4

from redis import Redis

from store.errors import NoSupervisor, StoreError
from store.keys import SandboxKeys
from store.link.wakeups import ask_supervisors
from store.sandboxes.sandbox_record import SandboxId

#: bytes of a file in one response, and names of a list of files. Source of the latter: the app-server wire
MOST_BYTES, MOST_NAMES = 1 << 20, 2000

#: seconds in which a supervisor replies, between two polls, and for which its reply is kept
_TIMEOUT, _POLL, _KEPT = 20.0, 0.02, 10


class Found(StrEnum):
    """What a supervisor found of a file, or of a folder."""

    CONTENT = "content"
    NOTHING = "nothing"
    NOT_KEPT = "not_kept"
    TOO_LONG = "too_long"
    FAILED = "failed"


class FileNotKept(StoreError):
    """The folder of a conversation is none of its sandbox's kept files."""


class FileTooLong(StoreError):
    """A file has more than MOST_BYTES."""


class FileUnreadable(StoreError):
    """The host of a sandbox cannot read its files."""


_ERRORS: dict[Found, Callable[[str], StoreError]] = {
    Found.NOT_KEPT: FileNotKept,
    Found.TOO_LONG: FileTooLong,
    Found.FAILED: FileUnreadable,
}


class SandboxFiles:
    """The files of all sandboxes. Each read raises NoSupervisor, FileNotKept and FileUnreadable."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    def names(self, sandbox_id: SandboxId, folder: str) -> list[str]:
        """The paths of the files in a folder of the agent, sorted: of the MOST_NAMES that were found first."""
        listed = self._ask("files", sandbox_id, folder=folder)
        return sorted(json.loads(listed or b"[]"))

    def content(self, sandbox_id: SandboxId, folder: str, path: str) -> bytes | None:
        """A file in a folder of the agent; None if there is none. Raises FileTooLong."""
        return self._ask("file", sandbox_id, folder=folder, path=path)

    def answer(self, reply: str, found: Found, data: bytes = b"") -> None:
        """Reply to a worker: with the content, or with the sentence of an error."""
        transaction = self._redis.pipeline()
        transaction.delete(reply)  # a repeat adds nothing
        transaction.rpush(reply, found.encode() + b" " + data)
        transaction.expire(reply, _KEPT)
        transaction.execute()

    def _ask(self, verb: str, sandbox_id: SandboxId, **details: str) -> bytes | None:
        reply = SandboxKeys.reply(str(uuid4()))
        ask_supervisors(self._redis, verb, sandbox_id, reply=reply, **details)
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            answered: Any = self._redis.lpop(reply)
            if answered is not None:
                word, _, data = answered.partition(b" ")
                found = Found(word.decode())
                if found in _ERRORS:
                    raise _ERRORS[found](data.decode())
                return None if found is Found.NOTHING else data
            time.sleep(_POLL)
        raise NoSupervisor
