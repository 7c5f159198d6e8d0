"""What every operation's description has in common, added to the OpenAPI document: headers, and the bounds' 429."""

from http import HTTPStatus
from typing import Any

from apispec import APISpec, BasePlugin

_REQUEST_ID = {
    "description": "Of the request: that of its `X-Request-Id`, or one of the server's. Its log lines bear it too.",
    "schema": {"type": "string"},
}
_IDEMPOTENCY_KEY = {
    "required": False,
    "description": "Chosen by the client, one for each request: a repeat with the same key has no further effect and "
    "gets the first response, for 24 hours. Source: docs/wire.md.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}
_REPLAYED = {"description": "`true`: the response to an earlier request with this key.", "schema": {"type": "string"}}
_RETRY_AFTER = {"description": "Seconds after which the client may try again.", "schema": {"type": "integer"}}

#: headers that components describe once
_HEADERS = {"X-Request-Id": _REQUEST_ID, "Idempotency-Replayed": _REPLAYED, "Retry-After": _RETRY_AFTER}

#: of responses that are kept for repeats
_REPLAYED_STATUSES = ("200", "201", "404", "409", "410")

#: of operations that no limit holds for
_UNLIMITED = "Server Details"


class CommonParts(BasePlugin):
    """Adds them to each operation, after the operation has described itself."""

    def init_spec(self, spec: APISpec) -> None:
        for name, header in _HEADERS.items():
            spec.components.header(name, header)
        spec.components.parameter("Idempotency-Key", "header", _IDEMPOTENCY_KEY)

    def response_helper(self, response: Any, **_: Any) -> dict[str, Any]:  # noqa: ARG002
        """Called by apispec for a response that several operations share."""
        return {"headers": {"X-Request-Id": _reference("X-Request-Id")}}

    def operation_helper(self, path: str | None = None, operations: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Called by apispec for the operations of a path."""
        for method, operation in (operations or {}).items():
            responses = operation.setdefault("responses", {})
            if _UNLIMITED not in operation.get("tags", ()):
                _add_error(responses, HTTPStatus.TOO_MANY_REQUESTS)
                responses["429"]["headers"] = {"Retry-After": _reference("Retry-After")}
            if method == "post":
                operation["parameters"] = [
                    *operation.get("parameters", ()),
                    "Idempotency-Key",
                ]
                for status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
                    _add_error(responses, status)
            for status, response in responses.items():
                if isinstance(response, dict):
                    headers = response.setdefault("headers", {})
                    headers["X-Request-Id"] = _reference("X-Request-Id")
                    if method == "post" and str(status) in _REPLAYED_STATUSES:
                        headers["Idempotency-Replayed"] = _reference("Idempotency-Replayed")


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/headers/{name}"}


def _add_error(responses: dict[str, Any], status: HTTPStatus) -> None:
    schema = {"$ref": "#/components/schemas/Error"}
    described = {"description": status.phrase, "content": {"application/json": {"schema": schema}}}
    responses.setdefault(str(status.value), described)
