"""The reference agent on a full or a read-only disk: a request gets words, and nothing that was written is lost."""

import shutil
import subprocess
from contextlib import suppress
from uuid import uuid4

import pytest

from reference_agent.conversation import UNKNOWN
from tests.agents import scripted_agent
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

pytestmark = pytest.mark.faults("fills a disk")

#: bytes that a tmpfs hands out at a time
BLOCK = 4096


def mount(*words):
    return subprocess.run([shutil.which("mount") or "mount", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def disk(tmp_path):
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("mount") is None or mount("-t", "tmpfs", "-o", "size=64k", "none", str(disk)).returncode:
        pytest.skip("a disk that is full: this test needs root and a kernel that lets it mount a tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def webhook():
    with scripted_agent() as webhook:
        yield webhook


@pytest.fixture
def agent(tmp_path, disk, webhook):
    """A reference agent whose conversations are on that disk, and whose commands run elsewhere."""
    with reference_agent(tmp_path, disk / "conversations", OH_WEBHOOKS_0_BASE_URL=webhook.url) as agent:
        yield agent


def fill(disk, leave=0):
    """Leave so many blocks of a disk free."""
    with (disk / "filler").open("wb", buffering=0) as file:
        with suppress(OSError):
            while file.write(b"x" * BLOCK):
                pass
        file.truncate(file.tell() - leave * BLOCK)


def test_a_message_that_the_full_disk_refuses_gets_507_and_has_not_happened(agent, disk):
    conversation = agent.begin()
    agent.send(conversation, "hello", run=False)
    before = agent.events(conversation), agent.client.get(conversation).json()
    file = agent.folder(conversation) / "events.jsonl"
    written = file.read_bytes()
    fill(disk)

    refused = agent.send(conversation, "hello " + "x" * 4096)

    assert refused.status_code == 507
    folder = agent.folder(conversation)
    assert refused.json() == {"detail": f"The agent server cannot write to {folder}: No space left on device"}
    assert (agent.events(conversation), agent.client.get(conversation).json()) == before
    assert file.read_bytes() == written
    agent.restart()
    assert (agent.events(conversation), agent.client.get(conversation).json()) == before
    (disk / "filler").unlink()
    assert agent.send(conversation, "hello").is_success
    agent.until(conversation, "finished")


def test_a_conversation_that_the_full_disk_refuses_is_not_started_however_much_of_it_was_written(agent, disk):
    identity = str(uuid4())
    body = {"conversation_id": identity, "initial_message": {"content": [{"text": "x" * BLOCK}]}}
    refusals = 0
    for blocks in range(16):
        fill(disk, leave=blocks)
        started = agent.post("/api/conversations", body)
        if started.status_code == 201:
            break
        assert started.status_code == 507
        assert "No space left on device" in started.json()["detail"]
        (disk / "filler").unlink()
        assert agent.client.get(f"/api/conversations/{identity}").status_code == 404
        assert not agent.folder(identity).exists()
        refusals += 1
    assert started.status_code == 201
    assert refusals > 2


@pytest.mark.faults("fills a disk")
def test_a_command_that_fills_the_disk_pauses_the_run_and_its_result_is_not_lost(agent, disk, tmp_path, webhook):
    # Given a command whose result finds no space
    effects = tmp_path / "effects"
    conversation = agent.begin()
    commands = [f"run: echo one >> {effects}; cat /dev/zero > {disk}/filler; seq 2000", f"run: echo two >> {effects}"]
    agent.send(conversation, "\n".join(commands))

    # When it has ended, then the run is paused, and no more is told than what the file holds
    agent.until(conversation, "paused")
    file = agent.folder(conversation) / "events.jsonl"
    assert agent.events(conversation, kind="ObservationEvent") == []
    wait_until(lambda: webhook.posted("/conversations")[-1]["execution_status"] == "paused", "the pause")
    told = [event for [event] in webhook.posted(file.parent.name)]
    assert all(event["id"] in file.read_text() for event in told)
    assert agent.post(f"{conversation}/run").status_code == 507

    # And the next run after there is space goes on
    (disk / "filler").unlink()
    assert agent.post(f"{conversation}/run").is_success
    agent.until(conversation, "finished")
    assert effects.read_text().split() == ["one", "two"]
    assert list(agent.results(conversation).values()) == [["ObservationEvent"]] * 2
    log = agent.events(conversation)
    agent.restart()
    assert agent.events(conversation) == log


def test_a_result_that_the_full_disk_refused_before_a_kill_is_closed_as_unknown(agent, disk, tmp_path):
    effects = tmp_path / "effects"
    conversation = agent.begin()
    agent.send(conversation, f"run: echo one >> {effects}; cat /dev/zero > {disk}/filler; seq 2000")
    agent.until(conversation, "paused")
    agent.restart()
    agent.until(conversation, "paused")

    (disk / "filler").unlink()
    assert agent.post(f"{conversation}/run").is_success

    agent.until(conversation, "finished")
    [error] = agent.events(conversation, kind="AgentErrorEvent")
    assert error["error"] == UNKNOWN
    assert effects.read_text().split() == ["one"]


def test_an_interrupt_on_a_full_disk_kills_the_command_and_is_written_later(agent, disk, tmp_path):
    effects = tmp_path / "effects"
    conversation = agent.begin()
    agent.send(conversation, f"run: cat /dev/zero > {disk}/filler; echo one >> {effects}; sleep 600")
    wait_until(effects.exists, "the command")
    while agent.post(f"{conversation}/confirmation_policy").is_success:
        pass  # the last block of the file has space for some small steps yet

    assert agent.post(f"{conversation}/interrupt").status_code == 507
    assert agent.status(conversation) == "paused"

    (disk / "filler").unlink()
    assert agent.post(f"{conversation}/run").is_success

    agent.until(conversation, "finished")
    kinds = [event["kind"] for event in agent.events(conversation)]
    assert kinds.index("InterruptEvent") < kinds.index("ObservationEvent")


def test_a_folder_that_is_read_only_is_read_and_takes_no_message(agent, disk):
    conversation = agent.begin()
    agent.send(conversation, "hello")
    agent.until(conversation, "finished")
    before = agent.events(conversation)
    assert mount("-o", "remount,ro", str(disk)).returncode == 0
    agent.restart()

    assert agent.events(conversation) == before
    for refused in (agent.send(conversation, "more"), agent.client.delete(conversation)):
        assert refused.status_code == 507
        assert str(agent.folder(conversation)) in refused.json()["detail"]
        assert "Read-only file system" in refused.json()["detail"]
    assert agent.post("/api/conversations").status_code == 507

    assert mount("-o", "remount,rw", str(disk)).returncode == 0
    assert agent.events(conversation) == before
    assert agent.client.delete(conversation).is_success
