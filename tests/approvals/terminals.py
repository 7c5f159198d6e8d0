"""Agents in terminals that ask, over HTTP: each session is new."""

import json
from types import SimpleNamespace
from uuid import uuid4

from core.wire import now
from tests.approvals import ADMIN, shown

REQUESTS = "/api/v1/permission-requests"
AGENT = {"name": "claude-code", "version": "2.1.332"}


class AskedTerminal:
    """One session of an agent, whose hook asks with a key of the scope `ask`."""

    def __init__(self, house, key: str = "", *, can_edit: bool = False, **session) -> None:
        self.house, self.key = house, key or ask_key(house)
        self.session = {"id": uuid4().hex, "cwd": "/home/ada/shop", "host": "laptop", "user": "ada", **session}
        self.whole = {"agent": {**AGENT, "can_edit": can_edit}, "session": self.session}

    def post(self, path: str, body, key: str = ""):
        return self.house.anyone.post(REQUESTS + path, json=body, headers=shown(key or self.key))

    def opens(self, command="touch proof", *, tool="Bash", **members):
        call = {"tool_name": tool, "arguments": {"command": command}}
        return self.post("", {**self.whole, **call, **members})

    def asks(self, command="touch proof", **members) -> SimpleNamespace:
        response = self.opens(command, **members)
        assert response.status_code == 201, response.text
        return SimpleNamespace(**response.json())

    def looks(self, request, key: str = ""):
        return self.house.anyone.get(f"{REQUESTS}/{request.id}", headers=shown(key or self.key))

    def state(self, request) -> dict:
        response = self.looks(request)
        assert response.status_code == 200, response.text
        return response.json()

    def tells(self, request, outcome: str, key: str = ""):
        return self.post(f"/{request.id}/outcome", {"outcome": outcome, "by": "terminal"}, key)

    def tells_of_call(self, outcome: str, command="touch proof"):
        call = {"tool_name": "Bash", "arguments": {"command": command}}
        return self.post("/outcomes", {**self.whole, **call, "outcome": outcome})

    def reports(self, kind: str, **members) -> None:
        response = self.post("/reports", {**self.whole, "kind": kind, **members})
        assert response.status_code == 204, response.text

    def ran(self, command="touch proof", result="done") -> None:
        self.reports("call", tool_name="Bash", arguments={"command": command}, result=result)


class TerminalInbox:
    """What a person sees and does."""

    def __init__(self, house) -> None:
        self.server = house.one

    def items(self, conversation_id: str) -> list[dict]:
        return self.server.get("/api/v1/pending-actions", params={"conversation_id": conversation_id}).json()["items"]

    def decides(self, request, verb: str, **members):
        one = {"action_id": request.action_id, "decision": verb, "digest": request.digest, **members}
        path = f"/api/v1/conversation/{request.conversation_id}/pending-actions/decisions"
        return self.server.post(path, json={"decisions": [one]})

    def entries(self, conversation_id: str) -> list[tuple[str, str, str]]:
        """What the audit says: decision, kind and name of the actor."""
        found = self.server.get(f"/api/v1/conversation/{conversation_id}/audit").json()["items"]
        return [(one["decision"], one["actor"]["kind"], one["actor"]["name"]) for one in found]

    def reasons(self, conversation_id: str) -> list[str]:
        found = self.server.get(f"/api/v1/conversation/{conversation_id}/audit").json()["items"]
        return [one["reason"] for one in found]

    def log(self, conversation_id: str) -> list[dict]:
        return self.server.get(f"/api/conversations/{conversation_id}/events/search").json()["items"]


def ask_key(house, name: str = "ask key") -> str:
    """A key of that scope; one by a name."""
    if name not in house.keys:
        body = {"name": name, "scopes": ["ask"]}
        response = house.one.post("/api/v1/keys", json=body, headers=shown(ADMIN))
        assert response.status_code == 201, response.text
        house.keys[name] = response.json()["key"]
    return house.keys[name]


def set_back(house, request, *names: str) -> None:
    """Let the lease (`lapses`) or the wait (`ends`) of a request have ended a moment ago."""
    redis, key = house.store.conversations._redis, f"conv:{{{request.conversation_id}}}:pending"
    record = json.loads(redis.hget(key, request.action_id))
    past = str(now() - 1)
    record["ask"] |= dict.fromkeys(names, past)
    if "expires" in record and "ends" in names:
        record["expires"] = past
    redis.hset(key, request.action_id, json.dumps(record))
