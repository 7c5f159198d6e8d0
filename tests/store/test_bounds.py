"""The bounds of one conversation: no batch and no decision exceeds its share of Redis."""

import json
import random
from uuid import uuid4

import pytest
from redis import Redis

from store.errors import ConversationNotFound, LogTooLong, ReasonTooLong, TooManyKinds, TooManyPending
from store.keys import ConversationKeys
from tests.conftest import BOUNDS, action, as_events, event, limits_of, observation, status, store_of, unchecked
from tests.servers import store_server

ALWAYS, NEVER = {"kind": "AlwaysConfirm"}, {"kind": "NeverConfirm"}
LIMITS = limits_of(most=1, pause_idlest=False, host_seconds=3600, start_seconds=3600)
MOST = BOUNDS.max_pending_actions


@pytest.fixture
def append(store, conversation):
    """Appends events to a conversation under AlwaysConfirm."""
    store.conversations.create(conversation, confirmation_policy=ALWAYS)
    return lambda *events, **members: store.events.append(conversation, as_events(list(events)), **members)


def thoughts(number: int) -> list[dict]:
    """Actions that are never pending, as each is alone in its response."""
    return [action(action={"kind": "ThinkAction", "thought": "hm"}) for _ in range(number)]


def open_ids(store, conversation) -> set[str]:
    stored = store.conversations._redis.hkeys(f"{ConversationKeys(conversation).root}:pending")
    return {identity.decode() for identity in stored}


def ids(events: list[dict]) -> list[str]:
    return [one["id"] for one in events]


def pending_ids(store, conversation) -> list[str]:
    return ids(store.approvals.confirmations.pending(conversation))


