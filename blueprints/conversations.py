"""Conversations: start, list, get, change, run, pause, fork and delete.

Also side requests to the agent, the state of the sandbox, and two streams: changes of the list of conversations and of
the list of sandboxes. Sources: the agent-server wire; for the streams docs/wire.md, 15.
"""

from contextlib import suppress
from typing import Any

from flask import Response, g, jsonify, request

from agents.commands import relabel
from agents.deletions import delete
from agents.expiry import with_deadline
from agents.forks import fork_request, has_own_forks, moment_at
from agents.joins import join, require_start
from agents.model_addresses import within_reach
from agents.starts import asked_dir, start_notices, started
from agents.verbs import Verbs, fork
from agents.waking import NotReachable
from blueprints import (
    current_client,
    current_commands,
    current_forwarding,
    current_joiner,
    current_specs,
    current_store,
)
from blueprints.api import (
    Blueprint,
    array_with_holes,
    form_of,
    json_body,
    json_page,
    json_response,
    needs,
    repeated,
    repeated_parameter,
)
from blueprints.client_settings import own_settings
from blueprints.following import caller_required, ended_stream, event_lines, last_event_id, streamed
from blueprints.grants import require_tagger
from blueprints.webhooks import keep_report
from core.scopes import Origin, folder_name
from core.visible import visible
from core.wire import EXECUTION_STATUSES, ConversationId, one_line, parse_json
from schemas import conversations as schemas
from schemas.app_conversations import echo
from schemas.approvals import SetConfirmationPolicy
from schemas.fields import Success, page_id
from schemas.sandboxes import SandboxInfo
from settings.specs import SpecNotFound
from store.conversations.lists import ListStream, Show
from store.errors import IdInUse, SandboxNotFound, Stopping
from store.link.attempts import is_later, minted
from store.listing import ListingFilter
from store.sandboxes.sandboxes import SandboxId
from store.sandboxes.start_tasks import StartTask

conversations = Blueprint("Conversations", __name__, url_prefix="/api/conversations")

_DONE = {"success": True}

_INFO = schemas.ConversationInfo()
_WITH_SKILLS = form_of("with skills", _INFO.dump)
_WITHOUT_SKILLS = form_of("without skills", lambda state: _INFO.dump(schemas.with_skills(state, include_skills=False)))

#: Members of a body that name an agent to start. Source: the agent-server wire.
AGENT_SOURCES = ("agent", "agent_settings", "agent_profile_id")

#: Maximum size of `X-Start-Detail` in bytes: proxies accept 4 KiB of response headers. The start task has the whole
#: text.
_LONGEST_HEADER = 1500

#: Headers that an agent server reads at the start of a conversation. Source: the agent-server wire.
OBSERVABILITY_HEADERS = tuple(
    f"X-OpenHands-Observability-{name}" for name in ("Span-Name", "Tags", "Metadata", "Parent-Span-Context")
)


#: Statuses of refusals that all requests to an agent share.
_REFUSALS = (400, 404, 409, 410, 413, 415, 429, 502, 504)

#: Status of a sandbox → status of its runtime, and whether use of the conversation resumes it.
_RUNTIMES = {
    "RUNNING": ("available", True),
    "STARTING": ("starting", True),
    "PAUSED": ("missing", True),
    "MISSING": ("ownership_lost", True),
    "ERROR": ("error", False),
}

_LISTED = form_of("listed", schemas.ListedConversation().dump)

_STATUSES = {
    "in": "query",
    "name": "status",
    "schema": {"type": "array", "items": {"type": "string", "enum": list(EXECUTION_STATUSES)}},
    "description": "Repeat the parameter for several values; absent: all.",
}

_EVENTS = (
    "Events: `reset` (discard the known list, and read it again) and `ready`, then "
    "`changed` with an item of the list and `deleted` with its id. A reconnecting client "
    "sends `id:` as Last-Event-ID"
)
_HEADER = {
    "in": "header",
    "name": "Last-Event-ID",
    "schema": {"type": "integer", "minimum": 0},
    "description": "Sent by a reconnecting browser; last_event_id is then ignored.",
}

