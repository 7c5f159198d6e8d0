"""What people see: events as lines, lists as tables, and a pending action as a card, with nothing hidden in them."""

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent_server_client.calls import PATHS, UNSET, call_of, command_of, member
from agent_server_client.cli.decided import decision_words
from agent_server_client.models import AskedBudgetInfo, AskedDestinationInfo, Event, GitChange, GitDiff, WaitingAction
from agent_server_client.visible import beginning, first_line, in_line, of_output, visible
from agent_server_client.wire import Entry

#: colours of statuses, of conversations and of sandboxes
_STATUSES = {
    **{"running": "blue", "waiting_for_confirmation": "bold yellow", "finished": "green", "error": "bold red"},
    **{"stuck": "red", "paused": "dim", "idle": "dim"},
}

_RISKS = {
    "LOW": ("Low risk", "green"),
    "MEDIUM": ("Medium risk", "yellow"),
    "HIGH": ("High risk", "bold red"),
    "UNKNOWN": ("Risk unknown", "magenta"),
}

#: lines of an output that a log shows at once, and a talk; characters of an action in one line
_LINES, _LINES_OF_TALK, _LONGEST = 30, 12, 200

#: what stands above an action whose agent does not show its arguments
INCOMPLETE = "What is shown is less than what will run. The agent does not show the arguments, so no rule decides it."

#: the beginning of a message by which the server tells an agent what is allowed now
OF_SERVER = "This server says: "

#: what stands before an action in a talk
_ACTION = "• "

#: least characters of an id that is shown, and what is shown in short
_LEAST_ID, _UUID = 8, re.compile("[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")

#: what a file tool does, in words, and what tools call the members of a change, as in the console
_VERBS = {
    "create": "Write the file",
    "str_replace": "Change the file",
    "insert": "Insert into the file",
    "view": "Read the file",
}
_WHOLES, _OLDS, _NEWS = (
    ("file_text", "content"),
    ("old_str", "old_string"),
    ("new_str", "new_string"),
)


#: columns that a narrow terminal does without, in this order; blanks between two; least columns of a title or a name
_LEFT_OUT, _GAP, _LEAST_NAME = ("EVENTS", "CHANGED", "USED", "WAITING", "ENDS"), 3, 10


def status_text(status: str) -> Text:
    """A status of a conversation."""
    words = {"waiting_for_confirmation": "waits for you"}.get(status, status)
    return Text(visible(words), _STATUSES.get(status, ""))


def ago(time: str, ahead: float = 0.0) -> str:
    """How long ago a time of the wire is: 12 s, 3 min, 5 h, 2 d. ahead: seconds of the server's clock before ours."""
    seconds = max(0, int(_since(time, ahead)))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def moment(time: str) -> datetime:
    """A time of the wire, which is UTC where it names no zone."""
    parsed = datetime.fromisoformat(time)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def when(console: Console, time: str) -> str:
    """A time of the wire for a person, and as it came for a pipe."""
    return f"{ago(time, _ahead_of(console))} ago" if console.is_terminal else time


def _since(time: str, ahead: float) -> float:
    """Seconds since a time of the wire, by the server's clock."""
    return (datetime.now(UTC) - moment(time)).total_seconds() + ahead


def _ahead_of(console: Console) -> float:
    """Seconds by which the server's clock is ahead of this machine's, as the console of a session knows it."""
    ahead = getattr(console, "ahead", None)
    return ahead() if ahead else 0.0


def short(identity: str) -> str:
    """The beginning of a UUID, which names it in practice; another id whole."""
    return identity[:_LEAST_ID] if _UUID.fullmatch(identity) else identity


def shown_id(console: Console, identity: str) -> str:
    """An id as a person reads it on a terminal, and whole in a pipe or a file."""
    return short(identity) if console.is_terminal else identity


def shortest(ids: Iterable[str]) -> dict[str, str]:
    """The shortest beginning of each id that no other of them has, of 8 characters at least."""
    ordered = sorted(set(ids))
    shared = [_shared(*pair) for pair in itertools.pairwise(ordered)]
    return {
        one: one[: max(_LEAST_ID, *(number + 1 for number in shared[max(0, place - 1) : place + 1]), 0)]
        for place, one in enumerate(ordered)
    }


