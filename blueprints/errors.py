"""The shape of every error: a 422 is an HTTPValidationError, any other status has `{"detail": "text"}`.

| cause                                             | status                              |
|---------------------------------------------------|-------------------------------------|
| a refusal of path, query or body; JSON that is none | 422                               |
| ConversationNotFound, EventNotFound               | 404                                 |
| SandboxNotFound, SpecNotFound, StartTaskNotFound  | 404                                 |
| NobodyReceives; TooManyQueued                     | 409; 429                            |
| FileNotKept; FileTooLong; FileUnreadable          | 404; 413; 502                       |
| IllegalMove, IdInUse, SandboxRefuses, TooManyPending | 409                              |
| TooManySandboxes, TooManyStopped, TooManyConversations, TooManyStarts | 429             |
| TooManyIdempotencyKeys, QuotaExceeded             | 429                                 |
| RateLimitExceeded; IdempotencyKeyBusy             | 429; 409, both with `Retry-After`   |
| IdempotencyKeyReused                              | 422, which names the header         |
| OutcomeUnknown, ResponseNotKept, NoTargets        | 409                                 |
| UnknownTarget                                     | 422, which names the body           |
| ArchiveUnreadable, ArchiveTooLarge                | 400, 413                            |
| ArchiveRefused                                    | 422, which names the body           |
| StaleDecision                                     | 409 with `problems`                 |
| NotItsSandbox                                     | 401                                 |
| NeedsApproval                                     | 403                                 |
| KeyNotFound, KeyWouldBePast, TooManyKeys          | 404, 422, 409                       |
| RuleNotFound, RuleWouldBePast, RuleTooLong        | 404, 422, 422                       |
| RuleRefused                                       | 422, which names the member         |
| TooManyRules, RuleWasRevoked                      | 409                                 |
| Detached, SandboxNotNamed                         | 409                                 |
| ActionsWait, HoldsBack                            | 409                                 |
| VerbRefused: the agent server says no             | as it says                          |
| ClientGone: nobody waits for the response         | 499                                 |
| NotReachable: the conversation's sandbox does not run | 409, 410 (deleted), 503 (ERROR); 503 with |
|                                                   | `Retry-After` while it wakes or its host is lost |
| StartFailed: a client's own agent did not start   | `supervisor/failures.py` says which |
| StartNotDone: nor did it fail                     | 503 with `Retry-After`              |
| AgentUnreachable, AgentRefused                    | 502; a 409 of the agent is one      |
| UnknownCursor, BeyondTheEnd, SecretsRefused, ReasonTooLong | 422, which names the member |
| TooManyKinds                                      | 422, which names the body           |
| TooManyForwarded                                  | 503 with `Retry-After`              |
| TooManyFollowers, Stopping, NoSupervisor, NotDoneYet | 503 with `Retry-After`           |
| ArchivesBusy, ArchiveFailed                       | 503 with `Retry-After`              |
| UNAVAILABLE: Redis does not answer                | 503 with `Retry-After`              |
| NotKept: a write is not known to be kept as DURABILITY asks; NotReady | 503 with `Retry-After` |
| StillCold: the log of a conversation cannot be brought back from its object | 503 with `Retry-After` |
| NewerData: a newer release wrote the stored data  | 503                                 |
| ParseException: gunicorn cannot read the body     | 400, and the connection is closed   |
| BodyTooSlow: the body did not come in time        | 408, and the connection is closed   |
| an HTTPException (404, 405, 413, 415 …)           | its own                             |
| anything else                                     | 500 with an `error_id` for the log  |
"""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from flask import Flask, Response, current_app, jsonify, request
from flask_limiter import RateLimitExceeded
from gunicorn.http.errors import ParseException
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge, Unauthorized

