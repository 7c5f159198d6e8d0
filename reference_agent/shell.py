"""The agent's shell: one for each conversation, which keeps its folder, variables, functions and jobs.

It is an interactive bash. Programs read from a pseudo-terminal and print to a pipe of their command, so an output has
no colours and no text of an earlier command. The shell reads commands and reports their exit codes on further pipes.
So no input becomes a command, and no output looks like an end.

A silent or slow command is handed back: it runs on, and the next action waits for it, types into it or interrupts it.
Limitation: it blocks at 1 MiB of unread output. Background jobs end with the conversation.
Source of the names of keys and of the exit code -1: openhands-tools 1.58, terminal.
"""

import fcntl
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

from core.cuts import beginning
from core.masking import NOTHING, Mask
from core.pseudo_terminals import pseudo_terminals
from reference_agent.events import Event
from reference_agent.output import CommandOutput
from reference_agent.printed import Pipe, end_marked, pieces

#: Seconds until a command is handed back: in all, without output, and without output after input.
COMMAND_SECONDS, SILENT_SECONDS, ANSWER_SECONDS = 600, 30, 3
MOST_COMMAND_SHOWN = 20_000  #: maximum characters of a command in its result
#: Exit codes of a command that cannot be executed, that was handed back, and that was killed.
NOT_EXECUTED, GOES_ON, KILLED = 126, -1, -9
MOST_TYPED = 4000  #: maximum bytes of one input; a terminal buffers no more for a program that does not read
#: Seconds until output is first streamed, between updates, and between repetitions for late followers.
_SHOWN_FIRST, _SHOWN_EACH, _SHOWN_AGAIN = 0.5, 1.0, 10.0
#: Seconds between two checks of a command, between interrupt and kill, and for the shell to read a command.
_CHECK, _GRACE, _START = 0.2, 1.0, 10.0
#: Bytes of one read, and of the pipe of a command that was handed back. Characters of a shell's state for the next.
_PIECE, _PIPE, _MOST_LEFT = 1 << 16, 1 << 20, 1 << 18

#: How to continue after a command was handed back.
_NEXT = (
    "It is still running. Go on with is_input=true: an empty command waits for more output, text is typed into the "
    "program, C-c interrupts it. A larger timeout waits longer; reset=true ends the shell."
)

#: Keys that the model may type, besides C- and a letter.
_KEYS = {
    **{"UP": "\x1b[A", "DOWN": "\x1b[B", "RIGHT": "\x1b[C", "LEFT": "\x1b[D", "HOME": "\x1b[H", "END": "\x1b[F"},
    **{"PGUP": "\x1b[5~", "PGDN": "\x1b[6~", "TAB": "\t", "ESC": "\x1b", "BS": "\x7f", "ENTER": "\n"},
}
_CONTROL = re.compile(r"C-([a-zA-Z])")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Makes the terminal the controlling one of the shell's session. Drops the shell's own output, such as its prompts.
_BEGIN = 'exec 3<>"$0"; exec "$@" 3>&- >/dev/null 2>&1'

#: The shell's first input: how it reports the number of a command, its exit code and the folder.
_FIRST = """\
__status={status}
__report='command printf "%s\\0%s\\0%s\\0" "$__number" "$?" "$PWD" 1<>"$__status"'
__prompt='$(eval "$__report")'
unset HISTFILE
"""

#: More input for bash. It leaves its variables to the next shell, so that `exit` or `set -e` costs little.
_OF_BASH = """\
set +H +o history
trap '{{ command printf "exit\\0%s\\0%s\\0" "$?" "$PWD"; declare -p; declare -f; alias -p; }} 1<>"$__status" 2>&-' EXIT
"""

#: Defaults of Git's settings.
_GIT = "[include]\n\tpath = /etc/gitconfig\n[user]\n\tname = Agent\n\temail = agent@localhost\n"
#: Defaults of the shell's variables: no program waits in an editor or a pager.
_DEFAULTS = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}
_MARK = "AGENT_SHELL"  #: the variable that marks the processes of a conversation's shells
#: Streams the end of a command's output so far, and its size in bytes.
Show = Callable[[str, int], None]


