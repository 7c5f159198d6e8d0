"""Reads the head of a script: what it takes and returns, as its Lua and its callers in Python need it.

    -- KEYS  root of the sandboxes
    -- ARGV  id:text  verb:text one of "pause", "resume", "delete"
    --       cap:int most sandboxes that may run  ids:text*
    -- Returns  "done"(status:text) | "full"(running:int): as many run as may | missing

Two blanks part the arguments of a line; what follows an argument after one blank explains it, and so does what follows
an alternative of the reply after a colon.

A type is one of TYPES, or a shape that a shared file declares in a line `-- Shape  name(field:type …)`. `type*` takes
the rest of the words, `(field:type …)*` takes them as rows. `type[]` and `(field:type …)[]` are a table within a reply,
and as an argument words that others follow: their number is sent before them. `?` admits None: `''` of an argument,
false of a reply. A `map` is a mapping in Python, and its names and values in turn in Lua. Rows are a function in Lua:
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

#: names that Lua or its scripts have already
_TAKEN = frozenset(
    ["do", "else", "elseif", "end", "function", "local", "nil", "repeat", "then", "until", "redis", "root"]
)


class Type(NamedTuple):
    """A type of an argument or of a value of a reply; `{}` stands for it."""

    given: str  #: the annotation of an argument
    sent: str = "{}"  #: what Python sends
    lua: str = "{}"  #: how Lua reads what was sent
    read: str = "{}"  #: how Python reads a value of a reply
    hint: str = ""  #: the annotation of a value of a reply, where it is another one


_TEXT = Type("str", read="{}.decode()")

#: the types by name. `digits`, `micros` and `score` stay text in Lua, which writes numbers with 14 digits.
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
    type: str  #: a name of TYPES or of a shape; empty of a row
    is_optional: bool = False
    many: str = ""  #: `*` takes the rest, `[]` is a table of its own, and as an argument comes after its length
    row: tuple["Field", ...] = ()  #: the fields of each row


class Reply(NamedTuple):
    """One alternative of what a script returns: an outcome, a value, or missing, which has neither."""

    outcome: str = ""
    fields: tuple[Field, ...] = ()  #: of the outcome, or of a reply without one
    value: Field | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """What a script takes and returns. shapes: those that it may name."""

    arguments: tuple[Field, ...]
    replies: tuple[Reply, ...]
    shapes: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)

    def width(self, one: Field) -> int:
        """The number of words that an argument has."""
        return len(self.shapes[one.type]) if one.type in self.shapes else 1


def shapes_of(texts: Mapping[str, str]) -> dict[str, tuple[Field, ...]]:
    """The shapes that shared files declare, by name."""
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
    """Whether a further line of ARGV begins with an argument, rather than with the rest of an explanation."""
    return _ARGUMENT.match(line) is not None


def preamble(read: Contract) -> str:
    """The Lua that gives a script its arguments as locals."""
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
    """The Lua of the arguments that have many words, of which the first is at a place."""
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
    """The number of words of one item of a list."""
    return 2 if one.type == "map" else len(one.row) or 1


def _plus(place: int | str, number: int) -> int | str:
    """A place of ARGV, also where Lua alone knows it."""
    return place + number if isinstance(place, int) else f"({place} + {number})"


def _list(one: Field, before: int | str, last: str) -> str:
    """A table of the words after one place up to another; of rows, a function that returns an iterator over them."""
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


def _replies(says: str) -> Iterator[Reply]:
    for one in says.split(" | "):
        tokens = _tokens(one)
        if one.startswith("error "):
            continue
        if tokens[:1] == ["missing"]:
            yield Reply()
            continue
        outcomes = []
        while tokens and tokens[0].startswith('"'):
            outcomes.append(tokens.pop(0).strip('"'))
        if outcomes:
            fields = _row(tokens) if tokens[:1] == ["("] else ()
            yield from (Reply(outcome, fields) for outcome in outcomes)
        elif tokens[:1] == ["("] and tokens[-1] == ")":
            yield Reply(fields=_row(tokens))
        elif tokens:
            yield Reply(value=_typed("value", tokens))
        else:
            raise ValueError(f"its line Returns has {one!r}, which names neither an outcome nor a type")
        if tokens:
            raise ValueError(f"its line Returns has {one!r}, in which {' '.join(tokens)!r} is too much")


def _tokens(says: str) -> list[str]:
    """The tokens up to what explains them: a colon after a blank, or after an alternative of a reply."""
    tokens, at, depth = list[str](), 0, 0
    while found := _TOKEN.match(says, at):
        if found[1] == ":" and depth == 0 and says[found.end() :][:1] in (" ", ""):
            break
        depth += (found[1] == "(") - (found[1] == ")")
        tokens.append(found[1])
        at = found.end()
    return tokens


def _row(tokens: list[str]) -> tuple[Field, ...]:
    """The fields between two brackets, which are taken off the tokens."""
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
