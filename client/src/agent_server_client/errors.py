"""The one error of this package."""

import re
from typing import Any

import httpx

#: what is added for programs to a refusal without a key that opens something
GIVE_A_KEY = ". Set AGENT_SERVER_KEY, or give the client a key"

#: what a server says that is none of ours
_NOT_JSON = "{} answers without JSON ({}): is this the address of an agent server? AGENT_SERVER_URL"


#: what a key looks like; anything else cannot stand in a header, and an error of the header would show it
_KEY = re.compile(r"[\x21-\x7e]{1,512}")


class AgentServerError(Exception):
    """The server refuses a request, or does not answer within the time for retries. The text says what to do.

    status: of the response; of a start that failed the one that its cause has; 504 where something takes longer than it
    may; None where the server does not answer. detail: a sentence. problems: of a decision that was not taken, each
    with `action_id` and `problem`. retry_after: seconds after which the server wants to be asked again, if it says so.
    may_have_arrived: no response came, and the request may have taken effect all the same.
    is_unreachable: whether no request has reached the server.
    """

    def __init__(
        self,
        status: int | None,
        detail: str,
        problems: list[dict[str, Any]] | None = None,
        retry_after: float | None = None,
        *,
        may_have_arrived: bool = False,
        is_unreachable: bool = False,
    ) -> None:
        super().__init__(detail if status is None else f"{status}: {detail}")
        self.status, self.detail, self.problems, self.retry_after = status, detail, problems or [], retry_after
        self.may_have_arrived, self.is_unreachable = may_have_arrived, is_unreachable

    @classmethod
    def of(cls, response: httpx.Response) -> "AgentServerError":
        """That of a response, whose body has been read."""
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            words = _NOT_JSON.format(response.url.copy_with(query=None), response.reason_phrase or "no words")
            return cls(response.status_code, words, None, retry_after(response))
        detail, problems = body.get("detail"), body.get("problems")
        if isinstance(detail, list):  # a refusal of members, each with its place
            detail = "; ".join(map(_sentence, detail))
        words = str(detail or response.reason_phrase)
        if response.status_code == 401 and "AGENT_SERVER_KEY" not in words:
            words = words.rstrip(".") + GIVE_A_KEY
        return cls(response.status_code, words, problems, retry_after(response))


def retry_after(response: httpx.Response) -> float | None:
    """Seconds after which a refused request is to be sent again; None where the server names none."""
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def _sentence(fault: Any) -> str:
    if not isinstance(fault, dict):
        return str(fault)
    place = ".".join(str(step) for step in fault.get("loc", ())[1:])
    return f"{place}: {fault.get('msg')}" if place else str(fault.get("msg"))


def checked_key(key: str) -> str:
    """The key, or "" for none. Raises AgentServerError, whose words do not show the key."""
    if key and not _KEY.fullmatch(key):
        words = "The key has a blank, a line end or a character beyond ASCII, as no key of a server has"
        raise AgentServerError(401, words)
    return key
