"""Cold conversations: what a freezing moves, what brings it back, and what every other part of the store sees of it."""

import threading
from hashlib import sha256
from uuid import uuid4

import pytest
from zstandard import ZstdCompressor

from bench import corpus
from core.bounds import Durability
from core.wire import Micros, Seq, micros, now, read_event
from store.conversations.cold import StillCold
from store.conversations.message_search import Query
from store.errors import UNAVAILABLE, ConversationNotFound
from store.link.attempts import Stamp
from store.listing import ListingFilter
from store.log.frames import Frozen, head, pieces, ranges_in, read_head
from store.scripts import IsCold, Scripts, sources
from tests.cold import ColdObjects, cold_store
from tests.conftest import action, as_events, event, message, recorded
from tests.servers import wait_until
from tests.store.conftest import keys

ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def objects():
    return ColdObjects()


@pytest.fixture
def store(redis_url, objects):
    """A store of its own objects."""
    return cold_store(redis_url, objects)


@pytest.fixture
def resting(store, conversation):
    """A conversation at rest, with ids of both kinds and messages."""
    assert store.conversations.create(conversation, title="rests")
    events = [*recorded("never_confirm"), {**event(), "id": "not a UUID"}, message("Some Words")]
    store.events.append(conversation, as_events(events))
    return conversation


@pytest.fixture
def cold(store, resting):
    assert store.conversations.cold.freeze(resting)
    return resting


def parts(store, conversation: str) -> set[str]:
    """The keys of a conversation that Redis has, as they follow its root."""
    found = keys(store.conversations._redis, f"conv:{{{conversation}}}*")
    return {key.decode().partition("}")[2] for key in found}


def content(store, key: str):
    redis = store.conversations._redis
    match redis.type(key):
        case b"list":
            return redis.lrange(key, 0, -1)
        case b"hash":
            return redis.hgetall(key)
        case b"zset":
            return redis.zrange(key, 0, -1, withscores=True)
        case b"set":
            return redis.smembers(key)
    return redis.get(key)


def is_cold(store, conversation: str) -> bool:
    return store.conversations._redis.hexists(f"conv:{{{conversation}}}", "cold")


def log(store, conversation: str) -> list[bytes]:
    events, cursor = store.events.search(conversation, limit=1000)
    assert cursor is None
    return events


def test_a_cold_conversation_keeps_its_state_and_its_compressed_text_in_redis(store, cold, objects):
    assert parts(store, cold) == {"", ":pairs", ":text:0"}
    assert [name.rpartition("-")[0] for name in objects.kept] == [cold]


def test_a_read_brings_every_key_back_as_it_was(store, resting):
    before, known = log(store, resting), parts(store, resting)
    contents = {part: content(store, f"conv:{{{resting}}}{part}") for part in known if part}

    assert store.conversations.cold.freeze(resting)

    assert log(store, resting) == before
    assert parts(store, resting) == known
    assert {part: content(store, f"conv:{{{resting}}}{part}") for part in contents} == contents


def test_a_freezing_and_a_thaw_change_nothing_that_clients_see(store, resting):
    before = store.conversations.get(resting)

    assert store.conversations.cold.freeze(resting)
    assert store.conversations.get(resting) == before

    store.conversations.cold.thaw(resting)
    assert store.conversations.get(resting) == before


@pytest.mark.parametrize("status", ["running", "waiting"])
def test_a_conversation_that_does_not_rest_is_not_frozen(store, conversation, status, objects):
    store.conversations.create(conversation, confirmation_policy=ALWAYS)
    store.events.append(conversation, as_events([message("hello")]))
    if status == "running":
        store.conversations.change_status(conversation, "run")
    else:
        store.events.append(conversation, as_events([action()]))

    assert not store.conversations.cold.freeze(conversation)
    assert not objects.kept


def test_an_unknown_conversation_a_cold_one_and_one_without_objects_are_not_frozen(store, redis_url, cold):
    assert not store.conversations.cold.freeze(str(uuid4()))
    assert not store.conversations.cold.freeze(cold)
    store.conversations.cold.thaw(cold)
    assert not cold_store(redis_url, None).conversations.cold.freeze(cold)


