"""Commands about conversations: run, ls, logs, send, pause, resume, rm, open."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.text import Text

from agent_server_client._sync import Conversation
from agent_server_client.archives import clone
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.live import followed
from agent_server_client.cli.program import (
    STOPPED_SHORT,
    Failed,
    Session,
    command,
    conversation_argument,
    ids_completed,
    print_json,
)
from agent_server_client.cli.shown import ago, counted, print_table, status_text
from agent_server_client.cli.watching import RunState, rest_of, watched
from agent_server_client.errors import AgentServerError
from agent_server_client.models import AppConversationStartTask
from agent_server_client.visible import beginning, in_line
from agent_server_client.wire import Entry

approve_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--approve",
    type=click.Choice(["ask", "rules", "never"]),
    help="Who decides what waits: `ask` asks here, `rules` leaves it to the server's rules and the inbox, `never` "
    "rejects it. Default: ask at a terminal, else rules.",
)


@contextlib.contextmanager
def folder_of(repo: str | None) -> Iterator[Path | None]:
    """The folder of a repository: one that is there, or a clone of a URL."""
    if repo is None or Path(repo).is_dir():
        yield None if repo is None else Path(repo)
        return
    with tempfile.TemporaryDirectory() as folder:
        clone(repo, Path(folder) / "repo")
        yield Path(folder) / "repo"


def _follow(session: Session, conversation: Conversation, after: int, approver: Approver) -> None:
    """Show a run until the agent stops. Raises Failed where it has not finished."""
    run = RunState(after)
    try:
        with followed(session) as shown:
            while True:
                for one in watched(session, conversation, conversation.follow(run.seen)):
                    if isinstance(one, Entry):
                        run.note(one)
                        shown.show(one)
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
    except KeyboardInterrupt:
        session.err.print(f"\nThe agent goes on: agentctl logs -f {conversation.id[:8]}", style="dim")
        raise
    if run.status != "finished":
        raise Failed(STOPPED_SHORT, f"{run.why}. Go on with: agentctl send -f {conversation.id[:8]} TEXT")


@command()
@click.argument("text")
@click.option("--repo", metavar="URL|DIR", help="The sandbox begins with the files of a folder or a Git repository.")
@click.option("--model", help="The model of the agent.")
@approve_option
@click.option("--pull", type=click.Path(file_okay=False, path_type=Path), help="At the end, write its files to DIR.")
@click.option("--title", help="Default: the first line of TEXT.")
@click.option("-d", "--detach", is_flag=True, help="Start it, and do not follow it.")
def run(
    session: Session,
    text: str,
    repo: str | None,
    model: str | None,
    approve: str | None,
    pull: Path | None,
    title: str | None,
    detach: bool,
) -> None:
    """Start an agent, and follow it until it stops.

    TEXT is its task, `-` reads it from the standard input. A folder goes without what its .gitignore names, and a URL
    is cloned here, with your keys: no key reaches the sandbox.
    """
    approver, client, text = Approver(session, approve), session.client(patient=True), _read(text)
    with folder_of(repo) as folder, session.err.status("Starting") as shown:

        def progress(task: AppConversationStartTask) -> None:
            shown.update(f"Starting: {task['status'].lower().replace('_', ' ')}")

        started = client.start(text, folder=folder, title=title or title_of(text), model=model, on_progress=progress)
    words = Text.assemble(("Conversation ", "dim"), (started.id[:8], "bold"), (f"  {page_of(started)}", "dim"))
    session.tell({"conversation_id": started.id}, words, soft_wrap=True)
    if detach:
        return
    try:
        _follow(session, started, 0, approver)
    finally:
        if pull is not None:
            written = started.files.download("", pull)
            session.err.print(f"{counted(len(written), 'file')} in {pull}", style="dim")


def _read(text: str) -> str:
    """TEXT of the command line, or of the standard input. Raises Failed where it says nothing."""
    found = sys.stdin.read() if text == "-" else text
    if not found.strip():
        raise Failed(2, "TEXT is empty" + (": nothing came on the standard input" if text == "-" else ""))
    return found


def title_of(text: str) -> str:
    return beginning(in_line(text.strip().partition("\n")[0]), 80) or "agentctl"


@command()
@click.option("--status", help="Those of one status, such as running or waiting_for_confirmation.")
@click.option("--text", help="Those with a part of the title.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=30, show_default=True)
def ls(session: Session, status: str | None, text: str | None, limit: int) -> None:
    """List conversations, the last changed first."""
    found = [item for item, _ in zip(session.client().search(status=status, text=text), range(limit), strict=False)]
    if session.as_json:
        print_json(found)
        return
    if not found:
        session.err.print("No conversations. Start one: agentctl run TEXT", style="dim")
    rows = [
        (
            item["id"][:8],
            in_line(item["title"] or "–"),
            status_text(item["execution_status"]),
            Text(str(item["pending"]), "bold yellow") if item["pending"] else Text("–", "dim"),
            str(item["events"]),
            f"{ago(item['updated_at'])} ago",
        )
        for item in found
    ]
    if rows:
        print_table(session.out, ("ID", "TITLE", "STATUS", "WAITING", "EVENTS", "CHANGED"), rows)


@command()
@conversation_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Begin after the event of that number.")
@click.option("--kind", help="Events of one kind, such as MessageEvent.")
@click.option("--full", is_flag=True, help="Long outputs whole.")
@approve_option
def logs(
    session: Session, conversation: str, follow: bool, after: int, kind: str | None, full: bool, approve: str | None
) -> None:
    """Show the log of a conversation.

    With -f it goes on through restarts of the server, shows each event once, and asks about what waits.
    """
    approver = Approver(session, approve) if follow and not session.as_json else None
    found = session.conversation(session.client(patient=follow), conversation)
    entries = found.events(after) if follow else found.log(after)
    run = RunState(after)
    with followed(session, full=full, is_live=follow) as shown:
        for one in watched(session, found, entries, actions=True) if approver else entries:
            if isinstance(one, Entry):
                run.note(one)
                shown.show(one, is_printed=not kind or str(one.event["kind"]).rpartition(".")[2] == kind)
            elif approver:
                with shown.asking():
                    run.decided(one, approver.decide(one), found.count)
                    run.offer(found, approver)


@command()
@conversation_argument
@click.argument("text")
@click.option("-f", "--follow", is_flag=True, help="Follow the agent until it stops.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@approve_option
def send(session: Session, conversation: str, text: str, follow: bool, yes: bool, approve: str | None) -> None:
    """Send a message to an agent, which then runs.

    The message rejects what waits for a decision; at a terminal you are asked before. TEXT `-` is read from the
    standard input.
    """
    approver, client, text = Approver(session, approve), session.client(patient=follow), _read(text)
    found = session.conversation(client, conversation)
    after = found.count() if follow else 0
    rejects = yes or not sys.stdin.isatty()
    if not rejects and (waiting := found.pending_actions()):
        click.confirm(f"This message rejects {counted(len(waiting), 'action')}. Send it?", abort=True, err=True)
        rejects = True
    # Whoever saw nothing that waits rejects nothing that came meanwhile.
    found.send(text, rejects=rejects)
    if follow:
        _follow(session, found, after, approver)
    else:
        _done(session, "Sent", found)


@command()
@conversation_argument
@click.option("--now", is_flag=True, help="Do not wait for the end of the step.")
def pause(session: Session, conversation: str, now: bool) -> None:
    """Ask an agent to stop after its present step."""
    found = session.conversation(session.client(), conversation)
    if now:
        found.interrupt()
    else:
        found.pause()
    _done(session, "Asked to stop", found)


@command()
@conversation_argument
def resume(session: Session, conversation: str) -> None:
    """Let an agent go on.

    It is refused while an action waits for a decision: approve or reject that first.
    """
    found = session.conversation(session.client(), conversation)
    found.run()
    _done(session, "Goes on", found)


@command()
@click.argument("conversations", metavar="ID...", nargs=-1, required=True, shell_complete=ids_completed)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(session: Session, conversations: tuple[str, ...], yes: bool) -> None:
    """Delete conversations and their sandboxes. A conversation that starts is named by its whole id: its start ends."""
    client = session.client()
    found = [session.conversation(client, one) for one in conversations]
    for one in found:
        if not yes:
            click.confirm(f"Delete {one.id[:8]} ({_name_of(one)}) and the files of its sandbox?", abort=True, err=True)
        one.delete()
        _done(session, "Deleted", one)


def _name_of(conversation: Conversation) -> str:
    try:
        return in_line(conversation.info().get("title") or "without a title")
    except AgentServerError as error:
        if error.status != 404:
            raise
        return "not there yet"


@command("open")
@conversation_argument
@click.option(
    "--preview",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Open what a program in the sandbox serves at this port. The address opens in one browser, once.",
)
def open_(session: Session, conversation: str, preview: int | None) -> None:
    """Open a conversation in the browser, and print its address."""
    found = session.conversation(session.client(), conversation)
    address = page_of(found) if preview is None else found.preview(preview)["url"]
    if session.as_json:
        print_json({"url": address})
    else:
        click.echo(address)
        click.launch(address)


def page_of(conversation: Conversation) -> str:
    """The address of a conversation in the console."""
    return f"{conversation.client.url}/console/#/conversations/{conversation.id}"


def _done(session: Session, words: str, conversation: Conversation) -> None:
    value = {"conversation_id": conversation.id, "done": words}
    session.tell(value, f"{words}: {conversation.id[:8]}", style="dim")


COMMANDS = (run, ls, logs, send, pause, resume, rm, open_)
