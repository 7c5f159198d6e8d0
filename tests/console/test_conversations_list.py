"""The list of conversations: as it is, live, filtered and searched; nothing moves under the pointer or the focus."""

import time
import uuid

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains

from app import create_app
from settings.config import Config
from tests.console import Browser
from tests.servers import store_server, supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

AT = "2026-11-20T20:37:22.528416"


@pytest.fixture
def fresh(tmp_path):
    """A client of a server of the test's own, which has no conversation."""
    with supervised_server(tmp_path) as (client, _):
        yield client


def _create(server: httpx.Client, title: str, **members) -> str:
    body = {"title": title, "confirmation_policy": {"kind": "AlwaysConfirm"}, **members}
    created = server.post("/api/conversations", json=body)
    return created.raise_for_status().json()["id"]


def _post(server: httpx.Client, identity: str, kind: str, **members) -> None:
    event = {"id": uuid.uuid4().hex, "kind": kind, "timestamp": AT, **members}
    server.post(f"/api/v1/webhooks/events/{identity}", json=[event]).raise_for_status()


def _set_status(server: httpx.Client, identity: str, status: str) -> None:
    _post(server, identity, "ConversationStateUpdateEvent", source="environment", key="execution_status", value=status)


def _propose(server: httpx.Client, identity: str) -> None:
    action = {"kind": "TerminalAction", "command": "make"}
    _post(server, identity, "ActionEvent", source="agent", tool_name="terminal", tool_call_id="c", action=action)


def _say(server: httpx.Client, identity: str, text: str) -> None:
    message = {"content": [{"type": "text", "text": text}]}
    server.post(f"/api/conversations/{identity}/events", json=message).raise_for_status()


def _titles(browser: Browser) -> list[str]:
    return browser.script(
        "return [...document.querySelectorAll('[data-testid=conversation-list] a.title')].map((a) => a.textContent)"
    )


def _wait_for_titles(browser: Browser, titles: list[str]) -> None:
    wait_until(lambda: _titles(browser) == titles, f"the titles {titles}")


def _live(browser: Browser, query: str = "") -> None:
    """Wait until the list of a query follows its changes: what happened before cannot come as new."""
    seen: list[str] = []

    def follows() -> bool:
        seen.extend(browser.requested())
        searches = [index for index, url in enumerate(seen) if "conversations/search" in url and query in url]
        return bool(searches) and any("conversations/stream" in url for url in seen[searches[0] :])

    wait_until(follows, "the stream")
    busy = "return document.querySelector('[data-testid=conversation-list]').getAttribute('aria-busy')"
    wait_until(lambda: browser.script(busy) != "true", "the list is read")


def test_a_list_without_conversations_leads_to_the_start_and_then_shows_states_as_they_are(browsers, fresh):
    browser = browsers(base_url=str(fresh.base_url).rstrip("/"))
    browser.open("conversations")
    browser.says("No conversations yet")
    assert browser.driver.find_element("link text", "New conversation").get_attribute("href").endswith("#/start")

    one = _create(fresh, "One", tags={"team": "build"})
    browser.says("Idle", f"conversation-{one}")
    browser.says("team=build", f"conversation-{one}")
    for status, words in [("running", "Working"), ("paused", "Paused"), ("finished", "Finished"), ("error", "Failed")]:
        _set_status(fresh, one, status)
        browser.says(words, f"conversation-{one}")
    _propose(fresh, one)
    browser.says("Waiting for you (1)", f"conversation-{one}")

    fresh.patch(f"/api/conversations/{one}", json={"title": "Another title"})
    browser.says("Another title", f"conversation-{one}")
    fresh.delete(f"/api/conversations/{one}")
    browser.gone(f"conversation-{one}")
    browser.says("No conversations yet")
    assert browser.errors() == []


