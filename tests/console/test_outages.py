"""What breaks between a page and its server: the page says so, comes back by itself, and shows everything once."""

import contextlib
import os
import signal
import subprocess
from typing import NamedTuple
from uuid import uuid4

import httpx
import psutil
import pytest

from tests.approvals import DecidedConversation
from tests.conftest import action, message
from tests.console import Browser
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: seconds for which the store is stopped
STOPPED = 5


class OutageHouse(NamedTuple):
    """A server of two workers, its processes, and that of its Redis."""

    client: httpx.Client
    master: subprocess.Popen
    redis: subprocess.Popen

    @property
    def base_url(self) -> str:
        return str(self.client.base_url).rstrip("/")

    @property
    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.master.pid).children()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outages")
    with (
        store_server(folder) as (url, redis),
        agent_server(folder / "log", REDIS_URL=url) as (client, master),
    ):
        DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
        yield OutageHouse(client, master, redis)


@pytest.fixture
def opened(house):
    """Makes browsers before that server."""
    with contextlib.ExitStack() as stack:

        def make(place: str) -> Browser:
            browser = Browser(house.base_url)
            stack.callback(browser.close)
            browser.open(place)
            becomes(browser, "live")
            return browser

        yield make


@pytest.fixture
def waits(house):
    """A conversation whose actions wait, until the test ends."""
    one = DecidedConversation(house.client, str(uuid4()), title="Watched")
    yield one
    wait_until(lambda: house.client.delete(f"/api/conversations/{one.id}").is_success, "the deletion")


def becomes(browser: Browser, state: str) -> None:
    wait_until(lambda: browser.find("connection").get_attribute("data-state") == state, f"the state {state}")


def shown(browser: Browser, start: str) -> list[str]:
    """The ids of the events, or of the prompts, that the page shows, in its order."""
    return [one.get_attribute("data-testid").removeprefix(start) for one in browser.all(f"{start}*")]


def ask(house: OutageHouse, call) -> None:
    """Ask until a worker that lives has responded."""
    wait_until(lambda: call() is None, "a response")


def test_after_a_worker_is_killed_the_pages_show_every_event_and_prompt_once(house, opened, waits):
    first = action("first")
    waits.appends(message("before"), first)
    inbox, timeline = opened("inbox"), opened(f"conversations/{waits.id}")
    inbox.find(f"line-{first['id']}")
    timeline.find(f"event-{first['id']}")

    # Each worker in turn, so that those that have the streams are among them.
    posted = [first["id"]]
    for worker in house.workers:
        os.kill(worker.pid, signal.SIGKILL)
        one = action(f"after {worker.pid}")
        ask(house, lambda one=one: waits.appends(one))
        posted.append(one["id"])

    for name in posted:
        inbox.find(f"line-{name}")
        timeline.find(f"event-{name}")
    becomes(inbox, "live")
    becomes(timeline, "live")
    assert [one for one in shown(inbox, "line-") if one in posted] == posted
    assert [one for one in shown(timeline, "event-") if one in posted] == posted


def test_while_the_store_stands_still_the_page_says_so_and_then_goes_on(house, opened, waits):
    one, other = action("one"), action("other")
    waits.appends(one)
    inbox, timeline = opened("inbox"), opened(f"conversations/{waits.id}")
    inbox.find(f"line-{one['id']}")
    timeline.find(f"event-{one['id']}")

    house.redis.send_signal(signal.SIGSTOP)
    try:
        for browser in (inbox, timeline):
            becomes(browser, "lost")
        with contextlib.suppress(subprocess.TimeoutExpired):
            house.redis.wait(STOPPED)
        assert shown(inbox, "line-") == [one["id"]]
        assert one["id"] in shown(timeline, "event-")
    finally:
        house.redis.send_signal(signal.SIGCONT)
    ask(house, lambda: waits.appends(other))

    inbox.find(f"line-{other['id']}")
    timeline.find(f"event-{other['id']}")
    becomes(inbox, "live")
    becomes(timeline, "live")
    assert shown(inbox, "line-") == [one["id"], other["id"]]
    assert [name for name in shown(timeline, "event-") if name in (one["id"], other["id"])] == [one["id"], other["id"]]


def test_a_page_without_a_network_says_so_and_catches_up_when_it_is_back(house, opened, waits):
    one, other, decided = action("one"), action("other"), action("decided")
    waits.appends(one, decided)
    inbox, timeline = opened("inbox"), opened(f"conversations/{waits.id}")
    for browser, kind in ((inbox, "line"), (timeline, "pending")):
        browser.find(f"{kind}-{one['id']}")
        browser.offline()
        becomes(browser, "offline")
        browser.says("No network. What you see is from ", "strip")
    waits.appends(other)
    waits.decides({"action_id": decided["id"], "decision": "approve"})

    for browser, kind in ((inbox, "line"), (timeline, "pending")):
        assert f"{kind}-{other['id']}" not in shown(browser, "")
        browser.offline(False)
        becomes(browser, "live")
        browser.find(f"{kind}-{other['id']}")
        browser.gone(f"pending-{decided['id']}")
    assert [name for name in shown(timeline, "event-") if name == other["id"]] == [other["id"]]
    inbox.gone(f"line-{decided['id']}")
    assert sorted(shown(inbox, "line-")) == sorted([one["id"], other["id"]])


