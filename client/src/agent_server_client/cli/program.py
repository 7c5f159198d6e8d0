"""The program around the commands: its session, its exit codes, and how an error is told."""

import functools
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from threading import get_ident
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.text import Text

from agent_server_client._async import AsyncClient
from agent_server_client._sync import Client, Conversation
from agent_server_client.archives import Unsafe
from agent_server_client.cli.profiles import BadProfile, Profile, file_of, listed, target, unchosen
from agent_server_client.cli.progress import took
from agent_server_client.cli.silence import Silence, ask
from agent_server_client.errors import GIVE_A_KEY, AgentServerError
from agent_server_client.models import SandboxInfo
from agent_server_client.visible import visible

#: exit codes, beside 0 and click's 2 for a wrong command line
REFUSED, UNREACHABLE, NOT_FOUND, NOT_ALLOWED, NOT_DECIDED, STOPPED_SHORT, INTERRUPTED = 1, 3, 4, 5, 6, 7, 130
CLOSED = 141  # as of a program that SIGPIPE ended

#: exit codes of statuses
_CODES = {None: UNREACHABLE, 401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 410: NOT_FOUND}

_EXIT_CODES = """\b
Exit codes:
  0    done; a followed agent has finished
  1    refused by the server, failed, or you said no
  2    the command line or the profile is wrong, or nobody can be asked
  3    the server does not answer
  4    there is no such thing
  5    the key is missing, wrong, or not allowed to do this
  6    the decision was not taken: nothing waits under this id, or it has changed
  7    a followed agent has stopped before it finished, or has no model and nothing to run
  130  interrupted by Ctrl-C; the agent keeps running, and what nobody answered still waits
  141  the program that read the output has ended
"""

#: what stands before a sentence that is not an error
_LABELS = {STOPPED_SHORT: ("Stopped: ", "bold yellow")}

#: nothing that comes from a server is markup, and nothing is coloured for what it seems to be
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}

#: seconds for which a command tries again
_BRIEF = 15.0

#: seconds for which one that follows an agent does: at a terminal, as long as the server knows a repeated request; and
#: else, as long as it waits for a decision
AT_A_TERMINAL, UNATTENDED = 86_400.0, 3_600.0

#: seconds for which a server is tried again that has not answered yet, and after which a wait for one is told
_FIRST = 1.0

#: seconds of silence after which a server counts as one that does not answer, where a command asks just that; and else
_SILENCE, _TIMEOUT = 5.0, 60.0

#: most conversations among which the beginning of an id is looked up
_LOOKED_UP = 2_000

#: where ids are shown
_LISTED, _LISTED_SANDBOXES = "`agentctl ls` shows the ids", "`agentctl ls --json` has those of sandboxes"

#: calls that the server names as the next step, and what does the same here
_COMMANDS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"GET /api/conversations/search", "`agentctl ls`"),
        (r"GET /api/conversations/ID/events/search", "`agentctl logs ID`"),
        (r"GET /api/v1/app-conversations/ID/files", "`agentctl files ID`"),
        (r"GET /api/v1/app-conversations/start-tasks/search", "`agentctl ls`"),
        (r"POST /api/v1/app-conversations", "`agentctl run TEXT`"),
        (r"GET /api/v1/sandboxes/search", "`agentctl ls --json`"),
        (r"GET /api/v1/sandbox-specs/search", "`agentctl agents`"),
        (r"POST /api/v1/sandboxes/(\w+)/(pause|resume)", r"`agentctl \2 \1`"),
        (r"GET /api/v1/(?:pending-actions|destinations)", "`agentctl inbox`"),
        (r"GET /api/v1/keys", "`agentctl keys`"),
        (r"GET /api/v1/approval-rules", "`agentctl rules`"),
        (r"GET /api/v1/grants", "`agentctl grants`"),
        (r"GET /api/v1/devices", "`agentctl devices`"),
        (r"(scope (\w+).*)POST /api/v1/keys", r"\1`agentctl keys new NAME --scope \2`"),
    )
]

#: What is said of an option on the other side of the command.
_MISPLACED = {
    "--json": "--json comes after the command: agentctl ls --json",
    "--profile": "--profile comes before the command: agentctl --profile NAME ls",
}

#: the key of a context under which the words of the command line stand
_TYPED = "agent_server_client.typed"


