"""One conversation: its composer, its state, what can be done with the whole of it, and its sandbox."""

import json
from uuid import uuid4

import httpx
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.console import Browser
from tests.console.logs import action, conversation, event, message, observation, post, time
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

ADMIN = "an-admin-of-the-tests-alone"


def state(browser: Browser) -> str:
    """The status of the conversation that its head shows."""
    return browser.driver.find_element("css selector", ".heading .state").get_attribute("data-state")


def becomes(browser: Browser, status: str) -> None:
    wait_until(lambda: state(browser) == status, f"the status {status}")


def events_of(server, identity: str, **query: str) -> list[dict]:
    return server.get(f"/api/conversations/{identity}/events/search", params=query).json()["items"]


def said(server, identity: str) -> list[str]:
    """What persons said in a conversation."""
    messages = events_of(server, identity, kind="MessageEvent", source="user")
    return [one["llm_message"]["content"][0]["text"] for one in messages]


def test_a_message_is_sent_and_the_agent_is_run_paused_and_interrupted(browser, server):
    identity = conversation(server)
    browser.open(f"conversations/{identity}")
    browser.says("Nothing has happened yet")
    field = browser.find("composer").find_element("tag name", "textarea")

    field.send_keys("first", Keys.SHIFT, Keys.ENTER, Keys.NULL, "second line", Keys.ENTER)
    becomes(browser, "running")
    assert said(server, identity) == ["first\nsecond line"]
    assert field.get_property("value") == ""
    browser.find("pause").click()
    becomes(browser, "paused")
    browser.find("resume").click()
    becomes(browser, "running")
    browser.find("interrupt").click()
    becomes(browser, "paused")
    field.send_keys("not yet")
    browser.find("send-ways").click()
    browser.find("send-only").click()

    wait_until(lambda: said(server, identity)[1:] == ["not yet"], "the second message")
    browser.says("not yet", "timeline")
    assert state(browser) == "paused"


def test_a_text_that_could_not_be_sent_stays_and_is_sent_once(browser, server):
    identity = conversation(server)
    browser.open(f"conversations/{identity}")
    field = browser.find("composer").find_element("tag name", "textarea")
    field.send_keys("kept")

    browser.offline()
    browser.find("send").click()
    browser.says("does not respond")
    assert field.get_property("value") == "kept"
    browser.offline(False)
    browser.open(f"conversations/{identity}")
    field = browser.find("composer").find_element("tag name", "textarea")
    assert field.get_property("value") == "kept"
    browser.find("send").click()

    wait_until(lambda: said(server, identity) == ["kept"], "the message")
    wait_until(lambda: field.get_property("value") == "", "an empty field")
    browser.errors()  # of the requests that failed


def test_what_waits_stands_above_the_composer_where_enter_alone_rejects_nothing(browser, server):
    identity = conversation(server, action("act", command="rm -r build"), policy="AlwaysConfirm")
    browser.open(f"conversations/{identity}")

    prompt = browser.find("pending-act")
    composer = browser.find("composer")
    assert prompt.location["y"] < composer.location["y"]
    assert "Sending a message rejects the pending action." in composer.text
    browser.says("Waits for a decision", "event-act")
    composer.find_element("tag name", "textarea").send_keys("do something else", Keys.ENTER)
    browser.says("Not sent: your message rejects the pending action", "rejects")
    assert said(server, identity) == []
    wait_until(lambda: composer.find_elements("css selector", "[data-steady]"), "buttons that are still")
    browser.press(Keys.ENTER)  # on the button, which has the focus

    browser.says("Superseded by a new user message", "timeline")
    wait_until(lambda: "rejects the pending action" not in browser.text("composer"), "no warning")
    assert "Waits for a decision" not in browser.text("event-act")


