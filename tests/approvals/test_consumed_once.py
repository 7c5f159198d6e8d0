"""ADR 0030: an approval is consumed once, in the script that decides. docs/approvals.md names these tests."""

import threading
from uuid import uuid4

import pytest

from tests.approvals import DecidedConversation, decision, digest_of
from tests.conftest import action, observation


@pytest.mark.faults("a race of threads")
def test_of_racing_decisions_on_two_servers_one_is_taken_and_audited(house, conversation):
    for number in range(20):
        held = DecidedConversation(house.one, str(uuid4()))
        act = action(f"step {number}")
        held.appends(act)
        outcomes = race(
            lambda server, verb, held=held, act=act: held.decides(decision(act, verb), server=server).status_code,
            [(server, verb) for server in (house.one, house.two) for verb in ("approve", "reject")],
        )

        assert sorted(outcomes) == [200, 409, 409, 409]
        [entry] = held.entries
        assert entry["action_ids"] == [act["id"]]
        rejections = [one for one in held.log if one["kind"] == "UserRejectObservation"]
        assert (held.approved, len(rejections)) == (([act["id"]], 0) if entry["decision"] == "approve" else ([], 1))


def race(call, calls) -> list:
    """The results of calls that begin together."""
    begin, results = threading.Barrier(len(calls)), []

    def run(*words):
        begin.wait()
        results.append(call(*words))

    threads = [threading.Thread(target=run, args=words) for words in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_consumed_approval_approves_nothing_again(held):
    first, second = held.actions
    assert held.decides(decision(first), decision(second)).status_code == 200
    held.appends(observation(first), observation(second))

    assert held.approved == []
    for again in (decision(first), decision(first, "reject")):
        response = held.decides(again)
        assert (response.status_code, response.json()["problems"][0]["problem"]) == (409, "not_pending")
    assert len(held.entries) == 1


def test_an_approval_is_of_one_action_and_not_of_the_same_action_once_more(held):
    first, second = held.actions
    held.decides(decision(first), decision(second))
    held.appends(observation(first), observation(second))
    twin = {**first, "id": str(uuid4()), "tool_call_id": "another"}
    held.appends(twin)

    assert digest_of(twin) == digest_of(first)
    assert (held.pending, held.approved) == ([twin["id"]], [])
