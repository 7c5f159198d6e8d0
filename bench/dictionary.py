"""Train a dictionary for `store/log/frames.py`:  python -m bench.dictionary NUMBER

The samples are the recorded conversations, with other ids, times and call ids, in both spacings of JSON. A dictionary
that a release has shipped is never written again: what was kept with it needs it.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

from zstandard import train_dictionary

_PROJECT = Path(__file__).parent.parent
_SHIPPED = _PROJECT / "store" / "log" / "dictionaries"
_RECORDED = _PROJECT / "tests" / "recorded"

#: bytes of a dictionary, and how often each recorded event is a sample
_SIZE, _COPIES = 8 * 1024, 20

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CALL = re.compile(r"call_[0-9a-f]{8}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")


def recorded() -> list[str]:
    """The events of the recorded conversations."""
    return [line for file in sorted(_RECORDED.glob("*.jsonl")) for line in file.read_text().splitlines()]


def varied(events: list[str], copies: int, seed: int) -> Iterator[bytes]:
    """Copies of these events, each copy with ids and times of its own, spaced and compact in turn."""
    random = Random(seed)
    for number in range(copies):
        ids: dict[str, str] = {}
        for text in events:
            for one in _UUID.findall(text):
                ids.setdefault(one, str(UUID(int=random.getrandbits(128), version=4)))
            text = _UUID.sub(partial(_other, ids), text)
            text = _CALL.sub(lambda _: f"call_{random.getrandbits(32):08x}", text)
            text = _TIME.sub(lambda _: _time(random), text)
            fields = json.loads(text)
            yield json.dumps(fields, ensure_ascii=False, separators=(",", ":") if number % 2 else None).encode()


def _other(ids: dict[str, str], found: re.Match[str]) -> str:
    return ids[found[0]]


def _time(random: Random) -> str:
    def two(least: int, most: int) -> str:
        return f"{random.randint(least, most):02}"

    day, clock = f"2026-{two(1, 12)}-{two(1, 28)}", f"{two(0, 23)}:{two(0, 59)}:{two(0, 59)}"
    return f"{day}T{clock}.{random.randint(0, 999_999):06}"


def main() -> int:
    """Write the dictionary; exit status 1 where there is one of that number."""
    options = argparse.ArgumentParser(prog="python -m bench.dictionary", description="Train a dictionary of events.")
    options.add_argument("number", type=int, choices=range(1, 256), metavar="NUMBER", help="1 to 255")
    number = options.parse_args().number
    file = _SHIPPED / f"{number}.zdict"
    if file.exists():
        print(f"{file} is there: events may be kept with it", file=sys.stderr)
        return 1
    samples: list[bytes | bytearray | memoryview[int]] = list(varied(recorded(), _COPIES, seed=number))
    file.write_bytes(train_dictionary(_SIZE, samples, dict_id=number, level=3).as_bytes())
    print(f"{file}: {file.stat().st_size:,} bytes of {len(samples):,} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