def test_an_action_that_comes_while_a_person_types_is_not_rejected_by_enter(browser, server):
    identity = conversation(server, message("asked"), policy="AlwaysConfirm")
    browser.open(f"conversations/{identity}")
    browser.find("event-asked")
    field = browser.find("composer").find_element("tag name", "textarea")
    field.send_keys("and then the tests")

    post(server, identity, action("act", 1, "make deploy"))
    browser.find("pending-act")
    field.send_keys(Keys.ENTER)
    browser.says("Not sent", "rejects")
    field.send_keys(" of the importer")

    assert said(server, identity) == ["message asked"]
    assert len(server.get(f"/api/conversations/{identity}/pending_actions").json()) == 1
    assert field.get_property("value") == "and then the tests of the importer"
    decisions = {"decisions": [{"action_id": "act", "decision": "reject"}]}
    server.post(f"/api/v1/conversation/{identity}/pending-actions/decisions", json=decisions).raise_for_status()
    browser.gone("rejects")
    field.send_keys(Keys.ENTER)
    wait_until(lambda: said(server, identity)[1:] == ["and then the tests of the importer"], "the message")


def test_a_waiting_action_is_shown_once_and_its_row_leads_to_it(browser, server):
    command = "rm -r build/only-once"
    waiting = action("act", command=command, summary="Clean", thought=[{"type": "text", "text": "It is old."}])
    browser.open(f"conversations/{conversation(server, message('asked'), waiting, policy='AlwaysConfirm')}")
    browser.find("pending-act")
    browser.says("Waits for a decision", "event-act")

    for _ in range(2):
        assert browser.driver.find_element("tag name", "main").text.count(command) == 1
        browser.find("to-decision").click()
        focused = browser.script("return document.activeElement.dataset.testid")
        assert focused == "pending-act"
        browser.opens("more")
        browser.find("all-events").click()


def test_of_an_agent_that_asks_nobody_no_mode_is_offered(browser, server):
    identity = str(uuid4())
    body = {"conversation_id": identity, "agent": {"kind": "ACPAgent"}}
    server.post("/api/conversations", json=body).raise_for_status()
    browser.open(f"conversations/{identity}")
    browser.opens("details")

    browser.says("This agent never asks")
    assert browser.all("mode") == []


def test_the_talk_says_who_changed_the_mode_and_to_what_also_after_a_reload(browser, server):
    identity = conversation(server, message("m"), title="Modes")
    browser.open(f"conversations/{identity}")
    browser.says("Modes")
    browser.opens("details")
    Select(browser.find("mode")).select_by_value("risky")
    change = "[data-kind=mode]"
    browser.wait(lambda: browser.driver.find_elements("css selector", change), "the change in the talk")
    assert browser.driver.find_element("css selector", change).text.startswith("You set the mode to ask what is risky")

    path = f"/api/v1/conversation/{identity}/approval-mode"
    server.post(path, json={"mode": "outside"}).raise_for_status()
    wait_until(lambda: browser.find("mode").get_attribute("value") == "outside", "the mode of another window")
    browser.driver.refresh()
    browser.wait(lambda: len(browser.driver.find_elements("css selector", change)) == 2, "both changes")
    last = browser.driver.find_elements("css selector", change)[-1]
    assert last.text.startswith("You set the mode to ask what leaves the folder")
    assert "Before: “Ask what is risky”." in last.find_element("class name", "body").get_attribute("title")


def test_title_tags_and_mode_are_changed_in_place(browser, server):
    identity = conversation(server, message("m"), title="Before")
    browser.open(f"conversations/{identity}")
    browser.says("Before")
    browser.opens("details", "more", "all-events")

    browser.opens("more")
    browser.find("edit-title").click()
    browser.find("title").send_keys("After", Keys.ENTER)  # what is typed takes the place of the title
    wait_until(lambda: browser.driver.find_element("tag name", "h1").text.startswith("After"), "the title")
    browser.find("tag").send_keys("team=search", Keys.ENTER)
    browser.says("team=search")
    Select(browser.find("mode")).select_by_value("everything")
    browser.says("The mode holds")
    Select(browser.find("mode")).select_by_value("nothing")
    browser.says("is for conversations in a sandbox")
    wait_until(lambda: browser.find("mode").get_attribute("value") == "everything", "the mode that holds")

    record = server.get(f"/api/conversations/{identity}").json()
    assert (record["title"], record["tags"]) == ("After", {"team": "search"})
    assert record["confirmation_policy"] == {"kind": "AlwaysConfirm"}
    server.patch(f"/api/conversations/{identity}", json={"title": "Of another person", "tags": {}})
    browser.says("Of another person")
    wait_until(lambda: "team=search" not in browser.text("timeline").splitlines()[-1], "the tags of another person")


