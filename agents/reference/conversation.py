"""The reference agent in one conversation. `api.py` serves it.

The agent turns each `run: CMD` line of a user's message into an action. It executes the action in the working directory
if the confirmation policy holds nothing back, or once a person accepts it. It replies to other messages with text.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from agents.reference import events
from agents.reference.events import Event
from agents.reference.journal import DiskError
from agents.reference.log import Log, State, moved

#: seconds that a command may take, and bytes of its output that it reports
COMMAND_SECONDS, MOST_OUTPUT = 600, 100_000

#: the exit code that shells give a command that cannot be executed
NOT_EXECUTED = 126

#: the reason of a rejection by a new message
SUPERSEDED = "Superseded by a new user message."

#: the error of an action whose command ran when the agent server was killed
UNKNOWN = "The agent server ended while this command ran. Whether it took effect is not known; it is not repeated."


class Conversation:
    """One conversation and the thread that works in it while it runs. It goes on where the last step of its log ended.

    A method whose step the disk refuses raises DiskError; then nothing has happened, except that a pause takes effect.
    """

    def __init__(self, log: Log, secrets: dict[str, str]) -> None:
        self.log = log
        self._lock = threading.RLock()
        self._secrets = secrets
        self._works = False
        self._process: subprocess.Popen[bytes] | None = None
        self._interrupted = False  # the process of the present command

    @property
    def is_running(self) -> bool:
        return self.log.state.status == "running"

    def begin(self) -> None:
        """Report the conversation, and take the message that came with the start request."""
        self.log.post_info()
        if message := self.log.start["initial_message"]:
            self.send(message["content"], message["run"])

    def close_what_was_cut_short(self) -> None:
        """Pause what ran when the agent server was killed, and close the action whose command ran."""
        state, step = self.log.state, list[Event]()
        if state.started:
            step.append(events.failure(self.log.first_open(), UNKNOWN))
            state = state._replace(open=state.open[1:], started=False)
        if state.status == "running":
            state = moved(state, "paused", step)
        if step:
            with suppress(DiskError):
                self.log.record(state, step)

    def send(self, content: list[Event], run: bool) -> None:
        """Take a user's message. It rejects the pending actions and never approves them."""
        with self._lock:
            state, step = self.log.state, list[Event]()
            if state.status == "waiting_for_confirmation":
                state, step = self._rejected(SUPERSEDED)
            message = events.message("user", content)
            step.append(message)
            state = state._replace(unanswered=[*state.unanswered, message["id"]])
            if state.status in ("finished", "stuck"):
                state = moved(state, "idle", step)
            if run and state.status != "running":
                state = moved(state, "running", step)
            self.log.step(state, step)
            self._work_if_running()

    def run(self) -> bool:
        """Work until nothing is left to do; False if the conversation runs already. A run approves what waits."""
        with self._lock:
            if self.is_running:
                return False
            self._move("running")
            self._work_if_running()
            return True

    def stop(self, *, at_once: bool) -> None:
        """Pause after the present command, or (at_once) kill that command."""
        with self._lock:
            if self.log.state.status in ("idle", "running"):
                if at_once:
                    self._interrupted = self._process is not None
                    self._kill_command()
                step = [events.event("InterruptEvent" if at_once else "PauseEvent", "user")]
                self.log.record(moved(self.log.state, "paused", step), step)

    def decide(self, accept: bool, reason: str) -> None:
        """Execute or drop the pending actions."""
        with self._lock:
            if self.log.state.status != "waiting_for_confirmation":
                return
            if accept:
                self.run()
            else:
                self.log.step(*self._rejected(reason))

    def set_policy(self, policy: dict[str, Any]) -> None:
        with self._lock:
            self.log.step(self.log.state._replace(policy=policy), [events.change("confirmation_policy", policy)])

    def keep(self, secrets: dict[str, str]) -> None:
        """Put secrets into the environment of every later command. They are in memory alone."""
        with self._lock:
            self._secrets = self._secrets | secrets

    def delete(self) -> None:
        with self._lock:
            self.log.remove()
            self._kill_command()

    def _rejected(self, reason: str) -> tuple[State, list[Event]]:
        """The state after a rejection of the open actions, and the events of that step."""
        step = list[Event]()
        state = moved(self.log.state._replace(open=[]), "idle", step)
        step += [events.rejection(self.log.known(action_id), reason) for action_id in self.log.state.open]
        return state, step

    def _move(self, status: str) -> None:
        step = list[Event]()
        self.log.step(moved(self.log.state, status, step), step)

    def _work_if_running(self) -> None:
        if self.is_running and not self._works:
            self._works = True
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        try:
            while process := self._next_command():
                self._await(process)
        except DiskError as error:
            print(f"{error}. The run stops.", file=sys.stderr)
            self._pause_without_disk()

    def _pause_without_disk(self) -> None:
        with self._lock:
            self._works = False
            if self.is_running:
                step = list[Event]()
                with suppress(DiskError):
                    self.log.record(moved(self.log.state, "paused", step), step)
                self.log.post_info()

    def _next_command(self) -> subprocess.Popen[bytes] | None:
        """The process of the next command; None when the agent must not go on."""
        with self._lock:
            while self.is_running:
                if self.log.state.open:
                    if process := self._launch():
                        return process
                elif self.log.state.unanswered:
                    self._consider()
                else:
                    self._move("finished")
            self._works = False
            return None

    def _consider(self) -> None:
        """Respond to the oldest unanswered message, with actions or with text."""
        message_id, *unanswered = self.log.state.unanswered
        state = self.log.state._replace(unanswered=unanswered)
        text = events.text_of(self.log.known(message_id))
        lines = [line.strip() for line in text.splitlines()]
        if commands := [line.removeprefix("run:").strip() for line in lines if line.startswith("run:")]:
            step = [events.action(command, message_id) for command in commands]
            state = state._replace(open=[action["id"] for action in step])
            if state.policy.get("kind") != "NeverConfirm":
                state = moved(state, "waiting_for_confirmation", step)
        else:
            step = [events.message("agent", [{"type": "text", "text": f"You said: {text}"}])]
        self.log.step(state, step)

    def _launch(self) -> subprocess.Popen[bytes] | None:
        """Start the command of the first open action; None if it cannot be executed.

        The step before the start keeps the command from a second execution after a kill.
        """
        action = self.log.first_open()
        self.log.step(self.log.state._replace(started=True), [])
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", action["action"]["command"]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._secrets},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._close(events.observation(action, f"The command cannot be executed: {error}", NOT_EXECUTED))
        return self._process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        try:
            output, _ = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_command()
            output = process.communicate()[0] + f"\nnot done within {COMMAND_SECONDS} s".encode()
        with self._lock:
            was_interrupted, self._interrupted, self._process = self._interrupted, False, None
            if self.log.state.status == "deleting":
                return
            action = self.log.first_open()
            if was_interrupted and process.returncode == -signal.SIGKILL:
                self._close(events.failure(action, "Interrupted."))
            else:
                text = output[-MOST_OUTPUT:].decode(errors="replace")
                self._close(events.observation(action, text, process.returncode))

    def _close(self, result: Event) -> None:
        """Close the first open action with the result of its command."""
        state = self.log.state
        self.log.record(state._replace(open=state.open[1:], started=False), [result])

    def _kill_command(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
