"""Rate limits by Flask-Limiter: a window begins with its first request, and a request beyond its limit gets 429.

| setting               | counts                                       | of one                                  |
|-----------------------|----------------------------------------------|-----------------------------------------|
| `RATE_LIMIT_WRITES`   | POST, PUT, PATCH, DELETE                     | key; no key, no limit                   |
| `RATE_LIMIT_READS`    | all others                                   | key; no key, no limit                   |
| `RATE_LIMIT_STARTS`   | operations that `Blueprint.starts` declares  | key, or address where no key is shown   |
| `RATE_LIMIT_FAILURES` | requests with a wrong key or without one     | address                                 |

Webhooks and the keys of sandboxes are exempt: other bounds hold for what an agent posts. While the store does not
answer, a limited request gets 503 at once: otherwise it would fail when it needs the store, after another timeout.
"""

import math
import time
from collections.abc import Callable

from flask import Flask, current_app, g, request
from flask.typing import ResponseReturnValue
from flask_limiter import ApplicationLimit, Limiter, RateLimitExceeded
from limits import RateLimitItem, parse
from limits.storage import Storage
from werkzeug.exceptions import TooManyRequests

from core.access import NOBODY, Principal
from store.access import Counters
from store.errors import UNAVAILABLE

#: the value of a setting without a limit
NO_LIMIT = "none"

_READING = ("GET", "HEAD", "OPTIONS")


class CounterStorage(Storage):
    """The store as Flask-Limiter wants it: on the store's own connections, whatever the topology of Redis."""

    STORAGE_SCHEME = ["counters"]

    def __init__(self, uri: str | None = None, *, counters: Counters) -> None:
        super().__init__(uri)
        self._counters = counters

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        return UNAVAILABLE

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count hits in a window of `expiry` seconds. Raises one of UNAVAILABLE, which fails the request with 503."""
        return self._counters.hit(key, expiry, amount)

    def get(self, key: str) -> int:
        return self._counters.hits(key)

    def get_expiry(self, key: str) -> float:
        """The end of the window, in seconds since 1970; now, while the store does not answer."""
        try:
            return time.time() + self._counters.seconds_left(key)
        except UNAVAILABLE:
            return time.time()

    def check(self) -> bool:
        return True

    def reset(self) -> None:
        """Nothing: windows end by themselves."""

    def clear(self, key: str) -> None:
        self._counters.forget(key)


def register_rates(app: Flask) -> None:
    """Limit the app's requests; the guard must have been registered before."""
    writes = _limit(app, "RATE_LIMIT_WRITES", "writing requests with one key", lambda: _reads() or _has_no_key())
    reads = _limit(app, "RATE_LIMIT_READS", "reading requests with one key", lambda: not _reads() or _has_no_key())
    starts = _limit(app, "RATE_LIMIT_STARTS", "starts of one client", _starts_nothing)
    limiter = Limiter(
        _client,
        storage_uri="counters://",
        storage_options={"counters": app.extensions["store"].access.counters},
        strategy="fixed-window",
        application_limits=[limit for limit in (writes, reads, starts) if limit],
    )
    # Flask-Limiter adds its hooks to its app: 50 µs a read, even if no limit applies to it. So its app here is one that
    # serves nothing, and its check is called only for requests that a limit may apply to.
    hooks = Flask("rates", static_folder=None)
    limiter.init_app(hooks)
    [check] = hooks.before_request_funcs[None]
    app.extensions["rates"] = limiter

    @app.before_request
    def check_rates() -> ResponseReturnValue | None:
        if (reads is None and _reads()) or request.blueprint == "Webhooks":
            return None
        return check()  # type: ignore[return-value]


def _limit(app: Flask, setting: str, what: str, exempt_when: Callable[[], bool]) -> ApplicationLimit | None:
    value = app.config[setting]
    if value == NO_LIMIT:
        return None
    words = f"At most {value} {what} ({setting})"
    return ApplicationLimit(value, scope=setting, error_message=words, exempt_when=exempt_when)


def _principal() -> Principal:
    principal: Principal = g.get("principal", NOBODY)
    return principal


def _address() -> str:
    return f"address {request.remote_addr}"


def _client() -> str:
    return f"key {_principal().key_id}" if _principal().key_id else _address()


def _reads() -> bool:
    return request.method in _READING


def _has_no_key() -> bool:
    return not _principal().key_id or _principal().sandbox_id is not None


def _starts_nothing() -> bool:
    is_start: Callable[[], bool] | None = getattr(
        current_app.view_functions.get(request.endpoint or ""), "is_start", None
    )
    return is_start is None or not is_start()


def as_too_many(exceeded: RateLimitExceeded) -> TooManyRequests:
    """The error of a limit, with the time of its window's end. Cost: one round trip, for refused requests alone."""
    limiter: Limiter = current_app.extensions["rates"]
    counted = limiter.current_limit
    end = limiter.storage.get_expiry(counted.key) if counted else 0
    return TooManyRequests(exceeded.description, retry_after=_seconds(end))


def count_failure() -> None:
    """Count that the present request shows a wrong key or none. Raises TooManyRequests where its address has too many,
    and one of UNAVAILABLE.

    The guard calls it before it refuses with 401. A right key is never refused for the failures of others.
    """
    setting, limiter = "RATE_LIMIT_FAILURES", current_app.extensions["rates"]
    value = current_app.config[setting]
    limit: RateLimitItem | None = None if value == NO_LIMIT else parse(value)
    if limit and not limiter.limiter.hit(limit, _address(), setting):
        words = f"At most {value} requests of one address with a wrong key or without one ({setting})"
        end = limiter.storage.get_expiry(limit.key_for(_address(), setting))
        raise TooManyRequests(words, retry_after=_seconds(end))


def _seconds(end: float) -> int:
    return max(1, math.ceil(end - time.time()))
