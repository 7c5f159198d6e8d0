"""A full disk, a read-only folder and a deleted one: true statuses, words that help, and no other sandbox affected."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT

pytestmark = pytest.mark.faults("fills disks and deletes folders under real sandboxes")

SPECS = f"""
[[spec]]
id = "free"
{AGENT}

[[spec]]
id = "rests"
idle_stop_seconds = 0.1
{AGENT}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server's api, and the folder of its sandboxes."""
    folder = tmp_path_factory.mktemp("file-faults")
    (folder / "specs.toml").write_text(SPECS)
    with supervised_server(folder, SANDBOX_SPECS=str(folder / "specs.toml")) as (client, _):
        yield WireApi(client), folder / "sandboxes"


@pytest.fixture
def bystander(whole):
    """A conversation in another sandbox; it must go on after each fault."""
    api, _ = whole
    conversation = api.app_conversation(sandbox_spec_id="free")
    yield conversation
    assert api.sandbox(conversation["sandbox_id"])["status"] == "RUNNING"
    assert said(api, conversation["id"], "run: echo unaffected") == "unaffected\n"
    api.clean()


def said(api: WireApi, conversation_id: str, command: str) -> str:
    """What a command printed that the agent ran for a message."""
    before = api.count(conversation_id, kind="ObservationEvent")
    api.send(conversation_id, command, run=True)
    wait_until(lambda: api.count(conversation_id, kind="ObservationEvent") > before, "its output")
    *_, last = api.events(conversation_id, kind__eq="ObservationEvent")
    return last["observation"]["content"][0]["text"]


def folder_of(folder: Path, sandbox_id: str) -> Path:
    [found] = folder.glob(f"*/{sandbox_id}")
    return found


@contextlib.contextmanager
def disk_of(api: WireApi, work: Path, sandbox_id: str) -> Iterator[None]:
    """A disk of 256 KiB for the files of a sandbox, which is stopped meanwhile."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small disk")
    rest(api, sandbox_id)
    kept = work.with_name("kept")
    shutil.copytree(work, kept)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", work], check=False).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    try:
        shutil.copytree(kept, work, dirs_exist_ok=True)
        api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
        api.wait_for(sandbox_id, "RUNNING")
        yield
    finally:
        api.client.post(f"/api/v1/sandboxes/{sandbox_id}/pause")
        subprocess.run(["umount", "--lazy", work], check=True)


def rest(api: WireApi, sandbox_id: str) -> None:
    api.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")
    wait_until(lambda: "files are kept" in (api.sandbox(sandbox_id)["status_detail"] or ""), "its rest")


def test_a_full_disk_is_an_error_in_words_and_loses_nothing(whole, bystander):
    api, folder = whole
    conversation = api.app_conversation(sandbox_spec_id="rests")
    sandbox_id = conversation["sandbox_id"]
    work = folder_of(folder, sandbox_id) / "work"
    assert said(api, conversation["id"], "run: echo kept > mine") == ""
    with disk_of(api, work, sandbox_id):
        with contextlib.suppress(OSError), (work / "big").open("wb", buffering=0) as big:
            while big.write(bytes(4096)):
                pass

        refused = api.client.post(
            f"/api/v1/app-conversations/{conversation['id']}/send-message",
            json={"content": [{"type": "text", "text": "run: cat mine\n" + 9000 * "."}], "run": True},
        )
        assert refused.status_code == 502
        assert "No space left on device" in refused.json()["detail"]
        assert api.sandbox(sandbox_id)["status"] == "RUNNING"

        (work / "big").unlink()
        assert said(api, conversation["id"], "run: cat mine") == "kept\n"


def test_a_folder_that_becomes_read_only_is_an_error_until_it_can_be_written_again(whole, bystander):
    api, folder = whole
    conversation = api.app_conversation(sandbox_spec_id="rests")
    sandbox_id = conversation["sandbox_id"]
    work = folder_of(folder, sandbox_id) / "work"
    assert said(api, conversation["id"], "run: echo kept > mine") == ""
    with disk_of(api, work, sandbox_id):
        subprocess.run(["mount", "-o", "remount,ro", work], check=True)
        assert "cannot be written" in api.wait_for(sandbox_id, "ERROR")["status_detail"]

        subprocess.run(["mount", "-o", "remount,rw", work], check=True)
        api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
        api.wait_for(sandbox_id, "RUNNING")
        assert said(api, conversation["id"], "run: cat mine") == "kept\n"


def test_a_folder_that_was_deleted_is_an_error_and_a_resume_and_a_run_go_on_in_an_empty_one(whole, bystander):
    api, folder = whole
    conversation = api.app_conversation(sandbox_spec_id="free")
    identity, sandbox_id = conversation["id"], conversation["sandbox_id"]
    assert said(api, identity, "run: echo kept > mine") == ""
    before = api.count(identity)

    shutil.rmtree(folder_of(folder, sandbox_id))
    assert "deleted from outside" in api.wait_for(sandbox_id, "ERROR")["status_detail"]

    api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
    api.wait_for(sandbox_id, "RUNNING")
    errors = api.events(identity, kind__eq="ConversationErrorEvent")
    assert [each["code"] for each in errors] == ["AgentServerEnded", "ConversationForgotten"]
    assert "run" in errors[-1]["detail"]
    api.call("POST", f"/conversations/{UUID(identity)}/run")
    assert said(api, identity, "run: ls") == ""
    assert api.count(identity) > before
