"""The key of a browser: asked for once, kept for the session of a tab; what it may not do is not offered."""

from uuid import uuid4

import pytest
from selenium.webdriver.common.keys import Keys

from tests.approvals import DecidedConversation
from tests.console import Browser
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.browser("shows the console in a browser")

KEY = "an-admin-key-for-tests-only"

#: every view, and the elements of those that change something
VIEWS = ("inbox", "conversations", "start", "sandboxes", "rules", "keys", "audit", "status")
CHANGES = ("approve", "reject", "reason", "composer", "send", "pause", "resume", "start", "yes", "make-key", "revoke*")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A client of a server that needs a key, and shows an admin's."""
    with supervised_server(tmp_path_factory.mktemp("keyed"), SESSION_API_KEY=KEY) as (client, _):
        client.headers["X-Session-API-Key"] = KEY
        DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
        yield client


@pytest.fixture
def opened(keyed):
    """A browser before the server that needs a key."""
    browser = Browser(str(keyed.base_url).rstrip("/"))
    yield browser
    errors = browser.errors()
    browser.close()
    assert errors == []


@pytest.fixture(scope="module")
def waiting(keyed) -> str:
    """The id of a conversation that has a sandbox, a message, and an action that waits."""
    api = WireApi(keyed)
    conversation_id: str = api.app_conversation(title="Careful work")["id"]
    api.send(conversation_id, "run: ls -l")
    api.until(conversation_id, "waiting_for_confirmation")
    return conversation_id


def made_key(keyed, *scopes: str) -> dict:
    """A key with scopes, as the API shows it once."""
    made = keyed.post("/api/v1/keys", json={"name": " and ".join(scopes), "scopes": list(scopes)})
    assert made.status_code == 201
    return made.json()


def enter(browser: Browser, key: str, *, remember: bool = False) -> None:
    dialog = browser.find("key-dialog")
    field = dialog.find_element("name", "key")
    field.clear()
    field.send_keys(key)
    if remember:
        dialog.find_element("name", "remember").click()
    dialog.find_element("css selector", "[type=submit]").click()


def at(browser: Browser, heading: str) -> None:
    """Wait until a view is shown."""
    wait_until(
        lambda: browser.driver.find_element("css selector", "main h1").text.startswith(heading), f"the view {heading}"
    )


def stored(browser: Browser) -> tuple[str | None, str | None]:
    """The key in the storage of the session, and in that of the browser."""
    return tuple(browser.script("return [sessionStorage, localStorage].map((one) => one.getItem('agent-server-key'))"))


def test_a_key_is_asked_for_until_it_is_right_and_kept_for_the_tab_alone(opened):
    opened.open("conversations")
    opened.says("The server needs a key.", "key-dialog")
    assert opened.violations() == []
    opened.find("key-dialog").find_element("css selector", "summary").click()
    opened.says("log names, at its start, the command that makes another one", "key-dialog")
    assert opened.violations() == []
    for wrong in ("a-wrong-key-for-tests", "a-wrong-key-for-tests", "schlüssel"):
        enter(opened, wrong)
        opened.says("not a key" if wrong == "schlüssel" else "does not know this key", "key-dialog")
        assert stored(opened) == (None, None)
    enter(opened, KEY)
    opened.gone("key-dialog")
    at(opened, "Conversations")

    assert stored(opened) == (KEY, None)
    opened.driver.refresh()
    at(opened, "Conversations")
    assert not opened.all("key-dialog")

    opened.driver.switch_to.new_window("tab")
    opened.driver.get(f"{opened.base_url}/console/")
    opened.find("key-dialog")


def test_a_remembered_key_opens_every_tab_until_it_is_forgotten_in_one(opened):
    opened.open("inbox")
    enter(opened, KEY, remember=True)
    at(opened, "Inbox")
    assert stored(opened) == (None, KEY)
    first = opened.driver.current_window_handle
    opened.driver.switch_to.new_window("tab")
    opened.driver.get(f"{opened.base_url}/console/")
    at(opened, "Inbox")

    opened.find("forget-key").click()

    opened.find("key-dialog")
    assert stored(opened) == (None, None)
    opened.driver.switch_to.window(first)
    opened.find("key-dialog")
    opened.driver.refresh()
    opened.find("key-dialog")


def test_the_key_of_a_link_is_taken_and_stands_neither_in_the_address_nor_in_the_history(opened):
    opened.open(key=KEY)
    at(opened, "Inbox")

    assert opened.driver.current_url == f"{opened.base_url}/console/"
    assert stored(opened) == (KEY, None)
    opened.go("conversations")
    at(opened, "Conversations")
    opened.driver.back()
    at(opened, "Inbox")
    assert opened.driver.current_url == f"{opened.base_url}/console/"
    entries = opened.command("Page.getNavigationHistory")["entries"]
    assert not [entry for entry in entries if KEY in entry["url"]]
    assert not [url for url in opened.requested() if KEY in url and "#" not in url]


def test_a_link_that_is_opened_where_the_page_is_already_is_taken_too(opened):
    opened.open("inbox")
    opened.find("key-dialog")

    opened.driver.get(f"{opened.base_url}/console/#key={KEY}")

    at(opened, "Inbox")
    opened.gone("key-dialog")
    assert KEY not in opened.driver.current_url