@pytest.mark.parametrize("change", ["append", "delete", "recreate", "rename"])
def test_a_change_during_a_freezing_wins(store, resting, objects, change):
    before, put = log(store, resting), objects.put
    new = as_events([event()])

    def changed_meanwhile(name, content):
        put(name, content)
        if change == "append":
            store.events.append(resting, new)
        elif change == "rename":
            store.conversations.update(resting, title="other")
        else:
            store.conversations.delete(resting)
            if change == "recreate":
                store.conversations.create(resting)

    objects.put = changed_meanwhile
    assert not store.conversations.cold.freeze(resting)

    if change == "delete":
        assert store.conversations.get_many([resting]) == [None]
    else:
        expected = {"append": [*before, new[0].raw], "rename": before, "recreate": []}[change]
        assert sorted(log(store, resting)) == sorted(expected)
    assert unneeded(store, resting) == list(objects.kept)


def test_an_append_brings_a_conversation_back_and_appends_once(store, cold):
    [new] = as_events([message("after")])

    assert store.events.append(cold, [new])[0] == 1
    assert store.events.append(cold, [new])[0] == 0

    assert store.events.count(cold) == len(log(store, cold)) == 87
    assert store.events.count(cold, body="AFTER") == store.events.count(cold, body="some words") == 1
    assert not is_cold(store, cold)


@pytest.mark.faults("a race of threads")
def test_threads_that_meet_a_cold_conversation_thaw_it_once(store, cold, objects):
    found, barrier = [], threading.Barrier(8)

    def read():
        barrier.wait()
        found.append(log(store, cold))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert all(one == found[0] for one in found)
    assert objects.gets == 1


def test_a_conversation_in_an_object_that_is_missing_damaged_or_away_is_unavailable(store, redis_url, cold, objects):
    [(name, content)] = objects.kept.items()

    def refused(why: str, cause: str = "None", store=store):
        with pytest.raises(StillCold, match=why) as refusal:
            log(store, cold)
        assert isinstance(refusal.value, UNAVAILABLE)
        assert cold in str(refusal.value)
        assert cause in str(refusal.value.__cause__)

    refused("COLD_URL is not set", store=cold_store(redis_url, None))
    objects.is_away = True
    refused("cannot be reached, or refuses$", "the place of the tests is away")
    objects.is_away = False
    objects.kept.clear()
    refused(f"object {name} is missing$")
    for wrong in (b"", content[:-9], content.replace(b'"format": 3', b'"format": 4'), content[:60]):
        objects.kept[name] = wrong
        refused(f"object {name} cannot be used$", "it is ")

    objects.kept[name] = content
    assert len(log(store, cold)) == 86


def test_an_object_of_another_conversation_is_refused(store, cold, objects):
    other = str(uuid4())
    store.conversations.create(other)
    assert store.conversations.cold.freeze(other)
    [mine, theirs] = sorted(objects.kept, key=lambda name: not name.startswith(cold))
    objects.kept[mine] = objects.kept[theirs]

    with pytest.raises(StillCold, match="cannot be used") as refusal:
        log(store, cold)
    assert "not the one that was kept" in str(refusal.value.__cause__)


def test_an_object_without_the_log_or_with_a_key_of_another_kind_is_refused_and_changes_nothing(store, cold, objects):
    [(name, content)] = objects.kept.items()
    state, before = store.conversations.get(cold), parts(store, cold)
    of = Frozen(name, cold, state["incarnation"], state["revision"])
    [digest], piece = read_head(of, content)
    kept = ranges_in(piece, digest, None)
    store.conversations._redis.hdel(f"conv:{{{cold}}}", "cold_digest")  # as a store of which no digest is known
    for wrong, why in (
        ([one for one in kept if one[0] != ":log"], "not as many events as the log"),
        ([*kept, (":pending", [b"key", b"value"])], "other parts than the log"),
    ):
        [(piece, digest)] = pieces(wrong)
        objects.kept[name] = head(of, [digest], piece)

        with pytest.raises(StillCold, match="cannot be used") as refusal:
            log(store, cold)
        assert why in str(refusal.value.__cause__)
        assert parts(store, cold) == before


