"""Which sandbox makes room where as many run as may, and which never does."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest

from agents.places import after_making_room, after_those_that_wait
from store.errors import SandboxRefuses, TooManySandboxes
from tests.agents import propose, running_sandbox
from tests.conftest import limits_of, store_of
from tests.round_trips import counted


def full_store(url: str, most: int, *, pause_idlest: bool = True):
    store = store_of(url, limits_of(most, pause_idlest=pause_idlest, host_seconds=3600, start_seconds=60))
    for pattern in ("{starts}*", "{sandboxes}*"):
        for key in store.start_tasks._redis.scan_iter(pattern):
            store.start_tasks._redis.delete(key)
    return store


@pytest.fixture
def full(redis_url):
    """A store with places for three sandboxes, which three others have; the first was not used for longest."""
    store = full_store(redis_url, 3)
    with ExitStack() as stack:
        boxes = [stack.enter_context(running_sandbox(store, "http://agent")) for _ in range(3)]
        for minutes, box in zip((9, 6, 3), boxes, strict=True):
            rest_in(store, box)
            unused(store, box, 60 * minutes)
        yield store, boxes


def rest_in(store, box) -> str:
    """A conversation in a sandbox whose agent does nothing."""
    conversation = str(uuid4())
    store.conversations.create(conversation, sandbox_id=box.id, app={})
    return conversation


def run_in(store, box) -> None:
    store.conversations.change_status(rest_in(store, box), "run")


def unused(store, box, seconds: float) -> None:
    store.start_tasks._redis.hincrby(f"{{sandboxes}}:box:{box.id}", "active_at", -round(seconds * 1e6))


def one_more(store):
    return after_making_room(store, lambda: store.sandboxes.start("reference-agent"))


def paused(store, boxes) -> list[int]:
    return [number for number, box in enumerate(boxes) if store.sandboxes.get(box.id).wanted == "paused"]


def test_the_sandbox_makes_room_that_nobody_has_used_for_longest(full):
    store, boxes = full
    one_more(store)
    assert paused(store, boxes) == [0]


def test_a_sandbox_whose_agent_runs_makes_no_room_however_long_it_says_nothing(full):
    store, boxes = full
    run_in(store, boxes[0])
    one_more(store)
    assert paused(store, boxes) == [1]


def test_a_sandbox_whose_action_waits_for_a_decision_makes_room_after_those_that_rest(full):
    store, boxes = full
    propose(store, str(uuid4()), boxes[0].id)
    unused(store, boxes[0], 600)

    one_more(store)
    assert paused(store, boxes) == [1]
    one_more(store)
    one_more(store)
    assert paused(store, boxes) == [0, 1, 2]


def test_where_every_agent_runs_a_start_is_refused_with_what_to_do(full):
    store, boxes = full
    for box in boxes:
        run_in(store, box)
    with pytest.raises(TooManySandboxes, match=r"3 of 3 sandboxes are running \(MAX_SANDBOXES\)") as refused:
        one_more(store)
    assert (refused.value.kind.status, refused.value.kind.is_passing, refused.value.retry_after) == (429, True, 2)
    assert paused(store, boxes) == []


def test_a_sandbox_in_which_a_conversation_begins_makes_no_room(full):
    store, boxes = full
    task = store.start_tasks.create({}, echo={})
    _, lease = store.start_tasks.claim()
    store.start_tasks.advance(task.id, lease, sandbox_id=boxes[0].id)
    one_more(store)
    assert paused(store, boxes) == [1]


def test_a_sandbox_without_a_conversation_makes_room_once_nobody_has_used_it_for_half_a_minute(redis_url):
    store = full_store(redis_url, 1)
    with running_sandbox(store, "http://agent") as box:
        unused(store, box, 20)
        with pytest.raises(TooManySandboxes):
            one_more(store)
        unused(store, box, 20)
        one_more(store)
        assert paused(store, [box]) == [0]


def test_with_refuse_a_sandbox_of_an_agent_of_the_server_makes_no_room(redis_url):
    store = full_store(redis_url, 1, pause_idlest=False)
    with running_sandbox(store, "http://agent") as box:
        rest_in(store, box)
        unused(store, box, 600)
        with pytest.raises(TooManySandboxes):
            one_more(store)
        assert paused(store, [box]) == []


def test_a_sandbox_that_was_used_since_it_was_read_makes_no_room(full):
    store, boxes = full
    read = store.sandboxes.get(boxes[0].id)
    store.sandboxes.use(boxes[0].id)  # as a message does

    with pytest.raises(SandboxRefuses, match="in use"):
        store.sandboxes.make_way(read)
    assert paused(store, boxes) == []


def test_a_message_to_a_sandbox_that_is_being_paused_keeps_it_running(full):
    store, boxes = full
    one_more(store)
    assert paused(store, boxes) == [0]

    after_making_room(store, lambda: store.sandboxes.ask(boxes[0].id, "resume"))

    assert paused(store, boxes) == [1]


def test_a_new_sandbox_comes_after_the_starts_that_wait(full):
    store, boxes = full
    task = store.start_tasks.create({}, echo={})
    _, lease = store.start_tasks.claim()
    assert store.start_tasks.await_place(task.id, lease, "Waiting for a place") == "waits"

    with pytest.raises(TooManySandboxes):
        after_those_that_wait(store, lambda: store.sandboxes.start("reference-agent"))
    assert paused(store, boxes) == []
    store.start_tasks.end(task.id)
    after_those_that_wait(store, lambda: store.sandboxes.start("reference-agent"))
    assert paused(store, boxes) == [0]


@pytest.mark.faults("a race of threads")
def test_racing_starts_pause_no_more_sandboxes_than_they_need(full):
    store, boxes = full
    run_in(store, boxes[2])

    def start(_):
        try:
            return one_more(store)
        except TooManySandboxes:
            return None

    with ThreadPoolExecutor(12) as pool:
        begun = [one for one in pool.map(start, range(12)) if one]

    assert (len(begun), paused(store, boxes)) == (2, [0, 1])


def test_room_costs_few_round_trips_where_the_first_sandbox_makes_it(full):
    store, _ = full
    with counted() as trips:
        one_more(store)
    assert trips.number <= 10
