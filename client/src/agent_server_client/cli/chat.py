"""The command chat: one conversation at the terminal, with a prompt in its last rows."""

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from agent_server_client._async import AsyncClient, AsyncConversation, AsyncDestination, AsyncPendingAction
from agent_server_client._sync import Client, Destination, PendingAction
from agent_server_client.cli.ages import Ages
from agent_server_client.cli.conversations import (
    agent_option,
    approve_option,
    folder_of,
    go_on_option,
    title_of,
)
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.elsewhere import DecidedElsewhere, Elsewhere
from agent_server_client.cli.modes import mode_option, modes_text
from agent_server_client.cli.profiles import BadProfile, target
from agent_server_client.cli.program import (
    AT_A_TERMINAL,
    CommandSession,
    Failed,
    command,
    conversation_id,
    ids_completed,
    in_commands,
)
from agent_server_client.cli.progress import EventProgress, retried
from agent_server_client.cli.questions import confirm
from agent_server_client.cli.shown import counted, diff_text, print_talk, status_text
from agent_server_client.cli.watching import RunState, tells_by_itself
from agent_server_client.errors import AgentServerError
from agent_server_client.models import AppConversationStartTask
from agent_server_client.packing import OF_AGENT
from agent_server_client.visible import first_line, in_line, visible
from agent_server_client.wire import Entry

#: turns that are shown of a conversation that goes on, and most events of them
_TURNS, _EVENTS = 3, 200

#: seconds between two looks at what waits, and for which the end waits for a line that is being sent
_LOOK, _LAST = 1.0, 2.0

#: changed files that /diff shows, and names that /files does
_MOST = 50

_COMMANDS = {
    "/help": "this list",
    "/status": "the conversation, and what it does",
    "/diff [PATH]": "what has changed in the folder since the start",
    "/files [PATH]": "the files of the sandbox",
    "/mode [MODE]": "which actions wait for a decision, or a new mode",
    "/decide": "ask again about what waits for a decision",
    "/stop": "ask the agent to stop, as Ctrl-C does",
    "/undo": "whether and how the last changes can be taken back",
    "/quit": "leave; the agent goes on",
}

_HELP = """\
A line is sent at once, also while the agent works. Alt-Enter begins another line of it, the arrows bring earlier ones
back. Ctrl-C stops the agent, twice it leaves; Ctrl-D leaves.""".replace("\n", " ")

_NO_UNDO = """\
The server keeps what the folder was like, and has no way to turn it back. /diff shows the changes: tell the agent which
of them to undo.""".replace("\n", " ")


def parsed(line: str) -> tuple[str, str] | None:
    """A line as a command and its argument; None for a message, which may begin with a path."""
    match = re.fullmatch(r"(/[a-z]+)(?:[ \t]+(\S.*))?", line.strip())
    known = {one.split()[0] for one in _COMMANDS}
    if match and (match[1] in known or match[2] is None):
        return match[1], (match[2] or "").strip()
    return None


@command()
@click.argument("conversation", metavar="[ID]", required=False, callback=conversation_id, shell_complete=ids_completed)
@click.option("--repo", metavar="URL|DIR", help="Give the sandbox the files of a folder or a Git repository.")
@agent_option
@click.option("--model", help="The model of the agent.")
@mode_option
@approve_option()
@go_on_option
def chat(
    session: CommandSession,
    conversation: str | None,
    repo: str | None,
    agent: str | None,
    model: str | None,
    mode: str | None,
    approve: str | None,
    stays: bool,
) -> None:
    """Talk with an agent, and see its work.

    Without ID the first line that you type starts a conversation. With one, the last turns are shown, and it goes on.
    """
    if session.as_json or not sys.stdin.isatty() or not session.out.is_terminal:
        raise Failed(2, "`chat` needs a terminal. Use `agentctl run TEXT`, and `agentctl send -f ID TEXT` to go on")
    if conversation and (repo or agent or model or mode or stays):
        options = "--repo, --agent, --model, --mode and --no-go-on"
        words = f"{options} are of a new conversation: leave ID out. /mode changes the mode"
        raise Failed(2, words)
    blocking = session.client()
    if repo or approve in ("ask", "never"):
        session.require(blocking, "--repo" if repo else f"--approve {approve}", "write", "approve")
    identity = session.conversation(blocking, conversation).id if conversation else None
    where = f"conversation {identity[:8]}" if identity else "a new conversation: its first line is the agent's task"
    notice = blocking.server_info()["notice"]
    session.out.print(Text(f"{in_line(blocking.url)}  {where}. /help lists the commands", "dim"))
    if notice:
        session.out.print(Text(visible(notice, prose=True), "yellow"))
    with folder_of(repo) as folder:
        talk = _Talk(session, blocking, approve, folder, agent, model, mode, goes_on=not stays)
        try:
            asyncio.run(talk.hold(identity))
        finally:
            talk.farewell()