@pytest.mark.parametrize("is_open", [False, True])
def test_the_key_of_a_link_takes_the_place_of_another_one_only_if_the_person_says_so(opened, keyed, is_open):
    other = made_key(keyed, "read")["key"]
    opened.open("inbox")
    enter(opened, KEY, remember=True)
    at(opened, "Inbox")

    def follow_link():
        if not is_open:
            opened.driver.get("about:blank")
        opened.driver.get(f"{opened.base_url}/console/#key={other}")
        opened.find("other-key")
        assert other not in opened.driver.current_url
        assert stored(opened) == (None, KEY)

    follow_link()
    assert opened.violations() == []
    opened.find("keep-key").click()
    opened.gone("other-key")
    assert stored(opened) == (None, KEY)
    opened.driver.refresh()
    at(opened, "Inbox")
    assert not opened.all("other-key")

    follow_link()
    opened.press(Keys.ESCAPE)
    opened.gone("other-key")

    follow_link()
    opened.find("take-key").click()
    wait_until(lambda: stored(opened) == (other, KEY), "the other key, in this tab alone")
    at(opened, "Inbox")


def test_the_key_of_a_link_takes_the_place_of_one_that_the_server_knows_no_longer(opened, keyed):
    made = made_key(keyed, "read")
    opened.open(key=made["key"])
    at(opened, "Inbox")
    keyed.delete(f"/api/v1/keys/{made['id']}").raise_for_status()

    opened.open(key=KEY)

    at(opened, "Inbox")
    wait_until(lambda: stored(opened) == (KEY, None), "the key of the link")
    opened.gone("key-dialog")


def test_an_address_that_is_no_place_leads_on(opened):
    opened.open(key=KEY)
    at(opened, "Inbox")

    for place in ("/%ff%fe", "/nowhere", "/constructor", "/__proto__", "/conversations/%e0%a4", "key="):
        opened.driver.get(f"{opened.base_url}/console/#{place}")
        opened.driver.refresh()
        wait_until(lambda: opened.driver.find_elements("css selector", "main h1, main .failure, main .empty"), "a view")
        opened.driver.find_element("link text", "Conversations").click()
        at(opened, "Conversations")


def test_a_key_that_is_revoked_while_the_page_is_open_is_asked_for_again_and_the_page_goes_on(opened, keyed, waiting):
    made = made_key(keyed, "read")
    opened.open(key=made["key"])
    at(opened, "Inbox")
    opened.says("ls -l")
    keyed.delete(f"/api/v1/keys/{made['id']}").raise_for_status()

    opened.says("knows it no longer", "key-dialog")
    asked = len([url for url in opened.requested() if url.endswith("/tickets")])
    enter(opened, KEY)
    opened.gone("key-dialog")

    assert asked < 10  # the page asks the person, and not the server again and again
    opened.find("approve")
    wait_until(lambda: opened.find("connection").get_attribute("data-state") == "live", "the page is live")


def test_a_page_whose_key_was_forgotten_shows_nothing_of_what_it_showed(opened, waiting):
    opened.open(key=KEY)
    opened.says("ls -l")

    opened.find("forget-key").click()

    opened.find("key-dialog")
    assert "ls -l" not in opened.driver.find_element("tag name", "body").text
    assert not opened.all("badge")


def press_everything(browser: Browser) -> list[str]:
    """Press every button of the view but that which forgets the key; the labels of the pressed ones."""
    pressed = []
    for place in range(200):
        labels = browser.script(PRESS, place)
        if labels is None:
            break
        pressed.append(labels)
        browser.script(CANCEL)
    return pressed


CANCEL = """
for (const one of document.querySelectorAll("dialog[open]")) one.dispatchEvent(new Event("cancel", {cancelable: true}));
"""
PRESS = """
const found = [...document.querySelectorAll("main button, main summary, main [type=submit]")][arguments[0]];
found?.click();
return found ? found.textContent || found.getAttribute("aria-label") : null;
"""


def test_a_read_key_is_offered_no_change_on_any_view(opened, keyed, waiting):
    opened.open(key=made_key(keyed, "read")["key"])
    at(opened, "Inbox")
    shown = opened.driver.find_element("css selector", "nav[aria-label=Views]").text.split("\n")
    assert not {"New", "Keys", "Audit"} & set(shown)
    opened.requests()

    for place in (*VIEWS, f"conversations/{waiting}"):
        opened.go(place)
        wait_until(
            lambda: opened.driver.find_elements("css selector", "main h1, main .failure, main .empty"),
            f"the view {place}",
        )
        if place in ("inbox", f"conversations/{waiting}"):
            opened.says("ls -l")
        for testid in CHANGES:
            assert opened.all(testid) == [], f"{place} offers {testid}"
        if place in ("start", "keys", "audit"):
            opened.says("key")  # says which key it needs
        press_everything(opened)

    changes = {(method, url) for method, url in opened.requests() if method not in ("GET", "HEAD")}
    assert {url.removeprefix(opened.base_url) for _, url in changes} <= {"/api/v1/tickets"}
    assert keyed.get(f"/api/v1/pending-actions/count?conversation_id={waiting}").json() == 1


@pytest.mark.parametrize(
    ("scopes", "offered", "not_offered", "views"),
    [
        (("write",), {"composer"}, {"approve", "reject", "send"}, {"New"}),
        (("approve",), {"approve", "reject"}, {"composer", "send"}, set()),
        (("admin",), {"approve", "reject", "composer"}, set(), {"New", "Keys", "Audit"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_a_key_is_offered_what_its_scopes_allow(opened, keyed, waiting, scopes, offered, not_offered, views):
    opened.open(f"conversations/{waiting}", key=made_key(keyed, *scopes)["key"])

    opened.says("ls -l")
    for testid in offered:
        opened.find(testid)
    for testid in not_offered:
        assert opened.all(testid) == []
    shown = opened.driver.find_element("css selector", "nav[aria-label=Views]").text.split("\n")
    assert {"New", "Keys", "Audit"} & set(shown) == views


def test_an_unknown_conversation_of_a_hostile_address_says_so(opened):
    opened.open(f"conversations/{uuid4()}", key=KEY)

    opened.says("Conversation not found")
