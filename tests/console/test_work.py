"""What came of a conversation: the changes of its folder, whose lines can be commented, and its files."""

from uuid import UUID

import pytest
from selenium.webdriver.common.keys import Keys

from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: a repository with one commit, a changed line, a new file, and names and texts that a page could take for its own
SETUP = """run: git init -q . && git config user.email a@example.org && git config user.name a
run: printf 'one\\ntwo\\nthree\\n' > plan.txt && git add . && git commit -qm first
run: printf 'one\\n2 <img src=x onerror=document.title=1>\\nthree\\n' > plan.txt
run: mkdir -p deep/er && echo '<script>document.title=2</script>' > 'deep/er/<b>page.html'"""


@pytest.fixture(scope="module")
def work(server):
    """The id of a conversation whose agent has changed a repository."""
    task = server.post(
        "/api/v1/app-conversations",
        json={"initial_message": {"content": [{"type": "text", "text": SETUP}], "run": True}, "title": "Work"},
    ).json()
    search = "/api/v1/app-conversations/start-tasks/search"

    def started() -> str | None:
        [found] = [one for one in server.get(search).json()["items"] if one["id"] == task["id"]]
        return found["app_conversation_id"] if found["status"] == "READY" else None

    wait_until(started, "the start")
    path = f"/api/conversations/{UUID(started())}"

    def is_done() -> bool:
        server.post(f"{path}/events/respond_to_confirmation", json={"accept": True})
        return server.get(path).json()["execution_status"] in ("finished", "idle") and not pending()

    def pending() -> list:
        return server.get(f"{path}/pending_actions").json()

    wait_until(lambda: server.get(f"{path}/events/count", params={"kind": "ActionEvent"}).json() == 4, "the actions")
    wait_until(is_done, "the end of the work")
    return path.rpartition("/")[2]


def test_a_change_is_shown_and_its_line_is_commented_in_one_message(browser, server, work):
    browser.open(f"conversations/{work}")
    browser.find("timeline")
    browser.find("changes").click()

    browser.says("2 changed files", "changes-panel")
    browser.driver.execute_script(
        "document.querySelectorAll('details.changed:not([open]) > summary').forEach((one) => one.click())"
    )
    browser.says("2 <img src=x onerror=document.title=1>", "changes-panel")
    added = next(one for one in browser.all("comment-line") if "added line 2" in one.get_attribute("aria-label"))
    added.click()
    browser.find("comment").send_keys("Say it in words.")
    browser.find("send-comments").click()

    browser.says("The agent has your comments.")
    found = server.get(f"/api/conversations/{work}/events/search", params={"kind": "MessageEvent", "limit": 100}).json()
    said = [part["text"] for one in found["items"] for part in one["llm_message"]["content"]]
    [comment] = [text for text in said if text.startswith("Comments on the changes")]
    assert comment.split("\n\n")[1:] == [
        '"plan.txt", line 2:',
        "    + 2 <img src=x onerror=document.title=1>",
        "Say it in words.",
    ]
    assert browser.driver.title not in ("1", "2")


def test_a_file_is_found_shown_as_text_and_never_as_a_page(browser, work):
    browser.open(f"conversations/{work}")
    browser.find("timeline")
    browser.find("files").click()

    browser.find("find-file").send_keys("page")
    browser.find("file").click()
    browser.says("<script>document.title=2</script>", "file-shown")
    assert browser.driver.title not in ("1", "2")


def test_a_file_is_uploaded_into_the_folder_and_downloaded(browser, work, tmp_path):
    (tmp_path / "note.txt").write_text("from here")
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "down"))
    browser.open(f"conversations/{work}?show=files")
    browser.find("upload")

    field = browser.driver.find_element("css selector", "[data-testid=upload-files]")
    field.send_keys(str(tmp_path / "note.txt"))
    browser.says("note.txt was uploaded.")
    browser.find("find-file").send_keys("note.txt")
    browser.find("file").click()
    browser.says("from here", "file-shown")
    browser.find("download-file").click()
    wait_until(lambda: (tmp_path / "down" / "note.txt").exists(), "the download")
    assert (tmp_path / "down" / "note.txt").read_text() == "from here"


