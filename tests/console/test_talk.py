"""A conversation as a talk: what was said as Markdown, a step with what came of it, and a thin line a turn."""

import pytest
from selenium.webdriver.common.keys import Keys

from tests.console import Browser
from tests.console.logs import action, conversation, event, message, observation, post, recorded
from tests.console.test_decision_in_sight import size

pytestmark = pytest.mark.browser("shows the console in a browser")

MARKDOWN = """# The job is slow

The index of `runs` is **gone**, see [the plan](https://wiki.example.org/plan).

| step | after |
|---|---:|
| all | 9 min |

1. one
2. two

```sql
select  1;\t-- <b>
```
"""

#: what each would do: run, load, lead to this server or hide where it leads
HOSTILE = """<img src=x onerror="window.ran = 1"><script>window.ran = 1</script>

[click](javascript:window.ran=1) [data](data:text/html,<script>window.ran=1</script>) [file](file:///etc/passwd)
[vb](vbscript:x) [upper](JaVaScRiPt:window.ran=1) [entity](&#106;avascript:window.ran=1) <javascript:window.ran=1>

[keys](#/keys) [docs](/docs) [relative](../docs) [other](//elsewhere.test/x) [ours](HERE/console/#key=stolen)
[user](https://someone:word@elsewhere.test/) [https://good.test/](https://evil.test/) https://plain.test/path

![pixel](https://elsewhere.test/pixel.png) ![ours](/api/v1/users/me) ![svg](data:image/svg+xml,<svg/onload=hostile=1>)
[![pixel](https://elsewhere.test/pixel.png)](https://evil.test/)

[reference]: https://elsewhere.test/ "title\\" onclick=\\"window.ran=1"
[reference]

<a href="https://evil.test" onclick="window.ran=1">html</a> a\u202eb\u200bc

```html" onclick="window.ran=1
<script>window.ran = 1</script>\u202e
```
"""

#: where its links lead: those with words of their own say it, and the last one is an address in what is no HTML here
LEADS = [f"https://{one}" for one in ("evil.test/", "plain.test/path", "evil.test/", "elsewhere.test/", "evil.test/")]

#: texts that a reader of Markdown may take long over, or not come back from
SLOW = {
    "quotes": ">" * 20_000,
    "lists": "- " * 10_000,
    "emphasis": "_a" * 10_000,
    "stars": "*" * 10_000 + "a" + "*" * 10_000,
    "links": "[a](" * 5_000,
    "images": "![" * 10_000,
    "table": "|a" * 50 + "\n" + "|-" * 50 + "\n" + "|\n" * 10_000,
    "code": "`" * 20_000,
    "deep": "\n".join("  " * depth + "- a" for depth in range(140)),
}


def shown(browser: Browser, selector: str, name: str = "answer") -> list[str]:
    """The texts of the elements of an event."""
    return [one.text for one in browser.find(f"event-{name}").find_elements("css selector", f".markdown {selector}")]


def test_what_an_agent_says_is_shown_as_markdown(browser, server):
    browser.open(f"conversations/{conversation(server, message('answer', 0, MARKDOWN, 'agent'))}")

    assert shown(browser, "h2") == ["The job is slow"]
    assert (shown(browser, "strong"), shown(browser, "li")) == (["gone"], ["one", "two"])
    assert shown(browser, "td.right") == ["9 min"]
    assert shown(browser, "pre code")[0].startswith("select  1;")
    [link] = browser.find("event-answer").find_elements("css selector", "a")
    names = ("href", "target", "rel")
    attributes = tuple(link.get_dom_attribute(name) for name in names)
    assert attributes == ("https://wiki.example.org/plan", "_blank", "noopener noreferrer nofollow")
    browser.says("the plan (wiki.example.org)", "event-answer")


def test_a_list_of_tasks_has_boxes_that_change_nothing(browser, server):
    text = "- [x] read\n- [ ] write **it**\n- [x]nothing\n\n1. [ ] count"
    browser.open(f"conversations/{conversation(server, message('answer', 0, text, 'agent'))}")

    row = browser.find("event-answer")
    boxes = row.find_elements("css selector", "li.task > input")
    shown = [(box.is_selected(), box.is_enabled(), box.get_attribute("aria-label")) for box in boxes]
    assert shown == [(True, False, "Done"), (False, False, "Not done"), (False, False, "Not done")]
    assert "[ ]" not in row.text
    assert "[x]nothing" in row.text


