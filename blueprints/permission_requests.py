"""Permission requests of agents in terminals, and the hooks by which published agents send them.

Both need the scope `ask`. A key opens, awaits and closes only its own requests. Source: docs/approvals.md, "Terminals".
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from flask import Response, g, jsonify, request, url_for
from marshmallow import ValidationError
from werkzeug.exceptions import NotFound

from agents.asking import Asking, HookSession, ToolCall, check_hook
from agents.forwarding import ClientGone
from blueprints import current_actor, current_server
from blueprints.api import Blueprint, InvalidInput, needs
from blueprints.following import client_of
from core.hooks import Adapter, Heard, HookRefused
from core.hooks.claude import CLAUDE, QWEN
from core.hooks.copilot import COPILOT
from core.wire import as_unicode
from schemas.fields import FieldFault
from schemas.permission_requests import (
    HookAnswer,
    HookEvent,
    HookQuery,
    PermissionOutcome,
    PermissionOutcomeOfCall,
    PermissionReport,
    PermissionRequest,
    PermissionRequestState,
    PermissionWait,
    check_call,
    read_asking,
)
from store.errors import UNAVAILABLE, StoreError

permission_requests = Blueprint("Permission Requests", __name__, url_prefix="/api/v1/permission-requests")
hooks = Blueprint("Hooks", __name__, url_prefix="/api/v1/hooks")

_ADAPTERS = {"claude": CLAUDE, "qwen": QWEN, "copilot": COPILOT}

#: Lease of a hook's request, and interval between two line feeds before its answer, in seconds.
_LEASE, _DRIP = 20, 3.0

#: State of a hook's request that can no longer be answered.
_LEFT = {"state": "withdrawn"}

#: Delay in seconds before a retry after the store was unavailable.
_AWAY_SECONDS = 0.5


def _asking() -> Asking:
    """Return the requests of the caller. Raises HookTooOld."""
    check_hook(request.user_agent.string)
    return Asking(current_server().store, g.principal.owner, current_actor())


@permission_requests.post("")
@needs("ask")
@permission_requests.replay(remade=True)
@permission_requests.fails(409, 429)
@permission_requests.arguments(PermissionRequest())
@permission_requests.response(201, PermissionRequestState)
def open_permission_request(wanted: dict[str, Any]) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Ask for permission for a call of an agent in a terminal. Rules decide at once.

    Then poll it with `GET`: a request that nobody polls is withdrawn.
    """
    ask = {"kind": wanted["kind"], "order": wanted["order"]}
    ask |= {"lease": wanted["lease_seconds"], "patience": wanted["expires_in"]}
    call = ToolCall(wanted["tool_name"], wanted["arguments"], wanted["complete"])
    found = _asking().open(_session(wanted), call, ask)
    return found.shown, 201, {"Location": url_for(".get_permission_request", request_id=found.id)}


@permission_requests.get("/<request_id>")
@needs("ask")
@permission_requests.fails(409, 429)
@permission_requests.arguments(PermissionWait(), location="query")
@permission_requests.response(200, PermissionRequestState)
def get_permission_request(query: dict[str, float], request_id: str) -> dict[str, Any]:
    """Wait for the answer to a request of the caller's key, and renew its lease."""
    asking = _asking()
    if not query["wait"]:
        return asking.look(request_id).shown
    ended = threading.Event()
    require_client = client_of(request.environ.get("gunicorn.socket"))

    def check() -> None:
        require_client()
        if ended.is_set():
            raise ClientGone("The key of the request was revoked or has expired")

    with current_server().guard.following.going_on(g.principal, ended.set):
        return asking.wait(request_id, query["wait"], check).shown


@permission_requests.post("/<request_id>/outcome")
@needs("ask")
@permission_requests.fails(409)
@permission_requests.arguments(PermissionOutcome())
@permission_requests.response(200, PermissionRequestState)
def tell_permission_outcome(told: dict[str, Any], request_id: str) -> dict[str, Any]:
    """Report the outcome of a request at its terminal; 409 names who answered before."""
    asking = _asking()
    return asking.tell(asking.look(request_id, renews=False), told["outcome"]).shown


@permission_requests.post("/outcomes")
@needs("ask")
@permission_requests.fails(404, 409, 429)
@permission_requests.arguments(PermissionOutcomeOfCall())
@permission_requests.response(200, PermissionRequestState)
def tell_outcome_of_call(told: dict[str, Any]) -> dict[str, Any]:
    """Report the outcome of a call without a request's id: of its oldest pending, else newest allowed request."""
    call = ToolCall(told["tool_name"], told["arguments"])
    return _asking().tell_of_call(_session(told), call, told["outcome"]).shown


@permission_requests.post("/reports")
@needs("ask")
@permission_requests.fails(409, 429)
@permission_requests.arguments(PermissionReport())
@permission_requests.response(204)
def report_of_agent(told: dict[str, Any]) -> Response:
    """Report a prompt, a finished call, or the end of a turn or a session.

    Each becomes an event of the conversation.
    """
    heard = Heard(
        told["kind"],
        tool_name=told["tool_name"],
        arguments=told["arguments"] or {},
        text=told["text"],
        result=told["result"],
        is_error=told["is_error"],
    )
    _report(_asking(), _session(told), heard)
    return Response(status=204)


def _session(told: Mapping[str, Any]) -> HookSession:
    return HookSession.of(told["agent"], told["session"])


