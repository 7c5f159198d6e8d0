"""Records: classes whose annotations define the fields of a hash in Redis.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Sandbox(Record):
        key = SandboxKeys.box("ID")
        id: str
        start: int = 0
        handle: dict[str, Any] | None = None
        sealed_key: Annotated[str, "files_key"] = ""  # the field has another name
        seen_at: Micros = field(metadata=BESIDE)  # not stored: passed to `read`

The annotation decides how a value is stored: text unchanged, an integer as digits, a flag as `1` or empty, a tuple of
texts joined by commas, anything else as JSON. A missing field has its default, and so has an empty number or JSON.
`read` ignores unknown fields, so that it can read records of other versions. A name that ends in `*` is the prefix of a
mapping's fields.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

#: Marks a member that is not stored.
BESIDE: Mapping[str, bool] = {"beside": True}


class ValueKind(NamedTuple):
    """A way to store values."""

    name: str
    read: Callable[[bytes], Any]
    write: Callable[[Any], str]
    may_be_empty: bool = False


TEXT = ValueKind("text", bytes.decode, str, may_be_empty=True)
JSON = ValueKind("JSON", lambda value: json.loads(value.decode()), json.dumps)

#: How a value of a type is stored. Any other type is JSON.
_KINDS: Mapping[Any, ValueKind] = {
    str: TEXT,
    str | None: TEXT,
    int: ValueKind("number", int, str),
    int | None: ValueKind("number", json.loads, lambda value: "" if value is None else str(value)),
    bool: ValueKind("flag", bool, lambda value: "1" if value else "", may_be_empty=True),
    bytes: ValueKind("sealed", bytes, bytes.decode),
    tuple[str, ...]: ValueKind("words, joined by commas", lambda value: tuple(value.decode().split(",")), ",".join),
}


class Stored(NamedTuple):
    """A field of a hash, or the fields of a mapping, whose names begin with its name."""

    name: bytes
    member: str
    kind: ValueKind
    is_mapping: bool

    @property
    def pattern(self) -> str:
        """Return the name, as in the data model."""
        return self.name.decode() + ("*" if self.is_mapping else "")


class _Layout(NamedTuple):
    members: Mapping[str, Stored]
    names: Mapping[bytes, tuple[str, Callable[[bytes], Any], bool]]  #: member, and its kind, except for mappings
    mappings: Sequence[Stored]


class HashRecord:
    """A hash. Subclasses are dataclasses with keyword-only members."""

    __slots__ = ()

    #: The pattern of the keys, as in the data model.
    key: ClassVar[str]

    @classmethod
    def read(cls, hash_: Mapping[bytes, bytes], **beside: Any) -> Self:
        """Read a record. Members in `beside` are not read.

        Raises KeyError, TypeError or ValueError if a field without a default is missing, or is corrupt.
        """
        return cls(**cls.members(hash_, **beside))

    @classmethod
    def members(cls, hash_: Mapping[bytes, bytes], **beside: Any) -> dict[str, Any]:
        """Read the members that a hash has, without the defaults. Raises ValueError."""
        _, names, mappings = _layout(cls)
        found = {one.member: dict[str, Any]() for one in mappings} | beside
        for name, value in hash_.items():
            if known := names.get(name):
                member, read, may_be_empty = known
                if (value or may_be_empty) and member not in beside:
                    found[member] = read(value)
                continue
            for prefix, member, kind, _ in mappings:
                if name.startswith(prefix):
                    found[member][name[len(prefix) :].decode()] = kind.read(value)
        return found

    @classmethod
    def fields_of(cls, **values: Any) -> dict[str, str]:
        """Return the fields that store these members. Raises KeyError for an unknown member."""
        known, found = _layout(cls).members, dict[str, str]()
        for member, value in values.items():
            one = known[member]
            entries = value if one.is_mapping else {"": value}
            found |= {one.name.decode() + end: one.kind.write(entry) for end, entry in entries.items()}
        return found


_layouts: dict[type[Any], _Layout] = {}


def pairs(words: list[bytes]) -> dict[bytes, bytes]:
    """Make a hash from the names and values of a script's reply."""
    return dict(zip(words[::2], words[1::2], strict=True))


def stored(record: type[HashRecord]) -> Iterable[Stored]:
    """Return the fields of a record's hash."""
    return _layout(record).members.values()


def _layout(record: type[HashRecord]) -> _Layout:
    if record in _layouts:
        return _layouts[record]
    hints, found = get_type_hints(record, include_extras=True), list[Stored]()
    for one in fields(record):  # type: ignore[arg-type]
        if "beside" in one.metadata:
            continue
        hint, *marks = get_args(hints[one.name]) if get_origin(hints[one.name]) is Annotated else (hints[one.name],)
        name = next((mark for mark in marks if isinstance(mark, str)), one.name)
        if is_mapping := name.endswith("*"):
            hint = get_args(hint)[1]
        kind = next((mark for mark in marks if isinstance(mark, ValueKind)), _KINDS.get(_plain(hint), JSON))
        found.append(Stored(name.removesuffix("*").encode(), one.name, kind, is_mapping))
    names = {one.name: (one.member, one.kind.read, one.kind.may_be_empty) for one in found if not one.is_mapping}
    _layouts[record] = _Layout({one.member: one for one in found}, names, [one for one in found if one.is_mapping])
    return _layouts[record]


def _plain(hint: Any) -> Any:
    """Return the type behind a `NewType`."""
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(_plain, get_args(hint)))
    return getattr(hint, "__supertype__", hint)
