"""Sandboxes on every kind of Redis: the whole loop, on two workers."""

import pytest

from tests.backends import BACKENDS
from tests.servers import supervised_server, wait_until
from tests.v1 import Api


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_whole_loop_passes_on_every_backend(tmp_path, backend):
    with BACKENDS[backend](tmp_path) as (url, _), supervised_server(tmp_path, REDIS_URL=url) as (client, _):
        api = Api(client)
        conversation = api.app_conversation(title="On " + backend, secrets={"TOKEN": "x"})
        api.send(conversation["id"], "run: echo done")
        api.until(conversation["id"], "waiting_for_confirmation")
        sandbox = f"/v1/sandboxes/{conversation['sandbox_id']}"
        api.call("POST", f"{sandbox}/pause")
        assert api.decide(conversation["id"], True) == {"success": True}
        assert "serving on" in api.call("GET", f"{sandbox}/logs")["log"]
        api.call("POST", f"{sandbox}/resume")
        wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
        assert api.call("GET", "/v1/app-conversations/count") == 1
        api.call("DELETE", f"/v1/app-conversations/{conversation['id']}")
        wait_until(lambda: api.sandbox(conversation["sandbox_id"]) is None, "the end of the sandbox")
