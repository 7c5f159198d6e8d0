"""Writes the pictures of the console in the documentation:  python -m tests.console.screenshots

It starts a server of its own with a store of its own, and needs Chromium, its driver and redis-server.
"""

import tempfile
import time
from pathlib import Path

import httpx

from tests.console import Browser, end_browsers
from tests.servers import supervised_server, wait_until

FOLDER = Path(__file__).parent.parent.parent / "docs"

#: most bytes of a picture
MOST_BYTES = 200_000

#: conversations that the list behind the pictures has: title, tags, and what its agent proposes, with its risk
CONVERSATIONS = (
    ("Upgrade the build image", {"team": "build"}, "docker build --pull -t build:next .", "MEDIUM"),
    ("Why is the nightly job slow?", {"team": "build"}, "psql -c 'explain analyze select * from runs'", "LOW"),
    ("Remove the flags nobody uses", {"team": "web"}, "rm -r src/flags/legacy", "HIGH"),
)


def _propose(client: httpx.Client, title: str, tags: dict[str, str], command: str, risk: str) -> None:
    """A conversation whose agent waits for a decision about a command."""
    body = {"title": title, "tags": tags, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    identity = client.post("/api/conversations", json=body).raise_for_status().json()["id"]
    event = {
        "id": f"action-{identity}",
        "kind": "ActionEvent",
        "source": "agent",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()),
        "thought": [{"type": "text", "text": f"The next step of “{title}”."}],
        "tool_name": "terminal",
        "tool_call_id": "call_1",
        "security_risk": risk,
        "summary": title,
        "action": {"kind": "TerminalAction", "command": command},
    }
    client.post(f"/api/v1/webhooks/events/{identity}", json=[event]).raise_for_status()


def _start(client: httpx.Client, *messages: str) -> str:
    """A conversation of the reference agent in which all but the last message were approved; its id."""
    body = {"title": "Look around on this machine"}
    task = client.post("/api/v1/app-conversations", json=body).raise_for_status().json()
    where = {"ids": task["id"]}
    wait_until(
        lambda: client.get("/api/v1/app-conversations/start-tasks", params=where).json()[0]["status"] == "READY",
        "the agent",
    )
    identity = client.get("/api/v1/app-conversations/start-tasks", params=where).json()[0]["app_conversation_id"]
    path = f"/api/conversations/{identity}"
    for message in messages:
        content = {"content": [{"type": "text", "text": message}]}
        client.post(f"/api/v1/app-conversations/{identity}/send-message", json=content).raise_for_status()
        wait_until(lambda: client.get(f"{path}/pending_actions").json(), "an action")
        if message == messages[-1]:
            break
        client.post(f"{path}/events/respond_to_confirmation", json={"accept": True}).raise_for_status()
        wait_until(lambda: client.get(path).json()["execution_status"] in ("idle", "finished"), "the end of the action")
    return str(identity)


def _take(browser: Browser, place: str, testid: str, name: str) -> None:
    """Write the picture of a place, once it shows an element. Raises ValueError where the picture is too large."""
    browser.open(place)
    browser.find(testid)
    wait_until(lambda: browser.find("connection").get_attribute("data-state") == "live", "the live page")
    path = FOLDER / name
    browser.driver.save_screenshot(str(path))
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, {MOST_BYTES} at most")


def main() -> None:
    """Write the pictures of the inbox and of a conversation."""
    with tempfile.TemporaryDirectory() as folder, supervised_server(Path(folder)) as (client, _):
        identity = _start(client, "run: uname -sr", "run: df -h /")
        for conversation in CONVERSATIONS:
            _propose(client, *conversation)
        browser = Browser(str(client.base_url).rstrip("/"), width=1400, height=900)
        try:
            browser.command(
                "Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False
            )
            _take(browser, "inbox", "pending-*", "console-inbox.png")
            _take(browser, f"conversations/{identity}", "pending-*", "console-conversation.png")
        finally:
            browser.close()
            end_browsers()


if __name__ == "__main__":
    main()
