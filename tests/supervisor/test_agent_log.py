"""The comparison of our log with the agent's own: what was never posted is fetched once, in order, within bounds."""

import json
import random
from types import SimpleNamespace

import pytest

from agents import client
from agents.client import AgentUnreachable
from core import wire
from store.errors import ConversationNotFound
from supervisor import agent_log
from supervisor.agent_log import LogMark, catch_up
from tests.conftest import action, as_events, event, message, observation, status


def at(number: int) -> str:
    """The time of an event of that number."""
    return f"2026-11-20T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000000"


def history(number: int) -> list[dict]:
    return [message(f"say {place}", timestamp=at(place)) for place in range(number)]


@pytest.fixture
def known(store, conversation, sandbox, agent):
    """Begin a conversation whose agent has these events, of which so many were posted; returns its comparison."""

    def begin(log: list[dict], posted: list[dict]):
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        agent.logs[conversation] = log
        post(store, conversation, sandbox, posted)
        return lambda mark=None: catch_up(store, agent.server(), conversation, sandbox.id, mark or LogMark())[0]

    return begin


def post(store, conversation, sandbox, events):
    for first in range(0, len(events), 500):
        store.events.append(conversation, as_events(events[first : first + 500]), sandbox_id=sandbox.id)


def ids(store, conversation) -> list[str]:
    """The ids of our log in the order of time."""
    found, page_id = [], None
    while True:
        raws, page_id = store.events.search(conversation, page_id=page_id)
        found += [json.loads(raw)["id"] for raw in raws]
        if page_id is None:
            return found


@pytest.mark.parametrize("posted", [0, 1, 99, 100, 101, 249])
def test_the_last_events_that_were_never_posted_are_fetched_once(store, conversation, agent, known, posted):
    log = history(250)
    compare = known(log, log[:posted])

    mark = compare()

    assert ids(store, conversation) == [one["id"] for one in log]
    agent.requests.clear()
    assert compare(mark) == mark
    assert agent.count("/events/search") == 1
    assert store.events.count(conversation) == 250


def test_events_that_a_webhook_dropped_in_between_are_fetched(store, conversation, known):
    log = history(700)
    compare = known(log, log[:120] + log[340:])

    compare()

    assert ids(store, conversation) == [one["id"] for one in log]


def test_one_page_is_read_where_nothing_is_missing(store, conversation, agent, known, sandbox):
    # Given a long log that was posted whole, and events of this server's own
    log = history(3000)
    compare = known(log, log)
    mine = as_events([event("ConversationErrorEvent", "environment", code="A", detail="b") for _ in range(3)])
    store.events.append(conversation, mine, sandbox_id=sandbox.id, made_here=True)

    mark = compare()

    assert (agent.count("/events/search"), agent.count("/events/count")) == (1, 1)
    log += [message(f"more {number}", timestamp=at(4000 + number)) for number in range(50)]
    post(store, conversation, sandbox, log[3000:])
    agent.requests.clear()
    compare(mark)
    assert agent.count("/events/search") == 1


def test_as_many_events_here_as_are_missing_are_not_taken_for_them(store, conversation, agent, known):
    """An event is posted before the agent server writes it to its file: a kill in between leaves it here alone."""
    log = history(40)
    lost = message("never written", timestamp=at(39))
    compare = known(log, [*log[:39], lost])

    compare()

    assert {*ids(store, conversation)} == {one["id"] for one in [*log, lost]}


def test_only_what_has_grown_since_the_last_comparison_is_read(store, conversation, agent, known):
    log = history(1000)
    mark = known(log, [])()
    log += [message(f"more {number}", timestamp=at(4000 + number)) for number in range(10)]
    agent.requests.clear()

    catch_up(store, agent.server(), conversation, store.conversations.sandbox_of(conversation), mark)

    assert agent.count("/events/search") == 1  # from the mark on: nothing was posted
    assert ids(store, conversation) == [one["id"] for one in log]


def test_an_agent_whose_log_began_again_is_read_from_its_first_event(store, conversation, agent, known):
    log = history(300)
    compare = known(log, log[:10])
    mark = compare()
    agent.logs[conversation] = fresh = [message(f"anew {number}", timestamp=at(5000 + number)) for number in range(150)]

    mark = compare(mark)

    assert ids(store, conversation) == [one["id"] for one in log + fresh]
    assert (mark.length, mark.last) == (150, fresh[-1]["id"])


