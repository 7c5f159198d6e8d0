"""Requests of clients to a conversation's agent beside messages, runs and decisions. Source: the agent-server wire.

The agent server handles and answers them; its webhooks report the changes. Requests are forwarded unchanged and not
stored, because they may contain the key of a model.

Guarantee: no verb decides pending actions. An agent server that condenses or pursues a goal takes a step, which
executes every open action. So these verbs are refused while an action waits or a decision is in flight. If a verb
re-roots the log, open actions of the new branch are rejected before anything can run. The loop of a goal runs over
actions that wait between its rounds, so it needs a policy under which nothing waits.

An agent server copies a conversation inside the sandbox, so that the copy can run. First the agent server copies, then
open actions of its copy are rejected, and then the copy becomes a conversation here. So nobody can run a copy with
unapproved actions, and an interrupted copy leaves nothing here. If an agent server cannot copy, like the reference
agent, the copy is detached.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agents.client import MOST_BYTES, AgentRefused, AgentUnreachable, ResponseTooLong
from agents.forwarding import ClientGone, ForwardedCall, Forwarding
from agents.waking import NotReachable
from core.masking import without_inputs, without_secrets_of
from core.refused import RefusalKind, Refused
from core.wire import ConversationId, InvalidJson, parse_json
from store import Store
from store.approvals.effects import message_claim, reject_claim
from store.conversations.copies import Copy
from store.errors import IdInUse, IllegalMove
from store.link import attempts
from store.link.attempts import is_finished, is_later, minted, note_reach
from store.sandboxes.sandboxes import SandboxId

#: Statuses of an agent server about the client's request, which the client gets.
_OF_THE_REQUEST = (400, 404, 409, 422, 429, 504)

#: Verbs by which an agent server takes a step, beside its runs.
_LOOPING = ("goal", "goal/resume")
_STEPPING = ("condense", *_LOOPING, "navigate")

#: Reason for rejecting an open action at the target of a navigation, or in a copy.
_RE_ROOTED = "This action was not executed on this branch of the conversation: it needs a new proposal."

_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class WouldExecute(Refused):
    """The operation would execute actions that are pending, or whose decision is being delivered."""

    kind = RefusalKind.CONFLICT

    def __init__(self, verb: str) -> None:
        super().__init__(f"Cannot {verb}: decide the pending actions first")


class HoldsBack(Refused):
    """The loop of a goal would execute actions that need approval."""

    kind = RefusalKind.CONFLICT

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"Cannot {verb}: the agent's loop would execute what the confirmation policy holds back. "
            "It needs the policy NeverConfirm"
        )


class Verbs:
    """Requests to agents. Every method raises ConversationNotFound, Detached, AgentRefused and the errors of

    `Forwarding.open`.
    """

    def __init__(self, store: Store, forwarding: Forwarding, require_client: Callable[[], None]) -> None:
        """require_client: raises ClientGone if the client has disconnected."""
        self.store = store
        self.forwarding = forwarding
        self._require_client = require_client

    def ask(self, conversation_id: ConversationId, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a verb to the agent server of a conversation, and return its response.

        Raises WouldExecute, HoldsBack, IllegalMove, OutcomeUnknown.
        """
        attempts.refuse_later()
        sandbox_id = self.forwarding.sandbox_of(conversation_id)
        if verb in _STEPPING:
            self._require_idle(sandbox_id, conversation_id, verb)
        if verb == "goal":
            content = [{"type": "text", "text": body["objective"]}]
            self.store.sandboxes.echoes.expect(conversation_id, [message_claim(content)])
        attempts.note_reach()
        return self.call(sandbox_id, "POST", f"{conversation_id}/{verb}", body)

    def navigate(self, conversation_id: ConversationId, event_id: str | None) -> dict[str, Any]:
        """Move the head of a conversation's log to an event. Return the agent server's description of the conversation.

        Raises the errors of `ask`.
        """
        info = self.ask(conversation_id, "navigate", {"event_id": event_id})
        sandbox_id = self.forwarding.sandbox_of(conversation_id)
        if event_id is not None:
            self.store.sandboxes.echoes.expect(conversation_id, [reject_claim(event_id)])
        self.close_open_actions(sandbox_id, conversation_id)
        return info

    def close_open_actions(self, sandbox_id: SandboxId, conversation_id: ConversationId) -> None:
        """Have the agent server reject open actions of the current branch, if there are any."""
        body = {"accept": False, "reason": _RE_ROOTED}
        self.call(sandbox_id, "POST", f"{conversation_id}/events/respond_to_confirmation", body)

    def call(self, sandbox_id: SandboxId, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make a request about a conversation. path: below /api/conversations/."""
        content = None if body is None else json.dumps(body).encode()
        call = ForwardedCall(method, f"/api/conversations/{path}", b"", _HEADERS.get, content)
        answer = self.forwarding.open(sandbox_id, call._replace(require_client=self._require_client))
        try:
            raw = bytearray()
            for piece in answer:
                raw += piece
                if len(raw) > MOST_BYTES:
                    raise ResponseTooLong
        finally:
            answer.close()
        try:
            return _reply(answer.status, bytes(raw))
        except AgentRefused as refusal:
            raise AgentRefused(refusal.status, shown=without_secrets_of(body, refusal.shown)) from None

    def _require_idle(self, sandbox_id: SandboxId, conversation_id: ConversationId, verb: str) -> None:
        """Raise WouldExecute, and IllegalMove while the agent runs, because it could wait after its run."""
        if self.store.approvals.deliveries.get(conversation_id) or self.store.approvals.confirmations.pending(
            conversation_id
        ):
            raise WouldExecute(verb)
        state = self.call(sandbox_id, "GET", conversation_id)
        status = state.get("execution_status")
        if status == "waiting_for_confirmation":
            raise WouldExecute(verb)
        if status == "running":
            raise IllegalMove(verb, "running")
        if verb in _LOOPING and not _lets_all_pass(state.get("confirmation_policy")):
            raise HoldsBack(verb)


def _lets_all_pass(policy: Any) -> bool:
    return isinstance(policy, dict) and policy.get("kind") == "NeverConfirm"


def _reply(status: int, raw: bytes) -> dict[str, Any]:
    try:
        reply = parse_json(raw)
    except InvalidJson:
        reply = None
    if 200 <= status < 300 and isinstance(reply, dict):
        return reply
    detail = reply.get("detail") if isinstance(reply, dict) else None
    if status in _OF_THE_REQUEST and (isinstance(detail, str) or (status == 422 and isinstance(detail, list))):
        raise AgentRefused(status, shown=without_inputs(detail))
    raise AgentUnreachable(f"The agent server answered {status}, and not as its wire says")


def fork(verbs: Verbs, source: ConversationId, request: dict[str, Any], key_id: str) -> ConversationId:
    """Copy a conversation as `Forks.fork` does, and at its agent server if it has one. key_id: of the caller.

    A deletion of the copy's id ends the copy at every step, also at the agent. Raises the errors of `Forks.fork` and
    `Verbs.call`, and TooManyConversations.
    """
    store = verbs.store
    sandbox_id = store.conversations.sandbox_of(source)
    if sandbox_id is None or is_finished():
        return store.conversations.forks.fork(source, **request, key_id=key_id)
    target = ConversationId(request.get("id") or str(minted("conversation")))
    request = {**request, "id": target}
    [known] = store.conversations.get_many([target])
    if known is not None:
        if not is_later():
            raise IdInUse
        return store.conversations.forks.fork(source, **request, sandbox_id=sandbox_id, key_id=key_id)
    took = store.sandboxes.places.take(sandbox_id, target, made=False)
    made: bool | None = False
    copy: Copy | None = None
    try:
        copy = store.conversations.forks.begin(target, sandbox_id)
        made = _fork_at_agent(verbs, SandboxId(sandbox_id), source, request)
        if made is None:
            store.sandboxes.places.leave(sandbox_id, target)
            return store.conversations.forks.fork(source, **request, copy=copy, key_id=key_id)
        verbs.close_open_actions(SandboxId(sandbox_id), target)
        open_actions = {*store.approvals.confirmations.open_ids(source), *filter(None, [request.get("from_event_id")])}
        claims = [reject_claim(action_id) for action_id in open_actions]
        store.conversations.forks.fork(
            source, **request, sandbox_id=sandbox_id, claims=claims, copy=copy, key_id=key_id
        )
        store.sandboxes.places.take(sandbox_id, target, made=True)
        if store.conversations.get_many([target]) == [None]:  # it was deleted before its place was permanent
            store.sandboxes.places.leave(sandbox_id, target, made=True)
    except BaseException:
        if copy:
            store.conversations.forks.close(copy)
        if took:
            store.sandboxes.places.leave(sandbox_id, target)
        if made:
            _remove(verbs, SandboxId(sandbox_id), target)
        raise
    return target


def _fork_at_agent(verbs: Verbs, sandbox_id: SandboxId, source: ConversationId, request: dict[str, Any]) -> bool | None:
    """Return whether this call made the copy, not an earlier attempt. None: the agent server cannot copy."""
    note_reach()
    try:
        verbs.call(sandbox_id, "POST", f"{source}/fork", request)
    except AgentRefused as refusal:
        if refusal.status == 409 and is_later():
            return False
        if refusal.status == 404 and "from_event_id" not in refusal.shown:
            verbs.call(sandbox_id, "GET", source)  # raises if it does not know the conversation
            return None
        raise
    return True


def _remove(verbs: Verbs, sandbox_id: SandboxId, target: ConversationId) -> None:
    with suppress(AgentUnreachable, NotReachable, AgentRefused, ClientGone):
        verbs.call(sandbox_id, "DELETE", target)
