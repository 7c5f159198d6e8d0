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
    isolation = server.get("/api/v1/sandboxes", params={"id": sandbox}).json()[0]["isolation"]
    browser.says(isolation["network"], row)

    browser.find("pause", browser.find(row)).click()
    browser.says("Paused", row)
    assert _status(server, sandbox) == "PAUSED"
    browser.find("resume", browser.find(row)).click()
    browser.says("Running", row)

    browser.find("logs", browser.find(row)).click()
    browser.says("serving on", "log")
    browser.press("\ue00c")
    browser.gone("log")

    browser.find("delete", browser.find(row)).click()
    browser.says("Delete this sandbox?")
    browser.driver.find_element("xpath", "//dialog//button[text()='Cancel']").click()
    assert _status(server, sandbox) == "RUNNING"
    browser.find("delete", browser.find(row)).click()
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
    browser.find(f"sandbox-{task['sandbox_id']}").find_element("css selector", "a.title").click()
    browser.says("1 conversation")
    browser.says("Housed", "conversation-list")
    browser.find("conversation-list").find_element("css selector", ".where a").click()
    browser.says("All sandboxes")
    browser.says("Running", f"sandbox-{task['sandbox_id']}")
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
