"""The streams of the inbox: a snapshot, then each change once, whatever happens between the two."""

import json
from collections import Counter

import pytest

from core.prices import ModelBudget
from settings.config import Config
from store.approvals import inbox_stream
from store.approvals.audit import DecisionActor
from store.approvals.decisions import Decision
from store.approvals.inbox import InboxFilter, load
from store.approvals.inbox_stream import InboxFollower, id_of, place_of
from store.errors import FellBehind, Stopping, TooManyFollowers
from store.keys import ApprovalKeys
from tests.conftest import SECRET_KEY, action, as_events, status
from tests.servers import wait_until
from tests.store.conftest import expire, fresh_sandboxes, poll, running_sandbox
from wiring import open_store_of

PERSON = DecisionActor("key", "a person", "192.0.2.1")


@pytest.fixture
def propose(store, conversation):
    """Have actions of the test's conversation wait; returns their ids."""
    store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"}, tags={"team": "red"})

    def propose(*actions) -> list[str]:
        store.events.append(conversation, as_events([*actions, status("waiting_for_confirmation")]))
        return [one["id"] for one in actions]

    return propose


@pytest.fixture
def reject(store, conversation):
    def reject(*ids, actor=PERSON):
        store.approvals.confirmations.decide_each(conversation, [Decision(one, "reject", "no") for one in ids], actor)

    return reject


@pytest.fixture
def follow(store, conversation):
    """Follow the changes of the test's conversation, until the end of the test."""
    followers = []

    def follow(after=None, of=store, **filters) -> InboxFollower:
        filters = {"conversation_id": conversation, **filters}
        followers.append(of.streams.inbox.follow(after, InboxFilter(**filters)))
        return followers[-1]

    yield follow
    for one in followers:
        one.close()


@pytest.fixture
def add_change(store, conversation):
    """Write a change into the stream, which then holds at most so many, and publish nothing."""
    redis = store.approvals.inbox._redis

    def add_change(action_id="an action", most=None):
        known = {"kind": "closed", "conversation_id": conversation, "action_id": action_id, "seq": 1, "size": 100}
        fields = {**known, "since": "2026-11-20T20:37:22Z", "tool": "terminal", "risk": "UNKNOWN"}
        redis.xadd(ApprovalKeys.stream, fields, maxlen=most, approximate=False)

    return add_change


def small_store(redis_url, **settings):
    """A store of its own, as another process has it."""
    return open_store_of(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **settings))


def taken(follower, *names: str) -> list[tuple[str, dict, str]]:
    """The events until all these names have come: name, data and id of each."""
    events = []

    def have_come():
        events.extend(follower.next(1.0))
        return not Counter(names) - Counter(one.name for one in events)

    wait_until(have_come, " and ".join(names))
    return [(one.name, json.loads(one.raw), one.id) for one in events]


def told(events) -> list[tuple[str, str]]:
    """The changes: name and action."""
    return [(name, data["action_id"]) for name, data, _ in events if "action_id" in data]


def shown(events) -> list[str]:
    """The actions of the snapshot."""
    return [item["action_id"] for name, data, _ in events if name == "snapshot" for item in data["items"]]


def test_a_snapshot_comes_first_and_then_each_change_once(follow, propose, reject):
    [old] = propose(action("old"))
    stream = follow()
    begun = taken(stream, "ready")

    [new] = propose(action("new"))
    reject(old, new)
    changes = taken(stream, "decided", "decided")

    assert [name for name, _, _ in begun] == ["reset", "snapshot", "ready"]
    assert (begun[0][1], shown(begun)) == ({"reason": "new"}, [old])
    assert told(changes) == [("opened", new), ("decided", old), ("decided", new)]


def test_an_opened_action_is_what_a_snapshot_shows(follow, propose):
    stream = follow()
    taken(stream, "ready")

    propose(action("ls", summary="Look", thought=[{"type": "text", "text": "Hm"}], security_risk="LOW"))

    [(_, opened, _)] = taken(stream, "opened")
    [(_, first, _), *_] = [one for one in taken(follow(), "ready") if one[0] == "snapshot"]
    assert [opened] == first["items"]
    assert (opened["arguments"]["command"], opened["summary"], opened["thought"]) == ("ls", "Look", "Hm")


