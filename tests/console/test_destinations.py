"""What sandboxes ask to reach, in the inbox: live, decided by a person, and with nothing hidden in it."""

from uuid import uuid4

import pytest

from core.prices import ModelBudget
from core.wire import ConversationId
from store.approvals.audit import DecisionActor
from tests.conftest import action, limits_of, store_of
from tests.console.prompts import shows
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

NAME = "example.org"
ELSEWHERE = DecisionActor("key", "ada <b>", "10.0.0.9")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server without a supervisor, and its store: a sandbox of it asks, and nothing ends it."""
    folder = tmp_path_factory.mktemp("destinations")
    with store_server(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url) as (client, _):
        store = store_of(url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120))
        store.conversations.create(ConversationId(str(uuid4())), title="Without which the inbox is the first page")
        yield client, store


@pytest.fixture
def server(whole):
    return whole[0]


@pytest.fixture
def sandbox(whole):
    """The id of a sandbox, of a host that is alive at present."""
    _, store = whole
    store.sandboxes.beat("h", "supervisor")
    return store.sandboxes.start("spec").id


@pytest.fixture
def asks(whole, sandbox):
    """Has a sandbox ask for a name; what waits then ends with the test."""
    _, store = whole

    def ask(name: str = NAME, program: str = "curl"):
        return store.destinations.verdict(sandbox, name, 443, program)

    yield ask
    for one in store.destinations.waiting(sandbox):
        store.destinations.decide(one, "reject", "conversation", ELSEWHERE)


def opened(browser, name, *, is_budget=False):
    """The card of what is asked for, in the inbox: its row is opened."""
    said = {"MODEL_BUDGET_CONVERSATION": "Model budget of a conversation"}.get(name, name)
    find = """
    const row = [...document.querySelectorAll(".index li.asked")].find((one) => one.textContent.includes(arguments[0]));
    if (row) row.querySelector("[data-testid=open]").click();
    return Boolean(row);
    """
    browser.wait(lambda: browser.script(find, said), f"the row of {name}")
    return browser.find(f"destination-{name}" if is_budget else f"destination-{name}:443")


@pytest.mark.parametrize(
    ("button", "passes", "words"),
    [
        ("allow-once", [True, False], "Allowed once by"),
        ("allow-conversation", [True, True], "Allowed for the conversation by"),
        ("refuse", [False, False], "Refused for the conversation by"),
    ],
)
def test_a_destination_is_decided_where_it_came_up(browser, asks, button, passes, words):
    name = f"{button}.example.org"
    browser.open("inbox")
    asks(name)
    card = opened(browser, name)
    assert browser.text("badge") == "1"
    wait_until(
        lambda: card.find_element("tag name", "footer").get_attribute("data-steady") is not None, "still buttons"
    )
    card.find_element("css selector", f"[data-testid={button}]").click()
    wait_until(lambda: words in card.text, "the outcome")
    assert [asks(name).is_allowed for _ in passes] == passes


@pytest.mark.parametrize(
    ("goes_on", "words"),
    [(True, "If this stopped the agent, it is told, and goes on."), (False, "Ask the agent to try again")],
)
def test_a_destination_is_decided_in_the_conversation_that_it_stops(browser, asks, sandbox, whole, goes_on, words):
    _, store = whole
    here, other = ConversationId(str(uuid4())), ConversationId(str(uuid4()))
    store.conversations.create(here, title="Fetch", sandbox_id=sandbox, app={"goes_on_when_allowed": goes_on})
    store.sandboxes.places.take(sandbox, here, made=True)
    store.conversations.create(other, title="Something else")
    asks("here.example.org")

    browser.open(f"conversations/{other}")
    browser.says("Something else")
    assert browser.all("destination-here.example.org:443") == []
    browser.open(f"conversations/{here}")
    card = browser.find("destination-here.example.org:443")
    browser.says("Waiting for you (1)")
    wait_until(
        lambda: card.find_element("tag name", "footer").get_attribute("data-steady") is not None, "still buttons"
    )
    card.find_element("css selector", "[data-testid=allow-once]").click()

    wait_until(lambda: "Allowed once by" in card.text, "the outcome")
    wait_until(lambda: words in card.text, "what becomes of the agent")
    assert "Waiting for you" not in browser.driver.find_element("tag name", "header").text


def test_what_a_shared_sandbox_asks_for_is_shown_in_each_of_its_conversations(browser, asks, sandbox, whole):
    _, store = whole
    shared = [ConversationId(str(uuid4())) for _ in range(2)]
    for number, one in enumerate(shared):
        store.conversations.create(one, title=f"Number {number}", sandbox_id=sandbox, app={})
        store.sandboxes.places.take(sandbox, one, made=True)
    asks("shared.example.org")

    for one in shared:
        browser.open(f"conversations/{one}")
        browser.find("destination-shared.example.org:443")
        browser.says("Waiting for you (1)")


def test_always_makes_a_rule(browser, asks, server):
    browser.open("inbox")
    asks("always.example.org")
    card = opened(browser, "always.example.org")
    wait_until(
        lambda: card.find_element("tag name", "footer").get_attribute("data-steady") is not None, "still buttons"
    )
    card.find_element("css selector", "[data-testid=allow-always]").click()
    assert server.get("/api/v1/destination-rules").json() == []
    assert "Every sandbox, of every conversation, may reach always.example.org:443" in " ".join(
        browser.driver.find_element("css selector", "dialog[open]").text.split()
    )
    browser.find("yes").click()
    wait_until(lambda: "Allowed always by" in card.text, "the outcome")
    [rule] = server.get("/api/v1/destination-rules").json()
    assert (rule["name"], rule["port"], rule["decision"]) == ("always.example.org", 443, "approve")
    server.delete(f"/api/v1/destination-rules/{rule['id']}").raise_for_status()


def test_the_four_decisions_stand_in_one_row_on_a_phone(browsers, asks, server):
    browser = browsers(width=500)
    browser.command("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    asks("a-phone.example.org")
    browser.open("inbox")
    card = opened(browser, "a-phone.example.org")
    buttons = card.find_elements("css selector", "footer button")
    assert len({button.rect["y"] for button in buttons}) == 1, [button.text for button in buttons]
    room = card.find_element("tag name", "footer").rect
    assert buttons[-1].rect["x"] + buttons[-1].rect["width"] <= room["x"] + room["width"] + 0.5


def test_the_audit_says_in_words_what_a_new_rule_does(browser, server):
    made = server.post("/api/v1/destination-rules", json={"name": "said.example.net", "decision": "approve"}).json()
    browser.open("audit")
    browser.says("said.example.net:443")
    entry = next(one for one in browser.all("entry-*") if "said.example.net" in one.text)
    assert "Rule made Allows said.example.net:443" in " ".join(entry.text.split())
    assert not entry.find_elements("css selector", ".reason")
    server.delete(f"/api/v1/destination-rules/{made['id']}").raise_for_status()


def test_what_a_program_calls_itself_hides_nothing_and_runs_nothing(browser, asks):
    asks(program="<img src=x onerror=alert(1)> \u202egnp")
    browser.open("inbox")
    card = opened(browser, NAME)
    assert "<img src=x onerror=alert(1)> \\u{202e}gnp" in card.text
    assert card.find_elements("tag name", "img") == []


def test_a_decision_from_elsewhere_is_told_and_the_card_goes(browser, asks, whole):
    _, store = whole
    browser.open("inbox")
    asks("elsewhere.example.org")
    card = opened(browser, "elsewhere.example.org")
    [one] = [one for one in store.destinations.waiting() if one.name == "elsewhere.example.org"]
    store.destinations.decide(one, "reject", "conversation", ELSEWHERE)
    wait_until(lambda: "Refused for the conversation by ada <b>" in card.text, "who decided")
    assert not card.find_elements("css selector", "footer button")
    browser.wait(lambda: browser.script("return document.querySelector('.index li.asked.ended') !== null"), "its end")


def test_a_rule_for_a_destination_is_revoked_where_the_rules_are(browser, server):
    made = server.post("/api/v1/destination-rules", json={"name": "*.example.net", "decision": "approve"}).json()
    browser.open("rules")
    card = browser.find(f"destination-rule-{made['id']}")
    assert "Allows *.example.net:443" in card.text
    card.find_element("css selector", "[data-testid=revoke]").click()
    wait_until(lambda: browser.driver.find_elements("css selector", "dialog[open]"), "the question")
    [dialog] = browser.driver.find_elements("css selector", "dialog[open]")
    next(one for one in dialog.find_elements("tag name", "button") if one.text == "Revoke").click()
    browser.gone(f"destination-rule-{made['id']}")
    assert server.get("/api/v1/destination-rules").json() == []


@pytest.mark.parametrize(
    ("button", "words", "tokens"), [("allow-once", "Allowed by", 2_000_000), ("refuse", "Refused by", 0)]
)
def test_a_budget_that_is_used_up_is_decided_in_the_inbox_and_offers_no_always(
    browser, whole, sandbox, button, words, tokens
):
    _, store = whole
    browser.open("inbox")
    wanted = {"more": ModelBudget(5_000_000_000, 2_000_000), "day": store.spending.so_far(sandbox).today}
    store.spending.refuse(sandbox, "", "MODEL_BUDGET_CONVERSATION", "127.0.0.1", 80, "Used up", **wanted)
    card = opened(browser, "MODEL_BUDGET_CONVERSATION", is_budget=True)
    assert "Model budget of a conversation" in card.text
    browser.says("1 budget")
    buttons = [one.text for one in card.find_elements("css selector", "footer button")]
    assert buttons == ["Add $5 and 2,000,000 tokens", "Refuse"]
    wait_until(
        lambda: card.find_element("tag name", "footer").get_attribute("data-steady") is not None, "still buttons"
    )
    card.find_element("css selector", f"[data-testid={button}]").click()
    wait_until(lambda: words in card.text, "the outcome")
    assert store.spending.of_sandbox(sandbox).allowed_tokens == tokens
    store.sandboxes.ask(sandbox, "delete")


def test_what_waits_is_decided_among_the_rows_of_actions_by_the_same_keys(browser, asks, waits):
    one, two = action("make docs"), action("make test")
    waiting = waits(one)
    asks("keys.example.org")
    waits(two)
    browser.open("inbox")
    card = opened(browser, "keys.example.org")
    names = browser.script("return [...document.querySelectorAll('.index li')].map((one) => one.textContent)")
    assert ["keys.example.org" in name for name in names] == [False, True, False]
    browser.press("k")
    shows(browser, one)
    browser.press("j")
    card = browser.find("destination-keys.example.org:443")
    wait_until(lambda: card.find_elements("css selector", "[data-steady]"), "still buttons")
    browser.press("s")
    shows(browser, two)
    browser.press("j")
    card = browser.find("destination-keys.example.org:443")
    wait_until(lambda: card.find_elements("css selector", "[data-steady]"), "still buttons")
    browser.press("a")

    browser.says("Allowed once by", "index")
    shows(browser, two)
    assert waiting.pending == [one["id"]]
    assert asks("keys.example.org").is_allowed
