"""The outboxes, and the queues of targets."""

import json
from uuid import uuid4

import pytest
from redis import Redis

from store.errors import SecretsRefused
from store.keys import OUTBOXES
from store.link.secrets import Sealer
from store.notifications import GIVEN_UP, MOST_QUEUED, OutboxState, Targets
from store.scripts import Scripts
from tests.conftest import SECRET_KEY, as_events, message, status
from tests.notifications import entry, forget_notifications, push
from tests.store.conftest import fresh_sandboxes, keys, running_sandbox


@pytest.fixture
def outboxes(store):
    """Outboxes that a supervisor wants to be filled."""
    forget_notifications(store)
    store.notifications.outboxes.want()
    yield store.notifications.outboxes
    forget_notifications(store)


def pushed(outboxes, name) -> list[dict]:
    return [json.loads(raw) for raw in outboxes.read(1000).get(name, [])]


@pytest.mark.parametrize("end", ["finished", "error"])
def test_a_conversation_that_ends_sends_one_notification_per_change(store, outboxes, conversation, end):
    store.events.append(conversation, as_events([status("running"), status(end)]))
    state = store.conversations.get(conversation)
    store.events.append(conversation, as_events([message("afterwards", "environment")]))

    [entry] = pushed(outboxes, "conversations")
    assert entry["type"] == f"conversation.{end}"
    assert entry["conversation_id"] == conversation
    assert entry["id"] == f"msg_{conversation}-{state['revision']}"

    store.events.append(conversation, as_events([status("running")]))
    store.events.append(conversation, as_events([status(end)]))
    assert len({one["id"] for one in pushed(outboxes, "conversations")}) == 2


def test_other_changes_of_a_conversation_send_no_notification(store, outboxes, conversation):
    store.events.append(conversation, as_events([message("hello"), status("running")]))
    for present in ("paused", "running", "idle", "running", "stuck", "running"):
        store.events.append(conversation, as_events([status(present)]))

    assert pushed(outboxes, "conversations") == []


def test_a_repeated_or_late_note_of_an_end_sends_no_second_notification(store, outboxes):
    listing, identity, times = store.conversations._listing, str(uuid4()), ("2026-11-20T20:37:22Z",) * 2
    listing.note(identity, 1, "running", *times)
    for revision in (3, 3, 2, 3):
        listing.note(identity, revision, "finished", *times)
    listing.note(identity, 4, "finished", *times)

    [one] = pushed(outboxes, "conversations")
    assert one["id"] == f"msg_{identity}-3"


def test_a_conversation_that_is_listed_for_the_first_time_has_not_changed(store, outboxes):
    store.conversations._listing.note(str(uuid4()), 1, "finished", *("2026-11-20T20:37:22Z",) * 2)

    assert pushed(outboxes, "conversations") == []


def test_a_failed_sandbox_sends_one_notification(redis_url, outboxes):
    sandboxes = fresh_sandboxes(redis_url)
    outboxes.want()
    sandbox = running_sandbox(sandboxes)
    for _ in range(3):
        sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", detail="It ended")

    [one] = pushed(outboxes, "sandboxes")
    assert (one["type"], one["sandbox_id"]) == ("sandbox.error", sandbox.id)
    assert one["id"].startswith(f"msg_{sandbox.id}-")
    sandboxes.ask(sandbox.id, "resume")
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", detail="It ended again")
    assert len({one["id"] for one in pushed(outboxes, "sandboxes")}) == 2


def test_a_sandbox_that_no_host_takes_sends_a_notification(redis_url, outboxes):
    sandboxes = fresh_sandboxes(redis_url, start_seconds=0)
    outboxes.want()
    sandbox = sandboxes.start("spec")
    assert sandboxes.get(sandbox.id).status == "ERROR"

    assert [one["sandbox_id"] for one in pushed(outboxes, "sandboxes")] == [sandbox.id]


