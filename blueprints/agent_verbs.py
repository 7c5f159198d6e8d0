"""What the agent of a conversation does when it is asked, beside its runs; and the sandbox that it lives in.

Source: the agent-server wire.
"""

from typing import Any

from flask import current_app

from agents.forwarding import Forwarding
from agents.verbs import Verbs
from agents.waking import NotReachable
from blueprints import current_store
from blueprints.api import Blueprint, needs
from blueprints.client_settings import own_settings
from blueprints.following import client_required
from blueprints.webhooks import keep_report
from core.wire import ConversationId
from schemas.conversations import (
    AgentAnswer,
    AskAgent,
    ConversationInfo,
    LoadPlugin,
    Navigate,
    RuntimeCredentials,
    RuntimeInfo,
    SkillsChoice,
    StartGoal,
    SwitchAcpModel,
    SwitchLlm,
    SwitchProfile,
    with_skills,
)
from schemas.fields import Success
from store.sandboxes.sandboxes import SandboxId

agent_verbs = Blueprint("Agent", __name__, url_prefix="/api/conversations/<conversation_id:conversation_id>")

_DONE = {"success": True}

#: what any of these may be refused with
_REFUSALS = (400, 404, 409, 410, 413, 415, 429, 502, 504)

#: status of a sandbox → that of a runtime, and whether a use of the conversation wakes it
_RUNTIMES = {
    "RUNNING": ("available", True),
    "STARTING": ("starting", True),
    "PAUSED": ("missing", True),
    "MISSING": ("ownership_lost", True),
    "ERROR": ("error", False),
}


def current_verbs() -> Verbs:
    """The verbs of the one who asks; valid while a request is handled."""
    forwarding: Forwarding = current_app.extensions["forwarding"]
    return Verbs(current_store, forwarding, client_required())


@agent_verbs.post("/ask_agent")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(AskAgent())
@agent_verbs.response(200, AgentAnswer)
def ask_agent(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Ask the agent a question beside the conversation, which stays as it is."""
    return current_verbs().ask(conversation_id, "ask_agent", request)


@agent_verbs.post("/condense")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.response(200, Success)
def condense_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Have the agent shorten what it remembers of the conversation; 409 while it runs or an action waits."""
    return _ask(conversation_id, "condense", {})


@agent_verbs.post("/navigate")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(SkillsChoice(), location="query")
@agent_verbs.arguments(Navigate())
@agent_verbs.response(200, ConversationInfo)
def navigate_conversation(
    query: dict[str, bool], request: dict[str, Any], conversation_id: ConversationId
) -> dict[str, Any]:
    """Move the head of the log, from which the agent goes on, to an event; 409 while it runs or an action waits."""
    verbs = current_verbs()
    info = verbs.navigate(conversation_id, request["event_id"])
    keep_report(verbs.forwarding.sandbox_of(conversation_id), conversation_id, info)
    leaf = info.get("leaf_event_id")
    state = with_skills(current_store.conversations.get(conversation_id), **query)
    return {**state, "leaf_event_id": leaf if isinstance(leaf, str) else None}


@agent_verbs.post("/load_plugin")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(LoadPlugin())
@agent_verbs.response(200, Success)
def load_conversation_plugin(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Load a plugin of the marketplaces that the agent knows."""
    return _ask(conversation_id, "load_plugin", request)


@agent_verbs.post("/goal")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(StartGoal())
@agent_verbs.response(200, Success)
def start_goal_in_conversation(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Have the agent run until it judges that a goal is reached; 409 while it runs or an action waits."""
    return _ask(conversation_id, "goal", request)


@agent_verbs.post("/goal/stop")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.response(200, Success)
def stop_goal_in_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """End the pursuit of a goal; the run that is under way goes on."""
    return _ask(conversation_id, "goal/stop", {})


@agent_verbs.post("/goal/resume")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.response(200, Success)
def resume_goal_in_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Take up the goal that was stopped last; 409 while the agent runs or an action waits."""
    return _ask(conversation_id, "goal/resume", {})


@agent_verbs.post("/switch_llm")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(SwitchLlm())
@agent_verbs.response(200, Success)
def switch_conversation_llm(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Give the agent another model, with its key, which may be sealed for the key that asks."""
    return _ask(conversation_id, "switch_llm", {"llm": own_settings().opened(request["llm"])})


@agent_verbs.post("/switch_acp_model")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(SwitchAcpModel())
@agent_verbs.response(200, Success)
def switch_conversation_acp_model(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Give an agent that is a program of its own another of its models."""
    return _ask(conversation_id, "switch_acp_model", request)


@agent_verbs.post("/switch_profile")
@needs("write")
@agent_verbs.fails(*_REFUSALS)
@agent_verbs.arguments(SwitchProfile())
@agent_verbs.response(200, Success)
def switch_conversation_profile(request: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Give the agent the model of a profile, of those that the key that asks keeps or else its agent server has."""
    if llm := own_settings().llm_named(request["profile_name"]):
        return _ask(conversation_id, "switch_llm", {"llm": {"usage_id": f"profile:{request['profile_name']}", **llm}})
    return _ask(conversation_id, "switch_profile", request)


@agent_verbs.get("/runtime")
@needs("read")
@agent_verbs.fails(404, 409)
@agent_verbs.response(200, RuntimeInfo)
def get_conversation_runtime(conversation_id: ConversationId) -> dict[str, Any]:
    """Say whether the conversation's sandbox runs; this wakes nothing."""
    return runtime_of(current_verbs().forwarding.sandbox_of(conversation_id))


def runtime_of(sandbox_id: SandboxId) -> dict[str, Any]:
    """Whether a sandbox runs, as its conversations show it. One round trip."""
    [sandbox] = current_store.sandboxes.get_many([sandbox_id])
    status, can_resume = _RUNTIMES[sandbox.status] if sandbox else ("missing", False)
    error = None
    if sandbox is None or sandbox.status in ("ERROR", "MISSING"):
        error = {"code": f"sandbox_{status}", "message": str(NotReachable.of(sandbox_id, sandbox))}
    return {"runtime_status": status, "can_resume": can_resume, "runtime_error": error}


@agent_verbs.post("/runtime/credentials")
@needs("approve")
@agent_verbs.replay(remade=True, has_key=True)
@agent_verbs.fails(404, 409, 410, 429, 502)
@agent_verbs.response(200, RuntimeCredentials)
def get_conversation_runtime_credentials(conversation_id: ConversationId) -> dict[str, str]:
    """Show the session key of the conversation's sandbox, which is woken for that."""
    forwarding = current_verbs().forwarding
    return {"session_api_key": forwarding.awake(forwarding.sandbox_of(conversation_id))[1]}


def _ask(conversation_id: ConversationId, verb: str, request: dict[str, Any]) -> dict[str, bool]:
    current_verbs().ask(conversation_id, verb, request)
    return _DONE
