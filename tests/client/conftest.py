"""agentctl in the process of a test, in pipes, before an app in the same process."""

from functools import partial
from uuid import uuid4

import httpx
import pytest
from agent_server_client import Client
from agent_server_client.cli import agentctl, program
from click.testing import CliRunner


@pytest.fixture
def ctl(app, monkeypatch, tmp_path):
    """Runs agentctl in pipes."""
    monkeypatch.setattr(program, "Client", partial(Client, transport=httpx.WSGITransport(app)))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*words: str, code: int = 0, url: str | None = "http://127.0.0.1", **options):
        result = CliRunner().invoke(agentctl, words, env={"AGENT_SERVER_URL": url}, prog_name="agentctl", **options)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def started(client):
    """Starts a conversation, and returns its id."""

    def start(**members) -> str:
        identity = str(uuid4())
        body = {"conversation_id": identity, "confirmation_policy": {"kind": "AlwaysConfirm"}, **members}
        assert client.post("/api/conversations", json=body).status_code < 300
        return identity

    return start
