"""Pushes of a conversation's work: a branch on its repository's remote, and a pull request.

Source: docs/sandboxes.md, "Pushes".
"""

import re
from contextlib import suppress
from typing import Any

from flask import g
from werkzeug.exceptions import Forbidden

from agents import pushes as git
from agents.client import AgentServer
from agents.inquiries import PathOutside, folder_of, linked_folder, seen_folder, within
from agents.pull_requests import HostApi, NoApi, PullRequestFailed, api_of, open_request
from blueprints import current_actor, current_commands, current_specs, current_store
from blueprints.api import Blueprint, InvalidInput, needs
from blueprints.conversations import join_sandbox_of
from core.wire import ConversationId, now, own_event
from schemas import app_conversations as schemas
from schemas.fields import FieldFault
from settings.egress import UnusableSecret, header_values
from settings.specs import Spec
from store.errors import ConversationNotFound, SecretsRefused
from store.link.attempts import minted
from store.sandboxes.sandboxes import SandboxId

pushes = Blueprint("Pushes", __name__, url_prefix="/api/v1/app-conversations/<conversation_id:conversation_id>/git")

NEEDS_BOTH = "A push sends unapproved content out of the sandbox: it needs a key with the scopes write and approve"

#: Maximum length of a proposed branch name, in characters.
_MOST_PROPOSED = 60


@pushes.get("/remote")
@needs("write")
@pushes.fails(409, 410, 414, 429, 502)
@pushes.arguments(schemas.RemoteQuery(), location="query")
@pushes.response(200, schemas.Remote)
def get_app_conversation_remote(query: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Show where the work of a conversation can be pushed.

    This resumes a paused sandbox. 409 has the reason if it cannot.
    """
    _, state, _, spec, remote = _looked_at(conversation_id, query["path"], "query")
    lacks = None
    try:
        _api(state, spec, remote)
    except NoApi as refusal:
        lacks = str(refusal)
    title = state["title"] or "Changes of an agent"
    words = "-".join(re.findall(r"[a-z0-9]+", title.lower()))[:_MOST_PROPOSED].strip("-")
    return {
        **{name: getattr(remote, name) for name in ("path", "url", "branch", "base")},
        "proposed_branch": f"agent/{words or conversation_id[:8]}",
        "proposed_title": " ".join(title.split()),
        "lacks": lacks,
    }


@pushes.post("/push")
@needs("write")
@pushes.replay(remade=True)
@pushes.fails(409, 410, 429, 502)
@pushes.arguments(schemas.PushRequest())
@pushes.response(200, schemas.Push)
def push_app_conversation(wanted: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Push the changes of a conversation's folder as a branch, and optionally open a pull request.

    The traffic goes through the egress proxy. The commit's author is the caller. The audit gets an entry `push_begun`
    before the push, and the log an event `pushed` after it. The folder's own branch is unchanged, and no push is
    forced. 409 while the agent runs.
    """
    agent, state, folder, spec, remote = _looked_at(conversation_id, wanted["path"], "body")
    if wanted["url"] not in (None, remote.url):
        raise git.RemoteChanged
    if wanted["branch"] == remote.base:
        raise git.CannotPush(f"{remote.base} is the remote's default branch: choose another branch")
    base, api = wanted["base"] or remote.base, None
    if wanted["pull_request"]:
        api = _api(state, spec, remote)
        if not base:
            raise git.CannotPush(
                "The remote's default branch is not known: give the pull request's base branch as base"
            )
    author = git.author_of(g.principal.person or g.principal.belongs_to or g.principal.name)
    work = git.RequestedPush(wanted["branch"], wanted["title"].strip(), wanted["description"].strip(), author)
    commit = git.commit(agent, folder, remote, work)
    identity = str(minted("push"))
    facts = (commit, work.branch, remote.url)
    current_store.approvals.terminals.pushed(conversation_id, current_actor(), identity, *facts)
    offered = git.push(agent, folder, remote, work.branch, commit)
    made = {
        "branch": work.branch,
        "commit": commit,
        "url": remote.url,
        "pull_request": None,
        "offered_url": offered or None,
    }
    try:
        if api is not None:
            made["pull_request"] = open_request(api, remote, work, base)
    except PullRequestFailed:
        _tell(state, identity, made)
        raise
    _tell(state, identity, made)
    return made


def _tell(state: dict[str, Any], identity: str, made: dict[str, Any]) -> None:
    event = own_event(identity, "ConversationStateUpdateEvent", now(), key="pushed", value=made)
    append = current_store.events.append
    append(ConversationId(state["id"]), [event], sandbox_id=state["sandbox_id"], made_here=True)


def _looked_at(
    conversation_id: ConversationId, path: str | None, place: str
) -> tuple[AgentServer, dict[str, Any], str, Spec, git.ConversationRemote]:
    """Return a conversation's agent server, its state, its folder, its spec and its repository's remote.

    place: of `path` in the request. Raises Forbidden, CannotPush, PushFailed, and the errors of resuming a sandbox.
    """
    if not g.principal.may("approve"):
        raise Forbidden(NEEDS_BOTH)
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    join_sandbox_of(state, "Pushes the conversation's work")
    if state["execution_status"] == "running":
        raise git.CannotPush("The agent is running, so its files still change. Wait until it stops, or pause it")
    if path is not None:
        try:
            path = within(seen_folder(state), path, linked=linked_folder(state))
        except PathOutside as error:
            raise InvalidInput(place, {"path": [FieldFault(str(error), "value_error")]}) from None
    agent = current_commands.awake_agent_of(conversation_id)
    if agent is None:
        raise ConversationNotFound
    sandbox = current_store.sandboxes.get(SandboxId(state["sandbox_id"]))
    spec, folder = current_specs.get(sandbox.spec_id), folder_of(state)
    return agent, state, folder, spec, git.find_remote(agent, folder, path, spec, sandbox.egress_url)


def _api(state: dict[str, Any], spec: Spec, remote: git.ConversationRemote) -> HostApi:
    """Return the API of a remote's host, with the secrets of the sandbox's conversations in its headers.

    Raises NoApi.
    """
    api = api_of(remote, spec.services, spec.id)
    if not (names := api.service.secret_names):
        return api
    values: dict[str, str] = {}
    with suppress(SecretsRefused, UnusableSecret):
        own, _ = current_store.conversations.secrets_in(SandboxId(state["sandbox_id"]))
        values = header_values(own, names)
    return api._replace(service=api.service.with_secrets(values))
