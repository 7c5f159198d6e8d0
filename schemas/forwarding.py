"""Operations of agent servers that are forwarded to a sandbox, for the OpenAPI document; and messages of a terminal.

No schema loads or dumps a call: it is forwarded unchanged, and so is the response. The document describes what the
bundled agent and the published agent server accept, with their limits. Source: the agent-server wire. Only the input of
a terminal is loaded here. Source: docs/wire.md.
"""

from typing import Any, NamedTuple

from marshmallow import ValidationError, fields, validates_schema

from schemas.app_conversations import GitChange, GitDiff
from schemas.fields import BaseSchema, StrictInteger, Success, Text, WholeNumber

#: Query member that names the sandbox of a call without a conversation.
CID = {
    "in": "query",
    "name": "cid",
    "required": False,
    "schema": {"type": "string", "format": "uuid"},
    "description": "A conversation of the sandbox. It is not forwarded.",
}


_EVENT = {"oneOf": [{"$ref": "#/components/schemas/BashCommand"}, {"$ref": "#/components/schemas/BashOutput"}]}

#: Maximum number of columns and rows of a terminal, and of characters of a message.
MOST_COLS, MOST_ROWS, MOST_INPUT = 500, 200, 4096


_FILE = {
    "multipart/form-data": {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}},
    }
}
_FOLDER = {
    "application/json": {
        "type": "object",
        "required": ["path"],
        "properties": {"path": {"type": "string", "minLength": 1}},
    }
}


class ExecuteBashRequest(BaseSchema):
    """A command for the shell of a sandbox."""

    command = fields.String(required=True)
    cwd = fields.String(
        allow_none=True, metadata={"description": "Working folder; absent or null: the conversation's."}
    )
    timeout = fields.Integer(metadata={"default": 300, "minimum": 1, "description": "Timeout in seconds."})


class BashCommand(BaseSchema):
    """A started command."""

    kind = fields.String(metadata={"enum": ["BashCommand"]})
    id = fields.String(required=True)
    timestamp = fields.String(required=True)
    command = fields.String(required=True)
    cwd = fields.String(allow_none=True)
    timeout = fields.Integer()


class BashOutput(BaseSchema):
    """The output of a command, partial or complete."""

    kind = fields.String(metadata={"enum": ["BashOutput"]})
    id = fields.String(required=True)
    timestamp = fields.String(required=True)
    command_id = fields.String(required=True)
    order = fields.Integer(metadata={"description": "Number of the output of a command, from 0."})
    exit_code = fields.Integer(allow_none=True, metadata={"description": "Null while the command runs."})
    stdout = fields.String(allow_none=True)
    stderr = fields.String(allow_none=True)


