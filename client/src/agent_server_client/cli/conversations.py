"""Commands about conversations: run, ls, logs, send, fork, back, pause, resume, rm, open."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from pathlib import Path

import click
from rich.text import Text

from agent_server_client._sync import Client, Conversation
from agent_server_client.archives import clone
from agent_server_client.cli.decided import whole_log
from agent_server_client.cli.decisions import Approver, asked_for
from agent_server_client.cli.elsewhere import DecidedElsewhere, Elsewhere
from agent_server_client.cli.folders import fetch, force_option
from agent_server_client.cli.live import followed
from agent_server_client.cli.modes import mode_option
from agent_server_client.cli.program import (
    NOT_FOUND,
    REFUSED,
    STOPPED_SHORT,
    CommandSession,
    Failed,
    command,
    conversation_argument,
    conversation_id,
    ids_completed,
    known_ids,
    print_json,
)
from agent_server_client.cli.questions import Read, agrees, is_asked
from agent_server_client.cli.shown import counted, print_table, shortest, shown_id, status_text, when
from agent_server_client.cli.watching import RunState, before, rest_of, watched
from agent_server_client.errors import AgentServerError
from agent_server_client.models import AppConversationStartTask
from agent_server_client.visible import beginning, in_line
from agent_server_client.wire import Entry

#: what Git takes for the address of a repository elsewhere: a scheme, or `HOST:PATH` as of scp
_URL = re.compile(r"[\w+.-]+://|[^/\s]{2,}:")

#: what an agent does that is left by Ctrl-C, by its status; else it goes on
_LEFT = {"waiting_for_confirmation": "waits for a decision", "finished": "has finished"}


def approve_option(*more: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Option --approve. more: values beside those that every follower has."""
    words = (
        "Who decides what waits: `ask` asks you here (the default at a terminal), `rules` leaves it to the server's "
    )
    words += "rules and the inbox (the default elsewhere), `never` rejects it."
    if "all" in more:
        words += (
            " `all` lets the agent do everything inside this sandbox unasked; what the sandbox asks to reach waits."
        )
    return click.option("--approve", type=click.Choice(["ask", "rules", "never", *more]), help=words)


#: option --no-go-on
go_on_option = click.option(
    "--no-go-on",
    "stays",
    is_flag=True,
    help="Once a destination or a budget that stopped the agent is allowed, do not have it told to try again.",
)

#: option --wait
wait_option = click.option(
    "--wait",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="How long to wait for a decision that somebody else takes.  [default: 3600 without a terminal, else forever]",
)


@contextlib.contextmanager
def folder_of(repo: str | None) -> Iterator[Path | None]:
    """The folder of a repository: one that is there, or a clone of a URL."""
    if repo is None or Path(repo).is_dir():
        yield None if repo is None else Path(repo)
        return
    if not Path(repo).exists() and not _URL.match(repo):
        raise Failed(
            2,
            f"There is no folder {in_line(repo)} here, and it is no URL. Name a folder that exists, or a repository "
            "such as https://example.org/owner/name.git",
        )
    with tempfile.TemporaryDirectory() as folder:
        clone(repo, Path(folder) / "repo")
        yield Path(folder) / "repo"


def _follow(session: CommandSession, conversation: Conversation, after: int, approver: Approver) -> None:
    """Show a run until the agent stops. Raises Failed where it has not finished."""
    run = RunState(after)
    try:
        with followed(session, conversation.client) as shown:
            shown.begin(before(conversation, after))
            while True:
                entries = conversation.follow(run.seen)
                for one in watched(session, conversation, entries, run.seen, left=lambda: approver.left):
                    if isinstance(one, Entry):
                        run.note(one)
                        if run.status != "waiting_for_confirmation":
                            approver.goes_on()
                        shown.show(one, is_printed=session.as_json or not approver.has_decided(one.event))
                        continue
                    with shown.asking():
                        outcome = approver.decide(one)
                    run.decided(one, outcome, conversation.count)
                for one in rest_of(conversation, run):
                    run.note(one)
                    shown.show(one)
                with shown.asking():
                    if not run.offer(conversation, approver):
                        break
    except TimeoutError:
        words = f"Nobody has decided in time, and it still waits: {approver.left_to}"
        raise Failed(STOPPED_SHORT, f"{words}. Follow it again: agentctl logs -f {conversation.id}") from None
    except KeyboardInterrupt:
        does = _LEFT.get(run.status or "", "goes on")
        session.err.print(f"\nThe agent {does}: agentctl logs -f {shown_id(session.err, conversation.id)}", style="dim")
        raise
    if run.status != "finished":
        raise Failed(
            STOPPED_SHORT, f"{run.why}. Go on with: agentctl send -f {shown_id(session.err, conversation.id)} TEXT"
        )
    if run.lacks_model:
        raise Failed(STOPPED_SHORT, _without_model(conversation.client))