class _Console(Console):
    """A console that wraps lines on a terminal alone, and whose closed pipe ends the command with CLOSED."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**_PLAIN, **options)
        self.ahead: Callable[[], float] = lambda: 0.0  #: seconds by which the server's clock is ahead of this machine's
        self.soft_wrap = not self.is_terminal

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class _Notices(_Console):
    """What stands for a console of stderr where JSON is asked for and no person reads it: each text is an object."""

    def print(self, *objects: Any, **_: Any) -> None:
        """Print a text as {"notice": TEXT}; an empty one is left out."""
        text = io.StringIO()
        Console(file=text, **_PLAIN).print(*objects, soft_wrap=True)
        if said := text.getvalue().strip():
            click.echo(json.dumps({"notice": said}), err=True)


class _Log(logging.Handler):
    """Writes what the client logs, such as paths that are left out, as notices."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(json.dumps({"notice": record.getMessage()}), err=True)


def _log_notices(context: click.Context) -> None:
    """Log as notices until the command ends."""
    logger, handler = logging.getLogger("agent_server_client"), _Log()
    logger.addHandler(handler)
    context.call_on_close(lambda: logger.removeHandler(handler))


class Failed(click.ClickException):
    """A command ends with a code and a sentence."""

    def __init__(self, code: int, words: str, *, status: int | None = None) -> None:
        super().__init__(words)
        self.exit_code = code  # type: ignore[misc]
        self.status, self.as_json = status, False

    def show(self, file: Any = None) -> None:  # noqa: ARG002
        if self.as_json:
            told = {"error": self.message, "status": self.status, "exit_code": self.exit_code}
            click.echo(json.dumps(told), err=True)
        else:
            label = _LABELS.get(self.exit_code, ("Error: ", "bold red"))
            console = _Console(stderr=True)
            console.print(Text.assemble(label, visible(self.message, prose=True)))


@dataclass
class _Answer:
    """A person's answer that is on its way."""

    words: str  #: what is told of it where the server does not answer
    thread: int  #: that of its request
    is_told: bool = False


