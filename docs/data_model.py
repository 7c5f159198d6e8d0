"""The data model: the keys of `store/keys.toml`, the fields of the store's records, and the scripts that name both."""

import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from textwrap import wrap
from typing import Any, NamedTuple

from store.record import Record, stored
from store.scripts import Source, sources

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

#: A field of a record, and its comment.
_FIELD = re.compile(r"^    (\w+): [^#\n]*?  #: (.*)$", re.MULTILINE)

#: Maximum number of scripts in the table for one key.
_MOST_NAMED = 3


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
def fields() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Return kind and meaning of the fields of hashes, by key and name."""
    fields_by_key = dict[str, dict[str, tuple[str, str]]]()
    ours = (one for one in Record.__subclasses__() if one.__module__.startswith("store."))
    for record in {one.__qualname__: one for one in ours}.values():  # the last definition has slots
        words = dict(_FIELD.findall(inspect.getsource(record)))
        of_key = fields_by_key.setdefault(record.key, {})
        of_key |= {one.pattern: (one.kind.name, words.get(one.member, "")) for one in stored(record)}
    return fields_by_key


def page() -> list[str]:
    """Return the lines of docs/data.md between its markers."""
    lines = list[str]()
    for group in groups():
        lines += [f"## {group.title}", "", *wrap(group.about, 150), *([""] if group.about else [])]
        lines += ["| Key | Type | Holds | Bound | Ends | Scripts |", "|---|---|---|---|---|---|"]
        for key in group.keys:
            cells = (f"`{key.name}`", key.type, key.holds, key.bound, key.expires or key.ends, _listed(scripts_of(key)))
            lines.append(f"| {' | '.join(cells)} |")
        for key in group.keys:
            if key.name in fields():
                lines += ["", f"Fields of `{key.name}`:", "", "| Field | Stored as | Holds |", "|---|---|---|"]
                lines += [f"| `{name}` | {kind} | {words} |" for name, (kind, words) in fields()[key.name].items()]
        lines.append("")
    return lines


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def scripts_of(key: Key) -> list[str]:
    root, rest = parted(key.name)
    return [name for name, source in sources().items() if root in roots_of(source) and _names(source.text, rest)]


def parted(name: str) -> tuple[str, str]:
    """Split a key into its root and the rest up to the first placeholder."""
    root = next((root for root, _ in _ROOTS if name == root or name.startswith(f"{root}:")), name)
    return root, re.split(r"[A-Z…]", name[len(root) :])[0]


def roots_of(source: Source) -> list[str]:
    """Return the beginnings of the keys that a script may name."""
    return [root for root, words in _ROOTS if re.search(rf"\b(?:{words})\b", source.head["KEYS"])]


def _names(text: str, rest: str) -> bool:
    return f"'{rest}'" in text if rest else bool(re.search(r"'[A-Z]+', root\b(?! *\.\.)", text))
