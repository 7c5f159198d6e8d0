"""The data model: the keys of `store/keys.toml`, and the fields of the store's records."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from textwrap import wrap
from typing import Any, NamedTuple

from store.record import HashRecord, stored
from store.scripts import ScriptSource

#: Names of a key's root in the heads of scripts, by the beginning of the key.
_ROOTS = (
    ("conv:{ID}", "conversations?|copy|conv"),
    ("conversations:{all}", "listing|list|outbox"),
    ("{sandboxes}", "sandboxes|list|outbox"),
    ("{starts}", "start tasks"),
    ("{approvals}", "approvals|outbox"),
    ("{rules}", "rules"),
    ("{notify}", "notifications"),
    ("{access}", "access keys"),
    ("{cold}", "register"),
    ("once:{CLIENT}", "client's records"),
    ("client:{KEY}", "what the key keeps"),
    ("chat:{SHA-256}", "chat"),
    ("rate:{LIMIT}", "counter"),
    ("LIST", "sandboxes|listing|list"),
)

#: ends that the page shortens, and a bound that it leaves out, as its head says
_SHORT = {"with the conversation": "with it", "with its sandbox": "with it"}
_PLAIN = re.compile(r"one per \w+")

#: characters of a line of the page
_WIDTH = 150


class Key(NamedTuple):
    """A pattern of keys. In its name, `{}` are literal, and words in capitals are placeholders."""

    name: str
    type: str
    holds: str
    bound: str = ""
    expires: str = ""  #: its TTL
    ends: str = ""  #: who deletes it


class Group(NamedTuple):
    title: str
    about: str
    keys: tuple[Key, ...]


@cache
def model() -> Mapping[str, Any]:
    """Return the data model of `store/keys.toml`."""
    return tomllib.loads((files("store") / "keys.toml").read_text())


@cache
def groups() -> tuple[Group, ...]:
    entries = model()["group"]
    return tuple(Group(**one | {"keys": tuple(Key(name, **of) for name, of in one["keys"].items())}) for one in entries)


def keys() -> Iterator[Key]:
    for group in groups():
        yield from group.keys


@cache
def records() -> tuple[type[HashRecord], ...]:
    """The classes of the store's hashes."""
    ours = (one for one in HashRecord.__subclasses__() if one.__module__.startswith("store."))
    return tuple({one.__qualname__: one for one in ours}.values())  # the last one has slots


@cache
def fields() -> Mapping[str, Sequence[str]]:
    """The names of the fields of each hash that has a record."""
    found = dict[str, dict[str, None]]()
    for record in records():
        found.setdefault(record.key, {}).update(dict.fromkeys(one.pattern for one in stored(record)))
    return {key: tuple(names) for key, names in found.items()}


def page() -> list[str]:
    """Return the lines of docs/data.md between its markers."""
    lines = list[str]()
    for group in groups():
        lines += [f"## {group.title}", "", *wrap(group.about, _WIDTH), *([""] if group.about else [])]
        lines += ["| Key | Type | Holds | Bound; ends |", "|---|---|---|---|"]
        for key in group.keys:
            ends = key.expires or key.ends
            bound = "" if _PLAIN.fullmatch(key.bound) else key.bound
            bounds = "; ".join(filter(None, (bound, _SHORT.get(ends, ends))))
            lines.append(f"| {' | '.join((f'`{key.name}`', key.type, key.holds + _fields_of(key.name), bounds))} |")
        lines.append("")
    return lines


def _fields_of(key: str) -> str:
    """The classes that declare and explain the fields of a hash."""
    names = [f"`{one.__module__.replace('.', '/')}:{one.__qualname__}`" for one in records() if one.key == key]
    return f" (fields: {', '.join(names)})" if names else ""


def parted(name: str) -> tuple[str, str]:
    """Split a key into its root and the rest up to the first placeholder."""
    root = next((root for root, _ in _ROOTS if name == root or name.startswith(f"{root}:")), name)
    return root, re.split(r"[A-Z…]", name[len(root) :])[0]


def roots_of(source: ScriptSource) -> list[str]:
    """Return the beginnings of the keys that a script may name."""
    return [root for root, words in _ROOTS if re.search(rf"\b(?:{words})\b", source.head["KEYS"])]
