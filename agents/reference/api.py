"""The HTTP API of the reference agent: the part of the agent-server wire that `agents/link.py` uses."""

import json
import re
import time
from itertools import islice
from typing import Any, cast
from uuid import UUID, uuid4

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, request
from werkzeug.exceptions import HTTPException
from werkzeug.local import LocalProxy

from agents.reference.conversation import Conversation
from agents.reference.decisions import Stale, read_decisions
from agents.reference.events import Event
from agents.reference.journal import DiskError
from agents.reference.log import MOST_RESPONSES
from agents.reference.server import Server

#: most events of a page, and bytes of JSON after which a page ends early: the server reads 8 MiB at most
MOST_ITEMS, PAGE_BYTES = 100, 1 << 20

#: names of settings of an agent or a workspace that are neither kept nor shown
SECRET_NAME = re.compile(r"(key|key_id|token|secrets?|password|authorization|headers|env)$", re.IGNORECASE)

api = Blueprint("api", __name__, url_prefix="/api/conversations")
health = Blueprint("health", __name__)

server = cast(Server, LocalProxy(lambda: current_app.extensions["server"]))


def create_app(state: Server) -> Flask:
    """The agent server; every path under /api needs the server's key, unless that is empty."""
    app = Flask(__name__)
    app.extensions["server"] = state
    app.register_blueprint(api)
    app.register_blueprint(health)
    app.register_error_handler(HTTPException, lambda error: (jsonify(detail=error.description), error.code or 500))
    app.register_error_handler(DiskError, lambda error: (jsonify(detail=str(error)), 507))
    return app


@api.before_request
def check_key() -> None:
    server.used = time.monotonic()
    if server.key and request.headers.get("X-Session-API-Key") != server.key:
        abort(401, "Unauthorized")


@health.get("/alive")
@health.get("/health")
@health.get("/ready")
def alive() -> Response:
    return jsonify(status="ok")


@health.get("/server_info")
def server_info() -> Response:
    now = time.monotonic()
    idle_time = 0.0 if server.works() else now - server.used
    return jsonify(title="Reference agent", version="1.58.0", uptime=now - server.started, idle_time=idle_time)


@api.post("")
def start() -> tuple[Response, int]:
    given = body()
    try:
        identity = UUID(given.get("conversation_id") or str(uuid4()))
    except (ValueError, TypeError, AttributeError):
        abort(422, "conversation_id should be a valid UUID")
    message = an_object(given, "initial_message")
    kept = {
        "confirmation_policy": an_object(given, "confirmation_policy") or {"kind": "NeverConfirm"},
        "initial_message": message and {"content": content_of(message), "run": bool(message.get("run", True))},
        "agent": without_secrets(an_object(given, "agent")),
        "workspace": without_secrets(an_object(given, "workspace")),
        "max_iterations": max_iterations_of(given),
        "title": given.get("title"),
        "tags": an_object(given, "tags") or {},
    }
    conversation, is_new = server.start(identity, kept, secrets_of(given), llm_of(given))
    return jsonify(conversation.log.info()), 201 if is_new else 200


@api.get("/<identity>")
def get(identity: str) -> Response:
    return jsonify(found(identity).log.info())


@api.delete("/<identity>")
def delete(identity: str) -> Response:
    if not server.delete(parsed(identity)):
        abort(404, "Conversation not found")
    return done()


@api.post("/<identity>/events")
def send(identity: str) -> Response:
    message = body()
    found(identity).send(content_of(message), bool(message.get("run")))
    return done()


@api.get("/<identity>/events/search")
def search(identity: str) -> Response:
    """A page of the log, from its begin or (TIMESTAMP_DESC) from its end; page_id names the first event to look at.

    A page of large events has fewer than limit. As on the agent-server wire, an unknown page_id begins the log again.
    """
    limit, order = request.args.get("limit", str(MOST_ITEMS)), request.args.get("sort_order", "TIMESTAMP")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_ITEMS):
        abort(422, f"limit should be a number from 1 to {MOST_ITEMS}")
    if order not in ("TIMESTAMP", "TIMESTAMP_DESC"):
        abort(422, "sort_order should be TIMESTAMP or TIMESTAMP_DESC")
    events = found(identity).log.events[:: 1 if order == "TIMESTAMP" else -1]
    page_id = request.args.get("page_id")
    first = next((index for index, event in enumerate(events) if event["id"] == page_id), 0)
    items, size = list[Event](), 0
    for event in filter(passes, islice(events, first, None)):
        if len(items) == int(limit) or size > PAGE_BYTES:
            return jsonify(items=items, next_page_id=event["id"])
        items.append(event)
        size += len(json.dumps(event))
    return jsonify(items=items, next_page_id=None)


