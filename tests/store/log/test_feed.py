"""Followers of one log: they are woken a few at a time, and each gets every event, whoever leaves meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from store.log.feed import _WOKEN_AT_ONCE
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
