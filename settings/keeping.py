"""The settings about conversations that are kept, and for how long. A part of `config.Config`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from settings import ConfigError
from settings import setting as _setting
from settings.archive import ArchiveSettings

_TERM = re.compile(r"(?P<name>[a-z0-9]+)(=(?P<value>.*))?:(?P<days>[0-9]{1,5}(\.[0-9]{1,6})?)")


@dataclass(frozen=True)  # without slots: Config has several parts, and Python joins the slots of one alone
class KeepingSettings(ArchiveSettings):
    """What `config.Config` has of it. The name of a setting is its field's name in capitals."""

    max_import_bytes: int = _setting(
        2 * 1024 * 1024 * 1024, "Largest import of a conversation, in bytes; a longer one gets 413.", least=1024
    )
    retention_days: float = _setting(
        0.0,
        "Days without a change after which a conversation is deleted, with its sandbox if that has no other; 0: it is "
        "kept. None that runs or waits is deleted (docs/keeping.md).",
        least=0,
        most=36_500,
    )
    retention_tags: tuple[str, ...] = _setting(
        (),
        "The same days of conversations with a tag, with commas: `NAME:DAYS` or `NAME=VALUE:DAYS`, such as "
        "`trial:7,project=alpha:365,keep:0`. Of several the longest counts, and 0 is longest.",
    )

    def check_keeping(self) -> None:
        """Raises ConfigError."""
        self.check_archive()
        for term in self.retention_tags:
            match = _TERM.fullmatch(term)
            if match is None or float(match["days"]) > 36_500:
                raise ConfigError(
                    f"RETENTION_TAGS must be NAME:DAYS or NAME=VALUE:DAYS with DAYS from 0 to 36500, not {term!r}"
                )

    def retention_of(self, tags: Mapping[str, str]) -> float:
        """The days for which a conversation with these tags is kept; 0: for ever."""
        days = [float(term["days"]) for term in self._terms if _has(tags, term["name"], term["value"])]
        if not days:
            return self.retention_days
        return 0.0 if 0 in days else max(days)

    @property
    def shortest_retention(self) -> float:
        """The least days for which any conversation is kept; 0: none is deleted."""
        days = [self.retention_days, *(float(term["days"]) for term in self._terms)]
        return min(filter(None, days), default=0.0)

    @property
    def _terms(self) -> list[re.Match[str]]:
        return [match for term in self.retention_tags if (match := _TERM.fullmatch(term))]


def _has(tags: Mapping[str, str], name: str, value: str | None) -> bool:
    return name in tags and value in (None, tags[name])
