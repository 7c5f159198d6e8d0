"""Sandboxes: live, with what they take of their machine; paused, resumed, deleted by an admin alone."""

import json
from uuid import uuid4

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains

from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

KEY = "a-key-of-an-admin-for-tests"


def _start(client) -> str:
    """Start a sandbox; its id, once it runs."""
    sandbox = client.post("/api/v1/sandboxes").raise_for_status().json()["id"]
    wait_until(lambda: _status(client, sandbox) == "RUNNING", "the sandbox runs")
    return sandbox


def _status(client, sandbox: str) -> str:
    return client.get("/api/v1/sandboxes", params={"id": sandbox}).json()[0]["status"]


def _act(browser, row: str, name: str) -> None:
    """Press an entry of the menu of a row."""
    browser.find("more", browser.find(row)).click()
    browser.find(name, browser.find(row)).click()


@pytest.fixture
def guarded(tmp_path):
    """A server that needs keys, and a client with an admin's."""
    with supervised_server(tmp_path, SESSION_API_KEY=KEY) as (client, _):
        client.headers["X-Session-API-Key"] = KEY
        yield client


def test_a_sandbox_comes_live_is_paused_resumed_read_and_deleted(browser, server):
    browser.open("sandboxes")
    browser.says("Sandboxes")
    sandbox = _start(server)
    row = f"sandbox-{sandbox}"
    browser.says("Running", row)
    browser.says("reference-agent", row)
    assert sandbox not in browser.text(row)

    _act(browser, row, "pause")
    browser.says("Paused", row)
    assert _status(server, sandbox) == "PAUSED"
    _act(browser, row, "resume")
    browser.says("Running", row)

    _act(browser, row, "logs")
    browser.says("serving on", "log")
    browser.press("\ue00c")
    browser.gone("log")

    _act(browser, row, "delete")
    browser.says("Delete this sandbox?")
    browser.driver.find_element("xpath", "//dialog//button[text()='Cancel']").click()
    assert _status(server, sandbox) == "RUNNING"
    _act(browser, row, "delete")
    browser.find("yes").click()
    ActionChains(browser.driver).move_to_element(browser.driver.find_element("tag name", "h1")).perform()
    browser.gone(row)
    wait_until(lambda: server.get("/api/v1/sandboxes", params={"id": sandbox}).json() == [None], "its end")


def test_a_sandbox_shows_what_began_at_its_agent_server_and_a_click_adopts_it(browser, server):
    sandbox, stray = _start(server), str(uuid4())
    [shown] = server.get("/api/v1/sandboxes", params={"id": sandbox}).json()
    [url] = [one["url"] for one in shown["exposed_urls"] if one["name"] == "AGENT_SERVER"]
    key = {"X-Session-API-Key": shown["session_api_key"]}
    body = {"conversation_id": stray, "title": "Begun elsewhere"}
    httpx.post(f"{url}/api/conversations", json=body, headers=key).raise_for_status()

    browser.open("sandboxes")
    browser.says("1 conversation began at its agent server and is not shown here", f"sandbox-{sandbox}")
    browser.says("Begun elsewhere", f"sandbox-{sandbox}")
    browser.find("adopt", browser.find(f"sandbox-{sandbox}")).click()

    browser.gone("adopt")
    assert server.get(f"/api/conversations/{stray}").json()["title"] == "Begun elsewhere"


def test_a_sandbox_leads_to_its_conversations_and_a_conversation_to_its_sandbox(browser, server):
    body = {"title": "Housed", "initial_message": {"content": [{"type": "text", "text": "run: true"}]}}
    task = server.post("/api/v1/app-conversations", json=body).json()

    def ready() -> bool:
        found = server.get("/api/v1/app-conversations/start-tasks", params={"ids": task["id"]}).json()[0]
        task.update(found)
        return found["status"] == "READY"

    wait_until(ready, "the start")
    browser.open("sandboxes")
    row = f"sandbox-{task['sandbox_id']}"
    browser.says("Housed", row)
    browser.find(row).find_element("css selector", "a.title").click()
    browser.opens("details")
    browser.find(row).find_element("link text", "Sandbox").click()
    browser.says("All sandboxes")
    browser.says("Running", row)
    browser.says(task["sandbox_id"], row)
    [known] = server.get("/api/v1/sandboxes", params={"id": task["sandbox_id"]}).json()
    browser.says(known["isolation"]["network"], row)
    browser.go(f"conversations?sandbox_id={task['sandbox_id']}")
    browser.says("Housed", "conversation-list")
    assert task["sandbox_id"] not in browser.text("conversation-list")
    browser.open("sandboxes/unknown")
    browser.says("This sandbox is gone")


def test_a_key_that_may_read_alone_sees_sandboxes_and_no_button(browsers, guarded):
    sandbox = _start(guarded)
    made = guarded.post("/api/v1/keys", json={"name": "dashboard", "scopes": ["read"]}).json()

    browser = browsers(base_url=str(guarded.base_url).rstrip("/"))
    browser.open("sandboxes", key=made["key"])
    browser.says("Running", f"sandbox-{sandbox}")
    assert browser.find("sandbox-list").find_elements("tag name", "button") == []
    guarded.post(f"/api/v1/sandboxes/{sandbox}/pause").raise_for_status()
    browser.says("Paused", f"sandbox-{sandbox}")

    browser.go("start")
    browser.says("needs a key with the scope “write”")
    browser.go("conversations")
    browser.says("No conversations yet")
    assert "New conversation" not in browser.driver.find_element("tag name", "main").text
    browser.go("status")
    browser.find("health")
    assert browser.all("notifications") == []
    assert json.dumps(browser.errors()) == "[]"


@pytest.mark.parametrize(("width", "most"), [(1280, 44), (390, 72)])
def test_conversations_sandboxes_and_keys_are_tables_whose_rows_have_a_line_or_two_on_a_phone(
    browser, furnished, width, most
):
    browser.base_url = furnished.base_url
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    for place, rows in (
        ("conversations", ".row.conversation"),
        ("sandboxes", ".row.sandbox:not(.columns):not(:has(details, .happened))"),
        ("keys", ".row.key:not(.columns)"),
    ):
        browser.open(place)
        browser.wait(lambda rows=rows: browser.driver.find_elements("css selector", f"li{rows}"), f"rows of {place}")
        heights = browser.script(
            "return [...document.querySelectorAll(arguments[0])].map((row) => row.getBoundingClientRect().height)",
            f"li{rows}",
        )
        assert max(heights) <= most, (place, heights)