class BashEventPage(BaseSchema):
    """A page of commands and their output."""

    items = fields.List(fields.Raw(metadata=_EVENT), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class ClearedEvents(BaseSchema):
    """The number of deleted commands and outputs."""

    cleared_count = fields.Integer(required=True)


class Commit(BaseSchema):
    """A commit of a repository."""

    sha = fields.String(required=True)
    short_sha = fields.String()
    subject = fields.String()
    author = fields.String()
    timestamp = fields.String()


class Commits(BaseSchema):
    """The newest commits of a repository."""

    commits = fields.List(fields.Nested(Commit), required=True)
    has_more = fields.Boolean(required=True)


class Subfolder(BaseSchema):
    """A folder in a folder."""

    name = fields.String(required=True)
    path = fields.String(required=True)


class SubfolderPage(BaseSchema):
    """A page of folders."""

    items = fields.List(fields.Nested(Subfolder), required=True)
    next_page_id = fields.String(required=True, allow_none=True)


class VSCodeUrl(BaseSchema):
    """The address of a sandbox's VS Code."""

    url = fields.String(required=True, allow_none=True)


def _member(name: str, what: str, *, required: bool = False, **schema: Any) -> dict[str, Any]:
    """Describe a member of the query."""
    of = {"type": "string", **schema}
    return {"in": "query", "name": name, "required": required, "schema": of, "description": what}


_REF = _member("ref", "The commit or branch to compare with; absent: the agent server chooses it.")
_LIMIT = _member("limit", "Maximum number of items of a page.", type="integer", minimum=1, maximum=100)
_PAGE = _member("page_id", "`next_page_id` of the previous page.")


def _path(what: str) -> dict[str, Any]:
    return _member("path", what, required=True, minLength=1)


class ForwardedOperation(NamedTuple):
    """An operation of a service of agent servers."""

    service: str
    method: str
    path: str  #: below the service, with `{name}` for a parameter
    name: str
    what: str
    response: Any  #: the schema of a 200, a list with one for an array, or a media type for bytes
    query: tuple[dict[str, Any], ...] = ()
    body: dict[str, Any] | None = None  #: its schemas by media type
    alone: bool = False  #: it is only served without a conversation

    def document(self) -> dict[str, Any]:
        """Describe its request and its response for the OpenAPI document."""
        content: dict[str, Any]
        if isinstance(self.response, str):
            content = {self.response: {"schema": {"type": "string", "format": "binary"}}}
        elif isinstance(self.response, list):
            content = {"application/json": {"schema": {"type": "array", "items": self.response[0]}}}
        else:
            content = {"application/json": {"schema": self.response}}
        document: dict[str, Any] = {
            "responses": {"200": {"description": "The agent server's response", "content": content}}
        }
        if self.body:
            bodies = {media_type: {"schema": schema} for media_type, schema in self.body.items()}
            document["requestBody"] = {"required": True, "content": bodies}
        return document


_COMMAND = {"application/json": ExecuteBashRequest}

#: Operations of the published agent server. The bundled agent server supports some of them.
NAMED = (
    ForwardedOperation(
        *("bash", "POST", "start_bash_command", "start_bash_command", "Start a command"),
        BashCommand,
        body=_COMMAND,
    ),
    ForwardedOperation(
        *("bash", "POST", "execute_bash_command", "execute_bash_command", "Run a command and wait until it ends"),
        BashOutput,
        body=_COMMAND,
    ),
    ForwardedOperation(
        *("bash", "POST", "bash_commands/{command_id}/stop", "stop_bash_command", "Stop a command"), Success
    ),
    ForwardedOperation(
        *("bash", "GET", "bash_events/search", "search_bash_events", "Search commands and their output"),
        BashEventPage,
        query=(
            _member("kind__eq", "Only commands, or only outputs.", enum=["BashCommand", "BashOutput"]),
            _member("command_id__eq", "Only outputs of this command.", format="uuid"),
            _member("timestamp__gte", "At or after this time.", format="date-time"),
            _member("timestamp__lt", "Before this time.", format="date-time"),
            _member("order__gt", "Only outputs with a greater `order`.", type="integer"),
            _member("sort_order", "Order by time.", enum=["TIMESTAMP", "TIMESTAMP_DESC"]),
            _PAGE,
            _LIMIT,
        ),
    ),
    ForwardedOperation(
        *("bash", "GET", "bash_events/{bash_event_id}", "get_bash_event", "Get a command or an output"),
        _EVENT,
    ),
    ForwardedOperation(
        *("bash", "DELETE", "bash_events", "clear_bash_events", "Delete commands and their output"),
        ClearedEvents,
    ),
    ForwardedOperation(
        *("file", "POST", "upload", "upload_file", "Write a file"),
        Success,
        query=(_path("Path of the new file."),),
        body=_FILE,
    ),
    ForwardedOperation(
        *("file", "GET", "download", "download_file", "Read a file"),
        "application/octet-stream",
        query=(_path("The file."),),
    ),
    ForwardedOperation(
        *("file", "POST", "create_directory", "create_directory", "Create a folder"),
        {},
        body=_FOLDER,
    ),
    ForwardedOperation(
        *("file", "GET", "archive", "archive_directory", "Read a folder as a single file"),
        "*/*",
        query=(
            _path("The folder."),
            _member("format", "A patch against `base_ref`, or an archive.", enum=["git-delta", "tar.gz"]),
            _member("base_ref", "For a patch: the commit or branch that it applies to."),
            _member("exclude", "Patterns of files to leave out.", type="array", items={"type": "string"}),
        ),
    ),
    ForwardedOperation(
        *("file", "GET", "search_subdirs", "search_subdirs", "List the folders in a folder"),
        SubfolderPage,
        query=(
            _path("The folder."),
            _PAGE,
            _LIMIT,
            _member("include_hidden", "Whether to list hidden folders.", type="boolean"),
        ),
        alone=True,
    ),
    ForwardedOperation(
        *("git", "GET", "changes", "get_git_changes", "List the changed files of a repository"),
        [GitChange],
        query=(_path("The repository."), _REF),
    ),
    ForwardedOperation(
        *("git", "GET", "diff", "get_git_diff", "Compare a file with an earlier version"),
        GitDiff,
        query=(_path("The file."), _REF, _member("commit", "Compare this commit with its parent.")),
    ),
    ForwardedOperation(
        *("git", "GET", "commits", "list_git_commits", "List the commits of a repository"),
        Commits,
        query=(
            _path("The repository."),
            _member("limit", "Maximum number of commits.", type="integer", minimum=1, maximum=200),
        ),
    ),
    ForwardedOperation(
        *("git", "GET", "commits/{sha}/changes", "get_git_commit_changes", "List the files that a commit changed"),
        [GitChange],
        query=(_path("The repository."),),
    ),
    ForwardedOperation(
        *("git", "GET", "repositories/search", "search_git_repositories", "Find the repositories in a folder"),
        {},
        query=(_member("path", "The folder."),),
        alone=True,
    ),
    ForwardedOperation(*("vscode", "GET", "status", "get_vscode_status", "Read whether VS Code runs"), {}),
    ForwardedOperation(
        *("vscode", "GET", "url", "get_vscode_url", "Get the URL of VS Code"),
        VSCodeUrl,
        query=(_member("base_url", "The server's URL."), _member("workspace_dir", "The folder to open.")),
    ),
)


class TerminalSize(BaseSchema):
    """The size of a terminal, in the query of its socket."""

    cols = WholeNumber(least=1, most=MOST_COLS, load_default=80)
    rows = WholeNumber(least=1, most=MOST_ROWS, load_default=24)


class TerminalMessage(BaseSchema):
    """Input, or a new size. Loaded in the agent server's form."""

    input = Text(most=MOST_INPUT)
    cols = StrictInteger(least=1, most=MOST_COLS)
    rows = StrictInteger(least=1, most=MOST_ROWS)

    @validates_schema
    def _is_one_of_two(self, data: dict[str, Any], **_: Any) -> None:
        if data.keys() not in ({"input"}, {"cols", "rows"}):
            raise ValidationError("A message has `input`, or `cols` and `rows`")