def test_changes_are_of_the_start_and_of_a_turn_without_a_repository(browser, server):
    task = server.post(
        "/api/v1/app-conversations",
        json={"initial_message": {"content": [{"type": "text", "text": "run: echo one > plan.txt"}], "run": True}},
    ).json()
    search = "/api/v1/app-conversations/start-tasks/search"

    def started() -> str | None:
        [found] = [one for one in server.get(search).json()["items"] if one["id"] == task["id"]]
        return found["app_conversation_id"] if found["status"] == "READY" else None

    wait_until(started, "the start")
    path = f"/api/conversations/{UUID(started())}"

    def observed(number: int) -> bool:
        server.post(f"{path}/events/respond_to_confirmation", json={"accept": True})
        count = server.get(f"{path}/events/count", params={"kind": "ObservationEvent"}).json()
        return count == number and server.get(path).json()["execution_status"] == "finished"

    wait_until(lambda: observed(1), "the end of the first turn")
    changes = f"/api/v1/app-conversations/{path.rpartition('/')[2]}/git/changes"
    wait_until(
        lambda: (
            server.get(changes, params={"path": ".", "since": "start"}).json()
            == [{"status": "ADDED", "path": "plan.txt"}]
        ),
        "the record of the first turn",
    )
    message = {"role": "user", "content": [{"type": "text", "text": "run: echo two > other.txt"}], "run": True}
    server.post(f"{path}/events", json=message).raise_for_status()
    wait_until(lambda: observed(2), "the end of the second turn")

    browser.open(f"conversations/{path.rpartition('/')[2]}?show=changes")
    browser.says("2 changed files", "changes-panel")
    browser.driver.execute_script(
        "const field = document.querySelector('[data-testid=changes-since]');"
        "field.value = 'turn'; field.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    browser.says("1 changed file", "changes-panel")
    browser.says("other.txt", "changes-panel")
    browser.driver.execute_script(
        "const field = document.querySelector('[data-testid=changes-since]');"
        "field.value = 'last'; field.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    browser.says("plan.txt", "changes-panel")


def test_a_conversation_without_a_folder_says_whose_folders_are_recorded(browser, server):
    detached = server.post("/api/conversations", json={"initial_message": {"content": []}}).json()["id"]
    browser.open(f"conversations/{detached}?show=changes")
    browser.says("The folder of a sandbox that is a process is recorded", "changes-panel")
    browser.errors()  # of the request that failed


def test_a_terminal_runs_what_is_typed_and_the_audit_has_its_beginning_and_its_end(browser, server, work):
    browser.open(f"conversations/{work}")
    browser.find("timeline")
    browser.find("terminal-button").click()
    wait_until(lambda: browser.find("terminal-panel").get_attribute("data-state") == "open", "the terminal")

    typed = browser.driver.find_element("css selector", ".xterm-helper-textarea")
    typed.send_keys("printf '\\033[38;2;255;100;0m<b>%s\\033[0m\\n' shown-$((6*7))\n")
    browser.says("<b>shown-42", "terminal")
    typed.send_keys(Keys.TAB, Keys.F6)
    assert browser.driver.switch_to.active_element == browser.driver.find_element("css selector", ".composer textarea")
    browser.find("terminal-button").click()

    def audited() -> list[str]:
        entries = server.get(f"/api/v1/conversation/{work}/audit").json()["items"]
        return [entry["decision"] for entry in entries if not entry["action_ids"]]

    wait_until(lambda: audited() == ["terminal_opened", "terminal_closed"], "both entries")


@pytest.mark.parametrize("is_dark", [False, True])
def test_no_panel_beside_the_talk_has_a_violation(browsers, work, is_dark):
    browser = browsers(dark=is_dark)
    for panel, shown in (("changes", "comment-line"), ("files", "file"), ("terminal", "terminal")):
        browser.open(f"conversations/{work}?show={panel}")
        browser.find(shown)
        if panel == "files":
            browser.find("file").click()
            browser.find("file-shown")
        if panel == "terminal":
            wait_until(lambda: browser.find("terminal-panel").get_attribute("data-state") == "open", "the terminal")
        assert browser.violations() == [], panel
