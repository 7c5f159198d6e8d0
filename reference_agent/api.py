"""The HTTP API of the reference agent's conversations: the part of the wire that `agents/client.py` uses."""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast
from uuid import UUID, uuid4

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.local import LocalProxy

from core.wire import lone_surrogate
from reference_agent.acp.agents import AcpAgent, refusal
from reference_agent.commands import ClientCommands
from reference_agent.conversation import AgentConversation, read_decisions
from reference_agent.events import Event, now
from reference_agent.ignored import brings_agent, ignored, servers_in
from reference_agent.log import MOST_RESPONSES, AgentWebhooks, DiskError, Hidden, Journal, Log
from reference_agent.mind import NO_LLM, OPENAI, Conflict, Mind, ModelEndpoint, ModelError, ModelMind, RuleMind, Seal
from reference_agent.search import written_at
from reference_agent.shell import ShellTerminal
from reference_agent.toolbox import Toolbox
from reference_agent.tools import Files

if TYPE_CHECKING:
    from reference_agent.acp.conversation import AcpConversation

#: A conversation of the bundled agent, or of a program that speaks ACP.
AnyConversation = Union[AgentConversation, "AcpConversation"]
#: Maximum number and size in bytes of a page of several events. The server reads at most 8 MiB.
MOST_ITEMS, PAGE_BYTES = 100, 1 << 20
#: Names of settings of an agent or a workspace that are neither stored nor shown.
SECRET_NAME = re.compile(r"(key|key_id|token|secrets?|password|auth|authorization|headers|env)$", re.IGNORECASE)
_IN_HEX = re.compile(r"[0-9a-f]{32}")  #: name of a conversation's folder
OPENHANDS = "The OpenHands agent may: make openhands."  #: the agent that serves the rest of the wire
#: The refusal of a run that may not approve pending actions.
ACTION_WAITS = "An action waits for a decision. Decide it, or send a message, which rejects it."


