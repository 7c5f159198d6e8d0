"""One line of the log per record, with any text."""

import logging
import sys

from supervisor.log_lines import LogLines


def formatted(message: str, exc_info=None) -> str:
    record = logging.LogRecord("supervisor", logging.WARNING, __file__, 1, "%s", (message,), exc_info)
    return LogLines("[7] [supervisor] %(message)s").format(record)


def test_a_message_with_line_ends_and_escape_codes_is_one_plain_line():
    line = formatted("said:\r\n[1] [supervisor] forged\x1b[31m red\x1b]0;title\x07\x00")
    assert line == "[7] [supervisor] said: [1] [supervisor] forged red"


def test_no_line_of_a_traceback_looks_like_a_log_record():
    try:
        raise ValueError("oh\n[1] [supervisor] forged\x1b[31m")
    except ValueError:
        lines = formatted("failed", sys.exc_info()).splitlines()

    assert lines[0] == "[7] [supervisor] failed"
    assert all(line.startswith("    ") for line in lines[1:])
    assert "    [1] [supervisor] forged" in lines