@api.get("/<identity>/events/count")
def count(identity: str) -> Response:
    return jsonify(sum(map(passes, found(identity).log.events)))


@api.get("/<identity>/events/<event_id>")
def get_event(identity: str, event_id: str) -> Response:
    event = found(identity).log.find(event_id)
    return jsonify(event) if event else abort(404, "Event not found")


@api.post("/<identity>/events/respond_to_confirmation")
def respond_to_confirmation(identity: str) -> Response:
    given = body()
    reason = given.get("reason", "User rejected the action.")
    if not isinstance(reason, str):
        abort(422, "reason should be a string")
    if given.get("decisions") is None:
        found(identity).decide(given.get("accept") is True, reason)
        return done()
    try:
        found(identity).decide_each(read_decisions(given["decisions"], reason))
    except ValueError as error:
        abort(422, str(error))
    except Stale as error:
        abort(409, str(error))
    return done()


@api.post("/<identity>/run")
def run(identity: str) -> Response:
    if not found(identity).run():
        abort(409, "Conversation already running. Wait for completion or pause first.")
    return done()


@api.post("/<identity>/pause")
def pause(identity: str) -> Response:
    found(identity).stop(at_once=False)
    return done()


@api.post("/<identity>/interrupt")
def interrupt(identity: str) -> Response:
    found(identity).stop(at_once=True)
    return done()


@api.post("/<identity>/confirmation_policy")
def set_policy(identity: str) -> Response:
    found(identity).set_policy(an_object(body(), "policy") or {"kind": "NeverConfirm"})
    return done()


@api.post("/<identity>/secrets")
def put_secrets(identity: str) -> Response:
    found(identity).keep(secrets_of(body()))
    return done()


@api.post("/<identity>/security_analyzer")
def set_security_analyzer(identity: str) -> Response:
    found(identity)  # this agent rates nothing
    return done()


def done() -> Response:
    return jsonify(success=True)


def parsed(identity: str) -> UUID:
    try:
        return UUID(identity)
    except ValueError:
        abort(422, "Input should be a valid UUID")


def found(identity: str) -> Conversation:
    return server.find(parsed(identity)) or abort(404, "Conversation not found")


def body() -> dict[str, Any]:
    try:
        given = json.loads(request.data or b"{}")
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else abort(422, "The body should be a JSON object")


def an_object(given: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = given.get(name)
    return value if value is None or isinstance(value, dict) else abort(422, f"{name} should be an object")


def content_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content") or []
    if not isinstance(content, list) or not all(
        isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in content
    ):
        abort(422, "content should be a list of objects, whose text is a string")
    return content


def secrets_of(given: dict[str, Any]) -> dict[str, str]:
    """The values of secrets by name, of text or of objects with a `value`; this agent looks up no others."""
    secrets = an_object(given, "secrets") or {}
    values = {name: secret.get("value") if isinstance(secret, dict) else secret for name, secret in secrets.items()}
    return {name: str(value) for name, value in values.items() if value is not None}


def llm_of(given: dict[str, Any]) -> dict[str, Any]:
    """What a start request says of the model: model, base_url, api_key, max_input_tokens."""
    agent = an_object(given, "agent") or an_object(given, "agent_settings") or {}
    llm = an_object(agent, "llm") or {}
    texts = {name: llm.get(name) or "" for name in ("model", "base_url", "api_key")}
    for name, text in texts.items():
        if not isinstance(text, str):
            abort(422, f"agent.llm.{name} should be a string")
    return {**texts, "max_input_tokens": llm.get("max_input_tokens")}


def max_iterations_of(given: dict[str, Any]) -> int:
    number = given.get("max_iterations")
    if number is None:
        return MOST_RESPONSES
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        abort(422, "max_iterations should be a number from 1 on")
    return number


def without_secrets(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {name: without_secrets(of) for name, of in settings.items() if not SECRET_NAME.search(name)}
    return [without_secrets(each) for each in settings] if isinstance(settings, list) else settings


def passes(event: Event) -> bool:
    return all(request.args.get(name) in (None, event[name]) for name in ("kind", "source"))