class CommandSession:
    """What the commands of one call share."""

    def __init__(self, profile: str = "") -> None:
        self.profile, self.as_json = profile, False
        self._told_retry = inf  #: seconds into an outage at which it was told
        self._told_key = False  #: whether it was told that the server does not know the key
        self.on_lost: Callable[[AgentServerError], None] | None = None  #: shows a wait, instead of a line on stderr
        self.on_silence: Callable[[bool], None] | None = None  #: shows whether the server answers
        self.beside: Callable[[Text], None] | None = None  #: prints beside lines that are drawn again
        self.prompt: Text | None = None  #: the question that is open
        self._answer: _Answer | None = None  #: what a person has decided, and is on its way
        self._held: list[str] | None = None  #: lines that wait until the terminal is free
        self._silence: Silence | None = None
        self.out, self.err = _Console(), _Console(stderr=True)

    @property
    def notes_as_json(self) -> bool:
        """Whether stderr gets JSON lines: JSON is asked for, and no person reads stderr at a terminal."""
        return self.as_json and not self.err.is_terminal

    def tell(self, value: Any, words: str | Text, **style: Any) -> None:
        """Print a value, where JSON is asked for, else say words beside the output. style: of Console.print."""
        if self.as_json:
            print_json(value)
        else:
            self.err.print(words, **style)

    @contextmanager
    def sending(self, client: Client) -> Iterator[None]:
        """A person's answer is on its way by a client: what is told of a silent server says so, and what to do."""
        seconds = client._patience.seconds
        words = (
            f"Your answer is sent again for up to {took(seconds)}; Ctrl-C ends that. What still waits: agentctl inbox"
        )
        self._answer = _Answer(words, get_ident())
        if self._silence is not None and self._silence.is_silent:
            self._tell_answer("The server still does not answer")
        try:
            yield
        finally:
            self._answer = None

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Another program has the terminal: lines wait until it ends."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for words in held:
                self.say(words)

    @contextmanager
    def waiting(self, words: str) -> Iterator[Callable[[str], None]]:
        """Show at a terminal what the command waits for, until the block ends. Yields what replaces the words."""
        if not self.err.is_terminal:
            yield lambda _: None
            return
        with self.err.status(words) as shown:
            yield shown.update

    def client(self, *, patient: bool = False, once: bool = False, is_quiet: bool = False) -> Client:
        """A client, which the end of the command closes.

        patient: it follows something through restarts. once: it asks whether the server answers, and tries once.
        is_quiet: it says nothing of its retries.
        """
        try:
            found = target(self.profile)
        except BadProfile as error:
            raise Failed(2, str(error)) from None
        if once:
            options: dict[str, Any] = {"timeout": _SILENCE, "retry_seconds": 0.0}
        else:
            patience = AT_A_TERMINAL if sys.stdin.isatty() and self.err.is_terminal else UNATTENDED
            seconds, told = patience if patient else _BRIEF, None if is_quiet else self._tell_retry
            options = {"timeout": _TIMEOUT, "retry_seconds": seconds, "first_seconds": _FIRST, "on_retry": told}
        client = Client(*found, **options, on_unknown_key=self._tell_unknown_key)
        click.get_current_context().call_on_close(client.close)
        if not once:
            self.watch(client, seconds if patient else _TIMEOUT)
            if not is_quiet:
                self.out.ahead = self.err.ahead = lambda: client.clock_ahead
        return client

    def require(self, client: Client, what: str, *scopes: str) -> None:
        """Refuse before any work what the server would refuse after it. Raises Failed.

        what: the subject of the sentence. scopes: those that it needs.
        """
        try:
            held = client.user()["scopes"]
        except AgentServerError as error:
            if error.status != 403:  # a key that may not read its own scopes: the server decides later
                raise
            return
        if set(scopes) <= set(held):  # the server names the included ones too
            return
        wanted = " ".join(f"--scope {scope}" for scope in scopes)
        raise Failed(
            NOT_ALLOWED,
            f"{what} needs a key with {_all_of(scopes)}, and yours has {_all_of(held)}. "
            f"An admin makes one by `agentctl keys new NAME {wanted}`",
            status=403,
        )

    def watch(self, client: Client | AsyncClient, seconds: float) -> None:
        """Tell once of each time in which the server does not answer a client, which waits for so many seconds."""
        if self._silence is None:
            self._silence = Silence(
                client.url,
                self._say_silence,
                functools.partial(ask, *target(self.profile)),
                lambda: self.prompt is not None,
                self._show_silence,
            )
            click.get_current_context().call_on_close(self._silence.stop)
        self._silence.watch(client._patience, seconds)

    def _show_silence(self, is_lost: bool) -> None:
        if self.on_silence:
            self.on_silence(is_lost)

    def _say_silence(self, words: str, bound: str) -> None:
        if self._answer is None or not bound:
            self.say(f"{words}; {bound}." if bound else f"{words}.")
        else:
            self._tell_answer(words)

    def _tell_answer(self, why: str) -> None:
        """Say once of an answer that it is sent again."""
        if self._answer is not None and not self._answer.is_told:
            self._answer.is_told = True
            self.say(f"{why}. {self._answer.words}")

    def say(self, words: str) -> None:
        """Say a line at any time: beside what is drawn, and above an open question, which is shown again."""
        if self._held is not None:
            self._held.append(words)
            return
        line = Text(visible(words), "yellow")
        if self.prompt is not None:
            self.err.print()
            self.err.print(line, soft_wrap=not self.err.is_terminal)
            self.err.print(self.prompt, end=" ", soft_wrap=True)
        elif self.beside is not None:
            self.beside(line)
        else:
            self.err.print(line, soft_wrap=not self.err.is_terminal)

    def _tell_unknown_key(self) -> None:
        """Say once that the key of the command opens nothing, which the open server would show after its next start."""
        if self._told_key:
            return
        self._told_key = True
        self.err.print(
            "This server is open and does not know your key. Make one that it knows: agentctl keys new NAME; "
            f"or remove the wrong one: {key_places(self.profile)}",
            style="yellow",
        )

    def _tell_retry(self, refusal: AgentServerError, spent: float, left: float) -> None:
        """Say once of each outage, after a second, that the command waits for the server."""
        if self._answer is not None:
            if spent >= _FIRST and self._answer.thread == get_ident():
                self._tell_answer(str(refusal))
            return
        if self.prompt is not None or self._held is not None:  # what is drawn would cover it: Silence tells it
            return
        if self.on_lost:
            self.on_lost(refusal)
            return
        if spent < self._told_retry:
            self._told_retry = inf
        if spent >= _FIRST and self._told_retry == inf:
            self._told_retry = spent
            self.err.print(f"{visible(str(refusal))}. Trying again for {took(left)}; Ctrl-C ends this", style="dim")

    def conversation(self, client: Client, words: str) -> Conversation:
        """The conversation of an id, or of the beginning of one. Raises Failed."""
        try:
            return client.conversation(words)
        except ValueError:
            pass
        known = known_ids(client)
        found = matching(known, words)
        if len(found) != 1:
            raise several("conversations", words, found) if found else _none(known, "conversation", words, _LISTED)
        return client.conversation(found[0])

    def conversation_or_sandbox(self, client: Client, words: str) -> Conversation | SandboxInfo:
        """The conversation or the sandbox of an id, or of the beginning of one. Raises Failed."""
        with suppress(ValueError):
            return client.conversation(words)
        boxes = [one for one in client.sandboxes() if one["id"].startswith(words)]
        if exact := [one for one in boxes if one["id"] == words]:
            return exact[0]
        known = known_ids(client)
        conversations = matching(known, words)
        found = [f"conversation {one}" for one in conversations] + [f"sandbox {one['id']}" for one in boxes]
        if not found:
            raise _none(known, "conversation and no sandbox", words, f"{_LISTED}, and {_LISTED_SANDBOXES}")
        if len(found) > 1:
            raise several("ids", words, found)
        return boxes[0] if boxes else client.conversation(conversations[0])


