"""Writes the pages that are made from the code:  python -m docs.make  (or `make docs`)

Pages: the OpenAPI document `docs/openapi.json`; the settings in `docs/settings.md` and `docs/limits.md`; the tables of
permissions in `docs/access.md`, of refusals in `docs/errors.md`, of the peers' operations in `docs/compatibility.md`
and of the client's objects in `docs/client.md`; the data model in `docs/data.md`. Modules of the Python client:
`models.py` from the schemas of `docs/openapi.json`, and the blocking client, `_sync*.py`, from `_async*.py`. Also
`store/scripts/calls.py` from the heads of the store's scripts. Tests compare all of them with the code.

`docs/peers/*.txt` list the peers' operations, one `METHOD path` per line; `docs/peers/not_served.toml` has the reasons.
"""

import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import Field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from flask import Flask
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

from app import create_app
from blueprints.api import OPENAPI, Needs
from core.refused import RefusalKind, Refused
from docs import data_model
from settings import allowed
from settings.config import Config, groups

PEERS = Path(__file__).parent / "peers"

#: Refusals whose name says what happened, by a pattern of their names: they share a row of the page of errors.
_ALIKE = (
    ("*NotFound", "What the request names does not exist, or the key may not see it."),
    ("TooMany*", "A limit is reached."),
    ("*WasRevoked", "An earlier attempt of this request made it, and it was revoked since."),
    ("*TooLong", "It is larger than a limit allows."),
)

#: Maximum number of paths in a row of the table of peers' operations. A row of more has their patterns.
_MOST_NAMED = 6

#: Placeholder of a parameter of a path.
_SAMPLE = "00000000-0000-4000-8000-000000000000"


PROJECT = Path(__file__).parent.parent
SETTINGS, LIMITS, ACCESS, ERRORS, COMPATIBILITY, CLIENT, DATA = (
    PROJECT / "docs" / f"{name}.md"
    for name in ("settings", "limits", "access", "errors", "compatibility", "client", "data")
)

#: Needs of operations without a scope of a key.
_NEEDS = {"open": "no key", "hook": "a hook key", "link": "the token of a one-time link"}

_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- /table -->)", re.DOTALL)

#: An attribute that a class of the client sets, and its comment.
_ATTRIBUTE = re.compile(r"^ +(?:self\.)?([a-z]\w*)\b[^#\n]*  #: (.*)$", re.MULTILINE)

#: Maximum length of a line of a page, in characters.
_WIDTH = 160

#: The public classes of the client.
OBJECTS = ("Client", "Conversation", "Turn", "Entry", "PendingAction", "Destination", "Sandbox", "Files", "Output")

PACKAGE = PROJECT / "client/src/agent_server_client"
MODELS = PACKAGE / "models.py"
CALLS = PROJECT / "store/scripts/calls.py"

#: Modules of the async client, and the blocking ones made from them.
SYNCS = {PACKAGE / f"_async{part}.py": PACKAGE / f"_sync{part}.py" for part in ("", "_waiting", "_files", "_sandboxes")}

#: Schemas of responses that the client has types for; the schemas they refer to are added.
ROOTS = (
    *("ConversationInfo", "ListedConversation", "WaitingAction", "DecisionsResult", "AppConversationStartTask"),
    *("SandboxInfo", "SandboxSpecInfo", "KeyInfo", "NewKey", "User", "GitChange", "GitDiff", "ServerInfo"),
    *("FolderRecords", "Push", "Remote", "Return"),
    *("AuditEntry", "AskedDestinationInfo", "DestinationDecided", "PreviewAddress", "ApprovalRule", "ApprovalMode"),
    *("ReadyAnswer", "RehearsalResult", "ActionDecision", "GrantInfo", "DeviceInfo", "NotificationOutcome"),
)

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_MODELS_HEAD = '''"""What the server sends. Made by docs/make.py from docs/openapi.json."""

from typing import TYPE_CHECKING, Any, Literal

#: one entry of a log, whole: every kind has members of its own
Event = dict[str, Any]


class Record(dict[str, Any]):
    """An object of JSON, whose members are attributes too: `sandbox.status` is `sandbox["status"]`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f"There is no {name!r} here, but {', '.join(self) or 'nothing'}") from None
'''

