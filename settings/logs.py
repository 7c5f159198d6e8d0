"""The settings about logs. A part of `config.Config`."""

from dataclasses import dataclass

from settings import setting as _setting


@dataclass(frozen=True)  # without slots: Config has two parts, and Python joins the slots of one alone
class LogSettings:
    """What `config.Config` has of logs. The name of a setting is its field's name in capitals."""

    log_level: str = _setting(
        "info",
        "`debug`, `info`, `warning`, `error` or `critical`.",
        choices=("debug", "info", "warning", "error", "critical"),
    )
    log_format: str = _setting(
        "text",
        "`json`: every line of the standard error is one JSON object (docs/monitoring.md); `text`: lines for people.",
        choices=("text", "json"),
    )
