"""The timeline of a conversation: every event once, whatever its log is, and however it comes."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.console import Browser
from tests.console.logs import action, conversation, message, observation, post, recorded, time
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: the ids of the events that the page shows, in its order
SHOWN = """
return [...document.querySelectorAll('.timeline [data-testid^="event-"]')].map((row) => row.dataset.testid.slice(6))
"""

#: scroll by so many pixels a frame until an edge of the log; what was shown, and the most rows at once
TRAVEL = """
const [step, done] = arguments, box = document.querySelector('.timeline'), seen = new Set();
let most = 0, still = 0;
const look = () => {
  const rows = document.querySelectorAll('li.event');
  most = Math.max(most, rows.length);
  for (const row of box.querySelectorAll('[data-testid^="event-"]')) seen.add(row.dataset.testid.slice(6));
  const isThere = step < 0 ? box.scrollTop === 0 : box.scrollHeight - box.scrollTop - box.clientHeight < 2;
  const edges = [...box.querySelectorAll('.edge')], beyond = step < 0 ? 'Earlier' : 'Later';
  const isLoading = edges.some((edge) => edge.textContent.startsWith(beyond));
  still = isThere && !isLoading ? still + 1 : 0;
  if (still > 2) return done({seen: [...seen], most});
  box.scrollTop += step;
  requestAnimationFrame(look);
};
look();
"""


def shown(browser: Browser) -> list[str]:
    return browser.script(SHOWN)


def ids(events: list[dict]) -> list[str]:
    return [event["id"] for event in events]


def shows(browser: Browser, wanted: list[str]) -> None:
    """Wait until the page shows these events, each once."""
    wait_until(lambda: sorted(shown(browser)) == sorted(wanted), f"the {len(wanted)} events, each once")


def count(server, identity: str, **filters: str) -> int:
    return server.get(f"/api/conversations/{identity}/events/count", params=filters).json()


@pytest.mark.parametrize("name", ["never_confirm", "pending"])
def test_a_recorded_log_is_shown_event_by_event_once(browser, server, name):
    events = recorded(name)
    identity = conversation(server, *events)

    browser.open(f"conversations/{identity}")
    browser.opens("filters", "more", "all-events")

    shows(browser, ids(events))
    browser.says(str(len(events)), "match-count")


def test_an_action_and_its_result_are_one_row(browser, server):
    events = [action("act", command="make test"), observation("seen", "act", 1, "12 passed")]
    browser.open(f"conversations/{conversation(server, *events)}")

    row = browser.find("event-act")

    assert browser.find("event-seen", row).find_element("class name", "line").text == "12 passed"
    assert "make test" in row.text


def test_events_come_live_and_once_also_after_the_network_was_lost(browser, server):
    identity = conversation(server, message("first"))
    browser.open(f"conversations/{identity}")
    browser.opens("filters")
    browser.find("event-first")

    post(server, identity, action("act", 1))
    browser.find("event-act")
    post(server, identity, observation("seen", "act", 2))
    browser.find("event-seen", browser.find("event-act"))
    browser.offline()
    browser.says("No network", "connection")
    post(server, identity, *(message(f"late-{number}", 3 + number) for number in range(120)))
    browser.offline(False)
    browser.find("event-late-119")

    shows(browser, ["first", "act", "seen", *(f"late-{number}" for number in range(120))])
    browser.says("123", "match-count")
    browser.errors()  # of the requests that failed


def test_the_end_of_the_log_stays_in_view_until_the_person_scrolls_away(browser, server):
    identity = conversation(server, *(message(f"m-{number}", number) for number in range(60)))
    browser.open(f"conversations/{identity}")
    browser.find("event-m-59")
    end = "const box = document.querySelector('.timeline'); return box.scrollHeight - box.scrollTop - box.clientHeight"
    wait_until(lambda: browser.script(end) < 2, "the end of the log in view")

    post(server, identity, message("followed", 100))
    browser.find("event-followed")
    wait_until(lambda: browser.script(end) < 2, "the new event in view")
    browser.script("document.querySelector('.timeline').scrollTop = 200")
    wait_until(lambda: browser.script("return document.querySelector('.timeline').scrollTop > 0"), "the scroll")
    top = "return [...document.querySelectorAll('li.event')].find((row) => row.getBoundingClientRect().top > 300)"
    held = browser.script(f"{top}.getBoundingClientRect().top")
    post(server, identity, message("unseen", 101))
    browser.says("1 new event")

    assert browser.script(f"{top}.getBoundingClientRect().top") == held
    browser.driver.find_element("css selector", ".to-end button").click()
    wait_until(lambda: browser.script(end) < 2, "the end of the log after the press")
    wait_until(lambda: "new event" not in browser.text("timeline"), "no button")


FILTERS = [
    {"filter-kind": "MessageEvent"},
    {"filter-source": "agent"},
    {"filter-kind": "ConversationStateUpdateEvent", "filter-source": "environment"},
    {"filter-text": "HELLO"},
]

NAMES = {"filter-kind": "kind", "filter-source": "source", "filter-text": "text"}


def test_the_filters_are_those_of_the_api_and_so_is_the_count(browser, server):
    events = recorded("never_confirm")
    identity = conversation(server, *events)
    for filters in FILTERS:
        browser.open(f"conversations/{identity}")
        browser.opens("filters", "more", "all-events")
        browser.says(str(len(events)), "match-count")
        for testid, value in filters.items():
            field = browser.find(testid)
            Select(field).select_by_value(value) if field.tag_name == "select" else field.send_keys(value)
        query = {NAMES[testid]: value for testid, value in filters.items()}
        found = server.get(f"/api/conversations/{identity}/events/search", params=query).json()["items"]

        shows(browser, ids(found))
        browser.wait(lambda found=found: browser.text("match-count") == str(len(found)), "the number of what is found")
        assert "text" in query or count(server, identity, **query) == len(found)
        assert all(value in browser.driver.current_url for value in query.values())

    browser.find("filter-reset").click()
    shows(browser, ids(events))


def test_the_text_of_a_command_is_found_however_far_back_it_is(browser, server):
    ran = action("ran", 0, "python3 -m build")
    identity = conversation(server, ran, *(message(f"m-{number}", number + 1) for number in range(1200)))
    browser.open(f"conversations/{identity}")
    browser.opens("filters")
    browser.says("Search messages, commands and output")
    browser.find("filter-text").send_keys("Python3")

    shows(browser, ["ran"])
    browser.says("1", "match-count")
    browser.find("filter-text").send_keys(" nowhere")
    browser.says("No matching events")
    browser.says("0", "match-count")


def test_a_filtered_timeline_is_live(browser, server):
    identity = conversation(server, message("kept", text="the straße"), message("other", 1))
    browser.open(f"conversations/{identity}?text=STRASSE")
    shows(browser, ["kept"])

    post(server, identity, message("no", 2), message("too", 3, "Another STRASSE"))

    shows(browser, ["kept", "too"])
    browser.says("2", "match-count")


def test_times_of_the_address_filter(browser, server):
    identity = conversation(server, *(message(f"m-{number}", number) for number in range(10)))
    query = {"timestamp__gte": time(2).replace("+", "%2B"), "timestamp__lt": time(5).replace("+", "%2B")}

    browser.open(f"conversations/{identity}?" + "&".join(f"{name}={value}" for name, value in query.items()))

    shows(browser, ["m-2", "m-3", "m-4"])
    browser.find("filter-reset").click()
    browser.says("10", "match-count")


def test_five_thousand_events_are_walked_up_and_down_with_a_bounded_number_of_rows(browser, server):
    events = [message(f"m-{number}", number) for number in range(5000)]
    identity = conversation(server, *events)
    browser.open(f"conversations/{identity}")
    browser.find("event-m-4999")
    browser.driver.set_script_timeout(85)

    up = browser.driver.execute_async_script(TRAVEL, -1500)
    assert shown(browser)[0] == "m-0"
    down = browser.driver.execute_async_script(TRAVEL, 1500)

    for way in (up, down):
        assert set(way["seen"]) == set(ids(events))
        assert way["most"] <= 500
    assert shown(browser)[-1] == "m-4999"


def test_an_address_leads_to_an_event(browser, server):
    identity = conversation(server, *(message(f"m-{number}", number) for number in range(400)))

    browser.open(f"conversations/{identity}?event=m-150")

    row = browser.find("event-m-150")
    assert "focus" in row.get_attribute("class")
    inside = "const row = arguments[0].getBoundingClientRect(); return row.top > 0 && row.bottom < innerHeight"
    wait_until(lambda: browser.script(inside, row), "the event in view")
    browser.driver.find_element("css selector", ".to-end button").click()
    browser.find("event-m-399")

    for name in ("m-398", "m-20"):  # in the window, and far from it
        browser.go(f"conversations/{identity}?event={name}")
        row = browser.find(f"event-{name}")
        wait_until(lambda row=row: browser.script(inside, row), "the event of the new address in view")


def test_the_link_to_an_event_is_copied_and_leads_there(browser, server):
    identity = conversation(server, *(message(f"m-{number}", number) for number in range(100)))
    browser.open(f"conversations/{identity}?event=m-10")
    browser.find("event-m-10")
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])

    browser.press("J", "l")
    read = "navigator.clipboard.readText().then(arguments[0])"
    base = f"{browser.base_url}/console/#/conversations/{identity}?event=m-"
    browser.wait(lambda: browser.driver.execute_async_script(read).startswith(base), "the link")
    name = browser.driver.execute_async_script(read).removeprefix(base)
    browser.open(f"conversations/{identity}?event=m-{name}")

    assert "focus" in browser.find(f"event-m-{name}").get_attribute("class")


def test_times_are_those_of_the_clock_below_the_day_and_an_action_says_how_long_it_took(browser, server):
    day = 86_400
    events = [message("first"), action("act", 1), observation("seen", "act", 1.4), message("next", day)]
    browser.open(f"conversations/{conversation(server, *events)}")

    assert browser.find("event-act").find_element("class name", "when").text.endswith(":01 · 0.4 s")
    days = [one.text for one in browser.driver.find_elements("css selector", ".timeline .day")]
    assert [one.replace(",", "") for one in days] == ["Friday 20 November 2026", "Saturday 21 November 2026"]
    title = browser.find("event-first").find_element("tag name", "time").get_attribute("title")
    zone = browser.script("return Intl.DateTimeFormat('en-GB', {timeZoneName: 'short'}).format(0).split(' ').at(-1)")
    assert title.startswith("20 Nov 2026")
    assert title.endswith(zone)


def test_a_search_marks_its_matches_keeps_markdown_and_leads_from_one_to_the_next(browser, server):
    printed = "\n".join(["needle here", *(f"line {number}" for number in range(400))])
    events = [
        message("bold", 0, "**A Needle** in `code`", "agent"),
        action("act", 1, "grep -r NEEDLE ."),
        observation("seen", "act", 2, printed),
        *(message(f"m-{number}", 10 + number) for number in range(120)),
        message("last", 500, "no needles"),
    ]
    browser.open(f"conversations/{conversation(server, *events)}?text=needle")
    browser.says("4 events", "matches")
    shows(browser, ["bold", "act", "seen", "last"])

    assert browser.find("event-bold").find_element("css selector", "strong mark").text == "Needle"
    assert browser.find("event-act").find_element("tag name", "mark").text == "NEEDLE"
    assert browser.find("event-seen").find_element("css selector", ".line mark").text == "needle"
    assert browser.text("show-earlier") == "398 later lines"
    browser.find("filter-text").click()
    for place, row in enumerate(["last", "act", "act", "bold", "last"]):  # a result is in the row of its action
        browser.press(Keys.ENTER)
        browser.says(f"{place % 4 + 1} of 4 events", "matches")
        assert "focus" in browser.find(f"event-{row}").get_attribute("class")
    browser.press(Keys.ENTER, held=Keys.SHIFT)
    browser.says("4 of 4 events", "matches")


def test_the_matches_of_a_search_are_reached_however_far_apart_they_are(browser, server):
    events = [message(f"m-{number}", number, text="rare" if number % 1000 == 0 else "often") for number in range(2500)]
    browser.open(f"conversations/{conversation(server, *events)}?text=rare")
    browser.says("3 events", "matches")
    browser.find("match-older").click()
    browser.says("1 of 3", "matches")
    browser.find("match-newer").click()

    browser.says("3 of 3", "matches")
    assert "focus" in browser.find("event-m-0").get_attribute("class")


def test_the_plot_shows_all_events_and_a_stretch_of_it_filters(browser, server):
    identity = conversation(server, *(message(f"m-{number}", number) for number in range(1000)))
    browser.open(f"conversations/{identity}")
    browser.opens("filters", "over-time")
    plot = browser.find("plot")
    wait_until(lambda: plot.find_elements("css selector", "canvas"), "the canvas")
    browser.says("MessageEvent 1,000", "plot")
    over = plot.find_element("css selector", ".u-over")
    width = over.size["width"]
    hand = ActionChains(browser.driver).move_to_element_with_offset(over, -width // 4, 0).click_and_hold()
    hand.move_by_offset(width // 4, 0).release().perform()

    wait_until(lambda: "timestamp__gte" in browser.driver.current_url, "the times in the address")
    wait_until(lambda: 200 < int(browser.text("match-count").replace(",", "")) < 300, "a quarter of the events")
    browser.find("plot-reset").click()
    browser.says("1,000", "match-count")
    Select(browser.find("plot-by")).select_by_value("source")
    browser.says("user 1,000", "plot")


def test_the_plot_and_the_list_count_the_same_events_that_have_a_text(browser, server):
    events = [message("one", 0, text="deploy it"), message("two", 5), action("act", 9, "make deploy")]
    identity = conversation(server, *events, observation("seen", "act", 10, "nothing"))
    browser.open(f"conversations/{identity}")
    browser.opens("filters", "over-time")
    browser.says("ActionEvent 1", "plot")

    browser.find("filter-text").send_keys("DEPLOY")
    browser.says("MessageEvent 1", "plot")
    browser.says("ActionEvent 1", "plot")
    assert "ObservationEvent" not in browser.text("plot")
    assert browser.text("match-count") == "2"
    browser.find("filter-text").send_keys("ment")

    browser.says("No event in this time has the text", "plot")
    assert browser.text("match-count") == "0"


def test_a_log_of_large_events_is_shown_at_its_end(browser, server):
    identity = conversation(server, message("first"))
    events = [message(f"large-{number}", number + 1, "x" * 240_000, "agent") for number in range(170)]
    for start in range(0, len(events), 20):
        post(server, identity, *events[start : start + 20])
    browser.open(f"conversations/{identity}")
    browser.find("event-large-169")
    browser.driver.execute_async_script("setTimeout(arguments[0], 3000)")  # in which nothing else comes
    assert shown(browser)[-1] == "large-169"
    assert "first" not in shown(browser)