from agents.forwarding import ClientGone, Detached, SandboxNotNamed, TooManyForwarded
from agents.link import AgentRefused, AgentUnreachable
from agents.reach import WAKING, NotReachable
from agents.standing_decisions import RuleRefused
from agents.starts import StartFailed, StartNotDone
from agents.verbs import ActionsWait, HoldsBack, VerbRefused
from blueprints.api import InvalidInput
from blueprints.audit import request_id
from blueprints.rates import as_too_many
from boot.body import BodyTooSlow
from notifications.desk import NoTargets, UnknownTarget
from schemas.errors import validation_errors
from schemas.fields import Fault
from specs import SpecNotFound
from store.access.access_keys import KeyNotFound, KeyWouldBePast, TooManyKeys
from store.access.idempotency import IdempotencyKeyBusy, IdempotencyKeyReused, ResponseNotKept, TooManyIdempotencyKeys
from store.access.quotas import QuotaExceeded
from store.approvals.decisions import StaleDecision
from store.approvals.inbox import TooManyToCount
from store.approvals.rules import RuleNotFound, RuleTooLong, RuleWasRevoked, RuleWouldBePast, TooManyRules
from store.conversations.cold import StillCold
from store.conversations.queued_messages import NobodyReceives, StartTaskNotFound, TooManyQueued
from store.errors import (
    UNAVAILABLE,
    ArchiveFailed,
    ArchiveRefused,
    ArchivesBusy,
    ArchiveTooLarge,
    ArchiveUnreadable,
    BeyondTheEnd,
    ConversationNotFound,
    EventNotFound,
    IdInUse,
    IllegalMove,
    NeedsApproval,
    NewerData,
    NoSupervisor,
    NotDoneYet,
    NotItsSandbox,
    ReasonTooLong,
    SandboxNotFound,
    SandboxRefuses,
    SecretsRefused,
    Stopping,
    TooManyConversations,
    TooManyFollowers,
    TooManyKinds,
    TooManyPending,
    TooManySandboxes,
    TooManyStarts,
    TooManyStopped,
    UnknownCursor,
)
from store.link.attempts import OutcomeUnknown
from store.link.durability import NotKept
from store.link.health import NotReady
from store.sandboxes.sandbox_files import FileNotKept, FileTooLong, FileUnreadable
from wire import InvalidJson

#: seconds after which a client may retry when the store did not answer
RETRY_AFTER = 1

#: errors of the store about one member of a request: its place and its name
_REFUSED_MEMBERS: dict[type[Exception], tuple[str, str]] = {
    UnknownCursor: ("query", "page_id"),
    BeyondTheEnd: ("query", "after_seq"),
    SecretsRefused: ("body", "secrets"),
    ReasonTooLong: ("body", "reason"),
    KeyWouldBePast: ("body", "expires_at"),
    RuleWouldBePast: ("body", "expires_at"),
    RuleTooLong: ("body", "arguments"),
    RuleRefused: ("body", "always"),
    IdempotencyKeyReused: ("header", "Idempotency-Key"),
    UnknownTarget: ("body", "target"),
}


#: bounds of the settings that are reached
_FULL = (TooManySandboxes, TooManyStopped, TooManyConversations, TooManyStarts, TooManyIdempotencyKeys)


#: what there is not
_MISSING = (
    ConversationNotFound,
    EventNotFound,
    SandboxNotFound,
    SpecNotFound,
    KeyNotFound,
    RuleNotFound,
    StartTaskNotFound,
    FileNotKept,
)


#: what the present state refuses
_CONFLICTS = (
    Detached,
    SandboxNotNamed,
    ActionsWait,
    HoldsBack,
    IllegalMove,
    IdInUse,
    SandboxRefuses,
    TooManyPending,
    TooManyKeys,
    TooManyRules,
    RuleWasRevoked,
    OutcomeUnknown,
    ResponseNotKept,
    NobodyReceives,
    NoTargets,
)


#: what a sandbox that is PAUSED refuses with 409, as clients of these know it: two wake nothing. Clients of the others
#: take a 409 for a conversation that runs already. Source: docs/wire.md, 11
_CONFLICTS_IF_PAUSED = (
    "Conversations.pause_conversation",
    "Conversations.interrupt_conversation",
    "App Conversations.send_app_message",
)


