"""The published SDK follows and decides a conversation whose agent is another program that speaks ACP.

`make agent NAME=…` installs those programs; those that are not installed are skipped.
"""

import pytest

from tests.interop.published_agents import KEY, Model, Talk, installed, serving
from tests.interop.sides import Side
from tests.servers import wait_until

pytestmark = pytest.mark.interop("runs the published SDK, and published agents in isolated sandboxes")

NAMES = ("claude", "opencode")


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
    talk = Talk(client, folder, name)
    side = Side(str(client.base_url).rstrip("/"), folder, "http://127.0.0.1:9/v1", None, sdk)
    talk.begin("run: touch one")
    assert not talk.has("one")

    [accepted] = side.played("accept", talk.id, key=KEY)
    assert accepted["status"] == "finished"
    assert talk.has("one")

    talk.say("run: touch two")
    talk.asked()
    side.played("reject", talk.id, "not today", key=KEY)
    wait_until(lambda: any("not today" in said for said in Model.said), "the reason at the model")
    talk.settled()
    assert not talk.has("two")

    with side.client("follow", talk.id, key=KEY) as follower:
        follower.until("follows")
        before = {one["id"] for one in talk.events()}
        talk.say("hello again")
        followed = follower.until("followed")["ids"]
        follower.end()
    log = [one["id"] for one in talk.events()]
    new = [one for one in followed if one not in before]
    assert new == [one for one in log if one in new]
    assert new

    [attached] = side.played("attach", talk.id, key=KEY)
    assert attached["rejected"] == ["not today"]
    assert len(attached["observed"]) == 1