class _Talk:
    """One session at the terminal."""

    def __init__(
        self,
        session: CommandSession,
        blocking: Client,
        approve: str | None,
        folder: Path | None,
        agent: str | None,
        model: str | None,
        mode: str | None,
        *,
        goes_on: bool,
    ) -> None:
        """goes_on: whether the server tells the agent of a new conversation what is allowed now."""
        self._session, self._blocking, self._approve = session, blocking, approve
        self._approver = self._made_approver()
        self._folder, self._agent, self._model, self._mode, self._goes_on = folder, agent, model, mode, goes_on
        self._progress, self._run = EventProgress(), RunState(0)
        self._unsent: list[str] = []  #: lines that the server has not acknowledged, in their order
        self._shown_ahead: list[str] = []  #: lines that the log has shown before they were acknowledged
        self._found: AsyncConversation | None = None
        self._fault: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def hold(self, identity: str | None) -> None:
        """Talk until the person leaves. Raises what ended it otherwise."""
        # Its library would take a tenth of the start of every command.
        from agent_server_client.cli.screen import Screen

        self._changed, self._looks, self._showing = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._screen = Screen(self._session.out, self._lines, self._foot, self._entered, self._interrupt)
        loop = asyncio.get_running_loop()

        def beside(line: Text) -> None:
            loop.call_soon_threadsafe(lambda: self._say(line))

        self._session.beside = self._beside = beside
        self._session.on_silence = self._progress.lose
        async with self._client() as self._server:
            if identity:
                self._found = self._server.conversation(identity)
                self._goes_on = tells_by_itself(self._blocking.conversation(identity))
                self._begin(self._follow(self._found, await self._earlier(self._found)))
            sending = self._begin(self._send_all())
            try:
                await self._screen.run()
                if self._unsent and self._fault is None:
                    await asyncio.wait([sending], timeout=_LAST)
            finally:
                self._session.beside = self._session.on_silence = None
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._fault is not None:
            raise self._fault

    def farewell(self) -> None:
        """Say how to come back."""
        out = self._session.out
        for text in self._unsent:
            out.print(Text.assemble(("Not sent: ", "yellow"), visible(text, prose=True)), soft_wrap=True)
        is_gone = isinstance(self._fault, AgentServerError) and self._fault.status == 404
        if self._found is not None and not is_gone:
            goes_on = "The agent goes on. " if self._progress.status == "running" else ""
            out.print(Text(f"{goes_on}Come back: agentctl chat {self._found.id[:8]}", "dim"))

    def _client(self) -> AsyncClient:
        try:
            found = target(self._session.profile)
        except BadProfile as error:
            raise Failed(2, str(error)) from None
        client = AsyncClient(*found, retry_seconds=AT_A_TERMINAL, first_seconds=1.0, on_retry=self._lost)
        self._session.watch(client, AT_A_TERMINAL)
        return client

    def _made_approver(self) -> Approver:
        return Approver(self._session, self._approve, asks_again=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the prompt. What it cannot go on after ends the talk."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._fault = self._fault or error
                self._screen.quit()

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # what is shown

    def _lines(self, most: int) -> list[Text]:
        width = max(8, self._session.out.width - 1)
        shown = self._unsent[len(self._shown_ahead) :]
        waiting = [Text(f"… {first_line(text, width - 2)}", "dim") for text in shown[:3]]
        for line in waiting:
            line.truncate(width, overflow="ellipsis")
        return [*self._progress.lines(self._session.out, max(1, most - len(waiting))), *waiting]

    def _foot(self) -> Text:
        name = self._found.id[:8] if self._found else "new"
        words = {"": "", "waiting_for_confirmation": "waits for you: /decide"}
        status = words.get(self._progress.status, self._progress.status)
        parts = [name, *([status] if status else []), "/help", "Ctrl-D leaves"]
        foot = Text("  ·  ".join(parts), "dim")
        foot.truncate(max(8, self._session.out.width - 1), overflow="ellipsis")
        return foot

    def _say(self, words: str | Text, style: str = "dim") -> None:
        text = words if isinstance(words, Text) else Text(visible(words, prose=True), style)
        self._screen.print(partial(self._session.out.print, text, soft_wrap=False))

    def _lost(self, refusal: AgentServerError, _: float, __: float) -> None:
        self._progress.tell(retried(refusal))

    # what is typed

    def _entered(self, text: str) -> None:
        called = parsed(text)
        if called is None:
            self._unsent.append(text)
            self._changed.set()
        else:
            self._begin(self._do(*called))

    def _interrupt(self) -> None:
        self._begin(self._stop())

    async def _stop(self) -> None:
        if self._found is None or self._progress.status not in ("running", "waiting_for_confirmation"):
            self._say("Nothing runs. Ctrl-C again leaves, and so does Ctrl-D")
            return
        self._say("The agent is asked to stop. Ctrl-C again leaves, and a line lets it go on")
        await self._or_said(self._found.interrupt())

    async def _do(self, name: str, argument: str) -> None:
        if name == "/quit":
            self._screen.quit()
        elif name == "/help":
            rows = [Text.assemble((f"{one:<16}", "bold"), words) for one, words in _COMMANDS.items()]
            self._say(Text("\n").join([*rows, Text(_HELP, "dim")]))
        elif name == "/undo":
            self._say(_NO_UNDO, "")
        elif name not in {one.split()[0] for one in _COMMANDS}:
            self._say(f"There is no {name}: /help lists the commands", "yellow")
        elif name == "/mode":
            await self._or_said(self._set_mode(argument))
        elif self._found is None:
            self._say("Nothing has begun: type a line, which starts a conversation", "yellow")
        elif name == "/stop":
            await self._stop()
        elif name == "/decide":
            self._approver = self._made_approver()
            await self._or_said(self._decide(self._found, is_asked=True))
        else:
            shown = {"/diff": self._diff, "/files": self._files, "/status": self._status}[name]
            async with self._showing:
                await self._or_said(shown(self._found, argument or "."))

    async def _diff(self, found: AsyncConversation, path: str) -> None:
        changes = [
            one for one in await found.changes(path, since="start") if not one["path"].startswith(f"{OF_AGENT}/")
        ]
        for one in changes[:_MOST]:
            place = one["path"] if path == "." else f"{path.rstrip('/')}/{one['path']}"
            text = diff_text(one, await found.diff(place, since="start"))
            self._screen.print(partial(self._session.out.print, text, end="", soft_wrap=True))
        if len(changes) > _MOST:
            self._say(f"… {counted(len(changes) - _MOST, 'more file')}: agentctl diff {found.id[:8]} {in_line(path)}")
        if not changes:
            self._say("No changes.")

    async def _files(self, found: AsyncConversation, path: str) -> None:
        names = await found.files.list(path)
        self._say(Text("\n").join(Text(in_line(name)) for name in names[:_MOST]) if names else "No files.")
        if len(names) > _MOST:
            self._say(f"… {len(names) - _MOST:,} more: agentctl files {found.id[:8]} {in_line(path)}")

    async def _status(self, found: AsyncConversation, _: str) -> None:
        info, number, waits = await found.info(), await found.count(), len(await self._waiting(found))
        rows = (
            ("conversation", Text(found.id)),
            ("title", Text(in_line(info.get("title") or "–"))),
            ("status", status_text(info["execution_status"])),
            ("mode", Text(in_line(info.get("approval_mode") or "–"))),
            ("now", Text(self._progress.doing or "–")),
            ("events", Text(f"{number:,}")),
            ("waiting", Text(f"{waits:,} for you: /decide", "bold yellow") if waits else Text("nothing")),
        )
        self._say(Text("\n").join(Text.assemble((f"{name:<14}", "dim"), shown) for name, shown in rows))

    async def _set_mode(self, name: str) -> None:
        """Show the modes, or set one: of the conversation, or of the one that the first line starts."""
        modes = {one["name"]: one for one in await self._server.modes()}
        if not name:
            present = (await self._found.info())["approval_mode"] if self._found else self._mode or ""
            self._say(modes_text(self._session.out, [*modes.values()], present))
        elif self._found:
            await self._found.set_mode(name)
            self._say(f"From the next action on: {in_line(modes[name]['words'])}")
        elif name in modes:
            self._mode = name
            self._say(f"From the first line on: {in_line(modes[name]['words'])}")
        else:
            self._say(f"There is no mode {in_line(name)}: /mode lists them", "yellow")

    async def _or_said(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something whose refusal is told."""
        try:
            await work
        except AgentServerError as error:
            look = f". `agentctl logs {self._found.id}` shows it" if self._found else ""
            self._say(f"Refused: {error.detail}" if error.status else f"{error.detail}{look}", "yellow")

    # what is sent

    async def _send_all(self) -> None:
        while True:
            self._changed.clear()
            if not self._unsent:
                await self._changed.wait()
                continue
            text = self._unsent[0]
            try:
                if self._found is None:
                    await self._start(text)
                else:
                    await self._send(self._found, text)
            except AgentServerError as error:
                self._say(f"Not sent: {in_commands(error.detail.removeprefix('Not sent: '))}", "bold red")
                self._screen.put_back(text)
            except click.Abort:
                self._screen.put_back(text)
            self._unsent.pop(0)
            if self._shown_ahead:
                self._shown_ahead.pop(0)

    async def _start(self, text: str) -> None:
        def progress(task: AppConversationStartTask) -> None:
            self._progress.tell(f"starting: {task['status'].lower().replace('_', ' ')}", inf)

        self._progress.tell("starting", inf)
        try:
            self._found = await self._server.start(
                text,
                folder=self._folder,
                spec=self._agent,
                title=title_of(text),
                model=self._model,
                mode=self._mode,
                goes_on_when_allowed=None if self._goes_on else False,
                on_progress=progress,
            )
        finally:
            self._progress.hush()
        self._begin(self._follow(self._found, 0))

    async def _send(self, found: AsyncConversation, text: str) -> None:
        """Send a line, and ask before it rejects what waits. Raises click.Abort for a No."""
        try:
            await found.send(text, rejects=False)
        except AgentServerError as error:
            if error.status != 409:
                raise
            if not (waiting := await found.pending_actions()):  # what waited was decided meanwhile
                await found.send(text, rejects=False)
                return
            elsewhere = Elsewhere()
            read = elsewhere.reader({one.id for one in waiting})
            elsewhere.follow(self._session.client(patient=True, is_quiet=True))
            words = f"This message rejects {counted(len(waiting), 'action')}. Send it?"
            try:
                is_meant = await self._asked(partial(confirm, self._session, words, read=read))
            except DecidedElsewhere as gone:
                self._say(f"{gone} The message is sent if nothing else waits.", "yellow")
                await self._send(found, text)
                return
            except EOFError:
                is_meant = False
            if not is_meant:
                raise click.Abort from None
            await found.send(text)

    # what comes

    async def _earlier(self, found: AsyncConversation) -> int:
        """The seq after which the last turns begin."""
        path, last = f"/api/conversations/{found.id}/events/search", await found.count()
        wanted = {"kind": "MessageEvent", "source": "user", "sort_order": "TIMESTAMP_DESC", "limit": _TURNS}
        said = (await self._server.get(path, **wanted))["items"]
        before = await found.count(timestamp__lt=said[-1]["timestamp"]) if said else 0
        after = max(before, last - _EVENTS)
        if after:
            self._say(f"… {counted(after, 'earlier event')}: agentctl logs {found.id[:8]}")
        return after

    async def _follow(self, found: AsyncConversation, after: int) -> None:
        self._begin(self._watch(found))
        ages, whole = Ages(self._server), f"agentctl logs {found.id[:8]} --full"
        async with contextlib.aclosing(found.events(after)) as entries:
            async for entry in entries:
                self._progress.take(entry.event, ages.of(entry))
                self._run.note(entry)
                self._acknowledge(entry)
                if not self._approver.has_decided(entry.event):
                    self._screen.print(partial(print_talk, self._session.out, entry, whole))
                self._offer()
                if self._progress.status == "waiting_for_confirmation":
                    self._looks.set()

    def _acknowledge(self, entry: Entry) -> None:
        """A line that the log shows is no longer shown as one that waits."""
        if entry.event.get("source") == "user" and len(self._shown_ahead) < len(self._unsent):
            parts = (entry.event.get("llm_message") or {}).get("content") or []
            if [one.get("text") for one in parts] == [self._unsent[len(self._shown_ahead)]]:
                self._shown_ahead.append("")

    async def _watch(self, found: AsyncConversation) -> None:
        """Ask about what waits: whenever the inbox or the log says so."""

        async def signals() -> None:
            with contextlib.suppress(AgentServerError):  # a key may not read the inbox
                async for _, data in self._server.inbox(destinations=True):
                    if data:
                        self._looks.set()

        self._begin(signals())
        while True:
            await self._looks.wait()
            self._looks.clear()
            await self._or_said(self._decide(found))
            await asyncio.sleep(_LOOK)
            if self._progress.status == "waiting_for_confirmation":
                self._looks.set()

    async def _decide(self, found: AsyncConversation, *, is_asked: bool = False) -> None:
        waiting = await self._waiting(found)
        for one in waiting:
            with contextlib.suppress(click.exceptions.Exit):  # Ctrl-C leaves it waiting
                try:
                    outcome = await self._asked(partial(self._approver.decide, one))
                except AgentServerError as error:
                    if error.status is not None:
                        raise
                    self._say(error.detail, "yellow")
                    return
                self._run.decided(one, outcome, lambda: self._run.seen)
                self._offer()
        if is_asked and not waiting:
            self._say("Nothing waits for a decision.")

    async def _asked(self, ask: Callable[[], Any]) -> Any:
        """What a question returns, which has the terminal for itself: a line about the server is printed at once."""

        def alone() -> Any:
            self._session.beside = None
            try:
                return ask()
            finally:
                self._session.beside = self._beside

        return await self._screen.ask(alone)

    def _offer(self) -> None:
        """Offer a line, once the agent has stopped, that tells it what is allowed now."""
        if self._run.allowed and self._run.has_stopped:
            message = self._run.message
            self._run.allowed.clear()
            if self._goes_on:
                self._say("The server tells the agent, which goes on")
                return
            is_offered = self._screen.put_back(message)
            self._say("Enter tells the agent" if is_offered else f"A line tells the agent: {message}")

    async def _waiting(self, found: AsyncConversation) -> list[PendingAction | Destination]:
        """All that waits in the conversation."""
        try:
            every: list[AsyncPendingAction | AsyncDestination] = await found.waiting()
        except AgentServerError as error:
            if error.status != 404:
                raise
            # The server is of an earlier release, which has no such list.
            every = [*await found.pending_actions(), *await self._destinations(found)]
        return [
            PendingAction(self._blocking, one.item)
            if isinstance(one, AsyncPendingAction)
            else Destination(self._blocking, one.item)
            for one in every
        ]

    async def _destinations(self, found: AsyncConversation) -> list[AsyncDestination]:
        """What the conversation's sandbox asks for; nothing at a server that does not know of it."""
        try:
            return [one for one in await self._server.destinations() if one.item["conversation_id"] == found.id]
        except AgentServerError as error:
            if error.status in (403, 404):
                return []
            raise


COMMANDS = (chat,)
