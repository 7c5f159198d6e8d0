"""Who may push the work of a conversation, and what a branch may be called."""

from uuid import uuid4

import pytest

from tests.blueprints import KEYS

ADMIN = {"Authorization": f"Bearer {KEYS[0]}"}
AT = f"/api/v1/app-conversations/{uuid4()}/git"
WORK = {"branch": "agent/mend", "title": "Mend the parser"}


def key_of(client, *scopes: str) -> dict[str, str]:
    made = client.post("/api/v1/keys", json={"name": uuid4().hex, "scopes": scopes}, headers=ADMIN).json
    return {"Authorization": f"Bearer {made['key']}"}


def test_a_push_needs_a_key_that_may_write_and_approve(caller):
    for scopes in (["read"], ["write"], ["approve"]):
        headers = key_of(caller, *scopes)
        assert caller.get(f"{AT}/remote", headers=headers).status_code == 403
        assert caller.post(f"{AT}/push", json=WORK, headers=headers).status_code == 403
    headers = key_of(caller, "write", "approve")
    assert caller.get(f"{AT}/remote", headers=headers).status_code == 404
    assert caller.post(f"{AT}/push", json=WORK, headers=headers).status_code == 404


def test_a_conversation_without_a_sandbox_has_nothing_to_push(caller):
    made = caller.post("/api/conversations", json={}, headers=ADMIN).json["id"]
    refused = caller.post(f"/api/v1/app-conversations/{made}/git/push", json=WORK, headers=ADMIN)
    assert refused.status_code == 404


@pytest.mark.parametrize("name", ["-f", "a..b", "a/.b", "a.lock", "a.lock/b", "a/", "a.", "a//b", "@{1}", "a~1", "ä"])
def test_a_name_that_is_none_of_a_branch_is_refused_at_its_field(caller, name):
    refused = caller.post(f"{AT}/push", json={**WORK, "branch": name}, headers=ADMIN)
    assert refused.status_code == 422
    [fault] = refused.json["detail"]
    assert fault["loc"] == ["body", "branch"]
    assert "name of a branch" in fault["msg"]


@pytest.mark.parametrize("name", ["agent/mend-the-parser", "v1.2", "a/b/c_d+e"])
def test_a_usual_name_of_a_branch_is_taken(caller, name):
    assert caller.post(f"{AT}/push", json={**WORK, "branch": name}, headers=ADMIN).status_code == 404


def test_a_title_is_one_line_and_no_blank_one(caller):
    for title in ("", " ", "one\ntwo"):
        assert caller.post(f"{AT}/push", json={**WORK, "title": title}, headers=ADMIN).status_code == 422
