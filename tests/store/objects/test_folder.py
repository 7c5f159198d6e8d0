"""A folder of objects: whole or not at all, for its owner alone, and gone only as a whole."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from settings import ConfigError
from settings.config import Config
from store.conversations.cold import ObjectMissing, ObjectsAway
from store.objects import open_objects
from tests.servers import PROJECT

PUT_FOR_EVER = """
import sys
from store.objects import ObjectFolder
folder, number = ObjectFolder(sys.argv[1]), 0
while True:
    number += 1
    folder.put(f"object-{number}", bytes([number % 256]) * 200_000)
    print(number, flush=True)
"""


def test_the_folder_and_its_files_are_for_their_owner_alone(folder, tmp_path):
    folder.put("name", b"content")

    assert stat.S_IMODE((tmp_path / "cold").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "cold" / "name").stat().st_mode) == 0o600


def test_a_put_syncs_the_file_then_renames_it_then_syncs_the_folder(folder, tmp_path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("sync the folder" if is_folder else f"sync {os.fstat(descriptor).st_size} bytes")
        fsync(descriptor)

    def renamed(path, target):
        steps.append(f"rename to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)

    folder.put("name", b"content")

    assert steps == ["sync 7 bytes", "rename to name", "sync the folder"]


@pytest.mark.faults("starts processes and kills them")
def test_a_process_that_is_killed_while_it_puts_leaves_whole_objects_alone(folder, tmp_path):
    command = [sys.executable, "-c", PUT_FOR_EVER, str(tmp_path / "cold")]
    for _ in range(3):
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(5):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)

    names = list(folder.names())
    assert len(names) >= 5
    for name in names:
        content = folder.get(name)
        assert len(content) == 200_000
        assert len(set(content)) == 1


def test_a_deletion_takes_what_a_killed_put_left(folder, tmp_path):
    part = tmp_path / "cold" / ".name.part"
    part.write_bytes(b"half")
    assert list(folder.names()) == []

    folder.delete("name")

    assert list((tmp_path / "cold").iterdir()) == []


def test_a_put_without_room_leaves_nothing_and_says_why(folder, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(ObjectsAway, match=f"the folder {tmp_path}/cold: File too large"):
            folder.put("name", bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, was)

    assert list((tmp_path / "cold").iterdir()) == []


def test_a_folder_that_is_gone_is_away_and_none_of_its_objects_is_missing(folder, tmp_path):
    folder.put("name", b"content")
    (tmp_path / "cold").rename(tmp_path / "elsewhere")

    for call in (lambda: folder.get("name"), lambda: folder.put("new", b""), lambda: folder.delete("name")):
        with pytest.raises(ObjectsAway, match="No such file or directory"):
            call()
    with pytest.raises(ObjectsAway):
        list(folder.names())

    (tmp_path / "elsewhere").rename(tmp_path / "cold")
    assert folder.get("name") == b"content"


def test_a_link_in_the_folder_leads_nowhere(folder, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "cold" / "name").symlink_to(tmp_path / "secret")
    (tmp_path / "cold" / ".other.part").symlink_to(tmp_path / "secret")

    with pytest.raises(ObjectsAway):
        folder.get("name")
    with pytest.raises(ObjectsAway):
        folder.put("other", b"content")
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_a_folder_that_cannot_be_made_refuses_the_start(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(ConfigError, match=f"^The folder {tmp_path}/file/cold of COLD_URL cannot be used: "):
        open_objects(Config.of(redis_url="redis://unused", cold_url=f"file://{tmp_path}/file/cold").keeping)


def test_two_places_share_a_folder(folder, tmp_path):
    other = open_objects(Config.of(redis_url="redis://unused", cold_url=f"file://{tmp_path}/cold/").keeping)

    folder.put("name", b"content")

    assert other.get("name") == b"content"
    other.delete("name")
    with pytest.raises(ObjectMissing):
        folder.get("name")
