"""Posts actions to a conversation, decides them as a person would, and asks about rules."""

from tests.conftest import action

RULES, REHEARSE, PROPOSALS = (f"/api/v1/approval-rules{path}" for path in ("", "/rehearse", "/proposals"))
GIT_STATUS = {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"command": "git status *"}}}


class DecidedHere:
    """Posts actions to a conversation, decides them, and asks about rules."""

    def __init__(self, client, conversation):
        self.client, self.id = client, conversation
        start = {"conversation_id": conversation, "title": "Mend it", "tags": {"team": "web"}}
        made = client.post("/api/conversations", json={**start, "confirmation_policy": {"kind": "AlwaysConfirm"}})
        assert made.status_code == 201

    def act(self, command="ls", **members) -> str:
        one = action(command, **members)
        assert self.client.post(f"/api/v1/webhooks/events/{self.id}", json=[one]).status_code == 200
        return one["id"]

    def decide(self, verb: str, *commands: str) -> list[str]:
        ids = []
        for command in commands:
            ids.append(self.act(command))
            decision = {"action_id": ids[-1], "decision": verb}
            path = f"/api/v1/conversation/{self.id}/pending-actions/decisions"
            taken = self.client.post(path, json={"decisions": [decision]})
            assert taken.status_code == 200, taken.text
        return ids

    def rehearse(self, rule=GIT_STATUS, **query) -> dict:
        response = self.client.post(REHEARSE, json=rule, query_string=query)
        assert response.status_code == 200, response.text
        return response.get_json()

    def propose(self, **query) -> dict:
        response = self.client.get(PROPOSALS, query_string=query)
        assert response.status_code == 200, response.text
        return response.get_json()

    def answers(self, action_id: str) -> dict[str, dict]:
        response = self.client.get(f"/api/v1/conversation/{self.id}/pending-actions/{action_id}/answers")
        assert response.status_code == 200, response.text
        return {one["kind"]: one for one in response.get_json()["items"]}

    def reject_all(self) -> None:
        path = f"/api/conversations/{self.id}/events/respond_to_confirmation"
        assert self.client.post(path, json={"accept": False}).status_code == 200

    def forget_rules(self) -> None:
        for rule in self.client.get(RULES).get_json():
            assert self.client.delete(f"{RULES}/{rule['id']}").status_code == 200

    def waits(self) -> list[str]:
        items = self.client.get("/api/v1/pending-actions", query_string={"conversation_id": self.id}).get_json()
        return [one["action_id"] for one in items["items"]]
