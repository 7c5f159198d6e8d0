"""Calls of clients that a sandbox's agent server handles: the sandbox, the allowed headers, and the exchange.

Guarantee: this process buffers only a few chunks of a body, because it reads each side only as fast as the other side
reads. A call lasts while bytes move. It ends after SILENCE seconds without bytes, and when its client or the agent
server disconnects.

Guarantee: only the paths, queries and headers listed here are forwarded. No key, no cookie, no header of a proxy and no
hop-by-hop header reaches a sandbox. An agent server cannot give a browser a cookie, a permission or a page on this
server's origin.

A client may name any absolute folder as the `working_dir` of a conversation, such as one of its own host. The sandbox
uses another folder for it (`ConversationFolder`), and paths in the requested folder are mapped to the sandbox's folder.
"""

import json
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import httpx

from agents.client import MOST_BYTES, AgentUnreachable, ResponseTooLong
from agents.inquiries import NO_ROUTE, RouteLacking, seen_folder
from agents.waking import wake
from core.cuts import beginning
from core.filenames import from_text
from core.masking import Mask, TextTooLong
from core.pauses import take_turns
from core.refused import RefusalKind, Refused
from core.wire import ConversationId, InvalidJson, one_line, parse_json
from net.connections import pulse
from net.transport import Transport
from store import Store
from store.conversations.conversations import app_filter
from store.errors import UNAVAILABLE, KeyUnreadable
from store.sandboxes.sandboxes import SandboxId
from telemetry import traces

#: Maximum time without a byte, in seconds: a command may be silent for that long. The SDK waits as long.
SILENCE = 600.0

#: Timeouts in seconds: of a connection, and of a call that waits for a free slot.
_CONNECT, _ROOM = 2.0, 2.0

#: Maximum number of calls that a process forwards at once.
_MOST = 100

#: Interval in seconds between two updates of a sandbox's last use during a call.
_USE = 10.0


_NAMES = (
    "call /api/conversations/ID/…, or give the conversation as ?cid=ID, or show the sandbox's session_api_key as "
    "X-Session-API-Key"
)

#: Maximum size in bytes of a refusal that is parsed, and of a response with a URL.
_LONGEST_REFUSAL = 4096

#: URLs that a browser opens as a page of another server.
_WEB_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)

#: A path without an id: if it is not found, its route is missing.
_NAMED = re.compile(r"/api/[a-z_/]+")

#: A segment of a path below a service. It cannot be `.` or `..`, or contain a separator or its escape.
_STEP = r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,127}"

#: A path below a service: at most eight segments, and an optional slash at the end.
PATH = re.compile(rf"{_STEP}(?:/{_STEP}){{0,7}}/?", re.ASCII)

#: Headers of a request that an agent server gets.
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

#: Headers of a response that a client gets. The headers of an archive describe its source.
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

#: Headers about the exact bytes of a body.
_OF_THE_BYTES = frozenset({"Accept-Ranges", "Content-Length", "Content-Range", "Etag", "Last-Modified"})

#: Query names that are for this server only, or would be a key. Compared case-insensitively.
_OURS = frozenset({"cid", "session_api_key", "x-session-api-key", "authorization", "ticket"})

#: Query names whose values are paths in a sandbox.
QUERY_PATHS = frozenset({"path", "workspace_dir"})

#: Policy of a response that a browser opens on this server's origin: everything is forbidden.
_POLICY = "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

#: Members of a JSON body that are paths.
_BODY_PATHS = ("cwd", "path")

#: Maximum number of conversations whose folder is read.
_MOST_FOLDERS = 100

#: Folders of every machine, which a client never means as its own.
_OF_THE_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")


class Detached(Refused):
    """The conversation has no sandbox, so no agent server can answer."""

    kind = RefusalKind.CONFLICT
    words = (
        "The conversation has no sandbox: only one that was started with an agent can do this. "
        "POST /api/v1/app-conversations starts one"
    )


