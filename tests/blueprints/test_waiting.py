"""What waits for a person in one conversation: actions, destinations and budgets, as a list and as a stream."""

from uuid import uuid4

import pytest

from core.prices import ModelBudget
from core.wire import ConversationId
from store.approvals.audit import DecisionActor
from store.approvals.inbox import InboxFilter
from tests.conftest import action, as_events, status
from tests.store.conftest import fresh_sandboxes, running_sandbox

ADA = DecisionActor("key", "ada")


@pytest.fixture
def boxes(client, store, redis_url):
    """Makes running sandboxes of a server without others."""
    sandboxes = fresh_sandboxes(redis_url, most=100)
    return lambda: running_sandbox(sandboxes).id


@pytest.fixture
def begin(store):
    """Makes a conversation in a sandbox."""

    def make(box):
        identity = ConversationId(str(uuid4()))
        policy = {"kind": "AlwaysConfirm"}
        store.conversations.create(identity, sandbox_id=box, app={}, confirmation_policy=policy)
        return identity

    return make


def waiting(client, conversation):
    return client.get(f"/api/v1/conversation/{conversation}/waiting").get_json()


def named(found):
    return [one["name"] or one["budget"]["setting"] for one in found["destinations"]]


def test_actions_and_destinations_of_a_conversation_are_in_one_list(client, store, boxes, begin):
    box, other = boxes(), boxes()
    here, there = begin(box), begin(other)
    assert waiting(client, here) == {"is_waiting": False, "actions": [], "destinations": []}

    act = action("ls")
    store.events.append(here, as_events([status("running"), act, status("waiting_for_confirmation")]), sandbox_id=box)
    store.destinations.verdict(box, "example.org", 443)
    store.destinations.verdict(other, "other.example.org", 443)

    found = waiting(client, here)
    assert (found["is_waiting"], [one["action_id"] for one in found["actions"]]) == (True, [act["id"]])
    assert named(found) == ["example.org"]
    listed = client.get("/api/v1/destinations", query_string={"sandbox_id": box}).get_json()["items"]
    assert found["destinations"] == listed
    assert named(waiting(client, there)) == ["other.example.org"]
    assert client.get(f"/api/v1/conversation/{uuid4()}/waiting").status_code == 404


def test_what_a_shared_sandbox_asks_for_waits_in_each_of_its_conversations(client, store, boxes, begin):
    box = boxes()
    one, other = begin(box), begin(box)
    store.destinations.verdict(box, "example.org", 443)

    assert [named(waiting(client, each)) for each in (one, other)] == [["example.org"]] * 2


def test_a_budget_waits_in_each_conversation_whose_sandbox_it_has_refused(client, store, boxes, begin):
    refused = [boxes(), boxes()]
    conversations = [begin(box) for box in (*refused, boxes())]
    setting, day = "MODEL_BUDGET_DAY", store.link.health.clock() // 86_400_000_000
    for box in refused:
        store.spending.refuse(box, "", setting, "api.example", 443, "why", more=ModelBudget(None, 100), day=day)

    assert [named(waiting(client, each)) for each in conversations] == [[setting], [setting], []]
    [asked] = store.destinations.waiting(refused[0])
    store.destinations.decide(asked, "reject", "conversation", ADA)


def test_the_stream_of_one_conversation_has_what_its_shared_sandbox_asks_for(store, boxes, begin):
    box, other = boxes(), boxes()
    here = begin(box)
    begin(box), begin(other)
    store.destinations.verdict(box, "before.example.org", 443)
    filters = InboxFilter(conversation_id=here, destinations=True, sandbox_id=box)

    with_sandbox = store.streams.inbox.follow(None, filters)
    without = store.streams.inbox.follow(None, InboxFilter(conversation_id=here, destinations=True))
    try:
        for asker, name in ((box, "after.example.org"), (other, "other.example.org")):
            store.destinations.verdict(asker, name, 443)
        assert told(with_sandbox) == ["before.example.org", "after.example.org"]
        assert told(without) == []
    finally:
        with_sandbox.close()
        without.close()


def told(follower):
    """The names that a stream tells of, each once, until it is silent."""
    found = list[str]()
    while sent := follower.next(0.2):
        for one in sent:
            words = one.raw.decode()
            if one.name in ("destinations", "destination_opened"):
                found += [name for name in NAMES if f'"{name}.example.org"' in words and name not in found]
    return [f"{name}.example.org" for name in found]


NAMES = ("before", "after", "other")


def test_a_stream_with_a_conversation_finds_its_sandbox(client, store, boxes, begin, monkeypatch):
    box = boxes()
    here = begin(box)
    asked = []
    monkeypatch.setattr(
        type(store.streams.inbox), "follow", lambda _, _after, filters, _actor: asked.append(filters) or _Ended()
    )
    for query in ({"destinations": "true"}, {}):
        client.get("/api/v1/pending-actions/stream", query_string={"conversation_id": here, **query}).close()
    assert [one.sandbox_id for one in asked] == [box, None]


class _Ended:
    """A stream that has ended."""

    seq, closed = "0-0", True

    def next(self, _timeout):
        return []

    def pause(self):
        pass

    def close(self):
        pass


def test_whether_an_agent_goes_on_by_itself_is_shown_and_changed(client, begin, boxes):
    here = begin(boxes())
    path = "/api/v1/app-conversations"

    def goes_on():
        return client.get(path, query_string={"ids": here}).get_json()[0]["goes_on_when_allowed"]

    assert goes_on() is True
    for given, shown in ((False, False), (None, True), (True, True)):
        changed = client.patch(f"{path}/{here}", json={"goes_on_when_allowed": given})
        assert (changed.status_code, goes_on()) == (200, shown)
    assert client.patch(f"{path}/{here}", json={"goes_on_when_allowed": "no"}).status_code == 422
