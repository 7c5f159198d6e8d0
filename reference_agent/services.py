"""Commands, files and Git, which the bundled agent serves besides its conversations, only in its working directory.

The paths exist below /api and below each conversation, where relative paths start in its folder. Source: the
agent-server wire. Limitation: Git reads the repository's configuration, which may name programs to run.
"""

import os
import re
import subprocess
import zlib
from pathlib import Path
from urllib.parse import parse_qsl

from flask import Blueprint, Response, abort, jsonify, request, send_file

from core.cuts import beginning
from core.filenames import as_text
from core.wire import as_unicode, micros
from reference_agent.api import asked_number, body, check_key, done, encoded, page_of, parsed, server, working_folder
from reference_agent.commands import ClientCommand, TooManyRun
from reference_agent.events import Event
from reference_agent.repository import run_git
from reference_agent.shell import COMMAND_SECONDS
from reference_agent.tools import MOST_FILE, Files, ToolRefused, replaced

_GIT_SECONDS = 30  #: Git's timeout, in seconds
_LONGEST_NAME = 64  #: maximum characters of a query member's name in an error
#: Size at which a page of commands and outputs ends, in bytes. A response of one command has at most 6 MiB.
MOST_PAGE = 4 << 20
MOST_CHANGES = 10_000  #: maximum number of changed files in a list
#: Default and maximum number of commits in a list, and the members of each by the names of `git log`.
_COMMITS, MOST_COMMITS = 50, 200
_OF_COMMIT = {"sha": "%H", "short_sha": "%h", "subject": "%s", "author": "%an", "timestamp": "%aI"}
_SHA = re.compile(r"[0-9a-fA-F]{4,64}")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")  #: characters that a header's file name cannot have
#: Untracked files that are not listed: ignored files and the agent server's own.
_UNTOLD = ("--exclude-standard", "--exclude=/.agent-server/")
_STATUSES = {"A": "ADDED", "D": "DELETED"}

#: Query members by operation. An operation that is not listed has none.
_QUERIES = {
    "search_events": "command_id__eq kind__eq limit order__gt page_id sort_order timestamp__gte timestamp__lt",
    "upload": "path",
    "download": "path",
    "changes": "path ref",
    "commits": "limit path",
    "changes_of_commit": "path",
    "difference": "commit path ref",
}

services = Blueprint("services", __name__)
services.before_request(check_key)


@services.before_request
def refuse_unknown() -> tuple[Response, int] | None:
    """Refuse an unknown query member: a misspelled one would have no effect, unnoticed."""
    known = _QUERIES.get((request.endpoint or "").rpartition(".")[2], "").split()
    unknown = next((name for name in request.args if name not in known), None)
    if unknown is None:
        return None
    allowed = f"the query may have {', '.join(known)}" if known else "this operation has no query"
    words = f"Unknown member of the query: {allowed}"
    named = beginning(as_unicode(unknown), _LONGEST_NAME)
    return jsonify(detail=[{"loc": ["query", named], "msg": words, "type": "extra_forbidden"}]), 422


def folder_of(identity: str | None) -> Path:
    """Return the folder that relative paths start in: a conversation's, or the working directory."""
    if identity is None:
        return Path.cwd()
    conversation = server.find(parsed(identity)) or abort(404, "Conversation not found")
    return working_folder(conversation.log.start["workspace"])


def placed(identity: str | None, path: str) -> Path:
    try:
        return Files(Path.cwd(), server.folder).inside(str(folder_of(identity) / path))
    except (ToolRefused, OSError, ValueError) as refused:
        abort(400, f"{as_text(path)} {refused}")


def asked_path() -> str:
    query = parse_qsl(request.query_string.decode(errors="surrogateescape"), errors="surrogateescape")
    return next((value for name, value in query if name == "path"), None) or abort(422, "path is needed in the query")


def begun(identity: str | None) -> ClientCommand:
    given = body()
    command, seconds, cwd = given.get("command"), given.get("timeout", 300), given.get("cwd") or "."
    if not isinstance(command, str):
        abort(422, "command should be a string")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= COMMAND_SECONDS:
        abort(422, f"timeout should be a number of seconds from 1 to {COMMAND_SECONDS}")
    if not isinstance(cwd, str):
        abort(422, "cwd should be a string")
    try:
        return server.commands.start(command, folder_of(identity) / cwd, seconds)
    except TooManyRun as refused:
        abort(429, str(refused))
    except (OSError, ValueError) as error:
        abort(400, f"The command cannot be executed: {error}")


