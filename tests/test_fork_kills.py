"""A process is killed while a conversation is forked: there is a whole fork, or none."""

import random
import threading
import time
from uuid import UUID, uuid4

import httpx
import pytest

from tests.chance import often
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import SPECS
from tests.v1.processes import in_sandboxes, kill_one
from tests.v1.test_forks import PATH, files_of, ids, recorded, work_of

pytestmark = pytest.mark.faults("kills each process that has a part in a fork, at random moments")

#: kills of a part, and parts
KILLS, PARTS = often(4, 20), often(1, 10)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fork-kills")
    (folder / "specs.toml").write_text(SPECS)
    variables = {"SANDBOX_SPECS": str(folder / "specs.toml"), "HOST_SECONDS": "3", "WEB_CONCURRENCY": "2"}
    with supervised_server(folder, **variables) as (client, master):
        yield WireApi(client), master, folder
    assert not in_sandboxes(folder)


def fork_until_taken(api, conversation, identity, event_id) -> None:
    """Ask for a fork again and again, as a client does whose server is killed."""
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            body = {"id": identity, "from_event_id": event_id}
            response = api.client.post(
                f"/api/conversations/{UUID(conversation['id'])}/fork", json=body, headers={"Idempotency-Key": identity}
            )
        except httpx.TransportError:
            continue
        if response.status_code == 201:
            return
        assert response.status_code in (409, 429, 502, 503, 504), response.text  # 409: a killed request goes on
        time.sleep(0.2)
    raise TimeoutError(identity)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_moment_leaves_a_whole_fork_or_none(whole, part):
    api, master, folder = whole
    message = {
        "content": [{"type": "text", "text": "run: mkdir d && seq 3000 > d/a && ln -s a d/l && chmod 711 d"}],
        "run": True,
    }
    conversation = api.app_conversation(sandbox_spec_id="free", initial_message=message)
    api.until(conversation["id"], "finished")
    event_id = recorded(api, conversation)["event_ids"][-1]
    log, files, chance = ids(api, conversation), files_of(work_of(folder, conversation)), random.Random(51 + part)

    for _ in range(KILLS):
        # When a process is killed at some moment of a fork
        identity = str(uuid4())
        client = threading.Thread(target=fork_until_taken, args=(api, conversation, identity, event_id))
        client.start()
        time.sleep(chance.uniform(0, 1.5))
        victim = kill_one(master, folder, chance, but=conversation["sandbox_id"])

        # Then whoever looks finds no fork, or a whole one
        while client.is_alive():
            found = api.conversation(UUID(identity).hex) if _answers(api) else None
            if found:
                assert ids(api, found)[: len(log)] == log, victim
                assert files_of(work_of(folder, found)) == files, victim
            client.join(0.2)

        # And the client gets it in the end, in a sandbox of its own
        wait_until(lambda: _answers(api), "the server")  # its worker may have ended on a connection that is kept
        fork = api.conversation(UUID(identity).hex)
        assert fork is not None
        assert (ids(api, fork)[: len(log)], files_of(work_of(folder, fork))) == (log, files), victim
        api.call("DELETE", f"{PATH}/{fork['id']}")

    # And the source is as it was, and nothing else is left
    assert (ids(api, conversation), files_of(work_of(folder, conversation))) == (log, files)
    wait_until(lambda: len(api.call("GET", "/v1/sandboxes/search")["items"]) == 1, "the end of all other sandboxes")
    api.clean()


def _answers(api) -> bool:
    try:
        return api.client.get("/api/v1/sandboxes/search").status_code == 200
    except httpx.TransportError:
        return False