class ReferenceServer:
    """The state of one process. Every method raises DiskError.

    folder: of all conversations. llm: the default model. secret: seals keys. acp: the agent that replaces the model.
    """

    def __init__(
        self,
        key: str,
        folder: Path,
        webhooks: AgentWebhooks,
        llm: ModelEndpoint = NO_LLM,
        secret: str = "",
        acp: AcpAgent | None = None,
    ) -> None:
        self.key, self.folder, self.acp = key, folder, acp
        self.started = self.used = time.monotonic()
        self._webhooks, self._llm, self._seal = webhooks, llm, Seal(secret)
        self._hidden = Hidden()
        self.commands = ClientCommands(self._hidden)
        self._loaded: dict[UUID, AnyConversation] = {}
        self._lock = threading.RLock()

    def works(self) -> bool:
        with self._lock:
            return self.commands.work() or any(conversation.is_running for conversation in self._loaded.values())

    def end(self) -> None:
        with self._lock:
            loaded = [*self._loaded.values()]
        for conversation in loaded:
            conversation.end()

    def find(self, identity: UUID) -> AnyConversation | None:
        with self._lock:
            return self._loaded.get(identity) or self._load(identity, secrets={})

    def start(
        self,
        identity: UUID,
        given: dict[str, Any],
        secrets: dict[str, str],
        llm: dict[str, Any] | None = None,
        mcp: dict[str, Any] | None = None,
        history: list[Event] | None = None,
    ) -> tuple[AnyConversation, bool]:
        """Create or find the conversation of an id. Return also whether it is new. history: first events of a fork."""
        llm = llm or {"api_key": ""}
        with self._lock:
            if known := self.find(identity):
                return known, False
            journal = self._journal(identity)
            kept = {**llm, "api_key": self._seal.close(llm["api_key"])}
            sealed = {"mcp": self._seal.close(json.dumps(mcp)), "mcp_servers": [*mcp]} if mcp else {}
            folder = working_folder(given["workspace"])
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError) as error:
                raise DiskError("make the working folder", folder, error) from error
            place = {"id": str(identity), "created_at": now(), "here": str(Path.cwd())}
            journal.create({**place, **given, "llm": kept, **sealed}, history)
            try:
                new = self._load(identity, secrets, llm["api_key"], mcp)
            except DiskError:
                journal.remove()
                raise
            assert new is not None
            if history:
                new.log.post_info()
            return new, True

    def page(self, limit: int, first: UUID | None) -> tuple[list[AnyConversation], UUID | None]:
        """Return the newest readable conversations from `first` on, and the first of the next page."""
        starts = sorted(self.folder.glob("*/start.json"), key=written_at, reverse=True)
        ids = [UUID(start.parent.name) for start in starts if _IN_HEX.fullmatch(start.parent.name)]
        begin = ids.index(first) if first in ids else 0
        found = list[AnyConversation]()
        for identity in ids[begin : begin + limit]:
            with suppress(DiskError):
                if conversation := self.find(identity):
                    found.append(conversation)
        return found, next(iter(ids[begin + limit :]), None)

    def delete(self, identity: UUID) -> bool:
        """Delete a conversation with its folder. Return False if it does not exist."""
        with self._lock:
            if conversation := self.find(identity):
                conversation.delete()
                del self._loaded[identity]
            return conversation is not None

    def _load(
        self, identity: UUID, secrets: dict[str, str], api_key: str = "", mcp: dict[str, Any] | None = None
    ) -> AnyConversation | None:
        """api_key, mcp: default to the journal's, if they were sealed with this secret."""
        journal = self._journal(identity)
        kept = journal.load()
        if kept is None:
            return None
        kept = kept._replace(start={**kept.start, "workspace": moved_here(kept.start)})
        given, folder = kept.start.get("llm") or {}, working_folder(kept.start["workspace"])
        said = kept.start.get("agent") or kept.start.get("agent_settings") or {}
        llm = self._llm.with_given({**given, "api_key": api_key or self._seal.open(given.get("api_key", ""))})
        model = self.acp.title if self.acp else llm.model
        kept = kept._replace(start={**kept.start, "agent": described(kept.start["agent"], model)})
        log = Log(kept, journal, self._webhooks, self._hidden)
        log.hide(llm.api_key)
        conversation: AnyConversation
        if self.acp:
            module = import_module("reference_agent.acp.conversation")  # other agent servers start without this import
            agent = self.acp.with_model(llm.model, llm.base_url or OPENAI, llm.api_key) if llm.model else self.acp
            conversation = module.AcpConversation(log, agent, folder, os.environ, secrets)
        else:
            unsealed = json.loads(self._seal.open(kept.start.get("mcp", "")) or "{}")
            known = mcp or {**{one: {} for one in kept.start.get("mcp_servers", [])}, **unsealed}
            files, around = (Files(one, self.folder) for one in (folder, Path.cwd()))
            tools = Toolbox(log, files, around, said, known if llm.model else {})
            mind: Mind = ModelMind(llm, folder, tools) if llm.model else RuleMind()
            terminal = ShellTerminal(folder, hands_back=bool(llm.model))
            conversation = AgentConversation(log, mind, terminal, tools, secrets)
        if kept.state is None:
            conversation.begin()
        else:
            conversation.close_what_was_cut_short()
        self._loaded[identity] = conversation
        return conversation

    def _journal(self, identity: UUID) -> Journal:
        return Journal(self.folder / identity.hex)


def working_folder(workspace: dict[str, Any] | None) -> Path:
    """Return the folder of a conversation. It is always inside the working directory of the process."""
    here = Path.cwd()
    given = str((workspace or {}).get("working_dir") or ".")
    for one in (Path(given), Path(os.path.realpath(given)) if Path(given).is_absolute() else here.parent):
        if one.is_relative_to(here) and ".." not in one.parts:
            return one
    return here / os.path.normpath(f"/{given}").lstrip("/")


def moved_here(start: dict[str, Any]) -> dict[str, Any] | None:
    """Return a stored start's workspace below the current working directory: a restored backup may be elsewhere."""
    workspace: dict[str, Any] | None = start["workspace"]
    given, here = Path(str((workspace or {}).get("working_dir") or ".")), Path(start.get("here") or Path.cwd())
    if workspace is None or not given.is_relative_to(here):
        return workspace
    return {**workspace, "working_dir": str(Path.cwd() / given.relative_to(here))}


def described(agent: dict[str, Any] | None, model: str) -> dict[str, Any]:
    """Return the agent for clients: that of the start request, with the members that the SDK requires."""
    tools = [{"name": name} for name in ("terminal", "file_editor", "task_tracker")] if model else []
    llm = {"model": model or "none", "usage_id": "agent"}
    return {"kind": "Agent", "llm": llm, "tools": tools, **(agent or {})}


api = Blueprint("api", __name__, url_prefix="/api/conversations")
health = Blueprint("health", __name__)
server = cast(ReferenceServer, LocalProxy(lambda: current_app.extensions["server"]))


