"""The filters of count and search, applied to one event at a time: for streams in the order of appending."""

from typing import Any

from store.log.text import body_of, fold
from wire import Micros, bare_kind, micros


def passes(
    fields: dict[str, Any],
    *,
    kind: str | None = None,
    source: str | None = None,
    body: str | None = None,
    since: Micros | None = None,
    until: Micros | None = None,
) -> bool:
    """Whether an event, given as its members, passes every given filter. Source: docs/wire.md, 3."""
    if kind is not None and bare_kind(fields["kind"]) != kind:
        return False
    if source is not None and fields["source"] != source:
        return False
    if body is not None and not (bare_kind(fields["kind"]) == "MessageEvent" and fold(body) in fold(body_of(fields))):
        return False
    if since is None and until is None:
        return True
    at = micros(fields["timestamp"])
    return (since is None or at >= since) and (until is None or at < until)
