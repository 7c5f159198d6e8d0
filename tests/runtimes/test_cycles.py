"""A hundred pauses and resumes leave files, memory and a counter in the background as they would be without any."""

import hashlib
from functools import partial
from pathlib import Path
from random import Random

import pytest

from runtimes import ProcessState
from tests.runtimes.test_process import python, runtime
from tests.servers import wait_until

pytestmark = pytest.mark.process("pauses and resumes a sandbox a hundred times")

__all__ = ["runtime"]

CYCLES = 100
SEED, BYTES = b"what memory holds", 1 << 20

#: a parent that keeps a MiB in memory and says its digest when it is asked to; its child counts into a file
WORK = f"""
import hashlib, os, pathlib, random, sys, time
kept = bytearray(random.Random({SEED!r}).randbytes({BYTES}))
if os.fork() == 0:
    os.setsid()
    number = 0
    with open("counter", "w") as file:
        while True:
            number += 1
            file.write(f"{{number}}\\n")
            file.flush()
            time.sleep(0.002)
while not pathlib.Path("asked").exists():
    time.sleep(0.01)
pathlib.Path("digest.new").write_text(hashlib.sha256(kept).hexdigest())
os.rename("digest.new", "digest")
time.sleep(600)
"""


@pytest.fixture
def handle(runtime):
    return runtime.start(python(WORK))


@pytest.fixture
def work(handle) -> Path:
    """The folder that the sandbox works in."""
    return Path(handle["working_dir"])


def counted(work: Path) -> list[bytes]:
    return (work / "counter").read_bytes().splitlines()


def counts_on(work: Path, after: int) -> bool:
    return len(counted(work)) > after


def test_a_hundred_cycles_lose_no_number_of_a_counter_no_byte_of_memory_and_no_file(runtime, handle, work):
    wait_until(partial(counts_on, work, 0), "the counter")

    for cycle in range(CYCLES):
        runtime.pause(handle)
        assert runtime.observe(handle).state is ProcessState.PAUSED
        before = (work / "counter").read_bytes()
        assert runtime.observe(handle).state is ProcessState.PAUSED
        assert (work / "counter").read_bytes() == before
        runtime.resume(handle)
        if cycle % 20 == 0:  # it goes on
            wait_until(partial(counts_on, work, len(before.splitlines())), "the next number")

    runtime.pause(handle)
    numbers = counted(work)
    assert numbers == [b"%d" % number for number in range(1, len(numbers) + 1)]
    runtime.resume(handle)
    (work / "asked").touch()
    wait_until((work / "digest").exists, "the digest")
    assert (work / "digest").read_text() == hashlib.sha256(Random(SEED).randbytes(BYTES)).hexdigest()
