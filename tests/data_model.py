"""The data model, as the tables of `store/keys.py` have it, beside what a store holds."""

import re
from functools import cache

from redis import Redis

from store import keys

#: how Redis calls what the tables call otherwise
_TYPES = {"sorted set": "zset"}

#: what the words in capitals of a name stand for
_ANY = "[^{}]+"
_STANDS_FOR = {"LIST": ".+", "…": ".+", "{all}": r"\{[^{}]+\}"}

#: a bound that is a time: the key has an expiry
_TIME = re.compile(r"(a|an|ten|30|half an|the) (minute|hour|day|week|seconds|lease|window)")


@cache
def lasting() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The keys that may have no expiry: a pattern of the name, and the type as Redis calls it."""
    found = []
    for line in keys.__doc__.splitlines():
        if not line.startswith("| ") or line.count("|") != 5:
            continue
        name, kind, _, bound = (cell.strip() for cell in line.split("|")[1:5])
        if name and kind not in ("", "type", "channel") and not _TIME.match(bound):
            # A test may have a listing of its own, by a name in the place of `all`.
            parts = re.split(r"(SHA-256|\{all\}|\b[A-Z]+\b|…)", name)
            pattern = "".join(
                _STANDS_FOR.get(part, _ANY) if at % 2 else re.escape(part) for at, part in enumerate(parts)
            )
            found.append((re.compile(pattern), _TYPES.get(kind, kind)))
    return tuple(found)


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