def _shared(one: str, other: str) -> int:
    """The number of characters that two ids have alike at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def counted(number: int, name: str) -> str:
    """A number of things: 1 file, 2 sandboxes."""
    return f"{number} {name}" if number == 1 else f"{number} {name}{'es' if name.endswith('x') else 's'}"


def size(number: int | None) -> str:
    """A number of bytes: 1.5 MiB."""
    value, units = float(number or 0), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return "–" if number is None else f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def print_table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table for people; for a pipe, lines with tabs and without a head."""
    if not console.is_terminal:
        for row in rows:
            click.echo("\t".join(str(cell) for cell in row))
        return
    kept = list(rows)
    widths = [max(cell_len(str(cell)) for cell in column) for column in zip(heads, *kept, strict=True)]
    # On a narrow terminal what a person has named gives way, and then the columns that say least: an id is shown whole.
    gives_way = next(place for place, head in enumerate(heads) if head in ("TITLE", "NAME", "WHAT"))
    least = min(widths[gives_way], _LEAST_NAME)
    for head in _LEFT_OUT:
        if sum(widths) - widths[gives_way] + least + _GAP * (len(heads) - 1) > console.width and head in heads:
            at = heads.index(head)
            heads, kept = _without(heads, at), [_without(row, at) for row in kept]
            widths.pop(at)
            gives_way -= gives_way > at
    room = console.width - sum(widths) - _GAP * (len(heads) - 1) + widths[gives_way]
    widths[gives_way] = min(widths[gives_way], max(least, room))
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, _GAP, 0, 0))
    for head, width in zip(heads, widths, strict=True):
        justify: Literal["left", "right"] = "right" if head in ("WAITING", "EVENTS") else "left"
        table.add_column(head, no_wrap=True, overflow="ellipsis", width=width, justify=justify)
    for row in kept:
        table.add_row(*row)
    console.print(table)


def _without(row: Sequence[Any], at: int) -> Sequence[Any]:
    """A row without one of its cells."""
    return [*row[:at], *row[at + 1 :]]


def print_entry(console: Console, entry: Entry, *, full: bool = False) -> None:
    """An entry of a log in one line, or more where its text has more. Some say nothing to people, and are left out."""
    is_whole = full or not console.is_terminal
    told = _told(entry.event, None if is_whole else _LONGEST)
    if told is None:
        return
    # A terminal has shown what the model wrote before a call while it came.
    said = _thought_of(entry.event) if console.is_terminal else ""
    before = [("agent", "bold green", Text(visible(said, prose=True)))] if said.strip() else []
    time = moment(entry.event["timestamp"]).astimezone(None if console.is_terminal else UTC)
    at = time.strftime("%H:%M:%S") if console.is_terminal else time.isoformat().replace("+00:00", "Z")
    seq = "" if entry.seq is None else str(entry.seq)
    for word, colour, body in (*before, told):
        head = Text.assemble((f"{seq:>5}  {at}  ", "dim"), (f"{word:<8}  ", colour))
        lines = _cut(body, None if is_whole else _LINES, "--full shows them")
        width = max(20, console.width - head.cell_len) if console.is_terminal else 1 << 20
        blank = " " * (head.cell_len - 2)
        for place, (mark, line) in enumerate(_wrapped(console, lines, width, is_marked=word == "action")):
            console.print(Text.assemble(*((blank, mark, " ") if place else (head,)), line), soft_wrap=True)


def print_talk(console: Console, entry: Entry, whole: str) -> None:
    """An entry of a log as a part of a talk.

    What an agent or a command says never begins in the first column: it can imitate neither a person's line nor a card.
    whole: what shows the rest of a long output.
    """
    event = entry.event
    told = _told(event, _LONGEST)
    if told is None:
        return
    word, colour, body = told
    kind, action = str(event["kind"]).rpartition(".")[2], event.get("action") or {}
    said = _thought_of(event)
    if kind == "ActionEvent" and action.get("kind") == "FinishAction":
        said, body = f"{said}\n{action.get('message') or ''}".strip(), Text()
    elif kind == "ObservationEvent" and event.get("tool_name") == "finish":
        return
    elif kind == "MessageEvent":
        if word in ("user", "server"):
            console.print()
        _print_part(console, body, {"user": "> ", "server": "Server: "}.get(word, "  "), "bold cyan")
        return
    elif word == "status":
        if str(event.get("value")) in ("idle", "running", "waiting_for_confirmation", "finished"):
            return
        said, word, colour = "", "—", "dim"
    elif kind in ("PauseEvent", "InterruptEvent"):  # the status that follows says it
        return
    if said.strip():
        _print_part(console, Text(visible(said, prose=True)), "  ", "")
    if not body.plain.strip():
        return
    if kind == "ObservationEvent":
        rest = Text.assemble((f"{word}\n", colour), body) if word.startswith("exit") else body
        _print_part(console, Text("\n").join(_middle_cut(rest, whole)), "  │ ", "dim")
    else:
        head = {"action": _ACTION, "—": "— "}.get(word, f"{word} " if kind == "DecisionEvent" else f"{word}: ")
        _print_part(console, body, head, colour)