def test_nothing_is_pushed_while_no_supervisor_has_targets(store, redis_url, outboxes, conversation):
    forget_notifications(store)
    sandboxes = fresh_sandboxes(redis_url)
    sandboxes.report(running_sandbox(sandboxes).id, "h", "supervisor", "ERROR")
    store.events.append(conversation, as_events([status("running"), status("finished")]))

    assert outboxes.read(1000) == {}
    assert [one.waiting for one in outboxes.states()] == [0, 0, 0]


def test_the_mark_that_targets_exist_expires_after_a_day(store, outboxes):
    for outbox in OUTBOXES.values():
        assert 86_000 < outboxes._redis.ttl(f"{outbox}:wanted") <= 86_400


def test_a_full_outbox_drops_its_oldest_entry_and_counts_it(store, outboxes, conversation):
    redis, key = outboxes._redis, OUTBOXES["conversations"]
    redis.rpush(key, *range(10_000))
    store.events.append(conversation, as_events([status("running")]))
    store.events.append(conversation, as_events([status("finished")]))

    assert outboxes.states()[1] == OutboxState("conversations", 10_000, 1)
    assert redis.lindex(key, 0) == b"1"


def test_concurrent_readers_take_each_entry_once(store, outboxes):
    push(store, "approvals", *(entry(n) for n in range(6)))
    mine = outboxes.read(4)["approvals"]
    theirs = outboxes.read(2)["approvals"]
    outboxes.remove("approvals", theirs)

    outboxes.remove("approvals", mine)
    outboxes.remove("approvals", mine)

    assert pushed(outboxes, "approvals") == [entry(4), entry(5)]


ONE, TWO = "0123456789ab", "ba9876543210"


@pytest.fixture
def redis(store) -> Redis:
    return store.notifications.targets._redis


@pytest.fixture
def queues(store):
    """Two targets without a message."""
    forget_notifications(store)
    store.notifications.targets.open({ONE: "https://one", TWO: "https://two"}, again=True)
    yield store.notifications.targets
    forget_notifications(store)


def bounded(redis, **bounds) -> Targets:
    return Targets(redis, Scripts(redis), Sealer((SECRET_KEY,)), **bounds)


def add(queues, targets: list[str], *messages: tuple[str, str]) -> dict[str, int]:
    """Queue messages whose body is the same for all targets."""
    return queues.add(targets, [(one, [body] * len(targets)) for one, body in messages])


def take(queues, target=ONE) -> str | None:
    """The id of the next message that a target takes; None: none is due."""
    claimed = queues.claim(target, "token", 60)
    if claimed is not None:
        assert queues.close(claimed, "sent") == "sent"
    return claimed and claimed.id


def fail(queues, target=ONE, reason="it answered 500", *, again_in=0.0) -> str:
    return queues.close(queues.claim(target, "token", 60), "failed", reason, again_in=again_in)


def test_three_days_pass_before_a_message_is_given_up():
    assert (GIVEN_UP, MOST_QUEUED) == (3 * 24 * 3600, 10_000)


def test_every_target_gets_every_message_once_per_id_and_in_order(queues):
    add(queues, [ONE, TWO], ("msg_1", "a"), ("msg_2", "b"))
    add(queues, [ONE, TWO], ("msg_2", "another"), ("msg_3", "c"))  # by a supervisor that was killed before

    for target in (ONE, TWO):
        assert [take(queues, target) for _ in range(4)] == ["msg_1", "msg_2", "msg_3", None]
    assert add(queues, [ONE, TWO], ("msg_1", "a")) == {}
    assert take(queues) is None


def test_each_target_has_a_body_of_its_own(queues):
    queues.add([ONE, TWO], [("msg_1", ["for one", "for two"]), ("msg_2", ["one", "two"])])

    for target, bodies in ((ONE, ["for one", "one"]), (TWO, ["for two", "two"])):
        for body in bodies:
            claimed = queues.claim(target, "token", 60)
            assert queues.body_of(claimed) == body
            queues.close(claimed, "sent")