def test_a_decision_tells_who_decided_what_when_and_why_but_no_address(follow, propose, reject):
    [one] = propose(action())
    stream = follow()
    taken(stream, "ready")

    reject(one)

    [(_, decided, _)] = taken(stream, "decided")
    assert decided.pop("time").endswith("Z")
    assert (decided["action_id"], decided["decision"], decided["reason"]) == (one, "reject", "no")
    assert decided["actor"] == {"kind": "key", "name": "a person"}


# between the snapshot and the changes


@pytest.mark.process("waits for what threads do")
def test_an_action_that_is_opened_before_the_snapshot_is_read_is_not_opened_again(follow, propose):
    stream = follow()
    ids = propose(action("one"), action("two"))

    begun = taken(stream, "ready")
    [later] = propose(action("later"))

    assert (sorted(shown(begun)), told(begun)) == (sorted(ids), [])
    assert told(taken(stream, "opened")) == [("opened", later)]


@pytest.mark.process("waits for what threads do")
def test_an_action_that_is_decided_before_the_snapshot_is_read_is_decided_once(follow, propose, reject):
    [old] = propose(action())
    stream = follow()
    reject(old)

    events = taken(stream, "ready", "decided")

    assert (shown(events), told(events)) == ([], [("decided", old)])


@pytest.mark.process("waits for what threads do")
def test_an_action_that_is_opened_and_decided_before_the_snapshot_is_read_is_both_once(follow, propose, reject):
    stream = follow()
    [one] = propose(action())
    reject(one)

    events = taken(stream, "ready", "decided")

    assert (shown(events), told(events)) == ([], [("opened", one), ("decided", one)])
    assert [set(data) for name, data, _ in events if name == "opened"] == [{"conversation_id", "action_id", "since"}]


@pytest.mark.process("waits for what threads do")
def test_an_action_of_a_second_life_of_its_conversation_is_in_the_snapshot_and_nowhere_else(
    store, follow, conversation
):
    def live():
        store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"})
        store.events.append(conversation, as_events([same, status("waiting_for_confirmation")]))

    same = action()
    stream = follow()
    live()
    store.conversations.delete(conversation)
    live()

    begun = taken(stream, "ready")
    store.conversations.delete(conversation)

    assert (shown(begun), told(begun)) == ([same["id"]], [])
    assert told(taken(stream, "decided")) == [("decided", same["id"])]


@pytest.mark.process("waits for what threads do")
def test_a_client_that_is_cut_off_before_ready_has_no_id_to_resume_after(follow, propose, reject):
    [one, two] = propose(action("one"), action("two"))
    stream = follow()
    reject(one)
    [three] = propose(action("three"))  # so the stream passes the decision before it is ready

    events = taken(stream, "ready")

    assert [name for name, _, _ in events] == ["reset", "snapshot", "decided", "ready"]
    assert [identity for _, _, identity in events[:-1]] == ["", "", ""]
    assert sorted(shown(events)) == sorted([two, three])


# resuming


def test_a_stream_resumes_after_any_change(follow, propose, reject):
    stream = follow()
    ready = taken(stream, "ready")[-1][2]
    [one, _] = propose(action("one"), action("two"))
    reject(one)
    changes = taken(stream, "opened", "opened", "decided")

    for place, (_, _, identity) in enumerate([("ready", {}, ready), *changes]):
        if rest := changes[place:]:
            assert taken(follow(identity), *(name for name, _, _ in rest)) == rest
    assert follow(changes[-1][2]).next(0.1) == []


@pytest.mark.process("waits for what threads do")
def test_a_stream_resumes_at_another_process(redis_url, follow, propose):
    other = small_store(redis_url)
    ready = taken(follow(), "ready")[-1][2]

    ids = propose(*(action(str(number)) for number in range(250)))

    resumed = taken(follow(ready, of=other), *["opened"] * 250)
    assert told(resumed) == [("opened", one) for one in ids]


def test_a_client_whose_place_was_trimmed_gets_a_new_snapshot(follow, propose, add_change):
    [one] = propose(action())
    ready = taken(follow(), "ready")[-1][2]
    add_change(most=1)

    begun = taken(follow(ready), "ready")

    assert begun[0][:2] == ("reset", {"reason": "dropped"})
    assert shown(begun) == [one]


