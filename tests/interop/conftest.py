"""The tests of this folder need the published agent server: `make test-interop` sets it up."""

import os

import pytest

from docs.examples.openhands_agent import VENV
from tests.interop import model
from tests.interop.forks import loaded
from tests.interop.sides import alone, environment, ours


@pytest.fixture(scope="session", autouse=True)
def openhands():
    """The programs of the published release. Skips the tests where they are missing, and fails them in CI."""
    if not (VENV / "installed").exists():
        reason = f"{VENV} is missing: make openhands"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return VENV / "bin"


@pytest.fixture(scope="session")
def scripted():
    """The URL of the scripted model."""
    with model.served(model.InteropModel) as url:
        yield url


@pytest.fixture(scope="session")
def sdk(openhands, tmp_path_factory):
    """The SDK, loaded once for the clients of all tests."""
    folder = tmp_path_factory.mktemp("sdk")
    with loaded(folder, environment(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def their_side(tmp_path_factory, scripted, sdk):
    """The published agent server alone."""
    with alone(tmp_path_factory.mktemp("alone"), scripted, sdk) as side:
        yield side


@pytest.fixture(scope="module")
def our_side(tmp_path_factory, scripted, sdk):
    """This server, two workers, with the published agent server in its sandboxes."""
    with ours(tmp_path_factory.mktemp("ours"), scripted, sdk) as side:
        yield side
