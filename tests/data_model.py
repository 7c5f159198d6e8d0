"""The data model, as `store/keys.toml` has it, beside what a store holds and what the scripts name."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from redis import Redis

import store
from docs.data_model import Key, fields, keys, parted, roots_of
from store.scripts import ScriptSource

#: how Redis calls what the tables call otherwise
_TYPES = {"sorted set": "zset"}

#: what the words in capitals of a name stand for
_ANY = "[^{}]+"
_STANDS_FOR = {"LIST": ".+", "…": ".+", "{all}": r"\{[^{}]+\}"}


@cache
def lasting() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The keys that may have no expiry: a pattern of the name, and the type as Redis calls it."""
    return tuple(
        (pattern_of(key), _TYPES.get(key.type, key.type)) for key in keys() if not key.expires and key.type != "channel"
    )


def pattern_of(key: Key) -> re.Pattern[str]:
    """The names of a key. A test may have a listing of its own, by a name in the place of `all`."""
    parts = re.split(r"(SHA-256|\{all\}|\b[A-Z]+\b|…)", key.name)
    return re.compile(
        "".join(_STANDS_FOR.get(part, _ANY) if at % 2 else re.escape(part) for at, part in enumerate(parts))
    )


def leaked(redis: Redis) -> list[str]:
    """The keys without an expiry that the data model does not name, or names with a bound in time or another type."""
    every = list(redis.scan_iter(count=1000))
    with redis.pipeline(transaction=False) as asked:
        for key in every:
            asked.ttl(key)
            asked.type(key)
        replies = asked.execute()
    return sorted(
        f"{key.decode()} ({kind.decode()})"
        for key, ends, kind in zip(every, replies[::2], replies[1::2], strict=True)
        if ends == -1 and not any(kind.decode() == of and pattern.fullmatch(key.decode()) for pattern, of in lasting())
    )


#: a command of a script that removes keys, now or later
_REMOVES = re.compile(r"redis\.call\('(?:UNLINK|DEL|EXPIRE|PEXPIRE|SREM)', ")


def removed(source: ScriptSource) -> set[str]:
    """What follows the root in the names of the keys that a script removes; of a set, that it takes members out."""
    locals_ = dict(re.findall(r"local (\w+) = (root \.\. [^\n]+)", source.text))
    named = (one for match in _REMOVES.finditer(source.text) for one in _arguments(source.text[match.end() :]))
    listed = re.search(r"KEYS_THAT_END = \{(.*?)\}", source.text)
    return {_end(locals_.get(one, one)) for one in named} | set(re.findall("'([^']*)'", listed[1] if listed else ""))


#: methods of a client that take names of fields
_BY_FIELD = ("hget", "hmget", "hset", "hdel", "hexists")

#: a command of a script that names fields
_CALL = re.compile(r"redis\.call\('(HGET|HMGET|HSET|HSETNX|HDEL|HEXISTS|HINCRBY|HSTRLEN)', ")


def unknown_fields(name: str, source: ScriptSource) -> Iterator[str]:
    """The fields that a script names and nothing declares."""
    for key, named in fields_named(source):
        known = fields()[key]
        for field in named:
            if field not in known and not any(one.endswith("*") and field.startswith(one[:-1]) for one in known):
                yield f"{name}: {key} {field}"


def fields_of_python() -> Iterator[str]:
    """The fields of hashes that the Python of the store names where it sends a command, also by a constant."""
    for path in sorted(Path(store.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = {
            target.id: one.value
            for one in tree.body
            if isinstance(one, ast.Assign)
            for target in one.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _BY_FIELD:
                for one in call.args[1:]:
                    named = constants.get(one.id, one) if isinstance(one, ast.Name) else one
                    words = named.elts if isinstance(named, ast.List) else [named]
                    yield from (word.value for word in words if isinstance(word, ast.Constant))


def fields_named(source: ScriptSource) -> Iterator[tuple[str, list[str]]]:
    """The fields that a script names, each with its key, as far as both are literal."""
    by_end = {parted(key)[1]: key for key in fields() if parted(key)[0] in roots_of(source)}
    readers = dict[str, str]()  # functions that read one field
    for function, key in re.findall(
        r"local function (\w+)\(\w+, name\) return redis\.call\('HGET', ([^,]*), name\)", source.text
    ):
        readers[function] = _end(key)
    for match in _CALL.finditer(source.text):
        at, *words = _arguments(source.text[match.end() :])
        if (end := _end(at)) in by_end:
            named = words[::2] if match[1] == "HSET" else words[:1] if match[1] in ("HSETNX", "HINCRBY") else words
            yield by_end[end], _literal(named)
    for function, end in readers.items():
        if end in by_end:
            yield by_end[end], re.findall(rf"\b{function}\(\w+, '([^']+)'\)", source.text)


def _end(key: str) -> str:
    """What follows the root in an expression of Lua: `root .. ':box:' .. id` gives `:box:`."""
    found = re.fullmatch(r"(?:root|key)(?: \.\. '([^']+)'(?: \.\. .*)?)?", key.strip())
    return (found[1] or "") if found and key.strip() != "key" else "?"


def _arguments(text: str) -> list[str]:
    """The arguments of a call in Lua, up to its closing bracket."""
    found, depth, quoted, begun = list[str](), 0, False, 0
    for place, letter in enumerate(text):
        quoted ^= letter == "'"
        if quoted:
            continue
        if letter in ",)" and not depth:
            found.append(text[begun:place].strip())
            begun = place + 1
            if letter == ")":
                break
        depth += (letter in "({[") - (letter in ")}]")
    return found


def _literal(words: list[str]) -> list[str]:
    return [word[1:-1] for word in words if re.fullmatch(r"'[^']*'", word)]