#: Replacements from the async client to the blocking one.
_SYNC_RULES = (
    (r"async client(?=\. `_sync)", "blocking client"),
    (r"^import asyncio$", "import time"),
    (r"\bawait asyncio\.to_thread\((\w+), ", r"\1("),
    (r"\bawait asyncio\.sleep\b", "time.sleep"),
    (r"\b(async|await) ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\bAsync(?=\w)", ""),
    (r"\b(__)?a(enter__|exit__|close|closing|read|iter_bytes)\b", r"\1\2"),
    (r"`_sync(\w*)\.py` is made from it\.", r"Made by docs/make.py from `_async\1.py`."),
    (r"_async(?=\w* import)", "_sync"),
)


class Operation(NamedTuple):
    """path: with `{name}` for a parameter. method: SOCKET of a WebSocket."""

    path: str
    method: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(peer: str) -> set[Operation]:
    """Return the operations of a peer, `agent-server` or `app-server`."""
    lines = (PEERS / f"{peer}.txt").read_text().splitlines()
    return {Operation(path, method) for method, path in (line.split() for line in lines if not line.startswith("#"))}


def reasons() -> list[tuple[list[str], str]]:
    """Return why operations are not served: their patterns, and the reason."""
    entries = tomllib.loads((PEERS / "not_served.toml").read_text())["reason"]
    return [(one["operations"], one["text"]) for one in entries]


def reasons_for(operation: Operation) -> list[str]:
    return [text for patterns, text in reasons() if any(fnmatchcase(str(operation), _literal(one)) for one in patterns)]


def is_served(app: Flask, operation: Operation) -> bool:
    is_socket = operation.method == "SOCKET"
    urls = app.url_map.bind("localhost")
    try:
        urls.match(
            re.sub(r"\{[^}]+\}", _SAMPLE, operation.path), "GET" if is_socket else operation.method, websocket=is_socket
        )
    except RequestRedirect:
        return True
    except (NotFound, MethodNotAllowed):
        return False
    return True


def compared(app: Flask) -> list[str]:
    """The rows of the table: the operations of the peers that are not served here, by reason; and how many are."""
    peers = {"agent server": operations("agent-server"), "app server": operations("app-server")}
    served = {name: sum(is_served(app, one) for one in of) for name, of in peers.items()}
    counts = [f"{served[name]} of {len(of)} operations of the {name}" for name, of in peers.items()]
    table = [f"Served: {', '.join(counts)}. Not served:", "", "| Operations | Of | Why not |", "|---|---|---|"]
    missing = sorted(one for one in set().union(*peers.values()) if not is_served(app, one))
    for patterns, reason in reasons():
        ours = [one for one in missing if reason in reasons_for(one)]
        methods = dict[str, list[str]]()
        for one in ours:
            methods.setdefault(one.path, []).append(one.method)
        named = [f"{'/'.join(of)} {path}" for path, of in methods.items()]
        shown = ", ".join(f"`{one}`" for one in (named if len(named) <= _MOST_NAMED else patterns))
        of_peers = ", ".join(name for name, of in peers.items() if of.intersection(ours))
        table.append(f"| {shown} | {of_peers} | {reason} |")
    return table


def _literal(pattern: str) -> str:
    """Return a pattern in which only `*` is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def openapi() -> str:
    """Return the app's OpenAPI document as stored."""
    document = create_app(Config.of(redis_url="redis://127.0.0.1:1")).extensions["server"].api.describe()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def settings() -> str:
    """Return the page of settings. Its tables are made from the groups of `settings.config.Config`."""
    rows = list[str]()
    for group in groups().values():
        if found := [one for one in fields(group) if not one.metadata["is_limit"]]:
            title, _, about = _first_line(group).partition(": ")
            rows += ["", f"## {title}", "", about[:1].upper() + about[1:], ""]
            rows += ["| Setting | Default | Meaning |", "|---|---|---|"]
            rows += [f"| {_names(one)} | {_default(one)} | {one.metadata['help']} |" for one in found]
    return _with_table(SETTINGS, [*rows[1:], ""])


