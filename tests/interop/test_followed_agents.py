"""The published SDK follows and decides a conversation whose agent is another program that speaks ACP.

`make agent NAME=…` installs those programs; those that are not installed are skipped, and the scripted one is there.
"""

import pytest

from tests.interop.published_agents import SCRIPTED, PublishedTalk, asks, installed, serving
from tests.interop.sides import Side

pytestmark = pytest.mark.interop("runs the published SDK, and published agents in isolated sandboxes")

NAMES = (SCRIPTED, "claude", "opencode")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("followed")


@pytest.fixture(scope="module")
def client(folder):
    """A client of a server that offers the installed agents."""
    with serving(folder, installed(NAMES)) as client:
        yield client


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_accepts_rejects_and_follows(client, folder, sdk, name):
    if name not in installed(NAMES):
        pytest.skip(f"{name} is not installed: make agent NAME={name}")
    talk = PublishedTalk(client, folder, name)
    side = Side(str(client.base_url).rstrip("/"), folder, "http://127.0.0.1:9/v1", None, sdk)
    talk.begin(asks(name, "echo approved > one"))
    assert not talk.has("one")

    [accepted] = side.played("accept", talk.id)
    assert accepted["status"] == "finished"
    assert (talk.work / "one").read_text() == "approved\n"

    talk.say(asks(name, "touch two"))
    talk.asked()
    side.played("reject", talk.id, "not today")
    talk.settled()
    assert not talk.has("two")

    with side.client("follow", talk.id) as follower:
        follower.until("follows")
        before = len(talk.events())
        talk.say("say hello again")
        followed = follower.until("followed")["ids"]
        follower.end()
    new = [one["id"] for one in talk.events()[before:]]
    at = followed.index(new[0])
    assert followed[at:] == new[: len(followed) - at]

    [attached] = side.played("attach", talk.id)
    assert attached["rejected"] == ["not today"]
    assert len(attached["actions"]) == 2
    assert len(attached["observed"]) == 1
    assert attached["errors"] == []
