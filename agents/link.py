"""A sandbox's agent server, spoken to over HTTP. Source: the agent-server wire.

What can be repeated without harm is tried twice when the connection fails. A message, a run and an answer are not:
nobody knows whether the agent had them.
"""

from typing import Any

import httpx

from wire import ConversationId

#: seconds to connect, and until an agent that is asked whether it lives must say so
_CONNECT, _ALIVE = 2.0, 2.0


class AgentUnreachable(Exception):
    """The agent server gave no answer; the message is a sentence."""


class AgentRefused(Exception):
    """The agent server answered, but not with success."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"The agent server answered {status}: {detail}")
        self.status = status


class AgentServer:
    """One sandbox's agent server. Every method raises AgentUnreachable and AgentRefused. Any thread may use it."""

    def __init__(self, client: httpx.Client, url: str, session_api_key: str) -> None:
        self._client = client
        self._url = url
        self._headers = {"X-Session-API-Key": session_api_key}

    def is_alive(self) -> bool:
        """Whether it answers requests."""
        try:
            self._call("GET", "/alive", timeout=_ALIVE)
        except (AgentUnreachable, AgentRefused):
            return False
        return True

    def idle_seconds(self) -> float | None:
        """How long it has had nothing to do, as it says itself; None if it does not say."""
        idle = self._call("GET", "/server_info", timeout=_ALIVE).get("idle_time")
        return float(idle) if isinstance(idle, int | float) else None

    def start(self, request: dict[str, Any], seconds: float) -> None:
        """Start a conversation, once per id; it may take long, for an agent loads its tools."""
        self._call("POST", "/api/conversations", json=request, repeatable=True, timeout=seconds)

    def state(self, conversation_id: ConversationId) -> dict[str, Any]:
        """What it says of a conversation."""
        return self._call("GET", f"/api/conversations/{conversation_id}", repeatable=True)

    def latest_action(self, conversation_id: ConversationId) -> str | None:
        """Id of the last action that it has proposed."""
        query = {"kind": "ActionEvent", "sort_order": "TIMESTAMP_DESC", "limit": 1}
        path = f"/api/conversations/{conversation_id}/events/search"
        items = self._call("GET", path, params=query, repeatable=True).get("items") or []
        return str(items[0]["id"]) if items else None

    def send(self, conversation_id: ConversationId, content: list[dict[str, Any]], run: bool) -> None:
        """Give it a user's message."""
        body = {"role": "user", "content": content, "run": run}
        self._call("POST", f"/api/conversations/{conversation_id}/events", json=body)

    def answer(self, conversation_id: ConversationId, accept: bool, reason: str) -> None:
        """Accept or reject what it proposes."""
        path = f"/api/conversations/{conversation_id}/events/respond_to_confirmation"
        self._call("POST", path, json={"accept": accept, "reason": reason})

    def tell(self, conversation_id: ConversationId, verb: str, body: dict[str, Any], *, repeatable: bool) -> None:
        """Run, pause, interrupt or set something."""
        self._call("POST", f"/api/conversations/{conversation_id}/{verb}", json=body, repeatable=repeatable)

    def delete(self, conversation_id: ConversationId) -> None:
        """Have it forget a conversation."""
        self._call("DELETE", f"/api/conversations/{conversation_id}", repeatable=True)

    def _call(self, method: str, path: str, *, repeatable: bool = False, **options: Any) -> dict[str, Any]:
        for is_last in (not repeatable, True):
            try:
                response = self._client.request(method, self._url + path, headers=self._headers, **options)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if is_last:
                    raise AgentUnreachable(
                        f"The agent server does not answer: {error or type(error).__name__}"
                    ) from error
            else:
                break
        if not response.is_success:
            raise AgentRefused(response.status_code, _detail(response))
        try:
            body = response.json()
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}


def _detail(response: httpx.Response) -> str:
    """What an error says, shortened."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text
    return str(detail)[:500]


def http_client(seconds: float) -> httpx.Client:
    """The client of one process, for all agent servers. seconds is what an answer may take."""
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=4)
    # No proxy of the environment stands between a server and its sandboxes.
    return httpx.Client(timeout=httpx.Timeout(seconds, connect=_CONNECT), limits=limits, trust_env=False)
