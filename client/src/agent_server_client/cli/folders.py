"""Commands about the files of a sandbox: files, upload, download, diff, push, sh."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from shlex import quote
from uuid import uuid4

import click
from rich.text import Text

from agent_server_client._sync import Conversation
from agent_server_client.cli.program import (
    INTERRUPTED,
    NOT_FOUND,
    REFUSED,
    CommandSession,
    Failed,
    command,
    conversation_argument,
    print_json,
)
from agent_server_client.cli.questions import agrees, is_asked
from agent_server_client.cli.shown import counted, diff_text
from agent_server_client.packing import OF_AGENT
from agent_server_client.visible import in_line, of_output

#: most files that the server lists, and that a question names
_MOST_NAMES, _MOST_NAMED = 2000, 5

force_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--force", is_flag=True, help="Replace files of this machine without a question."
)


@command()
@conversation_argument
@click.argument("path", default=".")
def files(session: CommandSession, conversation: str, path: str) -> None:
    """List the files of a sandbox, 2,000 at most.

    PATH is a folder of it; by default it is the conversation's.
    """
    names = session.conversation(session.client(), conversation).files.list(path)
    if not names and PurePosixPath(path) != PurePosixPath("."):
        raise Failed(
            NOT_FOUND,
            f"The sandbox has no file below {in_line(path)}: there is no such folder, or it is empty. "
            "`agentctl files ID` lists all",
        )
    if len(names) == _MOST_NAMES:
        session.err.print(f"{_MOST_NAMES:,} files shown, and there may be more: give a folder", style="dim")
    if session.as_json:
        print_json(names)
        return
    if not names:
        session.err.print("No files.", style="dim")
    for name in names:
        click.echo(in_line(name))


@command()
@conversation_argument
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", default=".", help="A folder of the sandbox.  [default: the conversation's folder]")
def upload(session: CommandSession, conversation: str, files: tuple[Path, ...], to: str) -> None:
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
@force_option
def download(session: CommandSession, conversation: str, path: str, to: Path | None, force: bool) -> None:
    """Write files of a sandbox to this machine.

    PATH is a file or a folder, else all files are written; TO is where, and `-` is the standard output, for one file.
    You are asked before files of this machine are replaced. Links and Git repositories are left out, and named on
    stderr: hooks and settings of an agent would run on this machine.
    """
    if to == Path("-"):
        _print_file(session, conversation, path)
        return
    found = session.conversation(session.client(), conversation)
    target = to or Path(PurePosixPath(path).name or found.id[:8])
    written = fetch(session, found, path, target, force=force)
    words = (
        in_line(str(written[0])) if len(written) == 1 else f"{counted(len(written), 'file')} in {in_line(str(target))}"
    )
    session.tell([str(one) for one in written], words, style="dim")


def fetch(session: CommandSession, conversation: Conversation, path: str, to: Path, *, force: bool) -> list[Path]:
    """Write files of a sandbox to this machine. Raises Failed where that would replace files that should stay."""
    if not force and to.exists():
        # The first copy says what there is; the second is written by the rules of the folder that it goes to.
        with tempfile.TemporaryDirectory() as folder:
            first = Path(folder) / "files"
            names = [one.relative_to(first) for one in conversation.files.download(path, first)]
        within = to / PurePosixPath(path).name if names == [Path()] and to.is_dir() else to
        if there := [within / name for name in names if (within / name).is_file() or (within / name).is_symlink()]:
            _agree_to_replace(session, there)
    return conversation.files.download(path, to)


def _agree_to_replace(session: CommandSession, there: list[Path]) -> None:
    names = ", ".join(in_line(str(one)) for one in there[:_MOST_NAMED])
    names += f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
    if not is_asked():
        raise Failed(2, f"This would replace {names}. Give --force, or another folder")
    if not agrees(session, f"Replace {names}?"):
        raise Failed(REFUSED, "Nothing was written")


def _print_file(session: CommandSession, conversation: str, path: str) -> None:
    if session.as_json or not path:
        raise Failed(2, "`-` prints one file as it is: name the file before it, and leave out --json")
    found = session.conversation(session.client(), conversation)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file"
        found.files.download(path, target)
        if not target.is_file():
            raise Failed(
                2,
                f"`-` prints one file, and {in_line(path)} is a folder: name a file of it",
            )
        with target.open("rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
    sys.stdout.flush()


@command()
@conversation_argument
@click.argument("path", default=".")
@click.option("--since", metavar="start|SEQ|EVENT", help="Compare with the moment before this event.  [default: start]")
@click.option("--until", metavar="SEQ|EVENT", help="Show it as it was before this event.  [default: as it is now]")
@click.option("--repository", is_flag=True, help="Compare with the last commit of the repository at PATH.")
def diff(
    session: CommandSession,
    conversation: str,
    path: str,
    since: str | None,
    until: str | None,
    repository: bool,
) -> None:
    """Show what an agent has changed in a folder.

    It compares with the start of the conversation. The folder needs no repository, and the sandbox need not run: the
    server has recorded it. With --repository the agent server in the sandbox compares, if it serves Git.
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


