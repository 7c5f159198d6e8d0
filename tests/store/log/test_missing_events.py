"""A log of which Redis has lost events: every read and write says so, and none repeats itself without end."""

import json
from types import SimpleNamespace
from uuid import uuid4

import pytest

from core.wire import Seq
from store.errors import LogDamaged
from store.keys import ConversationKeys
from store.log.feed import Entry, Feed
from tests.conftest import as_events, event, message


@pytest.fixture
def damaged(store, conversation):
    """A conversation whose last three events are gone."""
    store.events.append(conversation, as_events([message("word"), *(event() for _ in range(9))]))
    store.events._redis.ltrim(ConversationKeys(conversation).root + ":log", 0, -4)
    return conversation


#: what a client may ask of a log
ASKED = {
    "a search": lambda store, of: store.events.search(of),
    "a search by text": lambda store, of: store.events.search(of, body="word"),
    "a search after a seq": lambda store, of: store.streams.events.read(of, Seq(0), wait=0, limit=100),
    "a search behind the last event": lambda store, of: store.streams.events.read(of, Seq(10), wait=0, limit=100),
    "a follower": lambda store, of: store.streams.events.follow(of, Seq(0)),
    "an export": lambda store, of: list(store.conversations.exports.pages(store.conversations.get(of))),
    "a fork": lambda store, of: store.conversations.forks.fork(of),
    "an append": lambda store, of: store.events.append(of, as_events([event()])),
    "a message": lambda store, of: store.events.send(of, content=[], run=False),
    "a pause": lambda store, of: store.conversations.change_status(of, "pause"),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_log_with_fewer_events_than_its_count_is_refused_in_words(store, damaged, ask):
    with pytest.raises(LogDamaged) as refused:
        ask(store, damaged)

    assert str(refused.value) == (
        f"The conversation {damaged} has lost events: Redis has 7 of 10. "
        "Restore Redis from a backup, or delete the conversation"
    )


@pytest.mark.parametrize("path", ["events/search", "events/search?after_seq=0", "export"])
def test_a_client_gets_a_conflict_that_names_the_conversation(client, damaged, path):
    response = client.get(f"/api/conversations/{damaged}/{path}")

    assert response.status_code == 409
    assert damaged in response.json["detail"]


@pytest.mark.parametrize("copy", ["export", "fork"])
def test_a_copy_ends_where_redis_forgets_the_latest_events_meanwhile(store, conversation, monkeypatch, copy):
    store.events.append(conversation, as_events([event() for _ in range(3)]))
    state, forks = store.conversations.get(conversation) | {"seq": 5}, store.conversations.forks
    monkeypatch.setattr(forks, "_conversations", SimpleNamespace(get=lambda _: state))

    with pytest.raises(LogDamaged, match="Redis has 3 of 5"):
        forks.fork(conversation) if copy == "fork" else list(store.conversations.exports.pages(state))


def test_a_follower_of_a_log_that_loses_events_ends(store, conversation):
    store.events.append(conversation, as_events([event()]))

    with store.streams.events.follow(conversation, Seq(0)) as follower:
        store.events._redis.delete(ConversationKeys(conversation).root + ":log")
        with pytest.raises(LogDamaged):
            follower.next(0)


def test_a_conversation_that_has_lost_events_is_shown_listed_and_deleted(store, client, damaged):
    assert store.conversations.get(damaged)["id"] == damaged
    assert client.delete(f"/api/conversations/{damaged}").status_code == 200
    assert client.get(f"/api/conversations/{damaged}").status_code == 404


def test_a_conversation_that_has_lost_events_does_not_become_cold(store, damaged):
    assert store.conversations.cold._scripts.plan_freeze(ConversationKeys(damaged).root) is None


class _Silent(Feed):
    """A feed whose log says that it has more, and returns nothing."""

    def page(self, after: Seq) -> tuple[Seq, list[Entry]]:
        return Seq(after + 1), []


def test_a_feed_whose_log_returns_nothing_below_its_end_is_not_read_again_at_once():
    feed = _Silent("channel", b"", Seq(0), 100)
    feed.stale = True

    feed.read()

    assert not feed.stale


def test_a_log_in_which_all_events_are_there_is_read(store, conversation):
    store.events.append(conversation, as_events([event(id=str(uuid4())), message("word")]))

    assert len(store.events.search(conversation)[0]) == 2
    assert [json.loads(raw)["kind"] for raw in store.events.search(conversation, body="word")[0]] == ["MessageEvent"]
