"""Measure and print the figures; a whole run writes the page:  python -m bench [--quick] [--json FILE] [SUBJECT …]"""

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from bench import agents, distance, events, inbox, matcher, measure, memory, rehearsal, sandboxes, soak, sockets, tails
from bench.measure import QUICK, Effort

_SUBJECTS = {
    "count": events.count,
    "pages": events.pages,
    "tails": tails.tails,
    "histogram": events.histogram,
    "keys": events.keys,
    "body": events.body,
    "append": events.append,
    "distance": distance.distance,
    "memory": memory.memory,
    "cold": memory.cold,
    "sockets": sockets.sockets,
    "besieged": tails.besieged,
    "soak": soak.soak,
    "inbox": inbox.pages,
    "inbox-streams": inbox.streams,
    "notifications": inbox.notifications,
    "rehearsal": rehearsal.rehearsal,
    "matcher": matcher.lines,
    "sandboxes": sandboxes.sandboxes,
    "warm": sandboxes.warm,
    "agents": agents.agents,
}


def main() -> int:
    """Run the given subjects. A missed target is not a failure. Only a run of all subjects writes the page."""
    options = argparse.ArgumentParser(prog="python -m bench", description="Measure the server; prints ratios.")
    options.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(_SUBJECTS)}; all by default")
    options.add_argument("--json", type=Path, metavar="FILE", help="write every figure to a file")
    options.add_argument("--quick", action="store_true", help="test the bench itself: the figures mean nothing")
    given = options.parse_args()
    if unknown := set(given.subjects) - set(_SUBJECTS):
        options.error(f"unknown subject: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _end)
    measured_on = measure.machine()
    effort, rows = QUICK if given.quick else Effort(), []
    try:
        for name in given.subjects or _SUBJECTS:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            began = time.monotonic()
            rows += _SUBJECTS[name](effort)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    finally:  # keep earlier subjects if one fails
        measured_on["load after"] = measure.load()
        print(measure.table(rows))
        if given.json:
            measure.write_json(given.json, rows, measured_on)
    if not given.quick and not given.subjects:
        measure.write(rows, measured_on)
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit("bench: ended by a signal")  # an exception, so that the servers are ended too


if __name__ == "__main__":
    sys.exit(main())
