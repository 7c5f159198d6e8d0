"""What the timeline shows of an event, whatever is in it: all of it as text, nothing of it run."""

import base64

import pytest

from tests.console.logs import action, conversation, event, message, observation, post, time

pytestmark = pytest.mark.browser("shows the console in a browser")

PIXEL = base64.b64encode(
    b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><rect width="40" height="40" fill="red"/></svg>'
).decode()

SCRIPT = "<img src=x onerror='window.ran = 1'><script>window.ran = 1</script>"


def style(browser, selector: str, name: str) -> str:
    element = browser.driver.find_element("css selector", selector)
    return element.value_of_css_property(name)


def test_what_a_terminal_printed_has_its_colours(browser, server):
    printed = "\x1b[31mred\x1b[0m plain \x1b[1;38;2;1;2;3mdark\x1b[0m\r\n\x1b[2Kcleared \x1b]8;;http://x.test/\x07link\x1b]8;;\x07"
    events = [action("act"), observation("seen", "act", 1, printed)]
    browser.open(f"conversations/{conversation(server, *events)}")

    browser.find("event-seen")
    browser.says("red plain dark\ncleared link (http://x.test/)", "event-seen")
    browser.find("event-seen").find_element("xpath", ".//span[text()='red']")
    red = style(browser, "[data-testid=event-seen] .run", "color")
    assert red != style(browser, "[data-testid=event-seen] .line", "color")
    assert not browser.find("event-seen").find_elements("css selector", ".text a")


def test_an_image_is_shown_from_the_event_itself_and_from_nowhere_else(browser, server):
    images = [f"data:image/svg+xml;base64,{PIXEL}", "https://elsewhere.test/pixel.png"]
    said = message("said", content=[{"type": "text", "text": "Look"}, {"type": "image", "image_urls": images}])
    browser.open(f"conversations/{conversation(server, said)}")

    browser.says("https://elsewhere.test/pixel.png", "event-said")
    shown = browser.find("event-said").find_elements("css selector", "img")
    assert [image.get_attribute("src") for image in shown] == images[:1]
    assert not [url for url in browser.requested() if "elsewhere" in url]


def test_a_file_edit_is_a_diff(browser, server):
    edit = {
        "kind": "FileEditorAction",
        "command": "str_replace",
        "path": "/a.py",
        "old_str": "one\ntwo",
        "new_str": "one\n2",
    }
    browser.open(f"conversations/{conversation(server, action('edit', action=edit, tool_name='file_editor'))}")

    browser.find("event-edit")
    browser.wait(lambda: browser.driver.find_elements("css selector", ".diff .removed"), "the diff")
    removed = browser.driver.find_element("css selector", ".diff .removed").text
    added = browser.driver.find_element("css selector", ".diff .added").text
    assert ("two" in removed, "2" in added) == (True, True)


def test_hostile_texts_are_shown_never_run_and_break_no_layout(browser, server):
    line = "x" * 900_000
    wide = {f"member {number}": number for number in range(10_000)}
    bidi = "a\u202e\u0000\u200bb"
    events = [
        message("script", 0, SCRIPT),
        message("bidi", 1, bidi.replace("\u0000", "")),
        action("act", 2, SCRIPT, summary=SCRIPT, thought=[{"type": "text", "text": SCRIPT}], tool_name=SCRIPT),
        observation("seen", "act", 3, f"{SCRIPT}\x1b[31m{SCRIPT}\x1b[0m {bidi}\x1b[9"),
        message("line", 4, line),
        event(SCRIPT, "odd", 5, wide=wide),
        event("ConversationStateUpdateEvent", "state", 6, key=SCRIPT, value=SCRIPT),
        event("MessageEvent", "empty", 7, llm_message=None),
        event("ObservationEvent", "bare", 8, observation="text", action_id=7),
        event("ConversationErrorEvent", "fault", 9, code=SCRIPT, detail=SCRIPT),
    ]
    browser.open(f"conversations/{conversation(server, *events, title=SCRIPT)}")
    browser.opens("more", "all-events")

    for one in events:
        browser.find("event-" + one["id"])
    assert SCRIPT in browser.text("event-script")
    assert "a\\u{202e}" in browser.text("event-bidi")
    assert "\\u{0}" in browser.text("event-seen")
    assert "[9" in browser.text("event-seen")
    assert browser.script("return window.ran") is None
    assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
    timeline = browser.find("timeline")
    assert browser.script("return arguments[0].scrollWidth <= arguments[0].clientWidth", timeline)


def test_an_error_is_headed_by_a_word_and_not_by_the_name_of_a_class(browser, server):
    detail = "The quota at the model's endpoint is used up: insufficient_quota"
    events = [
        event("ConversationErrorEvent", "quota", code="LLMRateLimitError", detail=detail),
        event("ConversationErrorEvent", "bare", 1, detail="It broke"),
    ]
    browser.open(f"conversations/{conversation(server, *events)}")

    browser.says(detail, "event-quota")
    assert "LLMRateLimitError" not in browser.text("event-quota")
    head, bare = (browser.find(f"event-{name}").find_element("class name", "label") for name in ("quota", "bare"))
    assert (head.text, bare.text) == ("Error", "Error")
    assert head.find_element("css selector", "[title]").get_attribute("title") == "LLMRateLimitError"


def test_what_an_agent_is_writing_is_shown_until_it_is_said(browser, server):
    identity = conversation(server, message("asked"))
    browser.open(f"conversations/{identity}")
    browser.find("event-asked")
    delta = {"kind": "StreamingDeltaEvent", "source": "agent", "timestamp": time(1)}

    post(server, identity, {**delta, "id": "d-1", "content": "Let me "}, {**delta, "id": "d-2", "content": "think"})
    browser.says("Let me think")
    post(server, identity, message("said", 2, "I thought.", "agent"))

    browser.find("event-said")
    assert "Let me think" not in browser.text("timeline")
