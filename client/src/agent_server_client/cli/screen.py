"""A terminal with a prompt in its last rows: what is printed appears above it, and a question takes its place."""

import asyncio
import io
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from click import Abort
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import TextArea
from rich.console import Console
from rich.text import Text

#: seconds between two drawings of what changes by itself, rows of the prompt, and rows that the live lines leave free
_TICK, _ROWS, _FREE = 0.125, 8, 4

#: seconds for which a Ctrl-C makes the next one quit
_TWICE = 3.0


class _Question(NamedTuple):
    ask: Callable[[], Any]
    answer: asyncio.Future[Any]


class Screen:
    """The prompt of one session.

    lines: what changes by itself, above the prompt, in at most so many rows. foot: the last row. entered: gets each
    line. interrupted: a Ctrl-C that clears nothing and does not quit.
    """

    def __init__(
        self,
        console: Console,
        lines: Callable[[int], list[Text]],
        foot: Callable[[], Text],
        entered: Callable[[str], None],
        interrupted: Callable[[], None],
    ) -> None:
        self._console, self._lines, self._foot = console, lines, foot
        self._entered, self._interrupted = entered, interrupted
        self._queue: asyncio.Queue[Callable[[], None] | _Question] = asyncio.Queue()
        self._question: _Question | None = None
        self._interrupted_at = -_TWICE
        self._is_over = False
        self._input = TextArea(
            prompt=ANSI(self._drawn([Text("> ", "bold cyan")])),
            height=Dimension(min=1, max=_ROWS),
            dont_extend_height=True,
            history=InMemoryHistory(),
            accept_handler=self._accepted,
        )
        live = Window(FormattedTextControl(self._live), dont_extend_height=True)
        last = Window(FormattedTextControl(lambda: ANSI(self._drawn([self._foot()]))), height=1)
        output = create_output()
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # nothing here depends on where the prompt stands
        self._app: Application[bool] = Application(
            Layout(HSplit([live, self._input, last]), focused_element=self._input),
            key_bindings=self._keys(),
            erase_when_done=True,
            output=output,
        )

    async def run(self) -> None:
        """Show the prompt until `quit`."""
        tasks = [asyncio.create_task(self._print_all()), asyncio.create_task(self._tick())]
        try:
            while not self._is_over:
                await self._app.run_async()
                if (asked := self._question) is not None:
                    self._question = None
                    self._answer(asked)
        finally:
            self._is_over = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while not self._queue.empty():
                left = self._queue.get_nowait()
                if not isinstance(left, _Question):
                    left()

    def quit(self) -> None:
        """End `run`."""
        self._is_over = True
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=True)

    def print(self, write: Callable[[], None]) -> None:
        """Print above the prompt, in the order of the calls."""
        self._queue.put_nowait(write)

    async def ask(self, ask: Callable[[], Any]) -> Any:
        """What a function returns that has the terminal for itself; everything else waits. Raises what it raises."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Question(ask, answer))
        return await answer

    def put_back(self, text: str) -> bool:
        """Offer a text as if it was being typed, unless another one is; whether it was offered."""
        if self._input.text:
            return False
        self._input.text = text
        self._input.buffer.cursor_position = len(text)
        return True

    def _answer(self, asked: _Question) -> None:
        # asyncio would cancel this task at a Ctrl-C: a question ends by it, as anywhere else.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            asked.answer.set_result(asked.ask())
        except KeyboardInterrupt:
            asked.answer.set_exception(Abort())
        except Exception as error:
            asked.answer.set_exception(error)
        finally:
            signal.signal(signal.SIGINT, handler)

    async def _print_all(self) -> None:
        while True:
            writes = [await self._queue.get()]
            while not self._queue.empty() and not isinstance(writes[-1], _Question):
                writes.append(self._queue.get_nowait())
            asked = writes.pop() if isinstance(writes[-1], _Question) else None
            if writes:
                self._write([one for one in writes if not isinstance(one, _Question)])
            if isinstance(asked, _Question):
                while not self._app.is_running or self._app.is_done:
                    await asyncio.sleep(_TICK / 4)
                self._question = asked
                self._app.exit(result=False)
                await asyncio.wait([asked.answer])

    def _write(self, writes: list[Callable[[], None]]) -> None:
        """Print where the prompt is, which is drawn again below. The terminal stays raw: no key is lost or echoed."""
        if self._app.is_running:
            self._app.renderer.erase()
        for write in writes:
            write()
        self._console.file.flush()
        self._app.invalidate()

    async def _tick(self) -> None:
        """Draw what changes by itself, as long as there is such a thing."""
        had = False
        while True:
            has = bool(self._lines(2))
            if has or had:
                self._app.invalidate()
            had = has
            await asyncio.sleep(_TICK)

    def _accepted(self, _: object) -> bool:
        if self._input.text.strip():
            self._entered(self._input.text.strip())
        return False  # the prompt is empty again

    def _live(self) -> ANSI:
        most = max(2, self._console.height - _FREE - min(_ROWS, self._input.text.count("\n") + 1))
        return ANSI(self._drawn(self._lines(most)))

    def _drawn(self, lines: list[Text]) -> str:
        """Lines with the codes of the terminal's colours."""
        written = io.StringIO()
        console = Console(file=written, width=self._console.width, force_terminal=True, highlight=False)
        console.no_color = self._console.no_color
        for line in lines:
            console.print(line, soft_wrap=True)
        return written.getvalue().removesuffix("\n")

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        @keys.add(Keys.SIGINT)
        def _(event: KeyPressEvent) -> None:
            if self._input.text:
                event.current_buffer.reset()
                return
            now = asyncio.get_running_loop().time()
            is_second, self._interrupted_at = now - self._interrupted_at < _TWICE, now
            if is_second:
                self.quit()
            else:
                self._interrupted()

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if self._input.text:
                event.current_buffer.delete()
            else:
                self.quit()

        return keys
