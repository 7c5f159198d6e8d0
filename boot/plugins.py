"""gevent's patches without its long search for plugins."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata


@contextmanager
def looked_up_once() -> Iterator[None]:
    """While the block patches: gevent asks for its plugins twenty-five times, and gets them from one look.

    Each time Python would read the metadata of every installed package: a third of a second of a start where there are
    170 of them.
    """
    look_up, found = metadata.entry_points, metadata.entry_points()
    metadata.entry_points = found.select
    try:
        yield
    finally:
        metadata.entry_points = look_up
