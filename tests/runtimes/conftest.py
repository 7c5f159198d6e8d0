"""For sandboxes as containers: a host of their own on a real engine, and a launch that its tests vary."""

from dataclasses import replace
from uuid import uuid4

import pytest

from runtimes import Launch
from tests.engine import engine, image

__all__ = ["engine", "image"]

PRINTS_AND_STAYS = "import sys, time; print(*sys.argv[1:], sep='\\n', flush=True); time.sleep(600)"


@pytest.fixture
def host(engine, monkeypatch):
    """The name of a host of this test alone, whose sandboxes are removed after the test."""
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    name = f"tests-{uuid4().hex[:8]}"
    yield name
    for container in engine.client.containers.list(all=True, filters={"label": f"agent-server.host={name}"}):
        container.remove(force=True, v=True)
    for volume in engine.client.volumes.list(filters={"label": f"agent-server.host={name}"}):
        volume.remove()


@pytest.fixture
def launch(image):
    """A sandbox that prints three lines and stays."""
    return Launch(
        f"box-{uuid4().hex[:8]}",
        ("python", "-c", PRINTS_AND_STAYS, "one", "two", "{AGENT_SERVER}"),
        {"GIVEN": "at {AGENT_SERVER}"},
        "/workspace",
        ports={"AGENT_SERVER": 8000, "VSCODE": 8001},
        image=image,
    )


@pytest.fixture
def other(launch):
    """A second sandbox."""
    return replace(launch, sandbox_id=f"{launch.sandbox_id}-2")


@pytest.fixture
def made_image(engine, launch):
    """Build an image on that of the server from lines of a Dockerfile."""

    def made(*lines: str) -> str:
        return engine.build("agent-server-ci/made", "\n".join((f"FROM {launch.image}", *lines)))

    return made
