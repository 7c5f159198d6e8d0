"""One talk of the published SDK, with the published agent server alone and with this server: both look the same."""

from uuid import uuid4

import httpx
import pytest

from tests.interop.comparison import compare_with_agent, counts, without_usage

pytestmark = pytest.mark.interop("runs the published agent server, alone and in sandboxes")


class DifferentialTalk:
    """The outcome of the talk at one side."""

    def __init__(self, side) -> None:
        self.side = side
        self.told = side.played("talk")
        self.id = self.told[0].pop("id")
        self.events = without_usage(side.events(self.id))

    def shown(self, *names: str) -> list[list]:
        return [[event.get(name) for name in names] for event in self.events]


@pytest.fixture(scope="module")
def theirs(their_side) -> DifferentialTalk:
    return DifferentialTalk(their_side)


@pytest.fixture(scope="module")
def ours(our_side) -> DifferentialTalk:
    return DifferentialTalk(our_side)


def test_the_client_sees_the_same(theirs, ours):
    assert ours.told == theirs.told


def test_the_logs_have_the_same_kinds_in_the_same_order(theirs, ours):
    assert ours.shown("kind", "source", "key") == theirs.shown("kind", "source", "key")


def test_the_same_statuses_follow_each_other(theirs, ours):
    statuses = [
        [event["value"] for event in talk.events if event.get("key") == "execution_status"] for talk in (theirs, ours)
    ]

    assert statuses[0] == statuses[1]
    assert {"running", "waiting_for_confirmation", "idle", "finished"} == set(statuses[0])


def test_the_same_actions_are_rejected_with_the_same_reason(theirs, ours):
    rejections = [
        [
            (event["tool_name"], event["rejection_reason"], event.get("rejection_source"))
            for event in talk.events
            if event["kind"] == "UserRejectObservation"
        ]
        for talk in (theirs, ours)
    ]

    assert rejections[0] == rejections[1]
    assert [reason for _, reason, _ in rejections[0]] == ["not today"]


def test_each_combination_of_filters_counts_the_same(theirs, ours):
    assert counts(ours.side, ours.id) == counts(theirs.side, theirs.id)


def test_our_log_and_counts_are_those_of_the_agent_server_in_the_sandbox(ours):
    compare_with_agent(ours.side, ours.id)


REFUSED = [
    ("GET", "/{unknown}", None),
    ("GET", "/{unknown}/events/search", None),
    ("GET", "/{unknown}/events/count", None),
    ("POST", "/{unknown}/run", None),
    ("POST", "/{unknown}/pause", None),
    ("POST", "/{unknown}/events", {"role": "user", "content": [{"type": "text", "text": "hello"}]}),
    ("POST", "/{unknown}/events/respond_to_confirmation", {"accept": False}),
    ("POST", "/{id}/events/respond_to_confirmation", {}),
    ("POST", "/{id}/events/respond_to_confirmation", {"accept": "perhaps"}),
    ("POST", "/{id}/events", {"role": "user", "content": "a text"}),
    ("POST", "/{id}/confirmation_policy", {"policy": {"kind": "NoSuchPolicy"}}),
    ("POST", "/{id}/confirmation_policy", {}),
    ("GET", "/{id}/events/search?limit=101", None),
    ("GET", "/{id}/events/search?limit=0", None),
    ("GET", "/{id}/events/count?timestamp__gte=yesterday", None),
    ("GET", "/{id}/events/{unknown}", None),
    ("GET", "/no-id", None),
]


@pytest.mark.parametrize(("method", "path", "body"), REFUSED, ids=[f"{method} {path}" for method, path, _ in REFUSED])
def test_the_same_requests_are_refused_with_the_same_status(theirs, ours, method, path, body):
    statuses = []
    for talk in (theirs, ours):
        with talk.side.http as http:
            url = f"/api/conversations{path.format(unknown=uuid4(), id=talk.id)}"
            statuses.append(http.request(method, url, json=body).status_code)

    assert statuses[0] == statuses[1] >= 400


def test_a_wrong_key_is_refused_with_the_same_status(theirs, ours):
    def status(talk: DifferentialTalk) -> int:
        url = f"{talk.side.url}/api/conversations/{talk.id}"
        return httpx.get(url, headers={"X-Session-API-Key": "wrong"}).status_code

    assert [status(theirs), status(ours)] == [401, 401]
