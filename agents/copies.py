"""Copies of conversations. A copy of one in a sandbox is made by its agent server too, in the same sandbox: it can run.

The agent server copies first, then what is open in its copy is rejected, and only then the copy is a conversation here.
So nobody can run a copy whose actions nobody has approved, and a copy that is interrupted leaves nothing here.

An agent server that makes no copies, as the reference agent, leaves the copy detached.
"""

from contextlib import suppress
from typing import Any

from agents.forwarding import ClientGone
from agents.link import AgentUnreachable
from agents.reach import NotReachable
from agents.verbs import VerbRefused, Verbs
from store.approvals.claims import reject_claim
from store.errors import IdInUse
from store.link.attempts import is_finished, is_later, minted, note_reach
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId


def fork(verbs: Verbs, source: ConversationId, request: dict[str, Any]) -> ConversationId:
    """Copy a conversation as `Forks.fork` does, and at its agent server where it has one.

    Raises what `Forks.fork` and `Verbs.call` raise, and TooManyConversations.
    """
    store = verbs.store
    sandbox_id = store.conversations.sandbox_of(source)
    if sandbox_id is None or is_finished():
        return store.forks.fork(source, **request)
    target = ConversationId(request.get("id") or str(minted("conversation")))
    request = {**request, "id": target}
    [known] = store.conversations.get_many([target])
    if known is not None:
        if not is_later():
            raise IdInUse
        return store.forks.fork(source, **request, sandbox_id=sandbox_id)
    took = store.places.take(sandbox_id, target, made=False)
    made: bool | None = False
    try:
        made = _fork_at_agent(verbs, SandboxId(sandbox_id), source, request)
        if made is None:
            store.places.leave(sandbox_id, target)
            return store.forks.fork(source, **request)
        verbs.close_open_actions(SandboxId(sandbox_id), target)
        open_actions = {*store.confirmations.open_ids(source), *filter(None, [request.get("from_event_id")])}
        claims = [reject_claim(action_id) for action_id in open_actions]
        store.forks.fork(source, **request, sandbox_id=sandbox_id, claims=claims)
        store.places.take(sandbox_id, target, made=True)
    except BaseException:
        if took:
            store.places.leave(sandbox_id, target)
        if made:
            _remove(verbs, SandboxId(sandbox_id), target)
        raise
    return target


def _fork_at_agent(verbs: Verbs, sandbox_id: SandboxId, source: ConversationId, request: dict[str, Any]) -> bool | None:
    """Whether this call made the copy, and not an earlier attempt at it. None: this agent server makes no copies."""
    note_reach()
    try:
        verbs.call(sandbox_id, "POST", f"{source}/fork", request)
    except VerbRefused as refusal:
        if refusal.status == 409 and is_later():
            return False
        if refusal.status == 404 and "from_event_id" not in refusal.detail:
            verbs.call(sandbox_id, "GET", source)  # which it knows, unless this raises
            return None
        raise
    return True


def _remove(verbs: Verbs, sandbox_id: SandboxId, target: ConversationId) -> None:
    with suppress(AgentUnreachable, NotReachable, VerbRefused, ClientGone):
        verbs.call(sandbox_id, "DELETE", target)
