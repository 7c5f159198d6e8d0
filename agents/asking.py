"""Permission requests of agents that run in terminals, outside of sandboxes. Source: docs/approvals.md, "Terminals".

A session is a conversation with the field `external` and without a sandbox. Its hook carries out decisions, so nothing
is delivered. A request is an ActionEvent that waits under any policy. So rules, people, links, deadlines and the audit
handle it like any other. A decision of its terminal goes through the same script, and one decision wins.

The hook renews a lease with each poll. Without it the request is withdrawn, for instance after a kill
(`agents/expiry.py`). After the hook stops waiting, only the terminal can decide. An asker's statements are not checked:
the audit marks them by the actor `terminal`.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from core.approvals import action_digest, shown_arguments
from core.cuts import beginning
from core.effects import seen
from core.incomplete import INCOMPLETE
from core.refused import RefusalKind
from core.scopes import Origin, folder_name
from core.visible import visible
from core.wire import MOST_TITLE, ConversationId, ReceivedEvent, now, own_event
from store import Store
from store.approvals.asked import AskedRequest, RequestNotFound
from store.approvals.audit import DecisionActor
from store.approvals.decisions import Decision, StaleDecision
from store.errors import UNAVAILABLE, ConversationNotFound, EventNotFound, FellBehind, Stopping, StoreError
from store.link.attempts import minted

#: Maximum number of bytes of JSON of the arguments of a call, and of characters of a result and of a prompt.
MOST_BYTES, MOST_RESULT = 512 * 1024, 64 * 1024

#: Maximum number of requests and reports of one key within a minute, and the bytes of one that count as another.
MOST_PER_MINUTE, PIECE_BYTES = 3000, 8 * 1024

#: RefusalKind of a request's action, and the notice of a request that shows less than will run.
_KIND, _INCOMPLETE = "ExternalAction", "Its agent does not show everything that will run."

#: The oldest supported version of `agentctl` hooks, and their User-Agent.
OLDEST_HOOK, _HOOK = "0.1.0", re.compile(r"agentctl/(\d{1,4})\.(\d{1,4})\.(\d{1,4}) hook")

_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")

#: Interval in seconds between two polls of an awaited request. Its lease may be shorter.
_LOOK_SECONDS = 5.0

#: Reasons of a terminal's decisions. An asker sends no reasons.
_REASONS = {"approve": "", "reject": "Refused at its terminal.", "withdraw": "Withdrawn by its asker."}
_UNASKED = "It ran, and its agent had not asked: the agent's own settings let it."
_REFUSED = "It ran, although it was refused."
_UNANSWERED = "It ran, and nobody had answered."
_UNSEEN = "Allowed, and never seen to run."

Outcome = Literal["allowed", "refused", "withdrawn", "ran"]
_VERBS: Mapping[str, Literal["approve", "reject", "withdraw"]] = {
    "allowed": "approve",
    "ran": "approve",
    "refused": "reject",
    "withdrawn": "withdraw",
}


class NotPending(StoreError):
    """The permission request was decided before the terminal reported its outcome."""

    kind = RefusalKind.CONFLICT

    def __init__(self, request: AskedRequest) -> None:
        shown = request.shown
        by = shown.get("by", {"kind": "nobody", "name": ""})
        super().__init__(
            f"not_pending: the request was {request.state} before, by {by['kind']} {by['name']}".rstrip()
            + ". Use what GET /api/v1/permission-requests/{id} answers, or send the outcome `ran`"
        )


class GateHasNoTerminal(StoreError):
    """A terminal is said to have allowed a gate, which only the inbox can allow."""

    kind = RefusalKind.CONFLICT
    words = (
        "A request of the kind `gate` has no terminal that could allow it: wait for the answer of the inbox, or send "
        "the outcome `withdrawn`"
    )


class HookTooOld(StoreError):
    """A hook of `agentctl` is of a version that this server does not understand."""

    kind = RefusalKind.CONFLICT

    def __init__(self, version: str) -> None:
        super().__init__(
            f"This hook is of agentctl {version}, and this server takes {OLDEST_HOOK} or later. Install the client of "
            "this server, then run: agentctl hook install NAME"
        )


class ArgumentsTooLong(StoreError):
    """Raised if the arguments of the call are too large."""

    kind = RefusalKind.MEMBER
    member = "arguments"
    words = f"Should have at most {MOST_BYTES} bytes of JSON: send the beginning, with `complete` false"


class AsksTooFast(StoreError):
    """Raised if the key has sent too many requests and reports within a minute."""

    kind = RefusalKind.TOO_FAST
    words = (
        f"At most {MOST_PER_MINUTE} permission requests and reports of one key within a minute, and each "
        f"{PIECE_BYTES // 1024} KiB of one count as another. Send the next one after the seconds of Retry-After"
    )
    retry_after = 60


def check_hook(user_agent: str) -> None:
    """Raise HookTooOld for an old hook of `agentctl`. Other hooks have no version."""
    if found := _HOOK.match(user_agent):
        version = ".".join(found.groups())
        if [*map(int, found.groups())] < [*map(int, OLDEST_HOOK.split("."))]:
            raise HookTooOld(version)


@dataclass(frozen=True, slots=True)
class HookSession:
    """The session of an agent, by its hook's account."""

    agent: str
    version: str
    id: str
    cwd: str
    host: str
    user: str
    mode: str = ""
    subagent: str = ""
    can_edit: bool = False  #: the agent can run edited arguments

    @classmethod
    def of(cls, agent: Mapping[str, Any], session: Mapping[str, Any]) -> "HookSession":
        """Make a session from the members of a request."""
        subagent = session["subagent"] or ""
        return cls(agent["name"], agent["version"], can_edit=agent["can_edit"], **{**session, "subagent": subagent})

    @property
    def shown(self) -> dict[str, str]:
        """Return what its conversation stores."""
        return {
            "kind": "external",
            "agent": self.agent,
            "version": self.version,
            "machine": self.host,
            "person": self.user,
            "folder": visible(self.cwd),
            "mode": self.mode,
            "session": self.id,
        }

    @property
    def title(self) -> str:
        """Return the title of its conversation, until it has a prompt."""
        return beginning(f"{self.agent} in {visible(self.cwd)}", MOST_TITLE)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool."""

    tool_name: str
    arguments: Mapping[str, Any]
    complete: bool = True

    @property
    def action(self) -> dict[str, Any]:
        """Return the action of its event. A person sees all members except `kind`."""
        arguments = dict(self.arguments)
        if not self.complete:
            return {"kind": _KIND, "data": {**arguments, INCOMPLETE: _INCOMPLETE}}
        # A member `kind` would replace the action's kind, and nobody would see it.
        return {"kind": _KIND, "data": arguments} if "kind" in arguments else {"kind": _KIND, **arguments}

    @property
    def digest(self) -> str:
        return action_digest(self.tool_name, shown_arguments(self.action))

    def size(self) -> int:
        """Return the bytes of JSON of the arguments. Raises ArgumentsTooLong."""
        size = len(json.dumps(self.arguments, ensure_ascii=False).encode(errors="replace"))
        if size > MOST_BYTES:
            raise ArgumentsTooLong
        return size

    def event(self, identity: str, summary: str | None = None) -> ReceivedEvent:
        """Return its ActionEvent."""
        return own_event(
            identity,
            "ActionEvent",
            now(),
            "agent",
            thought=[],
            tool_name=self.tool_name,
            tool_call_id=identity,
            llm_response_id=identity,
            security_risk="UNKNOWN",
            summary=summary,
            action=self.action,
        )

    def observed(self, action_id: str, result: Any = None, *, is_error: bool = False) -> ReceivedEvent:
        """Return the ObservationEvent of an action that has run. Each action has one."""
        text = _text_of(result)
        content = [{"type": "text", "text": text}] if text else []
        return own_event(
            observation_id(action_id),
            "ObservationEvent",
            now(),
            tool_name=self.tool_name,
            tool_call_id=action_id,
            action_id=action_id,
            report_id=str(minted("report")),
            observation={"kind": "ExternalObservation", "content": content, "is_error": is_error},
        )


def _text_of(result: Any) -> str:
    """Return the result of a call as a text, truncated."""
    text = result if isinstance(result, str) else "" if result is None else json.dumps(result, ensure_ascii=False)
    return beginning(text, MOST_RESULT)


def observation_id(action_id: str) -> str:
    """Return the id of an action's ObservationEvent."""
    return str(uuid5(NAMESPACE_URL, f"{action_id} ran"))


