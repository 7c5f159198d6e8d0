"""The inbox costs the same with ten pending actions and with ten thousand: round trips, and commands in Redis."""

import json
from uuid import UUID

import pytest
from redis import Redis

from store.approvals.audit import DecisionActor
from store.approvals.inbox import MOST_CHUNKS, InboxFilter, TooManyToCount
from store.log.frames import PAGE_BYTES
from tests.conftest import action, as_events, limits_of, store_of
from tests.round_trips import asks_by_request_alone, counted
from tests.servers import store_server
from tests.store.conftest import ALWAYS

LIMITS = limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)
LARGE = 10_000


class InboxWorld:
    """A store with ten pending actions, and with entries of the index between the fifth and the sixth of them."""

    def __init__(self, url: str, entries: int) -> None:
        self.store, self.redis = store_of(url, LIMITS), Redis.from_url(url)
        asks_by_request_alone(self.store)
        self.conversations = [self.begin(number) for number in range(5)]
        self._plant(entries)
        self.conversations += [self.begin(number) for number in range(5, 10)]

    def begin(self, number: int) -> str:
        conversation = str(UUID(int=number))
        self.store.conversations.create(conversation, confirmation_policy=ALWAYS)
        self.store.events.append(conversation, as_events([action()]))
        return conversation

    def _plant(self, entries: int) -> None:
        [(_, at)] = self.redis.zrange("{approvals}:waiting", -1, -1, withscores=True)
        item = {"seq": 1, "since": "", "tool": "terminal", "risk": "LOW", "digest": "", "expires": "", "size": 1000}
        written = json.dumps({**item, "opened": "0-0"})
        members = [f"{UUID(int=1000 + number)} action" for number in range(entries)]
        for first in range(0, entries, 1000):
            chunk = members[first : first + 1000]
            self.redis.zadd("{approvals}:waiting", {one: at for one in chunk})
            self.redis.hset("{approvals}:items", mapping=dict.fromkeys(chunk, written))

    def commands(self) -> int:
        stats = self.redis.info("commandstats")
        return sum(one["calls"] for name, one in stats.items() if name != "cmdstat_info")

    def cost(self, act) -> tuple[int, int]:
        """Round trips of one call, and the commands that the server runs for it."""
        act(self)  # loads the scripts
        before = self.commands()
        with counted() as trips:
            act(self)
        return trips.number, self.commands() - before


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """The small store and the large one."""
    small, large = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("large")
    with store_server(small) as (one, _), store_server(large) as (other, _):
        yield InboxWorld(one, 0), InboxWorld(other, LARGE)


def page(world: InboxWorld, *, descending: bool = False, limit: int = 5, **filters):
    return world.store.approvals.inbox.page(InboxFilter(**filters), descending=descending, limit=limit, start=None)


def decide_and_wait_again(world: InboxWorld) -> None:
    conversation = world.conversations[-1]  # whose action is the newest: the order of the others stays for other tests
    world.store.approvals.confirmations.decide(
        conversation, accept=False, reason="no", actor=DecisionActor("key", "alice")
    )
    world.store.events.append(conversation, as_events([action()]))


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(page, id="the oldest"),
        pytest.param(lambda world: page(world, descending=True), id="the newest"),
        pytest.param(lambda world: page(world, conversation_id=world.conversations[3]), id="of a conversation"),
        pytest.param(lambda world: world.store.approvals.inbox.count(InboxFilter()), id="a count"),
        pytest.param(
            lambda world: world.store.approvals.inbox.count(InboxFilter(since=1, until=2)), id="a count of a time"
        ),
        pytest.param(
            lambda world: world.store.approvals.rule_decisions.refresh(world.conversations[9]), id="a refresh"
        ),
        pytest.param(lambda world: world.store.approvals.checks.due(), id="what is due"),
    ],
)
def test_an_operation_costs_the_same_however_many_actions_wait(worlds, act):
    small, large = (world.cost(act) for world in worlds)
    assert small == large


def test_a_page_is_two_round_trips(worlds):
    for world in worlds:
        assert world.cost(page)[0] == 2


def test_a_decision_writes_the_same_however_many_actions_wait(worlds):
    small, large = (world.cost(decide_and_wait_again) for world in worlds)
    assert small == large


def test_a_page_of_a_tool_that_no_action_has_scans_a_bounded_part_of_the_index(worlds):
    _, large = worlds
    found, following = page(large, tool="none")
    assert (found, following is None) == ([], False)
    assert large.cost(lambda world: page(world, tool="none"))[0] == MOST_CHUNKS


def test_pages_of_a_tool_end_after_the_whole_index(worlds):
    _, large = worlds
    pages, start = 0, None
    while pages == 0 or start is not None:
        _, start = large.store.approvals.inbox.page(InboxFilter(tool="none"), descending=False, limit=5, start=start)
        pages += 1
    assert LARGE / (MOST_CHUNKS * 1000) <= pages <= 2 + LARGE / (MOST_CHUNKS * 1000)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A small store for tests that change what waits."""
    with store_server(tmp_path_factory.mktemp("own")) as (url, _):
        yield InboxWorld(url, 0)


def test_a_page_ends_at_a_bound_of_bytes_and_the_next_goes_on(own):
    for conversation in own.conversations:
        own.store.approvals.confirmations.decide(
            conversation, accept=False, reason="no", actor=DecisionActor("key", "alice")
        )
        own.store.events.append(conversation, as_events([action("x" * 1_000_000)]))

    for filters in ({}, {"text": "x"}):
        pages, start = [], None
        while not pages or start is not None:
            found, start = own.store.approvals.inbox.page(
                InboxFilter(**filters), descending=False, limit=100, start=start
            )
            pages.append(len(found))
        assert pages == [4, 4, 2]
    assert PAGE_BYTES >= 4_000_000
    assert own.store.approvals.inbox.count(InboxFilter(text="XXX")) == 10


def test_a_count_by_text_reads_a_bounded_number_and_says_which(worlds, monkeypatch):
    small, _ = worlds  # ten actions wait
    monkeypatch.setattr("store.approvals.inbox._READ", 2)
    monkeypatch.setattr("store.approvals.inbox.MOST_COUNTED", 10)
    assert small.store.approvals.inbox.count(InboxFilter(text="LS")) == 10
    monkeypatch.setattr("store.approvals.inbox.MOST_COUNTED", 8)
    with pytest.raises(TooManyToCount, match="8 pending actions at most"):
        small.store.approvals.inbox.count(InboxFilter(text="ls"))
