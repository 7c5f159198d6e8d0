"""Commands that leave a process in the background: their result comes with the end of the shell, and it runs on."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core.masking import NOTHING
from reference_agent.commands import ClientCommand
from reference_agent.shell import ShellTerminal
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

pytestmark = pytest.mark.process("runs shells, and waits for what they leave behind")

#: seconds that the commands may take, beyond which none of their results comes
LIMIT = 5

#: prints without a pause of _SILENCE, into the pipe of the shell, and counts its lines in a file
LOOP = "(echo $$ >pid; while :; do echo tick; echo x >>ticks; sleep 0.05; done) & echo started"
FLOOD = "(exec sh -c 'echo $$ >pid; exec yes') & echo started; while [ ! -s pid ]; do sleep 0.05; done"


@pytest.fixture(params=["terminal", "bash"])
def run(request, tmp_path):
    """Runs a command; its exit code, and what it has printed."""

    terminal = ShellTerminal(tmp_path, hands_back=False)

    def in_terminal(command):
        action = {"command": command, "timeout": LIMIT}
        assert terminal.start(action, {}) is None
        told = terminal.finish(action)
        return told["exit_code"], told["content"][0]["text"]

    def as_command(command):
        begun = ClientCommand(command, tmp_path, LIMIT, NOTHING)
        assert begun.has_ended.wait(3 * LIMIT)
        printed = [one["stdout"] or one["stderr"] or "" for one in begun.events[1:]]
        return begun.events[-1]["exit_code"], "".join(printed)

    yield in_terminal if request.param == "terminal" else as_command
    terminal.end()
    with suppress(OSError, ValueError):
        os.killpg(os.getpgid(int((tmp_path / "pid").read_text())), signal.SIGKILL)


def lines_in(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_the_result_does_not_wait_for_background_programs_which_continue(run, tmp_path):
    began = time.monotonic()
    code, text = run(LOOP)

    assert time.monotonic() - began < LIMIT - 1
    assert (code, "started\n" in text, "Killed" in text) == (0, True, False)
    ticks = lines_in(tmp_path / "ticks")
    wait_until(lambda: lines_in(tmp_path / "ticks") > ticks + 5, "the process in the background to go on")


def test_background_output_neither_delays_the_result_nor_hides_its_last_lines(run, tmp_path):
    began = time.monotonic()
    code, text = run(FLOOD)

    assert time.monotonic() - began < LIMIT - 1
    assert (code, "started\n" in text, "Killed" in text) == (0, True, False)
    pid = int((tmp_path / "pid").read_text())
    time.sleep(0.3)  # SIGPIPE would have ended it at its next line
    assert Path(f"/proc/{pid}").exists()


def test_the_last_output_of_a_shell_is_complete(run):
    code, text = run(
        "(while :; do sleep 0.01; echo .; done) & echo $! >pid; head -c 60000 /dev/zero | tr '\\0' x; (exit 7)"
    )

    assert (code, text.count("x")) == (7, 60000)


@pytest.mark.parametrize(
    "command", ["sleep 60", "while :; do echo x; sleep 0.05; done", "exec >&- 2>&-; sleep 60; true"]
)
def test_a_command_that_exceeds_its_timeout_is_killed_and_its_exit_code_says_so(run, command):
    code, text = run(command)

    assert (code, text.count(f"Killed: it did not end within {LIMIT} s.")) == (-9, 1)


def test_what_programs_leave_in_the_home_is_no_part_of_the_repository(tmp_path):
    with reference_agent(tmp_path, HOME=str(tmp_path)) as agent:
        conversation = agent.begin()
        agent.send(conversation, "run: mkdir ~/cache && touch ~/cache/a && git init -q . && git add -A && git ls-files")
        agent.until(conversation, "finished")

        [result] = agent.events(conversation, kind="ObservationEvent")
        added = result["observation"]["content"][0]["text"]
        assert ("conversations/" in added, "cache" in added, ".agent-server" in added) == (True, False, False)
        assert (tmp_path / ".agent-server/home/cache/a").exists()