def _print_part(console: Console, body: Text, head: str, colour: str) -> None:
    """Lines below each other. head: before the first one, and before all where it draws a line."""
    width, is_line = max(8, console.width - 1 - cell_len(head)), head.endswith("│ ")
    blank = " " * (cell_len(head) - 2)
    parts = _wrapped(console, _cut(body, None, ""), width, is_marked=head == _ACTION)
    for place, (mark, line) in enumerate(parts):
        before = (head, colour) if is_line or not place else Text.assemble(blank, mark, " ")
        console.print(Text.assemble(before, line), soft_wrap=True)


def _wrapped(
    console: Console, lines: Iterable[Text], width: int, *, is_marked: bool
) -> Iterator[tuple[tuple[str, str], Text]]:
    """The lines in so many columns, each with what stands before it in one column of its own.

    is_marked: a line that continues the one above has a mark there, which no text can imitate.
    """
    mark = "↳" if console.encoding.lower().startswith("utf") else "+"
    for line in lines:
        for place, part in enumerate(line.wrap(console, width) or [Text()]):
            yield (mark if place and is_marked else " ", "dim"), part


class _Marked:
    """Lines of a card. is_marked: a line that continues the one above is marked."""

    def __init__(self, text: Text, *, is_marked: bool) -> None:
        self._text, self._is_marked = text, is_marked

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._text.split("\n", allow_blank=True) if self._text.plain else [Text()]
        for mark, line in _wrapped(console, lines, max(1, options.max_width - 1), is_marked=self._is_marked):
            yield Text.assemble(mark, line)


def _middle_cut(body: Text, whole: str) -> list[Text]:
    """The first and the last lines of an output: its end says how it went."""
    lines, most = _cut(body, None, ""), _LINES_OF_TALK
    if len(lines) <= most:
        return lines
    first = most // 3
    left_out = Text(f"… {len(lines) - most + 1:,} more lines: {whole}", "dim")
    return [*lines[:first], left_out, *lines[first + 1 - most :]]


def _cut(body: Text, most: int | None, whole: str) -> list[Text]:
    """The lines of a text, at most so many, without empty ones at its end. whole: what shows the rest."""
    lines = list(body.split("\n", allow_blank=True))
    while lines and not lines[-1].plain.strip():
        lines.pop()
    if most is not None and len(lines) > most:
        lines = [*lines[:most], Text(f"… {len(lines) - most:,} more lines: {whole}", "dim")]
    return lines or [Text()]


class Card:
    """Something that waits: in a frame on a terminal; in a pipe without one, with whole ids and times of the wire."""

    def __init__(
        self,
        head: str,
        facts: Text,
        item: WaitingAction | AskedDestinationInfo,
        body: list[Text],
        whose: tuple[str, str | None, str | None],
        colour: str,
        ids: Mapping[str, str] | None,
    ) -> None:
        """whose: its id, and the id and the title of its conversation."""
        self._head, self._facts, self._item, self._body, self._colour = head, facts, item, body, colour
        self._whose, self._ids = whose, ids or {}

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        if console.is_terminal:
            title = Text(self._head, "bold")
            facts, body, last = self._lines(console)
            # What a person reads as one line is one: the arguments mark where the terminal breaks it.
            lines = [_Marked(facts, is_marked=False), *(_Marked(one, is_marked=True) for one in body)]
            shown = Group(*lines, _Marked(last, is_marked=False))
            yield Panel(shown, title=title, title_align="left", border_style=self._colour, padding=(0, 1, 0, 0))
            return
        facts, body, last = self._lines(console)
        yield from (Text(self._head), facts, *body, last, Text())

    def _lines(self, console: Console) -> tuple[Text, list[Text], Text]:
        item = self._item
        facts = Text.assemble(self._facts, ("asked ", "dim"), (when(console, item["since"]), "dim"))
        if ends := item["expires_at"]:
            left = -int(_since(ends, _ahead_of(console)))
            at = f"in {left} s" if console.is_terminal else f"at {ends}"
            facts.append(f"  ·  rejected {at}" if left > 0 else "  ·  its time is over", "yellow")
        identity, conversation, title = self._whose
        name = "several conversations share it"
        if conversation:
            of = self._ids.get(conversation, short(conversation)) if console.is_terminal else conversation
            name = f"{in_line(title or 'Conversation without a title')} ({of})"
        identity = in_line(self._ids.get(identity, short(identity)) if console.is_terminal else identity)
        digest = item["digest"][:12] if console.is_terminal else item["digest"]
        return facts, self._body, Text(f"{identity}  ·  digest {digest}  ·  {name}", "dim")


