"""Lines of the log: without keys, and as JSON where LOG_FORMAT=json, one object a line whatever is in a message.

| member                       | of                                                                          |
|------------------------------|-----------------------------------------------------------------------------|
| time, level, logger, process | every line: UTC, a word such as `warning`, where it comes from, its pid     |
| message                      | every line                                                                  |
| exception                    | a line about an error: the traceback                                        |
| request_id, conversation_id, | a line that a request caused, as far as they are known; of the access log   |
| method, route                | also `status` and `duration_ms`                                             |

A socket or a stream may bear its key or its ticket in the query of its URL, and the path of a one-time link has the
token that opens it: these are masked. Lines of JSON are ASCII. The gunicorn master loads this: standard library only.
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
from typing import Any
from urllib.parse import unquote_plus

from core.wire import one_line, plain

#: where the app leaves the members about a request, for the line of the access log that gunicorn writes after it
ABOUT = "agent_server.about"

#: parameters of a query that are as good as a key
_SECRETS = ("session_api_key", "ticket")

_PARAMETER = re.compile(r"""(?<![^?&\s"'])([^=&?\s"']+)=([^&\s"']*)""")

#: the token of a one-time link in its path
_TOKEN = re.compile(r"(?<=/approvals/)[^/?\s\"']+")


class KeysMasked(logging.Filter):
    """Replaces keys and tickets in the URLs of what is logged, also where the name of the parameter is encoded."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = masked(record.getMessage()), None
        return True


def masked(text: str) -> str:
    """A text whose URLs bear `***` instead of a key, a ticket or a token."""
    text = _TOKEN.sub("***", text)
    return _PARAMETER.sub(lambda found: f"{found[1]}=***" if unquote_plus(found[1]) in _SECRETS else found[0], text)


class JsonLines(logging.Formatter):
    """Writes a record as one line. A record's `fields` are members of the line."""

    #: the members of every line that the present request causes; the app sets it
    context: Callable[[], Mapping[str, Any]] = staticmethod(lambda: {})

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


def is_json() -> bool:
    """Whether LOG_FORMAT asks for JSON; gunicorn's master has checked its value."""
    return os.environ.get("LOG_FORMAT") == "json"


def log_to_stderr(text: logging.Formatter, level: str | int, *, as_json: bool) -> None:
    """Have all loggers of this process write to the standard error, as text in a format of their own, or as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else text)
    logging.basicConfig(level=level, handlers=[handler])
    if as_json:
        logging.captureWarnings(True)
        log = logging.getLogger("uncaught")
        sys.excepthook = lambda *error: log.critical("an error ends the process", exc_info=error)
        threading.excepthook = lambda end: log.error(
            "an error ends a thread", exc_info=(end.exc_type, end.exc_value or end.exc_type(), end.exc_traceback)
        )


def say(sentence: str, name: str = "agent-server") -> None:
    """Write a sentence for the operator to the standard error, from a process that has no logger.

    Nothing is raised where nobody reads it, or its disk is full: whoever keeps other processes must not end by that.
    """
    line = f"{name}: {sentence}"
    if is_json():
        record = logging.LogRecord(name, logging.INFO, __file__, 0, sentence, None, None)
        line = JsonLines().format(record)
    with suppress(OSError, ValueError):  # ValueError: the standard error is closed
        print(line, file=sys.stderr, flush=True)


class LogLines(logging.Formatter):
    """A message is one plain line; the lines of a traceback are indented, so none can pass for a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return indent(plain(super().formatException(ei)), "    ")
