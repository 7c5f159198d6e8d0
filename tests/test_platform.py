"""A system other than Linux runs the server without process sandboxes, and reports that."""

import pytest

from tests.conftest import message
from tests.servers import supervised_server
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts a server with a supervisor on a system of another name")

SENTENCE = "Sandboxes of the runtime `process` need Linux, this system is Darwin: use `docker`."


@pytest.fixture
def elsewhere(tmp_path):
    """The whole server on a machine whose system calls itself Darwin; its log."""
    (tmp_path / "sitecustomize.py").write_text("import platform\nplatform.system = lambda: 'Darwin'\n")
    with supervised_server(tmp_path, PYTHONPATH=str(tmp_path)) as (client, _):
        yield client, tmp_path / "log"


def test_other_systems_than_linux_run_the_server_and_report_that_process_sandboxes_do_not_run(elsewhere, conversation):
    client, log = elsewhere
    assert client.get("/ready").status_code == 200
    assert client.get("/server_info").json()["notice"] == SENTENCE
    assert SENTENCE in log.read_text()
    assert client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("here")]).status_code == 200

    api = WireApi(client)
    sandbox = api.start_sandbox()
    api.wait_for(sandbox["id"], "ERROR")
    [found] = client.get("/api/v1/sandboxes/search").json()["items"]
    assert SENTENCE in found["status_detail"]