def card(item: WaitingAction, ids: Mapping[str, str] | None = None) -> Card:
    """A pending action: the whole of what will run, whatever its length. ids: how ids are shown."""
    own = item["security_risk"]
    words, colour = _RISKS.get(item.get("risk", own), _RISKS["UNKNOWN"])
    arguments = item["arguments"]
    said = [text for text in (item["summary"], item["thought"]) if text and text != command_of(arguments)]
    warned = [Text(INCOMPLETE, "bold yellow")] if is_incomplete(item) else []
    said_parts = (Text(visible(str(text), prose=True), "italic") for text in said)
    body = [*warned, *said_parts, Text(), *_arguments(arguments), Text()]
    whose = (item["conversation_id"], item["conversation_title"])
    if held := quorum_of(item):
        body.append(Text(held, "yellow"))
    asker = [(f"{said}  ·  {_at_terminal(item)}\n", "cyan") for said in filter(None, [asker_of(item)])]
    facts = Text.assemble(*asker, (words, colour), ("  ·  ", "dim"), *_seen(item, own))
    return Card(in_line(item["tool_name"]), facts, item, body, (item["action_id"], *whose), colour, ids)


def asker_of(item: Any) -> str:
    """Who asks from outside of the server, in its own words: `claude-code · ada@laptop · /home/ada/shop`; "" if nobody.

    Servers of an earlier release know no such agents.
    """
    if not (of := item.get("asked_from")):
        return ""
    who = "@".join(filter(None, (of["person"], of["machine"])))
    return " · ".join(in_line(one) for one in (of["agent"], who, of["folder"]) if one)


def is_in_terminal(item: Any) -> bool:
    """Whether only the terminal of its agent can answer an action."""
    return bool((item.get("asked_from") or {}).get("in_terminal"))


def _at_terminal(item: Any) -> str:
    """Whether the terminal of such an agent asks too."""
    of = item["asked_from"]
    if is_in_terminal(item):
        return "asked in the terminal: answer it there"
    if of["kind"] == "gate":
        return "asked here alone"
    return "also asked at its terminal" if of["order"] == "races" else "its terminal asks later"


def is_incomplete(item: WaitingAction) -> bool:
    """Whether more may run than the agent shows. Servers of an earlier release do not say it."""
    return item.get("complete") is False


def quorum_of(item: WaitingAction) -> str:
    """Who has approved of how many, and why the reader may not approve; "" where one person decides and may."""
    held = item.get("quorum")
    words = [counted_of(held)] if held and held["needed"] > 1 else []
    if why := why_not(item):
        words.append(why)
    return ". ".join(words)


def why_not(item: WaitingAction) -> str:
    """Why the reader may not approve an action; "" where they may."""
    if is_in_terminal(item):
        return "It is asked in its terminal now: answer it there"
    held = item.get("quorum") or {}
    if held.get("voted"):
        return "You have approved it already: others must approve it too"
    if held.get("own"):
        return "You may not approve it: you asked for it, or the conversation is yours"
    return "" if "approve" in item["can"] else "You may not decide it: you have no right to approve here"


def counted_of(held: Any) -> str:
    """How many have approved, and who: `1 of 2 approved: ada`."""
    names = ", ".join(in_line(one) for one in held["approved_by"])
    return f"{len(held['approved_by'])} of {held['needed']} approved{f': {names}' if names else ''}"


def counts(held: Any) -> str:
    """What a person is told whose approval is not the last one."""
    return f"Your approval counts: {len(held['approved_by'])} of {held['needed']}. It waits for others"