def _all_of(scopes: Sequence[str]) -> str:
    return " and ".join(scopes) if len(scopes) < 3 else f"{', '.join(scopes[:-1])} and {scopes[-1]}"


def known_ids(client: Client) -> list[str]:
    """The ids of conversations among which the beginning of one is looked up: those that changed last."""
    return [item["id"] for item, _ in zip(client.search(), range(_LOOKED_UP), strict=False)]


def matching(ids: list[str], start: str) -> list[str]:
    """The ids of conversations that begin so."""
    return [one for one in ids if one.startswith(start.lower())]


def several(things: str, start: str, found: Sequence[str]) -> Failed:
    """The refusal of the beginning of an id that several have."""
    return Failed(2, f"Several {things} begin with {start}: {', '.join(found[:5])}. Write more of the one you mean")


def beginning_of(things: str, known: list[str], start: str) -> str:
    """The id of a beginning; what none of the known begins with goes to the server, which refuses it. Raises Failed."""
    if start in known:
        return start
    found = matching(known, start)
    if len(found) > 1:
        raise several(things, start, found)
    return found[0] if found else start


def _none(known: list[str], things: str, start: str, listing: str) -> Failed:
    """The refusal of the beginning of an id that none has."""
    words = f"No {things} begins with {start}"
    if len(known) < _LOOKED_UP:
        return Failed(NOT_FOUND, f"{words}. {listing}")
    more = "Write the whole id; `agentctl ls --all` shows it"
    return Failed(NOT_FOUND, f"{words} among the {_LOOKED_UP:,} conversations that changed last. {more}")


@contextmanager
def _usage_as_json(typed: Sequence[str]) -> Iterator[None]:
    """Tell a wrong command line as any other error where its words ask for JSON."""
    try:
        yield
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption) and error.option_name in _MISPLACED:
            error = click.NoSuchOption(error.option_name, _MISPLACED[error.option_name], ctx=error.ctx)
        if "--json" not in typed:
            raise error from None
        path, words = error.ctx.command_path if error.ctx else "agentctl", error.format_message().rstrip(".")
        failed = Failed(2, f"{words}{'' if words.endswith('?') else '.'} See `{path} --help`")
        failed.as_json = True
        raise failed from error


class _ProgramGroup(click.Group):
    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        typed = list(args)
        with _usage_as_json(typed):
            made = super().make_context(info_name, args, *more, **extra)
        made.meta[_TYPED] = typed
        return made

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _usage_as_json(ctx.meta[_TYPED]):
                return super().invoke(ctx)
        except BrokenPipeError:
            ctx.exit(closed())
        except (Failed, AgentServerError, Unsafe, subprocess.CalledProcessError, OSError) as error:
            failed = error if isinstance(error, Failed) else _failed(error, ctx.obj.profile if ctx.obj else "")
            failed.as_json |= ctx.obj is not None and ctx.obj.as_json
            raise failed from error
        except (KeyboardInterrupt, click.Abort):
            if not (ctx.obj and ctx.obj.notes_as_json):
                click.echo(err=True)
            ctx.exit(INTERRUPTED)


def closed() -> int:
    """The exit code after the end of the program that read the output."""
    # What is still buffered goes nowhere: Python would report it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED


def key_places(profile: str = "") -> str:
    """Where a key of the user's stands, as a part of a sentence."""
    table = f"`key` in the table [{profile or 'default'}] of {file_of(os.environ)}"
    return table if profile else f"AGENT_SERVER_KEY, or {table}"


def _failed(error: Exception, profile: str) -> Failed:
    """How an error of what a command uses is told."""
    if isinstance(error, AgentServerError):
        code = NOT_DECIDED if error.problems else _CODES.get(error.status, REFUSED)
        if error.status == 401:
            return Failed(code, _way_in(error.detail, profile), status=401)
        more = f". {_address_of(profile)}" if error.is_unreachable else ""
        return Failed(code, f"{in_commands(error.detail)}{more}", status=error.status)
    if isinstance(error, subprocess.CalledProcessError):
        command = " ".join(error.cmd[:2])
        return Failed(REFUSED, f"{command} failed with exit code {error.returncode}. Its own words stand above")
    if isinstance(error, OSError) and error.strerror and error.filename:
        return Failed(REFUSED, f"{error.strerror}: {error.filename}. Name another place, or change its permissions")
    return Failed(REFUSED, str(error))