def test_a_backoff_ends_if_its_failure_lies_in_the_future(queues, redis):
    add(queues, [ONE], ("msg_1", "a"))
    fail(queues, again_in=60)
    assert take(queues) is None

    # When the clock of Redis steps back by an hour
    for name in ("failed_at", "next_at"):
        redis.hincrby(f"{{notify}}:state:{ONE}", name, 3_600_000_000)

    assert take(queues) == "msg_1"


def test_every_attempt_sends_the_bytes_of_the_first(queues):
    add(queues, [ONE], ("msg_1", '{"title": "Schlüssel \\u0000"}'))
    for _ in range(3):
        claimed = queues.claim(ONE, "token", 60)
        assert queues.body_of(claimed) == '{"title": "Schlüssel \\u0000"}'
        queues.close(claimed, "failed", "no")


def test_a_body_is_stored_sealed(queues, redis):
    add(queues, [ONE], ("msg_1", "a one-time link"))

    assert b"one-time" not in repr(redis.xrange(f"{{notify}}:queue:{ONE}")).encode()


def test_a_body_whose_key_is_no_longer_set_is_refused_and_can_be_given_up(queues, redis):
    add(queues, [ONE], ("msg_1", "a"), ("msg_2", "b"))
    stranger = Targets(redis, Scripts(redis), Sealer(("another key of sixteen",)))
    claimed = stranger.claim(ONE, "token", 60)

    with pytest.raises(SecretsRefused):
        stranger.body_of(claimed)
    assert stranger.close(claimed, "lost", "unreadable") == "given up"
    assert queues.states()[ONE].given_up == 1
    assert take(queues) == "msg_2"


def test_a_target_has_one_sender_at_a_time(queues):
    add(queues, [ONE, TWO], ("msg_1", "a"))
    claimed = queues.claim(ONE, "mine", 60)

    assert queues.claim(ONE, "theirs", 60) is None
    assert queues.claim(ONE, "mine", 60)[:4] == claimed[:4]  # a repeat after a timeout
    assert take(queues, TWO) == "msg_1"  # another target is another lease


def test_the_message_of_a_killed_sender_is_sent_again_when_its_lease_ends(queues):
    add(queues, [ONE], ("msg_1", "a"))
    killed = queues.claim(ONE, "killed", 0)
    successor = queues.claim(ONE, "successor", 60)

    assert successor.id == killed.id
    assert queues.renew(successor, 60)
    assert not queues.renew(killed, 60)
    assert queues.close(killed, "sent") == "late"
    assert queues.close(successor, "sent") == "sent"
    assert queues.close(successor, "sent") == "late"  # a repeat after a timeout
    assert queues.states()[ONE].sent == 1


def test_a_lease_that_was_taken_before_the_clock_stepped_back_holds_up_no_sender(queues):
    add(queues, [ONE], ("msg_1", "a"))
    killed = queues.claim(ONE, "killed", 3600)

    assert queues.claim(ONE, "successor", 60).id == killed.id


def test_a_failed_message_keeps_its_place_and_waits(queues):
    add(queues, [ONE], ("msg_1", "a"), ("msg_2", "b"))
    assert fail(queues, again_in=3600) == "failed"
    state = queues.states()[ONE]

    assert queues.claim(ONE, "token", 60) is None
    assert (state.queued, state.tries, state.failure) == (2, 1, "it answered 500")
    assert 3500e6 < state.next_at - state.failed_at <= 3600e6
    queues.hurry(ONE)
    assert [take(queues) for _ in range(3)] == ["msg_1", "msg_2", None]
    assert queues.states()[ONE].tries == 0


