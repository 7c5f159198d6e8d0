"""Status: how the server is, what of its notifications is stuck, and whether this page is live."""

import signal

import pytest

from app import create_app
from settings.config import Config
from tests.servers import store_server, supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"


def test_the_status_names_health_store_hosts_releases_and_notifications(browser, server):
    browser.open("status")

    browser.says("Ready", "health")
    browser.says("Live: changes show at once", "health")
    browser.says("valkey", "store")
    kept = {"fsync": "When it is on the disk", "none": "When the store has it"}
    browser.says(kept[server.get("/server_info").json()["store"]["durability"]], "store")
    wait_until(lambda: server.get("/server_info").json()["isolation"], "what its supervisor finds out at its start")
    [host] = server.get("/server_info").json()["isolation"]
    browser.says(host["host"], "hosts")
    browser.says(f"Sandboxes of {host['specs'][0]['spec']}", "hosts")
    browser.says(f"{host['specs'][0]['kind']}, network: {host['specs'][0]['network']}", "hosts")
    browser.says(server.get("/server_info").json()["api_version"], "releases")
    browser.says("No target is set", "notifications")


def test_a_server_without_a_conversation_names_none_that_changed_and_shows_no_backtick(browsers, tmp_path):
    with store_server(tmp_path) as (url, _), supervised_server(tmp_path, REDIS_URL=url) as (client, _):
        sandboxes = create_app(Config.of(redis_url=url)).extensions["server"].store.sandboxes
        sandboxes.beat("another host", "its supervisor")
        isolation = {"kind": "landlock", "network": "host", "reaches": [], "lacks": []}
        sandboxes.hosts.note("another host", isolation, "1.2.3")
        browser = browsers(base_url=str(client.base_url).rstrip("/"))
        browser.open("status")

        browser.says("None changed since then", "health")
        browser.says("Process sandboxes of the host another host are confined by Landlock alone. isolation says")
        assert "isolation" in browser.script(
            "return [...document.querySelectorAll('main code')].map((one) => one.innerText)"
        )
        assert "`" not in browser.script("return document.querySelector('main').innerText")


@pytest.fixture
def notifying(tmp_path):
    """A server with a target that takes nothing, and one that is not reached; its store's process."""
    target = f"http://127.0.0.1:9/hook|{SECRET}"  # nothing listens on the port of the discard protocol
    with (
        store_server(tmp_path) as (url, store),
        supervised_server(tmp_path, REDIS_URL=url, NOTIFY_WEBHOOKS=target, NOTIFY_PRIVATE="1") as (client, _),
    ):
        yield client, store


def test_a_stuck_target_says_why_and_a_test_says_what_came_of_it(browsers, notifying):
    client, store = notifying
    identity = client.post("/api/conversations", json={"confirmation_policy": {"kind": "AlwaysConfirm"}}).json()["id"]
    action = {"kind": "TerminalAction", "command": "make deploy"}
    event = {"id": "a1", "kind": "ActionEvent", "source": "agent", "timestamp": "2026-11-20T20:37:22.528416"}
    event |= {"tool_name": "terminal", "tool_call_id": "call_1", "action": action}
    client.post(f"/api/v1/webhooks/events/{identity}", json=[event]).raise_for_status()
    wait_until(lambda: client.get("/api/v1/notifications").json()["items"][0]["tries"], "a failed try")
    [target] = client.get("/api/v1/notifications").json()["items"]

    browser = browsers(base_url=str(client.base_url).rstrip("/"))
    browser.open("status")
    browser.says("Stuck", f"target-{target['id']}")
    browser.says("Failed tries", f"target-{target['id']}")
    browser.find("test").click()
    browser.says("The test failed", "outcome")

    store.send_signal(signal.SIGSTOP)
    try:
        browser.says("store", "health")
        wait_until(lambda: "Ready" not in browser.text("health"), "the server is not ready")
    finally:
        store.send_signal(signal.SIGCONT)
    browser.says("Ready", "health")
