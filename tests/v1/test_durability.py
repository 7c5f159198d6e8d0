"""Sandboxes on DURABILITY=replicas:1: while the replica takes nothing they keep running, and afterwards all goes on."""

import httpx
import pytest

from tests.backends import replicated
from tests.servers import supervised_server, valkey_program, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts two stores, and waits while no write is acknowledged")


def test_a_sandbox_outlives_a_time_in_which_no_write_is_acknowledged(tmp_path, specs):
    settings = {"DURABILITY": "replicas:1", "REDIS_TIMEOUT": "0.5", "HOST_SECONDS": "3", "SANDBOX_SPECS": specs}
    with (
        replicated(tmp_path, valkey_program()) as (primary, replica),
        supervised_server(tmp_path, REDIS_URL=f"redis://127.0.0.1:{primary.port}", **settings) as (client, _),
    ):
        api = WireApi(client)
        conversation = api.app_conversation(sandbox_spec_id="free")
        api.send(conversation["id"], "run: echo before", run=True)
        api.until(conversation["id"], "finished")

        # Given a replica that takes nothing for longer than a host may be silent
        replica.freeze()
        beats = set()
        for _ in range(5):
            wait_until(lambda: heartbeat(client) not in beats, "a heartbeat")
            beats.add(heartbeat(client))
        assert api.sandbox(conversation["sandbox_id"])["status"] == "RUNNING"
        refused = start(client)
        assert (refused.status_code, "DURABILITY=replicas:1" in refused.json()["detail"]) == (503, True)

        # When it goes on, then so does the conversation
        replica.thaw()
        wait_until(lambda: client.get("/ready").status_code == 200, "readiness")
        api.send(conversation["id"], "run: echo $((41 + 1)) after", run=True)
        wait_until(lambda: "42 after" in str(api.events(conversation["id"])), "the run after the pause")
        assert api.sandbox(conversation["sandbox_id"])["status"] == "RUNNING"

        # And the start that was refused has happened once
        wait_until(lambda: start(client).status_code == 200, "the repeated start")
        assert api.finished(start(client).json()["id"])["status"] == "READY"
        assert len(api.call("GET", "/v1/app-conversations/search")["items"]) == 2


def start(client) -> httpx.Response:
    body, headers = {"sandbox_spec_id": "free"}, {"Idempotency-Key": "one start"}
    return client.post("/api/v1/app-conversations", json=body, headers=headers)


def heartbeat(client) -> str:
    [host] = client.get("/server_info").json()["hosts"]
    return host["seen_at"]
