"""Ringing a device: the switch, what is shown, and a decision by a button of the notification, in a Chromium.

Chromium's own push service is another's: the page subscribes at one of the tests, which decrypts as a browser does, and
the tests deliver what it decrypted by the DevTools protocol.
"""

from uuid import uuid4

import pytest

from tests.approvals import DecidedConversation
from tests.conftest import action
from tests.console.workers import ConsoleWorker
from tests.notifications import receiver
from tests.notifications.push_service import PushService
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser, and starts a server with a supervisor")

#: a host that a browser does not trust over plain HTTP, unlike loopback
INSECURE = "agents.example.org"

#: has the page subscribe at a push service of the tests
_SUBSCRIBE = """
const told = arguments[0];
let made = null;
const subscription = { toJSON: () => told, unsubscribe: async () => (made = null, true) };
PushManager.prototype.subscribe = async () => (made = subscription);
PushManager.prototype.getSubscription = async () => made;
"""


@pytest.fixture(scope="module")
def ringing(tmp_path_factory):
    """A client of a server that may ring devices at private addresses."""
    settings = {"PUSH_PRIVATE": "1", "ALLOWED_HOSTS": INSECURE}
    with supervised_server(tmp_path_factory.mktemp("rings"), **settings) as (client, _):
        yield client


@pytest.fixture
def phone():
    with receiver(kind=PushService) as one:
        yield one


@pytest.fixture
def rung(ringing, phone, browsers):
    """A browser that rings, at its status, and its worker."""
    browser = browsers(base_url=str(ringing.base_url).rstrip("/"))
    browser.command("Browser.grantPermissions", permissions=["notifications"], origin=browser.base_url)
    browser.open("status")
    browser.find("ring")
    browser.script(_SUBSCRIBE, phone.subscription)
    browser.find("ring-on").click()
    browser.says("This device rings", "ring")
    yield browser, ConsoleWorker(browser)
    browser.find("ring-off").click() if browser.all("ring-off") else None
    browser.script("localStorage.clear()")
    for device in ringing.get("/api/v1/devices").json()["items"]:
        ringing.delete(f"/api/v1/devices/{device['id']}")


def waits(client, *actions) -> DecidedConversation:
    one = DecidedConversation(client, str(uuid4()), title="Tidy up")
    one.appends(*actions)
    return one


def ring_of(phone: PushService, title: str = "Tidy up") -> dict:
    """The first ring of a title: what a test before has decided may still be told of."""
    wait_until(lambda: any(one["title"] == title for one in phone.taken), f"a ring: {title}")
    return next(one for one in phone.taken if one["title"] == title)


def shows(worker: ConsoleWorker, title: str) -> dict:
    found: list[dict] = []

    def look() -> bool:
        found[:] = worker.shown()
        return [one["title"] for one in found] == [title]

    wait_until(look, f"one notification: {title}")
    return found[0]


def test_a_button_of_a_notification_decides_and_the_decision_takes_its_place(ringing, phone, rung):
    _, worker = rung
    conversation = waits(ringing, action("ls", security_risk="LOW"))
    worker.push(ring_of(phone))
    shown = shows(worker, "Tidy up")
    assert (shown["body"], shown["buttons"]) == ("LOW · terminal · ls", ["Approve", "Reject"])

    worker.press("approve")
    assert shows(worker, "Approved")["silent"]
    [entry] = ringing.get(f"/api/v1/conversation/{conversation.id}/audit").json()["items"]
    assert (entry["decision"], entry["actor"]["kind"]) == ("approve", "link")
    assert entry["actor"]["name"].startswith("the device ")

    worker.push(ring_of(phone, "Approved"))  # what the server tells of the decision
    assert shows(worker, "Approved")["tag"] == shown["tag"]


def test_a_late_button_says_who_was_faster(ringing, phone, rung):
    _, worker = rung
    one = action("ls", security_risk="LOW")
    conversation = waits(ringing, one)
    worker.push(ring_of(phone))
    shows(worker, "Tidy up")
    decisions = [{"action_id": one["id"], "decision": "reject", "reason": "No"}]
    path = f"/api/v1/conversation/{conversation.id}/pending-actions/decisions"
    ringing.post(path, json={"decisions": decisions}).raise_for_status()
    worker.press("approve")

    assert shows(worker, "Nothing to decide")["body"].startswith("This action was rejected at ")


def test_what_is_dangerous_is_opened_and_not_decided_by_a_button(ringing, phone, rung):
    browser, worker = rung
    conversation = waits(ringing, action("rm -rf /", security_risk="HIGH"))
    worker.push(ring_of(phone))
    assert shows(worker, "Tidy up")["buttons"] == ["Open"]

    worker.press("open")
    browser.wait(lambda: conversation.id in browser.script("return location.hash"), "the conversation")
    browser.find("approve")


def test_a_test_rings_and_a_device_that_rings_no_more_is_gone(ringing, phone, rung):
    browser, worker = rung
    browser.find("ring-test").click()
    worker.push(ring_of(phone, "This device rings"))
    shows(worker, "This device rings")

    browser.find("ring-off").click()
    browser.find("ring-on")
    assert ringing.get("/api/v1/devices").json()["items"] == []


def test_a_browser_over_http_says_what_it_lacks(ringing, browsers):
    browser = browsers(
        base_url=str(ringing.base_url).rstrip("/").replace("127.0.0.1", INSECURE),
        arguments=(f"--host-resolver-rules=MAP {INSECURE} 127.0.0.1",),
    )
    browser.open("status")
    browser.says("A browser rings only for pages over https", "ring")


def test_the_page_can_be_installed(ringing, browsers):
    browser = browsers(base_url=str(ringing.base_url).rstrip("/"))
    browser.open("status")
    manifest = browser.command("Page.getAppManifest")

    assert manifest["errors"] == []
    assert manifest["url"].endswith("/console/manifest.webmanifest")
    assert browser.command("Page.getInstallabilityErrors")["installabilityErrors"] == []