def test_hostile_markdown_runs_and_loads_nothing_and_hides_no_link_target(browser, server):
    text = HOSTILE.replace("HERE", browser.base_url)
    finish = action("finish", 1, action={"kind": "FinishAction", "message": text}, tool_name="finish")
    thought = action("thought", 2, thought=[{"type": "text", "text": text}])
    events = [message("answer", 0, text, "agent"), finish, thought, message("asked", 3, text)]
    browser.open(f"conversations/{conversation(server, *events)}")

    for name in ("answer", "finish", "thought", "asked"):
        row = browser.find(f"event-{name}")
        links = [link.get_dom_attribute("href") for link in row.find_elements("css selector", ".markdown a")]
        assert links == LEADS
        assert "https://good.test/ (evil.test)" in row.text
        assert "#/keys" in row.text
        assert "a\\u{202e}b\\u{200b}c" in row.text
        assert "<script>window.ran = 1</script>" in row.text
        assert (
            row.find_elements("css selector", ".markdown :is(img, script, iframe, svg, [onclick], [style], [id])") == []
        )
    assert browser.script("return [window.ran, window.hostile].some((one) => one !== undefined)") is False
    assert [url for url in browser.requested() if ".test" in url] == []


def test_no_link_leads_into_this_server_whatever_name_of_its_machine_it_has(browser, server):
    port = server.base_url.port
    hosts = (
        "localhost",
        "LOCALHOST.",
        "127.0.0.1",
        "127.1",
        "127.9.9.9",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
    )
    ours = [f"http://{host}:{port}/console/#key=stolen" for host in (*hosts, "x.preview.localhost")]
    others = [f"http://localhost:{port + 1}/", f"http://localhost.elsewhere.test:{port}/", "http://128.0.0.1/"]
    text = "\n\n".join(f"[click]({address}) {address}" for address in [*ours, *others])
    browser.open(f"conversations/{conversation(server, message('answer', 0, text, 'agent'))}")

    links = browser.find("event-answer").find_elements("css selector", ".markdown a")
    addresses = [link.get_dom_attribute("href") for link in links]

    assert [address for address in addresses if "stolen" in address] == []
    assert [address for address in others if addresses.count(address) != 2] == []


#: the text of a link, where it leads, and whether the words alone say so
SAYING = [
    ("https://good.example/", "https://good.example/", ""),
    ("https://good.example", "https://good.example/", ""),
    ("https://good.example/a?b=1#c", "https://good.example/a?b=1#c", ""),
    ("https://аррle.example/", "https://аррle.example/", "xn--le-6kc8da.example"),
    ("https://good.example∕path.evil.example/", "https://good.example∕path.evil.example/", "xn--"),
    ("https://evil.example\\\\@good.example/", "https://evil.example/@good.example/", "evil.example"),
    ("https://good.example/", "https://evil.example/", "evil.example"),
    ("HTTPS://GOOD.example/", "https://good.example/", "good.example"),
    ("https://good.example/", f"https://good.example.{'a' * 60}.{'b' * 60}.{'c' * 60}.evil.example/", ".evil.example"),
]


def test_a_link_names_its_server_in_ascii_unless_its_words_are_its_address(browser, server):
    text = "\n\n".join(f"[{words}](<{address}>)" for words, address, _ in SAYING)
    browser.open(f"conversations/{conversation(server, message('answer', 0, text, 'agent'))}")

    rows = browser.find("event-answer").find_elements("css selector", ".markdown p")

    for row, (words, _, said) in zip(rows, SAYING, strict=True):
        leads = [one.text for one in row.find_elements("class name", "leads")]
        assert len(leads) == bool(said), words
        assert not said or (said in leads[0] and leads[0].isascii()), words


#: a text with an address in it, and what is shown of the server beside the address
WRITTEN = [
    ("see https://good.example/x, (https://good.example/y) and **https://good.example/z**.", ""),
    ("see https://аррle.example/.", "xn--le-6kc8da.example"),
    ("see https://evil.example\\\\@good.example/", "evil.example"),
    ("see https://evil.example**\\\\@good.example/**", "evil.example"),
]


def test_an_address_in_a_text_names_its_server_too(browser, server):
    text = "\n\n".join(text for text, _ in WRITTEN)
    browser.open(f"conversations/{conversation(server, message('answer', 0, text, 'agent'))}")

    rows = browser.find("event-answer").find_elements("css selector", ".markdown p")

    shown = [[one.text for one in row.find_elements("class name", "leads")] for row in rows]
    assert shown == [[f"({host})"] if host else [] for _, host in WRITTEN]


@pytest.mark.parametrize("name", SLOW)
def test_a_text_that_is_slow_to_parse_does_not_block_the_page(browser, server, name):
    identity = conversation(server, message("asked"))
    browser.open(f"conversations/{identity}")
    browser.find("event-asked")

    post(server, identity, message("slow", 1, SLOW[name], "agent"), message("after", 2))

    browser.find("event-after")
    browser.find("event-slow")