@command()
@conversation_argument
@click.option("--branch", help="A new branch.  [default: the conversation's title]")
@click.option("--title", help="First line of the commit.  [default: the conversation's title]")
@click.option("--description", default="", help="What follows the first line.")
@click.option("--path", help="Of the repository.  [default: the conversation's folder, or the only one in it]")
@click.option("--pull-request", is_flag=True, help="Open a pull request too.")
@click.option("--base", metavar="BRANCH", help="The branch that the pull request is for.  [default: the remote's]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def push(
    session: CommandSession,
    conversation: str,
    branch: str | None,
    title: str | None,
    description: str,
    path: str | None,
    pull_request: bool,
    base: str | None,
    yes: bool,
) -> None:
    """Push what an agent has changed as a branch.

    Git runs in the sandbox, and the way out adds the credential of a service. The commit has all changes of the folder
    that Git does not ignore, and your name. The folder's own branch stays, and nothing is forced.
    """
    if not yes and not is_asked():
        raise Failed(2, "Nobody can be asked here: give --yes")
    found = session.conversation(session.client(), conversation)
    remote = found.remote(path)
    if pull_request and (lacks := remote["lacks"]):
        raise Failed(REFUSED, lacks)
    branch, title = branch or remote["proposed_branch"], title or remote["proposed_title"]
    question = f"Push {in_line(branch)} to {in_line(remote['url'])}?"
    if not yes and not agrees(session, question):
        raise Failed(REFUSED, "Nothing was pushed.")
    members = {"description": description, "path": remote["path"], "url": remote["url"], "base": base}
    made = found.push(branch, title, pull_request=pull_request, **members)
    if session.as_json:
        print_json(made)
        return
    session.out.print(Text(f"{made['branch']} is {made['commit'][:10]} at {in_line(made['url'])}"))
    if address := made["pull_request"] or made["offered_url"]:
        session.out.print(Text(in_line(address)), soft_wrap=True)


@command(context_settings={"ignore_unknown_options": True})
@conversation_argument
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def sh(session: CommandSession, conversation: str, words: tuple[str, ...]) -> None:
    """Run shell commands in a sandbox.

    The agent server in the sandbox runs them, if it serves that: COMMAND, or one line after the other. Nobody
    is asked, and the exit code is the command's. It is not a terminal: a program that asks for input gets none.
    """
    found = session.conversation(session.client(), conversation)
    if words:
        line = words[0] if len(words) == 1 else " ".join(map(quote, words))
        sys.exit(_execute(session, found, line))
    found.info()  # before a prompt, or an empty script
    place, code = f"/tmp/.agentctl-{uuid4().hex}", 0
    try:
        while True:
            try:
                line = _line(session, found.id[:8], code)
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
        if sys.stdin.isatty():
            click.echo(err=True)
        for _ in found.execute(f"rm -f {place}"):
            pass
    if not sys.stdin.isatty():  # a script ends as a shell ends it
        sys.exit(code)


def _line(session: CommandSession, name: str, code: int) -> str:
    """The next line for the shell, asked for at a terminal alone. Raises EOFError, KeyboardInterrupt."""
    if not sys.stdin.isatty():
        return input()
    console = session.out if session.out.is_terminal else session.err
    with console.capture() as prompt:
        console.print(Text.assemble((name, "cyan"), (f" {code}" if code else "", "red"), " $ "), end="")
    if console is session.out:
        return input(prompt.get())
    session.err.file.write(prompt.get())
    session.err.file.flush()
    return input()


def _execute(session: CommandSession, conversation: Conversation, line: str) -> int:
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


COMMANDS = (files, upload, download, diff, push, sh)
