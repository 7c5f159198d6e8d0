"""Measure and print the figures; a whole run writes the page:  python -m bench [--quick] [--json FILE] [SUBJECT …]"""

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from bench import (
    append,
    body,
    cold,
    count,
    crowds,
    curves,
    histogram,
    inbox_pages,
    inbox_streams,
    keys,
    memory,
    notifications,
    pages,
    peer,
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
    "peer": peer.rows,
    "histogram": histogram.rows,
    "keys": keys.rows,
    "body": body.rows,
    "append": append.rows,
    "memory": memory.rows,
    "cold": cold.rows,
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

_CURVES = {
    "log-size": curves.log_size,
    "text-size": curves.text_size,
    "batch-size": curves.batch_size,
    "socket-number": curves.socket_number,
    "memory-layout": curves.memory_layout,
    "conversation-number": curves.conversation_number,
}


def main() -> int:
    """Run the given subjects and curves; a missed target is no failure. Only a run of all writes the page."""
    known = [*_SUBJECTS, *_CURVES]
    options = argparse.ArgumentParser(prog="python -m bench", description="Measure the server; prints ratios.")
    options.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(known)}; all by default")
    options.add_argument("--json", type=Path, metavar="FILE", help="write every figure to a file")
    options.add_argument("--quick", action="store_true", help="a test of the bench: the figures mean nothing")
    given = options.parse_args()
    if unknown := set(given.subjects) - set(known):
        options.error(f"unknown subject: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _end)
    measured_on = report.machine()
    effort, rows, found = QUICK if given.quick else Effort(), [], []
    for name in given.subjects or known:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        if name in _SUBJECTS:
            rows += _SUBJECTS[name](effort)
        else:
            found.append(_CURVES[name](effort))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    measured_on["load after"] = report.load()
    print("\n\n".join([*([report.table(rows)] if rows else []), *map(report.points, found)]))
    if given.json:
        report.write_json(given.json, rows, found, measured_on)
    if not given.quick and not given.subjects:
        report.write(rows, found, measured_on)
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit("bench: ended by a signal")  # an exception, so that the servers are ended too


if __name__ == "__main__":
    sys.exit(main())
