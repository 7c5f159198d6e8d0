"""The view of the audit: filters that the address keeps, pages, an export, and a verification in the browser."""

import contextlib
import json
import time
from uuid import uuid4

import pytest
from redis import Redis
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.support.select import Select

from admin.audit import main as audit_program
from store.keys import ConversationKeys, audit_key
from tests.audits import KEY, chain, keep
from tests.conftest import action, message
from tests.console import Browser
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: a name of this machine that a browser does not trust without https
PLAIN = "agents.test"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A client of a server without a supervisor, and its Redis."""
    folder = tmp_path_factory.mktemp("audit")
    with (
        store_server(folder) as (url, _),
        Redis.from_url(url) as redis,
        agent_server(folder / "log", REDIS_URL=url, ALLOWED_HOSTS=PLAIN) as (client, _),
    ):
        yield client, redis


@pytest.fixture
def opened(store, tmp_path):
    """A browser before that server."""
    browser = Browser(str(store[0].base_url).rstrip("/"))
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    yield browser
    errors = browser.errors()
    browser.close()
    assert errors == []


def entries(browser: Browser) -> list[str]:
    return [one.get_attribute("data-testid") for one in browser.all("entry-*")]


def test_entries_are_filtered_by_what_the_address_keeps_and_read_by_pages(opened, store, tmp_path):
    redis = store[1]
    ada, rule, many = str(uuid4()), str(uuid4()), str(uuid4())
    keep(redis, ada, chain(ada, 2))
    actor = {"kind": "rule", "name": "no-network", "address": ""}
    keep(redis, rule, chain(rule, 1, actor=actor, decision="reject", reason="No <b>network</b>\u202e here"))
    keep(redis, many, chain(many, 120, at=1_763_670_000_000_000 - 86_400_000_000))

    opened.open("audit")
    wait_until(lambda: len(entries(opened)) == 50, "the first page")
    assert f"entry-{many}-1" not in entries(opened)
    opened.driver.find_element("xpath", "//button[text()='Show more']").click()
    wait_until(lambda: len(entries(opened)) == 100, "the second page")
    opened.driver.find_element("xpath", "//button[text()='Show more']").click()
    wait_until(lambda: len(entries(opened)) == 123, "the last page")
    assert len(set(entries(opened))) == 123
    assert not opened.driver.find_elements("xpath", "//button[text()='Show more']")

    Select(opened.find("filter-decision")).select_by_visible_text("Rejected")
    wait_until(lambda: entries(opened) == [f"entry-{rule}-1"], "the rejected ones")
    opened.says("No <b>network</b>\\u{202e} here")
    assert "decision=reject" in opened.driver.current_url
    opened.driver.refresh()
    wait_until(lambda: entries(opened) == [f"entry-{rule}-1"], "the rejected ones, after a reload")
    opened.find("filter-actor").send_keys("nobody")
    opened.says("No decision passes these filters")
    opened.driver.find_element("xpath", "//button[text()='Clear the filters']").click()
    wait_until(lambda: len(entries(opened)) == 50, "all")

    opened.find("more-filters").find_element("tag name", "summary").click()
    opened.find("filter-conversation_id").send_keys(ada)
    wait_until(lambda: entries(opened) == [f"entry-{ada}-2", f"entry-{ada}-1"], "those of one conversation")
    opened.find("export").click()
    file = tmp_path / "audit.jsonl"
    wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") == 2, "the export")
    assert audit_program(["verify", str(file)]) == 0
    assert [json.loads(line)["actor"] for line in file.read_bytes().splitlines()] == [KEY, KEY]


def test_a_span_of_days_is_one_press_and_another_one_ends_it(opened, store):
    redis = store[1]
    old, new = str(uuid4()), str(uuid4())
    for identity, at in ((old, 1_763_670_000_000_000), (new, time.time_ns() // 1000 - 3_600_000_000)):
        keep(redis, identity, chain(identity, 1, at=at), at)
    opened.open("audit?text=")
    opened.find(f"entry-{new}-1")

    opened.find("span-7").click()
    wait_until(lambda: f"entry-{old}-1" not in entries(opened), "the entries of the week")
    assert f"entry-{new}-1" in entries(opened)
    assert "time__gte=" in opened.driver.current_url
    assert opened.find("span-7").get_attribute("aria-pressed") == "true"
    assert not opened.find("more-filters").get_attribute("open")

    opened.find("span-7").click()
    opened.wait(lambda: "time__gte=" not in opened.driver.current_url, "all entries")


def test_an_entry_shows_the_command_and_the_title_and_not_what_the_agent_calls_it(opened, store):
    client, conversation = store[0], str(uuid4())
    asked = action("rm -rf build\u202e", summary="List the files")
    body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}, "title": "Mend it"}
    client.post("/api/conversations", json=body).raise_for_status()
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("hello"), asked]).raise_for_status()
    decision = f"/api/conversations/{conversation}/events/respond_to_confirmation"
    client.post(decision, json={"accept": False}).raise_for_status()

    opened.open(f"audit?conversation_id={conversation}")

    entry = f"entry-{conversation}-1"
    opened.says("rm -rf build\\u{202e}", entry)
    assert "Mend it" in opened.text(entry)
    assert "List" not in opened.text(entry)
    opened.find(entry).find_element("tag name", "summary").click()
    opened.says("terminal", "decided")
    assert asked["id"] in opened.find(entry).find_element("css selector", "a.of").get_attribute("href")


def test_the_audit_is_searched_by_words(opened, store):
    redis = store[1]
    one, other = str(uuid4()), str(uuid4())
    shown = {"tool_name": "terminal", "text": "make the-one-and-only", "summary": None}
    keep(redis, one, chain(one, 1, shown=[shown], conversation_title="Build"))
    keep(redis, other, chain(other, 1))

    opened.open("audit")
    opened.find("filter-text").send_keys("ONE-AND")

    wait_until(lambda: entries(opened) == [f"entry-{one}-1"], "the entry that has the words")


def test_a_filter_that_the_server_refuses_is_told_in_words(opened):
    opened.open("audit?conversation_id=nonsense")

    opened.says("conversation_id")
    opened.says("Try again")


CHANGES = {
    "a reason": (lambda one: one.replace(b"so", b"no", 1), "Entry 2: its hash is"),
    "a blank": (lambda one: one.replace(b'":', b'": ', 1), "Entry 2: its bytes"),
    "another entry": (None, "entries are missing"),
}


def test_a_browser_verifies_a_real_audit_and_one_with_a_changed_entry_not(opened, store):
    client, redis = store
    conversation = str(uuid4())
    client.post("/api/conversations", json={"conversation_id": conversation}).raise_for_status()
    made = keep(redis, conversation, chain(conversation, 3))
    opened.open(f"audit?conversation_id={conversation}")

    key = audit_key(ConversationKeys(conversation))
    opened.find("verify").click()

    opened.says("3 entries verify.", "verified")
    assert json.loads(made[-1])["hash"] in opened.text("verified")
    for change, fault in CHANGES.values():
        changed = made[1:] if change is None else [made[0], change(made[1]), made[2]]
        assert changed != made
        assert redis.delete(key) == 1
        redis.rpush(key, *changed)
        opened.find("verify").click()
        opened.says("It does not verify.", "verified")
        opened.says(fault, "verified")


def test_where_a_browser_computes_no_hashes_the_page_names_the_command(store):
    client, _ = store
    conversation = str(uuid4())
    port = client.base_url.port
    plain = Browser(f"http://{PLAIN}:{port}", arguments=(f"--host-resolver-rules=MAP {PLAIN} 127.0.0.1",))
    try:
        plain.open(f"audit?conversation_id={conversation}")
        url = f"http://{PLAIN}:{port}/api/v1/conversation/{conversation}/audit"
        plain.says(f"python -m admin audit verify '{url}'", "verify-command")
        assert plain.all("verify") == []
    finally:
        plain.close()


def test_after_a_failure_nothing_of_the_filters_before_is_shown(opened, store):
    conversation = str(uuid4())
    keep(store[1], conversation, chain(conversation, 2))
    opened.open(f"audit?conversation_id={conversation}")
    wait_until(lambda: len(entries(opened)) == 2, "both approvals")

    opened.offline()
    Select(opened.find("filter-decision")).select_by_visible_text("Rejected")
    opened.says("The server does not respond.")
    opened.offline(False)
    with contextlib.suppress(NoSuchElementException, StaleElementReferenceException):  # it tries again by itself too
        opened.driver.find_element("xpath", "//button[text()='Try again']").click()

    opened.says("No decision passes these filters")
    assert entries(opened) == []
