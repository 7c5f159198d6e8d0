"""What keys of other scopes and agents of other abilities make of a prompt."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.approvals import ADMIN, ALWAYS, DecidedConversation, shown
from tests.conftest import action, limits_of, status, store_of
from tests.console.prompts import pending, press, row, steady
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A server that needs a key, and its store."""
    folder = tmp_path_factory.mktemp("house")
    settings = {"SESSION_API_KEY": ADMIN, "DATA_DIR": str(folder)}
    with store_server(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url, **settings) as (server, _):
        server.headers["X-Session-API-Key"] = ADMIN
        store = store_of(url, limits_of(most=9, pause_idlest=False, host_seconds=3600, start_seconds=3600))
        yield SimpleNamespace(server=server, store=store, url=str(server.base_url).rstrip("/"))


def test_a_key_that_may_not_decide_is_offered_no_decision(house, browsers):
    made = house.server.post("/api/v1/keys", json={"name": "reader", "scopes": ["read"]}).json()
    one = action("make")
    waiting = DecidedConversation(house.server, str(uuid4()))
    waiting.appends(one)
    house.server.post("/api/v1/approval-rules", json={"decision": "reject", "tool_name": "rm"}).raise_for_status()
    browser = browsers(base_url=house.url)
    browser.open("inbox", key=made["key"])

    prompt = pending(browser, one)
    assert "make" in prompt.text
    assert prompt.find_elements("css selector", "button, input") == []
    browser.press("j", "a", "r", "x", "s")
    browser.go("rules")
    browser.says("Rejects rm", "rules")
    assert not browser.all("revoke")
    assert not browser.all("new-rule")
    assert waiting.pending == [one["id"]]


@pytest.fixture
def alike(house):
    """A conversation whose agent takes one decision for all: (conversation, proposes(*actions))."""
    house.store.sandboxes.beat("host", "supervisor")
    sandbox = house.store.sandboxes.start("spec", host="host")
    hook = house.store.sandboxes.begin(sandbox.id, "host", "supervisor", "process")
    waiting = DecidedConversation.__new__(DecidedConversation)
    waiting.server, waiting.id = house.server, str(uuid4())
    house.store.conversations.create(waiting.id, confirmation_policy=ALWAYS, sandbox_id=sandbox.id)

    def proposes(*actions):
        url = f"/api/v1/webhooks/events/{waiting.id}"
        house.server.post(
            url, json=[*actions, status("waiting_for_confirmation")], headers=shown(hook)
        ).raise_for_status()

    yield waiting, proposes
    house.server.delete(f"/api/conversations/{waiting.id}").raise_for_status()


def test_actions_that_are_decided_together_are_all_shown_before_all_are_decided(house, browsers, alike):
    waiting, proposes = alike
    one, two, three = action("make"), action("make test"), action("make install")
    proposes(one, two)
    browser = browsers(base_url=house.url)
    browser.open("inbox", key=ADMIN)
    pending(browser, two)

    press(browser, one, "approve")
    assert "make test" in pending(browser, one).text
    proposes(three)
    browser.find(f"line-{three['id']}")
    browser.find("look-again").click()
    assert "make install" in pending(browser, one).text
    assert len(waiting.pending) == 3
    steady(browser, one)
    browser.find("together").click()

    wait_until(lambda: not waiting.pending, "the decision of all")
    assert {entry["decision"] for entry in waiting.entries} == {"approve"}


def test_low_risk_is_not_chosen_where_it_would_decide_another_risk_with_it(house, browsers, alike):
    _, proposes = alike
    low, high = action("ls", security_risk="LOW"), action("rm -r build", security_risk="HIGH")
    proposes(low, high)
    browser = browsers(base_url=house.url)
    browser.open("inbox", key=ADMIN)
    pending(browser, high)

    browser.find("index")
    assert not browser.all("choose-low")
    browser.find("choose", row(browser, low)).click()
    assert "1 high, 1 low risk" in browser.text("several")
