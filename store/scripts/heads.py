"""Reads the arguments and replies in the head of a script, for its Lua and its callers in Python.

    -- KEYS  root of the sandboxes
    -- ARGV  id:text  verb:text one of "pause", "resume", "delete"
    --       cap:int maximum of running sandboxes  ids:text*
    -- Returns  "done"(status:text) | "full"(running:int): the maximum is running | missing

Two spaces separate the arguments of a line. An explanation follows an argument after one space, and an alternative of
the reply after a colon.

A type is one of TYPES, or a shape that a shared file declares in a line `-- Shape  name(field:type …)`. `type*` takes
the remaining words, and `(field:type …)*` takes them as rows. `type[]` and `(field:type …)[]` are a table within a
reply; as an argument their length is sent before them, so that others can follow. `?` allows None: `''` as an argument,
false in a reply. A `map` is a mapping in Python, and alternating names and values in Lua. Rows are a function in Lua:
`for id, at in rows() do`.

`missing` is Lua's false, and None in Python. `"word"` is an outcome, and a text in Python; with fields it is a class.
`error NAME` is an error that the call raises.
"""

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(r'\s*("[^"]+"|\w+|\[\]|[():*?])')
_ARGUMENT = re.compile(r"([a-z]\w*):((?:\([^)]*\)|\w+)(?:[*?]|\[\])*)(?: .*)?")
_SHAPE = re.compile(r"^-- Shape  (\w+)(\(.+\))$", re.MULTILINE)

#: Names that are reserved by Lua, or used by the scripts.
_TAKEN = frozenset(
    ["do", "else", "elseif", "end", "function", "local", "nil", "repeat", "then", "until", "redis", "root"]
)


class Type(NamedTuple):
    """A type of an argument or of a value in a reply, which `{}` stands for."""

    given: str  #: annotation of an argument
    sent: str = "{}"  #: what Python sends
    lua: str = "{}"  #: how Lua reads an argument
    read: str = "{}"  #: how Python reads a value of a reply
    hint: str = ""  #: annotation of a value in a reply, if it differs


_TEXT = Type("str", read="{}.decode()")

#: The types by name. `digits`, `micros` and `score` stay text in Lua, which writes numbers with 14 digits.
TYPES: Mapping[str, Type] = {
    "text": _TEXT,
    "json": _TEXT,
    "bytes": Type("bytes"),
    "words": Type("str | bytes", hint="bytes"),
    "int": Type("int", lua="tonumber({})", read="int({})"),
    "digits": Type("int", read="int({})"),
    "micros": Type("int", read="Micros(int({}))", hint="Micros"),
    "score": Type("str", read="float({})", hint="float"),
    "flag": Type("bool", sent='"1" if {} else ""', lua="{} == '1'", read='{} in (1, b"1")'),
    "map": Type("Mapping[str, object]"),
    "hash": Type("list[bytes]"),
    "any": Type("Any"),
}


class Field(NamedTuple):
    """An argument, or a value of a reply."""

    name: str
    type: str  #: name of TYPES or of a shape; empty for a row
    is_optional: bool = False
    many: str = ""  #: `*` takes the rest, `[]` is a table of its own, preceded by its length in the arguments
    row: tuple["Field", ...] = ()  #: fields of each row


class ReplyAlternative(NamedTuple):
    """An alternative of a script's reply: an outcome, a value, or missing, which has neither."""

    outcome: str = ""
    fields: tuple[Field, ...] = ()  #: of the outcome, or of a reply without one
    value: Field | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The arguments and replies of a script. shapes: all shapes by name."""

    arguments: tuple[Field, ...]
    replies: tuple[ReplyAlternative, ...]
    shapes: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)

    def width(self, one: Field) -> int:
        return len(self.shapes[one.type]) if one.type in self.shapes else 1


def shapes_of(texts: Mapping[str, str]) -> dict[str, tuple[Field, ...]]:
    """Return the shapes that shared files declare, by name."""
    return {name: _row(_tokens(fields)) for text in texts.values() for name, fields in _SHAPE.findall(text)}


def contract(name: str, head: Mapping[str, str], shapes: Mapping[str, tuple[Field, ...]]) -> Contract:
    """Read the lines ARGV and Returns of a head. Raises ValueError with the script's name."""
    try:
        read = Contract(tuple(_arguments(head["ARGV"])), tuple(_replies(head["Returns"])), shapes)
        _check(read)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return read


def begins(line: str) -> bool:
    """Return whether a further line of ARGV begins with an argument, not within an explanation."""
    return _ARGUMENT.match(line) is not None


def preamble(read: Contract) -> str:
    """Return the Lua that assigns a script's arguments to locals."""
    names, values, lists, place = [], [], [], 1
    for one in read.arguments:
        if one.many:
            lists.append(one)
        elif one.type in read.shapes:
            parts = (f"{part.name} = {_read(part, place + at)}" for at, part in enumerate(read.shapes[one.type]))
            names.append(one.name)
            values.append("{" + ", ".join(parts) + "}")
        else:
            names.append(one.name)
            values.append(_read(one, place))
        place += 0 if one.many else read.width(one)
    fixed = f"local {', '.join(names)} = {', '.join(values)}\n" if names else ""
    return fixed + "".join(_lists(lists, place))


def _read(one: Field, place: int) -> str:
    return TYPES[one.type].lua.format(f"ARGV[{place}]")


