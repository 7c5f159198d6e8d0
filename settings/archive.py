"""The settings about conversations that rest outside Redis. A part of `config.Config`."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from origins import origin
from settings import ConfigError
from settings import setting as _setting

_FORM = "ARCHIVE_URL must be file:///FOLDER or s3://BUCKET/PREFIX"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._-]*){0,20}")


class Place(NamedTuple):
    """Where objects lie: a folder, or a prefix in a bucket."""

    bucket: str | None  #: None: it is a folder
    path: str  #: the folder, absolute; or the prefix, which ends with a slash unless it is empty


@dataclass(frozen=True)  # without slots: Config has several parts, and Python joins the slots of one alone
class ArchiveSettings:
    """What `config.Config` has of it. The name of a setting is its field's name in capitals."""

    archive_url: str = _setting(
        "",
        "Where the events of conversations lie that rest: `file:///FOLDER` or `s3://BUCKET/PREFIX`. Every server and "
        "supervisor of one Redis needs the same, and no other Redis may use it (docs/keeping.md).",
    )
    archive_days: float = _setting(
        0.0,
        "Days without a change after which supervisors move the events of a conversation from Redis to ARCHIVE_URL; "
        "0: none is moved, and those that were stay readable.",
        least=0,
        most=36_500,
    )
    archive_max_bytes: int = _setting(
        256 * 1024 * 1024,
        "A conversation that takes more bytes of Redis' memory than this stays there.",
        least=1024,
        most=512 * 1024 * 1024,
    )
    archive_s3_endpoint: str = _setting(
        "",
        "The S3 of an ARCHIVE_URL with `s3://` where it is not that of AWS' own variables: a URL such as "
        "`http://minio:9000`.",
    )

    def check_archive(self) -> None:
        """Raises ConfigError."""
        place = self.archive_place
        if self.archive_days and place is None:
            raise ConfigError("ARCHIVE_DAYS needs an ARCHIVE_URL")
        endpoint = self.archive_s3_endpoint
        if endpoint and not (endpoint.startswith(("http://", "https://")) and origin(endpoint)):
            raise ConfigError(f"ARCHIVE_S3_ENDPOINT must be a URL such as http://minio:9000, not {endpoint!r}")
        if place and place.bucket and find_spec("boto3") is None:
            raise ConfigError("ARCHIVE_URL with s3:// needs the package boto3: pip install -r requirements-s3.txt")

    @property
    def archive_place(self) -> Place | None:
        """The place of ARCHIVE_URL; None where it is not set. Raises ConfigError."""
        if not self.archive_url:
            return None
        try:
            url = urlsplit(self.archive_url)
        except ValueError:
            raise ConfigError(f"{_FORM}, not {self.archive_url!r}") from None
        folder, prefix = unquote(url.path), url.path.rstrip("/")
        if not url.query and not url.fragment:
            if url.scheme == "file" and not url.netloc and folder.strip("/") and _is_plain(folder):
                return Place(None, folder)
            if url.scheme == "s3" and _BUCKET.fullmatch(url.netloc) and _PREFIX.fullmatch(prefix):
                return Place(url.netloc, f"{prefix[1:]}/" if prefix else "")
        raise ConfigError(f"{_FORM}, not {self.archive_url!r}")


def _is_plain(folder: str) -> bool:
    """Whether a folder's path is absolute, and the same however it is read."""
    return folder.startswith("/") and "\0" not in folder and not {".", ".."} & set(folder.split("/"))
