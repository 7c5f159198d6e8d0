"""Rate limits: a window begins with its first request, and a request beyond its limit gets 429.

| setting               | counts                                       | per                                     |
|-----------------------|----------------------------------------------|-----------------------------------------|
| `RATE_LIMIT_WRITES`   | POST, PUT, PATCH, DELETE                     | key; unlimited without a key            |
| `RATE_LIMIT_READS`    | all other methods                            | key; unlimited without a key            |
| `RATE_LIMIT_STARTS`   | operations that `Blueprint.starts` declares  | key, or address without a key           |
| `RATE_LIMIT_FAILURES` | requests with a wrong key or without a key   | address                                 |

Webhooks and the keys of sandboxes are exempt, because an agent's posts have other limits. While the store is
unavailable, a limited request gets 503 at once. Otherwise it would fail later, after another timeout.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from flask import Flask, current_app, g, request
from werkzeug.exceptions import TooManyRequests

from blueprints import current_server, current_store
from core.access import NOBODY, Principal
from settings.access import AccessSettings
from store.errors import UNAVAILABLE

#: Value of a setting without a limit.
NO_LIMIT = "none"

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}

_READING = ("GET", "HEAD", "OPTIONS")

#: Endpoints without limits: unknown paths, and the assets of the page /docs.
_UNLIMITED = (None, "static")


class RateLimit(NamedTuple):
    """A maximum number of a client's requests in a window."""

    name: str  #: the setting with its value, so that a changed value begins new windows
    words: str
    most: int
    seconds: int
    applies: Callable[[], bool]  #: returns whether the current request counts


def register_rates(app: Flask, settings: AccessSettings) -> None:
    """Limit the app's requests. Call it after `register_guard`."""
    writing, reading = settings.rate_limit_writes, settings.rate_limit_reads
    words = "writing requests per key", "reading requests per key"
    writes = _limit("RATE_LIMIT_WRITES", writing, words[0], lambda: not _is_reading() and _has_key())
    reads = _limit("RATE_LIMIT_READS", reading, words[1], lambda: _is_reading() and _has_key())
    starts = _limit("RATE_LIMIT_STARTS", settings.rate_limit_starts, "starts per client", _starts)
    limits = sorted(filter(None, (writes, reads, starts)), key=lambda limit: limit.seconds)

    @app.before_request
    def check_rates() -> None:
        if (reads is None and _is_reading()) or request.blueprint == "Webhooks" or request.endpoint in _UNLIMITED:
            return
        for limit in limits:
            if limit.applies():
                _count(limit, _client())


def _limit(setting: str, value: str, what: str, applies: Callable[[], bool]) -> RateLimit | None:
    if value == NO_LIMIT:
        return None
    most, _, unit = value.partition("/")
    words = f"At most {value} {what} ({setting})"
    return RateLimit(f"{setting} {value}", words, int(most), _SECONDS[unit], applies)


def _count(limit: RateLimit, client: str) -> None:
    """Count a request of a client. Raises TooManyRequests beyond the limit, and one of UNAVAILABLE."""
    name = f"{client} {limit.name}"
    counters = current_store.access.counters
    if counters.hit(name, limit.seconds, 1) <= limit.most:
        return
    try:
        left = counters.seconds_left(name)
    except UNAVAILABLE:
        left = 0
    raise TooManyRequests(limit.words, retry_after=max(1, math.ceil(left)))


def _principal() -> Principal:
    principal: Principal = g.get("principal", NOBODY)
    return principal


def _address() -> str:
    return f"address {request.remote_addr}"


def _client() -> str:
    return f"key {_principal().key_id}" if _principal().key_id else _address()


def _is_reading() -> bool:
    return request.method in _READING


def _has_key() -> bool:
    return bool(_principal().key_id) and _principal().sandbox_id is None


def _starts() -> bool:
    is_start: Callable[[], bool] | None = getattr(
        current_app.view_functions.get(request.endpoint or ""), "is_start", None
    )
    return is_start is not None and is_start()


def count_failure() -> None:
    """Count a request with a wrong key or without a key.

    The guard calls this before it refuses with 401. Failures of others never refuse a valid key. Raises TooManyRequests
    if the address has too many failures, and one of UNAVAILABLE.
    """
    what = "requests of one address with a wrong key or without one"
    value = current_server().config.access.rate_limit_failures
    if limit := _limit("RATE_LIMIT_FAILURES", value, what, lambda: True):
        _count(limit, _address())