def test_a_text_that_is_nested_too_deeply_is_shown_unformatted(browser, server):
    texts = {"quoted": "> " * 120 + "deep words", "bold": "*a " * 90 + "deep words" + " b*" * 90}
    events = [message(name, number, text, "agent") for number, (name, text) in enumerate(texts.items())]
    browser.open(f"conversations/{conversation(server, *events)}")

    for name, text in texts.items():
        browser.says(text, f"event-{name}")


def test_a_block_of_code_and_a_message_are_copied_as_they_were_written(browser, server):
    browser.open(f"conversations/{conversation(server, message('answer', 0, MARKDOWN, 'agent'))}")
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    row = browser.find("event-answer")
    read = "navigator.clipboard.readText().then(arguments[0])"

    browser.script("arguments[0].click()", browser.all("copy", row)[1])
    browser.says("Copied", "event-answer")
    assert browser.driver.execute_async_script(read) == "select  1;\t-- <b>\n"
    browser.script("arguments[0].click()", browser.all("copy", row)[0])
    browser.wait(lambda: browser.driver.execute_async_script(read) == MARKDOWN, "the message")


def test_the_last_words_of_an_agent_are_shown_once_and_as_its_words(browser, server):
    done = action("done", 1, action={"kind": "FinishAction", "message": "All **done**"}, tool_name="finish")
    seen = observation("seen", "done", 2, "All **done**", kind="FinishObservation", exit_code=None)
    browser.open(f"conversations/{conversation(server, message('asked'), done, seen)}")

    assert browser.text("event-done").splitlines()[0].startswith("Agent")
    assert browser.text("timeline").count("All done") == 1
    browser.opens("more", "all-events")
    assert browser.text("timeline").count("All **done**") == 2


def test_the_events_between_two_steps_are_one_line_that_opens(browser, server):
    def usage(tokens: int) -> dict:
        metrics = {"main": {"accumulated_token_usage": {"prompt_tokens": tokens, "completion_tokens": 10}}}
        return {"key": "stats", "value": {"usage_to_metrics": metrics}}

    def state(name: str, second: float, **members) -> dict:
        return event("ConversationStateUpdateEvent", name, second, **members)

    events = [
        event("SystemPromptEvent", "prompt", 0, system_prompt={"type": "text", "text": "Be careful"}, tools=[]),
        message("first", 1),
        state("run", 2, key="execution_status", value="running"),
        state("used", 3, **usage(990)),
        action("one", 4),
        observation("saw-one", "one", 8),
        action("two", 9),
        observation("saw-two", "two", 10),
        message("answer", 13, source="agent"),
        state("stop", 14, key="execution_status", value="finished"),
        message("second", 100),
        state("again", 101, key="execution_status", value="running"),
        state("more", 102, **usage(1990)),
        message("end", 103, source="agent"),
        state("idle", 104, key="execution_status", value="idle"),
    ]
    browser.open(f"conversations/{conversation(server, *events)}")
    browser.find("event-end")

    assert [one.text for one in browser.all("turn")] == [
        "Worked 12 s, 2 actions, 1,000 tokens",
        "Worked 3 s, 1,000 tokens",
    ]
    assert not browser.all("event-run")
    browser.all("turn")[0].click()
    browser.says("Working", "event-run")
    browser.find("event-prompt")


def test_malformed_costs_and_kinds_do_not_break_the_talk(browser, server):
    odd = [None, "text", 7, {"usage_to_metrics": {"a": None, "b": {"accumulated_token_usage": {"prompt_tokens": "9"}}}}]
    events = [
        event("ConversationStateUpdateEvent", f"odd-{number}", number, key="stats", value=value)
        for number, value in enumerate(odd)
    ]
    events += [event("constructor", "kind", 5), event("toString", "other", 6), message("end", 7, source="agent")]
    browser.open(f"conversations/{conversation(server, message('asked'), *events)}")

    browser.find("event-kind")
    browser.find("event-end")
    browser.opens("details", "more", "all-events")
    browser.find("event-odd-3")


def test_the_switch_shows_every_event_of_a_real_log_and_stays(browser, server):
    identity = conversation(server, *recorded("never_confirm"))
    browser.open(f"conversations/{identity}")
    browser.find("turn")
    states = [one["id"] for one in recorded("never_confirm") if one["kind"] == "ConversationStateUpdateEvent"]
    assert not browser.all(f"event-{states[-1]}")

    browser.opens("more", "all-events")
    browser.find(f"event-{states[-1]}")
    browser.open(f"conversations/{identity}")

    browser.find(f"event-{states[-1]}")
    assert not browser.all("turn")


def test_an_address_leads_to_an_event_between_two_steps(browser, server):
    told = event("ConversationStateUpdateEvent", "told", 1, key="tags", value={"team": "web"})
    identity = conversation(server, message("asked"), told, message("answer", 2, source="agent"))

    browser.open(f"conversations/{identity}?event=told")

    browser.says("Tags: team=web", "event-told")


