"""What an earlier release has written is restored and served: `tests/recorded/upgrade` has a backup of it.

It was made of a folder that the code of 2026-11-26 wrote (63ba2ad6): a conversation whose action waits, and a profile.
"""

import pytest

from tests.backups import restore
from tests.conftest import RECORDED
from tests.servers import agent_server


@pytest.mark.process("starts a server of its own")
def test_the_data_of_an_earlier_release_are_served(tmp_path):
    folder = tmp_path / "data"
    restore(RECORDED / "upgrade" / "version-1.backup", folder, "--host", "here")

    with agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(folder), SECRET_KEY="") as (client, _):
        [conversation] = client.get("/api/conversations/search").json()["items"]
        [waiting] = client.get("/api/v1/pending-actions").json()["items"]
        [profile] = client.get("/api/profiles").json()["profiles"]
        [sandbox] = client.get("/api/v1/sandboxes/search").json()["items"]

    assert (conversation["execution_status"], waiting["conversation_id"]) == (
        "waiting_for_confirmation",
        conversation["id"],
    )
    assert profile["model"] == "m/one"
    assert (sandbox["status"], sandbox["host"]) == ("PAUSED", "here")
