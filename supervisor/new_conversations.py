"""The conversation that a start task begins: what its agent server gets, and what the store keeps of it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.requests import asked_dir, conversation_request, own_request, working_folder
from specs import Spec
from store import Store
from store.sandboxes.sandbox_record import Sandbox
from store.sandboxes.start_tasks import StartTask

#: members of the request that an app conversation has from its parent, and those that it keeps
INHERITED = ("selected_repository", "selected_branch", "git_provider", "llm_model")
_APP_FIELDS = (*INHERITED, "trigger", "pr_number", "public", "parent_conversation_id")


class NewConversation(NamedTuple):
    """body and headers: for the agent server. kept: the arguments of `Conversations.create`."""

    body: dict[str, Any]
    headers: dict[str, str]
    kept: dict[str, Any]


def new_conversation(
    store: Store, start: StartTask, request: Mapping[str, Any], sandbox: Sandbox, spec: Spec
) -> NewConversation:
    """Of a client's own body where one came, else of an app conversation. Raises SecretsRefused."""
    secrets, given = store.start_tasks.secrets_of(start), store.start_tasks.body_of(start)
    if given is None:
        new = _of_app(start, request, spec, secrets)
    else:
        new = _of_client(start, request, given, working_folder(sandbox, spec))
        new.kept["start_body"] = store.start_tasks.bodies.sealed(start.conversation_id, given["body"])
    common: dict[str, Any] = {"secrets": secrets, "sandbox_id": sandbox.id}
    if new.kept.get("confirmation_seconds") is None:
        common["confirmation_seconds"] = spec.confirmation_seconds
    return new._replace(kept={**new.kept, **common})


def _of_app(start: StartTask, request: Mapping[str, Any], spec: Spec, secrets: dict[str, Any]) -> NewConversation:
    identity = start.conversation_id
    body = conversation_request(identity, request, spec.conversation, spec.working_dir)
    app = {name: request[name] for name in _APP_FIELDS if request.get(name) is not None}
    kept = {
        "title": request.get("title") or f"Conversation {identity[:5]}",
        "tags": request.get("tags"),
        "confirmation_policy": body.get("confirmation_policy"),
        "confirmation_seconds": request.get("confirmation_seconds"),
        "workspace": body["workspace"],
        "app": {"llm_model": _model(body), "start_id": start.id} | app,
        "initial_message": (body.get("initial_message") or {}).get("content"),
    }
    return NewConversation(body | ({"secrets": secrets} if secrets else {}), {}, kept)


def _of_client(start: StartTask, request: Mapping[str, Any], given: dict[str, Any], folder: str) -> NewConversation:
    """folder: the sandbox's working folder. What is visible of the body is in the request, without its secrets."""
    body = own_request(start.conversation_id, given["body"], folder)
    kept, parent_id = dict(request["kept"]), request.get("parent_conversation_id")
    if isinstance(body.get("workspace"), dict):
        kept["workspace"] = {**(kept.get("workspace") or {}), "working_dir": body["workspace"]["working_dir"]}
    kept["asked_dir"] = asked_dir(given["body"])
    kept["app"] = {"llm_model": _model(body), "start_id": start.id}
    kept["app"] |= {"parent_conversation_id": parent_id} if parent_id else {}
    return NewConversation(body, given["headers"], kept)


def _model(body: Mapping[str, Any]) -> str | None:
    """The model of the agent that a body describes, if it does."""
    agent = body.get("agent") or body.get("agent_settings")
    llm = agent.get("llm") if isinstance(agent, dict) else None
    model = llm.get("model") if isinstance(llm, dict) else None
    return model if isinstance(model, str) else None
