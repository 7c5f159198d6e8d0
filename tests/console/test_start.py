"""Start: one field is enough; every state is shown; a failure says why, and what was typed stays."""

import json

import pytest

from tests.console import Browser
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

BROKEN = """
[[spec]]
id = "broken"
created_at = 2026-11-21T00:00:00Z
command = ["/bin/sh", "-c", "echo the model is missing; exit 3"]
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A client of a server whose agents do not start."""
    folder = tmp_path_factory.mktemp("broken")
    specs = folder / "specs.toml"
    specs.write_text(BROKEN)
    with supervised_server(folder, SANDBOX_SPECS=str(specs)) as (client, _):
        yield client


def _type(browser: Browser, name: str, text: str) -> None:
    browser.find("start")
    browser.driver.find_element("name", name).send_keys(text)


def _typed(browser: Browser, name: str) -> str:
    return browser.driver.find_element("name", name).get_property("value")


def _note_states(browser: Browser) -> None:
    """Keep every state of the start that the page shows."""
    browser.script(
        """
        window.states = [];
        new MutationObserver(() => {
          const state = document.querySelector('[data-testid="start-state"]')?.dataset.state;
          if (state && state !== window.states.at(-1)) window.states.push(state);
        }).observe(document.body, {subtree: true, childList: true, attributes: true});
        """
    )


def test_a_message_alone_starts_an_agent_and_leads_to_its_conversation(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo hello")
    _note_states(browser)
    browser.find("start").click()

    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    states = browser.script("return window.states")
    assert states[0] == "WORKING"
    assert "ERROR" not in states
    identity = browser.driver.current_url.rpartition("/")[2]
    [pending] = _pending(server, identity)
    assert pending["arguments"]["command"] == "echo hello"


def test_a_chosen_policy_holds_before_the_first_message(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo at once")
    _type(browser, "title", "Never asked")
    browser.driver.find_element("css selector", "select[name=policy] option[value=NeverConfirm]").click()
    browser.find("start").click()

    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    identity = browser.driver.current_url.rpartition("/")[2]
    state = server.get(f"/api/conversations/{identity}").json()
    assert (state["title"], state["confirmation_policy"]) == ("Never asked", {"kind": "NeverConfirm"})
    observed = f"/api/conversations/{identity}/events/search?kind=ObservationEvent&after_seq=0&wait=20"
    assert "at once" in json.dumps(server.get(observed, timeout=40).json())


def test_tags_are_those_of_the_conversation(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo tagged")
    browser.script("document.querySelector('form.start details').open = true")
    _type(browser, "tags", "team=core, issue = 12=b, urgent")
    browser.find("start").click()

    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    state = server.get(f"/api/conversations/{browser.driver.current_url.rpartition('/')[2]}").json()
    assert state["tags"] == {"team": "core", "issue": "12=b", "urgent": ""}


def test_a_start_that_fails_shows_the_last_lines_of_the_log_and_keeps_what_was_typed(browsers, broken):
    browser = browsers(base_url=str(broken.base_url).rstrip("/"))
    browser.open("start")
    _type(browser, "message", "a long message")
    browser.find("start").click()

    browser.says("The start failed", "start-state")
    assert browser.find("start-state").get_attribute("data-state") == "ERROR"
    browser.says("the model is missing")
    assert "Its files are kept" not in browser.driver.find_element("tag name", "main").text  # they went with it
    assert _typed(browser, "message") == "a long message"

    browser.driver.refresh()
    browser.find("start")
    assert _typed(browser, "message") == "a long message"


def test_a_page_that_is_loaded_again_at_once_goes_on_with_its_one_start(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo once")
    _type(browser, "title", "Started once")
    browser.find("start")
    browser.script("document.querySelector('[data-testid=start]').click(); location.reload()")

    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    browser.says("Started once")
    found = server.get("/api/v1/app-conversations/search", params={"title__contains": "Started once"}).json()["items"]
    assert len(found) == 1


def test_a_server_that_is_away_keeps_what_was_typed_and_is_tried_again(browsers, server):
    browser = browsers()
    browser.open("start")
    _type(browser, "message", "run: echo later")
    browser.offline()
    browser.find("start").click()

    browser.says("The server does not respond.")
    assert _typed(browser, "message") == "run: echo later"

    browser.offline(False)
    browser.driver.find_element("xpath", "//button[text()='Try again']").click()
    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")


def _pending(server, identity: str) -> list[dict]:
    found: list[dict] = []

    def look() -> bool:
        found[:] = server.get(f"/api/conversations/{identity}/pending_actions").json()
        return bool(found)

    wait_until(look, "a pending action")
    return found
