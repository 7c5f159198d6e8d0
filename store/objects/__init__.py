"""Where the events of cold conversations lie: a folder, or a bucket of S3, as COLD_URL says.

`store/conversations/cold.py` says what each place does. Source: docs/keeping.md.
"""

from collections.abc import Iterator
from importlib import import_module

from settings.keeping import ColdSettings
from store.conversations.cold import ObjectMissing, Objects
from store.objects.folder import Folder
from telemetry.meter import Meter


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


def open_objects(settings: ColdSettings) -> Objects | None:
    """The place that the settings name; None where they name none.

    A folder is made where it is missing; nothing is sent to S3. Raises ConfigError.
    """
    place = settings.cold_place
    if place is None:
        return None
    if place.bucket is None:
        return Folder(place.path)
    # boto3 takes memory and a part of a second, which only a server with a bucket shall spend.
    bucket: Objects = import_module("store.objects.s3").Bucket(place.bucket, place.path, settings.cold_s3_endpoint)
    return bucket