def _seen(item: WaitingAction, own: str) -> Iterator[str | tuple[str, str]]:
    """What the server sees of an action, and the agent's own word where it is another. Old servers see nothing."""
    effects = item["seen"]["effects"] if "seen" in item else []
    if effects:
        yield " · ".join(in_line(one["words"]) for one in effects)
        yield "  ·  ", "dim"
    if own != item.get("risk", own) and not item.get("asked_from"):  # whose hook tells no risk
        words, _ = _RISKS.get(own, _RISKS["UNKNOWN"])
        yield f"the agent says: {words.lower()}", "dim"
        yield "  ·  ", "dim"


def named(tool_name: str, arguments: Any, summary: str | None = None) -> Text:
    """An action in one line: its tool, what runs, and the agent's summary beside it."""
    words = first_line(call_of(arguments), _LONGEST)
    return Text.assemble((in_line(tool_name), "bold"), f"  {words}", _beside(arguments, summary, _LONGEST))


def _beside(arguments: Any, summary: object, most: int | None) -> tuple[str, str]:
    """The summary of an action, dimmed behind what runs: the model may say what it does not do. most: characters."""
    command = command_of(arguments)
    if not isinstance(summary, str) or not summary.strip() or summary == command:
        return "", ""
    words = in_line(summary) if most is None else beginning(in_line(summary), most)
    head = "\n— " if command is not None and "\n" in command else "  — "
    return f"{head}{words}", "dim"


def destination_card(
    item: AskedDestinationInfo, title: str | None = None, ids: Mapping[str, str] | None = None
) -> Card:
    """A destination that a sandbox asks for, or a budget that is used up. title: of its conversation."""
    budget = item.get("budget")
    head = "A budget of models is used up" if budget else "A sandbox asks to reach"
    name = _budget(budget) if budget else f"{in_line(item['name'] or '')}:{item['port']}"
    program = visible(item["program"] or "", prose=True)
    body = [Text(f"by a program that calls itself {program}", "italic")] if program else []
    if not budget:
        body.append(Text("This try has failed already. Once allowed, the next passes.", "dim"))
    tries = f"{item['tries']} tries  ·  " if item["tries"] > 1 else ""
    facts = Text.assemble((name, "bold"), "\n", (tries, "dim"))  # a long name wraps here
    whose = (f"sandbox {in_line(item['sandbox_id'])}", item["conversation_id"], title)
    return Card(head, facts, item, body, whose, "cyan", ids)


def amounts(budget: AskedBudgetInfo) -> str:
    """What an approval adds to a budget: $5 and 2,000,000 tokens."""
    found = [f"${budget['dollars']:g}"] if budget["dollars"] is not None else []
    found += [f"{budget['tokens']:,} tokens"] if budget["tokens"] is not None else []
    return " and ".join(found)


def _budget(budget: AskedBudgetInfo) -> str:
    """Whose budget it is, and what an approval adds."""
    facts = (("of key", budget["key_id"]), ("on", budget["day"]))
    whose = "".join(f" {word} {in_line(fact)}" for word, fact in facts if fact)
    return f"{in_line(budget['setting'])}{whose}: an approval adds {amounts(budget)}"


