"""Tells that the server does not answer, while a request waits for it."""

import time
from collections.abc import Callable
from threading import Event, Thread

import httpx

from agent_server_client._sync import Client
from agent_server_client.cli.progress import took
from agent_server_client.errors import AgentServerError
from agent_server_client.wire import Patience

#: seconds without a byte after which the server is asked whether it answers, and for which that answer may take
_QUIET, _PROBE = 2.0, 2.5

#: seconds between two looks, and between two questions to a server that answers
_LOOK, _BETWEEN = 0.5, 4.0

#: seconds from which on a bound is told in hours
_LONG = 3600.0


class Silence:
    """Asks the server for a small response while a request has none, and tells once that it does not answer.

    A slow request is no silence: the server answers the question meanwhile. say: gets a sentence without its end, and
    how long the command waits, or "" where the server answers again. asks: raises
    TimeoutError where the server does not answer in time, and ConnectionError where it cannot be reached. is_hidden:
    whether an open question hides what the request itself says of a lost connection, which is told here then. changed:
    gets whether the connection is lost, of either kind, whenever that changes.
    """

    def __init__(
        self,
        url: str,
        say: Callable[[str, str], None],
        asks: Callable[[], None],
        is_hidden: Callable[[], bool] = lambda: False,
        changed: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._say, self._asks = url, say, asks
        self._is_hidden, self._changed, self._clock = is_hidden, changed, clock
        self._is_lost = False
        self._waits: list[tuple[Patience, float]] = []
        self._silent_since: float | None = None
        self._next = 0.0
        self._is_over = Event()
        self._thread: Thread | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the server has been told to be silent, and has not answered since."""
        return self._silent_since is not None

    def watch(self, patience: Patience, seconds: float) -> None:
        """Watch the requests of a client. seconds: how long it waits for the server."""
        self._waits.append((patience, seconds))
        if self._thread is None:
            self._thread = Thread(target=self._look_until_over, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End it: at once, unless a question is on its way."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(_LOOK)

    def look(self) -> None:
        """Ask the server, if a request has been waiting for it."""
        is_waited_for = any(one.open_requests for one, _ in self._waits)
        now = self._clock()
        heard = max((one.heard_at for one, _ in self._waits), default=now)
        if not self._is_lost and (not is_waited_for or now - heard < _QUIET or now < self._next):
            return
        try:
            self._asks()
        except OSError as error:
            self._change(is_lost=True)
            is_told = isinstance(error, TimeoutError) or self._is_hidden()
            if is_told and self._silent_since is None and not self._is_over.is_set():
                self._silent_since = max(heard, self._next - _BETWEEN)
                most = max(seconds for _, seconds in self._waits)
                bound = f"{most:.0f} s" if most < _LONG else took(most)
                spent = took(self._clock() - self._silent_since)
                self._say(f"The server at {self._url} has not answered for {spent}", f"waiting up to {bound}")
            return
        self._change(is_lost=False)
        self._next = self._clock() + _BETWEEN
        if self._silent_since is not None:
            spent, self._silent_since = took(self._clock() - self._silent_since), None
            self._say(f"The server answers again, after {spent}", "")

    def _change(self, *, is_lost: bool) -> None:
        if is_lost != self._is_lost and not self._is_over.is_set():
            self._is_lost = is_lost
            self._changed(is_lost)

    def _look_until_over(self) -> None:
        while not self._is_over.wait(_LOOK):
            self.look()


def ask(url: str, key: str) -> None:
    """Ask a server whether it answers. Raises TimeoutError where it does not in time, else ConnectionError."""
    try:
        with Client(url, key, timeout=_PROBE, retry_seconds=0.0) as client:
            client.get("/alive")
    except AgentServerError as error:
        if isinstance(error.__cause__, httpx.TimeoutException):
            raise TimeoutError from error
        if error.status is None:
            raise ConnectionError from error
