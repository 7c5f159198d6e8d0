"""One server for all these tests. Each makes its own sandboxes and removes them."""

import pytest

from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import in_sandboxes


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    """The folder of the server."""
    return tmp_path_factory.mktemp("v1")


@pytest.fixture(scope="package")
def server(folder):
    """The whole server with two workers and a supervisor."""
    specs = folder / "specs.toml"
    specs.write_text(SPECS)
    with supervised_server(folder, SANDBOX_SPECS=str(specs), WEB_CONCURRENCY="2") as (client, _):
        yield client


@pytest.fixture
def brief_api(tmp_path, specs):
    """Calls of a server whose sandboxes must start within 5 s."""
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, SANDBOX_START_SECONDS="5") as (client, _):
        yield WireApi(client)


@pytest.fixture
def api(server):
    """Calls of the server, whose sandboxes are deleted after the test."""
    api = WireApi(server)
    yield api
    api.clean()


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """The path of these tests' specs."""
    path = tmp_path_factory.mktemp("specs") / "specs.toml"
    path.write_text(SPECS)
    return str(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, specs):
    """A server whose host is lost soon: its api, its master process, its folder."""
    folder = tmp_path_factory.mktemp("faults")
    with supervised_server(folder, SANDBOX_SPECS=specs, HOST_SECONDS="3", WEB_CONCURRENCY="2") as (client, master):
        yield WireApi(client), master, folder
    assert not in_sandboxes(folder)


@pytest.fixture
def supervised(whole):
    """That server, which every test leaves without a sandbox and without a process of one."""
    api, _, folder = whole
    yield whole
    api.clean()
    wait_until(lambda: not in_sandboxes(folder), "the end of every process")


AGENT = """
command = ["{PYTHON}", "-m", "reference_agent", "--host", "127.0.0.1", "--port", "{AGENT_SERVER}"]
created_at = 2026-11-21T00:00:00Z
restarts = 0
initial_env = { PYTHONPATH = "{PROJECT}", PATH = "/usr/local/bin:/usr/bin:/bin", LANG = "C.UTF-8" }
"""

SPECS = f"""
[[spec]]
id = "asks"
{AGENT}
[spec.conversation]
confirmation_policy = {{ kind = "AlwaysConfirm" }}

[[spec]]
id = "free"
{AGENT}

[[spec]]
id = "idle"
idle_pause_seconds = 1
{AGENT}

[[spec]]
id = "brief"
max_seconds = 1.5
{AGENT}

[[spec]]
id = "silent"
command = ["/bin/sh", "-c", "ln -s / everything; echo begins; exec sleep 60"]
created_at = 2026-11-21T00:00:00Z

[[spec]]
id = "broken"
command = ["/bin/sh", "-c", "echo no key given >&2; exit 3"]
created_at = 2026-11-21T00:00:00Z

[[spec]]
id = "absent"
command = ["/no/such/program"]
created_at = 2026-11-21T00:00:00Z

[[spec]]
id = "tough"
{AGENT.replace("restarts = 0", "restarts = 50")}

[[spec]]
id = "thinks"
{AGENT.replace("initial_env = {", 'initial_env = { LLM_MODEL = "m",')}
"""
