"""Requests that are refused: one class for each reason, whose kind says which response a client gets.

`blueprints/errors.py` has the one handler; `make docs` writes docs/errors.md from the classes.
"""

from enum import Enum
from typing import ClassVar


class Kind(Enum):
    """What is wrong; the status of the response, and whether a later try may succeed by itself."""

    MISSING = (404, False)  #: there is no such thing
    CONFLICT = (409, False)  #: the present state refuses
    BUSY = (409, True)  #: an earlier attempt at the same has not ended
    MEMBER = (422, False)  #: one member of the request is wrong: `place` and `member` name it
    UNREADABLE = (400, False)  #: the body is not what it says
    UNKNOWN = (401, False)  #: the key is not one of those that may
    FORBIDDEN = (403, False)  #: the key is not enough
    TOO_LONG = (413, False)  #: it has too many bytes
    FULL = (429, False)  #: a bound of the settings is reached
    TAKEN = (429, True)  #: a bound of the settings is reached for now: something ends by itself
    TOO_FAST = (429, True)  #: too much came within a while
    NO_ROOM = (507, False)  #: there is no room for more bytes
    BAD_AGENT = (502, False)  #: the agent server, or the host of its sandbox, gives nothing that can be used
    UNSERVED = (503, False)  #: an operator must change something first
    LATER = (503, True)  #: a later try may succeed by itself: `Retry-After`

    @property
    def status(self) -> int:
        """The status of the response."""
        return int(self.value[0])

    @property
    def is_passing(self) -> bool:
        """Whether the response has `Retry-After`."""
        return bool(self.value[1])


class Refused(Exception):
    """A request that cannot be served as things are; the message is for the client."""

    kind: ClassVar[Kind]
    #: the message, where it has no facts in it
    words: ClassVar[str] = ""
    #: of the kind MEMBER: where the member stands, `body`, `query` or `header`, and its name; empty: the whole body
    place: ClassVar[str] = "body"
    member: str = ""
    #: of the kind MEMBER: the `type` of the entry in an HTTPValidationError
    fault: ClassVar[str] = "value_error"
    #: seconds after which a client may try again, where it may
    retry_after: int = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.words)
