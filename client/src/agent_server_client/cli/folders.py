"""Commands about the files of a sandbox: files, upload, download, diff, sh."""

import sys
from pathlib import Path, PurePosixPath
from shlex import quote
from uuid import uuid4

import click

from agent_server_client._sync import Conversation
from agent_server_client.cli.program import INTERRUPTED, Failed, Session, command, conversation_argument, print_json
from agent_server_client.cli.shown import counted, diff_text
from agent_server_client.packing import OF_AGENT
from agent_server_client.visible import in_line, of_output

#: most files that the server lists
_MOST_NAMES = 2000


@command()
@conversation_argument
@click.argument("path", default=".")
def files(session: Session, conversation: str, path: str) -> None:
    """List the files of a sandbox, 2,000 at most."""
    names = session.conversation(session.client(), conversation).files.list(path)
    if session.as_json:
        print_json(names)
        return
    if not names:
        session.err.print("No files.", style="dim")
    for name in names:
        click.echo(in_line(name))
    if len(names) == _MOST_NAMES:
        session.err.print("… there may be more files: give a folder", style="dim")


@command()
@conversation_argument
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", default=".", help="A folder of the sandbox.  [default: the conversation's folder]")
def upload(session: Session, conversation: str, files: tuple[Path, ...], to: str) -> None:
    """Write files into a sandbox.

    The agent server in the sandbox takes them, if it serves files. `run --repo DIR` works with every agent.
    """
    found, written = session.conversation(session.client(), conversation), list[str]()
    for file in files:
        written.append(str(PurePosixPath(to) / file.name))
        found.files.upload(file, written[-1])
    session.tell(written, f"{counted(len(written), 'file')} written", style="dim")


@command()
@conversation_argument
@click.argument("path", default="")
@click.argument("to", required=False, type=click.Path(path_type=Path))
def download(session: Session, conversation: str, path: str, to: Path | None) -> None:
    """Write files of a sandbox to this machine.

    PATH is a file or a folder, else all files are written; TO is where. Links and Git repositories are left out,
    and named on stderr: hooks and settings of an agent would run on this machine.
    """
    found = session.conversation(session.client(), conversation)
    target = to or Path(PurePosixPath(path).name or found.id[:8])
    written = found.files.download(path, target)
    words = (
        in_line(str(written[0])) if len(written) == 1 else f"{counted(len(written), 'file')} in {in_line(str(target))}"
    )
    session.tell([str(one) for one in written], words, style="dim")


@command()
@conversation_argument
@click.argument("path", default=".")
@click.option("--since", metavar="start|SEQ|EVENT", help="Before an event; by default the start of the conversation.")
@click.option("--until", metavar="SEQ|EVENT", help="As it was before an event; by default as it is.")
@click.option("--repository", is_flag=True, help="Against the last commit of the repository at PATH, which Git reads.")
def diff(
    session: Session,
    conversation: str,
    path: str,
    since: str | None,
    until: str | None,
    repository: bool,
) -> None:
    """Show what an agent has changed in a folder, since the start of the conversation.

    The folder needs no repository, and the sandbox need not run: the server has recorded it. With --repository the
    agent server in the sandbox compares, if it serves Git.
    """
    if repository and (since or until):
        raise Failed(2, "--repository goes with neither --since nor --until: Git compares with a commit")
    found = session.conversation(session.client(), conversation)
    moments = {} if repository else {"since": since or "start", "until": until}
    changes = [one for one in found.changes(path, **moments) if not one["path"].startswith(f"{OF_AGENT}/")]
    diffs = [(one, found.diff(str(PurePosixPath(path) / one["path"]), **moments)) for one in changes]
    if session.as_json:
        print_json([{**change, **of} for change, of in diffs])
        return
    if not diffs:
        session.err.print("No changes.", style="dim")
    for change, of in diffs:
        session.out.print(diff_text(change, of), end="", soft_wrap=True)


@command(context_settings={"ignore_unknown_options": True})
@conversation_argument
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def sh(session: Session, conversation: str, words: tuple[str, ...]) -> None:
    """Run shell commands in a sandbox.

    The agent server in the sandbox runs them, if it serves that: COMMAND, or one line after the other. Nobody
    is asked, and the exit code is the command's. It is not a terminal: a program that asks for input gets none.
    """
    found = session.conversation(session.client(), conversation)
    if words:
        line = words[0] if len(words) == 1 else " ".join(map(quote, words))
        sys.exit(_execute(session, found, line))
    place, code = f"/tmp/.agentctl-{uuid4().hex}", 0
    try:
        while True:
            failed = click.style(f" {code}", fg="red") if code else ""
            try:
                line = input(f"{click.style(found.id[:8], fg='cyan')}{failed} $ ")
            except (EOFError, KeyboardInterrupt):
                break
            if line.strip() in ("exit", "logout"):
                break
            if line.strip():
                # Each line has a shell of its own: the folder goes from one to the next in a file.
                begun = f'[ -r {place} ] && cd "$(cat {place})"; trap "pwd > {place}" EXIT\n'
                try:
                    code = _execute(session, found, begun + line)
                except KeyboardInterrupt:  # has stopped the command, and not the shell
                    code = INTERRUPTED
    finally:
        click.echo(err=True)
        for _ in found.execute(f"rm -f {place}"):
            pass


def _execute(session: Session, conversation: Conversation, line: str) -> int:
    code = 0
    for piece in conversation.execute(line):
        code = piece.exit_code if piece.exit_code is not None else code
        if session.as_json:
            print_json(piece._asdict())
            continue
        for text, console in ((piece.stdout, session.out), (piece.stderr, session.err)):
            if text:
                shown = of_output(text) if console.is_terminal else text
                console.file.write(shown)
                console.file.flush()
    return code


COMMANDS = (files, upload, download, diff, sh)