def test_a_client_whose_place_the_store_never_had_gets_a_new_snapshot(follow, propose):
    propose(action())
    future = id_of(place_of(taken(follow(), "ready")[-1][2]) + (1 << 80))

    assert taken(follow(future), "ready")[0][:2] == ("reset", {"reason": "dropped"})


# filters


@pytest.mark.process("waits for what threads do")
def test_filters_apply_to_the_snapshot_and_to_every_change(follow, propose, reject):
    mine = {"tool_name": "browser", "security_risk": "HIGH"}
    by_tool, by_risk = follow(tool="browser"), follow(risk="HIGH")
    propose(action("old"))
    [old] = propose(action("old", **mine))

    begun = [taken(stream, "ready") for stream in (by_tool, by_risk)]
    [other, new] = propose(action("new", security_risk="LOW"), action("new", **mine))
    reject(other, new, old)

    for stream, first in zip((by_tool, by_risk), begun, strict=True):
        assert shown(first) == [old]
        assert told(taken(stream, "decided", "decided")) == [("opened", new), ("decided", new), ("decided", old)]


@pytest.mark.process("waits for what threads do")
def test_by_tag_an_end_is_sent_whatever_the_tags_are_then(store, follow, propose, reject, conversation):
    red, blue = follow(tag=("team", "red")), follow(tag=("team", "blue"))
    [one] = propose(action())
    assert (shown(taken(red, "ready")), shown(taken(blue, "ready"))) == ([one], [])

    store.conversations.update(conversation, tags={"team": "blue"})
    [two] = propose(action())
    reject(one)

    assert told(taken(red, "decided")) == [("decided", one)]
    assert told(taken(blue, "decided")) == [("opened", two), ("decided", one)]


# endings


def test_actions_of_a_conversation_that_is_deleted_are_decided_by_the_deletion(store, follow, propose, conversation):
    [one] = propose(action())
    stream = follow()
    taken(stream, "ready")

    store.conversations.delete(conversation)

    [(_, data, _)] = taken(stream, "decided")
    assert (data["action_id"], data["decision"]) == (one, "deleted")


def test_an_action_whose_deadline_passes_expires(store, follow, conversation):
    store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"}, confirmation_seconds=60)
    one = action()
    store.events.append(conversation, as_events([one, status("waiting_for_confirmation")]))
    stream = follow()
    [item] = [data["items"][0] for name, data, _ in taken(stream, "ready") if name == "snapshot"]

    expire(store, conversation, one)
    store.approvals.confirmations.expire(conversation)
    [(_, data, _)] = taken(stream, "expired")
    assert (data["action_id"], data["decision"], data["actor"]["kind"]) == (one["id"], "reject", "expiry")
    assert item["expires_at"] is not None


def test_a_lost_signal_delays_a_change_and_never_loses_it(follow, add_change):
    stream = follow()
    taken(stream, "ready")

    add_change(action_id="lost")
    poll(stream)

    assert told(taken(stream, "closed")) == [("closed", "lost")]


def test_all_streams_of_a_process_load_an_opened_action_once(follow, propose, monkeypatch):
    loaded = []
    monkeypatch.setattr(inbox_stream, "load", lambda redis, entries: loaded.extend(entries) or load(redis, entries))
    streams = [follow() for _ in range(10)]
    for stream in streams:
        taken(stream, "ready")

    [one] = propose(action())

    assert all(told(taken(stream, "opened")) == [("opened", one)] for stream in streams)
    assert [entry.action_id for entry in loaded].count(one) == 1


@pytest.mark.process("waits for what threads do")
def test_actions_that_are_too_long_for_one_page_all_come_in_order(follow, propose):
    stream = follow()
    taken(stream, "ready")

    ids = propose(*(action("x" * 400_000) for _ in range(8)))

    assert told(taken(stream, *["opened"] * 8)) == [("opened", one) for one in ids]


