"""Lines of the log: for people at a terminal, and elsewhere as JSON, one object per line for any message.

LOG_FORMAT selects the form; `auto` decides by standard error. A line for people has time, level, source and message,
and then its fields. A line of JSON has these members:

| member                       | lines                                                                       |
|------------------------------|-----------------------------------------------------------------------------|
| time, level, logger, process | every line: UTC, a word such as `warning`, its source, its pid              |
| message                      | every line                                                                  |
| exception                    | a line about an error: the traceback                                        |
| request_id, conversation_id, | a line of a request, as far as known; in the access log also `status` and   |
| method, route                | `duration_ms`                                                               |

The URL of a socket or a stream may have its key or its ticket in the query, and the path of a one-time link has its
token. All three are masked. Lines of JSON are ASCII. Standard library only: the gunicorn master imports this module.
"""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from textwrap import indent
from typing import Any, TextIO
from urllib.parse import unquote_plus

from core.visible import visible
from core.wire import one_line, plain

#: Environment key where the app leaves the request's members for gunicorn's line of the access log.
ABOUT = "agent_server.about"

#: Query parameters that are equivalent to a key.
_SECRETS = ("session_api_key", "ticket")

_PARAMETER = re.compile(r"""(?<![^?&\s"'])([^=&?\s"']+)=([^&\s"']*)""")

#: The token of a one-time link in its path.
_TOKEN = re.compile(r"(?<=/approvals/)[^/?\s\"']+")


#: Escape sequences of a terminal, by purpose.
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_LEVELS = {"warning": "\x1b[33m", "error": "\x1b[1;31m", "critical": "\x1b[1;31m"}


class KeysMasked(logging.Filter):
    """Masks keys and tickets in logged URLs, even if the name of the parameter is encoded."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = masked(record.getMessage()), None
        return True


def masked(text: str) -> str:
    """Return a text with `***` in place of keys, tickets and tokens in its URLs."""
    text = _TOKEN.sub("***", text)
    return _PARAMETER.sub(lambda found: f"{found[1]}=***" if unquote_plus(found[1]) in _SECRETS else found[0], text)


class LineFormatter(logging.Formatter):
    """Common part of both forms of lines."""

    #: Returns the members of every line of the current request; set by the app.
    context: Callable[[], Mapping[str, Any]] = staticmethod(lambda: {})


class JsonLines(LineFormatter):
    """Writes a record as one line. A record's `fields` become members of the line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": masked(record.getMessage()),
            **(getattr(record, "fields", None) or self.context()),
        }
        if record.exc_info:
            line["exception"] = masked(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = masked(record.stack_info)
        return json.dumps(line, default=str)


class TextLines(LineFormatter):
    """Writes a record for people, as one line: no text in it can end the line, move a cursor or hide.

    The lines of a traceback follow, indented, so that they cannot look like a record.
    """

    def __init__(self, source: str, stream: TextIO) -> None:
        """source: name in the lines, such as the process's. stream: their destination, possibly a terminal."""
        super().__init__()
        self._source = source
        self._is_shown = is_terminal(stream)
        self._has_colours = self._is_shown and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None) or (self.context() if record.levelno >= logging.WARNING else {})
        line = self.line(record, readable(masked(record.getMessage())), fields)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            line += "\n" + _below(record.stack_info)
        return line

    def line(self, record: logging.LogRecord, message: str, fields: Mapping[str, Any]) -> str:
        """Format a line with a message, which is unchanged. A terminal only shows the time of day."""
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        time = at.strftime("%H:%M:%S") if self._is_shown else at.isoformat(timespec="seconds")
        level = record.levelname.lower()
        told = " ".join(f"{name}={readable(str(of))}" for name, of in fields.items() if of is not None)
        start = f"{self.colour(_DIM, time)} {self.colour(_LEVELS.get(level, _DIM), f'{level:<7}')}"
        return f"{start} {self.colour(_DIM, self._source)}: {message}" + (
            f"  {self.colour(_DIM, told)}" if told else ""
        )

    def colour(self, code: str, text: str) -> str:
        """Return a text in a colour, if the terminal has colours."""
        return f"{code}{text}{_PLAIN}" if self._has_colours else text

    def formatException(self, ei: Any) -> str:
        return _below(super().formatException(ei))


def _below(text: str) -> str:
    """Format the further lines of a record."""
    return indent(_printable(plain(masked(text))), "    ")


def readable(text: str) -> str:
    """Convert a text to one line of visible characters."""
    return _printable(one_line(text))


def _printable(plain_text: str) -> str:
    return plain_text if plain_text.isascii() else visible(plain_text)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
    with suppress(ValueError):  # it is closed
        return stream is not None and stream.isatty()
    return False


def is_json() -> bool:
    """Return whether lines are JSON, by LOG_FORMAT, which the settings check, or by standard error."""
    wanted = os.environ.get("LOG_FORMAT") or "auto"
    return not is_terminal(sys.stderr) if wanted == "auto" else wanted == "json"


def log_to_stderr(source: str, level: str | int) -> None:
    """Let all loggers of this process write to standard error. source: name in lines for people."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if is_json() else TextLines(source, sys.stderr))
    logging.basicConfig(level=level, handlers=[handler])
    if is_json():
        logging.captureWarnings(True)
        log = logging.getLogger("uncaught")
        sys.excepthook = lambda *error: log.critical("an error ends the process", exc_info=error)
        threading.excepthook = lambda end: log.error(
            "an error ends a thread", exc_info=(end.exc_type, end.exc_value or end.exc_type(), end.exc_traceback)
        )


def say(sentence: str, name: str = "agent-server") -> None:
    """Write a sentence for the operator to standard error, from a process without a logger.

    It never raises: a process that keeps other processes must not end because nobody reads this or a disk is full.
    """
    lines = JsonLines() if is_json() else TextLines(name, sys.stderr)
    record = logging.LogRecord(name, logging.INFO, __file__, 0, "%s", (sentence,), None)
    with suppress(OSError, ValueError):  # ValueError: standard error is closed
        print(lines.format(record), file=sys.stderr, flush=True)
