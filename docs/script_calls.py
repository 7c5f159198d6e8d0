"""Prints `store/scripts/calls.py`: a method for each script, with the arguments and the reply that its head declares.

    python -m docs.script_calls

A separate program, because the store's modules import classes that the current `calls.py` may not have yet.
"""

import re
import sys
from collections.abc import Iterator
from types import ModuleType


class _AnyClass(type):
    """A class with a class of every name."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyClass(name, (), {})


class _AnyCalls(ModuleType):
    """A module with a class of every name."""

    def __getattr__(self, name: str) -> type:
        return _AnyClass(name, (), {})


if __name__ == "__main__":
    sys.modules["store.scripts.calls"] = _AnyCalls("store.scripts.calls")

from store.scripts import ScriptSource, sources  # noqa: E402
from store.scripts.heads import TYPES, Contract, Field, ReplyAlternative  # noqa: E402

#: Python types for shapes of arguments, whose `args` are their words.
_GIVEN = {"stamp": "Stamp"}

_HEAD = '''"""The scripts as methods: arguments have names, replies have types. Made by docs/make.py from the heads.

An outcome with data is a class of the script's namespace; an outcome without is its word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

from core.wire import Micros
from store.errors import UnknownReply
from store.link.attempts import Stamp


class Sends(Protocol):
    """Sends a script's keys and arguments, and returns its reply as Redis gives it."""

    def __call__(self, keys: list[str], args: list[Any]) -> Any: ...


def _outcome(reply: Any) -> tuple[bytes, int, Iterator[Any]]:
    """Return the outcome of a reply, the number of words after it, and an iterator over them."""
    words = reply if isinstance(reply, list) else [reply]
    return (words[0], len(words) - 1, iter(words[1:])) if words else (b"", 0, iter(()))


def _rows(words: Iterable[Any], width: int) -> zip[tuple[Any, ...]]:
    return zip(*[iter(words)] * width, strict=True)
