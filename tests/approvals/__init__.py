"""A conversation whose actions wait, and what people and agents do with it over HTTP."""

import json
from hashlib import sha256

import rfc8785

from admin.audit import verify

ADMIN = "an-admin-key-for-tests-only"
ALWAYS = {"kind": "AlwaysConfirm"}


def shown(key) -> dict[str, str]:
    return {"X-Session-API-Key": key}


class DecidedConversation:
    """A conversation whose every action waits, and what a person does with it."""

    def __init__(self, server, conversation, **members):
        self.server, self.id = server, conversation
        body = {"conversation_id": conversation, "confirmation_policy": ALWAYS, **members}
        assert server.post("/api/conversations", json=body).status_code == 201

    @property
    def decisions(self) -> str:
        return f"/api/v1/conversation/{self.id}/pending-actions/decisions"

    def appends(self, *events):
        response = self.server.post(f"/api/v1/webhooks/events/{self.id}", json=list(events))
        assert response.status_code == 200, response.text

    def decides(self, *decisions, server=None, **options):
        return (server or self.server).post(self.decisions, json={"decisions": list(decisions)}, **options)

    @property
    def pending(self) -> list[str]:
        return [one["id"] for one in self.server.get(f"/api/conversations/{self.id}/pending_actions").json()]

    @property
    def approved(self) -> list[str]:
        """The actions that an agent may execute."""
        return [one["action_id"] for one in self.server.get(self.decisions).json()]

    @property
    def status(self) -> str:
        return self.server.get(f"/api/conversations/{self.id}").json()["execution_status"]

    @property
    def lines(self) -> list[bytes]:
        response = self.server.get(f"/api/v1/conversation/{self.id}/audit", params={"format": "jsonl"})
        return response.content.splitlines(keepends=True)

    @property
    def entries(self) -> list[dict]:
        verify(self.lines)
        return [json.loads(line) for line in self.lines]

    @property
    def log(self) -> list[dict]:
        return self.server.get(f"/api/conversations/{self.id}/events/search").json()["items"]


def digest_of(act) -> str:
    """The digest of an action, made without this server's code."""
    arguments = {name: value for name, value in act["action"].items() if name != "kind"}
    return sha256(rfc8785.dumps({"tool_name": act["tool_name"], "arguments": arguments})).hexdigest()


def decision(act, verb="approve", **members) -> dict:
    return {"action_id": act["id"], "decision": verb, "digest": digest_of(act), **members}
