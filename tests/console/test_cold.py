"""A cold conversation in the console: it opens as any other one, and takes a message."""

import pytest

from settings.config import Config
from store.objects import open_objects
from tests.cold import cold_store
from tests.console.logs import conversation, message

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture
def store(folder):
    """The server's store and its cold storage."""
    place = open_objects(Config.of(redis_url="redis://unused", cold_url=f"file://{folder}/cold").keeping)
    return cold_store(f"unix://{folder}/redis.sock", place)


def test_a_cold_conversation_opens_and_takes_a_message(browser, server, store):
    identity = conversation(server, message("asked", 0, "Where were we?"), message("told", 1, "At rest.", "agent"))
    assert store.conversations.cold.freeze(identity)

    browser.open(f"conversations/{identity}")
    browser.says("Where were we?", "event-asked")
    browser.says("At rest.", "event-told")

    browser.find("composer").find_element("tag name", "textarea").send_keys("go on")
    browser.find("send-ways").click()
    browser.find("send-only").click()
    browser.says("go on", "timeline")