def test_a_conversation_is_forked_exported_and_deleted(browser, server, tmp_path):
    events = [action("act"), observation("seen", "act", 1, 'a "quoted"\nline'), event("Odd", "odd", 2, number=1.0)]
    identity = conversation(server, *events, title="Source")
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(f"conversations/{identity}")
    browser.find("event-odd")

    browser.opens("more")
    browser.find("export").click()
    wait_until(lambda: list(tmp_path.glob("*.jsonl")), "the file")
    lines = next(tmp_path.glob("*.jsonl")).read_text().splitlines()
    assert [json.loads(line) for line in lines][1:-1] == events
    assert (json.loads(lines[0])["id"], json.loads(lines[0])["events"]) == (identity, len(events))
    assert '"number":1.0' in lines[-2].replace(" ", "")
    browser.opens("more")
    browser.find("fork").click()
    browser.find("yes").click()
    wait_until(lambda: identity not in browser.driver.current_url, "the fork")
    browser.says("Fork of Source")
    browser.find("event-odd")
    browser.opens("more")
    browser.find("delete").click()
    browser.find("yes").click()

    browser.says("The conversation was deleted.")
    assert server.get(f"/api/conversations/{identity}").status_code == 200


def test_a_conversation_that_goes_or_never_was_is_told_with_a_way_on(browser, server):
    identity = conversation(server, message("m"))
    browser.open(f"conversations/{identity}")
    browser.find("event-m")

    server.delete(f"/api/conversations/{identity}")
    browser.says("Conversation not found")
    browser.driver.find_element("link text", "Show all conversations").click()
    browser.find("conversation-list")
    browser.open(f"conversations/{identity}")
    browser.says("Conversation not found")
    browser.errors()  # of the requests that failed


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A client of a server that needs a key, with the admin's."""
    folder = tmp_path_factory.mktemp("locked")
    with (
        store_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, SESSION_API_KEY=ADMIN) as (client, _),
    ):
        client.headers["X-Session-API-Key"] = ADMIN
        yield client


def keyed(server: httpx.Client, *scopes: str) -> str:
    return server.post("/api/v1/keys", json={"name": "-".join(scopes), "scopes": list(scopes)}).json()["key"]


def test_what_a_key_may_not_do_is_not_offered(browsers, locked):
    identity = conversation(locked, action("act"), policy="AlwaysConfirm", title="Watched")
    browser = browsers(base_url=str(locked.base_url).rstrip("/"), width=1500)
    browser.open(f"conversations/{identity}", key=keyed(locked, "read"))
    browser.find("event-act")
    browser.find("pending-act")
    browser.opens("details")

    changes = [
        "composer",
        "send",
        "edit-title",
        "fork",
        "fork-here",
        "delete",
        "mode",
        "tag",
        "add-tag",
        "approve",
        "reject",
    ]
    assert [name for name in changes if browser.all(name)] == []
    browser.opens("more")
    browser.find("export")

    browser.open(f"conversations/{identity}", key=keyed(locked, "write"))
    browser.find("take-key").click()
    browser.says("your key cannot decide that", "composer")
    assert not browser.all("send")
    locked.post(f"/api/conversations/{identity}/events/respond_to_confirmation", json={"accept": False})
    browser.find("send")
    assert [name for name in ("delete", "mode", "approve") if browser.all(name)] == []


