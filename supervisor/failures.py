"""What a request gets that waited for a start which failed: the status and the detail of its response.

| cause                                                    | status                        |
|----------------------------------------------------------|-------------------------------|
| the agent server refuses the body with 404, 422 or 429   | the same; its detail with 422 |
| the cap of sandboxes, or of conversations in one         | 429                           |
| the parent that the request names cannot be one          | 422, which names the member   |
| a conversation of that id exists                         | 409; the request looks again  |
| the sandbox did not run in time                          | 503                           |
| anything else                                            | 502                           |
"""

import json
from typing import Any

from agents.link import AgentRefused
from redaction import without_inputs, without_secrets_of
from store.errors import TooManyConversations, TooManySandboxes, TooManyStopped
from store.sandboxes.start_tasks import Failure

#: refusals of an agent server that are about the body
_PASSED_ON = (404, 422, 429)

#: most bytes of a detail that is passed on
_MOST_BYTES = 64 * 1024


class CannotStart(Exception):
    """The start task fails; the message is for the client."""

    def __init__(self, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


class ParentRefused(CannotStart):
    """The parent that a request names cannot be one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 422)


def failure_of(error: Exception, reason: str, body: Any) -> Failure:
    """body: the client's own, whose secrets no detail shows; None of an app conversation."""
    match error:
        case AgentRefused(status=status) if status in _PASSED_ON:
            detail = _agents_detail(error.body) if status == 422 else reason
            return Failure(status, without_secrets_of(body, detail or reason))
        case TooManySandboxes() | TooManyStopped() | TooManyConversations():
            return Failure(429, reason)
        case ParentRefused():
            return Failure(422, [{"type": "value_error", "loc": ["body", "parent_conversation_id"], "msg": reason}])
        case CannotStart(status=status):
            return Failure(status, reason)
    return Failure(502, reason)


def _agents_detail(raw: bytes) -> Any:
    """The `detail` of an agent server's refusal; None if it has none, or a longer one than is passed on."""
    try:
        detail = json.loads(raw)["detail"] if len(raw) <= _MOST_BYTES else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return without_inputs(detail)