def test_a_whole_object_that_was_made_elsewhere_is_refused_whatever_digests_it_has(store, cold, objects):
    """Of whoever may write to the place of the objects, and not to Redis."""
    [(name, content)] = objects.kept.items()
    state, before = store.conversations.get(cold), parts(store, cold)
    of = Frozen(name, cold, state["incarnation"], state["revision"])
    [digest], piece = read_head(of, content)
    kept = ranges_in(piece, digest, None)
    forged = [(part, [word.replace(b"Some Words", b"Any Others") for word in words]) for part, words in kept]
    [(piece, digest)] = pieces([*forged[:-1], (forged[-1][0], [*forged[-1][1]][::-1])])
    objects.kept[name] = head(of, [digest], piece)

    with pytest.raises(StillCold, match="cannot be used") as refusal:
        log(store, cold)
    assert "not the one that the store remembers" in str(refusal.value.__cause__)
    assert parts(store, cold) == before
    assert [one.fault is None for one in store.conversations.cold.checks() if one.name == name] == [False]

    objects.kept[name] = content
    assert len(log(store, cold)) == 86
    assert not store.conversations._redis.hexists(f"conv:{{{cold}}}", "cold_digest")


def test_an_object_of_no_pieces_of_pieces_without_end_and_of_bombs_is_unreadable(store, cold, objects):
    """Where no digest of it is known: nothing is unpacked beyond the size of a piece, and no error is unknown."""
    store.conversations._redis.hdel(f"conv:{{{cold}}}", "cold_digest")
    [(name, content)] = objects.kept.items()
    state = store.conversations.get(cold)
    of = Frozen(name, cold, state["incarnation"], state["revision"])
    bomb = b"\x28\xb5\x2f\xfd\xe0" + (1 << 46).to_bytes(8, "little") + b"\1\0\0"
    frames = [bomb, *(ZstdCompressor().compress(line + b"\n") for line in (b"[" * 100_000, b'[[["x"],0]]', b"[[5,0]]"))]
    wrong = [head(of, [sha256(frame).hexdigest()], frame) for frame in frames]
    wrong += [head(of, named) for named in ({"a": 1}, 5, None, True, "x", [], [[]])]

    for one in wrong:
        objects.kept[name] = one
        with pytest.raises(StillCold, match=r"its object .* (cannot be used|is missing)"):
            log(store, cold)

    objects.kept[name] = content
    assert len(log(store, cold)) == 86


def test_a_deletion_needs_no_object(store, cold, objects):
    objects.is_away = True

    store.conversations.delete(cold)

    with pytest.raises(ConversationNotFound):
        store.events.count(cold)
    assert parts(store, cold) == {":deleted"}


def test_what_lists_conversations_needs_no_object(store, cold, objects):
    objects.is_away = True

    found, _ = store.conversations.page(ListingFilter(), by="updated", descending=True, limit=5, start=None)
    assert cold in [state["id"] for state in found]
    assert store.conversations.summaries.get_many([cold])[0]["title"] == "rests"


def test_a_search_over_all_messages_finds_those_of_cold_conversations(store, conversation, objects):
    needle = f"needle-{uuid4().hex}"
    store.conversations.create(conversation)
    store.events.append(conversation, as_events([message(f"a {needle}"), event(), message(f"{needle} b", "agent")]))

    def found():
        """The first of them, and the cursor of the other one, where the search ends: it reads no older conversation."""
        return store.conversations.message_search.page(Query(needle), limit=1, start=None)

    before = found()
    assert before[1].conversation_id == conversation
    assert store.conversations.cold.freeze(conversation)

    objects.is_away = True
    with pytest.raises(StillCold):  # its text says that it has them; they are in the object
        found()
    objects.is_away = False
    assert found() == before


def test_text_that_a_process_has_cached_goes_on_to_be_true_while_the_conversation_is_cold(store, resting):
    assert store.events.count(resting, body="some words") == 1  # cached now
    store.events.append(resting, as_events([message("Some Words more")]))

    assert store.conversations.cold.freeze(resting)

    assert store.events.count(resting, body="some words") == 2
    assert is_cold(store, resting)