def moment(name: str) -> int | None:
    try:
        return micros(request.args[name]) if name in request.args else None
    except ValueError:
        abort(422, f"{name} should be a date and time")


@services.post("/bash/start_bash_command")
def start_command(identity: str | None = None) -> Response:
    return jsonify(begun(identity).events[0])


@services.post("/bash/execute_bash_command")
def execute_command(identity: str | None = None) -> Response:
    command = begun(identity)
    command.has_ended.wait()
    outputs = command.events[1:]
    printed = {name: "".join(one[name] or "" for one in outputs) for name in ("stdout", "stderr")}
    return Response(encoded({**outputs[-1], **printed, "order": 0}), mimetype="application/json")


@services.post("/bash/bash_commands/<command_id>/stop")
def stop_command(command_id: str, identity: str | None = None) -> Response:  # noqa: ARG001 - any command of the process
    command = server.commands.find(command_id) or abort(404, "Command not found")
    command.stop()
    return done()


@services.get("/bash/bash_events/search")
def search_events(identity: str | None = None) -> Response:  # noqa: ARG001
    order = request.args.get("order__gt", "-1")
    if not (order.isascii() and order.removeprefix("-").isdigit() and len(order) < 10):
        abort(422, "order__gt should be a whole number")
    since, until = moment("timestamp__gte"), moment("timestamp__lt")

    def passes(event: Event) -> bool:
        return (
            (since is None or micros(event["timestamp"]) >= since)
            and (until is None or micros(event["timestamp"]) < until)
            and request.args.get("kind__eq") in (None, event["kind"])
            and request.args.get("command_id__eq") in (None, event.get("command_id", event["id"]))
            and event.get("order", int(order) + 1) > int(order)
        )

    return page_of(server.commands.events(), MOST_PAGE, passes)


@services.get("/bash/bash_events/<event_id>")
def get_bash_event(event_id: str, identity: str | None = None) -> Response:  # noqa: ARG001
    event = next((event for event in server.commands.events() if event["id"] == event_id), None)
    return jsonify(event) if event else abort(404, "Event not found")


@services.delete("/bash/bash_events")
def forget_events(identity: str | None = None) -> Response:  # noqa: ARG001
    return jsonify(cleared_count=server.commands.forget())


@services.post("/file/upload")
def upload(identity: str | None = None) -> Response:
    place, sent = placed(identity, asked_path()), request.files.get("file") or abort(422, "file is needed in the body")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replaced(place) as draft:
            sent.save(draft)
            size = draft.stat().st_size
    except OSError as error:
        abort(400, f"{as_text(asked_path())} cannot be written: {error.strerror}")
    return jsonify(success=True, file_size=size)


@services.get("/file/download")
def download(identity: str | None = None) -> Response:
    place = placed(identity, asked_path())
    if not place.is_file():
        abort(404, "File not found")
    name, status = _CONTROLS.sub("_", as_text(place.name)), place.stat()
    # The ETag is our own: that of send_file fails for a name that is not UTF-8.
    etag = f"{status.st_mtime_ns}-{status.st_size}-{zlib.crc32(os.fsencode(place))}"
    return send_file(place, as_attachment=True, download_name=name, etag=etag)


@services.get("/git/changes")
def changes(identity: str | None = None) -> Response:
    """Return the files of a repository that differ from a ref, and its untracked files."""
    folder = placed(identity, asked_path())
    unknown = filter(None, needed(folder, "ls-files", "-z", "--others", *_UNTOLD).split("\0"))
    found = dict.fromkeys(unknown, "ADDED") | _differing(folder, ref_of(folder))
    if len(found) > MOST_CHANGES:
        abort(400, f"More than {MOST_CHANGES} files have changed: give the path of a folder of the repository")
    return jsonify([{"status": status, "path": as_text(path)} for path, status in sorted(found.items())])


@services.get("/git/commits")
def commits(identity: str | None = None) -> Response:
    """Return the newest commits of a repository; empty outside of a repository."""
    folder, limit = placed(identity, asked_path()), asked_number("limit", _COMMITS, 1, MOST_COMMITS)
    shape = "%n".join(_OF_COMMIT.values())
    options = ("-z", "--no-show-signature", f"--max-count={limit + 1}", f"--format={shape}")
    shown = git(folder, "log", *options) or ""
    found = [dict(zip(_OF_COMMIT, one.split("\n"), strict=False)) for one in shown.split("\0") if one]
    return jsonify(commits=found[:limit], has_more=len(found) > limit)


