"""What clients ask of the agent of a conversation beyond messages, runs and decisions. Source: the agent-server wire.

The agent server does it and answers; what changes by it comes back by the webhooks. A request goes there as it came and
is stored nowhere here: it may hold the key of a model.

Guarantee: no verb decides what waits. An agent server takes a step when it is asked to condense, or to pursue a goal,
and its step executes every action that is open. So these are refused while an action waits, and while a decision is on
its way; and where a verb re-roots the log, what is open on the new branch is rejected before anything can run there.
The loop of a goal runs on whatever waits between its rounds, so it needs a policy that holds nothing back.
"""

import json
from collections.abc import Callable
from typing import Any

from agents.forwarding import Call, Forwarding
from agents.link import MOST_BYTES as MOST_REPLY_BYTES
from agents.link import AgentUnreachable, ResponseTooLong
from redaction import without_inputs, without_secrets_of
from store import Store
from store.approvals.claims import message_claim, reject_claim
from store.errors import IllegalMove
from store.link import attempts
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId, InvalidJson, parse_json

#: statuses of an agent server that are about the request, and so are the client's to see
_OF_THE_REQUEST = (400, 404, 409, 422, 429, 504)

#: verbs by which an agent server takes a step, beside its runs
_LOOPING = ("goal", "goal/resume")
_STEPPING = ("condense", *_LOOPING, "navigate")

#: reason of the rejection of an action that is open where a conversation is navigated to, or in a copy of it
_RE_ROOTED = "This action was not executed on this branch of the conversation: it needs a new proposal."

_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class ActionsWait(Exception):
    """A verb would execute actions that wait for a decision, or that a decision is on its way to."""

    def __init__(self, verb: str) -> None:
        super().__init__(f"Cannot {verb}: actions wait for a decision, which this would take. Answer them first")


class HoldsBack(Exception):
    """A goal's loop would execute actions that the policy holds back, without asking anybody."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"Cannot {verb}: the agent's loop would execute what the confirmation policy holds back. "
            "It needs the policy NeverConfirm"
        )


class VerbRefused(Exception):
    """The agent server refuses a request; detail: what it says, a text or the list of an HTTPValidationError."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(f"The agent server answered {status}")
        self.status, self.detail = status, detail


class Verbs:
    """Every method raises ConversationNotFound, Detached, VerbRefused and what `Forwarding.open` raises."""

    def __init__(self, store: Store, forwarding: Forwarding, require_client: Callable[[], None]) -> None:
        """require_client: raises ClientGone once nobody waits for the response."""
        self.store = store
        self.forwarding = forwarding
        self._require_client = require_client

    def ask(self, conversation_id: ConversationId, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Have the agent server of a conversation do something; its response.

        Raises ActionsWait, HoldsBack, IllegalMove, OutcomeUnknown.
        """
        attempts.refuse_later()
        sandbox_id = self.forwarding.sandbox_of(conversation_id)
        if verb in _STEPPING:
            self._require_none_waits(sandbox_id, conversation_id, verb)
        if verb == "goal":
            content = [{"type": "text", "text": body["objective"]}]
            self.store.echoes.expect(conversation_id, [message_claim(content)])
        attempts.note_reach()
        return self.call(sandbox_id, "POST", f"{conversation_id}/{verb}", body)

    def navigate(self, conversation_id: ConversationId, event_id: str | None) -> dict[str, Any]:
        """Move the head of a conversation's log to an event; the agent server's description of the conversation.

        Raises as `ask`.
        """
        info = self.ask(conversation_id, "navigate", {"event_id": event_id})
        sandbox_id = self.forwarding.sandbox_of(conversation_id)
        if event_id is not None:
            self.store.echoes.expect(conversation_id, [reject_claim(event_id)])
        self.close_open_actions(sandbox_id, conversation_id)
        return info

    def close_open_actions(self, sandbox_id: SandboxId, conversation_id: ConversationId) -> None:
        """Have the agent server reject what is open on the present branch; nothing happens where nothing is."""
        body = {"accept": False, "reason": _RE_ROOTED}
        self.call(sandbox_id, "POST", f"{conversation_id}/events/respond_to_confirmation", body)

    def call(self, sandbox_id: SandboxId, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One exchange about a conversation; path: below those of conversations."""
        content = None if body is None else json.dumps(body).encode()
        call = Call(method, f"/api/conversations/{path}", b"", _HEADERS.get, content)
        answer = self.forwarding.open(sandbox_id, call._replace(require_client=self._require_client))
        try:
            raw = bytearray()
            for piece in answer:
                raw += piece
                if len(raw) > MOST_REPLY_BYTES:
                    raise ResponseTooLong
        finally:
            answer.close()
        try:
            return _reply(answer.status, bytes(raw))
        except VerbRefused as refusal:
            raise VerbRefused(refusal.status, without_secrets_of(body, refusal.detail)) from None

    def _require_none_waits(self, sandbox_id: SandboxId, conversation_id: ConversationId, verb: str) -> None:
        """Raises ActionsWait, and IllegalMove while the agent runs: it could wait when its run has ended."""
        if self.store.deliveries.get(conversation_id) or self.store.confirmations.pending(conversation_id):
            raise ActionsWait(verb)
        state = self.call(sandbox_id, "GET", conversation_id)
        status = state.get("execution_status")
        if status == "waiting_for_confirmation":
            raise ActionsWait(verb)
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
        raise VerbRefused(status, without_inputs(detail))
    raise AgentUnreachable(f"The agent server answered {status}, and not as its wire says")