def test_a_follower_that_has_all_events_leaves_a_conversation_cold_and_gets_the_next_event(store, resting):
    with store.streams.events.follow(resting, None) as follower:
        assert store.conversations.cold.freeze(resting)
        assert follower.next(0.1) == []
        follower.feed.receive(b"")  # as every two seconds
        assert follower.next(0.1) == []
        assert is_cold(store, resting)

        [new] = as_events([event()])
        store.events.append(resting, [new])
        got = []
        wait_until(lambda: got.extend(follower.next(1)) or got, "the event")
        assert [entry.raw for entry in got] == [new.raw]


def test_a_follower_from_the_beginning_of_a_cold_conversation_gets_every_event(store, cold, objects):
    objects.is_away = True
    with store.streams.events.follow(cold, Seq(0)) as follower:
        with pytest.raises(StillCold):  # it may ask again
            follower.next(1)
        objects.is_away = False
        got = []
        wait_until(lambda: got.extend(follower.next(1)) or len(got) == 86, "the events")
        assert [entry.seq for entry in got] == list(range(1, 87))


def test_a_cursor_before_a_time_is_that_of_a_warm_conversation(store, resting):
    times = [Micros(0), now(), *(one.at for one in as_events(recorded("never_confirm"))[::20])]
    before = [store.events.cursor_before(resting, at) for at in times]
    assert store.conversations.cold.freeze(resting)

    assert [store.events.cursor_before(resting, at) for at in times] == before


def test_a_fork_and_an_export_of_a_cold_conversation_are_those_of_a_warm_one(store, resting):
    before, state = log(store, resting), store.conversations.get(resting)
    assert store.conversations.cold.freeze(resting)
    assert log(store, store.conversations.forks.fork(resting)) == before

    assert store.conversations.cold.freeze(resting)
    assert sorted(raw for page in store.conversations.exports.pages(state) for raw in page) == sorted(before)


def test_the_end_of_an_agent_server_pauses_no_cold_conversation_and_brings_none_back(store, conversation, objects):
    box = uuid4().hex
    store.conversations.create(conversation, sandbox_id=box, app={})
    assert store.conversations.cold.freeze(conversation)
    objects.is_away = True

    stamp = Stamp.now()
    store.conversations.interrupt(conversation, box, stamp, {})

    with pytest.raises(StillCold):
        store.conversations.interrupt(conversation, box, stamp, {"code": "Ended", "detail": ""})


def test_a_log_that_is_too_large_stays_for_a_month_and_is_named(redis_url, conversation, caplog, request):
    if "fakeredis" in request.node.callspec.id:
        pytest.skip("fakeredis knows no MEMORY USAGE")
    store = cold_store(redis_url, ColdObjects(), cold_max_bytes=1000)
    store.conversations.create(conversation)
    store.events.append(conversation, as_events([message("x" * 2000)]))

    assert not store.conversations.cold.freeze(conversation)

    assert f"the conversation {conversation} stays in Redis" in caplog.text
    assert "COLD_MAX_BYTES" in caplog.text
    aside_until = int(store.conversations._redis.hget(f"conv:{{{conversation}}}", "aside_until"))
    assert aside_until > now() + 29 * 86400 * 1_000_000


def test_a_cold_conversation_like_the_recorded_ones_keeps_at_most_15_percent_of_its_memory(
    store, conversation, request
):
    if "fakeredis" in request.node.callspec.id:
        pytest.skip("fakeredis knows no MEMORY USAGE")
    redis, texts = store.conversations._redis, [text for text in corpus.recorded() if "waiting_for" not in text]
    events = [read_event(raw) for raw in corpus.varied(texts, 11, seed=4)]
    assert len(events) > 1000

    def memory() -> int:
        return sum(redis.memory_usage(key, samples=0) for key in keys(redis, f"conv:{{{conversation}}}*"))

    store.conversations.create(conversation)
    store.events.append(conversation, events[:500])
    store.events.append(conversation, events[500:])
    store.events.send(conversation, content=[{"type": "text", "text": "no"}], run=False)
    warm = memory()

    assert store.conversations.cold.freeze(conversation)

    assert memory() <= 0.15 * warm


def all_resting(store, before: Micros, since: Micros, limit: int = 100) -> list[str]:
    """What rests and was changed since a time: older conversations belong to other tests."""
    found = []
    store.conversations.cold._start = (since, "")
    while True:
        found += store.conversations.cold.resting(before, limit)
        if store.conversations.cold._start is None:
            return found