def limits() -> str:
    """Return the page of limits. Its table is made from the settings that are limits."""
    rows = ["| Setting | Default | Allowed | Meaning |", "|---|---|---|---|"]
    for one in (one for group in groups().values() for one in fields(group) if one.metadata["is_limit"]):
        rows.append(f"| {_names(one)} | {_default(one)} | {allowed(one)} | {one.metadata['help']} |")
    return _with_table(LIMITS, rows)


def _names(setting: "Field[Any]") -> str:
    return setting.metadata["names"] or f"`{setting.name.upper()}`"


def _default(setting: "Field[Any]") -> str:
    return "unset" if setting.default in ("", ()) else f"`{setting.default}`"


def access() -> str:
    """Return the page about access. Its lists are made from the declarations of all rules."""
    calls = dict[str, list[tuple[str, str]]]()
    app = create_app(Config.of(redis_url="redis://127.0.0.1:1"))
    for rule in app.url_map.iter_rules():
        needed = getattr(app.view_functions[rule.endpoint], "needs", Needs("open"))
        path = re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", rule.rule)
        [method] = ["SOCKET"] if rule.websocket else (rule.methods or set()) - {"HEAD", "OPTIONS"}
        words = _NEEDS.get(needed.scope, f"`{needed.scope}`")
        also = (
            (needed.hook and needed.scope != "hook", "or a hook key"),
            (needed.ticket, "or a ticket"),
            (needed.session, "or the session key of a sandbox"),
        )
        needs = " ".join([words, *(text for holds, text in also if holds)])
        calls.setdefault(needs, []).append((path, method))
    rows = list[str]()
    for needs, listed in sorted(calls.items()):
        lines = [f"{method} {path}" for path, method in sorted(listed)]
        rows += ["", f"Needs {needs}:", "", "```text", *lines, "```"]
    return _with_table(ACCESS, [*rows[1:], ""])


def errors() -> str:
    """Return the page of errors. Its tables, one per status, are made from the classes of refusals."""
    of_status = dict[int, dict[str, list[str]]]()
    for one in sorted((one for one in refusals(Refused) if "kind" in vars(one)), key=lambda one: one.__name__):
        kind = one.kind
        member = f" `{one.member or one.place}`" if kind is RefusalKind.MEMBER else ""
        again = " ↻" if kind.is_passing else ""
        first_line = (one.__doc__ or "").splitlines()[0]
        words = next((text for pattern, text in _ALIKE if fnmatchcase(one.__name__, pattern)), first_line)
        of_status.setdefault(kind.status, {}).setdefault(words, []).append(f"`{one.__name__}`{member}{again}")
    rows = list[str]()
    for status, found in sorted(of_status.items()):
        rows += [
            "",
            f"| {status} | When |",
            "|---|---|",
            *(f"| {', '.join(of)} | {words} |" for words, of in found.items()),
        ]
    return _with_table(ERRORS, [*rows[1:], ""])


def refusals(of: type[Refused]) -> Iterator[type[Refused]]:
    """Yield the classes of refusals of this project, from the general to the special."""
    for one in of.__subclasses__():
        if not one.__module__.startswith("tests"):
            yield one
        yield from refusals(one)


def compatibility() -> str:
    """Return the page about compatibility. Its table is made from `docs/peers` and from all rules."""
    return _with_table(COMPATIBILITY, compared(create_app(Config.of(redis_url="redis://127.0.0.1:1"))))


def data() -> str:
    """Return the page of the data model. Its tables are made from the store's keys, records and scripts."""
    return _with_table(DATA, data_model.page())


def client() -> str:
    """Return the page of the client. Its lists are made from its classes."""
    sys.path.insert(0, str(PACKAGE.parent))  # imported after its modules were made
    package = importlib.import_module(PACKAGE.name)
    rows = list[str]()
    for name in OBJECTS:
        of = getattr(package, name)
        rows += ["", *_wrapped(f"`{name}`: {_first_line(of)}"), ""]
        found = [shown.partition("(")[0].strip("`") for shown, _ in sorted(members(of).values())]
        calls_of = [one for one in found if callable(getattr(of, one, None))]
        attributes = [*dict.fromkeys((*getattr(of, "_fields", ()), *(one for one in found if one not in calls_of)))]
        for label, names in (("Attributes", attributes), ("Methods", calls_of)):
            if names:
                rows += _wrapped(f"* {label}: {', '.join(f'`{one}`' for one in names)}.")
    return _with_table(CLIENT, rows)