def test_a_server_that_starts_again_finds_its_pages_waiting(tmp_path):
    with store_server(tmp_path) as (url, _):
        with agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
            port = str(client.base_url.port)
            DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
            browser = Browser(str(client.base_url).rstrip("/"))
            browser.open("inbox")
            becomes(browser, "live")
        try:
            becomes(browser, "lost")
            with agent_server(tmp_path / "log", REDIS_URL=url, PORT=port) as (client, _):
                one = action("later")
                DecidedConversation(client, str(uuid4())).appends(one)
                browser.find(f"line-{one['id']}")
                becomes(browser, "live")
        finally:
            browser.close()


def kill(server: subprocess.Popen) -> None:
    """Kill a server with its workers."""
    for one in (*psutil.Process(server.pid).children(), server):
        one.kill()
    server.wait()


def test_a_server_that_is_killed_twice_in_a_day_loses_no_draft_and_no_decision(tmp_path):
    with contextlib.ExitStack() as stack:
        url, _ = stack.enter_context(store_server(tmp_path))
        client, master = stack.enter_context(agent_server(tmp_path / "log", REDIS_URL=url))
        port, base_url = str(client.base_url.port), str(client.base_url).rstrip("/")
        one, other = action("one"), action("other")
        waits = DecidedConversation(client, str(uuid4()), title="Watched")
        waits.appends(one)
        browser = Browser(base_url)
        stack.callback(browser.close)
        browser.open(f"conversations/{waits.id}")
        browser.find("composer").find_element("tag name", "textarea").send_keys("Draft of the morning")
        pressed = browser.find(f"pending-{one['id']}")

        for text in ("Draft of the morning", "Draft of the morning and of noon"):
            kill(master)
            browser.says("Reconnecting… What you see is from ", "strip")
            browser.says("Not now: the server does not respond.", "cannot-send")
            approve = browser.find("approve", pressed)
            assert approve.get_attribute("aria-disabled") == "true"
            assert approve.get_attribute("title") == "Not now: the server does not respond."
            approve.click()
            browser.says("Not now: the server does not respond.")
            field = browser.find("composer").find_element("tag name", "textarea")
            assert field.get_attribute("value") == text
            field.send_keys(" and of noon")

            client, master = stack.enter_context(agent_server(tmp_path / "log", REDIS_URL=url, PORT=port))
            browser.gone("strip")
            browser.gone("cannot-send")
            becomes(browser, "live")

        browser.wait(lambda: browser.find("approve", pressed).get_attribute("aria-disabled") is None, "a button")
        browser.wait(lambda: pressed.find_elements("css selector", "[data-steady]"), "buttons that stand still")
        browser.find("approve", pressed).click()
        browser.gone(f"pending-{one['id']}")
        waits.appends(other)
        browser.find(f"pending-{other['id']}")
        assert shown(browser, "event-")[-2:] == [one["id"], other["id"]]


def test_the_strip_tries_at_once_when_a_person_presses(house, opened, waits):
    browser = opened("inbox")
    house.redis.send_signal(signal.SIGSTOP)
    try:
        browser.find("strip")
    finally:
        house.redis.send_signal(signal.SIGCONT)
    browser.find("try-now").click()
    browser.gone("strip")


def test_a_store_that_was_killed_comes_back_with_all_that_was_kept(tmp_path):
    with contextlib.ExitStack() as stack:
        with store_server(tmp_path, "", "--appendfsync", "always") as (url, redis):
            client, _ = stack.enter_context(agent_server(tmp_path / "log", REDIS_URL=url))
            browser = Browser(str(client.base_url).rstrip("/"))
            stack.callback(browser.close)
            one, other = action("one"), action("other")
            waits = DecidedConversation(client, str(uuid4()))
            waits.appends(one)
            browser.open("inbox")
            browser.find(f"line-{one['id']}")
            redis.kill()
            redis.wait()
        becomes(browser, "lost")
        stack.enter_context(store_server(tmp_path))

        wait_until(lambda: waits.appends(other) is None, "the store")
        browser.find(f"line-{other['id']}")
        becomes(browser, "live")
        assert shown(browser, "line-") == [one["id"], other["id"]]


def test_of_eight_tabs_the_hidden_ones_leave_the_connections_to_the_one_that_is_seen(house, opened, waits):
    waits.appends(first := action("first"))
    browser = opened("inbox")
    for _ in range(7):
        browser.driver.switch_to.new_window("tab")
        browser.driver.get(f"{browser.base_url}/console/#/conversations/{waits.id}")
        browser.find(f"event-{first['id']}")

    # A browser opens six connections to a server: eight tabs with two streams each would leave none for a request.
    waits.appends(second := action("second"))
    browser.find(f"pending-{second['id']}")
    browser.go("conversations")
    browser.find("conversation-list")
    keeper, *_others = browser.driver.window_handles
    browser.driver.switch_to.window(keeper)
    wait_until(lambda: browser.driver.title.startswith("(2)"), "the badge")
    browser.find(f"line-{second['id']}")
    becomes(browser, "live")


def test_views_that_are_opened_while_the_server_is_away_show_once_it_is_back(tmp_path):
    with contextlib.ExitStack() as stack:
        url, _ = stack.enter_context(store_server(tmp_path))
        with agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
            port = str(client.base_url.port)
            known, fresh = (Browser(str(client.base_url).rstrip("/")) for _ in range(2))
            stack.callback(known.close)
            stack.callback(fresh.close)
            known.open("rules")
            known.says("No rules")
            known.go("inbox")
            fresh.open("inbox")
            becomes(fresh, "live")
        becomes(fresh, "lost")
        known.go("rules")
        known.says("The server does not respond", "rules")
        fresh.go("keys")
        fresh.says("This part of the page did not load")

        with agent_server(tmp_path / "log", REDIS_URL=url, PORT=port):
            known.says("No rules")
            fresh.find("make-key")
            fresh.says("No keys yet")