def in_commands(detail: str) -> str:
    """A refusal of the server whose next step is a command instead of a call."""
    for call, words in _COMMANDS:
        detail = call.sub(words, detail)
    return detail


def _address_of(profile: str) -> str:
    """Where the address of a server that does not answer was read, and how to name another one."""
    if profile:
        return f"The address is `url` in the table [{profile}] of {file_of(os.environ)}"
    if os.environ.get("AGENT_SERVER_URL"):
        return "The address is that of AGENT_SERVER_URL"
    if any(one.is_used and one.url for one in _profiles()):
        return f"The address is `url` in the table [default] of {file_of(os.environ)}"
    choice = unchosen() or f"Name one in AGENT_SERVER_URL, or as `url` in the table [default] of {file_of(os.environ)}"
    return f"No server is named, so this is the default. {choice}"


def _profiles() -> Sequence[Profile]:
    """The profiles; none where their file cannot be read."""
    try:
        return listed()
    except BadProfile:
        return []


def _way_in(detail: str, profile: str) -> str:
    """What a person does whose key is missing, or refused as the server's detail says."""
    headers = detail.startswith("A key is needed")  # which are for programs
    refused = "This server needs a key" if headers else detail.removesuffix(GIVE_A_KEY)
    return (
        f"{refused}: put one into {key_places(profile)}. "
        "An admin makes it by `agentctl keys new NAME`, and the server's log says at its start how to get a first one"
    )


def _profiles_completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Profiles, for the shell: none where their file cannot be read."""
    return [CompletionItem(one.name, help=one.url) for one in _profiles() if one.name.startswith(incomplete)]


@click.group(
    cls=_ProgramGroup,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="agent-server-client")
@click.option(
    "--profile",
    default="",
    envvar="AGENTCTL_PROFILE",
    shell_complete=_profiles_completed,
    metavar="NAME",
    help="Use this table of ~/.config/agentctl/config.toml.",
)
@click.pass_context
def agentctl(context: click.Context, profile: str) -> None:
    """Run agents in sandboxes, watch them, and decide what they may do.

    The server is AGENT_SERVER_URL, with the key AGENT_SERVER_KEY; or `url` and `key` of the table [default] in
    ~/.config/agentctl/config.toml. A conversation is named by its id or the beginning of it.
    """
    context.obj = CommandSession(profile)


def command(name: str | None = None, **options: Any) -> Callable[[Callable[..., None]], click.Command]:
    """A command with --json, whose function gets the session and its own parameters. options: of click."""
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="Print JSON: one value, or one a line for what is followed."
    )

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def called(**params: Any) -> None:
            session = click.get_current_context().obj
            session.as_json = params.pop("as_json")
            if session.notes_as_json:
                session.err = _Notices(stderr=True)
                _log_notices(click.get_current_context())
            function(session, **params)

        made: click.Command = click.command(name, **options)(as_json(called))
        return made

    return decorate


def ids_completed(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Conversations, for the shell: none where the server cannot be asked."""
    session = CommandSession(context.parent.params.get("profile") or "" if context.parent else "")
    try:
        found = target(session.profile)
        with Client(*found, timeout=2.0, retry_seconds=0.0) as client:
            pairs = zip(client.search(), range(_LOOKED_UP), strict=False)
            items = [item for item, _ in pairs if item["id"].startswith(incomplete)]
    except (AgentServerError, BadProfile):
        return []
    return [CompletionItem(item["id"], help=visible(item["title"] or "", prose=True)) for item in items]


def id_from(listing: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Check of an argument that has ids: an empty one would be the beginning of all. listing: what shows the ids."""

    def check(_: click.Context, __: click.Parameter, value: Any) -> Any:
        ids = [one.strip() for one in ([value] if isinstance(value, str) else value or ())]
        if not all(ids):
            raise click.BadParameter(f"The id is empty. `{listing}` shows the ids.")
        return ids[0] if isinstance(value, str) else value and tuple(ids)

    return check


conversation_id = id_from("agentctl ls")

conversation_argument = click.argument(
    "conversation", metavar="ID", callback=conversation_id, shell_complete=ids_completed
)


def print_json(value: Any) -> None:
    """Print a value as one line, at once, in ASCII: a terminal shows no character of it but itself."""
    click.echo(json.dumps(value))
    sys.stdout.flush()
