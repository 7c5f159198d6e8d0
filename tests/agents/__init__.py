"""A scripted agent server, on real sockets, and a sandbox that it serves."""

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import httpx

from agents.client import AgentServer, http_client
from core import wire
from settings.specs import Specs
from store import Store
from store.approvals.deliveries import Claim
from store.sandboxes.sandboxes import Sandbox
from tests.conftest import action, as_events, event, status
from tests.quick import serve

#: those that come with the server
SPECS = Specs.load("")

#: the due index of all deliveries. Source: `store/keys.py`
DUE = "{sandboxes}:deliveries"


@functools.cache
def agent_client(seconds: float) -> httpx.Client:
    """The client of agent servers that all tests of a process share, and that ends with the process."""
    return http_client(seconds)


def lease_key(sandbox_id: str) -> str:
    """The lease of a sandbox's agent."""
    return f"{{sandboxes}}:agent:{sandbox_id}"


def closing(one: dict) -> bool:
    return one["kind"] in ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


class ScriptedAgentServer(ThreadingHTTPServer):
    """Responds as the test sets and keeps the requests. A status of 0 closes the connection without a response.

    A conversation that has a log here has its own status too, and ends what is unfinished when it is told to reject.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), ScriptedAgentHandler)
        self.requests: list[tuple[str, object]] = []
        self.keys: set[str] = set()
        self.traceparents: list[str | None] = []  #: of each request
        self.statuses: list[int] = []  #: statuses of the next responses; 200 when the list is empty
        self.state = {"execution_status": "waiting_for_confirmation"}
        self.detail: object = "as scripted"  #: of error responses
        self.latest = ""
        self.logs: dict[str, list[dict]] = {}  #: conversation → the agent's own log of it
        self.reported: dict[str, str] = {}  #: conversation → status
        self.forgotten: set[str] = set()  #: conversations that are 404 until they are started
        self.broken: dict[str, int] = defaultdict(int)  #: conversation → status of every response about it
        self.replies: dict[str, object] = {}  #: end of a path → the reply, whatever the logs have
        self.status_of: Callable[[str], int] = lambda _path: 200  #: of a path, where nothing else sets it
        self.on_request: Callable[[str], None] = lambda _path: None  #: called before the response
        serve(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def posted(self, end: str) -> list[object]:
        return [body for path, body in self.requests if path.startswith("POST") and path.endswith(end)]

    @property
    def decisions(self) -> list[object]:
        return self.posted("/respond_to_confirmation")

    def count(self, end: str) -> int:
        """How many requests had a path of that end."""
        return sum(path.endswith(end) for path, _ in self.requests)

    def server(self) -> AgentServer:
        return AgentServer(agent_client(5), self.url, "key")

    def page(self, conversation: str, query: dict[str, str]) -> dict:
        log = [one for one in self.logs[conversation] if query.get("kind") in (None, one["kind"])]
        if query.get("sort_order") == "TIMESTAMP_DESC":
            log.reverse()
        places = {one["id"]: place for place, one in enumerate(log)}
        first, limit = places.get(query.get("page_id"), 0), int(query["limit"])
        following = log[first + limit]["id"] if len(log) > first + limit else None
        return {"items": log[first : first + limit], "next_page_id": following}

    def lacks(self, path: str, conversation: str) -> bool:
        """Whether a path names an event that the log of its conversation does not have."""
        _, found, event_id = path.partition("/events/")
        verbs = ("search", "count", "respond_to_confirmation")
        log = self.logs.get(conversation)
        return bool(found) and event_id not in verbs and log is not None and event_id not in [one["id"] for one in log]

    def reject(self, conversation: str, reason: str) -> None:
        ended = {one.get("action_id") or one.get("tool_call_id") for one in self.logs[conversation] if closing(one)}
        for one in list(self.logs[conversation]):
            if one["kind"] == "ActionEvent" and not {one["id"], one["tool_call_id"]} & ended:
                members = {"action_id": one["id"], "tool_name": "terminal", "rejection_reason": reason}
                self.logs[conversation].append(event("UserRejectObservation", "environment", **members))
        if self.reported.get(conversation) == "waiting_for_confirmation":
            self.reported[conversation] = "idle"

    def handle_error(self, request, client_address):
        """Ignore a client that hangs up during a request: tests provoke it."""


class ScriptedAgentHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path, _, asked = self.path.partition("?")
        query = dict(parse_qsl(asked))
        conversation = (path.split("/") + [""] * 4)[3]
        self.server.requests.append((f"{self.command} {path}", body))
        self.server.keys.add(self.headers["X-Session-API-Key"])
        self.server.traceparents.append(self.headers["traceparent"])
        self.server.on_request(path)
        usual = self.server.broken.get(conversation, self.server.status_of(path))
        code = self.server.statuses.pop(0) if self.server.statuses else usual
        if conversation in self.server.forgotten or self.server.lacks(path, conversation):
            code = 404
        if path == "/api/conversations":
            self.server.forgotten.discard(body["conversation_id"])
        if not code:
            self.close_connection = True
            return
        reply = {"detail": self.server.detail} if code >= 400 else self.reply(path, query, conversation, body)
        raw = json.dumps(reply).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_POST = do_PATCH = do_DELETE = do_GET

    def reply(self, path, query, conversation, body):
        agent = self.server
        for end, set_reply in agent.replies.items():
            if path.endswith(end):
                return set_reply
        if conversation not in agent.logs:
            return {"items": [{"id": agent.latest}]} if path.endswith("/events/search") else agent.state
        if path.endswith("/events/search"):
            return agent.page(conversation, query)
        if path.endswith("/events/count"):
            return len(agent.logs[conversation])
        if path.endswith("/respond_to_confirmation") and not body["accept"]:
            agent.reject(conversation, body["reason"])
        return {"execution_status": agent.reported.get(conversation, "idle")}

    def log_message(self, *args):
        pass


@contextmanager
def scripted_agent() -> Iterator[ScriptedAgentServer]:
    agent = ScriptedAgentServer()
    try:
        yield agent
    finally:
        agent.shutdown()
        agent.server_close()


@contextmanager
def running_sandbox(store: Store, url: str, *, owner: str = "") -> Iterator[Sandbox]:
    """A sandbox that its supervisor reported as RUNNING, with the agent of that URL in it. owner: who started it."""
    store.sandboxes.beat("scripted", "supervisor")
    store.events._redis.zadd("{sandboxes}:hosts", {"scripted": wire.now() + 3_600_000_000})  # however slow the machine
    sandbox = store.sandboxes.start("reference-agent", owner=owner)
    while store.sandboxes.get(sandbox.id).host != "scripted":
        assert store.sandboxes.claim("scripted")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=url, urls=[], handle={})
    try:
        yield store.sandboxes.get(sandbox.id)
    finally:
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", "GONE")


def propose(store: Store, conversation: str, sandbox_id: str) -> dict:
    """Have the agent of a conversation wait for a decision about one action, which it returns."""
    proposed = action("uname")
    store.conversations.create(conversation, sandbox_id=sandbox_id, app={})
    batch = as_events([status("running"), proposed, status("waiting_for_confirmation")])
    store.events.append(conversation, batch, sandbox_id=sandbox_id)
    return proposed


def end_leases(store: Store, conversation: str) -> None:
    """End the leases of a conversation's deliveries, as if their time were over."""
    redis = store.events._redis
    for entry in redis.zrange(DUE, 0, -1):
        _, of, sandbox_id = entry.decode().split(" ")
        if of == conversation:
            redis.delete(lease_key(sandbox_id))
            redis.zadd(DUE, {entry: 0})


def claimed(store: Store, conversation: str, seconds: float = 30.0) -> Claim | None:
    """The claim of a conversation's delivery, if one is due; those of others are due again at once."""
    others = []
    while (claim := store.approvals.deliveries.claim(seconds)) is not None and claim.conversation_id != conversation:
        others.append(claim)
    for other in others:
        store.approvals.deliveries.close(other, again_in=0)
    return claim
