"""Start: one field is enough; every state is shown; a failure says why, and what was typed stays."""

import io
import json
import tarfile

import pytest
from selenium.webdriver.common.keys import Keys

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
    assert server.get(f"/api/conversations/{identity}").json()["title"] == "echo hello"


def test_a_chosen_mode_holds_before_the_first_message(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo at once")
    _open(browser, "More")
    _type(browser, "title", "Never asked")
    browser.driver.find_element("css selector", "select[name=mode] option[value=nothing]").click()
    browser.find("start").click()

    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    identity = browser.driver.current_url.rpartition("/")[2]
    state = server.get(f"/api/conversations/{identity}").json()
    assert (state["title"], state["confirmation_policy"]) == ("Never asked", {"kind": "NeverConfirm"})
    observed = f"/api/conversations/{identity}/events/search?kind=ObservationEvent&after_seq=0&wait=20"
    assert "at once" in json.dumps(server.get(observed, timeout=40).json())


def _open(browser: Browser, *parts: str) -> None:
    """Open parts of the form by their names."""
    browser.find("start")
    for part in parts:
        browser.driver.find_element("xpath", f"//summary[starts-with(., '{part}')]").click()


def _begun(browser: Browser) -> str:
    """Start, and wait for the conversation; its id."""
    browser.find("start").click()
    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    return browser.driver.current_url.rpartition("/")[2]


def _unasked(browser: Browser) -> None:
    browser.driver.find_element("css selector", "select[name=mode] option[value=nothing]").click()


def _observed(server, identity: str) -> str:
    """What came of the first action."""
    search = f"/api/conversations/{identity}/events/search?kind=ObservationEvent&after_seq=0&wait=20"
    return json.dumps(server.get(search, timeout=40).json())


def test_tags_are_those_of_the_conversation(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo tagged")
    _open(browser, "More")
    _type(browser, "tags", "team=core, issue = 12=b, urgent")

    state = server.get(f"/api/conversations/{_begun(browser)}").json()
    assert state["tags"] == {"team": "core", "issue": "12=b", "urgent": ""}


def test_what_the_server_refuses_is_told_at_its_field_and_nothing_is_lost(browser):
    browser.open("start")
    _type(browser, "message", "run: echo kept")
    _open(browser, "More")
    _type(browser, "tags", "Team=core")
    browser.find("start").click()

    browser.says("A tag's key should have only a-z and 0-9, not 'Team'")
    tags = browser.driver.switch_to.active_element
    assert (tags.get_attribute("name"), tags.get_attribute("aria-invalid")) == ("tags", "true")
    told = browser.driver.find_element("id", tags.get_attribute("aria-describedby"))
    assert told.text.startswith("A tag's key")
    assert (_typed(browser, "message"), _typed(browser, "tags")) == ("run: echo kept", "Team=core")


def test_what_can_be_no_repository_is_told_at_its_field(browser):
    browser.open("start")
    _open(browser, "Repository")
    field = browser.driver.find_element("name", "repository")
    _type(browser, "repository", "not a url")
    assert "Write owner/name" not in browser.driver.find_element("tag name", "main").text  # while it is typed
    browser.press(Keys.TAB)
    browser.says("Write owner/name or a URL")
    assert field.get_attribute("aria-invalid") == "true"
    browser.find("start").click()
    wait_until(lambda: browser.driver.switch_to.active_element == field, "the focus of the field")
    assert not browser.all("start-state")

    field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    _type(browser, "branch", "dev")
    browser.find("start").click()
    browser.says("Name the repository that has this branch.")


def _fails_to_clone(browser: Browser, repository: str) -> None:
    """Start with a repository that Git cannot clone, and wait for what the page says of it."""
    browser.open("start")
    _type(browser, "message", "run: echo without")
    _open(browser, "Repository")
    _type(browser, "repository", repository)
    browser.find("start").click()
    browser.says("The start failed", "start-state")
    browser.says(f"The repository {repository} was not cloned: fatal: ")


def test_a_start_whose_clone_fails_goes_on_without_it_and_the_talk_says_so(browser, server):
    _fails_to_clone(browser, "file:///nowhere/shop")
    assert _typed(browser, "repository") == "file:///nowhere/shop"

    browser.find("start-without").click()
    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    identity = browser.driver.current_url.rpartition("/")[2]
    browser.says("The repository file:///nowhere/shop was not cloned: fatal: ", "timeline")
    browser.says("This conversation started without it.", "timeline")
    [found] = server.get("/api/v1/app-conversations", params={"ids": identity}).json()
    assert found["selected_repository"] is None
    [pending] = _pending(server, identity)
    assert pending["arguments"]["command"] == "echo without"


def test_a_start_whose_clone_fails_is_tried_again_with_what_is_in_the_form_by_then(browser, server):
    _fails_to_clone(browser, "file:///nowhere/other")

    browser.find("start-again").click()
    browser.says("The start failed", "start-state")
    browser.driver.find_element("name", "repository").send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    browser.find("start-again").click()
    wait_until(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")
    identity = browser.driver.current_url.rpartition("/")[2]
    search = f"/api/conversations/{identity}/events/search?kind=ConversationErrorEvent"
    assert server.get(search).json()["items"] == []


def test_the_examples_fill_in_the_form_and_work_without_a_model(browser, server):
    browser.open("start")
    labels = wait_for_examples(browser)
    assert labels == ["See where it runs", "Write a file", "Clone a repository"]
    browser.says("No model is set: the agent only runs lines that begin with run:", "missing")
    browser.says("LLM_MODEL=gpt-5.5 LLM_API_KEY=sk-… make run", "missing")

    browser.all("example")[2].click()
    assert _typed(browser, "repository") == "octocat/Hello-World"
    browser.all("example")[1].click()
    assert _typed(browser, "repository") == ""
    assert _typed(browser, "message").startswith("run: echo 'Hello from the sandbox'")
    assert browser.driver.switch_to.active_element.get_attribute("name") == "message"
    _unasked(browser)
    assert "Hello from the sandbox" in _observed(server, _begun(browser))


def wait_for_examples(browser: Browser) -> list[str]:
    wait_until(lambda: len(browser.all("example")) == 3, "the examples")
    return [one.text for one in browser.all("example")]


def test_the_approval_of_the_agent_is_named_by_what_it_does(browser):
    browser.open("start")
    browser.says("Every action waits for a decision.", "agent-asks")
    first = browser.driver.find_element("css selector", "select[name=mode] option")
    assert first.text == "Ask everything (this agent’s default)"


def test_files_are_in_the_working_folder_before_the_first_message(browser, server, tmp_path):
    (tmp_path / "a file.txt").write_text("as it is; ")
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as archive:
        inner = tarfile.TarInfo("src/inner.txt")
        inner.size = 8
        archive.addfile(inner, io.BytesIO(b"unpacked"))
    browser.open("start")
    _open(browser, "Files")
    browser.all("start-files")[0].send_keys(f"{tmp_path / 'a file.txt'}\n{tmp_path / 'packed.tar.gz'}")
    browser.says("2 files")
    _unasked(browser)
    _type(browser, "message", "run: cat 'a file.txt' src/inner.txt; ls")

    observed = _observed(server, _begun(browser))
    assert "as it is; unpacked" in observed
    assert "packed.tar.gz" not in observed


def test_a_file_that_cannot_be_unpacked_is_named_and_the_conversation_can_be_opened(browser, tmp_path):
    (tmp_path / "broken.tar").write_text("no archive")
    browser.open("start")
    _open(browser, "Files")
    browser.all("start-files")[0].send_keys(str(tmp_path / "broken.tar"))
    browser.says("broken.tar")
    browser.find("start").click()

    browser.says("The agent is ready, but not all files were uploaded", "start-state")
    browser.says("broken.tar cannot be unpacked: ")
    browser.driver.find_element("link text", "Open the conversation").click()
    browser.find("timeline")
    browser.open("start")
    browser.find("start")
    assert not browser.all("start-state")  # the person has taken it as it is


def test_a_secret_is_a_variable_of_the_agents_commands_and_is_kept_nowhere_in_the_browser(browser, server):
    browser.open("start")
    _open(browser, "Secrets")
    _type(browser, "secret-name", "TOKEN")
    browser.find("start").click()
    browser.says("Give each secret a name and a value.")
    _type(browser, "secret-value", "a long secret value")
    _type(browser, "message", 'run: printf %s "$TOKEN" | sha256sum')
    _unasked(browser)
    assert "a long secret value" not in browser.script("return JSON.stringify([sessionStorage, localStorage])")

    identity = _begun(browser)
    assert "af44d3dfbd44f624" in _observed(server, identity)
    assert "a long secret value" not in server.get(f"/api/conversations/{identity}").text
    browser.open("start")
    _open(browser, "Secrets")
    assert _typed(browser, "secret-value") == ""


def test_models_that_the_key_keeps_are_offered_for_agents_that_can_take_one(browsers, broken, server):
    model = {"llm": {"model": "provider/fast"}}
    for client in (broken, server):
        client.post("/api/profiles/Fast", json=model).raise_for_status()
    try:
        able = browsers(base_url=str(broken.base_url).rstrip("/"))
        able.open("start")
        _open(able, "More")
        able.says("Fast (provider/fast)")
        bundled = browsers()
        bundled.open("start")
        _open(bundled, "More")
        assert not bundled.driver.find_elements("name", "model")  # the bundled agent keeps the model of its spec
    finally:
        for client in (broken, server):
            client.delete("/api/profiles/Fast").raise_for_status()


def test_the_whole_form_fits_a_phone(browser):
    browser.command("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    browser.open("start")
    _open(browser, "Repository", "Files", "Secrets", "More")
    assert browser.script("return document.documentElement.scrollWidth") <= 390
    assert browser.violations() == []


def test_a_start_that_fails_shows_the_last_lines_of_the_log_and_keeps_what_was_typed(browsers, broken):
    browser = browsers(base_url=str(broken.base_url).rstrip("/"))
    browser.open("start")
    _type(browser, "message", "a long message")
    browser.find("start").click()

    browser.says("The start failed", "start-state")
    assert browser.find("start-state").get_attribute("data-state") == "ERROR"
    browser.says("The agent ended while it started (exit code 3).")
    browser.says("the model is missing")
    assert "Its files are kept" not in browser.driver.find_element("tag name", "main").text  # they went with it
    assert _typed(browser, "message") == "a long message"

    browser.driver.refresh()
    browser.find("start")
    assert _typed(browser, "message") == "a long message"


def test_a_page_that_is_loaded_again_at_once_goes_on_with_its_one_start(browser, server):
    browser.open("start")
    _type(browser, "message", "run: echo once")
    _open(browser, "More")
    _type(browser, "title", "Started once")
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


def test_from_the_message_to_the_start_are_at_most_ten_stops_of_tab(browser):
    browser.open("start")
    browser.find("start")
    wait_until(lambda: browser.driver.switch_to.active_element.get_attribute("name") == "message", "the message field")
    stops = 0
    while browser.driver.switch_to.active_element.get_attribute("data-testid") != "start":
        browser.press(Keys.TAB)
        stops += 1
        assert stops <= 10
