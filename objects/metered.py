"""A place of objects whose calls are counted."""

from collections.abc import Iterator

from meter import Meter
from store.conversations.cold import ObjectMissing, Objects


class Metered:
    """A place that tells a meter how its calls end."""

    def __init__(self, place: Objects, meter: Meter) -> None:
        self._place = place
        self._meter = meter

    def put(self, name: str, content: bytes) -> None:
        """As the place does it."""
        outcome = "failed"
        try:
            self._place.put(name, content)
            outcome = "ok"
        finally:
            self._meter.count_object("put", outcome)

    def get(self, name: str) -> bytes:
        """As the place does it."""
        outcome = "failed"
        try:
            content = self._place.get(name)
            outcome = "ok"
        except ObjectMissing:
            outcome = "missing"
            raise
        finally:
            self._meter.count_object("get", outcome)
        return content

    def delete(self, name: str) -> None:
        """As the place does it."""
        outcome = "failed"
        try:
            self._place.delete(name)
            outcome = "ok"
        finally:
            self._meter.count_object("delete", outcome)

    def names(self) -> Iterator[str]:
        """As the place does it; not counted."""
        return self._place.names()
