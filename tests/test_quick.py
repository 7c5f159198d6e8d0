"""A quick test that does what depends on luck is refused, in a sentence that names the mark."""

import socket
import subprocess
import threading
import time

import pytest

from tests import quick


def connect() -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 2))


#: what a quick test must not do, by what the sentence says of it
DEEDS = {
    "starts a program": lambda: subprocess.run(["true"], check=True),
    "starts a thread": lambda: threading.Thread(target=int).start(),
    "sleeps for 0.01 s": lambda: time.sleep(0.01),
    "connects to 127.0.0.1:2": connect,
}


@pytest.mark.parametrize("words", DEEDS)
def test_a_deed_that_depends_on_luck_is_refused(words):
    with pytest.raises(RuntimeError, match=rf"{words}.*pytest\.mark\.process"):
        DEEDS[words]()
    quick._Watch.faults.clear()  # else this test fails, as any other would


def test_what_tests_share_may_be_started():
    with quick.shared():
        threading.Thread(target=int).start()
