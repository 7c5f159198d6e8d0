"""What clients ask of the agent of a conversation beyond messages, runs and decisions. Source: the agent-server wire.

The agent server does it and answers; what changes by it comes back by the webhooks. A request goes there as it came and
is stored nowhere here: it may hold the key of a model.

Guarantee: no verb decides what waits. An agent server takes a step when it is asked to condense, or to pursue a goal,
and its step executes every action that is open. So these are refused while an action waits, and while a decision is on
its way; and where a verb re-roots the log, what is open on the new branch is rejected before anything can run there.
The loop of a goal runs on whatever waits between its rounds, so it needs a policy that holds nothing back.

A copy of a conversation in a sandbox is made by its agent server too, in the same sandbox: it can run. The agent server
copies first, then what is open in its copy is rejected, and only then the copy is a conversation here. So nobody can
run a copy whose actions nobody has approved, and a copy that is interrupted leaves nothing here. An agent server that
makes no copies, as the reference agent, leaves the copy detached.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agents.client import MOST_BYTES, AgentRefused, AgentUnreachable, ResponseTooLong
from agents.forwarding import ClientGone, ForwardedCall, Forwarding
from agents.waking import NotReachable
from core.masking import without_inputs, without_secrets_of
from core.refused import Kind, Refused
from core.wire import ConversationId, InvalidJson, parse_json
from store import Store
from store.approvals.effects import message_claim, reject_claim
from store.conversations.copies import Copy
from store.errors import IdInUse, IllegalMove
from store.link import attempts
from store.link.attempts import is_finished, is_later, minted, note_reach
from store.sandboxes.sandboxes import SandboxId

#: statuses of an agent server that are about the request, and so are the client's to see
_OF_THE_REQUEST = (400, 404, 409, 422, 429, 504)

#: verbs by which an agent server takes a step, beside its runs
_LOOPING = ("goal", "goal/resume")
_STEPPING = ("condense", *_LOOPING, "navigate")

#: reason of the rejection of an action that is open where a conversation is navigated to, or in a copy of it
_RE_ROOTED = "This action was not executed on this branch of the conversation: it needs a new proposal."

_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class WouldExecute(Refused):
    """The operation would execute actions that are pending, or whose decision is being delivered."""

    kind = Kind.CONFLICT

    def __init__(self, verb: str) -> None:
        super().__init__(f"Cannot {verb}: decide the pending actions first")


class HoldsBack(Refused):
    """The loop of a goal would execute actions that need approval."""

    kind = Kind.CONFLICT

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"Cannot {verb}: the agent's loop would execute what the confirmation policy holds back. "
            "It needs the policy NeverConfirm"
        )


class Verbs:
    """Every method raises ConversationNotFound, Detached, AgentRefused and what `Forwarding.open` raises."""

    def __init__(self, store: Store, forwarding: Forwarding, require_client: Callable[[], None]) -> None:
        """require_client: raises ClientGone once nobody waits for the response."""
        self.store = store
        self.forwarding = forwarding
        self._require_client = require_client

    def ask(self, conversation_id: ConversationId, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Have the agent server of a conversation do something; its response.

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
        """Move the head of a conversation's log to an event; the agent server's description of the conversation.

        Raises as `ask`.
        """
        info = self.ask(conversation_id, "navigate", {"event_id": event_id})
        sandbox_id = self.forwarding.sandbox_of(conversation_id)
        if event_id is not None:
            self.store.sandboxes.echoes.expect(conversation_id, [reject_claim(event_id)])
        self.close_open_actions(sandbox_id, conversation_id)
        return info

    def close_open_actions(self, sandbox_id: SandboxId, conversation_id: ConversationId) -> None:
        """Have the agent server reject what is open on the present branch; nothing happens where nothing is."""
        body = {"accept": False, "reason": _RE_ROOTED}
        self.call(sandbox_id, "POST", f"{conversation_id}/events/respond_to_confirmation", body)

    def call(self, sandbox_id: SandboxId, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One exchange about a conversation; path: below those of conversations."""
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
        """Raises WouldExecute, and IllegalMove while the agent runs: it could wait when its run has ended."""
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
    """Copy a conversation as `Forks.fork` does, and at its agent server where it has one.

    key_id: of the key that asks.
    A deletion of the copy's id ends it at every step, and the agent's copy goes with it. Raises what `Forks.fork` and
    `Verbs.call` raise, and TooManyConversations.
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
        if store.conversations.get_many([target]) == [None]:  # it was deleted before it had its place for good
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
    """Whether this call made the copy, and not an earlier attempt at it. None: this agent server makes no copies."""
    note_reach()
    try:
        verbs.call(sandbox_id, "POST", f"{source}/fork", request)
    except AgentRefused as refusal:
        if refusal.status == 409 and is_later():
            return False
        if refusal.status == 404 and "from_event_id" not in refusal.shown:
            verbs.call(sandbox_id, "GET", source)  # which it knows, unless this raises
            return None
        raise
    return True


def _remove(verbs: Verbs, sandbox_id: SandboxId, target: ConversationId) -> None:
    with suppress(AgentUnreachable, NotReachable, AgentRefused, ClientGone):
        verbs.call(sandbox_id, "DELETE", target)