class _Shell:
    """A shell's process, which runs one command at a time. Raises OSError if it cannot start."""

    def __init__(self, folder: Path, secrets: Mapping[str, str], mark: str, state: str = "") -> None:
        """mark: of its processes. state: what an earlier shell left."""
        bash = shutil.which("bash")
        self.is_bash = bash is not None
        self.folder = folder
        self._known, self._number, self._reported, self.since = dict(secrets), 0, b"", 0.0
        self._open = list[int]()
        # A killed agent deletes nothing: the runtime names a folder that ends with the sandbox.
        self._files = Path(tempfile.mkdtemp(prefix="agent-shell-", dir=os.environ.get("AGENT_TMPDIR")))
        try:
            (self._files / "gitconfig").write_text(_GIT)
            names = ("commands", "variables", "status")
            self._commands, self._variables, self.status = (self._fifo(name, os.O_RDWR) for name in names)
            self.terminal, self._slave = pseudo_terminals.open()
            self._open += [self.terminal, self._slave]
            os.set_blocking(self.terminal, False)
            self._modes = termios.tcgetattr(self._slave)
            self._modes[1] &= ~termios.OPOST
            self._modes[3] &= ~termios.ECHO
            lines, self._lines = os.pipe()
            self._open.append(self._lines)
            words = [bash, "--noprofile", "--norc", "--noediting", "-i"] if bash else ["/bin/sh", "-i"]
            # Git reads this file first, so a home's or a repository's settings override it.
            self._git = os.environ.get("GIT_CONFIG_SYSTEM", str(self._files / "gitconfig"))
            try:
                self.process = subprocess.Popen(
                    ["/bin/sh", "-c", _BEGIN, os.ttyname(self._slave), *words],
                    cwd=folder,
                    stdin=lines,
                    env={**_DEFAULTS, **os.environ, "GIT_CONFIG_SYSTEM": self._git, **secrets, _MARK: mark},
                    start_new_session=True,
                )
            finally:
                os.close(lines)
        except BaseException:
            self._forget()
            raise
        self._state = state
        first = (_FIRST + _OF_BASH * self.is_bash).format(status=self._quoted("status"))
        os.write(self._lines, first.encode())

    def _fifo(self, name: str, flags: int) -> int:
        os.mkfifo(self._files / name, 0o600)
        file = os.open(self._files / name, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        self._open.append(file)
        return file

    def _quoted(self, name: str) -> str:
        return shlex.quote(str(self._files / name))

    def _eval(self, text: bytes, name: str) -> str:
        """Return the command that executes a text of any length. The shell reads it from a pipe, never from a disk."""
        return f'eval "$(command -p head -c {len(text)} <{self._quoted(name)})"'

    def _send(self, text: bytes, pipe: int) -> None:
        deadline, sent = time.monotonic() + _START, 0
        while sent < len(text):
            if not select.select([], [pipe], [], max(deadline - time.monotonic(), 0))[1]:
                raise OSError("the shell reads no command")
            with suppress(BlockingIOError):
                sent += os.write(pipe, text[sent : sent + _PIECE])

    def start(self, command: str, secrets: Mapping[str, str]) -> None:
        """Start a command that prints to `output`. Raises OSError."""
        for pipe in (self._commands, self._variables):
            with suppress(BlockingIOError):
                while os.read(pipe, _PIECE):  # of a command that never started
                    pass
        termios.tcflush(self._slave, termios.TCIFLUSH)  # typed, but not read by any program
        termios.tcsetattr(self._slave, termios.TCSANOW, self._modes)
        self.report()
        (self._files / f"output-{self._number}").unlink(missing_ok=True)
        self._number, self._reported = self._number + 1, b""
        name = f"output-{self._number}"
        self.output: Pipe = os.fdopen(self._fifo(name, os.O_RDONLY), "rb", buffering=0)
        self._open.pop()
        self.holder = os.open(self._files / name, os.O_WRONLY | os.O_CLOEXEC)  #: keeps `output` open
        new = {key: of for key, of in secrets.items() if self._known.get(key) != of and _IDENTIFIER.fullmatch(key)}
        given = self._given(new)
        self._known, self._state = {**self._known, **new}, ""
        raw = command.encode(errors="replace")
        where = f"<{os.ttyname(self._slave)} >{self._quoted(name)} 2>&1"
        number = f"__number={self._number}; PS1=$__prompt"
        before = f"{self._eval(given, 'variables')} >/dev/null 2>&1; " if given else ""
        line = f'{before}{number}; {self._eval(raw, "commands")} {where}; eval "$__report"\n'
        os.write(self._lines, line.encode())
        try:
            self._send(given, self._variables)
            self._send(raw, self._commands)
        except OSError:
            self.output.close()
            os.close(self.holder)
            raise
        self.since = time.monotonic()

    def _given(self, variables: Mapping[str, str]) -> bytes:
        """Return the shell's input before a command: the state of an earlier shell, and new variables."""
        own, status = variables, ""
        if self._state:
            own, status = {"GIT_CONFIG_SYSTEM": self._git, **variables}, f"__status={self._quoted('status')}\n"
        exports = "".join(f"export {key}={shlex.quote(of)}\n" for key, of in own.items())
        return (self._state + exports + status).encode(errors="replace")

    def type(self, text: str) -> None:
        """Type into the foreground program. Raises BlockingIOError if it reads nothing."""
        typed = text.encode(errors="replace")
        if os.write(self.terminal, typed) < len(typed):
            raise BlockingIOError

    def printed(self) -> bytes:
        """Return what programs printed to the terminal itself, such as a password prompt."""
        with suppress(OSError):
            return os.read(self.terminal, _PIECE)
        return b""

    def report(self) -> int | None:
        """Return the exit code of the current command; None while it runs."""
        with suppress(BlockingIOError):
            while part := os.read(self.status, _PIECE):
                self._reported += part
        *records, _ = self._reported.split(b"\0")
        for number, code, folder in zip(records[::3], records[1::3], records[2::3], strict=False):
            if number in (b"exit", str(self._number).encode()):
                self.folder = Path(os.fsdecode(folder) or self.folder)
                return int(code) if number != b"exit" else None
        return None

    def left(self) -> str:
        """Return the state that an ended bash leaves to the next one."""
        self.report()
        state = self._reported.rpartition(b"\0")[2].decode(errors="replace")
        return state if len(state) <= _MOST_LEFT else ""

    def has_ended(self) -> bool:
        """Return whether the shell has ended, or cannot report because a command deleted its files."""
        return self.process.poll() is not None or not (self._files / "status").exists()

    def signal(self, number: int) -> None:
        """Signal the shell first, so that it runs no more of the line, and then the foreground process."""
        with suppress(OSError):
            foreground = os.tcgetpgrp(self.terminal)
            os.killpg(self.process.pid, number)
            if foreground != self.process.pid:
                os.killpg(foreground, number)

    def end(self) -> int:
        """Kill the shell and its foreground process, and return the exit code. Background processes run on."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        code = self.process.wait()
        self._forget()
        return code

    def _forget(self) -> None:
        pseudo_terminals.close(*self._open)
        self._open.clear()
        shutil.rmtree(self._files, ignore_errors=True)


class _Shown:
    def __init__(self, output: CommandOutput, show: Show) -> None:
        self._output, self._show = output, show
        self._at, self._size = time.monotonic() - _SHOWN_EACH + _SHOWN_FIRST, 0

    def pass_time(self) -> None:
        size, waited = self._output.size, time.monotonic() - self._at
        if size and waited >= (_SHOWN_EACH if size > self._size else _SHOWN_AGAIN):
            self._at, self._size = time.monotonic(), size
            self._show(self._output.tail(), size)


class ShellTerminal:
    """The shell of one conversation. `kill` and `end` are thread-safe."""

    def __init__(self, folder: Path, *, hands_back: bool = True) -> None:
        """hands_back: whether a running command can be continued; otherwise it is killed."""
        self.folder = folder  #: the folder of the next command
        self._home, self._hands_back, self._mark = folder, hands_back, uuid4().hex
        self._shell: _Shell | None = None
        self._running: _Shell | None = None  #: the shell while its command runs, or has ended unnoticed
        self._left, self._notices = "", list[str]()
        self._is_killed, self._is_over = False, False
        self._busy = threading.Lock()

    def resume(self, folder: str) -> None:
        """Start in a folder: that of the shell of an earlier agent server process."""
        self.folder = Path(folder)
        lost = "The variables, functions and background jobs of the earlier one are gone"
        self._notices.append(f"The agent server was started again, so this is a new shell, in {folder}. {lost}.")

    def start(self, action: Event, secrets: Mapping[str, str]) -> Event | None:
        """Start a command, or type into the running one. Return a result if there is nothing to wait for."""
        command, is_input = action["command"], bool(action.get("is_input"))
        self._is_killed = False
        with self._busy:
            try:
                if action.get("reset"):
                    self._reset()
                    if not command.strip():
                        return seen(command, self._told(""), 0)
                if self._goes_on():
                    return self._go_on(command, is_input)
                if self._running and (is_input or not command.strip()):
                    if command.strip():
                        self._notices.append("The command had ended, so nothing was typed.")
                    return None
                self._drop_ended()
                if is_input or not command.strip():
                    return seen(command, "No command is running.", NOT_EXECUTED)
                usable = {
                    name: of for name, of in secrets.items() if name and "=" not in name and "\0" not in name + of
                }
                self._begin(command, usable)
            except (OSError, ValueError) as error:
                return seen(command, f"The command cannot be executed: {error}", NOT_EXECUTED)
            return None

    def _goes_on(self) -> bool:
        running = self._running
        return running is not None and running.report() is None and not running.has_ended()

    def _go_on(self, command: str, is_input: bool) -> Event | None:
        if command.strip() and not is_input:
            words = f"This was not executed, because the previous command is still running. {_NEXT}"
            return {**seen(command, words, GOES_ON), "is_error": True}
        if command.strip():
            assert self._running is not None
            typed = _typed(command)
            if len(typed.encode(errors="replace")) > MOST_TYPED:
                raise ValueError(f"at most {MOST_TYPED} bytes can be typed at once; a program can read a file instead")
            try:
                self._running.type(typed)
            except BlockingIOError:
                raise ValueError("the program has not read the earlier input") from None
        return None

    def _begin(self, command: str, secrets: Mapping[str, str]) -> None:
        if "\0" in command:
            raise ValueError("it contains a null character")
        if self._is_over:
            raise ValueError("the conversation has ended")
        if self._shell and self._shell.has_ended():
            self._bury(self._shell)
        if self._shell is None:
            folder = self.folder if self.folder.is_dir() else self._home
            self._shell = _Shell(folder, secrets, self._mark, self._left)
            if not self._shell.is_bash:
                self._notices.append("bash is not installed, so /bin/sh runs the commands.")
        try:
            self._shell.start(command, secrets)
        except OSError:
            self._bury(self._shell)
            raise
        self._running = self._shell

    def finish(self, action: Event, mask: Mask = NOTHING, show: Show = lambda _tail, _size: None) -> Event:
        """Wait until the command ends, is silent for SILENT_SECONDS, or reaches the action's timeout.

        Limitation: the output of a process that the command leaves behind is lost, unless it goes to a file.
        """
        with self._busy, closing(CommandOutput(self._home, mask)) as output:
            assert self._running is not None
            code, words = self._wait(self._running, action, output, _Shown(output, show))
            text = "\n".join(part for part in (output.text().removesuffix("\n" if words else ""), words) if part)
            return seen(action["command"], self._told(text), code)

    def _wait(self, shell: _Shell, action: Event, output: CommandOutput, shown: _Shown) -> tuple[int, str]:
        """Follow a command. Return its exit code, and a notice about its end."""
        began = at = time.monotonic()
        limit = min(action.get("timeout") or COMMAND_SECONDS, COMMAND_SECONDS)
        silence = SILENT_SECONDS if not (action.get("is_input") and action["command"].strip()) else ANSWER_SECONDS
        if action.get("timeout") or not self._hands_back:
            silence = COMMAND_SECONDS
        killed_at, is_late, size = 0.0, False, 0
        while True:
            self._read(shell, output)
            shown.pass_time()
            now = time.monotonic()
            if output.size > size:
                size, at = output.size, now
            if (code := shell.report()) is not None or shell.has_ended():
                break
            if self._is_killed or (is_late and not self._hands_back):
                killed_at = killed_at or now
                shell.signal(signal.SIGKILL if now - killed_at > _GRACE else signal.SIGINT)
            elif now - began >= limit or now - at >= silence:
                if self._hands_back:
                    with suppress(OSError):  # more output before anybody reads it
                        fcntl.fcntl(shell.output, fcntl.F_SETPIPE_SZ, _PIPE)
                    waited = f"No new output for {silence:g} s" if now - at >= silence else f"No end within {limit:g} s"
                    return GOES_ON, f"({waited}, {now - shell.since:.0f} s since its start. {_NEXT})"
                is_late = True
        self._drain(shell, output)
        words = [f"Killed: it did not end within {limit:g} s."] if is_late else []
        words += ["Interrupted."] if self._is_killed else []
        if code is None:
            code = self._bury(shell)
            words.append(self._notices.pop())
        self.folder = shell.folder
        return KILLED if is_late or self._is_killed else code, " ".join(words)

    def _read(self, shell: _Shell, output: CommandOutput) -> None:
        pipe = shell.output.fileno()
        ready, _, _ = select.select([pipe, shell.terminal, shell.status], [], [], _CHECK)
        if pipe in ready:
            with suppress(BlockingIOError):
                output.add(os.read(pipe, _PIECE))
        if shell.terminal in ready:
            output.add(shell.printed())

    def _drain(self, shell: _Shell, output: CommandOutput) -> None:
        self._running = None
        os.close(shell.holder)
        for piece in pieces(lambda: True, [shell.output], time.monotonic() + COMMAND_SECONDS):
            if piece:
                output.add(piece[1])

    def _drop_ended(self) -> None:
        """Note the end of a command that was handed back, with its last output."""
        if running := self._running:
            with closing(CommandOutput(self._home)) as output:
                self._drain(running, output)
                code, last = running.report(), output.tail()
            how = "" if code is None else f" with exit code {code}"
            self._notices.append(f"The previous command has ended{how}." + (f" Last output:\n{last}" if last else ""))

    def _bury(self, shell: _Shell) -> int:
        """Note the end of a shell, and keep its state for the next one. Return its exit code."""
        self._shell, self._left, self.folder = None, shell.left(), shell.folder
        code = shell.end()
        kept = "with the same variables and functions" if self._left else "without its variables and functions"
        self._notices.append(f"The shell has ended. The next command starts a new shell in {self.folder}, {kept}.")
        return code

    def _reset(self) -> None:
        if running := self._running:
            self._running = None
            os.close(running.holder)
            running.output.close()
        if self._shell:
            self._shell.end()
        self._shell, self._left, self.folder = None, "", self._home
        self._notices[:] = [f"The shell was reset. The next command starts a new shell in {self._home}."]

    def _told(self, text: str) -> str:
        notices = [f"({notice})" for notice in self._notices]
        self._notices.clear()
        return "\n".join([*notices, text] if text or not notices else notices)

    def kill(self) -> None:
        self._is_killed = True
        if running := self._running:
            running.signal(signal.SIGINT)

    def end(self) -> None:
        """End the shell and all processes that its commands left running."""
        self._is_over = self._is_killed = True
        if shell := self._shell:
            shell.process.kill()
        end_marked(f"{_MARK}={self._mark}")
        with self._busy:
            self._reset()


def seen(command: str, output: str, code: int) -> Event:
    shown = beginning(command, MOST_COMMAND_SHOWN)  # must fit into an event together with the output
    members = {"is_error": code not in (0, GOES_ON), "exit_code": code, "command": shown}
    return {"content": [{"type": "text", "text": output}], **members}


def _typed(command: str) -> str:
    name = command.strip()
    control = _CONTROL.fullmatch(name)
    return chr(ord(control[1].upper()) & 0x1F) if control else _KEYS.get(name, f"{command}\n")
