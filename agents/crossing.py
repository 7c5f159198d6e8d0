"""What may cross between a client and the agent server of a sandbox: paths, queries and headers.

Only what is named here crosses. So no key, no cookie, no header of a proxy and no hop-by-hop header reaches a sandbox,
and nothing that an agent server sends gives a browser a cookie, a permission or a page on this server's origin.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from agents.link import AgentUnreachable

#: one step of a path below a service. No step is `.` or `..`, and none has a separator or an escape of one
_STEP = r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,127}"

#: a path below a service: at most eight steps, and one slash at its end if need be
PATH = re.compile(rf"{_STEP}(?:/{_STEP}){{0,7}}/?", re.ASCII)

#: headers of a request that an agent server gets
_REQUEST_HEADERS = (
    "Accept",
    "Accept-Language",
    "Content-Type",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
)

#: headers of a response that a client gets; those of an archive say what it was made of
_RESPONSE_HEADERS = frozenset(
    {
        "accept-ranges",
        "content-disposition",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "etag",
        "last-modified",
        "x-archive-branch",
        "x-archive-head-commit",
        "x-archive-repo-remote",
    }
)

#: names in a query that are for this server alone, or would be a key; compared without their case
_OURS = frozenset({"cid", "session_api_key", "x-session-api-key", "authorization", "ticket"})

#: names in a query whose values are paths in a sandbox
_PATHS = frozenset({"path", "workspace_dir"})

#: what a response may do in a browser that opens it on this server's origin: nothing
_POLICY = "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Head(NamedTuple):
    """The head of a response as a client gets it."""

    status: int
    headers: list[tuple[str, str]]


def query_of(raw: bytes, mapped: Callable[[str], str]) -> str:
    """A query as an agent server gets it, from that of a client; mapped: a path in the sandbox for a client's path."""
    pairs = parse_qsl(raw.decode(errors="surrogateescape"), keep_blank_values=True, errors="surrogateescape")
    kept = [(name, mapped(value) if name in _PATHS else value) for name, value in pairs if name.lower() not in _OURS]
    return urlencode(kept, errors="surrogateescape")


def headers_of(sent: Callable[[str], str | None], session_api_key: str) -> dict[str, str]:
    """The headers that an agent server gets; sent: the value of a client's header, None for one that is absent."""
    kept = {name: value for name in _REQUEST_HEADERS if (value := sent(name)) is not None}
    return {"Accept": "*/*", **kept, "Accept-Encoding": "identity", "X-Session-API-Key": session_api_key}


def head_of(status: int, sent: Iterable[tuple[bytes, bytes]]) -> Head:
    """The head that a client gets of an agent server's response.

    Raises AgentUnreachable of a redirect, which nobody follows: it could lead anywhere. And of a 401: the agent server
    has refused this server's key, and the client's is good.
    """
    if (300 <= status < 400 and status != 304) or status < 200:
        raise AgentUnreachable(f"The agent server answered {status}: a redirect of a sandbox is not followed")
    if status == 401:
        raise AgentUnreachable("The agent server refuses the key of its sandbox")
    headers, disposition = [], ""
    for raw_name, raw_value in sent:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        if name in _RESPONSE_HEADERS and _VALUE.fullmatch(value):
            if name == "content-disposition":
                disposition = value
            else:
                headers.append((name.title(), value))
    kind = dict(headers).get("Content-Type", "").partition(";")[0].strip().lower()
    if disposition or kind != "application/json":  # a browser saves it, whatever its type
        _, separator, parameters = disposition.partition(";")
        headers.append(("Content-Disposition", f"attachment{separator}{parameters}"))
    headers += [("Content-Security-Policy", _POLICY), ("X-Content-Type-Options", "nosniff")]
    return Head(status, headers)