'''


def calls() -> str:
    scripts, lines = sources(), [_HEAD]
    taken = {one.type for source in scripts.values() for one in source.contract.arguments}
    for name, fields in next(iter(scripts.values())).contract.shapes.items():
        if name in taken - _GIVEN.keys():
            parts = (f"    {one.name}: {TYPES[one.type].given}" for one in fields)
            lines += ["", "", f"class {_camel(name)}(NamedTuple):", *parts]
        elif name not in _GIVEN:
            read = ", ".join(TYPES[one.type].read.format("next(words)") for one in fields)
            lines += ["", "", *_tuple(_camel(name), fields, "")]
            lines += ["", "", f"def _{name}(words: Iterator[Any]) -> {_camel(name)}:"]
            lines += [f"    return {_camel(name)}({read})"]
    for name, source in scripts.items():
        if space := list(_namespace(name, source)):
            lines += ["", "", *space]
    lines += ["", "", "class Calls:", '    """Every script as a method."""', ""]
    lines += [f"    _{name}: Sends" for name in scripts]
    for name, source in scripts.items():
        lines += ["", *_method(name, source)]
    return "\n".join(lines) + "\n"


def _namespace(name: str, source: ScriptSource) -> Iterator[str]:
    """Yield the classes of a script's outcomes and rows."""
    contract = source.contract
    classes = dict[str, tuple[Field, ...]]()
    for one in _fields(contract):
        if one.row:
            classes[_row_name(one)] = one.row
    for reply in contract.replies:
        if reply.fields:
            classes[_camel(reply.outcome or "reply")] = reply.fields
    if not classes:
        return
    yield f"class {_camel(name)}:"
    yield f'    """Replies of `{name}.lua`."""'
    for title, fields in classes.items():
        yield ""
        yield from _tuple(title, fields, "    ", _camel(name))


def _tuple(title: str, fields: tuple[Field, ...], indent: str, space: str = "") -> Iterator[str]:
    yield f"{indent}class {title}(NamedTuple):"
    for one in fields:
        yield f"{indent}    {one.name}: {_hint(one, space)}"


def _method(name: str, source: ScriptSource) -> Iterator[str]:
    contract = source.contract
    parameters = [f"{one.name}: {_parameter(one)}" for one in contract.arguments]
    named = f", *, {', '.join(parameters)}" if parameters else ""
    words = [_sent(one) for one in contract.arguments]
    root = "roots: list[str]" if source.head["KEYS"].startswith("roots") else "root: str"
    yield f"    def {name}(self, {root}{named}) -> {_result(contract, _camel(name))}:"
    yield f'        """{_first_sentence(source)}"""'
    keys = "roots" if root.startswith("roots") else "[root]"
    call = f"self._{name}({keys}, [{', '.join(words)}])"
    if all(not (one.outcome or one.fields or one.value) for one in contract.replies):
        yield f"        {call}"
        return
    yield f"        reply = {call}"
    yield from (f"        {line}" for line in _read_reply(name, contract))


def _read_reply(name: str, contract: Contract) -> Iterator[str]:
    """Yield the lines that convert a reply of Redis to that of the method."""
    space = _camel(name)
    if any(_is_missing(one) for one in contract.replies):
        yield "if reply is None:"
        yield "    return None"
    for one in contract.replies:
        if one.value:
            yield f"result: {_hint(one.value, space)} = {_read(one.value, 'reply', contract, space)}"
            yield "return result"
            return
    if [one.outcome for one in contract.replies if not _is_missing(one)] == [""]:
        [only] = [one for one in contract.replies if one.fields]
        yield "words = iter(reply)"
        yield f"return {_made(only, contract, space)}"
        return
    yield "match _outcome(reply):"
    for one in contract.replies:
        if one.outcome:
            width = sum(contract.width(part) for part in one.fields)
            is_open = any(part.many == "*" for part in one.fields)
            yield f'    case b"{one.outcome}", {"_" if is_open else width}, {"words" if one.fields else "_"}:'
            yield f"        return {_made(one, contract, space)}"
    yield f'raise UnknownReply("{name}", reply)'


def _made(one: ReplyAlternative, contract: Contract, space: str) -> str:
    if not one.fields:
        return f'"{one.outcome}"'
    values = (_read(part, "words" if part.many == "*" else "next(words)", contract, space) for part in one.fields)
    return f"{space}.{_camel(one.outcome or 'reply')}({', '.join(values)})"


def _read(one: Field, word: str, contract: Contract, space: str) -> str:
    """Return the expression that reads a value of a reply."""
    if one.type in contract.shapes:
        return f"_{one.type}(words)"
    if one.row:
        names = ", ".join(part.name for part in one.row)
        values = ", ".join(_read(part, part.name, contract, space) for part in one.row)
        return f"[{space}.{_row_name(one)}({values}) for {names} in _rows({word}, {len(one.row)})]"
    read = TYPES[one.type].read
    if one.many:
        read = (
            read if read == "{}" or not one.is_optional else f"None if {{0}} is None else {read.replace('{}', '{0}')}"
        )
        return f"[{read.format('value')} for value in {word}]" if read != "{}" or one.many == "*" else word
    if one.is_optional and read != "{}":
        return f"None if (value := {word}) is None else {read.format('value')}"
    return read.format(word)


def _result(contract: Contract, space: str) -> str:
    hints, bare = list[str](), [one.outcome for one in contract.replies if one.outcome and not one.fields]
    for one in contract.replies:
        if one.value:
            hints.append(_hint(one.value, space))
        elif one.fields:
            hints.append(f"{space}.{_camel(one.outcome or 'reply')}")
    if bare:
        hints.append(f"Literal[{', '.join(map(repr, bare))}]")
    if not hints or any(_is_missing(one) for one in contract.replies):
        hints.append("None")
    return " | ".join(dict.fromkeys(hints))


def _hint(one: Field, space: str) -> str:
    if one.row:
        hint = f"{space}.{_row_name(one)}" if space else _row_name(one)
    else:
        hint = TYPES[one.type].hint or TYPES[one.type].given if one.type in TYPES else _camel(one.type)
    hint += " | None" if one.is_optional else ""
    return f"list[{hint}]" if one.many else hint


def _parameter(one: Field) -> str:
    kind = "Collection" if one.many == "[]" else "Iterable"
    if one.row:
        return f"{kind}[tuple[{', '.join(TYPES[part.type].given for part in one.row)}]]"
    hint = TYPES[one.type].given if one.type in TYPES else _GIVEN.get(one.type, _camel(one.type))
    hint += " | None = None" if one.is_optional else ""
    if one.type == "map":
        return hint
    return f"{kind}[{hint}]" if one.many else hint


def _sent(one: Field) -> str:
    return f"len({one.name}), {_words_sent(one)}" if one.many == "[]" else _words_sent(one)


def _words_sent(one: Field) -> str:
    if one.row:
        words = [TYPES[part.type].sent.format(part.name) for part in one.row]
        names = [part.name for part in one.row]
        if words == names:
            return f"*chain.from_iterable({one.name})"
        return f"*(word for {', '.join(names)} in {one.name} for word in ({', '.join(words)}))"
    if one.type in _GIVEN:
        return f"*{one.name}.args"
    if one.type == "map":
        return f"*chain.from_iterable({one.name}.items())"
    if one.many or one.type not in TYPES:
        return f"*{one.name}"
    sent = TYPES[one.type].sent.format(one.name)
    return f'"" if {one.name} is None else {sent}' if one.is_optional else sent


def _first_sentence(source: ScriptSource) -> str:
    words = " ".join(line.removeprefix("--").strip() for line in source.prose)
    sentence = re.split(r"\. |; ", words.partition(": ")[2], maxsplit=1)[0].rstrip(".")
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _fields(contract: Contract) -> Iterator[Field]:
    for one in contract.replies:
        yield from one.fields
        if one.value:
            yield one.value


def _is_missing(one: ReplyAlternative) -> bool:
    return not (one.outcome or one.fields or one.value)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace(" ", "_").split("_"))


def _row_name(one: Field) -> str:
    return "Row" if one.name == "value" else _camel(re.sub("ies$", "y", one.name).removesuffix("s"))


if __name__ == "__main__":
    print(calls(), end="")
