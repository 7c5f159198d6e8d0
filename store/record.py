"""Records: classes whose annotations are the fields of a hash in Redis.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Sandbox(Record):
        key = SandboxKeys.box("ID")
        id: str
        start: int = 0
        handle: dict[str, Any] | None = None
        sealed_key: Annotated[str, "files_key"] = ""  # the field has another name
        seen_at: Micros = field(metadata=BESIDE)  # not stored: the caller of `read` gives it

The annotation decides how a value is stored: text as it is, an integer as digits, a flag as `1` or empty, a tuple of
texts joined by commas, anything else as JSON. A missing field has its default, and so has an empty number or JSON.
`read` ignores other fields. So a record that an earlier version wrote still reads. A name that ends in `*` is the
prefix of the fields of a mapping.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

#: marks a member that is not stored
BESIDE: Mapping[str, bool] = {"beside": True}


class Kind(NamedTuple):
    """A way to store values."""

    name: str
    read: Callable[[bytes], Any]
    write: Callable[[Any], str]
    may_be_empty: bool = False


TEXT = Kind("text", bytes.decode, str, may_be_empty=True)
JSON = Kind("JSON", lambda value: json.loads(value.decode()), json.dumps)

#: how a value of a type is stored; any other type is JSON
_KINDS: Mapping[Any, Kind] = {
    str: TEXT,
    str | None: TEXT,
    int: Kind("number", int, str),
    int | None: Kind("number", json.loads, lambda value: "" if value is None else str(value)),
    bool: Kind("flag", bool, lambda value: "1" if value else "", may_be_empty=True),
    bytes: Kind("sealed", bytes, bytes.decode),
    tuple[str, ...]: Kind("words, joined by commas", lambda value: tuple(value.decode().split(",")), ",".join),
}


class Stored(NamedTuple):
    """A field of a hash; or the fields of a mapping, whose names begin with its name."""

    name: bytes
    kind: Kind
    is_mapping: bool

    @property
    def pattern(self) -> str:
        """The name, as the data model has it."""
        return self.name.decode() + ("*" if self.is_mapping else "")

    def entries(self, hash_: Mapping[bytes, bytes]) -> dict[str, Any]:
        """The entries of a mapping."""
        begins, size = self.name, len(self.name)
        return {name[size:].decode(): self.kind.read(value) for name, value in hash_.items() if name.startswith(begins)}


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
        return cls(**cls.members(hash_, **beside))

    @classmethod
    def members(cls, hash_: Mapping[bytes, bytes], **beside: Any) -> dict[str, Any]:
        """Read the members that a hash has, without the defaults. Raises ValueError."""
        for member, one in stored(cls).items():
            if member in beside:
                continue
            if one.is_mapping:
                beside[member] = one.entries(hash_)
            elif (value := hash_.get(one.name)) is not None and (value or one.kind.may_be_empty):
                beside[member] = one.kind.read(value)
        return beside

    @classmethod
    def fields_of(cls, **values: Any) -> dict[str, str]:
        """The fields that store these members. Raises KeyError for an unknown member."""
        known, found = stored(cls), dict[str, str]()
        for member, value in values.items():
            one = known[member]
            entries = value if one.is_mapping else {"": value}
            found |= {one.name.decode() + end: one.kind.write(entry) for end, entry in entries.items()}
        return found


_stored: dict[type[Any], Mapping[str, Stored]] = {}


def pairs(words: list[bytes]) -> dict[bytes, bytes]:
    """A hash from the names and values of a script's reply."""
    return dict(zip(words[::2], words[1::2], strict=True))


def stored(record: type[Record]) -> Mapping[str, Stored]:
    """The fields of a record's hash, by member of the class."""
    if record in _stored:
        return _stored[record]
    hints = get_type_hints(record, include_extras=True)
    found = {}
    for one in fields(record):  # type: ignore[arg-type]
        if "beside" in one.metadata:
            continue
        hint, *marks = get_args(hints[one.name]) if get_origin(hints[one.name]) is Annotated else (hints[one.name],)
        name = next((mark for mark in marks if isinstance(mark, str)), one.name)
        if is_mapping := name.endswith("*"):
            hint = get_args(hint)[1]
        kind = next((mark for mark in marks if isinstance(mark, Kind)), _KINDS.get(_plain(hint), JSON))
        found[one.name] = Stored(name.removesuffix("*").encode(), kind, is_mapping)
    _stored[record] = found
    return found


def _plain(hint: Any) -> Any:
    """A type without the new names of `NewType`."""
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(_plain, get_args(hint)))
    return getattr(hint, "__supertype__", hint)
