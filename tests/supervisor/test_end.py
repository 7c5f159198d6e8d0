"""SIGTERM ends a supervisor in bounded time, whatever its threads are at."""

import psutil
import pytest

from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import SPECS
from tests.v1.processes import supervisor_of

pytestmark = pytest.mark.process("starts a supervisor and waits for its end")

#: seconds in which a supervisor must end after SIGTERM
END_TIMEOUT = 10


def test_a_supervisor_that_drives_a_start_task_for_minutes_ends_on_sigterm(tmp_path):
    specs = tmp_path / "specs.toml"
    specs.write_text(SPECS)
    with supervised_server(tmp_path, SANDBOX_SPECS=str(specs), SANDBOX_START_SECONDS="120", STOP_SANDBOXES="0") as (
        client,
        master,
    ):
        api = WireApi(client)
        task = api.start_task(sandbox_spec_id="silent")  # its agent server never answers
        wait_until(lambda: api.task(task["id"])["status"] == "WAITING_FOR_SANDBOX", "a driver that waits")

        supervisor = supervisor_of(master)
        supervisor.terminate()
        psutil.wait_procs([supervisor], END_TIMEOUT)
        assert not supervisor.is_running()
        api.clean()