def _wrapped(text: str) -> list[str]:
    """The lines of a paragraph or an item of a list."""
    indent = "  " if text.startswith("* ") else ""
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def members(of: type) -> dict[str, tuple[str, str]]:
    """Return the public attributes and methods of a class: how each is written, and its meaning."""
    comments = _ATTRIBUTE.findall(inspect.getsource(of))
    members_by_name = {name: (f"`{name}`", f"{words[:1].upper()}{words[1:]}.") for name, words in comments}
    for name, member in vars(of).items():
        if name.startswith("_") or name in members_by_name:
            continue
        if isinstance(member, property):
            members_by_name[name] = (f"`{name}`", _first_line(member))
        elif inspect.isfunction(member):
            parameters = [one for one in inspect.signature(member).parameters if one != "self"]
            members_by_name[name] = (f"`{name}({', '.join(parameters)})`", _first_line(member))
    return members_by_name


def _first_line(of: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(of) or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _with_table(page: Path, rows: list[str]) -> str:
    table = "\n".join(rows) + "\n"
    return _TABLE.sub(lambda _: table, page.read_text())


def models() -> str:
    schemas = json.loads(OPENAPI.read_text())["components"]["schemas"]
    wanted, classes = list(ROOTS), dict[str, str]()
    for name in wanted:
        if name not in classes:
            body, referred = _class(name, schemas[name])
            classes[name] = body
            wanted += referred
    return _formatted("\n\n".join([_MODELS_HEAD, *(classes[name] for name in sorted(classes))]))


def calls() -> str:
    words = [sys.executable, "-m", "docs.script_calls"]
    return _formatted(subprocess.run(words, capture_output=True, text=True, check=True, cwd=PROJECT).stdout)


def sync(module: Path) -> str:
    """Return the module of the blocking client that is made from an async module."""
    text = module.read_text()
    for pattern, replacement in _SYNC_RULES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return _formatted(text)


def _class(name: str, schema: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the class of a schema, and the names of the schemas that it refers to."""
    referred: list[str] = []
    lines = [f"class {name}(Record):"]
    for member, of in schema["properties"].items():
        if hasattr(dict, member):
            raise ValueError(f"{name}.{member} would hide a method of dicts")
        lines.append(f"    {member}: {_hint(of, referred)}")
    return "\n".join(lines), referred


def _hint(of: dict[str, Any], referred: list[str]) -> str:
    if "$ref" in of:
        referred.append(of["$ref"].rpartition("/")[2])
        return f'"{referred[-1]}"'
    if "enum" in of:
        return f"Literal[{', '.join(map(repr, of['enum']))}]"
    if "anyOf" in of:
        hints = [_hint(one, referred) for one in of["anyOf"]]
        return f'"{" | ".join(hint.strip(chr(34)) for hint in hints)}"'
    types = of["type"] if isinstance(of.get("type"), list) else [of.get("type")]
    return " | ".join(_of_type(one, of, referred) for one in types)


def _of_type(one: str | None, of: dict[str, Any], referred: list[str]) -> str:
    if one == "array":
        return f"list[{_hint(of.get('items', {}), referred)}]"
    if one == "object":
        return "dict[str, Any]"
    return _PLAIN.get(one or "", "Any")


def _formatted(text: str) -> str:
    """Format a text with ruff, a development requirement."""
    for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        words = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(MODELS), "-"]
        text = subprocess.run(words, input=text, capture_output=True, text=True, check=True, cwd=PROJECT).stdout
    return text


if __name__ == "__main__":
    CALLS.write_text(calls())
    OPENAPI.write_text(openapi())
    SETTINGS.write_text(settings())
    LIMITS.write_text(limits())
    ACCESS.write_text(access())
    ERRORS.write_text(errors())
    COMPATIBILITY.write_text(compatibility())
    DATA.write_text(data())
    MODELS.write_text(models())
    for module, blocking in SYNCS.items():
        blocking.write_text(sync(module))
    CLIENT.write_text(client())
