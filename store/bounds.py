"""The most that one response may hold, and the longest reason."""

from store.errors import ReasonTooLong

#: most bytes of the events of one page, and of one batch of ids: a client that takes nothing costs no more
PAGE_BYTES = 4 * 1024 * 1024

#: most events that one request of a search by `text` reads, and at most PAGE_BYTES of them
SEARCHED_EVENTS = 1000


def check_reason(reason: str, most_bytes: int) -> None:
    """most_bytes: of UTF-8. Raises ReasonTooLong."""
    if len(reason.encode("utf-8", "surrogatepass")) > most_bytes:
        raise ReasonTooLong(most_bytes)