class Asking:
    """The operations of a key with the scope `ask`."""

    def __init__(self, store: Store, key_id: str, actor: DecisionActor) -> None:
        """key_id: of the asker. actor: the asker as the audit names them."""
        self._store = store
        self._key = key_id
        self._actor = actor

    def _count(self, size: int = 0) -> None:
        """Count a request or report of this size in bytes. Raises AsksTooFast."""
        if self._store.access.counters.hit(f"asks {self._key}", 60, 1 + size // PIECE_BYTES) > MOST_PER_MINUTE:
            raise AsksTooFast

    def _id(self, session: HookSession) -> ConversationId:
        name = json.dumps(["external", self._key, session.agent, session.host, session.id])
        return ConversationId(str(uuid5(NAMESPACE_URL, name)))

    def _terminal(self, external: Mapping[str, str]) -> DecisionActor:
        """Return the terminal of a session as the audit names it, by the asker's account."""
        name = f"{external['person'] or 'somebody'}@{external['machine']}"
        return DecisionActor("terminal", name, self._actor.address)

    def _begin(self, session: HookSession) -> ConversationId:
        """Return the conversation of a session, and create it if necessary.

        Raises TooMuchAsked; RequestNotFound if another conversation has its id.
        """
        conversation_id = self._id(session)
        if self._external(conversation_id) is None:
            self._store.approvals.asked.hold_session(self._key, conversation_id)
            self._store.conversations.create(
                conversation_id,
                confirmation_policy={"kind": "AlwaysConfirm"},
                title=session.title,
                origin=Origin(
                    self._key,
                    folder=folder_name(session.cwd),
                    machine=session.host,
                    person=session.user,
                    agent=session.agent,
                ),
                owner=self._actor.name,
                external={**session.shown, "can_edit": session.can_edit},
                workspace={"kind": "LocalWorkspace", "working_dir": session.cwd},
            )
            if self._external(conversation_id) is None:
                raise RequestNotFound
        return conversation_id

    def _external(self, conversation_id: ConversationId) -> Mapping[str, str] | None:
        """Return the session of a conversation of this key; None if there is none.

        Raises RequestNotFound for another key's conversation.
        """
        [state] = self._store.conversations.get_many([conversation_id])
        if state is None:
            return None
        external, origin = state["external"], Origin.of(state["origin"] or {})
        if not external or origin.key_id != self._key:
            raise RequestNotFound
        return external  # type: ignore[no-any-return]

    def open(self, session: HookSession, call: ToolCall, ask: Mapping[str, Any]) -> AskedRequest:
        """Open a request. Rules decide it at once.

        ask: kind, order, lease and patience, the last two in seconds. Raises ArgumentsTooLong, AsksTooFast,
        TooMuchAsked, TooManyPending, LogTooLong and StoreFull.
        """
        self._count(call.size())
        conversation_id, action_id = self._begin(session), str(minted("request"))
        self._store.approvals.asked.hold(self._key, conversation_id, action_id, ask)
        asked = {**ask, "subagent": session.subagent}
        self._store.events.append(conversation_id, [call.event(action_id)], made_here=True, asked=asked)
        return self._settled(self._store.approvals.asked.read(conversation_id, action_id, self._key))

    def look(self, request_id: str, *, renews: bool = True) -> AskedRequest:
        """Return the state of a request, and renew its lease. Raises RequestNotFound."""
        if not (named := _ID.fullmatch(request_id)):
            raise RequestNotFound
        conversation_id, action_id = named.groups()
        asked = self._store.approvals.asked
        request = asked.read(ConversationId(conversation_id), action_id, self._key, renews=renews)
        if request.is_due:  # the sweep has not reached it yet
            with suppress(ConversationNotFound):
                self._store.approvals.confirmations.expire(request.conversation_id)
            request = asked.read(request.conversation_id, action_id, self._key)
        if renews and request.state == "pending" and request.record:
            asked.hold(self._key, request.conversation_id, action_id, request.record["ask"])
        return self._settled(request)

    def _settled(self, request: AskedRequest) -> AskedRequest:
        if request.state not in ("pending", "expired"):
            self._store.approvals.asked.leave(self._key, request)
        return request

    def wait(self, request_id: str, seconds: float, check: Callable[[], None] = lambda: None) -> AskedRequest:
        """Wait until a request is answered, within a timeout in seconds. Raises RequestNotFound.

        check: called between two polls; its errors end the wait.
        """
        deadline = time.monotonic() + seconds
        request = self.look(request_id)
        with ExitStack() as stack:
            follower = None
            while request.state == "pending" and (left := deadline - time.monotonic()) > 0:
                check()
                lease = request.record["ask"]["lease"] if request.record else _LOOK_SECONDS
                pause = min(left, _LOOK_SECONDS, lease / 3)
                try:
                    if follower is None:
                        follower = stack.enter_context(self._store.streams.events.follow(request.conversation_id, None))
                    else:
                        follower.next(pause)
                except FellBehind:
                    follower = None
                except (Stopping, ConversationNotFound):
                    break
                except UNAVAILABLE:
                    break
                request = self.look(request_id)
        return request

    def tell(
        self,
        request: AskedRequest,
        outcome: Outcome,
        call: ToolCall | None = None,
        result: Any = None,
        *,
        is_error: bool = False,
    ) -> AskedRequest:
        """Record the outcome of a request at its terminal. A repeat changes nothing.

        call: as it ran, with its result. A gate that has run is withdrawn, because its key may not allow it. Raises
        GateHasNoTerminal, and NotPending if the request was decided differently before. `report_call` records a call
        that ran nevertheless.
        """
        identity, verb = request.id, _VERBS[outcome]
        external = self._external(request.conversation_id)
        if external is None:
            raise RequestNotFound
        terminal = self._terminal(external)
        if request.state in ("pending", "expired"):
            decided = verb
            if verb == "approve" and request.is_gate:
                if outcome == "allowed":
                    raise GateHasNoTerminal
                decided = "withdraw"
            decision = Decision(request.action_id, decided, _REASONS[decided])
            with suppress(StaleDecision):  # another decision has won
                self._store.approvals.confirmations.decide_each(
                    request.conversation_id, [decision], terminal, at_terminal=True
                )
            request = self.look(identity, renews=False)
        wanted = {"approve": "approved", "reject": "rejected", "withdraw": "withdrawn"}[verb]
        if outcome == "ran" and request.state in ("rejected", "withdrawn"):
            ran = call or self._call_of(request)
            reason = _REFUSED if request.state == "rejected" else _UNANSWERED
            self._ran_unasked(request.conversation_id, ran, terminal, reason, result, is_error=is_error)
        elif request.state != wanted or (outcome != "ran" and not _is_by(request, terminal)):
            raise NotPending(request)
        elif outcome == "ran":
            observed = (call or self._call_of(request)).observed(request.action_id, result, is_error=is_error)
            self._store.events.append(request.conversation_id, [observed], made_here=True, actor=terminal)
        return request

    def _call_of(self, request: AskedRequest) -> ToolCall:
        try:
            event = json.loads(self._store.events.get(request.conversation_id, request.action_id))
        except EventNotFound:
            raise RequestNotFound from None
        return ToolCall(event["tool_name"], shown_arguments(event["action"]))

    def tell_of_call(self, session: HookSession, call: ToolCall, outcome: Outcome) -> AskedRequest:
        """Record the outcome of a call without an id: of the request that `Asked.of_call` finds.

        Raises RequestNotFound if there is none.
        """
        self._count()
        conversation_id = self._id(session)
        has_run = outcome == "ran"
        found = self._store.approvals.asked.of_call(conversation_id, call.digest, session.subagent, has_run=has_run)
        if found is None:
            raise RequestNotFound
        return self.tell(self._store.approvals.asked.read(conversation_id, found, self._key), outcome, call)

    def report_call(self, session: HookSession, call: ToolCall, result: Any, *, is_error: bool) -> None:
        """Record a call that has run. It closes its request; without a request it is shown as unapproved.

        The audit has each call that was refused or that we rate HIGH. For other calls that the agent's own settings
        allowed, it has the first call of each tool in a session. The log and a count have all calls.
        """
        self._count(call.size() + len(_text_of(result)))
        conversation_id = self._begin(session)
        asked, terminal = self._store.approvals.asked, self._terminal(session.shown)
        closed_by = self._observed_by(conversation_id, asked.last_allowed(conversation_id, call.digest))
        if closed_by == str(minted("report")):
            return  # an earlier attempt has closed the action, and its response was lost
        found = asked.of_call(conversation_id, call.digest, session.subagent, has_run=True)
        if found is None:
            reason = _REFUSED if asked.was_refused(conversation_id, call.digest) else _UNASKED
            audited = (
                reason == _REFUSED
                or seen(call.tool_name, shown_arguments(call.action), session.cwd).risk == "HIGH"
                or not asked.is_known_unasked(conversation_id, call.tool_name, call.digest, _UNASKED)
            )
            self._ran_unasked(conversation_id, call, terminal, reason, result, is_error=is_error, audited=audited)
            return
        request = asked.read(conversation_id, found, self._key)
        self.tell(request, "ran", call, result, is_error=is_error)

    def _observed_by(self, conversation_id: ConversationId, action_id: str | None) -> str | None:
        """Return the report that observed an action; None if there is none."""
        if action_id is None:
            return None
        [event] = self._store.events.get_many(conversation_id, [observation_id(action_id)])
        return json.loads(event).get("report_id") if event else None

    def _ran_unasked(
        self,
        conversation_id: ConversationId,
        call: ToolCall,
        terminal: DecisionActor,
        reason: str,
        result: Any,
        *,
        is_error: bool = False,
        audited: bool = True,
    ) -> None:
        """Append an unapproved call. audited: false: only the log has the call, with the reason why it ran."""
        identity = str(minted("ran"))
        event = call.event(identity, None if audited else reason)
        events = [event, call.observed(identity, result, is_error=is_error)]
        self._store.events.append(
            conversation_id, events, made_here=True, actor=terminal, unasked=reason, audited=audited
        )

    def report_prompt(self, session: HookSession, text: str) -> None:
        """Record a person's prompt to the agent. The first prompt becomes the conversation's title."""
        text = beginning(text, MOST_RESULT)
        self._count(len(text))
        conversation_id = self._begin(session)
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        event = own_event(str(minted("prompt")), "MessageEvent", now(), "user", llm_message=message)
        self._store.events.append(conversation_id, [event], made_here=True)
        [state] = self._store.conversations.get_many([conversation_id])
        line = " ".join(visible(text).split())
        if state and state["title"] == session.title and line:
            title = beginning(f"{session.agent}: {line}", MOST_TITLE)
            self._store.conversations.update(conversation_id, title=title)

    def report_turn(self, session: HookSession) -> None:
        """Record the end of a turn: withdraw requests that only the terminal could decide and that did not run."""
        self._count()
        conversation_id = self._id(session)
        if self._external(conversation_id) is not None:
            waiting, _ = self._store.approvals.asked.open_ids(conversation_id, in_terminal=True)
            self._withdraw(conversation_id, waiting, self._terminal(session.shown))

    def report_end(self, session: HookSession) -> None:
        """Record the end of a session: withdraw pending requests, and report allowed calls that never ran."""
        self._count()
        conversation_id = self._id(session)
        if self._external(conversation_id) is None:
            return
        waiting, allowed = self._store.approvals.asked.open_ids(conversation_id)
        self._withdraw(conversation_id, waiting, self._terminal(session.shown))
        unseen = [
            own_event(
                str(uuid5(NAMESPACE_URL, f"{action_id} unseen")),
                "AgentErrorEvent",
                now(),
                "agent",
                tool_name=json.loads(event)["tool_name"],
                tool_call_id=action_id,
                error=_UNSEEN,
            )
            for action_id in allowed
            if (event := self._store.events.get_many(conversation_id, [action_id])[0])
        ]
        end = own_event(
            str(minted("end")), "ConversationStateUpdateEvent", now(), key="execution_status", value="finished"
        )
        self._store.events.append(conversation_id, [*unseen, end], made_here=True)

    def _withdraw(self, conversation_id: ConversationId, action_ids: list[str], terminal: DecisionActor) -> None:
        for action_id in action_ids:
            decision = Decision(action_id, "withdraw", _REASONS["withdraw"])
            with suppress(StaleDecision):
                self._store.approvals.confirmations.decide_each(conversation_id, [decision], terminal, at_terminal=True)
            self.look(f"{conversation_id}.{action_id}", renews=False)  # stop counting it


def _is_by(request: AskedRequest, actor: DecisionActor) -> bool:
    by = request.shown.get("by", {})
    return (by.get("kind"), by.get("name")) == (actor.kind, beginning(actor.name, 256))
