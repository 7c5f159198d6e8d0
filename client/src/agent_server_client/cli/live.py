"""A followed log on a terminal: the entries, and below them what the agent does now. In a pipe the entries alone."""

import contextlib
import sys
from collections.abc import Iterable, Iterator

from rich.console import Group
from rich.live import Live

from agent_server_client._sync import Client
from agent_server_client.cli.ages import Ages
from agent_server_client.cli.program import CommandSession, print_json
from agent_server_client.cli.progress import EventProgress, retried
from agent_server_client.cli.shown import print_entry
from agent_server_client.wire import Entry

if sys.platform != "win32":
    import termios

#: times a second that the lines are drawn, and rows of the terminal that they leave free
_A_SECOND, _FREE = 8, 4


class Followed:
    """What a command shows of the log that it follows."""

    def __init__(
        self, session: CommandSession, live: Live | None, progress: EventProgress, ages: Ages, full: bool
    ) -> None:
        self._session, self._live, self._progress, self._ages, self._full = session, live, progress, ages, full

    def begin(self, earlier: Iterable[Entry]) -> None:
        """Take the last entries before those that are shown: they say what the agent does now."""
        for entry in earlier if self._live else ():
            self._progress.take(entry.event, self._ages.of(entry))

    def show(self, entry: Entry, *, is_printed: bool = True) -> None:
        """Take an entry, and print it: as JSON where that is asked for."""
        self._progress.take(entry.event, self._ages.of(entry))
        if not is_printed:
            return
        if self._session.as_json:
            print_json({"seq": entry.seq, "event": entry.event})
        else:
            print_entry(self._session.out, entry, full=self._full)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """The terminal is free for a question."""
        if self._live is None:
            yield
            return
        lost, beside = self._session.on_lost, self._session.beside
        self._live.stop()
        self._session.on_lost = self._session.beside = None  # what is drawn no longer hides a line
        try:
            with _echo(is_on=True):
                yield
        finally:
            self._session.on_lost, self._session.beside = lost, beside
            self._live.start()


@contextlib.contextmanager
def followed(
    session: CommandSession, client: Client, *, full: bool = False, is_live: bool = True
) -> Iterator[Followed]:
    """Show a log while it is followed. client: that of the log. full: long outputs whole. is_live: more may come."""
    progress, ages, console = EventProgress(), Ages(client), session.out
    if not is_live or session.as_json or not console.is_terminal or console.is_dumb_terminal:
        yield Followed(session, None, progress, ages, full)
        return

    def drawn() -> Group:
        return Group(*progress.lines(console, max(2, console.height - _FREE)))

    live = Live(console=console, get_renderable=drawn, refresh_per_second=_A_SECOND, transient=True)
    with _echo(is_on=False), live, _told_below(session, live, progress):
        yield Followed(session, live, progress, ages, full)


@contextlib.contextmanager
def _told_below(session: CommandSession, live: Live, progress: EventProgress) -> Iterator[None]:
    """A wait for the server is told where the agent's work is: a line beside it would be drawn over."""
    session.on_lost, session.beside = lambda refusal: progress.tell(retried(refusal)), live.console.print
    session.on_silence = progress.lose
    try:
        yield
    finally:
        session.on_lost = session.on_silence = session.beside = None


@contextlib.contextmanager
def _echo(*, is_on: bool) -> Iterator[None]:
    """Whether the terminal shows what is typed: between lines that are drawn again it would leave a line behind."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    mode = [*before]
    mode[3] = mode[3] | termios.ECHO if is_on else mode[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
