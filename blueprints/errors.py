"""The shape of every error: a 422 is an HTTPValidationError, any other status has `{"detail": "text"}`.

Below `/v1/` every error has OpenAI's shape (`schemas/openai.py`).

Each refusal is a class with its kind and its words (`core/refused.py`), in any room. One handler serves them all, and
docs/errors.md lists them. The other errors:

| cause                                             | status                              |
|---------------------------------------------------|-------------------------------------|
| invalid path, query, body or JSON                 | 422                                 |
| TooManyRequests: a rate limit is reached          | 429 with `Retry-After`              |
| StaleDecision                                     | 409 with `problems`                 |
| AgentRefused about the client's own request       | the agent server's                  |
| any other AgentRefused                            | 502; 409 if the agent sent 409      |
| ClientGone: the client has disconnected           | 499                                 |
| NotReachable: the conversation's sandbox does not run | 409, 410 (deleted), 503 (ERROR); 503 with |
|                                                   | `Retry-After` while it resumes or its host is lost |
| StartFailed: a client's own agent did not start   | see `supervisor/start_tasks.py`     |
| UNAVAILABLE: Redis is unavailable, a write may be lost, | 503 with `Retry-After`        |
| or a cold log cannot be read                      |                                     |
| REDIS_FULL: Redis is out of memory                | 507                                 |
| OSError: a disk of this server is full            | 507                                 |
| ParseException: gunicorn cannot read the body     | 400, and the connection is closed   |
| BodyTooSlow: the body did not arrive in time      | 408, and the connection is closed   |
| an HTTPException (404, 405, 413, 415 …)           | its own                             |
| anything else                                     | 500 with an `error_id` for the log  |
"""

import errno
import re
from typing import Any
from uuid import uuid4

from flask import Flask, Response, current_app, jsonify, request
from gunicorn.http.errors import ParseException
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge, Unauthorized

from agents.client import AgentRefused
from agents.forwarding import ClientGone, SandboxNotNamed
from agents.starts import StartFailed
from agents.waking import WAKING, NotReachable
from blueprints import current_store
from blueprints.api import InvalidInput
from blueprints.request_log import request_id
from boot.http import BodyTooSlow
from core.refused import RefusalKind, Refused
from core.wire import InvalidJson
from schemas.errors import validation_errors
from schemas.fields import FieldFault
from schemas.openai import error_of, faulty
from store.approvals.decisions import StaleDecision
from store.conversations.cold import StillCold
from store.errors import FULL, REDIS_FULL, UNAVAILABLE
from store.link.connection import NotKept

#: Delay in seconds before a client may retry when the store is unavailable.
RETRY_AFTER = 1

#: Operations that a PAUSED sandbox refuses with 409. The first two resume nothing. Clients of all other operations take
#: 409 to mean that the conversation is already running. Source: docs/wire.md, 11.
_CONFLICTS_IF_PAUSED = (
    "Conversations.pause_conversation",
    "Conversations.interrupt_conversation",
    "App Conversations.send_app_message",
)


def register_errors(app: Flask) -> None:
    app.register_error_handler(InvalidInput, lambda error: _refused(error.place, error.messages))
    app.register_error_handler(
        InvalidJson, lambda error: _refused("body", [FieldFault(f"Invalid JSON: {error}", "json_invalid")])
    )
    app.register_error_handler(Refused, _respond)
    app.register_error_handler(StaleDecision, lambda error: _detail(str(error), 409, problems=error.problems))
    app.register_error_handler(ClientGone, lambda error: _detail(str(error), 499))
    app.register_error_handler(NotReachable, _not_reachable)
    app.register_error_handler(StartFailed, _start_failed)
    app.register_error_handler(AgentRefused, _agent_refused)
    for unavailable in UNAVAILABLE:
        app.register_error_handler(unavailable, _unavailable)
    app.register_error_handler(REDIS_FULL, _full)
    app.register_error_handler(BodyTooSlow, lambda error: _detail(str(error), 408))
    app.register_error_handler(ParseException, lambda error: _detail(f"The body cannot be read: {error}", 400))
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unforeseen)


def _detail(text: Any, status: int, *, code: str = "", **members: Any) -> Response:
    """Make the response of an error. code: the kind of refusal, for programs that read OpenAI's errors."""
    response = jsonify(error_of(text, status, code) if _is_openai() else {"detail": text, **members})
    response.status_code = status
    return response


def _refused(place: str, messages: Any) -> Response:
    faults = validation_errors(place, messages)
    response = jsonify(faulty(faults) if _is_openai() else {"detail": faults})
    response.status_code = 422
    return response


def _is_openai() -> bool:
    return request.path.startswith("/v1/")


def code_of(error: Exception) -> str:
    """Return the code of an error in the style of OpenAI: ModelNotFound is `model_not_found`."""
    return re.sub(r"(?<=.)(?=[A-Z])", "_", type(error).__name__).lower()


def _respond(error: Refused) -> Response:
    if error.kind is RefusalKind.MEMBER:
        fault = FieldFault(str(error), error.fault)
        return _refused(error.place, {error.member: [fault]} if error.member else [fault])
    if error.kind.is_passing:
        return _later(str(error), error.kind.status, error.retry_after, code_of(error))
    response = _detail(str(error), error.kind.status, code=code_of(error))
    if isinstance(error, SandboxNotNamed):
        response.status = f"{response.status_code} CONFLICT - {error.phrase}"  # the SDK only shows this line
    return response


def _not_reachable(error: NotReachable) -> Response:
    if error.is_passing or (error.status in WAKING and request.endpoint not in _CONFLICTS_IF_PAUSED):
        return _retry_later(str(error), code_of(error))
    return _detail(str(error), {"MISSING": 410, "ERROR": 503}.get(error.status, 409), code=code_of(error))


def _agent_refused(error: AgentRefused) -> Response:
    if error.shown is not None:
        return _detail(error.shown, error.status, code=code_of(error))
    return _detail(str(error), 409 if error.status == 409 else 502, code=code_of(error))


def _start_failed(error: StartFailed) -> Response:
    failure, code = error.failure, code_of(error)
    if failure.is_passing or failure.status == 503:
        return _later(failure.detail, failure.status, RETRY_AFTER, code)
    return _detail(failure.detail, failure.status, code=code)


def _unavailable(error: Exception) -> Response:
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    current_app.logger.warning("store unavailable: %s: %s%s", type(error).__name__, error, cause)
    is_told = isinstance(error, NotKept | StillCold)
    told = str(error) if is_told else current_store.link.health.hindrance(error)
    return _retry_later(told or "The store does not answer: try again shortly")


def _full(error: Exception) -> Response:
    current_app.logger.warning("store full: %s", error)
    return _detail(FULL, 507)


def _retry_later(text: str, code: str = "") -> Response:
    return _later(text, 503, RETRY_AFTER, code)


def _later(text: str, status: int, seconds: int, code: str = "") -> Response:
    response = _detail(text, status, code=code)
    response.headers["Retry-After"] = str(seconds)
    return response


def _http(error: HTTPException) -> Response:
    # Only an explicit description is ours. The default descriptions of werkzeug speak of HTML pages.
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
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        current_app.logger.error("a disk is full: %s", error)
        return _detail(
            "A disk of this server is full (DATA_DIR, or the folder of temporary files; the log names the file): "
            "delete files there, then try again",
            507,
        )
    error_id = uuid4().hex
    # the path may contain secrets, which a log must not
    told = (error_id, request_id(), request.method, request.url_rule)
    current_app.logger.error("error %s in request %s: %s %s", *told, exc_info=error)
    return _detail("Internal Server Error", 500, error_id=error_id)
