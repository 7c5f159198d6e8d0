"""The requests that start a conversation at an agent server: from the spec's template and what a client asked for."""

from collections.abc import Mapping
from typing import Any

from wire import ConversationId


def conversation_request(
    conversation_id: ConversationId, request: Mapping[str, Any], template: Mapping[str, Any], working_dir: str
) -> dict[str, Any]:
    """The body of the request that starts the conversation: the spec's template, filled with the client's request."""
    body: dict[str, Any] = {
        "agent": {},
        "workspace": {"kind": "LocalWorkspace", "working_dir": working_dir if working_dir.startswith("/") else "."},
        **template,
        "conversation_id": conversation_id,
    }
    if message := request.get("initial_message"):
        body["initial_message"] = message
    if (model := request.get("llm_model")) and isinstance(body["agent"].get("llm"), dict):
        body["agent"] = {**body["agent"], "llm": {**body["agent"]["llm"], "model": model}}
    return body


def restart_request(
    state: Mapping[str, Any], secrets: Mapping[str, Any], template: Mapping[str, Any], working_dir: str
) -> dict[str, Any]:
    """The body of the request that starts a conversation again at an agent server that has forgotten it.

    state: as the store has it. What clients have set since the first start, a policy above all, stays.
    """
    body = conversation_request(state["id"], state["app"], template, working_dir)
    body |= {name: state[name] for name in ("confirmation_policy", "security_analyzer") if state[name]}
    return body | ({"secrets": dict(secrets)} if secrets else {})
