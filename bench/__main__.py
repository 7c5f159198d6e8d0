"""Measure, print the table and write it to a file:  python -m bench [--quick] [SUBJECT …]"""

import argparse
import signal
import sys
from types import FrameType

from bench import (
    append,
    body,
    count,
    crowds,
    histogram,
    inbox_pages,
    inbox_streams,
    keys,
    memory,
    notifications,
    pages,
    report,
    rests,
    sandboxes,
    sockets,
    timeline,
    units,
    warm,
)
from bench.measure import QUICK, Effort

_SUBJECTS = {
    "count": count.rows,
    "pages": pages.rows,
    "histogram": histogram.rows,
    "keys": keys.rows,
    "body": body.rows,
    "append": append.rows,
    "memory": memory.rows,
    "sockets": sockets.rows,
    "crowds": crowds.rows,
    "inbox": inbox_pages.rows,
    "inbox-streams": inbox_streams.rows,
    "notifications": notifications.rows,
    "sandboxes": sandboxes.rows,
    "rests": rests.rows,
    "warm": warm.rows,
    "timeline": timeline.rows,
    "units": units.rows,
}


def main() -> int:
    """Run the given subjects; a missed target is no failure. Only a run of all subjects is written to a file."""
    options = argparse.ArgumentParser(prog="python -m bench", description="Measure the server; prints ratios.")
    options.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(_SUBJECTS)}; all by default")
    options.add_argument("--quick", action="store_true", help="a test of the bench: the figures mean nothing")
    given = options.parse_args()
    if unknown := set(given.subjects) - set(_SUBJECTS):
        options.error(f"unknown subject: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _end)
    measured_on = report.machine()
    rows = []
    for name in given.subjects or _SUBJECTS:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        rows += _SUBJECTS[name](QUICK if given.quick else Effort())
    print(report.table(rows))
    if not given.quick and not given.subjects:
        report.write(rows, measured_on)
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit("bench: ended by a signal")  # an exception, so that the servers are ended too


if __name__ == "__main__":
    sys.exit(main())