def _without_model(client: Client) -> str:
    """What to do where the agent has no model: another agent may have one."""
    others: list[str] = []
    with contextlib.suppress(AgentServerError):  # a key may not list them, and an older server names no agents
        others = [spec["id"] for spec in client.specs() if spec.get("agent") and "LLM_MODEL" in spec["initial_env"]]
    if others:
        listed = ", ".join(map(in_line, others))
        return f"this agent has no model. Others have their own: {listed}. Choose one: --agent {in_line(others[0])}"
    return (
        "no model is set on the server. Its operator sets LLM_MODEL and LLM_API_KEY; until then only lines that begin "
        "with `run: ` do something"
    )


agent_option = click.option(
    "--agent",
    metavar="ID",
    help="The agent, of those that `agentctl agents` lists.  [default: the server's first]",
)


@command()
@click.argument("text")
@click.option("--repo", metavar="URL|DIR", help="Give the sandbox the files of a folder or a Git repository.")
@agent_option
@click.option("--model", help="The model of the agent.")
@mode_option
@approve_option("all")
@wait_option
@go_on_option
@click.option(
    "--pull",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the files of the sandbox to DIR at the end.",
)
@force_option
@click.option("--title", help="The title of the conversation.  [default: the first line of TEXT]")
@click.option("-d", "--detach", is_flag=True, help="Start it, and do not follow it.")
def run(
    session: CommandSession,
    text: str,
    repo: str | None,
    agent: str | None,
    model: str | None,
    mode: str | None,
    approve: str | None,
    seconds: float | None,
    stays: bool,
    pull: Path | None,
    force: bool,
    title: str | None,
    detach: bool,
) -> None:
    """Start an agent, and follow it until it stops.

    TEXT is its task, `-` reads it from the standard input. A folder goes without what its .gitignore names, and a URL
    is cloned here, with your keys: no key reaches the sandbox.
    """
    if pull and detach:
        raise Failed(2, "--pull writes the files at the end, which --detach does not wait for. Leave one of them out")
    if pull and pull.is_dir() and any(pull.iterdir()) and not force and not is_asked():
        raise Failed(2, f"Files of {in_line(str(pull))} may be replaced at the end. Give --force, or another folder")
    if mode and approve == "all":
        raise Failed(2, "--approve all is the mode `nothing`: leave one of them out")
    approver = Approver(session, approve, follows=True, seconds=seconds)
    client, text = session.client(patient=True), _read(text)
    for option, given in (("--pull", pull), ("--repo", repo), (f"--approve {approve}", approve not in (None, "rules"))):
        if given:
            session.require(client, option, "write", "approve")
    with folder_of(repo) as folder, session.waiting("Starting") as show:

        def progress(task: AppConversationStartTask) -> None:
            show(f"Starting: {task['status'].lower().replace('_', ' ')}")

        # Nothing may run before the policy is set: the message comes after it.
        first = "" if approve == "all" else text
        try:
            started = client.start(
                first,
                folder=folder,
                spec=agent,
                title=title or title_of(text),
                model=model,
                mode=mode,
                goes_on_when_allowed=False if stays else None,
                on_progress=progress,
            )
        except KeyboardInterrupt:
            session.err.print("\nIt is not known whether the agent was started: see agentctl ls", style="yellow")
            raise
        if approve == "all":
            _approve_all(started, text)
    words = Text.assemble(
        ("Conversation ", "dim"), (shown_id(session.err, started.id), "bold"), (f"  {page_of(started)}", "dim")
    )
    session.tell({"conversation_id": started.id}, words, soft_wrap=True)
    if approve == "all":
        said = "The agent does everything inside this sandbox unasked. What the sandbox asks to reach still waits."
        session.err.print(said, style="yellow")
    if detach:
        return
    try:
        _follow(session, started, 0, approver)
    finally:
        if pull is not None:
            written = fetch(session, started, "", pull, force=force)
            session.err.print(f"{counted(len(written), 'file')} in {pull}", style="dim")