_CONVERSATION, _SANDBOX = schemas.ListedConversation(), SandboxInfo(exclude=("session_api_key",))


def _brings_an_agent() -> bool:
    """Return whether the body of the request names an agent to start."""
    body = parse_json(json_body() or b"{}")
    return isinstance(body, dict) and any(body.get(source) is not None for source in AGENT_SOURCES)


@conversations.post("")
@needs("write")
@conversations.starts_if(_brings_an_agent)
@conversations.replay(remade=True)
@conversations.fails(404, 429, 502)
@conversations.arguments(schemas.SkillsChoice(), location="query")
@conversations.arguments(schemas.StartConversationRequest(), required=False)
@conversations.alt_response(200, schema=schemas.ConversationInfo, description="The existing conversation with that id")
@conversations.response(201, schemas.ConversationInfo)
def start_conversation(query: dict[str, bool], wanted: dict[str, Any]) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Start a conversation, once per id. With an agent it gets a sandbox, and the response waits for the start."""
    conversation_id = ConversationId(wanted.pop("conversation_id", None) or str(minted("conversation")))
    if _brings_an_agent():
        state, created = started(current_store, conversation_id, lambda: _start_task(conversation_id, wanted))
        told = in_header(start_notices(current_store, state))
        return schemas.with_skills(state, **query), 201 if created else 200, {"X-Start-Detail": told} if told else {}
    for source in AGENT_SOURCES[1:]:
        wanted.pop(source, None)
    origin = Origin(g.principal.owner, folder=folder_name(asked_dir(wanted)))
    created = current_store.conversations.create(conversation_id, **wanted, origin=origin, owner=g.principal.name)
    return schemas.with_skills(current_store.conversations.get(conversation_id), **query), 201 if created else 200, {}


def in_header(text: str) -> str:
    """Escape text of an agent server for a header: one line of printable ASCII. Source: RFC 9110, 5.5."""
    escaped = visible(one_line(text)).encode("ascii", "backslashreplace").decode()
    return escaped if len(escaped) <= _LONGEST_HEADER else f"{escaped[: _LONGEST_HEADER - 3]}..."


def _start_task(conversation_id: ConversationId, wanted: dict[str, Any]) -> tuple[StartTask, bool]:
    body = own_settings().completed(parse_json(json_body()), request.host)
    kept = {name: value for name, value in wanted.items() if name not in ("secrets", *AGENT_SOURCES[1:])}
    parent_id = kept.pop("parent_conversation_id", None)
    message = {"role": "user", "content": kept["initial_message"]} if "initial_message" in kept else None
    shown = {"conversation_id": conversation_id, "parent_conversation_id": parent_id, "initial_message": message}
    task = {
        "kept": kept,
        "parent_conversation_id": parent_id,
        "sandbox_spec_id": current_specs.of_own_agents.id,
        "secrets": body.get("secrets") or None,
        "started_from": current_client(),
    }
    headers = {name: value for name in OBSERVABILITY_HEADERS if (value := request.headers.get(name))}
    given = {"body": body, "headers": headers}
    joiner = current_joiner()
    require_start(current_store, current_specs, joiner, task, conversation_id)
    seen, owner = echo({**wanted, **shown}), joiner.owner
    return current_store.start_tasks.create_once(conversation_id, task, given, echo=seen, owner=owner, joiner=joiner)


@conversations.get("/search")
@needs("read")
@conversations.fails()
@conversations.arguments(schemas.ConversationSearch(), location="query")
@conversations.response(200, schemas.ConversationPage)
def search_conversations(search: dict[str, Any]) -> Response:
    """List conversations, a page at a time."""
    form = _WITH_SKILLS if search.pop("include_skills") else _WITHOUT_SKILLS
    status = search.pop("status", None)
    filters = ListingFilter(statuses=() if status is None else (status,))
    items, following = current_store.conversations.pages.page(filters, form, **search)
    return json_response(json_page(items, page_id(search["by"], search["descending"], following)) + b"\n")


@conversations.get("/count")
@needs("read")
@conversations.fails()
@conversations.arguments(schemas.ConversationFilter(), location="query")
@conversations.response(200, {"type": "integer", "minimum": 0}, description="The number of conversations")
def count_conversations(filters: dict[str, Any]) -> Response:
    """Count conversations."""
    return json_response(b"%d" % current_store.conversations.count(**filters))


@conversations.get("")
@needs("read")
@conversations.fails(414)
@conversations.doc(parameters=[repeated_parameter("ids", "the conversations", format="uuid")])
@conversations.arguments(schemas.SkillsChoice(), location="query")
@conversations.response(200, array_with_holes("ConversationInfo"))
def batch_get_conversations(query: dict[str, bool]) -> Response:
    """Get conversations by id, in the order of the ids, with null for an unknown id."""
    ids = repeated("ids", schemas.read_conversation_ids)
    states = current_store.conversations.get_many([ConversationId(one) for one in ids])
    return jsonify([state and _INFO.dump(schemas.with_skills(state, **query)) for state in states])


@conversations.get("/<conversation_id:conversation_id>")
@needs("read")
@conversations.fails()
@conversations.arguments(schemas.SkillsChoice(), location="query")
@conversations.response(200, schemas.ConversationInfo)
def get_conversation(query: dict[str, bool], conversation_id: ConversationId) -> dict[str, Any]:
    """Get a conversation's state. Unlike a list, it has the state of the sandbox as `runtime_info`."""
    state = schemas.with_skills(current_store.conversations.get(conversation_id), **query)
    sandbox_id = state.get("sandbox_id")
    return {**state, "runtime_info": runtime_of(SandboxId(sandbox_id))} if sandbox_id else state