def test_a_comparison_that_is_cut_off_at_any_request_and_repeated_ends_the_same(store, conversation, agent, known):
    log = history(450)
    compare = known(log, random.Random(7).sample(log, 200))
    cut = 0
    while True:
        agent.requests.clear()
        agent.statuses = [200] * cut + [0, 0]
        try:
            compare()
        except AgentUnreachable:
            cut += 1
        else:
            break

    assert cut >= 5
    assert ids(store, conversation) == [one["id"] for one in log]
    assert store.events.count(conversation) == 450


def test_an_action_whose_end_was_posted_before_it_came_is_ended_in_the_log(store, conversation, known):
    one = action("ls", timestamp=at(1))
    log = [one, observation(one, timestamp=at(2)), status("finished") | {"timestamp": at(3)}]
    known(log, log[1:])()
    assert ids(store, conversation) == [one["id"] for one in log]
    assert store.approvals.confirmations.open_ids(conversation) == []


def test_what_no_log_keeps_is_left_out(store, conversation, agent, known):
    log = history(3)
    passing = [
        event("ConversationStateUpdateEvent", "environment", key="full_state", value={"execution_status": "error"}),
        event("StreamingDeltaEvent", "agent", content="x"),
    ]
    mark = known([log[0], *passing, *log[1:]], [])()

    assert ids(store, conversation) == [one["id"] for one in log]
    assert store.conversations.get(conversation)["execution_status"] == "idle"
    assert mark.length == 5


# agent servers that are not as they should be


UNFIT = [
    "text",
    {"id": "x"},
    {**event(), "id": ""},
    {**event(), "id": "i" * 129},
    {**event(), "timestamp": "soon"},
    {**event(), "source": "\ud800"},
    {**event(), "kind": 5},
    {**event(), "text": "x" * (1 << 20)},
    action(tool_name="t" * 5000),
]


def test_events_that_no_webhook_would_take_are_left_out(store, conversation, agent, known):
    log = history(2)
    agent.replies["/events/search"] = {"items": [log[0], *UNFIT, log[1]], "next_page_id": None}
    known([*log, log[0]], [])()
    assert ids(store, conversation) == [one["id"] for one in log]


@pytest.mark.parametrize(
    "bounds", [{(client, "MOST_BYTES"): 20_000}, {(wire, "MOST_VALUES"): 300, (wire, "_FEW_MARKS"): 50}]
)
def test_pages_that_are_too_long_are_asked_for_in_halves(store, conversation, agent, known, monkeypatch, bounds):
    for (module, name), bound in bounds.items():
        monkeypatch.setattr(module, name, bound)
    log = [message("x" * 3000, timestamp=at(number)) for number in range(40)]

    known(log, [])()

    assert ids(store, conversation) == [one["id"] for one in log]


def test_an_event_that_is_too_long_by_itself_ends_the_comparison_and_blocks_nothing(
    store, conversation, agent, known, monkeypatch
):
    monkeypatch.setattr(client, "MOST_BYTES", 20_000)
    log = [*history(3), message("x" * 30_000, timestamp=at(5)), message("after", timestamp=at(6))]

    mark = known(log, [])()

    assert ids(store, conversation) == [one["id"] for one in log[:3]]
    assert mark.last == log[2]["id"]


def test_pages_that_never_end_are_refused(agent, known):
    log = history(300)
    agent.replies["/events/search"] = {"items": log[:100], "next_page_id": log[100]["id"]}
    compare = known(log, [])
    with pytest.raises(AgentUnreachable, match="repeat"):
        compare()


@pytest.mark.parametrize("number", ["many", -1, True, None])
def test_a_count_that_is_no_number_is_refused(agent, known, number):
    agent.replies["/events/count"] = number
    compare = known([], [])
    with pytest.raises(AgentUnreachable, match="number"):
        compare()


def test_the_comparison_ends_with_the_deletion_of_its_conversation(store, conversation, agent, known):
    compare = known(history(3), [])
    agent.on_request = lambda path: store.conversations.delete(conversation) if path.endswith("/count") else None
    with pytest.raises(ConversationNotFound):
        compare()
    assert store.conversations.get_many([conversation]) == [None]


def test_pages_without_end_that_name_ever_other_pages_end_the_comparison_after_its_time(
    store, conversation, known, sandbox, monkeypatch
):
    known([], [])

    class Endless:
        asked = 0

        def count_events(self, _, **__):
            return 5

        def events(self, _, **__):
            self.asked += 1
            return [], f"page {self.asked}"

    agent = Endless()
    monkeypatch.setattr(agent_log, "time", SimpleNamespace(monotonic=lambda: agent.asked))  # a second a page
    mark, is_whole = catch_up(store, agent, conversation, sandbox.id, LogMark())

    assert (mark.length, is_whole) == (0, False)
    assert 30 <= agent.asked <= 32