def _report(asking: Asking, session: HookSession, heard: Heard) -> None:
    match heard.kind:
        case "prompt":
            asking.report_prompt(session, heard.text)
        case "call":
            call = ToolCall(heard.tool_name, heard.arguments)
            asking.report_call(session, call, heard.result, is_error=heard.is_error)
        case "turn":
            asking.report_turn(session)
        case "end":
            asking.report_end(session)


@hooks.post("/<agent>")
@needs("ask")
@hooks.replay(has_key=True)
@hooks.fails(409, 429)
@hooks.doc(
    parameters=[
        {"in": "header", "name": name, "schema": {"type": "string"}, "description": description}
        for name, description in (
            ("X-Agent-Host", "Name of the machine. Absent: the address from which the hook asks."),
            ("X-Agent-User", "User on the machine. Absent: unknown."),
            ("X-Agent-Version", "Version of the agent."),
        )
    ]
)
@hooks.arguments(HookQuery(), location="query")
@hooks.arguments(HookEvent())
@hooks.response(
    200,
    HookAnswer,
    description="The agent's own form, preceded by a line feed every few seconds; `{}` means no decision",
)
def take_hook_event(query: dict[str, Any], event: dict[str, Any], agent: str) -> Response:
    """Take an event of an agent's hook, and answer in the agent's format. Agents: claude, qwen, copilot."""
    adapter, event = _ADAPTERS.get(agent), as_unicode(event)
    if adapter is None:
        raise NotFound(f"No hooks of {agent} are known: POST /api/v1/hooks/ takes {', '.join(_ADAPTERS)}")
    try:
        heard = adapter.read(event)
    except HookRefused as fault:
        raise InvalidInput("body", [FieldFault(str(fault), "value_error")]) from None
    if heard.kind == "nothing":
        return jsonify({})
    if heard.tool_name:
        _check_call(heard)
    asking, session = _asking(), _session_of_hook(adapter, heard)
    if heard.kind not in ("permission", "gate"):
        _report(asking, session, heard)
        return jsonify({})
    patience = query["patience"] or adapter.patience
    ask = {"kind": heard.kind, "order": adapter.order, "lease": _LEASE, "patience": patience}
    found = asking.open(session, ToolCall(heard.tool_name, heard.arguments), ask)
    if found.state != "pending":
        return jsonify(adapter.answer(event, found.shown))
    body = _Awaited(asking, found.id, lambda shown: json.dumps(adapter.answer(event, shown)).encode())
    return Response(body, mimetype="application/json", headers={"X-Accel-Buffering": "no"})


def _session_of_hook(adapter: Adapter, heard: Heard) -> HookSession:
    """Return the session of a hook's event. Raises InvalidInput."""
    address = (request.remote_addr or "").replace(":", "-").strip("-") or "unknown"
    session = {"id": heard.session, "cwd": heard.cwd, "mode": heard.mode, "subagent": heard.subagent or None}
    named = {"host": request.headers.get("X-Agent-Host") or address}
    named |= {"user": user} if (user := request.headers.get("X-Agent-User")) else {}
    version = request.headers.get("X-Agent-Version", "")
    agent = {"name": adapter.agent, "version": version, "can_edit": adapter.can_edit}
    try:
        return HookSession.of(*read_asking(agent, {**session, **named}))
    except ValidationError as fault:
        found = fault.normalized_messages()
        if of_headers := {f"X-Agent-{name.title()}": found[name] for name in named if name in found}:
            raise InvalidInput("header", of_headers) from None
        raise InvalidInput("body", found) from None


def _check_call(heard: Heard) -> None:
    """Raises InvalidInput."""
    try:
        check_call(heard.tool_name, heard.arguments)
    except ValidationError as fault:
        raise InvalidInput("body", fault.normalized_messages()) from None


class _Awaited:
    """The body of a hook's response: line feeds while its request is pending, then the answer.

    A request that can no longer be answered gets the answer of a withdrawn one: a gate stays closed. If a write shows
    that the client has disconnected, the server closes the body, which withdraws the request.
    """

    def __init__(self, asking: Asking, request_id: str, answer: Callable[[Mapping[str, Any]], bytes]) -> None:
        """Count the request as long-lived. Raises TooManyFollowersOfKey."""
        self._asking = asking
        self._id = request_id
        self._answer = answer
        self._is_over = self._is_revoked = False
        self._require_client = client_of(request.environ.get("gunicorn.socket"))
        self._done = current_server().guard.following.begin(g.principal, self._revoke)
        self._body = self._chunks()

    def __iter__(self) -> Iterator[bytes]:
        return self._body

    def close(self) -> None:
        done, self._done = self._done, lambda: None  # a server may close a response twice
        done()
        if not self._is_over:
            self._is_over = True
            with suppress(StoreError, *UNAVAILABLE):  # decided meanwhile; otherwise its lease expires
                self._asking.tell(self._asking.look(self._id, renews=False), "withdrawn")

    def _revoke(self) -> None:
        self._is_revoked = True

    def _check(self) -> None:
        self._require_client()
        if self._is_revoked:
            raise ClientGone("The key was revoked or has expired")

    def _chunks(self) -> Iterator[bytes]:
        yield b"\n"
        while True:
            try:
                self._check()
                found = self._asking.wait(self._id, _DRIP, self._check)
            except ClientGone:
                if self._is_revoked:
                    yield self._answer(_LEFT)
                return
            except UNAVAILABLE:
                found = None
                time.sleep(_AWAY_SECONDS)
            except StoreError:  # the conversation was deleted
                break
            if found is not None and found.state != "pending":
                self._is_over = True
                yield self._answer(found.shown)
                return
            yield b"\n"
        self._is_over = True
        yield self._answer(_LEFT)
