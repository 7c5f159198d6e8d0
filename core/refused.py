"""Refusals of requests: one exception class per reason, and its kind, which decides the response.

`blueprints/errors.py` handles all of them. `make docs` writes docs/errors.md from the classes.
"""

from enum import Enum
from typing import ClassVar


class RefusalKind(Enum):
    """The reason of a refusal: the status of the response, and whether a retry may succeed by itself."""

    MISSING = (404, False)  #: not found
    CONFLICT = (409, False)  #: the current state does not allow it
    BUSY = (409, True)  #: an earlier attempt is still running
    MEMBER = (422, False)  #: a member of the request is invalid: `place` and `member` name it
    UNREADABLE = (400, False)  #: the body cannot be parsed
    UNKNOWN = (401, False)  #: the key is unknown or not accepted here
    FORBIDDEN = (403, False)  #: the key lacks a scope
    TOO_LONG = (413, False)  #: the body is too large
    FULL = (429, False)  #: a limit of the settings is reached
    TAKEN = (429, True)  #: a limit of the settings is reached, and something ends by itself
    TOO_FAST = (429, True)  #: rate limit
    NO_ROOM = (507, False)  #: storage is full
    BAD_AGENT = (502, False)  #: the response of the agent server, or of its host, is unusable
    UNSERVED = (503, False)  #: an operator must change something first
    LATER = (503, True)  #: temporarily unavailable: `Retry-After`

    @property
    def status(self) -> int:
        """Return the status of the response."""
        return int(self.value[0])

    @property
    def is_passing(self) -> bool:
        """Return whether the response has `Retry-After`."""
        return bool(self.value[1])


class Refused(Exception):
    """Base of all refusals. The message is for the client."""

    kind: ClassVar[RefusalKind]
    #: The message, if it is a constant.
    words: ClassVar[str] = ""
    #: For the kind MEMBER: the place of the member, `body`, `query` or `header`, and its name; empty: the whole body.
    place: ClassVar[str] = "body"
    member: str = ""
    #: For the kind MEMBER: the `type` of its entry in the HTTPValidationError.
    fault: ClassVar[str] = "value_error"
    #: Seconds of `Retry-After`.
    retry_after: int = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.words)