class SandboxNotNamed(Refused):
    """The call names no sandbox, and the key does not have exactly one running sandbox."""

    kind = RefusalKind.CONFLICT

    def __init__(self, *, several: bool) -> None:
        #: for the status line: the published SDK only shows that
        which = "several of your sandboxes run" if several else "no sandbox of yours runs"
        self.phrase = f"{which}: start a conversation with this program first"
        super().__init__(
            "Several sandboxes that you started run, this program started none of them from this address, and this "
            f"call could mean more than one: start a conversation with this program first, {_NAMES}, or give a "
            "`cwd` or `path` in the working folder of one alone"
            if several
            else f"No sandbox that you started runs: start a conversation with this key first, or name one: {_NAMES}"
        )


class TooManyForwarded(Refused):
    """The process is forwarding the maximum number of calls."""

    kind = RefusalKind.LATER
    words = f"Limit of {_MOST} forwarded calls reached: try again shortly"


class ClientGone(Exception):
    """Raised if the client has disconnected."""


class ForwardedCall(NamedTuple):
    """A client's call of an agent server."""

    method: str
    path: str  #: at the agent server
    query: bytes  #: as received
    header: Callable[[str], str | None]  #: returns the value of a header; None if it is missing
    #: A function makes it after the sandbox has started, when its folder is known.
    content: bytes | Iterator[bytes] | Callable[[], bytes | None] | None = None
    length: int | None = None  #: of an iterator; None: unknown
    mapped: Callable[[str], str] = str  #: maps a path of the client to the sandbox
    require_client: Callable[[], None] = lambda: None  #: raises ClientGone


class Forwarding:
    """Forwards calls. Thread-safe."""

    def __init__(self, store: Store, *, wake_seconds: float, silence: float = SILENCE) -> None:
        """wake_seconds: maximum wait for a paused or starting sandbox. silence: in seconds."""
        self._store = store
        self._wake_seconds = wake_seconds
        self._silence = silence
        # A kept connection could end during a request, and nobody would know whether the request arrived.
        limits = httpx.Limits(max_connections=_MOST, max_keepalive_connections=0)
        timeout = httpx.Timeout(silence, connect=_CONNECT, pool=_ROOM)
        self._client = httpx.Client(timeout=timeout, transport=Transport(limits), trust_env=False)

    def sandbox_of(self, conversation_id: ConversationId) -> SandboxId:
        """Return the sandbox of a conversation. Raises ConversationNotFound, Detached."""
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            raise Detached
        return SandboxId(sandbox_id)

    def own_sandbox(
        self,
        owner: str,
        paths: Callable[[], Iterable[str]],
        workspace: Callable[[], SandboxId | None] = lambda: None,
        client: str = "",
    ) -> SandboxId:
        """Return the sandbox of a call that names none. It is always one that the caller's key started.

        owner: id of the key. paths: reads the paths of the call, which decide between several running sandboxes, and
        whether a paused one is meant. workspace: returns the key's workspace sandbox if no sandbox matches, or None.
        client: address and program of the caller; among ambiguous sandboxes, the one of its latest conversation is
        meant. Raises SandboxNotNamed, and the errors of the functions.
        """
        running, paused = self._store.sandboxes.owned_by(owner)
        found = running
        if len(running) > 1 or paused:
            asked = list(paths())
            named = [
                one for one in (*running, *paused) if asked and ConversationFolder.any_has(self._store, one, asked)
            ]
            found = named or running
        if not found and (started := workspace()):
            return started
        if len(found) == 1:
            return found[0]
        last = self._last_started(found, owner, client) if found and client else None
        if last is None:
            raise SandboxNotNamed(several=bool(found))
        return last

    def _last_started(self, sandboxes: Iterable[SandboxId], owner: str, client: str) -> SandboxId | None:
        """Return the sandbox in which a client last started a conversation with the key; None if there is none."""
        starts = [
            (state["created_at"], sandbox_id)
            for sandbox_id in sandboxes
            for state in _newest_in(self._store, sandbox_id)
            if (state["app"].get("started_from"), state["app"].get("started_by")) == (client, owner)
        ]
        return max(starts)[1] if starts else None

    def awake(self, sandbox_id: SandboxId, *, wakes: bool = True) -> tuple[str, str]:
        """Return URL and key of a sandbox's agent server. wakes: resume a paused sandbox.

        Raises NotReachable, TooManySandboxes, AgentUnreachable.
        """
        sandbox = wake(self._store, sandbox_id, self._wake_seconds if wakes else 0)
        try:
            return sandbox.agent_url, sandbox.session_api_key
        except KeyUnreadable as error:
            raise AgentUnreachable(str(error)) from None

    def open(self, sandbox_id: SandboxId, call: ForwardedCall) -> "ForwardedResponse":
        """Send a call, and return the response after its head. A paused sandbox is resumed first.

        Raises NotReachable, TooManySandboxes, AgentUnreachable, TooManyForwarded, ClientGone, and the errors of the
        content.
        """
        agent_url, session_api_key = self.awake(sandbox_id)
        headers = headers_of(call.header, session_api_key)
        if call.length is not None:
            headers["Content-Length"] = str(call.length)
        content = call.content() if callable(call.content) else call.content
        query = query_of(call.query, call.mapped)
        url = agent_url + call.path + (f"?{query}" if query else "")
        beat = _Beat(self._store, sandbox_id, call.require_client)
        try:
            with pulse(beat), traces.call(call.method) as carried:
                request = self._client.build_request(call.method, url, headers={**headers, **carried}, content=content)
                response = self._client.send(request, stream=True)
        except httpx.PoolTimeout:
            raise TooManyForwarded from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise AgentUnreachable(_reason(error, self._silence)) from error
        return ForwardedResponse(response, beat, self._silence)