def test_the_sandbox_of_a_conversation_is_paused_and_resumed_and_shows_its_log(browsers, server):
    body = {"initial_message": {"content": [{"type": "text", "text": "run: echo in the sandbox"}]}}
    task = server.post("/api/v1/app-conversations", json=body).json()["id"]

    def started() -> str:
        [found] = server.get("/api/v1/app-conversations/start-tasks", params={"ids": task}).json()
        return found["app_conversation_id"] if found["status"] == "READY" else ""

    wait_until(started, "the agent")
    identity = started()
    [record] = server.get("/api/v1/app-conversations", params={"ids": identity}).json()
    browser = browsers(width=1500)
    browser.open(f"conversations/{identity}")
    browser.says("in the sandbox", "timeline")
    browser.opens("details")
    panel = browser.find(f"sandbox-{record['sandbox_id']}")

    browser.find("sandbox-log", panel).find_element("tag name", "summary").click()
    browser.says("serving on", "sandbox-log")
    browser.find("pause", panel).click()
    browser.find("resume", panel).click()
    browser.find("pause", panel)

    assert browser.errors() == []
    server.delete(f"/api/v1/app-conversations/{identity}")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_conversation_has_no_fault_that_axe_finds(browsers, server, waits, dark):
    printed = "".join(f"\x1b[{code}mcolour {code}\x1b[0m " for code in [*range(30, 38), *range(40, 48), *range(90, 98)])
    events = [
        message("asked"),
        action("act", 1, thought=[{"type": "text", "text": "I look."}], summary="Look"),
        observation("seen", "act", 2, printed),
        event("ConversationErrorEvent", "fault", 3, code="Broken", detail="It broke"),
        event("ConversationStateUpdateEvent", "stats", 4, key="stats", value={}),
        event("Odd", "odd", 5),
    ]
    identity = waits(*events, action("waits", 6), title="Everything").id
    post(server, identity, message("later", 7, "said", "agent"))
    browser = browsers(dark=dark, width=1500)
    browser.open(f"conversations/{identity}")
    browser.find("event-later")
    browser.find("pending-waits")
    assert browser.violations() == []

    browser.opens("filters", "over-time", "more", "all-events", "details")
    wait_until(lambda: browser.find("plot").find_elements("css selector", "canvas"), "the plot")
    assert browser.violations() == []


def test_details_leave_the_timeline_and_the_composer_in_sight_on_a_narrow_window(browsers, server):
    browser = browsers(width=1024, height=768)
    identity = conversation(server, title="Narrow")
    post(server, identity, *(message(f"m{number}", number) for number in range(30)))
    browser.open(f"conversations/{identity}")
    browser.says("message m29")

    browser.find("details").click()

    browser.says("Started")
    height, end = browser.script(
        """
        const timeline = document.querySelector(".timeline").getBoundingClientRect();
        return [timeline.height, document.querySelector(".composer").getBoundingClientRect().bottom - innerHeight];
        """
    )
    assert height > 200
    assert end <= 0
    browser.find("close-details").click()
    browser.gone("close-details")


def test_after_a_rejection_the_page_says_how_the_agent_goes_on(browser, server):
    identity = conversation(server)
    rejected = {"kind": "UserRejectObservation", "source": "environment", "action_id": "a", "timestamp": time(2)}
    rejected |= {"tool_name": "terminal", "tool_call_id": "call-a", "rejection_reason": "No"}
    post(server, identity, message("m"), action("a", 1), {"id": "r", **rejected})
    browser.open(f"conversations/{identity}")

    browser.says("Press Run to let it read your reason", "after-rejection")
    post(server, identity, message("n", 3))
    browser.gone("after-rejection")


def test_a_tag_that_was_removed_stays_so_while_another_is_removed(browser, server):
    identity = conversation(server)
    server.patch(f"/api/conversations/{identity}", json={"tags": {"a": "", "b": ""}}).raise_for_status()
    browser.open(f"conversations/{identity}")
    browser.opens("details")
    browser.wait(lambda: len(browser.driver.find_elements("css selector", ".tags button")) == 2, "both tags")
    browser.driver.execute_async_script(
        """
        const plain = window.fetch;
        window.fetch = async (url, options) => {
          if (options?.method === "PATCH") await new Promise((done) => setTimeout(done, 400));
          return plain(url, options);
        };
        const [first, second] = document.querySelectorAll(".tags button");
        first.click();
        requestAnimationFrame(() => setTimeout(() => second.click()));
        setTimeout(arguments[0], 2000);
        """
    )
    assert "a" not in server.get(f"/api/conversations/{identity}").json()["tags"]
