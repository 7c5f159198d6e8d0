"""Edits of JSON files of a person: members are added and taken out, and every other byte stays.

Comments, trailing commas, a BOM, tabs and CRLF are kept.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

#: Maximum nesting that is read.
_DEPTH = 200


class NotJson(Exception):
    """The text is no JSON object; the message says where."""


@dataclass
class Node:
    """A value and its place in the text."""

    start: int
    end: int
    value: Any
    members: list[tuple[str, int, "Node"]] = field(default_factory=list)  #: (name, start of the name, value)
    items: list["Node"] = field(default_factory=list)

    def spans(self) -> list[tuple[int, int]]:
        """Return the (start, end) of each member or item."""
        return [(start, node.end) for _, start, node in self.members] or [(one.start, one.end) for one in self.items]

    def get(self, name: str) -> "Node | None":
        """Return a member of an object, or None. Raises NotJson for a name that stands twice."""
        found = [node for key, _, node in self.members if key == name]
        if len(found) > 1:
            raise NotJson(f"it has {name!r} twice in one object")
        return found[0] if found else None


def parse(text: str) -> Node:
    """Read a JSON object with comments and trailing commas. Raises NotJson."""
    node = _value(text, _skip(text, 0), 0)
    if (rest := _skip(text, node.end)) != len(text):
        raise _fault(text, rest, "there is more after the object")
    if not isinstance(node.value, dict):
        raise NotJson("it is no JSON object")
    return node


def _fault(text: str, place: int, words: str) -> NotJson:
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    return NotJson(f"line {line}, column {column}: {words}")


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _value(text: str, place: int, depth: int) -> Node:
    if depth > _DEPTH:
        raise _fault(text, place, "it is nested too deeply")
    opening = text[place : place + 1]
    if opening in ("{", "["):
        return _container(text, place, depth, is_object=opening == "{")
    for pattern in (_STRING, _SCALAR):
        if found := pattern.match(text, place):
            try:
                return Node(place, found.end(), json.loads(found.group()))
            except ValueError:
                break
    raise _fault(text, place, "a JSON value is missing")


def _container(text: str, start: int, depth: int, *, is_object: bool) -> Node:
    closing, node = "}" if is_object else "]", Node(start, start, {} if is_object else [])
    place = _skip(text, start + 1)
    while text[place : place + 1] != closing:
        name, key = place, ""
        if is_object:
            found = _STRING.match(text, place)
            if not found:
                raise _fault(text, place, "a name in quotes is missing")
            try:
                key = json.loads(found.group())
            except ValueError:
                raise _fault(text, place, "a name in quotes is missing") from None
            place = _skip(text, found.end())
            if text[place : place + 1] != ":":
                raise _fault(text, place, "a colon is missing")
            place = _skip(text, place + 1)
        value = _value(text, place, depth + 1)
        if is_object:
            node.members.append((key, name, value))
            node.value[key] = value.value
        else:
            node.items.append(value)
            node.value.append(value.value)
        place = _skip(text, value.end)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != closing:
            raise _fault(text, place, f"a comma or {closing} is missing")
    node.end = place + 1
    return node


def added(text: str, place: tuple[str, ...], value: Any, name: str = "") -> str:
    """Add a value at the end of the container at a path; `name` is that of a member of an object.

    The text of `added` is what `removed` takes out again.
    """
    node = _at(text, place)
    assert node is not None
    eol = "\r\n" if "\r\n" in text else "\n"
    unit = _unit(text)
    outer, inner = unit * len(place), unit * (len(place) + 1)
    shown = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{inner}").replace("\n", eol)
    shown = f"{json.dumps(name)}: {shown}" if name else shown
    if spans := node.spans():
        end = spans[-1][1]
        return f"{text[:end]},{eol}{inner}{shown}{text[end:]}"
    start = node.start + 1
    return f"{text[:start]}{eol}{inner}{shown}{eol}{outer}{text[start:]}"


def removed(text: str, place: tuple[str, ...], which: int) -> str:
    """Take the member or item at an index out of the container at a path, with one comma."""
    node = _at(text, place)
    assert node is not None
    spans = node.spans()
    start, end = spans[which]
    if which:
        comma = _comma(text, spans[which - 1][1])
        return text[:comma] + text[end:]
    if len(spans) > 1:
        return text[:start] + text[spans[1][0] :]
    if text[_skip(text, end) :][:1] == ",":
        end = _skip(text, end) + 1
    # It stands alone: `added` put it into an empty container, on lines of its own.
    before = re.search(r"(?:\r?\n)?([ \t]*)$", text[node.start + 1 : start])
    inner = before.group(1) if before else ""
    start -= len(before.group()) if before else 0
    if after := re.compile(r"\r?\n").match(text, end):
        outer = inner[: len(inner) // (len(place) + 1) * len(place)]
        end = after.end() + (len(outer) if text.startswith(outer, after.end()) else 0)
    return text[:start] + text[end:]


def _comma(text: str, place: int) -> int:
    place = _skip(text, place)
    assert text[place] == ","
    return place


def _at(text: str, place: tuple[str, ...]) -> Node | None:
    node: Node | None = parse(text)
    for name in place:
        node = node.get(name) if node else None
    return node


def _unit(text: str) -> str:
    """Return the indentation of the first line that has one."""
    found = re.search(r"^([ \t]+)\S", text.removeprefix("\ufeff"), re.MULTILINE)
    return found.group(1) if found else "  "
