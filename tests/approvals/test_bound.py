"""ADR 0030: an approval is bound to the exact action. docs/approvals.md names these tests."""

from tests.approvals import decision, digest_of


def test_the_digest_is_that_of_the_canonical_tool_and_arguments(house, held):
    items = house.two.get("/api/v1/pending-actions", params={"conversation_id": held.id}).json()["items"]

    assert {one["action_id"]: one["digest"] for one in items} == {one["id"]: digest_of(one) for one in held.actions}
    assert held.decides(decision(held.actions[0])).status_code == 200
    assert held.entries[0]["digests"] == [digest_of(held.actions[0])]


def test_a_decision_bound_to_another_action_decides_nothing(held):
    first, second = held.actions

    response = held.decides(decision(first), {**decision(second), "digest": digest_of(first)})

    assert response.status_code == 409
    assert response.json()["problems"] == [{"action_id": second["id"], "problem": "changed"}]
    assert (held.pending, held.approved, held.lines) == ([first["id"], second["id"]], [], [])


def test_an_action_cannot_be_exchanged_under_its_id(held):
    first = held.actions[0]
    held.appends({**first, "action": {**first["action"], "command": "rm -rf /"}})

    assert held.decides(decision(first)).status_code == 200
    [kept] = [one for one in held.log if one["id"] == first["id"]]
    assert kept["action"]["command"] == "rm -r build"