# the cost of an append, in commands that Redis ran


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A store of its own, and a function that counts the commands that Redis ran, by name, while it calls another."""
    with store_server(tmp_path_factory.mktemp("redis")) as (url, _), Redis.from_url(url) as redis:

        def count(call) -> dict[str, int]:
            redis.config_resetstat()
            call()
            stats = redis.info("commandstats")
            return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}

        yield store_of(url, LIMITS), count


@pytest.mark.parametrize("policy", [ALWAYS, NEVER], ids=["always", "never"])
@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(lambda: thoughts(300), id="lone thoughts"),
        pytest.param(lambda: [one | {"tool_call_id": "the same"} for one in thoughts(300)], id="one tool call"),
        pytest.param(lambda: [one | {"llm_response_id": ""} for one in thoughts(300)], id="no response"),
        pytest.param(
            lambda: [event("AgentErrorEvent", "agent", tool_call_id="the same") for _ in range(300)], id="errors"
        ),
    ],
)
def test_the_fourth_batch_of_actions_costs_the_commands_of_the_first(counted, conversation, policy, batch):
    store, count = counted
    store.conversations.create(conversation, confirmation_policy=policy)

    costs = [count(lambda: store.events.append(conversation, as_events(batch()))) for _ in range(4)]

    assert sum(costs[3].values()) <= sum(costs[0].values()) + 2  # the oldest are forgotten
    for cost in costs:
        assert cost.get("hgetall", 0) <= 1  # the open actions are read once, not once per action
        assert sum(cost.values()) <= 41


def test_a_filter_by_source_reads_at_most_one_sorted_set_per_allowed_pair(counted, conversation):
    store, count = counted
    for start in range(0, 1000, 100):
        batch = [event(f"Kind{number}", "user") for number in range(start, start + 100)]
        try:
            store.events.append(conversation, as_events(batch))
        except TooManyKinds:
            break

    assert count(lambda: store.events.count(conversation, source="user"))["zcount"] <= BOUNDS.max_event_kinds


@pytest.mark.parametrize(
    "find",
    [
        lambda store, conversation: store.events.final_response(conversation),
        lambda store, conversation: store.events.cursor_before(conversation, 0),
    ],
    ids=["final response", "cursor before a time"],
)
def test_a_long_log_costs_no_more_commands_than_a_short_one(counted, conversation, find):
    store, count = counted
    store.conversations.create(conversation)
    final = action(action={"kind": "FinishAction", "message": "done"})
    store.events.append(conversation, as_events([final]))
    find(store, conversation)  # loads the script
    short = count(lambda: find(store, conversation))
    for _ in range(5):
        store.events.append(conversation, as_events([action() for _ in range(500)]))

    assert count(lambda: find(store, conversation)) == short
    assert sum(short.values()) <= 6


# pending actions


def test_a_batch_with_too_many_pending_actions_is_refused_and_writes_nothing(store, conversation, append):
    append(*(action() for _ in range(MOST)))
    before = store.conversations.get(conversation), pending_ids(store, conversation)

    with pytest.raises(TooManyPending, match=rf"At most {MOST} .*MAX_PENDING_ACTIONS"):
        append(event(), status("running"), action(), event("NewKind"))

    assert (store.conversations.get(conversation), pending_ids(store, conversation)) == before
    assert store.events.count(conversation, kind="NewKind") == 0
    assert store.events.count(conversation) == MOST + 1


def test_a_single_batch_of_too_many_actions_is_refused_whole(store, conversation, append):
    with pytest.raises(TooManyPending):
        append(*(action() for _ in range(MOST + 1)))

    assert store.events.count(conversation) == 0
    assert store.conversations.get(conversation)["execution_status"] == "idle"


def test_a_refused_batch_is_accepted_after_the_pending_actions_are_decided(store, conversation, append):
    append(*(action() for _ in range(MOST)))
    more = action()
    with pytest.raises(TooManyPending):
        append(more)

    assert store.approvals.confirmations.decide(conversation, accept=True, reason="")
    append(more)

    assert pending_ids(store, conversation) == [more["id"]]


def test_an_observation_in_the_same_batch_makes_room(store, conversation, append):
    first, *others = [action() for _ in range(MOST)]
    append(first, *others)
    more = action()

    append(observation(first), more)

    assert pending_ids(store, conversation) == ids([*others, more])


def test_lone_thoughts_are_never_pending_and_the_oldest_are_forgotten(store, conversation, append):
    batches = [thoughts(200) for _ in range(3)]

    for batch in batches:
        append(*batch)

    assert open_ids(store, conversation) == set(ids([one for batch in batches for one in batch][-MOST:]))
    assert store.conversations.get(conversation)["execution_status"] == "idle"


def test_a_pending_action_forgets_the_oldest_action_that_was_never_pending(store, conversation, append):
    older = thoughts(MOST)
    append(*older)
    held = action()

    append(held)

    assert pending_ids(store, conversation) == ids([*older[1:], held])


def test_a_policy_that_holds_nothing_forgets_the_oldest_whatever_the_status(store, conversation, append):
    store.approvals.confirmations.set_policy(conversation, NEVER)
    actions = [action() for _ in range(3 * 400)]

    for start in range(0, len(actions), 400):
        append(*actions[start : start + 400], status("waiting_for_confirmation"))

    assert pending_ids(store, conversation) == ids(actions[-MOST:])


def test_the_oldest_actions_of_a_sandbox_are_forgotten_and_its_batch_is_taken(store, conversation):
    store.conversations.create(conversation, sandbox_id="box", app={}, confirmation_policy=ALWAYS)
    actions = [action() for _ in range(400)]

    store.events.append(conversation, as_events([*actions, status("waiting_for_confirmation")]), sandbox_id="box")

    assert store.events.count(conversation) == 401
    assert pending_ids(store, conversation) == ids(actions[-MOST:])


def test_a_forgotten_action_that_is_observed_closes_no_other(store, conversation, append):
    actions = thoughts(MOST + 10)
    append(*actions)

    append(observation(actions[0]), event("AgentErrorEvent", "agent", tool_call_id=actions[1]["tool_call_id"]))

    assert open_ids(store, conversation) == set(ids(actions[10:]))


def test_an_error_closes_all_open_actions_of_its_tool_call(store, conversation, append):
    same = [action(tool_call_id="the same") for _ in range(5)]
    other = action()
    append(*same, other)

    append(event("AgentErrorEvent", "agent", tool_call_id="the same"))

    assert pending_ids(store, conversation) == [other["id"]]


def test_a_thought_is_pending_beside_an_action_of_the_same_response_from_an_earlier_batch(store, conversation, append):
    [thought], companion = thoughts(1), action(llm_response_id="r")
    store.approvals.confirmations.set_policy(conversation, NEVER)
    append(companion)
    store.approvals.confirmations.set_policy(conversation, ALWAYS)

    append(thought | {"llm_response_id": "r"})

    assert pending_ids(store, conversation) == [companion["id"], thought["id"]]


ODD = ["\x00", 'quote " and \\', "😀 é", "line\nbreak", "%s {conv} ]]", "/", "\x7f"]


def test_a_rejection_names_its_action_whatever_the_names_hold(store, conversation, append):
    names = [*ODD, "lone \ud800 surrogate"]
    held = [action(tool_name=name, tool_call_id=name, llm_response_id=name) for name in names]
    append(*held)

    assert store.approvals.confirmations.decide(conversation, accept=False, reason=ODD[2])

    rejections = [json.loads(raw) for raw in store.events.search(conversation, kind="UserRejectObservation")[0]]
    assert sorted(ids(held)) == sorted(one["action_id"] for one in rejections)
    assert sorted((one["tool_name"], one["tool_call_id"]) for one in rejections) == sorted(
        zip(names, names, strict=True)
    )
    assert {one["rejection_reason"] for one in rejections} == {ODD[2]}


def test_an_action_of_any_id_is_closed_by_its_observation(store, conversation, append):
    held = [action(id=f"{name}{uuid4()}") for name in ODD]
    append(*held)

    for number, one in enumerate(held, 1):
        append(observation(one))
        assert pending_ids(store, conversation) == ids(held[number:])


def test_pending_actions_of_many_megabytes_are_all_listed_in_log_order(store, conversation, append):
    actions = [action("x" * 900_000) for _ in range(12)]
    for start in range(0, 12, 4):
        append(*actions[start : start + 4])

    assert pending_ids(store, conversation) == ids(actions)


# reasons


def test_a_rejection_of_the_most_pending_actions_writes_less_than_two_megabytes(store, conversation, append):
    append(*(action() for _ in range(MOST)))

    assert store.approvals.confirmations.decide(conversation, accept=False, reason="r" * BOUNDS.max_reason_bytes)

    written = 0
    page_id = None
    while True:
        found, page_id = store.events.search(conversation, kind="UserRejectObservation", page_id=page_id)
        written += sum(map(len, found))
        if page_id is None:
            break
    assert MOST * BOUNDS.max_reason_bytes < written < 2 * 1024 * 1024


@pytest.mark.parametrize("reason", ["r" * (BOUNDS.max_reason_bytes + 1), "é" * (BOUNDS.max_reason_bytes // 2 + 1)])
def test_a_reason_that_is_too_long_is_refused_and_decides_nothing(store, conversation, append, reason):
    held = action()
    append(held)

    with pytest.raises(ReasonTooLong, match="MAX_REASON_BYTES"):
        store.approvals.confirmations.decide(conversation, accept=False, reason=reason)

    assert pending_ids(store, conversation) == [held["id"]]


# bytes


@pytest.fixture
def small(redis_url, conversation):
    """A store whose conversations may have 4096 bytes, and one of them."""
    small = store_of(redis_url, LIMITS, bounds=unchecked(BOUNDS, max_conversation_bytes=4096))
    small.conversations.create(conversation)
    return small


def noise(size: int) -> str:
    """Text that does not get shorter by packing."""
    return random.Random(size).randbytes(size).hex()


def test_a_log_takes_no_event_and_no_message_beyond_its_bytes(small, conversation):
    small.events.append(conversation, as_events([event("Kind", text=noise(500))]))

    with pytest.raises(LogTooLong, match=r"4096 bytes .*MAX_CONVERSATION_BYTES"):
        small.events.append(conversation, as_events([event("Kind", text="short"), event("Kind", text=noise(4000))]))
    with pytest.raises(LogTooLong):
        small.events.send(conversation, content=[{"type": "text", "text": noise(4000)}], run=False)

    assert small.events.count(conversation) == 1
    small.events.send(conversation, content=[{"type": "text", "text": "short"}], run=False)
    assert small.events.count(conversation) == 2


def test_a_copy_counts_the_bytes_of_its_log(small, conversation):
    small.events.append(conversation, as_events([event("Kind", text=noise(2000))]))
    copy = small.conversations.forks.fork(conversation)

    with pytest.raises(LogTooLong):
        small.events.append(copy, as_events([event("Kind", text=noise(2001))]))


def test_an_import_that_is_too_long_leaves_nothing(small, conversation):
    head = small.conversations.get(conversation)
    small.conversations.delete(conversation)

    with pytest.raises(LogTooLong):
        small.conversations.exports.load(
            conversation, head, as_events([event("Kind", text=noise(size)) for size in (2000, 2001)])
        )

    with pytest.raises(ConversationNotFound):
        small.conversations.get(conversation)


# kinds and sources


def test_a_batch_that_brings_too_many_pairs_is_refused_and_writes_nothing(store, conversation, append):
    known = [event(f"Kind{number}", "user") for number in range(BOUNDS.max_event_kinds)]
    append(*known)

    with pytest.raises(TooManyKinds, match=rf"at most {BOUNDS.max_event_kinds} .*MAX_EVENT_KINDS"):
        append(event("Kind0", "user"), event("Kind0", "agent"))

    assert store.events.count(conversation) == len(known)
    assert append(event("Kind0", "user")) == (1, len(known) + 1)


def test_events_of_the_server_take_no_room_among_the_pairs(store, conversation, append):
    append(*(event(f"Kind{number}", "user") for number in range(BOUNDS.max_event_kinds - 1)), action())
    assert store.events.count(conversation) == BOUNDS.max_event_kinds + 1  # the second action is pending

    store.events.send(conversation, content=[], run=True)

    assert store.events.count(conversation, kind="MessageEvent") == 1
    assert store.events.count(conversation, kind="UserRejectObservation") == 1


def test_a_copy_of_a_conversation_has_all_its_pairs(store, conversation, append):
    append(*(event(f"Kind{number}", "user") for number in range(BOUNDS.max_event_kinds - 1)), action())

    copy = store.conversations.forks.fork(conversation)

    assert store.events.count(copy) == store.events.count(conversation)