def _lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines of two texts, which end at \\n alone; an end that only one of them has is a difference."""
    if all(not text or text.endswith("\n") for text in (before, after)):
        before, after = before.removesuffix("\n"), after.removesuffix("\n")
    return before.split("\n") if before else [], after.split("\n") if after else []


def diff_text(change: GitChange, diff: GitDiff) -> Text:
    """A changed file as a unified diff."""
    path = in_line(change["path"])
    names = {"ADDED": ("/dev/null", f"b/{path}"), "DELETED": (f"a/{path}", "/dev/null")}
    old, new = names.get(change["status"], (f"a/{path}", f"b/{path}"))
    before, after = _lines(diff["original"] or "", diff["modified"] or "")
    lines = difflib.unified_diff(before, after, old, new, lineterm="")
    text = Text()
    for line in lines:
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        colour = "bold" if line.startswith(("+++", "---")) else colour
        text.append(visible(line, prose=True) + "\n", colour)
    if not text and change["status"] in names:  # an empty file has no line that differs
        text.append(f"--- {old}\n+++ {new}\n", "bold")
    return text


def _told(event: Event, most: int | None) -> tuple[str, str, Text] | None:
    """The word, its colour and the text for an event. most: characters of arguments that are no shell command."""
    kind = str(event["kind"]).rpartition(".")[2]
    if kind == "MessageEvent":
        source = beginning(in_line(str(event["source"])), 8)
        said = _text_of((event.get("llm_message") or {}).get("content"))
        if source == "user" and said.startswith(OF_SERVER):
            return "server", "bold cyan", Text(visible(said.removeprefix(OF_SERVER), prose=True))
        return source, "bold cyan" if source == "user" else "bold green", Text(visible(said, prose=True))
    if kind == "ActionEvent":
        action = event.get("action") or event.get("tool_call") or {}
        words = visible(call_of(action))
        if most is not None and command_of(action) is None:
            words = beginning(words, most)
        tool = in_line(str(event.get("tool_name")))
        return (
            "action",
            "yellow",
            Text.assemble((tool, "bold"), "  ", words, _beside(action, event.get("summary"), most)),
        )
    if kind == "ObservationEvent":
        seen = event.get("observation") or {}
        code = seen.get("exit_code")
        text = Text(of_output(_text_of(seen.get("content"))))
        if code == -1 and not seen.get("is_error"):  # as the published terminal tool says it
            return "running", "dim", text
        return ("result", "dim", text) if not code else (f"exit {code}", "red", text)
    if kind == "UserRejectObservation":
        return "rejected", "red", Text(visible(str(event.get("rejection_reason") or ""), prose=True))
    if "Error" in kind:
        words = event.get("error") or f"{event.get('code')}: {event.get('detail')}"
        return "error", "bold red", Text(of_output(str(words)))
    if kind == "ConversationStateUpdateEvent":
        value = event.get("value")
        if event.get("key") == "returned_to" and isinstance(value, dict):
            return "returned", "bold cyan", Text(f"to the event {in_line(str(value.get('event_id')))}, with its files")
        is_status = event.get("key") == "execution_status"
        return ("status", "dim", status_text(str(value))) if is_status else None
    if kind == "DecisionEvent":
        return decision_words(event)
    if kind in ("StreamingDeltaEvent", "CommandOutputEvent", "SystemPromptEvent"):
        return None
    return "event", "dim", Text(in_line(kind), "dim")


def _thought_of(event: Event) -> str:
    """What the model wrote before its call."""
    return _text_of(event.get("thought")) if str(event["kind"]).endswith("ActionEvent") else ""


def _text_of(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict) and part.get("text"))


def _arguments(given: Any) -> list[Text]:
    """All arguments, by the rules of the console: a command, a change of a file, or JSON."""
    if not isinstance(given, dict):
        return [Text(visible(json.dumps(given, indent=2, ensure_ascii=False)))]
    head, used = _form(given)
    unset = UNSET if command_of(given) is not None else {}
    said = {name: value for name, value in given.items() if value is not None and unset.get(name) is not value}
    if not said:
        return [Text("No arguments.", "dim")]
    rest = {name: value for name, value in said.items() if name not in used}
    quiet = {name: value for name, value in rest.items() if json.dumps(value) in ("null", "false", '""', "[]", "{}")}
    loud = {name: value for name, value in rest.items() if name not in quiet}
    parts = head
    if loud:
        parts.append(Text(visible(json.dumps(loud, indent=2, ensure_ascii=False))))
    if quiet:
        words = ", ".join(f"{name}: {json.dumps(value)}" for name, value in quiet.items())
        parts.append(Text(visible(words), "dim"))
    return parts


def _form(values: dict[str, Any]) -> tuple[list[Text], set[str]]:
    """What is shown in a way of its own, and the names of the arguments that it shows."""
    path, whole, old, new = (member(values, names) for names in (PATHS, _WHOLES, _OLDS, _NEWS))
    command = values.get("command") if isinstance(values.get("command"), str) else None
    verb = command if command in _VERBS else ""
    if path and (verb or (command is None and (whole or new))):
        used = {path, *(["command"] if verb else [])}

        def where(kind: str) -> Text:
            return Text.assemble(f"{_VERBS[kind]} ", (in_line(values[path]), "bold"))

        if new and (old or verb == "insert") and verb not in ("create", "view"):
            before, after = _lines(values[old] if old else "", values[new])
            lines = list(difflib.ndiff(before, after))
            shown = [Text(visible(one), {"+": "green", "-": "red"}.get(one[0], "")) for one in lines if one[0] != "?"]
            return [where(verb or "str_replace"), *shown], {*used, new, *([old] if old else [])}
        if whole and (verb or "create") == "create":
            return [where("create"), Text(visible(values[whole]))], {*used, whole}
        if verb:
            return [where(verb)], used
    if command is not None:
        return [Text(visible(command), "bold")], {"command"}
    return [], set()
