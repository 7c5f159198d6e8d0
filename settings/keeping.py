"""The settings of stored conversations: for how long, and which ones are outside of Redis."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from core.origins import origin
from core.wire import has_tag
from settings import ConfigError, check_bounds, setting

_FORM = "COLD_URL must be file:///FOLDER or s3://BUCKET/PREFIX"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._-]*){0,20}")

_TERM = re.compile(r"(?P<name>[a-z0-9]+)(=(?P<value>.*))?:(?P<days>[0-9]{1,5}(\.[0-9]{1,6})?)")


class ObjectsPlace(NamedTuple):
    """The place of cold objects: a folder, or a prefix in a bucket."""

    bucket: str | None  #: None: a folder
    path: str  #: the absolute folder; or the prefix, which ends with a slash unless it is empty


@dataclass(frozen=True, slots=True)
class KeepingSettings:
    """Inactive conversations: how long they are stored, and where."""

    retention_days: float = setting(
        0.0,
        "Days without a change after which a conversation is deleted, with its sandbox if the "
        "sandbox has no other conversation; 0: never. A conversation that runs or waits is not "
        "deleted (docs/keeping.md).",
        least=0,
        most=36_500,
    )
    retention_tags: tuple[str, ...] = setting(
        (),
        "The days of conversations with a tag, separated by commas: `NAME:DAYS` or "
        "`NAME=VALUE:DAYS`, such as `trial:7,project=alpha:365,keep:0`. If several tags "
        "match, the longest time applies; 0: never.",
    )
    cold_url: str = setting(
        "",
        "Place for the events of inactive conversations: `file:///FOLDER` or "
        "`s3://BUCKET/PREFIX`. Every server and supervisor of a Redis needs the same value, and "
        "no other Redis may use the place (docs/keeping.md).",
    )
    cold_days: float = setting(
        0.0,
        "Days without a change after which supervisors move the events of a conversation from "
        "Redis to COLD_URL; 0: never, but moved events stay readable.",
        least=0,
        most=36_500,
    )
    cold_s3_endpoint: str = setting(
        "",
        "URL of the S3 service of COLD_URL if it is not in AWS' own variables, such as `http://minio:9000`.",
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        place = self.cold_place
        if self.cold_days and place is None:
            raise ConfigError("COLD_DAYS needs a COLD_URL")
        endpoint = self.cold_s3_endpoint
        if endpoint and not (endpoint.startswith(("http://", "https://")) and origin(endpoint)):
            raise ConfigError(f"COLD_S3_ENDPOINT must be a URL such as http://minio:9000, not {endpoint!r}")
        if place and place.bucket and find_spec("boto3") is None:
            raise ConfigError("COLD_URL with s3:// needs the package boto3: pip install -r requirements/s3.txt")
        for term in self.retention_tags:
            match = _TERM.fullmatch(term)
            if match is None or float(match["days"]) > 36_500:
                raise ConfigError(
                    f"RETENTION_TAGS must be NAME:DAYS or NAME=VALUE:DAYS with DAYS from 0 to 36500, not {term!r}"
                )

    @property
    def cold_place(self) -> ObjectsPlace | None:
        """Return the place of COLD_URL; None if it is unset. Raises ConfigError."""
        if not self.cold_url:
            return None
        try:
            url = urlsplit(self.cold_url)
        except ValueError:
            raise ConfigError(f"{_FORM}, not {self.cold_url!r}") from None
        folder, prefix = unquote(url.path), url.path.rstrip("/")
        if not url.query and not url.fragment:
            if url.scheme == "file" and not url.netloc and folder.strip("/") and _is_plain(folder):
                return ObjectsPlace(None, folder)
            if url.scheme == "s3" and _BUCKET.fullmatch(url.netloc) and _PREFIX.fullmatch(prefix):
                return ObjectsPlace(url.netloc, f"{prefix[1:]}/" if prefix else "")
        raise ConfigError(f"{_FORM}, not {self.cold_url!r}")

    def retention_of(self, tags: Mapping[str, str]) -> float:
        """Return the days for which a conversation with the tags is stored; 0: forever."""
        days = [float(term["days"]) for term in self._terms if has_tag(tags, term["name"], term["value"])]
        if not days:
            return self.retention_days
        return 0.0 if 0 in days else max(days)

    @property
    def shortest_retention(self) -> float:
        """Return the minimum retention of any conversation, in days; 0: none is deleted."""
        days = [self.retention_days, *(float(term["days"]) for term in self._terms)]
        return min(filter(None, days), default=0.0)

    @property
    def _terms(self) -> list[re.Match[str]]:
        return [match for term in self.retention_tags if (match := _TERM.fullmatch(term))]


def _is_plain(folder: str) -> bool:
    """Return whether a folder's path is absolute and unambiguous."""
    return folder.startswith("/") and "\0" not in folder and not {".", ".."} & set(folder.split("/"))
