"""agentctl keeps its exit code, whatever its output is written to."""

import os
import subprocess
import sys

import pytest

from tests.servers import PROJECT

pytestmark = pytest.mark.process("runs the command")

#: agentctl whose client is one that answers without a server
PROGRAM = """
import sys
from agent_server_client._sync import Conversation
from agent_server_client.cli import main
from agent_server_client.wire import Entry, Output
TEXT = "caf\\xe9 \\u4f60 \\udc80\\n"
Conversation.execute = lambda self, line: iter([Output(TEXT * int(line), "", None), Output("", "", 7)])
STATUS = {"kind": "PauseEvent", "timestamp": "2026-11-28T00:00:00"}
Conversation.log = lambda self, after: (Entry(seq, STATUS) for seq in range(1, 3_000))
main()
"""


def started(*words, **options):
    environment = os.environ | {"PYTHONPATH": "client/src", "AGENT_SERVER_URL": "http://127.0.0.1:1"}
    environment |= options.pop("env", {})
    words = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.Popen(
        words, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


SH = ("sh", "00000000-0000-0000-0000-000000000001")
LOGS = ("logs", SH[1])


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"caf? ? ?"), ("cp1252", b"caf\xe9 ? ?"), ("utf-8", "café 你 ?".encode())]
)
def test_a_character_that_the_output_lacks_is_replaced_and_the_exit_code_kept(encoding, shown):
    done = started(*SH, "1", env={"PYTHONIOENCODING": encoding})
    out, err = done.communicate(timeout=60)

    assert (done.returncode, out.strip(), err) == (7, shown, b"")


@pytest.mark.parametrize(
    "words",
    [
        *((*SH, "100000"), (*SH, "1"), LOGS, (*LOGS, "--json")),
        *(("--help",), ("profiles", "--json"), ("run", "--help")),
    ],
)
def test_a_closed_pipe_ends_the_command_quietly(words):
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONPATH": "client/src", "AGENT_SERVER_URL": "http://127.0.0.1:1"}
    command = [sys.executable, "-c", PROGRAM, *words]
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            command, cwd=PROJECT, env=environment, stdout=closed, stderr=subprocess.PIPE, check=False, timeout=60
        )

    assert (done.returncode, done.stderr) == (1 if words == ("--help",) else 141, b"")  # click ends its own help with 1
