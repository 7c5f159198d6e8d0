"""A cold conversation in the console: it opens as any other one, and takes a message."""

import pytest

from config import Config
from objects import open_objects
from tests.cold import archiving
from tests.console.logs import conversation, message


@pytest.fixture
def store(folder):
    """The server's store and its archive."""
    place = open_objects(Config(redis_url="redis://unused", archive_url=f"file://{folder}/archive"))
    return archiving(f"unix://{folder}/redis.sock", place)


def test_a_cold_conversation_opens_and_takes_a_message(browser, server, store):
    identity = conversation(server, message("asked", 0, "Where were we?"), message("told", 1, "At rest.", "agent"))
    assert store.cold.freeze(identity)

    browser.open(f"conversations/{identity}")
    browser.says("Where were we?", "event-asked")
    browser.says("At rest.", "event-told")

    browser.find("composer").find_element("tag name", "textarea").send_keys("go on")
    browser.find("send-only").click()
    browser.says("go on", "timeline")