def _approve_all(conversation: Conversation, text: str) -> None:
    """Let an agent act unasked, and begin."""
    try:
        conversation.set_policy("NeverConfirm")
    except AgentServerError:
        with contextlib.suppress(AgentServerError):  # the first refusal is the one to tell
            conversation.delete()
        raise
    conversation.send(text)


def _read(text: str) -> str:
    """TEXT of the command line, or of the standard input. Raises Failed where it says nothing."""
    found = sys.stdin.read() if text == "-" else text
    if not found.strip():
        raise Failed(2, "TEXT is empty" + (": nothing came on the standard input" if text == "-" else ""))
    return found


def title_of(text: str) -> str:
    return beginning(in_line(text.strip().partition("\n")[0]), 80) or "agentctl"


@command()
@click.option("--status", help="Only those with this status, such as running or waiting_for_confirmation.")
@click.option("--text", help="Only those with this text in the title.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=30, show_default=True, help="Show at most so many.")
@click.option("-a", "--all", "is_all", is_flag=True, help="Show all of them, whatever --limit says.")
def ls(session: CommandSession, status: str | None, text: str | None, limit: int, is_all: bool) -> None:
    """List conversations, the last changed first.

    If there are more than --limit, a line on stderr says so.
    """
    client = session.client()
    found = list(islice(client.search(status=status, text=text), None if is_all else limit + 1))
    if not is_all and len(found) > limit:
        found = found[:limit]
        # The server counts by status alone.
        number = "" if text else f" of {client.get('/api/conversations/count', status=status):,}"
        there_are = ", and there are more" if text else ""
        session.err.print(f"{limit:,}{number} shown{there_are}; --all shows the rest", style="dim")
    if session.as_json:
        print_json(found)
        return
    if not found:
        session.err.print("No conversations. Start one: agentctl run TEXT", style="dim")
        return
    if not session.out.is_terminal:
        for item in found:
            title = in_line(item["title"] or "")
            numbers = (str(item["pending"]), str(item["events"]))
            click.echo("\t".join((item["id"], title, item["execution_status"], *numbers, item["updated_at"])))
        return
    ids = shortest([*known_ids(client), *(item["id"] for item in found)])
    asked = Counter(one.item["conversation_id"] for one in asked_for(client))
    rows = [
        (
            ids[item["id"]],
            in_line(item["title"] or "–"),
            status_text("waiting_for_confirmation" if asked[item["id"]] else item["execution_status"]),
            Text(str(waits), "bold yellow") if (waits := item["pending"] + asked[item["id"]]) else Text("–", "dim"),
            str(item["events"]),
            when(session.out, item["updated_at"]),
        )
        for item in found
    ]
    print_table(session.out, ("ID", "TITLE", "STATUS", "WAITING", "EVENTS", "CHANGED"), rows)


@command()
@conversation_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option(
    "--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Begin after the event with this number."
)
@click.option("--kind", help="Show only events of this kind, such as MessageEvent.")
@click.option("--full", is_flag=True, help="Show long outputs whole.")
@approve_option()
def logs(
    session: CommandSession,
    conversation: str,
    follow: bool,
    after: int,
    kind: str | None,
    full: bool,
    approve: str | None,
) -> None:
    """Show the log of a conversation.

    With -f it goes on through restarts of the server, shows each event once, and asks about what waits.
    """
    approver = Approver(session, approve, follows=True, seconds=inf) if follow and not session.as_json else None
    client = session.client(patient=follow)
    if follow and approve in ("ask", "never"):
        session.require(client, f"--approve {approve}", "approve")
    found = session.conversation(client, conversation)
    entries = whole_log(found, after, follows=follow)
    run = RunState(after)
    with followed(session, client, full=full, is_live=follow) as shown:
        shown.begin(before(found, after))
        for one in watched(session, found, entries, after, actions=True) if approver else entries:
            if isinstance(one, Entry):
                run.note(one)
                if approver and approver.has_decided(one.event):
                    continue
                shown.show(one, is_printed=not kind or str(one.event["kind"]).rpartition(".")[2] == kind)
            elif approver:
                with shown.asking():
                    run.decided(one, approver.decide(one), found.count)
                    run.offer(found, approver, is_followed=True)


@command()
@conversation_argument
@click.argument("text")
@click.option("-f", "--follow", is_flag=True, help="Follow the agent until it stops.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@approve_option()
@wait_option
def send(
    session: CommandSession,
    conversation: str,
    text: str,
    follow: bool,
    yes: bool,
    approve: str | None,
    seconds: float | None,
) -> None:
    """Send a message to an agent, which then runs.

    The message rejects what waits for a decision, and you are asked before; without a terminal it is not sent then,
    unless you give --yes. TEXT `-` is read from the standard input.
    """
    approver = Approver(session, approve, follows=True, seconds=seconds)
    client, text = session.client(patient=follow), _read(text)
    if follow and approve in ("ask", "never"):
        session.require(client, f"--approve {approve}", "write", "approve")
    found = session.conversation(client, conversation)
    after = found.count() if follow else 0
    rejects = yes
    if not rejects and (waiting := found.pending_actions()):
        if not is_asked():
            words = f"This message rejects {counted(len(waiting), 'action')}, and nobody can be asked here: give --yes"
            raise Failed(2, f"{words}, or decide first: agentctl inbox")
        elsewhere = Elsewhere()
        read = elsewhere.reader({one.id for one in waiting})
        elsewhere.follow(session.client(patient=True, is_quiet=True))
        words = f"This message rejects {counted(len(waiting), 'action')}. Send it?"
        if not _agrees(session, words, read, "Nothing was sent. Send it again if it is still meant"):
            raise Failed(REFUSED, "Nothing was sent")
        rejects = True
    # Whoever saw nothing that waits rejects nothing that came meanwhile.
    found.send(text, rejects=rejects)
    if follow:
        _follow(session, found, after, approver)
    else:
        _done(session, "Sent", found)


@command()
@conversation_argument
@click.option("--at", metavar="SEQ|EVENT", help="The last event of the fork.  [default: the last one of the log]")
@click.option("--title", help="The title of the fork.  [default: that of the conversation]")
def fork(session: CommandSession, conversation: str, at: str | None, title: str | None) -> None:
    """Copy a conversation with its files, up to an event.

    The fork of the bundled agent's has a sandbox of its own, and the original stays as it is. It is refused where the
    files were not recorded at the event: they are where the agent stops, at the end of a turn or for an action that
    waits. The refusal names the nearest such event.
    """
    found = session.conversation(session.client(), conversation)
    made = found.fork(at and _event_id(found, at, conversation), title=title)
    session.tell({"conversation_id": made.id}, f"Forked: {shown_id(session.err, made.id)}", style="dim")


@command()
@conversation_argument
@click.argument("event", required=False)
@click.option("--undo", is_flag=True, help="Undo the last return.")
def back(session: CommandSession, conversation: str, event: str | None, undo: bool) -> None:
    """Return to an earlier event, with the files of then.

    EVENT is a number of the log, or an id. Without it, the events to which the conversation can return are listed.
    What came after the event stays in the log, and --undo brings it back with its files. Programs that run in the
    sandbox end. It is refused while the agent runs or an action waits, and where the files were not recorded.
    """
    if event and undo:
        raise click.UsageError("Give EVENT or --undo, not both")
    found = session.conversation(session.client(), conversation)
    if not event and not undo:
        records = found.records().records
        numbers = ", ".join(str(one.seq) for one in records) or "none yet"
        session.tell({"records": records}, f"The files were recorded at these events: {numbers}")
        return
    made = found.back(None if undo else _event_id(found, str(event), conversation))
    words = f"Undo with: agentctl back {shown_id(session.err, found.id)} --undo"
    session.tell({**made}, f"{'Undone' if undo else 'Returned'}. {words}", style="dim")


def _event_id(found: Conversation, named: str, conversation: str) -> str:
    """The id of an event that is named by its number in the log, or by its id."""
    if not named.isdecimal():
        return named
    entry = next((one for one in found.log(int(named) - 1) if one.seq == int(named)), None) if int(named) else None
    if entry is None:
        raise Failed(NOT_FOUND, f"The log has no event {named}: agentctl logs {conversation}")
    return str(entry.event["id"])


@command()
@conversation_argument
@click.option("--now", is_flag=True, help="Stop it at once, in the middle of its step.")
def pause(session: CommandSession, conversation: str, now: bool) -> None:
    """Ask an agent to stop after its step, or pause a sandbox.

    A sandbox's id pauses the whole sandbox, which frees a place for another one: its files stay, a message wakes it.
    """
    client = session.client()
    found = session.conversation_or_sandbox(client, conversation)
    if not isinstance(found, Conversation):
        _ask_sandbox(session, client, found["id"], "pause", "Paused")
        return
    if (status := found.info()["execution_status"]) not in ("running", "waiting_for_confirmation"):
        is_so = "has failed" if status == "error" else f"is {status}"
        _done(session, f"Nothing stops, because the agent {is_so}", found)
        return
    if now:
        found.interrupt()
    else:
        found.pause()
    _done(session, "Asked to stop", found)


@command()
@conversation_argument
def resume(session: CommandSession, conversation: str) -> None:
    """Let an agent go on, or resume a sandbox.

    It is refused while an action waits for a decision: approve or reject that first. A sandbox's id resumes the
    sandbox, and no agent in it.
    """
    client = session.client()
    found = session.conversation_or_sandbox(client, conversation)
    if not isinstance(found, Conversation):
        _ask_sandbox(session, client, found["id"], "resume", "Resumes")
        return
    if found.info()["execution_status"] == "finished":
        more = f"agentctl send -f {shown_id(session.err, found.id)} TEXT"
        raise Failed(REFUSED, f"Nothing goes on, because the agent has finished. Give it more to do: {more}")
    found.run()
    _done(session, "Goes on", found)


def _ask_sandbox(session: CommandSession, client: Client, sandbox_id: str, verb: str, done: str) -> None:
    client.post(f"/api/v1/sandboxes/{sandbox_id}/{verb}")
    session.tell({"sandbox_id": sandbox_id, "done": done}, f"{done}: sandbox {sandbox_id}", style="dim")


@command()
@click.argument(
    "conversations", metavar="ID...", nargs=-1, required=True, callback=conversation_id, shell_complete=ids_completed
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(session: CommandSession, conversations: tuple[str, ...], yes: bool) -> None:
    """Delete conversations and their sandboxes.

    To end a start that is under way, give the whole id of its conversation.
    """
    if not yes and not is_asked():
        raise Failed(2, "Nobody can be asked here: give --yes")
    client = session.client()
    if not yes:
        session.require(client, "`rm`", "admin")
    found = [session.conversation(client, one) for one in conversations]
    for one in found:
        if not yes and not _agrees_to_delete(session, one):
            raise Failed(REFUSED, f"{shown_id(session.err, one.id)} was not deleted")
        one.delete()
        _done(session, "Deleted", one)


def _agrees_to_delete(session: CommandSession, conversation: Conversation) -> bool:
    """Whether the person agrees. Raises Failed where others delete it meanwhile."""
    name = _name_of(conversation)
    words = f"Delete {shown_id(session.err, conversation.id)} ({name or 'not there yet'}) and the files of its sandbox?"
    elsewhere = Elsewhere()
    if name:
        elsewhere.follow_deletion(session.client(patient=True, is_quiet=True).conversation(conversation.id))
    return _agrees(session, words, elsewhere.reader({conversation.id}), "Nothing was deleted here", NOT_FOUND)


def _agrees(session: CommandSession, question: str, read: Read, otherwise: str, code: int = REFUSED) -> bool:
    """Whether the person says yes. otherwise: what is said, with the exit code, where the question is moot."""
    try:
        return agrees(session, question, read)
    except DecidedElsewhere as gone:
        session.err.print()
        raise Failed(code, f"{gone} {otherwise}") from None


def _name_of(conversation: Conversation) -> str:
    """How a prompt names it; "" while it starts."""
    try:
        return in_line(conversation.info().get("title") or "without a title")
    except AgentServerError as error:
        if error.status != 404:
            raise
        return ""


@command("open")
@conversation_argument
@click.option(
    "--preview",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Open what a program in the sandbox serves at this port. The address opens in one browser, once.",
)
def open_(session: CommandSession, conversation: str, preview: int | None) -> None:
    """Open a conversation in the browser, and print its address."""
    found = session.conversation(session.client(), conversation)
    if preview is None:
        found.info()  # the console has a page for any id
        address = page_of(found)
    else:
        address = found.preview(preview)["url"]
    if session.as_json:
        print_json({"url": address})
    else:
        click.echo(address)
        _browse(address)


def _browse(address: str) -> None:
    """Open an address where there is a browser, without a word where there is none."""
    opener = {"darwin": "open", "win32": "explorer"}.get(sys.platform, "xdg-open")
    if opener == "xdg-open" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        return
    nowhere = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        subprocess.Popen([opener, address], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def page_of(conversation: Conversation) -> str:
    """The address of a conversation in the console."""
    return f"{conversation.client.url}/console/#/conversations/{conversation.id}"


def _done(session: CommandSession, words: str, conversation: Conversation) -> None:
    value = {"conversation_id": conversation.id, "done": words}
    session.tell(value, f"{words}: {shown_id(session.err, conversation.id)}", style="dim")


COMMANDS = (run, ls, logs, send, fork, back, pause, resume, rm, open_)
