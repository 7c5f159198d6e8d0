"""The format of a supervisor's log: one line per record, also with text of sandboxes, engines and agents in it."""

import logging
from textwrap import indent
from typing import Any

from wire import one_line, plain


class LogLines(logging.Formatter):
    """A message is one plain line; the lines of a traceback are indented, so none can pass for a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return indent(plain(super().formatException(ei)), "    ")