def test_a_message_that_is_too_old_is_given_up_after_one_more_try_and_counted(queues, redis):
    add(queues, [ONE], ("msg_1", "a"), ("msg_2", "b"))
    hasty = bounded(redis, given_up=0)

    assert fail(hasty) == "given up"

    state = queues.states()[ONE]
    assert (state.queued, state.given_up, state.tries, state.next_at) == (1, 1, 0, None)
    assert take(queues) == "msg_2"


def test_the_age_of_a_message_is_measured_by_the_clock_of_redis(queues, redis):
    add(queues, [ONE], ("msg_1", "a"))
    seconds, _ = redis.time()
    [(_, fields)] = redis.xrange(f"{{notify}}:queue:{TWO}") or redis.xrange(f"{{notify}}:queue:{ONE}")
    redis.delete(f"{{notify}}:queue:{ONE}")
    redis.xadd(f"{{notify}}:queue:{ONE}", fields, id=f"{(seconds - 3 * 86_400 + 600) * 1000}-0")
    assert fail(queues) == "failed"  # ten minutes are left

    redis.delete(f"{{notify}}:queue:{ONE}")
    redis.xadd(f"{{notify}}:queue:{ONE}", fields, id=f"{(seconds - 3 * 86_400) * 1000}-0")
    assert fail(queues) == "given up"


def test_a_full_queue_drops_its_oldest_message_and_counts_it(queues, redis):
    small = bounded(redis, most=3)
    add(small, [ONE], *((f"msg_{n}", "a") for n in range(3)))
    claimed = small.claim(ONE, "token", 60)

    assert add(small, [ONE, TWO], *((f"msg_{n}", "a") for n in range(3, 5))) == {ONE: 2}

    assert queues.states()[ONE].dropped == 2
    assert small.close(claimed, "sent") == "sent"  # the one that was being sent is among the dropped
    assert [take(queues) for _ in range(4)] == ["msg_2", "msg_3", "msg_4", None]


def test_a_target_that_wants_no_more_gets_nothing_until_a_supervisor_starts(queues):
    add(queues, [ONE], ("msg_1", "a"))
    assert queues.close(queues.claim(ONE, "token", 60), "gone", "it answered 410") == "gone"
    add(queues, [ONE], ("msg_2", "b"))

    assert queues.claim(ONE, "token", 60) is None
    queues.open({ONE: "https://one", TWO: "https://two"}, again=False)  # the word of a running supervisor
    state = queues.states()[ONE]
    assert (state.queued, state.failure) == (2, "it answered 410")
    assert state.disabled_at == state.failed_at
    queues.open({ONE: "https://one", TWO: "https://two"}, again=True)
    assert queues.states()[ONE].disabled_at is None
    assert [take(queues), take(queues)] == ["msg_1", "msg_2"]


def test_a_target_that_no_supervisor_has_any_more_keeps_its_messages_until_they_are_too_old(queues, redis):
    add(queues, [ONE, TWO], ("msg_1", "a"), ("msg_2", "b"))

    assert queues.open({ONE: "https://one"}, again=True) == {}
    assert queues.states()[TWO].queued == 2
    assert bounded(redis, given_up=-1).open({ONE: "https://one"}, again=True) == {"https://two": 2}
    assert list(queues.states()) == [ONE]
    assert not keys(redis, f"*{TWO}*")


def test_marks_of_ids_are_bounded(queues, redis, monkeypatch):
    monkeypatch.setattr("store.notifications.MOST_MARKS", 10)
    for n in range(15):
        add(queues, [ONE], (f"msg_{n}", "a"))

    assert redis.zcard("{notify}:seen") == 10
    add(queues, [ONE], ("msg_14", "a"))
    assert queues.states()[ONE].queued == 15


def test_a_state_tells_when_the_oldest_message_was_queued(queues, redis):
    assert queues.states()[ONE].oldest is None
    add(queues, [ONE], ("msg_1", "a"))
    seconds, micros = redis.time()

    assert 0 <= seconds * 1_000_000 + micros - queues.states()[ONE].oldest < 600e6
    assert queues.states()[ONE].name == "https://one"