class ForwardedResponse:
    """The response of an agent server; iterate over its body, then close it.

    A class, because a generator that never started is not closed.
    """

    def __init__(self, response: httpx.Response, beat: "_Beat", silence: float) -> None:
        """Raises AgentUnreachable for a response that no client gets."""
        self._response, self._beat, self._silence = response, beat, silence
        self._pieces: Iterator[bytes] = response.iter_raw()
        try:
            self.status, self.headers = head_of(response.status_code, response.headers.raw)
        except AgentUnreachable:
            response.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return a chunk of the body. Raises AgentUnreachable, so that the client sees a broken response."""
        self._beat.note_use()
        take_turns()  # one read may contain thousands of small chunks
        try:
            with pulse(self._beat):
                return next(self._pieces)
        except httpx.TransportError as error:
            raise AgentUnreachable(_reason(error, self._silence)) from error
        except TextTooLong:
            raise ResponseTooLong from None

    def require_route(self, path: str) -> None:
        """Raise RouteLacking if the agent server does not serve the path."""
        length = dict(self.headers).get("Content-Length", "")
        if self.status in NO_ROUTE and length.isdigit() and int(length) <= _LONGEST_REFUSAL:
            try:
                raw = b"".join(self)
                if _is_no_route(self.status, path, raw):
                    raise RouteLacking(self.status, path, keeps_status=True)
            except (AgentUnreachable, RouteLacking):
                self.close()
                raise
            self._pieces = iter([raw])

    def require_web_url(self) -> None:
        """Read a body `{"url": …}`, whose URL a client opens in a browser: `javascript:` would run in its page.

        Raises AgentUnreachable unless it is null or a URL of http or https.
        """
        if self.status != HTTPStatus.OK:
            return
        raw = b""
        for piece in self:
            raw += piece
            if len(raw) > _LONGEST_REFUSAL:
                break
        try:
            body = parse_json(raw)
        except InvalidJson:
            body = None
        url = body.get("url", 0) if isinstance(body, dict) else 0
        if url is not None and not (isinstance(url, str) and _WEB_URL.fullmatch(url)):
            self.close()
            raise AgentUnreachable('The agent server\'s "url" is neither null nor a URL of http or https')
        self._pieces = iter([json.dumps({"url": url}).encode()])
        self.headers = [(name, value) for name, value in self.headers if name not in _OF_THE_BYTES]

    def mask(self, mask: Mask) -> None:
        """Mask the texts of a JSON body while it is read. Other bodies are unchanged.

        Raises AgentUnreachable for an unrequested encoding.
        """
        kept = dict(self.headers)
        kind = kept.get("Content-Type", "").partition(";")[0].strip().lower()
        if not mask or kind != "application/json":
            return
        if kept.get("Content-Encoding", "identity") != "identity":
            raise AgentUnreachable("The agent server's response has an unrequested encoding")
        self.headers = [(name, value) for name, value in self.headers if name not in _OF_THE_BYTES]
        self._pieces = mask.json(self._pieces, MOST_BYTES)

    def close(self) -> None:
        """End the exchange, even before the end of the body."""
        self._response.close()


def _is_no_route(status: int, path: str, raw: bytes) -> bool:
    """Return whether a refusal is about the route. FastAPI also says `Not Found` for a missing object of a route."""
    try:
        body = parse_json(raw)
    except InvalidJson:
        return False
    detail = body.get("detail") if isinstance(body, dict) else None
    if status == 405:
        return True
    return isinstance(detail, str) and (
        " does not serve " in detail or (detail == "Not Found" and _NAMED.fullmatch(path) is not None)
    )


class _Beat:
    """Runs while a call waits: checks that its client is connected, and updates the sandbox's last use."""

    def __init__(self, store: Store, sandbox_id: SandboxId, require_client: Callable[[], None]) -> None:
        self._store, self._sandbox_id, self._require_client = store, sandbox_id, require_client
        self._used_at = time.monotonic()

    def __call__(self) -> None:
        self._require_client()
        self.note_use()

    def note_use(self) -> None:
        if time.monotonic() - self._used_at > _USE:
            self._used_at = time.monotonic()
            with suppress(*UNAVAILABLE):
                self._store.sandboxes.use(self._sandbox_id)


