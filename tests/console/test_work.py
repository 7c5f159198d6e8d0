"""What came of a conversation: the changes of its folder, whose lines can be commented, and its files."""

import base64
import subprocess
from uuid import UUID

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

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


def line_of(browser, name: str):
    """A line of a change, by its name, shown and in sight."""
    find = f"//*[@role='group'][@aria-label='{name}']"
    browser.wait(lambda: browser.driver.find_elements("xpath", find), name)
    return browser.driver.find_element("xpath", find)


def since_the_commit(browser, work) -> None:
    """Show what has changed since the last commit of the repository."""
    browser.open(f"conversations/{work}?show=changes")
    Select(browser.find("changes-since")).select_by_value("repository")
    line_of(browser, "Removed line 2")


def test_several_lines_are_chosen_by_keyboard_and_commented_at_once(browser, server, work):
    since_the_commit(browser, work)
    line_of(browser, "Line 1").send_keys(Keys.SHIFT, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.says("line 1 to line 2", "changes-panel")
    browser.find("comment").send_keys("Both.")
    browser.find("send-comments").click()

    browser.says("The agent has your comments.")
    found = server.get(f"/api/conversations/{work}/events/search", params={"kind": "MessageEvent", "limit": 100}).json()
    said = [part["text"] for one in found["items"] for part in one["llm_message"]["content"]]
    [comment] = [text for text in said if "Both." in text]
    assert comment.split("\n\n")[1:] == [
        '"plan.txt", line 1 to line 2:',
        "      one\n    - two\n    + 2 <img src=x onerror=document.title=1>",
        "Both.",
    ]


def test_a_line_is_commented_with_the_mouse(browser, work):
    browser.open(f"conversations/{work}?show=changes")
    line = line_of(browser, "Added line 2")
    ActionChains(browser.driver).move_to_element(line).perform()
    browser.find("comment-line", line).click()
    assert browser.driver.switch_to.active_element == browser.find("comment")
    browser.find("drop-comment").click()
    browser.gone("comment")


def test_a_review_goes_file_by_file_and_remembers_what_was_viewed(browser, work):
    browser.open(f"conversations/{work}?show=changes")
    browser.says("+2", "changes-panel")
    browser.press("]")
    first = browser.driver.switch_to.active_element.text
    browser.press("]")
    assert browser.driver.switch_to.active_element.text != first

    browser.all("viewed")[0].click()
    browser.says("1 of 2 viewed", "changes-panel")
    browser.open(f"conversations/{work}?show=changes")
    browser.says("1 of 2 viewed", "changes-panel")
    assert [one.get_attribute("open") for one in browser.all("changed")] == [None, "true"]


def test_a_change_stands_in_two_columns_without_a_fault_of_accessibility(browser, work):
    browser.open(f"conversations/{work}?show=changes")
    line_of(browser, "Added line 2")
    assert browser.violations() == []
    browser.find("split").click()
    browser.wait(lambda: browser.driver.find_elements("css selector", ".pair"), "two columns")
    assert browser.violations() == []
    browser.find("split").click()


def test_a_change_leaves_as_a_patch_that_git_applies(browser, work, tmp_path):
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "down"))
    since_the_commit(browser, work)
    browser.find("patch").click()
    patch = tmp_path / "down" / f"{work}.patch"
    wait_until(patch.exists, "the download")

    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "plan.txt").write_text("one\ntwo\nthree\n")
    subprocess.run(["git", "apply", patch], cwd=tree, check=True)
    assert (tree / "plan.txt").read_text() == "one\n2 <img src=x onerror=document.title=1>\nthree\n"
    assert (tree / "deep/er/<b>page.html").read_text() == "<script>document.title=2</script>\n"


def test_a_change_is_shown_and_its_line_is_commented_in_one_message(browser, server, work):
    browser.open(f"conversations/{work}")
    browser.find("timeline")
    browser.find("changes").click()

    browser.says("2 changed files", "changes-panel")
    browser.says("2 <img src=x onerror=document.title=1>", "changes-panel")
    line_of(browser, "Added line 2").send_keys(Keys.ENTER)
    browser.find("comment").send_keys("Say it in words.")
    browser.find("send-comments").click()

    browser.says("The agent has your comments.")
    found = server.get(f"/api/conversations/{work}/events/search", params={"kind": "MessageEvent", "limit": 100}).json()
    said = [part["text"] for one in found["items"] for part in one["llm_message"]["content"]]
    [comment] = [text for text in said if "Say it in words." in text]
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

    def choose(moment: str) -> None:
        browser.script(
            "const field = document.querySelector('[data-testid=changes-since]');"
            "field.value = arguments[0]; field.dispatchEvent(new Event('change', { bubbles: true }))",
            moment,
        )

    browser.open(f"conversations/{path.rpartition('/')[2]}?show=changes")
    browser.says("2 changed files", "changes-panel")
    choose("turn")
    browser.says("1 changed file", "changes-panel")
    browser.says("other.txt", "changes-panel")
    choose("last")
    browser.says("plan.txt", "changes-panel")

    # An answer that comes late is of a moment that is not chosen any more
    choose("start")
    browser.says("2 changed files", "changes-panel")
    browser.script(
        """
        const plain = window.fetch;
        window.fetch = async (url, options) => {
          if (!String(url).includes("git/changes")) return plain(url, options);
          window.fetch = plain; // the first such request alone
          const response = await plain(url, { ...options, signal: undefined });
          await new Promise((done) => (window.release = done));
          return response;
        };
        """
    )
    browser.find("read-changes").click()
    browser.wait(lambda: browser.script("return Boolean(window.release)"), "the answer that is held back")
    choose("turn")
    browser.says("1 changed file", "changes-panel")
    browser.driver.execute_async_script("window.release(); setTimeout(arguments[0], 500)")
    assert "2 changed files" not in browser.text("changes-panel")


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
    for panel, shown in (("changes", "viewed"), ("files", "file"), ("terminal", "terminal")):
        browser.open(f"conversations/{work}?show={panel}")
        browser.find(shown)
        if panel == "files":
            browser.find("file").click()
            browser.find("file-shown")
        if panel == "terminal":
            wait_until(lambda: browser.find("terminal-panel").get_attribute("data-state") == "open", "the terminal")
        assert browser.violations() == [], panel


