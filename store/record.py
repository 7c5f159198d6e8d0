"""Records: classes whose annotations are the fields of a hash in Redis.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Sandbox(Record):
        key = SandboxKeys.box("ID")
        id: str
        start: int = 0
        handle: dict[str, Any] | None = None
        sealed_key: Annotated[str, "files_key"] = ""  # the field has another name
        seen_at: Micros = field(metadata=BESIDE)  # not stored: the caller of `read` gives it

The annotation decides how a value is stored: text as it is, an integer as digits, a flag as `1` or empty, anything else
as JSON. A missing field has its default, and so has an empty number or JSON. `read` ignores other fields. So a record
that an earlier version wrote still reads.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

#: marks a member that is not stored
BESIDE: Mapping[str, bool] = {"beside": True}


#: how a value of a type is stored; any other type is JSON
_KINDS: Mapping[Any, tuple[str, Callable[[bytes], Any], Callable[[Any], str]]] = {
    str: ("text", bytes.decode, str),
    int: ("number", int, str),
    bool: ("flag", bool, lambda value: "1" if value else ""),
}

_MAY_BE_EMPTY = ("text", "flag")


class Stored(NamedTuple):
    """A field of a hash."""

    name: bytes
    member: str  #: the member of the class
    kind: str  #: `text`, `number`, `flag` or `JSON`
    read: Callable[[bytes], Any]
    write: Callable[[Any], str]


def _json(value: bytes) -> Any:
    return json.loads(value.decode())


class Record:
    """A hash. Subclasses are dataclasses with keyword-only members."""

    __slots__ = ()

    #: the pattern of the keys, as the data model has it
    key: ClassVar[str]

    @classmethod
    def read(cls, hash_: Mapping[bytes, bytes], **beside: Any) -> Self:
        """Read a record. A member in `beside` is not read.

        Raises KeyError, TypeError or ValueError where a field without a default is missing, or cannot be read.
        """
        for name, member, kind, read, _ in stored(cls):
            if member not in beside and (value := hash_.get(name)) is not None and (value or kind in _MAY_BE_EMPTY):
                beside[member] = read(value)
        return cls(**beside)

    @classmethod
    def fields_of(cls, **values: Any) -> dict[str, str]:
        """The fields that store these members; a text is stored as it is. Raises KeyError for an unknown member."""
        known = {one.member: one for one in stored(cls)}
        return {
            known[member].name.decode(): value if isinstance(value, str) else known[member].write(value)
            for member, value in values.items()
        }


_stored: dict[type[Any], tuple[Stored, ...]] = {}


def pairs(words: list[bytes]) -> dict[bytes, bytes]:
    """A hash from the names and values of a script's reply."""
    return dict(zip(words[::2], words[1::2], strict=True))


def stored(record: type[Record]) -> tuple[Stored, ...]:
    """The fields of a record's hash."""
    if record in _stored:
        return _stored[record]
    hints = get_type_hints(record, include_extras=True)
    found = []
    for one in fields(record):  # type: ignore[arg-type]
        if "beside" in one.metadata:
            continue
        kind, name = hints[one.name], one.name
        if get_origin(kind) is Annotated:
            kind, name = get_args(kind)
        kind = getattr(kind, "__supertype__", kind)
        found.append(Stored(name.encode(), one.name, *_KINDS.get(kind, ("JSON", _json, json.dumps))))
    _stored[record] = tuple(found)
    return _stored[record]