def register_errors(app: Flask) -> None:
    """Register the handler of every error."""
    app.register_error_handler(InvalidInput, lambda error: _refused(error.place, error.messages))
    app.register_error_handler(
        InvalidJson, lambda error: _refused("body", [Fault(f"Invalid JSON: {error}", "json_invalid")])
    )
    for kind, (place, member) in _REFUSED_MEMBERS.items():
        app.register_error_handler(kind, _refuser(place, member))
    app.register_error_handler(TooManyKinds, lambda error: _refused("body", [Fault(str(error), "too_long")]))
    app.register_error_handler(ArchiveRefused, lambda error: _refused("body", [Fault(str(error), "value_error")]))
    app.register_error_handler(TooManyToCount, lambda error: _refuser("query", error.member)(error))
    app.register_error_handler(ArchiveUnreadable, lambda error: _detail(str(error), 400))
    for too_long in (ArchiveTooLarge, FileTooLong):
        app.register_error_handler(too_long, lambda error: _detail(str(error), 413))
    for missing in _MISSING:
        app.register_error_handler(missing, lambda error: _detail(str(error), 404))
    for conflict in _CONFLICTS:
        app.register_error_handler(conflict, lambda error: _detail(str(error), 409))
    app.register_error_handler(StaleDecision, lambda error: _detail(str(error), 409, problems=error.problems))
    for full in (*_FULL, QuotaExceeded, TooManyQueued):
        app.register_error_handler(full, lambda error: _detail(str(error), 429))
    app.register_error_handler(RateLimitExceeded, lambda error: _http(as_too_many(error)))
    app.register_error_handler(IdempotencyKeyBusy, lambda error: _later(str(error), 409, RETRY_AFTER))
    app.register_error_handler(NotItsSandbox, lambda error: _detail(str(error), 401))
    app.register_error_handler(NeedsApproval, lambda error: _detail(str(error), 403))
    app.register_error_handler(VerbRefused, lambda error: _detail(error.detail, error.status))
    app.register_error_handler(ClientGone, lambda error: _detail(str(error), 499))
    app.register_error_handler(NotReachable, _not_reachable)
    app.register_error_handler(StartFailed, _start_failed)
    app.register_error_handler(StartNotDone, lambda error: _retry_later(str(error)))
    for broken in (AgentUnreachable, FileUnreadable):
        app.register_error_handler(broken, lambda error: _detail(str(error), 502))
    app.register_error_handler(AgentRefused, lambda error: _detail(str(error), 409 if error.status == 409 else 502))
    for busy in (
        NotReady,
        TooManyFollowers,
        Stopping,
        NoSupervisor,
        NotDoneYet,
        ArchivesBusy,
        ArchiveFailed,
        TooManyForwarded,
    ):
        app.register_error_handler(busy, lambda error: _retry_later(str(error)))
    app.register_error_handler(NewerData, lambda error: _detail(str(error), 503))
    for unavailable in UNAVAILABLE:
        app.register_error_handler(unavailable, _unavailable)
    app.register_error_handler(BodyTooSlow, lambda error: _detail(str(error), 408))
    app.register_error_handler(ParseException, lambda error: _detail(f"The body cannot be read: {error}", 400))
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unforeseen)


def _detail(text: Any, status: int, **members: Any) -> Response:
    response = jsonify(detail=text, **members)
    response.status_code = status
    return response


def _refused(place: str, messages: Any) -> Response:
    response = jsonify(detail=validation_errors(place, messages))
    response.status_code = 422
    return response


def _refuser(place: str, member: str) -> Callable[[Exception], Response]:
    return lambda error: _refused(place, {member: [Fault(str(error), "value_error")]})


def _not_reachable(error: NotReachable) -> Response:
    if error.is_passing or (error.status in WAKING and request.endpoint not in _CONFLICTS_IF_PAUSED):
        return _retry_later(str(error))
    return _detail(str(error), {"MISSING": 410, "ERROR": 503}.get(error.status, 409))


def _start_failed(error: StartFailed) -> Response:
    status, detail = error.failure
    return _retry_later(detail) if status == 503 else _detail(detail, status)


def _unavailable(error: Exception) -> Response:
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    current_app.logger.warning("store unavailable: %s: %s%s", type(error).__name__, error, cause)
    is_told = isinstance(error, NotKept | StillCold)
    return _retry_later(str(error) if is_told else "The store does not answer: try again shortly")


def _retry_later(text: str) -> Response:
    return _later(text, 503, RETRY_AFTER)


def _later(text: str, status: int, seconds: int) -> Response:
    response = _detail(text, status)
    response.headers["Retry-After"] = str(seconds)
    return response


def _http(error: HTTPException) -> Response:
    # An explicit description is ours; werkzeug's generic ones speak of HTML pages.
    text = error.name if error.description == type(error).description else error.description
    if isinstance(error, RequestEntityTooLarge):
        text = f"The body is longer than {request.max_content_length} bytes"
    response = _detail(text or error.name, error.code or 500)
    for name, value in error.get_headers():
        if name != "Content-Type":
            response.headers[name] = value
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _unforeseen(error: Exception) -> Response:
    error_id = uuid4().hex
    told = (error_id, request_id(), request.method, request.url_rule)  # the path may hold what a log must not
    current_app.logger.error("error %s in request %s: %s %s", *told, exc_info=error)
    return _detail("Internal Server Error", 500, error_id=error_id)
