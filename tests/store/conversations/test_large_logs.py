"""Logs that become cold in pieces: what comes back, and what a failure between two pieces leaves."""

from uuid import uuid4

import pytest

from store.conversations import cold as cold_module
from store.conversations.cold import ObjectsAway, StillCold
from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.log import frames
from tests.cold import ColdObjects, cold_store
from tests.conftest import as_events, event, message, recorded
from tests.store.conversations.test_cold import content, due_now, is_cold, log, parts, unneeded


@pytest.fixture
def objects():
    return ColdObjects()


@pytest.fixture
def store(redis_url, objects, monkeypatch):
    """A store whose logs go in pieces of some twenty events, read a few at a time."""
    monkeypatch.setattr(frames, "_MOST_WORDS", 40)
    for bound, number in {"_EVENTS": 7, "_MEMBERS": 5, "_FIELDS": 3, "_BYTES": 4000}.items():
        monkeypatch.setattr(cold_module, bound, number)
    return cold_store(redis_url, objects)


@pytest.fixture
def resting(store, conversation):
    """A conversation at rest, with ids of both kinds and messages."""
    assert store.conversations.create(conversation, title="rests")
    events = [*recorded("never_confirm"), {**event(), "id": "not a UUID"}, message("Some Words")]
    store.events.append(conversation, as_events(events))
    return conversation


@pytest.fixture
def cold(store, resting, objects):
    assert store.conversations.cold.freeze(resting)
    assert len(objects.kept) > 5
    return resting


def fails_at(objects, number: int) -> None:
    """Have one get fail after so many have not."""
    get, asked = objects.get, []

    def failing(name):
        asked.append(name)
        if len(asked) == number + 1:
            raise ObjectsAway("away for a moment")
        return get(name)

    objects.get = failing


def test_a_log_in_pieces_keeps_its_state_in_redis_and_comes_back_as_it_was(store, resting, objects):
    before, known = log(store, resting), parts(store, resting)
    contents = {part: content(store, f"conv:{{{resting}}}{part}") for part in known if part}
    state = store.conversations.get(resting)

    assert store.conversations.cold.freeze(resting)

    assert parts(store, resting) == {"", ":pairs", ":text:0"}
    assert store.events.count(resting) == len(before)
    assert store.conversations.get(resting) == state
    assert log(store, resting) == before
    assert parts(store, resting) == known
    assert {part: content(store, f"conv:{{{resting}}}{part}") for part in contents} == contents
    assert store.events.count(resting, body="some words") == 1
    redis = store.conversations._redis
    assert {redis.pttl(f"conv:{{{resting}}}{part}") for part in known} == {-1}


def test_a_log_without_events_comes_back_from_pieces(store, conversation, objects):
    store.conversations.create(conversation)
    assert store.conversations.cold.freeze(conversation)
    assert is_cold(store, conversation)
    assert log(store, conversation) == []


def test_a_thaw_that_fails_at_any_piece_leaves_the_conversation_cold_and_the_next_one_goes_on(store, cold, objects):
    redis, before = store.conversations._redis, parts(store, cold)
    for _ in range(len(objects.kept) - 2):
        objects.gets = 0
        fails_at(objects, 2)
        with pytest.raises(StillCold, match="cannot be reached"):
            log(store, cold)
        del objects.get
        assert objects.gets == 2  # the head object and the piece that was due: none comes twice
        aside = parts(store, cold) - before
        assert all(part.startswith(":thaw:") for part in aside)
        assert all(0 < redis.pttl(f"conv:{{{cold}}}{part}") <= cold_module._ASIDE for part in aside)
        assert is_cold(store, cold)
    assert len(log(store, cold)) == 86
    assert not [part for part in parts(store, cold) if part.startswith(":thaw:")]


def test_a_thaw_begins_anew_when_what_it_had_put_aside_has_ended(store, cold, objects):
    redis, get, ended = store.conversations._redis, objects.get, []

    def late(name):
        if name.endswith("-p3") and not ended:
            ended.extend(redis.unlink(f"conv:{{{cold}}}{part}") for part in parts(store, cold) if ":thaw:" in part)
        return get(name)

    objects.get = late
    assert len(log(store, cold)) == 86
    assert ended


