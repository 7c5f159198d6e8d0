"""Where the events of cold conversations lie: a folder, or a bucket of S3, as ARCHIVE_URL says.

`store/conversations/cold.py` says what each place does. Source: docs/keeping.md.
"""

from importlib import import_module

from objects.folder import Folder
from settings.archive import ArchiveSettings
from store.conversations.cold import Objects


def open_objects(settings: ArchiveSettings) -> Objects | None:
    """The place that the settings name; None where they name none.

    A folder is made where it is missing; nothing is sent to S3. Raises ConfigError.
    """
    place = settings.archive_place
    if place is None:
        return None
    if place.bucket is None:
        return Folder(place.path)
    # boto3 takes memory and a part of a second, which only a server with a bucket shall spend.
    bucket: Objects = import_module("objects.s3").Bucket(place.bucket, place.path, settings.archive_s3_endpoint)
    return bucket