def create_app(state: ReferenceServer) -> Flask:
    """Create the Flask app. Every path under /api needs the server's key, unless the key is empty."""
    app = Flask(__name__)
    app.extensions["server"] = state
    app.register_blueprint(api)
    app.register_blueprint(health)
    app.register_error_handler(HTTPException, refusal_of)
    app.register_error_handler(DiskError, lambda error: (jsonify(detail=str(error)), 507))
    app.register_error_handler(ModelError, lambda error: (jsonify(detail=error.detail), 504))
    app.register_error_handler(Conflict, lambda error: (jsonify(detail=str(error)), 409))
    return app


def refusal_of(error: HTTPException) -> tuple[Response, int]:
    """Return the response to a refused request. A 422 has the shape of the agent-server wire."""
    detail: Any = error.description
    if detail in (NotFound.description, MethodNotAllowed.description):
        detail = f"The bundled agent does not serve {request.method} {request.path}. {OPENHANDS}"
    if error.code == 422:
        detail = [{"loc": ["query" if request.method == "GET" else "body"], "msg": detail, "type": "value_error"}]
    return jsonify(detail=detail), error.code or 500


@api.before_request
def check_key() -> None:
    if request.endpoint != "api.search_conversations":  # the supervisor polls this list
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
    message, program = an_object(given, "initial_message"), server.acp.title if server.acp else ""
    kept = {
        "confirmation_policy": an_object(given, "confirmation_policy") or {"kind": "NeverConfirm"},
        "initial_message": message and {"content": content_of(message), "run": bool(message.get("run", True))},
        "agent": without_secrets(an_object(given, "agent")),
        "agent_settings": without_secrets(an_object(given, "agent_settings")),
        "workspace": without_secrets(an_object(given, "workspace")),
        "max_iterations": max_iterations_of(given),
        "title": given.get("title"),
        "tags": an_object(given, "tags") or {},
        "stuck_detection": given.get("stuck_detection") is not False,
        "tool_module_qualnames": an_object(given, "tool_module_qualnames"),
    }
    if server.acp and (fault := refusal(server.acp, kept["confirmation_policy"])):
        abort(422, fault)
    llm, history = llm_of(given, is_own=not program), history_of(given)
    conversation, is_new = server.start(identity, kept, secrets_of(given), llm, servers_of(given), history)
    warnings = ignored(given, program)
    if warnings and is_new:
        print(f"conversation {identity}: {' '.join(warnings)}", file=sys.stderr)
    return jsonify({**conversation.log.info(), "ignored": warnings}), 201 if is_new else 200


@api.get("/search")
def search_conversations() -> Response:
    """Return a page of the conversations, the newest first. `page_id` is the first one's id, in hex."""
    identity = request.args.get("page_id", "")
    first = UUID(identity) if _IN_HEX.fullmatch(identity) else None
    found, following = server.page(asked_number("limit", MOST_ITEMS, 1, MOST_ITEMS), first)
    return jsonify(items=[one.log.info() for one in found], next_page_id=following and following.hex)


@api.get("/<identity>")
def get(identity: str) -> Response:
    return jsonify(found(identity).log.info())


@api.delete("/<identity>")
def delete(identity: str) -> Response:
    return done() if server.delete(parsed(identity)) else abort(404, "Conversation not found")


@api.post("/<identity>/events")
def send(identity: str) -> Response:
    message = body()
    found(identity).send(content_of(message), bool(message.get("run")))
    return done()


@api.get("/<identity>/events/search")
def search(identity: str) -> Response:
    """Return a page of the log. An unknown `page_id` starts from the beginning, as on the agent-server wire."""
    if request.args.get("sort_order", "TIMESTAMP") not in ("TIMESTAMP", "TIMESTAMP_DESC"):
        abort(422, "sort_order should be TIMESTAMP or TIMESTAMP_DESC")
    return page_of(found(identity).log.events, PAGE_BYTES, passes)


def page_of(events: list[Event], most: int, passes: Callable[[Event], bool]) -> Response:
    """Return the page of events that the query requests. `most` bounds its bytes."""
    limit, page_id = asked_number("limit", MOST_ITEMS, 1, MOST_ITEMS), request.args.get("page_id")
    page, room = list[bytes](), most
    events = events[:: -1 if request.args.get("sort_order") == "TIMESTAMP_DESC" else 1]
    first = next((index for index, event in enumerate(events) if event["id"] == page_id), 0)
    following = None
    for event in filter(passes, islice(events, first, None)):
        raw = encoded(event)
        room -= len(raw)
        if len(page) == limit or (page and room < 0):
            following = event["id"]
            break
        page.append(raw)
    raw = b'{"items":[%b],"next_page_id":%b}' % (b",".join(page), encoded(following))
    return Response(raw, mimetype="application/json")


