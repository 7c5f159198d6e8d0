"""Searches files whose names come from standard input, NUL after each, by the regular expression of the command line.

Prints FILE, NUL, NUMBER:LINE for each line that matches, as ripgrep does with --null. A program of its own, because an
expression may take for ever and holds the interpreter meanwhile.
"""

import os
import re
import sys
from contextlib import suppress

#: maximum size of a file that is searched, and maximum length of a line that is shown, in bytes
MOST_FILE, MOST_LINE = 16 << 20, 400


def main() -> None:
    pattern = re.compile(sys.argv[1].encode())
    for name in sys.stdin.buffer.read().split(b"\0"):
        with suppress(OSError):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(file, "rb") as opened:
                content = opened.read(MOST_FILE)
            if b"\0" not in content[:8192]:
                for number, line in enumerate(content.split(b"\n"), 1):
                    if pattern.search(line):
                        sys.stdout.buffer.write(b"%b\0%d:%b\n" % (name, number, line[:MOST_LINE]))


if __name__ == "__main__":
    main()
