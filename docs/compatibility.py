"""Compares the operations of this server with those of its peers, for `docs/compatibility.md`.

`docs/peers/*.txt` list the peers' operations, one `METHOD path` a line; `docs/peers/not_served.toml` has the reasons.
"""

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from flask import Flask
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

PEERS = Path(__file__).parent / "peers"

#: what stands for a parameter of a path
_SAMPLE = "00000000-0000-4000-8000-000000000000"


class Operation(NamedTuple):
    """path: with `{name}` for a parameter. method: SOCKET of a WebSocket."""

    path: str
    method: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(peer: str) -> set[Operation]:
    """The operations of a peer, `agent-server` or `app-server`."""
    lines = (PEERS / f"{peer}.txt").read_text().splitlines()
    return {Operation(path, method) for method, path in (line.split() for line in lines if not line.startswith("#"))}


def reasons() -> list[tuple[list[str], str]]:
    """Why operations are not served: their patterns, and the reason."""
    found = tomllib.loads((PEERS / "not_served.toml").read_text())["reason"]
    return [(one["operations"], one["text"]) for one in found]


def reasons_for(operation: Operation) -> list[str]:
    """The reasons why an operation is not served."""
    return [text for patterns, text in reasons() if any(fnmatchcase(str(operation), _literal(one)) for one in patterns)]


def is_served(app: Flask, operation: Operation) -> bool:
    """Whether the app has a rule for an operation."""
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


def rows(app: Flask) -> list[str]:
    """The rows of the table: every operation of a peer, and whether it is served here."""
    agent, web = operations("agent-server"), operations("app-server")
    table = ["| Operation | agent server | app server | here |", "|---|---|---|---|"]
    for operation in sorted(agent | web):
        here = "yes" if is_served(app, operation) else " ".join(["no:", *reasons_for(operation)])
        in_peers = " | ".join("yes" if operation in peer else "" for peer in (agent, web))
        table.append(f"| `{operation}` | {in_peers} | {here} |")
    return table


def _literal(pattern: str) -> str:
    """A pattern in which only `*` is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