def test_processes_that_thaw_one_log_at_once_share_the_pieces(store, redis_url, cold, objects):
    other, get, found = cold_store(redis_url, objects), objects.get, []

    def meanwhile(name):
        if name.endswith("-p2") and not found:
            found.append(None)  # what follows reads pieces too
            found.append(log(other, cold))
        return get(name)

    objects.get = meanwhile
    assert log(store, cold) == found[1]
    assert len(found[1]) == 86


@pytest.mark.parametrize("wrong", ["damaged", "missing", "of another place"])
def test_a_log_one_of_whose_pieces_is_wrong_stays_cold_and_whole(store, cold, objects, wrong):
    name, other = (next(one for one in objects.kept if one.endswith(end)) for end in ("-p3", "-p4"))
    kept = objects.kept.pop(name)
    if wrong != "missing":
        objects.kept[name] = objects.kept[other] if wrong == "of another place" else kept[:40] + b"?" + kept[41:]

    with pytest.raises(StillCold, match="is missing" if wrong == "missing" else "cannot be used"):
        log(store, cold)
    assert is_cold(store, cold)

    objects.kept[name] = kept
    assert len(log(store, cold)) == 86


def test_a_head_object_with_fewer_pieces_than_the_log_is_refused(store, cold, objects):
    [name] = [one for one in objects.kept if "-p" not in one]
    state = store.conversations.get(cold)
    of = frames.Frozen(name, cold, state["incarnation"], state["revision"])
    digests, _ = frames.read_head(of, objects.kept[name])
    objects.kept[name] = frames.head(of, digests[:2])
    store.conversations._redis.hdel(ConversationKeys(cold).root, "cold_digest")  # frozen by an earlier release

    with pytest.raises(StillCold, match="cannot be used") as refusal:
        log(store, cold)
    assert "not as many events as the log" in str(refusal.value.__cause__)
    assert is_cold(store, cold)


@pytest.mark.parametrize("change", ["append", "delete", "recreate"])
def test_a_change_between_two_pieces_of_a_freezing_wins(store, resting, objects, change):
    before, put, done = log(store, resting), objects.put, []
    new = as_events([event()])

    def changed_meanwhile(name, content):
        put(name, content)
        if name.endswith("-p1") and not done:
            done.append(name)
            if change == "append":
                store.events.append(resting, new)
            else:
                store.conversations.delete(resting)
                if change == "recreate":
                    store.conversations.create(resting)

    objects.put = changed_meanwhile
    assert not store.conversations.cold.freeze(resting)

    if change == "delete":
        with pytest.raises(ConversationNotFound):
            store.events.count(resting)
    else:
        assert sorted(log(store, resting)) == sorted({"append": [*before, new[0].raw], "recreate": []}[change])
    assert not [part for part in parts(store, resting) if part.startswith(":freeze:")]


def test_a_deletion_during_a_thaw_leaves_nothing_but_what_ends_by_itself(store, cold, objects):
    redis, get = store.conversations._redis, objects.get

    def deleted_meanwhile(name):
        if name.endswith("-p3"):
            store.conversations.delete(cold)
        return get(name)

    objects.get = deleted_meanwhile
    with pytest.raises(ConversationNotFound):
        store.events.search(cold, limit=10)
    assert all(redis.pttl(f"conv:{{{cold}}}{part}") > 0 for part in parts(store, cold))


def test_pieces_are_unneeded_with_their_object_and_come_before_it(store, cold, objects):
    [name], numbers = [one for one in objects.kept if "-p" not in one], range(len(objects.kept) - 1)
    assert unneeded(store, cold) == []

    log(store, cold)
    due_now(store, name)
    expected = [*(f"{name}-p{number}" for number in reversed(numbers)), name]
    assert unneeded(store, cold) == expected

    store.conversations.cold.forget(expected)
    assert unneeded(store, cold) == []
    assert not store.conversations._redis.hexists("{cold}:pieces", name)


def test_a_piece_that_the_register_lacks_is_entered_with_its_object(store, resting):
    lost = f"{resting}-{uuid4().hex}"
    assert store.conversations.cold.enter([f"{lost}-p1", f"{uuid4()}-{uuid4().hex}-p0"]) == 1

    due_now(store, lost)

    assert unneeded(store, resting) == [f"{lost}-p1", f"{lost}-p0", lost]
    store.conversations.cold.forget([lost])
