"""ClientCommands that clients start in a sandbox, beside the agent's, and their output. The oldest are dropped."""

import codecs
import subprocess
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from core.masking import Mask, Masked
from reference_agent.events import now
from reference_agent.log import Hidden
from reference_agent.printed import code_of, kill, pieces

#: Maximum number of running commands, of commands in memory, and of characters of a command's output.
MOST_RUNNING, MOST_COMMANDS, MOST_KEPT = 8, 64, 1 << 20


class TooManyRun(Exception): ...


class ClientCommand:
    """A client's command and its output. Any thread may read it."""

    def __init__(self, command: str, folder: Path, seconds: int, mask: Mask) -> None:
        """mask: hides secrets in the output. Raises OSError and ValueError if the command cannot be executed."""
        self.id = str(uuid4())
        request = {"command": command, "cwd": str(folder), "timeout": seconds}
        self.events: list[dict[str, Any]] = [{"kind": "BashCommand", "id": self.id, "timestamp": now(), **request}]
        self.has_ended = threading.Event()
        self._masked = {name: Masked(mask) for name in ("stdout", "stderr")}
        self._room, self._deadline = MOST_KEPT, time.monotonic() + seconds
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self) -> None:
        kill(self._process)

    def _follow(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        names = {self._process.stdout: "stdout", self._process.stderr: "stderr"}
        decoders = {pipe: codecs.getincrementaldecoder("utf-8")("replace") for pipe in names}
        for piece in pieces(lambda: self._process.poll() is not None, list(names), self._deadline):
            if piece:
                pipe, part = piece
                self._keep(names[pipe], self._masked[names[pipe]].feed(decoders[pipe].decode(part, not part)))
        code, is_late = code_of(self._process, self._deadline)
        for name, rest in self._masked.items():
            self._keep(name, rest.end())
        if is_late:
            self._keep("stderr", f"\nKilled: it did not end within {self.events[0]['timeout']} s.\n")
        self._note(exit_code=code)
        self.has_ended.set()

    def _keep(self, name: str, text: str) -> None:
        kept = text[: max(self._room, 0)]
        if len(kept) < len(text) and self._room >= 0:
            kept += f"\n… output beyond {MOST_KEPT} characters is not kept: send it to a file\n"
            self._room = -1
        else:
            self._room -= len(kept)
        if kept:
            self._note(**{name: kept})

    def _note(self, **members: Any) -> None:
        output = {"exit_code": None, "stdout": None, "stderr": None, **members}
        named = {"kind": "BashOutput", "id": str(uuid4()), "timestamp": now(), "command_id": self.id}
        self.events.append({**named, "order": len(self.events) - 1, **output})


class ClientCommands:
    """The last MOST_COMMANDS commands of one process."""

    def __init__(self, hidden: Hidden) -> None:
        self._hidden, self._lock = hidden, threading.Lock()
        self._known: dict[str, ClientCommand] = {}

    def work(self) -> bool:
        with self._lock:
            return any(not command.has_ended.is_set() for command in self._known.values())

    def start(self, command: str, folder: Path, seconds: int) -> ClientCommand:
        """Start a command that is killed after `seconds`. Raises TooManyRun, OSError and ValueError."""
        with self._lock:
            if sum(not one.has_ended.is_set() for one in self._known.values()) >= MOST_RUNNING:
                raise TooManyRun(f"{MOST_RUNNING} commands run already: stop one, or wait for its end")
            begun = ClientCommand(command, folder, seconds, self._hidden.mask)
            self._known[begun.id] = begun
            ended = [one for one in self._known.values() if one.has_ended.is_set()]
            for old in ended[: max(len(self._known) - MOST_COMMANDS, 0)]:
                del self._known[old.id]
            return begun

    def find(self, identity: str) -> ClientCommand | None:
        return self._known.get(identity)

    def events(self) -> list[dict[str, Any]]:
        with self._lock:
            return [event for command in self._known.values() for event in list(command.events)]

    def forget(self) -> int:
        """Drop the ended commands. Return the number of their events."""
        with self._lock:
            ended = [one for one in self._known.values() if one.has_ended.is_set()]
            for one in ended:
                del self._known[one.id]
            return sum(len(one.events) for one in ended)