def test_nothing_moves_under_the_pointer_or_the_focus(browsers, fresh):
    first, second = _create(fresh, "First"), _create(fresh, "Second")
    browser = browsers(base_url=str(fresh.base_url).rstrip("/"))
    browser.open("conversations")
    _wait_for_titles(browser, ["Second", "First"])
    _live(browser)

    browser.press("j", "j")
    assert browser.driver.switch_to.active_element.text == "First"
    third = _create(fresh, "Third")
    browser.says("1 new", "show-new")
    _set_status(fresh, first, "running")
    browser.says("Working", f"conversation-{first}")
    fresh.delete(f"/api/conversations/{second}")
    wait_until(lambda: "leaving" in browser.find(f"conversation-{second}").get_attribute("class"), "a row that goes")
    assert _titles(browser) == ["Second", "First"]

    browser.find("show-new").click()
    _wait_for_titles(browser, ["First", "Third"])

    ActionChains(browser.driver).move_to_element(browser.find(f"conversation-{third}")).perform()
    _create(fresh, "Fourth")
    browser.says("1 new", "show-new")
    assert _titles(browser) == ["First", "Third"]
    ActionChains(browser.driver).move_to_element(browser.driver.find_element("tag name", "h1")).perform()
    _wait_for_titles(browser, ["Fourth", "First", "Third"])


def test_the_keyboard_moves_opens_and_searches(browser, server):
    mark = uuid.uuid4().hex[:8]
    identity = _create(server, f"Keyboard {mark}")
    _create(server, f"Keyboard {mark} later")
    browser.open("conversations")
    browser.find(f"conversation-{identity}")

    browser.press("/")
    browser.press(*f"{mark}")
    _live(browser, f"text={mark}")
    _wait_for_titles(browser, [f"Keyboard {mark} later", f"Keyboard {mark}"])
    assert f"text={mark}" in browser.driver.current_url
    browser.script("document.activeElement.blur()")
    browser.press("j", "j", "k", "j", "\ue007")
    wait_until(lambda: browser.driver.current_url.endswith(f"#/conversations/{identity}"), "the conversation")


def test_the_address_keeps_the_filters_and_they_are_those_of_the_api(browser, server):
    mark = uuid.uuid4().hex[:8]
    ours = _create(server, f"Filtered {mark}", tags={"mark": mark})
    other = _create(server, f"Filtered {mark} not", tags={"mark": "other"})
    _set_status(server, ours, "error")

    browser.open(f"conversations?status=error&tag=mark%3D{mark}")
    _wait_for_titles(browser, [f"Filtered {mark}"])
    assert browser.find("filter-tag").get_property("value") == f"mark={mark}"
    _live(browser)
    _create(server, f"Filtered {mark} too", tags={"mark": mark})
    _set_status(server, other, "error")
    _set_status(server, ours, "idle")  # once it is shown, what came before it is known
    browser.gone(f"conversation-{ours}")
    browser.says("No conversation matches")

    browser.driver.find_element("xpath", "//button[text()='Clear the filters']").click()
    browser.find(f"conversation-{other}")
    assert browser.driver.current_url.endswith("#/conversations")
    browser.open("conversations?since=2100-01-01T00:00:00Z")
    browser.says("No conversation matches")
    browser.open("conversations?sandbox_id=none")
    browser.says("No conversation matches")


def test_a_search_finds_what_was_said_and_leads_to_it(browser, server):
    mark = uuid.uuid4().hex[:8]
    identity = _create(server, "Talk")
    _say(server, identity, f"Is the gate <b>{mark}</b> open?")

    browser.open("conversations")
    browser.find("search-in").find_element("css selector", "[value=messages]").click()
    browser.says("Search all messages")
    browser.find("search").send_keys(mark.upper())
    browser.says(f"Is the gate <b>{mark}</b> open?", "message-list")
    assert browser.find("message-list").find_element("tag name", "mark").text == mark
    assert f"/{identity}?event=" in browser.find("message-list").find_element("tag name", "a").get_attribute("href")

    browser.find("search").send_keys("nowhere")
    browser.says("No messages found")


def test_pages_are_read_by_cursor_up_to_a_thousand_rows(browsers, tmp_path):
    """1,000 conversations: first paint and the cost of a change are printed."""
    with store_server(tmp_path) as (url, _), supervised_server(tmp_path, REDIS_URL=url) as (server, _):
        quick = create_app(Config.of(redis_url=url)).test_client()
        for number in range(1_010):
            body = {"title": f"Number {number}", "confirmation_policy": {"kind": "AlwaysConfirm"}}
            assert quick.post("/api/conversations", json=body).status_code == 201
        _walk(browsers(base_url=str(server.base_url).rstrip("/")), server)


