"""A review of many lines: in colours, as Git counts them, and how fast it is drawn, which is printed alone."""

import json
import time
from uuid import UUID

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.support.select import Select

from tests.conftest import event
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: lines of the file, and how many of them have changed
LINES, CHANGED = 20_000, 200

#: a repository with one large file, whose lines change evenly from its first one on, and a small one of two languages
SETUP = f"""run: git init -q . && git config user.email a@example.org && git config user.name a
run: seq 0 {LINES - 1} | sed 's/.*/value_& = compute(&, "a text")/' > big.py && mkdir src
run: printf '%s\\n' 'def one():' '    \"""A text' '    of two lines.\"""' '    return 1' > src/dates.py
run: git add . && git commit -qm first
run: sed -i '1~{LINES // CHANGED}s/compute/derive/' big.py && sed -i 's/two lines/some lines/' src/dates.py
See `src/dates.py:3`, and src/dates.py:4 too."""

#: scrolls the review for some frames: the time of each
SCROLL = """
const end = arguments[arguments.length - 1], panel = document.querySelector("[data-testid=changes-panel]");
const times = [];
panel.scrollTop = 0;
let last = 0;
const step = (now) => {
  if (last) times.push(now - last);
  last = now;
  panel.scrollTop += 40;
  times.length < 240 ? requestAnimationFrame(step) : end(times);
};
requestAnimationFrame(step);
"""

#: shows the changes, and waits for the first row: milliseconds to it, and until the response with the file was there
SHOW = """
const end = arguments[arguments.length - 1], began = performance.now();
location.hash = arguments[0];
const look = () => {
  if (!document.querySelector("[data-path='big.py'] .line")) return requestAnimationFrame(look);
  const file = performance.getEntriesByType("resource").filter(({ name }) => name.includes("git/diff?path=big.py"));
  end([performance.now() - began, file.at(-1).responseEnd - began]);
};
look();
"""


@pytest.fixture(scope="module")
def large(server):
    """The id of a conversation whose agent has changed a large file of a repository."""
    sent = {"content": [{"type": "text", "text": SETUP}], "run": True}
    task = server.post("/api/v1/app-conversations", json={"initial_message": sent, "title": "Large"}).json()
    search = "/api/v1/app-conversations/start-tasks/search"

    def started() -> str | None:
        [found] = [one for one in server.get(search).json()["items"] if one["id"] == task["id"]]
        return found["app_conversation_id"] if found["status"] == "READY" else None

    wait_until(started, "the start")
    path = f"/api/conversations/{UUID(started())}"

    def is_done() -> bool:
        server.post(f"{path}/events/respond_to_confirmation", json={"accept": True})
        count = server.get(f"{path}/events/count", params={"kind": "ObservationEvent"}).json()
        return count == 5 and server.get(path).json()["execution_status"] == "finished"

    wait_until(is_done, "the end of the work")
    return path.rpartition("/")[2]


def since_the_commit(browser, large) -> None:
    """Show what has changed since the last commit of the repository."""
    browser.open(f"conversations/{large}?show=changes")
    Select(browser.find("changes-since")).select_by_value("repository")
    browser.says("2 changed files", "changes-panel")
    browser.wait(lambda: browser.driver.find_elements("css selector", "[data-path='big.py'] .line"), "the lines")


def asked(browser) -> list[str]:
    """The queries of the page's requests for changes, in their order."""
    names = browser.script("return performance.getEntriesByType('resource').map(({ name }) => name)")
    return [name.partition("/git/")[2] for name in names if "/git/" in name]


def tokens(browser, within: str) -> list[tuple[str, str]]:
    """The kinds and texts of the tokens below an element."""
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => [one.className, one.textContent])"
    found: list[tuple[str, str]] = [tuple(one) for one in browser.script(script, f"{within} [class^=t-]")]
    return found


def test_a_change_is_in_the_colours_of_its_language_on_both_sides(browser, large):
    since_the_commit(browser, large)
    small = "[data-path='src/dates.py']"
    browser.wait(lambda: ("t-keyword", "def") in tokens(browser, small), "the colours")
    assert ("t-string", '"""A text') in tokens(browser, small)
    texts = [(kind.split()[0], text) for kind, text in tokens(browser, f"{small} .removed")]
    assert ("t-string", "two") in texts, texts  # the second line of a text is a text, and its word is marked
    assert ("t-string", "some") in [(kind.split()[0], text) for kind, text in tokens(browser, f"{small} .added")]
    assert browser.violations() == []