def encoded(value: Any) -> bytes:
    """Return JSON as UTF-8. ASCII escapes would triple the size of texts in other scripts."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate from a command
        return json.dumps(value).encode()


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
    return done()


@api.post("/<identity>/run")
def run(identity: str) -> Response:
    """Start a run, which approves pending actions. With `"accepts": false` in the body it is refused instead."""
    conversation = found(identity)
    if not conversation.run(accepts=body().get("accepts") is not False):
        waits = conversation.log.state.status == "waiting_for_confirmation"
        abort(409, ACTION_WAITS if waits else "Conversation already running. Wait for completion or pause first.")
    return done()


@api.post("/<identity>/ask_agent")
def ask_agent(identity: str) -> Response:
    question = body().get("question")
    if not isinstance(question, str) or not question.strip():
        abort(422, "question should be a text that is not empty")
    return jsonify(response=found(identity).ask(question))


@api.post("/<identity>/condense")
def condense(identity: str) -> Response:
    found(identity).condense()
    return done()


@api.post("/<identity>/<any(pause, interrupt):verb>")
def stop(identity: str, verb: str) -> Response:
    found(identity).stop(at_once=verb == "interrupt")
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
    found(identity)  # this agent has no ratings
    return done()


def asked_number(name: str, default: int, least: int, most: int) -> int:
    text = request.args.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        abort(422, f"{name} should be a number from {least} to {most}")
    return int(text)


def done() -> Response:
    return jsonify(success=True)


def parsed(identity: str) -> UUID:
    try:
        return UUID(identity)
    except ValueError:
        abort(422, "Input should be a valid UUID")


def found(identity: str) -> AnyConversation:
    return server.find(parsed(identity)) or abort(404, "Conversation not found")


def body() -> dict[str, Any]:
    try:
        given = json.loads(request.data or b"{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        abort(422, "The body should be a JSON object")
    if place := lone_surrogate(given):
        abort(422, f"{'.'.join(map(str, place))} should be valid Unicode: it has a lone surrogate")
    return given


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
    """Return the values of secrets by name. Secrets with a `url` are not looked up."""
    secrets = an_object(given, "secrets") or {}
    values = {name: secret.get("value") if isinstance(secret, dict) else secret for name, secret in secrets.items()}
    return {name: str(value) for name, value in values.items() if value is not None}


def llm_of(given: dict[str, Any], *, is_own: bool = True) -> dict[str, Any]:
    """Return a start request's settings of the model. is_own: False for a program, which ignores a client's agent."""
    agent = an_object(given, "agent") or an_object(given, "agent_settings") or {}
    llm = (an_object(agent, "llm") if is_own or not brings_agent(agent) else None) or {}
    texts = {name: llm.get(name) or "" for name in ("model", "base_url", "api_key")}
    for name, text in texts.items():
        if not isinstance(text, str):
            abort(422, f"agent.llm.{name} should be a string")
    effort = llm.get("reasoning_effort")
    more = {"reasoning_effort": effort} if isinstance(effort, str) else {}
    return {**texts, "max_input_tokens": llm.get("max_input_tokens"), **more}


def servers_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the enabled MCP servers of a start request, by name."""
    agent = an_object(given, "agent") or an_object(given, "agent_settings") or {}
    listed = servers_in(agent.get("mcp_config"))
    return {name: one for name, one in listed.items() if isinstance(one, dict) and one.get("enabled") is not False}


def history_of(given: dict[str, Any]) -> list[Event] | None:
    """Return the first events of a fork; None if the request has none."""
    history, names = given.get("history"), ("id", "kind", "source")
    if history is not None and not (
        isinstance(history, list)
        and all(isinstance(one, dict) and all(isinstance(one.get(name), str) for name in names) for one in history)
    ):
        abort(422, "history should be a list of events")
    return history


def max_iterations_of(given: dict[str, Any]) -> int:
    number = MOST_RESPONSES if given.get("max_iterations") is None else given["max_iterations"]
    is_number = isinstance(number, int) and not isinstance(number, bool) and number >= 1
    return number if is_number else abort(422, "max_iterations should be a number from 1 on")


def without_secrets(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {name: without_secrets(of) for name, of in settings.items() if not SECRET_NAME.search(name)}
    return [without_secrets(each) for each in settings] if isinstance(settings, list) else settings


def passes(event: Event) -> bool:
    return all(request.args.get(name) in (None, event[name]) for name in ("kind", "source"))
