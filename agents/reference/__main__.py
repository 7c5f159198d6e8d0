"""A small agent server: the bundled spec runs it in a sandbox, and it is a template for others.

    python -m agents.reference [--host 127.0.0.1] [--port 8000]

It serves the part of the agent-server wire that `agents/link.py` uses; `conversation.py` is the agent. It posts events
and changes to OH_WEBHOOKS_0_BASE_URL in order, and retries each until the webhook takes it. A request must bear the key
OH_SESSION_API_KEYS_0. Both variables may be unset.

Limitation: it keeps conversations in memory. After its end only the log of the server that it posts to remains.
"""

import argparse
import os
import signal
import threading
import time
from typing import Any, cast
from uuid import UUID, uuid4

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, request
from werkzeug.exceptions import HTTPException
from werkzeug.local import LocalProxy
from werkzeug.serving import make_server

from agents.reference.conversation import Conversation, Event, Webhooks

#: variables of the environment that are kept from the commands of the agent
PRIVATE = ("OH_SESSION_API_KEYS_0", "SESSION_API_KEY", "PYTHONPATH")

api = Blueprint("api", __name__, url_prefix="/api/conversations")
health = Blueprint("health", __name__)


class Server:
    """The state of one process."""

    def __init__(self, key: str, webhooks: Webhooks) -> None:
        self.key = key
        self.webhooks = webhooks
        self.conversations: dict[UUID, Conversation] = {}
        self.started = self.used = time.monotonic()


server = cast(Server, LocalProxy(lambda: current_app.extensions["server"]))


def create_app(key: str, webhooks: Webhooks) -> Flask:
    """The agent server; every path under /api needs the key, unless that is empty."""
    app = Flask(__name__)
    app.extensions["server"] = Server(key, webhooks)
    app.register_blueprint(api)
    app.register_blueprint(health)
    app.register_error_handler(HTTPException, lambda error: (jsonify(detail=error.description), error.code or 500))
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
    works = any(one.status == "running" for one in server.conversations.values())
    now = time.monotonic()
    idle_time = 0.0 if works else now - server.used
    return jsonify(title="Reference agent", version="1.58.0", uptime=now - server.started, idle_time=idle_time)


def found(text: str) -> Conversation:
    try:
        return server.conversations[UUID(text)]
    except ValueError:
        abort(422, "Input should be a valid UUID")
    except KeyError:
        abort(404, "Conversation not found")


def body() -> dict[str, Any]:
    given = request.get_json(silent=True) if request.data else {}
    if not isinstance(given, dict):
        abort(422, "The body should be a JSON object")
    return given


@api.post("")
def start() -> tuple[Response, int]:
    given = body()
    try:
        identity = UUID(given.get("conversation_id") or str(uuid4()))
    except (ValueError, TypeError, AttributeError):
        abort(422, "conversation_id should be a valid UUID")
    if identity in server.conversations:
        return jsonify(server.conversations[identity].info()), 200
    conversation = server.conversations[identity] = Conversation(identity, given, server.webhooks)
    if message := given.get("initial_message"):
        conversation.send(message.get("content") or [], message.get("run", True))
    return jsonify(conversation.info()), 201


@api.get("/<identity>")
def get(identity: str) -> Response:
    return jsonify(found(identity).info())


@api.delete("/<identity>")
def delete(identity: str) -> Response:
    found(identity).delete()
    del server.conversations[UUID(identity)]
    return done()


@api.post("/<identity>/events")
def send(identity: str) -> Response:
    message = body()
    found(identity).send(message.get("content") or [], bool(message.get("run")))
    return done()


@api.get("/<identity>/events/search")
def search(identity: str) -> Response:
    events = [event for event in found(identity).events if passes(event)]
    if request.args.get("sort_order") == "TIMESTAMP_DESC":
        events.reverse()
    return jsonify(items=events[: request.args.get("limit", 100, int)], next_page_id=None)


@api.get("/<identity>/events/count")
def count(identity: str) -> Response:
    return jsonify(sum(passes(event) for event in found(identity).events))


@api.post("/<identity>/events/respond_to_confirmation")
def respond_to_confirmation(identity: str) -> Response:
    given = body()
    found(identity).decide(given.get("accept") is True, given.get("reason", "User rejected the action."))
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
    found(identity).set_policy(body().get("policy") or {"kind": "NeverConfirm"})
    return done()


@api.post("/<identity>/secrets")
def put_secrets(identity: str) -> Response:
    found(identity).keep(body().get("secrets") or {})
    return done()


@api.post("/<identity>/security_analyzer")
def set_security_analyzer(identity: str) -> Response:
    found(identity)  # this agent rates nothing
    return done()


def done() -> Response:
    return jsonify(success=True)


def passes(event: Event) -> bool:
    return all(request.args.get(name) in (None, event[name]) for name in ("kind", "source"))


def main() -> None:
    parser = argparse.ArgumentParser(description="An agent server with an agent that runs commands.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    key, *_ = [os.environ.pop(name, "") for name in PRIVATE]
    webhooks = Webhooks(os.environ.get("OH_WEBHOOKS_0_BASE_URL", ""), key)
    http = make_server(arguments.host, arguments.port, create_app(key, webhooks), threaded=True)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=http.shutdown).start())
    print(f"serving on {arguments.host}:{arguments.port}", flush=True)
    http.serve_forever()
    webhooks.flush(3.0)


if __name__ == "__main__":
    main()
