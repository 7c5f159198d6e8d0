"""Followers of one log: they are woken a few at a time, and each gets every event, whoever leaves meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from core.wire import Seq
from store.log.feed import _WOKEN_AT_ONCE, Feed, FeedEntry, Follower
from tests.conftest import as_events, message
from tests.servers import TIMEOUT, wait_until

FOLLOWERS = 4 * _WOKEN_AT_ONCE


@pytest.mark.faults("a race of threads")
def test_all_followers_are_woken_however_few_at_once(store, conversation):
    store.conversations.create(conversation)
    followers = [store.streams.events.follow(conversation, None) for _ in range(FOLLOWERS)]
    with ThreadPoolExecutor(FOLLOWERS) as pool:
        waiting = {one: pool.submit(one.next, TIMEOUT) for one in followers}
        wait_until(lambda: followers[0].feed._waiting == FOLLOWERS, "followers that wait")
        for one in followers[::3]:
            one.close()
            assert waiting.pop(one).result(TIMEOUT) == []

        for _ in range(3):
            store.events.append(conversation, as_events([message("user", "on")]))
            assert {len(one.result(TIMEOUT)) for one in waiting.values()} == {1}
            waiting = {one: pool.submit(one.next, TIMEOUT) for one in waiting}
        for one in waiting:
            one.close()


class _Quiet(Feed):
    """A feed without a log."""

    def page(self, after):
        return after, []


def test_signals_without_an_event_fill_the_ring_of_a_slow_follower_to_its_bound_alone():
    feed = _Quiet("channel", b"", Seq(0), 10_000)
    slow = Follower(feed, Seq(0), feed.followers.discard, lambda: None)
    slow.index = 0
    feed.followers.add(slow)

    with feed.changed:
        for _ in range(1000):
            feed._enter([FeedEntry(Seq(0), b"")])

    assert 10 < len(feed.ring) < 100