def test_a_client_that_is_too_slow_is_dropped_and_resumes(redis_url, follow, propose):
    store = small_store(redis_url, follower_bytes=65_536)
    slow, quick = follow(of=store), follow(of=store)
    place = taken(slow, "ready")[-1][2]
    taken(quick, "ready")
    assert slow.next(0) == quick.next(0) == []  # both take from the ring

    ids = []
    for number in range(4):
        ids += propose(action(str(number) * 40_000))
        taken(quick, "opened")

    with pytest.raises(FellBehind):
        slow.next(0)
    assert told(taken(follow(place, of=store), *["opened"] * 4)) == [("opened", one) for one in ids]


def test_a_reader_whose_place_was_trimmed_ends_its_streams(follow, add_change):
    stream = follow()
    taken(stream, "ready")
    assert stream.next(0) == []
    add_change(most=1)
    poll(stream)

    def has_ended():
        try:
            stream.next(1.0)
        except FellBehind:
            return True

    wait_until(has_ended, "the end of the stream")


def test_streams_count_as_followers_and_end_when_the_process_stops(redis_url, follow):
    store = small_store(redis_url, max_followers=1)
    stream = follow(of=store)

    with pytest.raises(TooManyFollowers):
        follow(of=store)
    store.streams.events.stop()

    with pytest.raises(Stopping):
        stream.next(5.0)
    with pytest.raises(Stopping):
        follow(of=store)


def of_destinations(events) -> list[tuple[str, str]]:
    """The changes about destinations: name, and the name that a sandbox asks for."""
    return [(name, data["name"]) for name, data, _ in events if name.startswith("destination_")]


def test_what_sandboxes_ask_to_reach_is_streamed_to_who_asks_for_it(follow, store, redis_url):
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id
    store.destinations.verdict(sandbox, "old.example.org", 443)
    plain, stream = follow(conversation_id=None), follow(conversation_id=None, destinations=True)
    before, begun = taken(plain, "ready"), taken(stream, "ready")
    [items] = [data["items"] for name, data, _ in begun if name == "destinations"]
    assert "destinations" not in {name for name, _, _ in before}
    assert [one["name"] for one in items] == ["old.example.org"]
    assert items == [one.shown for one in store.destinations.waiting()]

    store.destinations.verdict(sandbox, "new.example.org", 443)
    store.destinations.decide(store.destinations.waiting()[0], "approve", "once", PERSON, "yes")
    changes = taken(stream, "destination_opened", "destination_decided")
    assert of_destinations(changes) == [
        ("destination_opened", "new.example.org"),
        ("destination_decided", "old.example.org"),
    ]
    decided = changes[-1][1]
    assert (decided["decision"], decided["scope"], decided["reason"]) == ("approve", "once", "yes")
    assert decided["actor"] == {"kind": "key", "name": "a person"}
    assert decided["digest"] == items[0]["digest"]
    assert all(place for _, _, place in changes)
    resumed = follow(after=changes[0][2], conversation_id=None, destinations=True)
    assert of_destinations(taken(resumed, "destination_decided")) == [("destination_decided", "old.example.org")]
    assert of_destinations([(one.name, json.loads(one.raw), one.id) for one in plain.next(0)]) == []


def test_budgets_that_are_used_up_are_streamed_beside_destinations(follow, store, redis_url):
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id
    more = {"more": ModelBudget(tokens=200), "day": store.spending.so_far(sandbox).today}

    def refuse(setting: str) -> None:
        store.spending.refuse(sandbox, "", setting, "127.0.0.1", 80, "Used up", **more)

    refuse("MODEL_BUDGET_KEY")
    stream = follow(conversation_id=None, destinations=True)
    [items] = [data["items"] for name, data, _ in taken(stream, "ready") if name == "destinations"]
    assert items == [one.shown for one in store.destinations.waiting()]
    assert (items[0]["subject"], items[0]["budget"]["setting"]) == ("budget", "MODEL_BUDGET_KEY")

    refuse("MODEL_BUDGET_DAY")
    store.destinations.decide(store.destinations.waiting()[0], "approve", "once", PERSON, "yes")
    opened, decided = (data for _, data, _ in taken(stream, "destination_opened", "destination_decided"))
    assert opened == next(one.shown for one in store.destinations.waiting())
    assert (decided["subject"], decided["digest"], decided["decision"]) == ("budget", items[0]["digest"], "approve")
    assert decided["budget"] == {"setting": "MODEL_BUDGET_KEY"}
