"""What an agent does at this moment, as lines below a log: its text while it comes, or a command that runs."""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agent_server_client.calls import call_of
from agent_server_client.errors import AgentServerError
from agent_server_client.models import Event
from agent_server_client.visible import first_line, in_line, of_output, visible

#: characters of streamed text that are kept, and lines of a running command's output that are shown
_MOST_TEXT, _MOST_OUTPUT = 8_000, 5

#: frames of the spinner, for terminals with and without Unicode, and frames a second
_FRAMES, _PLAIN_FRAMES, _A_SECOND = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\", 8

#: a colour whose end has not come yet: the end of a piece may cut it
_HALF = re.compile("\x1b(\\[[0-9;:]*)?$")

#: seconds for which a lost connection is shown after the last try: the longest pause between two tries, and one more
_LOST = 9.0


#: what the live line says while the server does not answer
LOST = "connection lost, trying again"


class _Action(NamedTuple):
    call: str  #: its id, by which an error names the action
    tool: str
    words: str


def took(seconds: float) -> str:
    """A time that something takes: 12 s, 2 min 5 s, 1 h 3 min."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min {whole % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def retried(refusal: AgentServerError) -> str:
    """What is shown of a request that is tried again."""
    why = in_line(refusal.detail)
    return f"{LOST} ({why})" if refusal.status is None else f"trying again: {why}"


class EventProgress:
    """Collects the events of a conversation, also those that no log keeps.

    clock: seconds from any moment on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.status = ""  #: of the conversation, "" while no event has told it
        self._since = clock()
        self._open: dict[str, _Action] = {}  #: the actions without a result, by id, in the order of the log
        self._text = self._thought = ""  #: what the model has written since its last event
        self._printed, self._printed_of = "", ""  #: the end of a command's output, and its action
        self._notice, self._notice_ends = "", 0.0
        self._is_lost = False

    def take(self, event: Event, age: float = 0.0) -> None:
        """Take an event. age: seconds since it happened."""
        kind = str(event.get("kind")).rpartition(".")[2]
        self._notice, self._is_lost = "", False
        if kind == "StreamingDeltaEvent":
            self._text = (self._text + _words(event.get("content")))[-_MOST_TEXT:]
            self._thought = (self._thought + _words(event.get("reasoning_content")))[-_MOST_TEXT:]
            return
        if kind == "CommandOutputEvent":
            self._printed, self._printed_of = _words(event.get("text")), str(event.get("action_id"))
            return
        is_status = kind == "ConversationStateUpdateEvent" and event.get("key") == "execution_status"
        if kind == "ConversationStateUpdateEvent" and not is_status:
            return
        if event.get("source") != "user" or self.status != "running":
            self._since = self._clock() - age
        if event.get("source") == "agent" or is_status:
            self._text = self._thought = ""
        if is_status:
            self.status = str(event.get("value"))
        elif kind == "ActionEvent" and event.get("action"):
            names = (str(event.get("tool_call_id")), str(event.get("tool_name")))
            self._open[str(event.get("id"))] = _Action(*names, call_of(event["action"]))
        else:
            ended = (event.get("action_id"), event.get("tool_call_id"))
            self._open = {key: one for key, one in self._open.items() if key != ended[0] and one.call != ended[1]}

    def tell(self, words: str, seconds: float = _LOST) -> None:
        """Show words instead, such as that the server does not answer, for so long or until the next event."""
        self._notice, self._notice_ends = words, self._clock() + seconds

    def hush(self) -> None:
        """Show these words no longer."""
        self._notice = ""

    def lose(self, is_lost: bool) -> None:
        """Show until something comes that the server does not answer, or that no longer."""
        self._notice, self._is_lost = "", is_lost

    @property
    def doing(self) -> str:
        """What the agent does now: `waits for the model, 12 s`, `terminal: pytest -q, 34 s`, or "" for nothing."""
        return self._doing(200)

    def _doing(self, width: int) -> str:
        """The same in so many columns, of which a long command leaves those for its time."""
        if self._notice and self._clock() < self._notice_ends:
            return self._notice
        if self._is_lost:
            return LOST
        if self.status != "running":
            return ""
        spent = took(self._clock() - self._since)
        for action in self._open.values():
            tool, room = in_line(action.tool), max(1, width - len(spent) - 2)
            words = first_line(action.words, max(1, room - cell_len(tool) - 2))
            named = Text(tool + (f": {words}" if words else ""))
            return f"{_fitting(named, room).plain}, {spent}"
        return f"writing {spent}" if self._text else f"waits for the model, {spent}"

    def lines(self, console: Console, most: int) -> list[Text]:
        """What is shown now, in at most so many lines of the console's width; the last one is what the agent does."""
        width = max(8, console.width - 1)
        doing = self._doing(width - 2)
        if not doing:
            return []
        frames = _FRAMES if console.encoding.lower().startswith("utf") else _PLAIN_FRAMES
        frame = frames[int(self._clock() * _A_SECOND) % len(frames)]
        shown = [_fitting(Text.assemble((f"{frame} ", "cyan"), (doing, "dim")), width)]
        if self.status != "running":
            return shown
        printed = next(iter(self._open), None) == self._printed_of
        if printed:
            ended = _HALF.sub("", self._printed).rstrip("\r\n").replace("\r\n", "\n")
            # A command that draws a bar writes one line again and again: what stands in it last is what is seen.
            lines = [line.rstrip("\r").rpartition("\r")[2] for line in ended.split("\n")]
            body = [_fitting(Text(f"  {of_output(line)}", "dim"), width) for line in lines[-_MOST_OUTPUT:]]
        else:
            said = Text(visible(_HALF.sub("", self._text), prose=True)) if self._text.strip() else None
            said = said or Text(visible(_HALF.sub("", self._thought.strip()), prose=True), "dim italic")
            body = [Text("  ").append_text(line) for line in said.wrap(console, width - 2)] if said else []
        return [*body[-max(0, most - 1) :], *shown] if most > 1 else shown


def _words(value: object) -> str:
    return value if isinstance(value, str) else ""


def _fitting(line: Text, width: int) -> Text:
    """The line in one row."""
    if cell_len(line.plain) > width:
        line.truncate(width, overflow="ellipsis")
    return line
