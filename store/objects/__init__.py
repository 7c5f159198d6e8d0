"""The places of cold conversations' events: a folder, or a bucket of S3, as COLD_URL says.

`Objects` in `store/conversations/cold.py` is their interface. Source: docs/keeping.md. An object in a folder is written
to a temporary file, synced, and then renamed: its name has all of it, or nothing.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from settings import ConfigError
from settings.data_dir import make_private
from settings.keeping import KeepingSettings
from store.conversations.cold import ObjectMissing, Objects, ObjectsAway
from telemetry.meter import Meter

#: Maximum size of an object, in bytes.
MOST_BYTES = 1024 * 1024 * 1024

#: A name is not a path, and differs from the names of temporary files.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,199}")


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_KNOWN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_name(text: str) -> bool:
    """Return whether an object may have this name: 1 to 200 letters, digits and hyphens, the first no hyphen."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> None:
    """Raise ValueError unless an object may have this name."""
    if not is_name(text):
        raise ValueError(f"The name of an object must be 1 to 200 letters, digits and hyphens, not {text!r}")


class ObjectFolder:
    """A folder of objects, which only its owner may read.

    If the folder itself is missing, the place is unavailable, and its objects do not count as missing.
    """

    def __init__(self, path: str) -> None:
        """path: absolute; a missing folder is created. Raises ConfigError."""
        self._folder = Path(path)
        try:
            make_private(self._folder)
            self._check_writable()
        except OSError as error:
            raise ConfigError(f"The folder {path} of COLD_URL cannot be used: {error.strerror}") from None

    def put(self, name: str, content: bytes) -> None:
        """Store an object. Returns after the object and its name are on the disk. Raises ObjectsAway."""
        file, part = self._files_of(name)
        with self._reached():
            try:
                with os.fdopen(os.open(part, _NEW, 0o600), "wb") as output:
                    output.write(content)
                    output.flush()
                    os.fsync(output.fileno())
                part.rename(file)
                self._sync()
            except OSError:
                with suppress(OSError):
                    part.unlink()
                raise

    def get(self, name: str) -> bytes:
        """Return an object. Raises ObjectMissing, ObjectsAway."""
        file, _ = self._files_of(name)
        with self._reached():
            try:
                with open(file, "rb", opener=lambda name, _: os.open(name, _KNOWN)) as source:
                    if os.fstat(source.fileno()).st_size > MOST_BYTES:
                        raise ObjectsAway(f"the file {file} has more than {MOST_BYTES} bytes")
                    return source.read()
            except FileNotFoundError:
                self._folder.stat()  # raises if the folder itself is missing
                raise ObjectMissing(name) from None

    def delete(self, name: str) -> None:
        """Delete an object, and the temporary file of an interrupted `put`. Raises ObjectsAway."""
        with self._reached():
            self._folder.stat()
            for file in self._files_of(name):
                file.unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """Return the names of all objects, in no order. Raises ObjectsAway."""
        with self._reached(), os.scandir(self._folder) as entries:
            for entry in entries:
                if is_name(entry.name):
                    yield entry.name

    def _files_of(self, name: str) -> tuple[Path, Path]:
        """Return an object's file, and its temporary file. Raises ValueError."""
        check_name(name)
        return self._folder / name, self._folder / f".{name}.part"

    def _check_writable(self) -> None:
        probe = self._folder / ".writable"
        os.close(os.open(probe, _NEW, 0o600))
        probe.unlink(missing_ok=True)  # two processes may start at once

    def _sync(self) -> None:
        """Sync the folder's list of names."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn OSError into ObjectsAway."""
        try:
            yield
        except OSError as error:
            raise ObjectsAway(f"the folder {self._folder}: {error.strerror}") from error


class Metered:
    """A place that reports the outcomes of its calls to a meter."""

    def __init__(self, place: Objects, meter: Meter) -> None:
        self._place = place
        self._meter = meter

    def put(self, name: str, content: bytes) -> None:
        with self._counted("put"):
            self._place.put(name, content)

    def get(self, name: str) -> bytes:
        with self._counted("get"):
            return self._place.get(name)

    def delete(self, name: str) -> None:
        with self._counted("delete"):
            self._place.delete(name)

    def names(self) -> Iterator[str]:
        """Return the names of all objects; not counted."""
        return self._place.names()

    @contextmanager
    def _counted(self, verb: str) -> Iterator[None]:
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        except ObjectMissing:
            outcome = "missing"
            raise
        finally:
            self._meter.count_object(verb, outcome)


def open_objects(settings: KeepingSettings) -> Objects | None:
    """Open the place that the settings name; None if they name none.

    A missing folder is created. Nothing is sent to S3. Raises ConfigError.
    """
    place = settings.cold_place
    if place is None:
        return None
    if place.bucket is None:
        return ObjectFolder(place.path)
    # boto3 takes memory and a part of a second, so only a server with a bucket imports it.
    bucket: Objects = import_module("store.objects.s3").Bucket(place.bucket, place.path, settings.cold_s3_endpoint)
    return bucket
