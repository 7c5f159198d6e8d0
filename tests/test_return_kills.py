"""A process is killed while a conversation returns to an earlier event: it has returned, or is as it was before."""

import random
import threading
import time
from contextlib import suppress
from uuid import uuid4

import httpx
import pytest

from tests.chance import often
from tests.servers import program, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT
from tests.v1.processes import in_sandboxes, kill_one
from tests.v1.test_forks import PATH, files_of, ids, recorded, work_of

pytestmark = pytest.mark.faults("kills each process that has a part in a return, at random moments")

#: kills of a part, and parts
KILLS, PARTS = often(4, 20), often(1, 10)

#: bubblewrap shows the end of a sandbox whose launcher was killed
SPECS = f"""
[[spec]]
id = "held"
isolation = "required"
{AGENT}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    program("bwrap")
    folder = tmp_path_factory.mktemp("return-kills")
    (folder / "specs.toml").write_text(SPECS)
    variables = {"SANDBOX_SPECS": str(folder / "specs.toml"), "HOST_SECONDS": "3", "WEB_CONCURRENCY": "2"}
    with supervised_server(folder, **variables) as (client, master):
        yield WireApi(client), master, folder
    assert not in_sandboxes(folder)


class Returning(threading.Thread):
    """A client that returns a conversation to an event: it asks again where its server or its sandbox was killed."""

    def __init__(self, api, conversation, event_id) -> None:
        super().__init__()
        self._api, self._conversation, self._event_id = api, conversation, event_id
        self.refusals: list[str] = []
        self.is_done = False

    def run(self) -> None:
        until, path = time.monotonic() + 90, f"/api{PATH}/{self._conversation['id']}/return"
        key = str(uuid4())
        while time.monotonic() < until:
            with suppress(httpx.TransportError):
                response = self._api.client.post(
                    path, json={"event_id": self._event_id}, headers={"Idempotency-Key": key}
                )
                if response.status_code == 200:
                    self.is_done = True
                    return
                self.refusals.append(response.text)
                if response.status_code != 409 or "earlier attempt" not in response.text:
                    key = str(uuid4())
                if "ERROR" in response.text:
                    self._api.client.post(f"/api/v1/sandboxes/{self._conversation['sandbox_id']}/resume")
            time.sleep(0.2)


def looked(work):
    """The files of a folder that was not exchanged meanwhile; None: it was."""
    with suppress(FileNotFoundError):
        before = work.stat().st_ino
        files = files_of(work)
        if work.stat().st_ino == before:
            return files
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_moment_leaves_a_conversation_before_or_after_its_return(whole, part):
    # Given a conversation with two moments
    api, master, folder = whole
    message = {"content": [{"type": "text", "text": "run: mkdir d && seq 3000 > d/a && chmod 711 d"}], "run": True}
    conversation = api.app_conversation(sandbox_spec_id="held", initial_message=message)
    moments, work = {}, work_of(folder, conversation)
    for text in (None, "run: rm -r d; ln -s x l; mkdir void; seq 2000 > e; chmod 600 e"):
        if text:
            api.send(conversation["id"], text, run=True)
        api.until(conversation["id"], "finished")
        moments[recorded(api, conversation)["event_ids"][-1]] = files_of(work)
    chance, here = random.Random(51 + part), [*moments][1]

    for _ in range(KILLS):
        # When a process is killed at some moment of a return
        target = next(one for one in moments if one != here)
        log = ids(api, conversation)
        client = Returning(api, conversation, target)
        client.start()
        time.sleep(chance.uniform(0, 1.5))
        victim = kill_one(master, folder, chance)

        # Then whoever looks finds the files of one of both moments
        while client.is_alive():
            files = looked(work)
            assert files is None or files in moments.values(), victim
            client.join(0.05)

        # And the return is made in the end, in the log as in the files, and the log has lost nothing
        assert client.is_done, (victim, client.refusals)
        wait_until(lambda: _sandbox_runs(api, conversation), "the sandbox")
        assert files_of(work) == moments[target], victim
        after = api.events(conversation["id"])
        returns = [one for one in after if one.get("key") == "returned_to"]
        assert returns[-1]["value"]["event_id"] == target
        assert [one["id"] for one in after][: len(log)] == log
        here = target

    # And the conversation goes on
    api.send(conversation["id"], "run: echo on > on", run=True)
    wait_until(lambda: (work / "on").exists(), "the next command")
    api.until(conversation["id"], "finished")
    api.clean()


def _sandbox_runs(api, conversation) -> bool:
    with suppress(httpx.TransportError):
        sandbox = api.sandbox(conversation["sandbox_id"])
        if sandbox["status"] == "ERROR":
            api.client.post(f"/api/v1/sandboxes/{conversation['sandbox_id']}/resume")
        return sandbox["status"] == "RUNNING"
    return False