def _walk(browser: Browser, server: httpx.Client) -> None:
    browser.open("inbox")
    browser.says("Inbox")
    painted = _painted(browser)
    wait_until(lambda: len(_titles(browser)) == 50, "a page")
    _live(browser)
    while len(shown := _titles(browser)) < 1_000:
        browser.driver.find_element("xpath", "//button[text()='Show more']").click()
        wait_until(lambda: len(_titles(browser)) > len(shown), "the next page")
    assert _titles(browser) == [f"Number {number}" for number in range(1_009, 9, -1)]
    browser.says("1,000 are shown, and no more at once")

    identity = browser.script("return document.querySelectorAll('.rows a.title')[500].href").rpartition("/")[2]
    cost = _cost_of_a_change(browser, server, identity)
    assert len(_titles(browser)) == 1_000
    print(f"\n1,000 conversations: first rows {painted:.0f} ms after the click; a change takes {cost}")


def _painted(browser: Browser) -> float:
    """Milliseconds from the click on "Conversations" to the frame that has rows."""
    return browser.driver.execute_async_script(
        """
        const done = arguments[0], began = performance.now();
        new MutationObserver((_, observer) => {
          if (!document.querySelector(".rows a.title")) return;
          observer.disconnect();
          requestAnimationFrame(() => done(performance.now() - began));
        }).observe(document.body, {subtree: true, childList: true});
        document.querySelector('nav a[href="#/conversations"]').click();
        """
    )


def _cost_of_a_change(browser: Browser, server: httpx.Client, identity: str) -> str:
    """How long the page was busy at a time while 20 changes came, and how long the last took to show."""
    browser.script(
        """
        window.busy = [];
        new PerformanceObserver((list) => window.busy.push(...list.getEntries().map((one) => one.duration)))
          .observe({type: "longtask"});
        """
    )
    for number in range(20):
        _set_status(server, identity, "running" if number % 2 else "paused")
    began = time.monotonic()
    _set_status(server, identity, "error")
    browser.says("Failed", f"conversation-{identity}")
    shown = (time.monotonic() - began) * 1000
    busy = browser.script("return window.busy")
    return f"{shown:.0f} ms to show; tasks over 50 ms: {[round(one) for one in busy]}"


def test_a_small_desktop_window_shows_twelve_rows_and_how_many_there_are(browsers, fresh):
    for number in range(60):
        identity = _create(fresh, f"Number {number}")
    browser = browsers(base_url=str(fresh.base_url).rstrip("/"))
    browser.command("Emulation.setDeviceMetricsOverride", width=1280, height=720, deviceScaleFactor=1, mobile=False)

    browser.open(f"conversations/{identity}")  # whose style sheet is loaded then
    browser.find("composer")
    browser.go("conversations")
    browser.says("60 conversations")
    rows = browser.script(
        """
        const boxes = [...document.querySelectorAll(".row.conversation")].map((row) => row.getBoundingClientRect());
        return boxes.filter(({top, bottom}) => top >= 0 && bottom <= innerHeight).length;
        """
    )
    assert rows >= 12


def test_a_small_window_has_twelve_conversations_in_sight(browser, server):
    for number in range(15):
        _create(server, f"Conversation {number} of a list", tags={"team": "web"})
    browser.command("Emulation.setDeviceMetricsOverride", width=1280, height=720, deviceScaleFactor=1, mobile=False)
    browser.open("conversations")
    browser.wait(lambda: len(_titles(browser)) >= 15, "the list")

    in_sight = browser.script(
        """
        const rows = [...document.querySelectorAll("[data-testid=conversation-list] > li")];
        return rows.filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length;
        """
    )
    assert in_sight >= 12


def test_one_message_that_is_found_is_counted_as_one_message(browser, server):
    word = uuid.uuid4().hex
    identity = _create(server, "Counted")
    _say(server, identity, f"the {word}")
    browser.open(f"conversations?in=messages&text={word}")
    browser.says("1 message")
    assert "1 messages" not in browser.driver.find_element("tag name", "body").text

    _say(server, identity, f"again {word}")
    browser.open("conversations")
    browser.open(f"conversations?in=messages&text={word}")
    browser.says("2 messages")


def test_a_filter_that_is_emptied_keeps_its_field_and_the_focus(browser):
    browser.open("conversations")
    browser.find("search")
    browser.driver.find_element("xpath", "//summary[text()='More filters']").click()
    field = browser.find("filter-tag")
    field.send_keys("a")
    browser.wait(lambda: "tag=a" in browser.driver.current_url, "the filter")
    browser.press("\ue003")  # Backspace
    browser.wait(lambda: "tag=" not in browser.driver.current_url, "no filter")
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    browser.press("c")
    browser.wait(lambda: browser.driver.current_url.endswith("tag=c"), "the field, which has the focus still")