#: a page that tries what no page of a preview may: `found` has what came of each try
HOSTILE = """<!doctype html><title>shown</title><h1>shown</h1><script>
const ours = "http://127.0.0.1:" + location.port;
const found = { opener: String(window.opener), cookie: document.cookie, referrer: document.referrer };
const read = async (name, url, options) => {
  try {
    const one = await fetch(url, options);
    found[name] = `${one.status} ${await one.text()}`;
  } catch { found[name] = "failed"; }
};
const socket = (name, url) => new Promise((end) => {
  const one = new WebSocket(url);
  one.onopen = () => (found[name] = "open", end());
  one.onerror = () => (found[name] = "failed", end());
});
(async () => {
  await read("api", ours + "/api/v1/sandboxes/search", { credentials: "include" });
  await read("console", ours + "/console/", {});
  await read("own", "/api/v1/sandboxes/search", {});
  await read("sibling", location.origin.replace(/[0-9]+-/, "1999-"), { credentials: "include" });
  await read("unread", location.origin.replace(/[0-9]+-/, "1999-"), { credentials: "include", mode: "no-cors" });
  await socket("socket", ours.replace("http", "ws") + "/sockets/events/00000000-0000-4000-8000-000000000000");
  try {
    await navigator.serviceWorker.register("/index.html");
    found.worker = "there";
  } catch { found.worker = "failed"; }
  document.cookie = "agent_preview=mine; path=/; domain=preview.localhost";
  await read("again", "/", {});
  const frame = document.createElement("iframe");
  frame.onload = () => {
    found.frame = frame.contentDocument?.body.innerText ?? "away";
    addEventListener("message", (event) => (found.message = event.origin));
    frame.contentWindow.postMessage("hello", "*");
    setTimeout(() => (window.found = found), 300);
  };
  frame.src = ours + "/console/";
  document.body.append(frame);
})();
</script>"""


@pytest.fixture
def shown(server, work):
    """The port at which a program in the sandbox of the work serves a hostile page."""
    page = base64.b64encode(HOSTILE.encode()).decode()
    command = (
        f"mkdir -p /tmp/site && cd /tmp/site && echo {page} | base64 -d > index.html && exec python3 -m http.server 0"
    )
    path = f"/api/conversations/{work}/bash/start_bash_command"
    body = {"command": f"{command} --bind 127.0.0.1", "timeout": 600}
    server.post(path, json=body).raise_for_status()
    [conversation] = server.get("/api/v1/app-conversations", params={"ids": work}).json()
    listed = f"/api/v1/sandboxes/{conversation['sandbox_id']}/ports"
    wait_until(lambda: server.get(listed).raise_for_status().json()["ports"], "the program")
    return server.get(listed).json()["ports"][0]


def test_a_hostile_page_of_a_preview_reaches_nothing_of_this_server(browsers, server, work, shown):
    browser = browsers()
    browser.open(f"conversations/{work}")
    browser.find("preview-button").click()
    browser.says("-m http.server 0", f"listens-{shown}")
    browser.find(f"port-{shown}").click()
    wait_until(lambda: len(browser.driver.window_handles) == 2, "the tab of the preview")
    console = browser.driver.current_window_handle
    browser.driver.switch_to.window(next(one for one in browser.driver.window_handles if one != console))
    wait_until(lambda: browser.script("return window.found !== undefined"), "the end of the tries")
    found, address = browser.script("return window.found"), browser.driver.current_url
    browser.driver.close()
    browser.driver.switch_to.window(console)

    assert address.startswith(f"http://{shown}-")
    assert address.endswith("/")
    assert "ticket" not in address
    again, own = found.pop("again"), found.pop("own")
    assert again.startswith("200 ")
    assert own.startswith("404 ")
    assert "Error response" in own, "the program's own answer"
    assert found == {
        **{"opener": "null", "cookie": "", "referrer": ""},
        **dict.fromkeys(("api", "console", "sibling", "unread", "socket", "worker"), "failed"),
        "frame": "away",
    }
    entries = server.get(f"/api/v1/conversation/{work}/audit").json()["items"]
    assert entries[-1]["decision"] == "preview_opened"


def test_a_port_at_which_nothing_listens_is_said_in_the_panel(browser, server, work):
    browser.open(f"conversations/{work}?show=preview")
    browser.find("other-port").click()
    browser.find("preview-port").send_keys("1999")
    browser.find("preview-open").click()
    browser.says("Nothing listens at port 1999", "preview-error")
    browser.errors()  # of the request that failed


def test_a_file_that_the_agent_wrote_since_is_replaced_only_after_a_question(browser, server, work, tmp_path):
    (tmp_path / "late.txt").write_text("mine")
    browser.open(f"conversations/{work}?show=files")
    browser.find("upload")
    body = {"command": "echo theirs > late.txt"}
    server.post(f"/api/conversations/{work}/bash/execute_bash_command", json=body).raise_for_status()

    field = browser.driver.find_element("css selector", "[data-testid=upload-files]")
    field.send_keys(str(tmp_path / "late.txt"))
    browser.says("Replace files?")
