"""Requests of agents in terminals, as their hooks send them, for the tests and the pictures of the console."""

from typing import Any

import httpx

REQUESTS = "/api/v1/permission-requests"


def asks(
    client: httpx.Client,
    command: str,
    *,
    session: str,
    host: str = "laptop",
    user: str = "ada",
    cwd: str = "/home/ada/shop",
    agent: tuple[str, str] = ("claude-code", "2.1.332"),
    **members: Any,
) -> dict[str, Any]:
    """A request for a command, whose hook renews no lease for ten minutes."""
    name, version = agent
    body = {
        "agent": {"name": name, "version": version},
        "session": {"id": session, "cwd": cwd, "host": host, "user": user, "mode": "default"},
        **{"tool_name": "Bash", "arguments": {"command": command}, "lease_seconds": 600},
        **members,
    }
    response = client.post(REQUESTS, json=body)
    assert response.status_code == 201, response.text
    request: dict[str, Any] = response.json()
    return request


def ends(client: httpx.Client, request: dict[str, Any], outcome: str) -> None:
    """What became of a request at its terminal."""
    response = client.post(f"{REQUESTS}/{request['id']}/outcome", json={"outcome": outcome})
    assert response.is_success, response.text


def reports(client: httpx.Client, session: str, kind: str, **members: Any) -> None:
    """What the agent tells besides."""
    body = {
        "agent": {"name": "claude-code", "version": "2.1.332"},
        "session": {"id": session, "cwd": "/home/ada/shop", "host": "laptop", "user": "ada"},
        "kind": kind,
        **members,
    }
    response = client.post(f"{REQUESTS}/reports", json=body)
    assert response.is_success, response.text