def test_what_rests_is_found_once_until_it_is_cold_or_was_just_thawed(store, resting):
    since = micros(store.conversations.get(resting)["updated_at"])
    assert resting not in all_resting(store, since, Micros(since - 3600_000_000))
    assert all_resting(store, now(), since).count(resting) == 1

    assert store.conversations.cold.freeze(resting)
    assert resting not in all_resting(store, now(), since)

    store.conversations.cold.thaw(resting)
    assert resting not in all_resting(store, now(), since)
    store.conversations._redis.hset(f"conv:{{{resting}}}", "aside_until", now() - 1)
    assert resting in all_resting(store, now(), since)


def test_a_search_for_what_rests_goes_on_where_its_limit_ended_it(store):
    since, ids = now(), [str(uuid4()) for _ in range(5)]
    for identity in ids:
        store.conversations.create(identity)

    found = all_resting(store, now(), since, limit=1)

    assert sorted(one for one in found if one in ids) == sorted(ids)


def unneeded(store, conversation: str) -> list[str]:
    """The unneeded objects of one conversation: others belong to other tests."""
    return [name for name in store.conversations.cold.unneeded(1000) if name.startswith(conversation)]


def due_now(store, name: str) -> None:
    store.conversations._redis.zadd("{cold}:objects", {name: 1})


def test_an_object_is_unneeded_after_its_thaw_its_deletion_and_a_try_that_was_killed(store, resting, objects):
    assert store.conversations.cold.freeze(resting)
    [name] = objects.kept
    due_now(store, name)
    assert unneeded(store, resting) == []

    store.conversations.cold.thaw(resting)
    assert unneeded(store, resting) == []  # for an hour: a failover may forget the thaw
    due_now(store, name)
    assert unneeded(store, resting) == [name]
    store.conversations.cold.forget([name])
    assert unneeded(store, resting) == []

    assert store.conversations.cold.freeze(resting)
    [second] = set(objects.kept) - {name}
    store.conversations.delete(resting)
    due_now(store, second)
    assert unneeded(store, resting) == [second]
    store.conversations.cold.forget([second])

    lost = f"{resting}-{uuid4().hex}"
    store.conversations.cold.enter([lost])
    assert unneeded(store, resting) == []
    due_now(store, lost)
    store.conversations.cold.enter([lost])  # its time stays
    assert unneeded(store, resting) == [lost]
    store.conversations.cold.forget([lost])


def test_a_freezing_that_takes_too_long_drops_nothing(store, resting):
    root = f"conv:{{{resting}}}"
    state = store.conversations.get(resting)
    name, life = f"{resting}-{uuid4().hex}", {one: state[one] for one in ("incarnation", "revision")}

    assert not store.conversations.cold._scripts.freeze_log(root, name=name, digest="", latest=now() - 1, **life)

    assert not is_cold(store, resting)


def test_every_guarded_script_refuses_a_cold_conversation_and_writes_nothing(store, cold):
    redis = store.conversations._redis
    asked = []
    scripts = Scripts(redis).thawing(asked.append)
    before = {key: redis.dump(key) for key in keys(redis, f"conv:{{{cold}}}*")}
    guarded = [name for name, source in sources().items() if source.needs_log]
    assert {"append_events", "page_events", "get_events", "send_message", "set_fields"} <= set(guarded)

    for name in guarded:
        with pytest.raises(IsCold):
            getattr(scripts, f"_{name}")([f"conv:{{{cold}}}"], [])

    assert set(asked) == {f"conv:{{{cold}}}"}
    assert {key: redis.dump(key) for key in keys(redis, f"conv:{{{cold}}}*")} == before


def test_a_conversation_that_is_cold_again_after_each_thaw_is_an_error(store, cold, monkeypatch):
    monkeypatch.setattr(store.conversations.cold, "thaw", lambda _: None)

    with pytest.raises(IsCold):
        log(store, cold)


def test_a_proven_write_refuses_a_cold_conversation_before_its_mark(store, cold):
    redis = store.conversations._redis
    text = Scripts(redis, Durability(replicas=1))._append_events._text.decode()
    assert ":mark" in text

    with pytest.raises(IsCold):
        redis.execute_command("EVAL", text, 1, f"conv:{{{cold}}}")