def test_a_review_reads_each_file_once_and_the_first_one_alone(browser, large):
    since_the_commit(browser, large)
    files = ["diff?path=big.py", "diff?path=src%2Fdates.py"]
    browser.wait(lambda: asked(browser)[-1:] == files[1:], "the last file")
    assert [one for one in asked(browser) if "since" not in one] == ["changes?path=.", *files]


def test_a_pointer_on_the_button_reads_the_changes_before_it_is_pressed(browser, large):
    browser.open(f"conversations/{large}")
    button = browser.find("changes")
    ActionChains(browser.driver).move_to_element(button).perform()
    ahead = ["changes?path=.&since=start", "diff?path=big.py&since=start"]
    browser.wait(lambda: asked(browser) == ahead, "the first file")
    assert browser.all("changes-panel") == []

    button.click()
    browser.says("2 changed files", "changes-panel")
    browser.wait(lambda: len(asked(browser)) > 2, "the other file")
    assert asked(browser) == [*ahead, "diff?path=src%2Fdates.py&since=start"]


def test_a_place_in_a_message_leads_to_the_line_of_the_file(browser, large):
    browser.open(f"conversations/{large}")
    browser.find("timeline")
    browser.wait(lambda: browser.driver.find_elements("css selector", "a.to-line"), "the links")
    [first, second] = browser.driver.find_elements("css selector", "a.to-line")
    assert (first.text, second.text) == ("src/dates.py:3", "src/dates.py:4")
    first.click()
    browser.says("of some lines", "file-shown")
    browser.wait(lambda: browser.driver.find_elements("css selector", ".named"), "the line")
    assert browser.driver.find_element("css selector", ".named .number").text == "3"
    browser.wait(lambda: ("t-keyword", "return") in tokens(browser, ".listing"), "the colours")
    assert browser.violations() == []


def test_a_line_far_down_in_a_long_file_is_shown_by_its_address(browser, large):
    browser.open(f"conversations/{large}?show=files&file=big.py&line=15000")
    browser.says("value_14999 = compute(14999", "file-shown")
    assert "value_0 " not in browser.text("file-shown")


def test_a_change_of_200_lines_in_20000_is_shown_as_git_counts_it(browser, large):
    since_the_commit(browser, large)
    browser.says(f"+{CHANGED}", "changes-panel")
    lines = "[...document.querySelectorAll(\"[data-path='big.py'] .line.added\")]"

    def added() -> list[int]:
        found: list[int] = browser.script(f"return {lines}.map((one) => Number(one.dataset.fresh))")
        return found

    browser.wait(lambda: len(added()) > 50, "the lines, which are drawn in parts")
    found = added()
    assert found == [1 + place * (LINES // CHANGED) for place in range(len(found))]


def test_the_first_rows_and_the_frames_of_a_large_review_are_measured(browser, large):
    since_the_commit(browser, large)
    browser.open(f"conversations/{large}")
    browser.find("timeline")
    browser.driver.set_script_timeout(60)
    shown, fetched = browser.driver.execute_async_script(SHOW, f"#/conversations/{large}?show=changes&since=repository")
    time.sleep(1.0)  # the colours come meanwhile, and are not drawn between the frames that are measured
    frames = sorted(browser.driver.execute_async_script(SCROLL))
    parts = {"p50": frames[len(frames) // 2], "p95": frames[len(frames) * 95 // 100], "longest": frames[-1]}
    said = {name: round(number, 1) for name, number in {"first rows": shown, "of it fetched": fetched, **parts}.items()}
    print(f"A review of {CHANGED} changes in {LINES} lines, in ms: {json.dumps(said)}")
    assert len(frames) == 240


def test_a_push_that_cannot_be_made_says_why_before_anything_is_asked(browser, large):
    since_the_commit(browser, large)
    browser.find("push").click()
    browser.says("The repository has no remote. Ask the agent to add one", "push-refused")
    assert browser.violations() == []
    browser.find("push-close").click()
    browser.gone("push-dialog")
    browser.errors()  # of the request that was refused


def test_the_talk_shows_where_the_work_went(browser, waits):
    value = {"branch": "agent/mend", "commit": "f" * 40, "url": "https://git.example.org/team/app", "offered_url": None}
    for address, links in (("https://git.example.org/team/app/pulls/1", 1), ("javascript:alert(1)", 0)):
        made = waits(
            event("ConversationStateUpdateEvent", "environment", key="pushed", value={**value, "pull_request": address})
        )
        browser.open(f"conversations/{made.id}")
        browser.says("Pushed agent/mend at ffffffffff to https://git.example.org/team/app", "timeline")
        found = browser.driver.find_elements("xpath", "//a[.='Pull request']")
        assert [one.get_attribute("href") for one in found] == [address][:links]
