"""The programs of this folder: the outage of this server, and the client of the cloud."""

import os
import subprocess
import sys

import pytest

from docs.examples.openhands_agent import VENV
from tests.servers import PROJECT

pytestmark = pytest.mark.interop("runs published programs against a server")

#: seconds that this server and Redis are away
AWAY = "120"

#: of the programs; LiteLLM fetches no prices, for a thread of its own that does may break its import
PUBLISHED = {
    "INTEROP_COMMAND": f"{VENV}/bin/agent-server",
    "INTEROP_PYTHON": f"{VENV}/bin/python -P",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


@pytest.fixture
def ended():
    """Run a program with the published release to its end; what it printed where it failed, else nothing."""

    def run(module: str, *words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", f"tests.interop.{module}", *words],
            cwd=PROJECT,
            env=os.environ | PUBLISHED,
            capture_output=True,
            text=True,
        )
        return f"{ran.stdout[-3000:]}{ran.stderr[-3000:]}" if ran.returncode else ""

    return run


@pytest.mark.skipif(not os.environ.get("INTEROP_LONG"), reason="takes some minutes: INTEROP_LONG=1")
def test_after_an_outage_in_which_the_agent_wrote_3000_events_the_log_has_each_once(ended):
    assert ended("outage", AWAY) == ""


def test_the_workspace_of_the_cloud_starts_uses_and_deletes_a_sandbox(ended):
    assert ended("cloud") == ""