def test_an_action_still_says_who_decided_it_after_a_reload(browser, server):
    conversation_id = conversation(server, policy="AlwaysConfirm", title="Decided")
    asked, refused = action("asked", 1, "make"), action("refused", 2, "rm -r build")
    post(server, conversation_id, asked, refused)
    browser.open(f"conversations/{conversation_id}")
    browser.find("event-asked")

    path = f"/api/v1/conversation/{conversation_id}/pending-actions/decisions"
    decisions = [{"action_id": "asked", "decision": "approve"}, {"action_id": "refused", "decision": "reject"}]
    server.post(path, json={"decisions": decisions}).raise_for_status()

    for _ in range(2):
        browser.says("Approved by", "event-asked")
        browser.says("Rejected by", "event-refused")
        browser.driver.refresh()


def test_a_command_that_runs_says_for_how_long(browser, server):
    running = event("ConversationStateUpdateEvent", "run", 1, key="execution_status", value="running")
    identity = conversation(server, message("asked"), running, action("act", 2, "make"))
    browser.open(f"conversations/{identity}")

    browser.says("Running for", "event-act")
    post(server, identity, observation("seen", "act", 3))
    browser.find("event-seen")
    assert not browser.all("runs")


def test_what_a_command_has_printed_so_far_is_followed_until_its_result(browser, server):
    running = event("ConversationStateUpdateEvent", "run", 1, key="execution_status", value="running")
    identity = conversation(server, message("asked"), running, action("act", 2, "make"))
    browser.open(f"conversations/{identity}")
    browser.says("Running for", "event-act")
    assert not browser.all("output-so-far")

    def prints(text: str, size: int, action_id: str = "act") -> None:
        post(
            server,
            identity,
            event("CommandOutputEvent", f"so-far-{size}", 3, action_id=action_id, text=text, size=size),
        )

    for text, number in (({"a": 1}, 1), (None, 2), ("not so", "3"), ("not so", None)):  # what a hostile agent may post
        prints(text, number)
    prints("compiles one\n", 13)
    browser.says("compiles one", "output-so-far")
    prints("another's", 9, "other")
    prints("compiles \x1b[31mtwo\x1b[0m <b>\n", 9000)
    browser.says("compiles two <b>", "output-so-far")
    browser.says("The end of 9,000 bytes so far", "output-so-far")
    post(server, identity, observation("seen", "act", 4))
    browser.find("event-seen")
    assert not browser.all("output-so-far")


def test_the_timeline_has_most_of_a_small_window_and_the_page_remembers_what_was_opened(browser, server):
    identity = conversation(server, *(message(f"m{number}", number) for number in range(30)), title="Small")
    size(browser, 1280, 720)
    browser.open(f"conversations/{identity}")
    browser.find("event-m29")
    height = "return document.querySelector('.timeline').getBoundingClientRect().height / innerHeight"

    assert browser.script(height) >= 0.6
    assert [name for name in ("filter-text", "plot", "close-details") if browser.all(name)] == []
    browser.press("/")
    browser.wait(lambda: browser.script("return document.activeElement.dataset.testid") == "filter-text", "the search")
    browser.opens("details")
    browser.open(f"conversations/{identity}")

    browser.find("filter-text")
    browser.find("close-details").click()
    browser.find("filters").click()
    browser.open(f"conversations/{identity}")
    browser.find("event-m29")
    assert [name for name in ("filter-text", "close-details") if browser.all(name)] == []


def test_a_keyboard_is_at_the_decision_after_a_few_stops(browser, server):
    waiting = conversation(server, message("asked"), action("act", 1), policy="AlwaysConfirm")
    browser.open(f"conversations/{waiting}")
    browser.find("pending-act")

    browser.press(Keys.TAB)
    assert browser.script("return document.activeElement.textContent") == "Skip to content"
    browser.press(Keys.TAB, Keys.ENTER)
    assert browser.script("return document.activeElement.dataset.testid") == "pending-act"
    stops = 0
    while browser.script("return document.activeElement.dataset.testid") != "approve":
        browser.press(Keys.TAB)
        stops += 1
        assert stops <= 7
    assert "#/conversations/" in browser.driver.current_url


def test_a_message_to_an_agent_that_works_ends_the_time_of_the_turn_before(browser, server):
    def state(name: str, second: float, value: str) -> dict:
        members = {"key": "execution_status", "value": value}
        return event("ConversationStateUpdateEvent", name, second, **members)

    events = [message("first"), state("run", 1, "running"), message("second", 5)]
    events += [message("answer", 9, source="agent"), state("stop", 10, "finished")]
    browser.open(f"conversations/{conversation(server, *events)}")
    browser.find("event-answer")

    assert [one.text for one in browser.all("turn")] == ["Worked 4 s", "Worked 5 s"]