@conversations.patch("/<conversation_id:conversation_id>")
@needs("write")
@conversations.fails(409)
@conversations.arguments(schemas.UpdateConversationRequest())
@conversations.response(200, Success)
def update_conversation(changes: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Change a conversation's title, tags or decision deadline. A person needs the role `admin` to change tags."""
    require_tagger(changes)
    changes = with_deadline(current_store, current_specs, g.principal, conversation_id, changes)
    relabel(current_commands, conversation_id, **changes)
    return _DONE


@conversations.delete("/<conversation_id:conversation_id>")
@needs("admin")
@conversations.fails()
@conversations.response(200, Success)
def delete_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Delete a conversation and all its events. A start, fork or import of it that is running creates nothing."""
    delete(current_commands, conversation_id)
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/run")
@needs("write")
@conversations.fails(409, 410, 429, 502)
@conversations.arguments(schemas.RunQuery(), location="query")
@conversations.response(200, Success)
def run_conversation(query: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Start or resume the agent. This accepts the actions that wait for a decision."""
    current_commands.change_status(conversation_id, "run", accepts=query["accepts"])
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/pause")
@needs("write")
@conversations.fails(409, 410, 502)
@conversations.response(200, Success)
def pause_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Ask the agent to stop after its current step. Nothing changes if no run is possible."""
    current_commands.change_status(conversation_id, "pause")
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/interrupt")
@needs("write")
@conversations.fails(409, 410, 502)
@conversations.response(200, Success)
def interrupt_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Ask the agent to stop immediately. Nothing changes if no run is possible."""
    current_commands.change_status(conversation_id, "interrupt")
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/confirmation_policy")
@needs("approve")
@conversations.fails(409, 410, 429, 502)
@conversations.arguments(SetConfirmationPolicy())
@conversations.response(200, Success)
def set_conversation_confirmation_policy(wanted: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Set which actions wait for a decision from now on."""
    current_commands.set_policy(conversation_id, **wanted)
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/security_analyzer")
@needs("approve")
@conversations.fails(409, 410, 429, 502)
@conversations.arguments(schemas.SetSecurityAnalyzer())
@conversations.response(200, Success)
def set_conversation_security_analyzer(wanted: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Set the analyzer that rates the risk of the agent's actions; null for none."""
    current_commands.set_security_analyzer(conversation_id, **wanted)
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/secrets")
@needs("admin")
@conversations.fails(409, 410, 429, 502)
@conversations.arguments(schemas.UpdateSecrets())
@conversations.response(200, Success)
def update_conversation_secrets(wanted: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Store secrets for the agent, sealed. No response contains them."""
    current_commands.put_secrets(conversation_id, **wanted)
    return _DONE


@conversations.post("/<conversation_id:conversation_id>/fork")
@needs("write")
@conversations.replay(remade=True)
@conversations.fails(400, 409, 410, 429, 502, 504)
@conversations.arguments(schemas.SkillsChoice(), location="query")
@conversations.arguments(schemas.ForkRequest(), required=False)
@conversations.response(201, schemas.ConversationInfo)
def fork_conversation(
    query: dict[str, bool], wanted: dict[str, Any], conversation_id: ConversationId
) -> dict[str, Any]:
    """Copy a conversation, up to an optional event. In a sandbox its agent copies it too, and can run the copy.

    A fork of the bundled agent has its own sandbox, with the files as they were at the event; 409 if the files were not
    recorded. The response waits for the fork.
    """
    state = current_store.conversations.get(conversation_id)
    join_sandbox_of(state, "Forks the conversation", state["confirmation_policy"])
    if has_own_forks(state):
        return schemas.with_skills(_fork_with_files(conversation_id, wanted), **query)
    copy = fork(current_verbs(), conversation_id, wanted, g.principal.owner)
    current_store.conversations.own(copy, g.principal.name)
    return schemas.with_skills(current_store.conversations.get(copy), **query)


def _fork_with_files(conversation_id: ConversationId, wanted: dict[str, Any]) -> dict[str, Any]:
    """Fork into a new sandbox, and return the state. Raises IdInUse, NotReachable, NotRecordedThere, StartFailed."""
    target = ConversationId(wanted.get("id") or str(minted("conversation")))
    [known] = current_store.conversations.get_many([target])
    if known is not None and not is_later():
        raise IdInUse
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    sandbox = state["sandbox"]
    if sandbox is None or (known is None and (not sandbox.host or sandbox.wanted == "deleted")):
        raise NotReachable.of(state["sandbox_id"], sandbox)

    def create() -> tuple[StartTask, bool]:
        moment, event_id = moment_at(current_store, state, wanted.get("from_event_id"))
        task, joiner = fork_request(state, wanted, moment, event_id), current_joiner()
        shown = echo({"conversation_id": target, "title": wanted.get("title")})
        return current_store.start_tasks.create_once(target, task, {}, echo=shown, owner=joiner.owner, joiner=joiner)

    made, _ = started(current_store, target, create)
    if made["forked_from_conversation_id"] != state["id"]:
        raise IdInUse
    return made


@conversations.get("/<conversation_id:conversation_id>/agent_final_response")
@needs("read")
@conversations.fails(409)
@conversations.response(200, schemas.FinalResponse)
def get_conversation_agent_final_response(conversation_id: ConversationId) -> dict[str, str]:
    """Get the final response of the agent: its finishing message, or its last message."""
    return {"response": current_store.events.final_response(conversation_id)}


agent_verbs = Blueprint("Agent", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")


def current_verbs() -> Verbs:
    """Return the agent requests on behalf of the caller. Valid only during a request."""
    return Verbs(current_store, current_forwarding, caller_required())


@agent_verbs.post("/ask_agent")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.AskAgent())
@agent_verbs.response(200, schemas.AgentAnswer)
def ask_agent(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Ask the agent a question without changing the conversation."""
    return current_verbs().ask(conversation_id, "ask_agent", request)


@agent_verbs.post("/condense")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.response(200, Success)
def condense_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Have the agent condense its memory of the conversation; 409 while it runs or an action waits."""
    return _ask(conversation_id, "condense", {})


@agent_verbs.post("/navigate")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.SkillsChoice(), location="query")
@agent_verbs.arguments(schemas.Navigate())
@agent_verbs.response(200, schemas.ConversationInfo)
def navigate_conversation(
    query: dict[str, bool], request: dict[str, Any], conversation_id: ConversationId
) -> dict[str, Any]:
    """Move the head of the log, where the agent continues, to an event; 409 while it runs or an action waits."""
    verbs = current_verbs()
    info = verbs.navigate(conversation_id, request["event_id"])
    keep_report(verbs.forwarding.sandbox_of(conversation_id), conversation_id, info)
    leaf = info.get("leaf_event_id")
    state = schemas.with_skills(current_store.conversations.get(conversation_id), **query)
    return {**state, "leaf_event_id": leaf if isinstance(leaf, str) else None}


@agent_verbs.post("/load_plugin")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.LoadPlugin())
@agent_verbs.response(200, Success)
def load_conversation_plugin(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Load a plugin from the agent's marketplaces. Its programs run in the sandbox."""
    join_sandbox_of(current_store.conversations.get(conversation_id), "Loads a plugin")
    return _ask(conversation_id, "load_plugin", request)


@agent_verbs.post("/goal")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.StartGoal())
@agent_verbs.response(200, Success)
def start_goal_in_conversation(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Have the agent run until it considers a goal reached; 409 while it runs or an action waits."""
    return _ask(conversation_id, "goal", request)


@agent_verbs.post("/goal/stop")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.response(200, Success)
def stop_goal_in_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Stop the pursuit of a goal. The current run continues."""
    return _ask(conversation_id, "goal/stop", {})


@agent_verbs.post("/goal/resume")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.response(200, Success)
def resume_goal_in_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Resume the goal that was stopped last; 409 while the agent runs or an action waits."""
    return _ask(conversation_id, "goal/resume", {})


@agent_verbs.post("/switch_llm")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.SwitchLlm())
@agent_verbs.response(200, Success)
def switch_conversation_llm(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Give the agent another model, with its key, which may be sealed for the caller's key."""
    join_sandbox_of(current_store.conversations.get(conversation_id), "Changes the model")
    llm = _within_reach(own_settings().opened(request["llm"]), conversation_id)
    return _ask(conversation_id, "switch_llm", {"llm": llm})


def _within_reach(llm: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Return a model with its address as seen from the conversation's sandbox.

    Raises ConversationNotFound, Detached.
    """
    [sandbox] = current_store.sandboxes.get_many([current_forwarding.sandbox_of(conversation_id)])
    if sandbox is None:
        return llm
    with suppress(SpecNotFound):
        spec = current_specs.get(sandbox.spec_id)
        body, _ = within_reach({"llm": llm}, spec, sandbox.egress_url, ("llm",))
        llm = body["llm"]
    return llm


@agent_verbs.post("/switch_acp_model")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.SwitchAcpModel())
@agent_verbs.response(200, Success)
def switch_conversation_acp_model(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Select another model of an agent that is a separate program."""
    join_sandbox_of(current_store.conversations.get(conversation_id), "Changes the model")
    return _ask(conversation_id, "switch_acp_model", request)


@agent_verbs.post("/switch_profile")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(schemas.SwitchProfile())
@agent_verbs.response(200, Success)
def switch_conversation_profile(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Give the agent the model of a profile: of the caller's key, or else of the agent server."""
    join_sandbox_of(current_store.conversations.get(conversation_id), "Changes the model")
    if llm := own_settings().llm_named(request["profile_name"]):
        llm = _within_reach({"usage_id": f"profile:{request['profile_name']}", **llm}, conversation_id)
        return _ask(conversation_id, "switch_llm", {"llm": llm})
    return _ask(conversation_id, "switch_profile", request)


@agent_verbs.get("/runtime")
@needs("read")
@agent_verbs.fails(409)
@agent_verbs.response(200, schemas.RuntimeInfo)
def get_conversation_runtime(conversation_id: ConversationId) -> dict[str, Any]:
    """Show whether the conversation's sandbox runs. This does not resume it."""
    return runtime_of(current_verbs().forwarding.sandbox_of(conversation_id))


def runtime_of(sandbox_id: SandboxId) -> dict[str, Any]:
    """Return the state of a sandbox as its conversations show it. Cost: one round trip."""
    [sandbox] = current_store.sandboxes.get_many([sandbox_id])
    status, can_resume = _RUNTIMES[sandbox.status] if sandbox else ("missing", False)
    error = None
    if sandbox is None or sandbox.status in ("ERROR", "MISSING"):
        error = {"code": f"sandbox_{status}", "message": str(NotReachable.of(sandbox_id, sandbox))}
    return {"runtime_status": status, "can_resume": can_resume, "runtime_error": error}


@agent_verbs.post("/runtime/credentials")
@needs("approve")
@agent_verbs.replay(remade=True, has_key=True)
@agent_verbs.fails(409, 410, 429, 502)
@agent_verbs.response(200, schemas.RuntimeCredentials)
def get_conversation_runtime_credentials(conversation_id: ConversationId) -> dict[str, str]:
    """Show the session key of the conversation's sandbox, which this resumes."""
    forwarding = current_verbs().forwarding
    return {"session_api_key": forwarding.awake(forwarding.sandbox_of(conversation_id))[1]}


def _ask(conversation_id: ConversationId, verb: str, request: dict[str, Any]) -> dict[str, bool]:
    current_verbs().ask(conversation_id, verb, request)
    return _DONE


def join_sandbox_of(state: dict[str, Any], reason: str, policy: dict[str, Any] | None = None) -> None:
    """Let the caller's key act in the sandbox of a conversation, and audit that. Raises JoinRefused.

    policy: the confirmation policy of a conversation that starts there.
    """
    [sandbox] = current_store.sandboxes.get_many([SandboxId(state.get("sandbox_id") or "")])
    if sandbox is None:  # the operation itself refuses a missing sandbox
        return
    identity, join_id = state["id"], str(minted("join"))
    facts = {"conversation_id": identity, "join_id": join_id, "reason": f"{reason} in sandbox {sandbox.id}."}
    with suppress(SandboxNotFound):
        join(current_store, current_joiner(), sandbox, "conversation_id", policy, **facts)


conversation_list = Blueprint("Conversation List", __name__, url_prefix="/api/v1/conversations")


@conversation_list.get("/search")
@needs("read")
@conversation_list.fails()
@conversation_list.doc(parameters=[_STATUSES])
@conversation_list.arguments(schemas.ConversationListSearch(), location="query")
@conversation_list.response(200, schemas.ListedConversationPage)
def search_all_conversations(search: dict[str, Any]) -> Response:
    """List all conversations, the last changed first. A page may be shorter than its limit and not be the last."""
    page = {name: search.pop(name) for name in ("by", "descending", "limit", "start")}
    sandbox_id = search.pop("sandbox_id", None)
    group = None if sandbox_id is None else f"in-{sandbox_id}"
    filters = ListingFilter(group=group, statuses=tuple(repeated("status", schemas.read_statuses)), **search)
    items, following = current_store.conversations.summaries.page(filters, _LISTED, **page)
    return json_response(json_page(items, page_id(page["by"], page["descending"], following)) + b"\n")


list_stream = Blueprint("List Stream", __name__, url_prefix="/api/v1")


@list_stream.get("/conversations/stream")
@needs("read", ticket=True)
@list_stream.fails(429)
@list_stream.doc(parameters=[_HEADER])
@list_stream.arguments(schemas.ListStreamQuery(), location="query")
@list_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_conversations(query: dict[str, int]) -> Response:
    """Follow the list of all conversations. Read its pages after `ready`, so that no change is missed."""
    return _stream(current_store.streams.conversations, _CONVERSATION.dump, **query)


@list_stream.get("/sandboxes/stream")
@needs("read", ticket=True)
@list_stream.fails(429)
@list_stream.doc(parameters=[_HEADER])
@list_stream.arguments(schemas.ListStreamQuery(), location="query")
@list_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_sandboxes(query: dict[str, int]) -> Response:
    """Follow the list of sandboxes, without their keys. Read its pages after `ready`, so that no change is missed."""
    return _stream(current_store.streams.sandboxes, _without_key, **query)


def _stream(stream: ListStream, show: Show, after: int | None = None) -> Response:
    after = last_event_id(schemas.ChangeNumber(), after)
    try:
        return streamed(stream.follow(after, show), lambda sent: event_lines(sent.raw, sent.id, sent.name))
    except Stopping:
        return ended_stream()


def _without_key(sandbox: Any) -> dict[str, Any]:
    """Return a sandbox without its key, because all followers share it, whatever their rights."""
    return {**_SANDBOX.dump(sandbox), "session_api_key": None}