def _reason(error: Exception, silence: float) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"The agent server did not take a connection within {_CONNECT:g} s"
    if isinstance(error, httpx.TimeoutException):
        return f"The agent server was silent for {silence:g} s"
    return f"The agent server does not answer: {beginning(one_line(str(error)), 500) or type(error).__name__}"


class ForwardedHead(NamedTuple):
    """The head of a response as a client gets it."""

    status: int
    headers: list[tuple[str, str]]


def pairs_of(raw: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a client's query. Paths are file names; other bytes become surrogates."""
    pairs = parse_qsl(raw.decode(errors="surrogateescape"), keep_blank_values=True, errors="surrogateescape")
    return [(name, from_text(value) if name in QUERY_PATHS else value) for name, value in pairs]


def query_of(raw: bytes, mapped: Callable[[str], str]) -> str:
    """Return the query for an agent server. mapped: maps a path of the client to the sandbox."""
    kept = [
        (name, mapped(value) if name in QUERY_PATHS else value)
        for name, value in pairs_of(raw)
        if name.lower() not in _OURS
    ]
    return urlencode(kept, errors="surrogateescape")


def headers_of(sent: Callable[[str], str | None], session_api_key: str) -> dict[str, str]:
    """Return the headers for an agent server. sent: returns the value of a client's header; None if it is missing."""
    kept = {name: value for name in _REQUEST_HEADERS if (value := sent(name)) is not None}
    return {"Accept": "*/*", **kept, "Accept-Encoding": "identity", "X-Session-API-Key": session_api_key}


def head_of(status: int, sent: Iterable[tuple[bytes, bytes]]) -> ForwardedHead:
    """Return the head of an agent server's response for a client.

    Raises AgentUnreachable for a redirect, which could lead anywhere, and for a 401, by which the agent server refuses
    this server's key.
    """
    if (300 <= status < 400 and status != 304) or status < 200:
        raise AgentUnreachable(f"The agent server answered {status}: a redirect of a sandbox is not followed")
    if status == 401:
        raise AgentUnreachable("The agent server refuses the key of its sandbox")
    shown = [(name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, value in sent]
    # With a transfer coding a length is meaningless, and would frame the client's connection: RFC 9112, 6.3. A 204 has
    # no body, and no length: RFC 9110, 8.6.
    dropped = {"content-length"} if status == 204 or "transfer-encoding" in dict(shown) else set()
    headers, disposition = [], ""
    for name, value in shown:
        if name in _RESPONSE_HEADERS - dropped and _VALUE.fullmatch(value):
            if name == "content-disposition":
                disposition = value
            else:
                headers.append((name.title(), value))
    kind = dict(headers).get("Content-Type", "").partition(";")[0].strip().lower()
    if disposition or kind != "application/json":  # a browser saves it, whatever its type
        _, separator, parameters = disposition.partition(";")
        headers.append(("Content-Disposition", f"attachment{separator}{parameters}"))
    headers += [("Content-Security-Policy", _POLICY), ("X-Content-Type-Options", "nosniff")]
    return ForwardedHead(status, headers)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders, or inside one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _newest_in(store: Store, sandbox_id: SandboxId) -> list[dict[str, Any]]:
    """Return the states of a sandbox's newest conversations, at most _MOST_FOLDERS."""
    filters = app_filter(sandbox_id=sandbox_id, with_children=True)
    states, _ = store.conversations.in_sandboxes.search(
        filters, by="created", descending=True, limit=_MOST_FOLDERS, start=None
    )
    return list(states)


class ConversationFolder(NamedTuple):
    """The folder of a conversation, as the client requested it and in the sandbox. Absolute paths, empty if unknown.

    whole: a workspace sandbox whose client has not requested a folder yet. Every path of the client is mapped into the
    real folder, where its conversation finds it.
    """

    asked: str = ""
    real: str = ""
    whole: bool = False

    @classmethod
    def of(cls, state: dict[str, Any]) -> "ConversationFolder":
        """Return the folder of an app conversation. state: with its sandbox."""
        both = state["info"].get("asked_dir"), seen_folder(state)
        asked, real = (path if isinstance(path, str) and path.startswith("/") else "" for path in both)
        return cls(asked, real)

    @classmethod
    def in_sandbox(cls, store: Store, sandbox_id: SandboxId, owner: str = "") -> "ConversationFolder":
        """Return the common folder of all conversations in a sandbox; an unknown folder if they differ.

        owner: id of the key whose workspace sandbox it may be.
        """
        folders = cls._all_in(store, sandbox_id)
        if owner and not folders:
            sandbox = store.sandboxes.get(sandbox_id)
            if sandbox.adopted or store.sandboxes.workspaces.known(owner) == sandbox_id:
                return cls(real=sandbox.working_dir, whole=True)
        return folders.pop() if len(folders) == 1 else cls()

    @classmethod
    def any_has(cls, store: Store, sandbox_id: SandboxId, paths: Iterable[str]) -> bool:
        """Return whether a client's path is in the folder of a conversation in the sandbox."""
        folders = cls._all_in(store, sandbox_id)
        return any(folder.has(path) for folder in folders for path in paths)

    @classmethod
    def _all_in(cls, store: Store, sandbox_id: SandboxId) -> set["ConversationFolder"]:
        return set(map(cls.of, _newest_in(store, sandbox_id)))

    def mapped(self, path: str) -> str:
        """Map a path of a client to the sandbox."""
        asked, real = self.asked.rstrip("/"), self.real.rstrip("/")
        if self.whole and real and path.startswith("/") and not _is_in(path, (real, *_OF_THE_SYSTEM)):
            return real + path
        if asked and self.real and (path == asked or path.startswith(f"{asked}/")):
            return self.real.rstrip("/") + path[len(asked) :] or "/"
        return path

    def has(self, path: str) -> bool:
        """Return whether a client's path is in the folder, by its text. Links are not resolved."""
        real = self.real.rstrip("/")
        return bool(real) and f"{posixpath.normpath(self.mapped(path))}/".startswith(f"{real}/")

    @staticmethod
    def paths_of(raw: bytes) -> list[str]:
        """Return the paths in a client's JSON body; empty if it is not an object."""
        try:
            body = parse_json(raw)
        except InvalidJson:
            return []
        return [body[name] for name in _BODY_PATHS if isinstance(body.get(name), str)] if isinstance(body, dict) else []

    def mapped_json(self, raw: bytes, *, is_command: bool) -> bytes:
        """Map the paths in a JSON object. Other bodies are unchanged. A command without a `cwd` runs in the folder."""
        try:
            body = parse_json(raw)
        except InvalidJson:
            return raw
        if not isinstance(body, dict):
            return raw
        changed = {name: self.mapped(body[name]) for name in _BODY_PATHS if isinstance(body.get(name), str)}
        if is_command and self.real and body.get("cwd") is None:
            changed["cwd"] = self.real
        if all(body.get(name) == value for name, value in changed.items()):
            return raw
        return json.dumps(body | changed).encode()