@services.get("/git/commits/<sha>/changes")
def changes_of_commit(sha: str, identity: str | None = None) -> Response:
    folder = placed(identity, asked_path())
    commit = commit_of(folder, sha)
    found = _differing(folder, parent_of(folder, commit), commit)
    return jsonify([{"status": status, "path": as_text(path)} for path, status in found.items()])


def _differing(folder: Path, *commits: str) -> dict[str, str]:
    """Return the status by path of the files that differ from a commit, or between two."""
    options = ("--name-status", "-z", "--no-renames", "--no-ext-diff", "--relative")
    fields = needed(folder, "diff", *options, *commits, "--").split("\0")
    return {path: _STATUSES.get(status[:1], "UPDATED") for status, path in zip(fields[::2], fields[1::2], strict=False)}


@services.get("/git/diff")
def difference(identity: str | None = None) -> Response:
    """Return a file of a repository as it is and at a ref, or at a `commit` and its parent."""
    place = placed(identity, asked_path())
    folder = next(above for above in place.parents if above.is_dir())  # a deleted file's folder may be gone too
    name = f"./{place.relative_to(folder)}"
    if requested := request.args.get("commit"):
        commit = commit_of(folder, requested)
        return jsonify(modified=known(folder, commit, name), original=known(folder, parent_of(folder, commit), name))
    return jsonify(modified=_text(place), original=known(folder, ref_of(folder), name))


def known(folder: Path, commit: str, name: str) -> str | None:
    if int(git(folder, "cat-file", "-s", f"{commit}:{name}") or 0) > MOST_FILE:
        abort(400, f"The file has more than {MOST_FILE} bytes in that commit")
    return git(folder, "cat-file", "blob", f"{commit}:{name}")


def commit_of(folder: Path, sha: str) -> str:
    if not _SHA.fullmatch(sha):
        abort(422, "The commit should be 4 to 64 hexadecimal digits")
    needed(folder, "rev-parse", "--git-dir")
    return _resolved(folder, sha) or abort(400, "The repository has no commit of that hash")


def parent_of(folder: Path, commit: str) -> str:
    return (git(folder, "rev-parse", "--verify", "--quiet", f"{commit}^1") or empty_tree(folder)).strip()


def ref_of(folder: Path) -> str:
    """Return the commit to compare with: the requested ref, otherwise the upstream, otherwise the last commit."""
    requested = request.args.get("ref")
    for ref in (requested,) if requested else ("@{upstream}", "HEAD"):
        if found := _resolved(folder, ref):
            return found
    needed(folder, "rev-parse", "--git-dir")
    return abort(400, "ref names no commit of the repository") if requested else empty_tree(folder)


def empty_tree(folder: Path) -> str:
    """Return the empty tree, to compare a repository without commits with. Its name depends on the hash."""
    return needed(folder, "hash-object", "-t", "tree", os.devnull).strip()


def _resolved(folder: Path, name: str) -> str | None:
    found = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return found.strip() if found else None


def needed(folder: Path, *words: str) -> str:
    """Return Git's output in a folder; bytes that are not UTF-8 are surrogates. Abort with 409 if Git fails."""
    printed = git(folder, *words, errors="surrogateescape")
    return abort(409, "The folder is not in a Git repository that can be read") if printed is None else printed


def git(folder: Path, *words: str, errors: str = "replace") -> str | None:
    try:
        run = run_git(folder, *words, seconds=_GIT_SECONDS)
    except subprocess.TimeoutExpired:
        abort(504, f"Git did not finish within {_GIT_SECONDS} s")
    except OSError as error:
        abort(400, f"Git cannot run: {error.strerror}")
    return None if run.returncode else run.stdout.decode(errors=errors)


def _text(place: Path) -> str | None:
    try:
        with place.open("rb") as file:
            content = file.read(MOST_FILE + 1)
    except OSError:
        return None
    if len(content) > MOST_FILE:
        abort(400, f"The file has more than {MOST_FILE} bytes: download it")
    return content.decode(errors="replace")