def _lists(lists: list[Field], place: int) -> Iterator[str]:
    """Yield the Lua of arguments with many words. place: of the first one."""
    before: int | str = place - 1
    for one in lists:
        last = "#ARGV"
        if one.many == "[]":
            before = _plus(before, 1)
            last = f"last_of_{one.name}"
            yield f"local {last} = {before} + ARGV[{before}] * {_width(one)}\n"
        yield _list(one, before, last)
        before = last


def _width(one: Field) -> int:
    return 2 if one.type == "map" else len(one.row) or 1


def _plus(place: int | str, number: int) -> int | str:
    """Add to a place of ARGV, which may be a Lua expression."""
    return place + number if isinstance(place, int) else f"({place} + {number})"


def _list(one: Field, before: int | str, last: str) -> str:
    """Return the Lua for a table of the words between two places; for rows, for a function that returns an iterator."""
    if not one.row:
        read = TYPES[one.type].lua.format("ARGV[i]")
        return f"local {one.name} = {{}}\nfor i = {_plus(before, 1)}, {last} do {one.name}[i - {before}] = {read} end\n"
    step = len(one.row)
    row = ", ".join(TYPES[part.type].lua.format(f"ARGV[i + {at}]") for at, part in enumerate(one.row))
    return (
        f"local function {one.name}()\n  local i = {_plus(before, 1 - step)}\n  return function()\n"
        f"    i = i + {step}\n    if i <= {last} then return {row} end\n  end\nend\n"
    )


def _arguments(says: str) -> Iterator[Field]:
    for cell in () if says == "none" else re.split(r"  +", says):
        if not (read := _ARGUMENT.fullmatch(cell)):
            raise ValueError(f"its line ARGV has {cell!r}, and should have name:type there")
        yield _field(_tokens(f"{read[1]}:{read[2]}"))


def _replies(says: str) -> Iterator[ReplyAlternative]:
    for one in says.split(" | "):
        tokens = _tokens(one)
        if one.startswith("error "):
            continue
        if tokens[:1] == ["missing"]:
            yield ReplyAlternative()
            continue
        outcomes = []
        while tokens and tokens[0].startswith('"'):
            outcomes.append(tokens.pop(0).strip('"'))
        if outcomes:
            fields = _row(tokens) if tokens[:1] == ["("] else ()
            yield from (ReplyAlternative(outcome, fields) for outcome in outcomes)
        elif tokens[:1] == ["("] and tokens[-1] == ")":
            yield ReplyAlternative(fields=_row(tokens))
        elif tokens:
            yield ReplyAlternative(value=_typed("value", tokens))
        else:
            raise ValueError(f"its line Returns has {one!r}, which names neither an outcome nor a type")
        if tokens:
            raise ValueError(f"its line Returns has {one!r}, in which {' '.join(tokens)!r} is too much")


def _tokens(says: str) -> list[str]:
    """Return the tokens before an explanation, which follows a space, or a colon after an alternative of a reply."""
    tokens, at, depth = list[str](), 0, 0
    while found := _TOKEN.match(says, at):
        if found[1] == ":" and depth == 0 and says[found.end() :][:1] in (" ", ""):
            break
        depth += (found[1] == "(") - (found[1] == ")")
        tokens.append(found[1])
        at = found.end()
    return tokens


def _row(tokens: list[str]) -> tuple[Field, ...]:
    """Return the fields between two brackets, and remove them from the tokens."""
    tokens.pop(0)
    found = []
    while tokens and tokens[0] != ")":
        found.append(_field(tokens))
    if not tokens:
        raise ValueError("a row has no closing bracket")
    tokens.pop(0)
    return tuple(found)


def _field(tokens: list[str]) -> Field:
    name = tokens.pop(0)
    if tokens[:1] != [":"]:
        raise ValueError(f"{name!r} has no type")
    tokens.pop(0)
    return _typed(name, tokens)


def _typed(name: str, tokens: list[str]) -> Field:
    row = _row(tokens) if tokens[0] == "(" else ()
    kind = "" if row else tokens.pop(0)
    is_optional = tokens[:1] == ["?"]
    if is_optional:
        tokens.pop(0)
    many = tokens.pop(0) if tokens[:1] in (["*"], ["[]"]) else ""
    return Field(name, kind, is_optional, many, row)


def _check(read: Contract) -> None:
    for one in read.arguments:
        if one.name in _TAKEN or keyword.iskeyword(one.name):
            raise ValueError(f"its argument {one.name!r} has a name that Lua, Python or the scripts have already")
        if one.many == "*" and one is not read.arguments[-1]:
            raise ValueError(f"its argument {one.name!r} takes the rest, so it must be the last one")
    is_list = [bool(one.many) for one in read.arguments]
    if is_list != sorted(is_list):
        raise ValueError("its arguments that have many words must come after the others")
    if wrong := [one.name for one in read.arguments if one.type == "map" and not one.many]:
        raise ValueError(f"its argument {wrong[0]!r} is a map, and must be {wrong[0]}:map* or {wrong[0]}:map[]")
    values = (one.value for one in read.replies if one.value)
    for one in (*read.arguments, *values, *(part for reply in read.replies for part in reply.fields)):
        for part in one.row or (one,):
            if not part.row and part.type not in TYPES and part.type not in read.shapes:
                known = ", ".join((*TYPES, *read.shapes))
                raise ValueError(f"{part.name!r} has the type {part.type!r}, which is none of {known}")
