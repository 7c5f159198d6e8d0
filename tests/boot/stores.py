"""The embedded store of a folder, without a server around it, and what it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from boot.embedded import EmbeddedStore
from tests.servers import wait_until


@contextmanager
def store_of(folder: Path) -> Iterator[Redis]:
    """The embedded store of a folder. Raises RuntimeError with the sentence of a refusal."""
    store = EmbeddedStore(str(folder), 0)
    try:
        with Redis.from_url(store.url) as redis:
            yield redis
    finally:
        store.stop()


def heard(capfd, words: str) -> str:
    """All that is printed to standard error until it has these words."""
    printed = ""

    def has_words() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        return words in printed

    wait_until(has_words, f"the words {words!r}")
    return printed
