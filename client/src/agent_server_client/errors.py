"""The one error of this package."""

from typing import Any

import httpx


class AgentServerError(Exception):
    """The server refuses a request, or does not answer within the time for retries.

    status: of the response, None where there was none. detail: a sentence. problems: of a decision that was not taken,
    each with `action_id` and `problem`.
    """

    def __init__(self, status: int | None, detail: str, problems: list[dict[str, Any]] | None = None) -> None:
        super().__init__(detail if status is None else f"{status}: {detail}")
        self.status, self.detail, self.problems = status, detail, problems or []

    @classmethod
    def of(cls, response: httpx.Response) -> "AgentServerError":
        """That of a response, whose body has been read."""
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return cls(response.status_code, response.reason_phrase or "The response is not JSON")
        detail, problems = body.get("detail"), body.get("problems")
        if isinstance(detail, list):  # a refusal of members, each with its place
            detail = "; ".join(map(_sentence, detail))
        return cls(response.status_code, str(detail or response.reason_phrase), problems)


def _sentence(fault: Any) -> str:
    if not isinstance(fault, dict):
        return str(fault)
    place = ".".join(str(step) for step in fault.get("loc", ())[1:])
    return f"{place}: {fault.get('msg')}" if place else str(fault.get("msg"))
