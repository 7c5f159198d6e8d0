"""`python -m admin backup` and `restore`: what is in the file, where it may be restored, and what is refused."""

import errno
import fcntl
import json
import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from redis import Redis

from admin.backup_file import BackupReader
from admin.restore import _Room
from admin.restore import main as run_restore
from boot.embedded import RESTORING, EmbeddedStore, release
from runtimes.tar_stream import Member, MemberKind
from settings.config import Config
from store.keys import DATA_VERSION
from store.link.snapshot import snapshot
from tests.admin.test_backup_file import HEAD, MEMBERS, made_of, written
from tests.backups import admin, backup, environment, restore
from tests.boot.stores import store_of
from tests.conftest import store_of as wings_of
from tests.servers import PROJECT, fakeredis_server, redis_program, store_server, valkey_program

pytestmark = pytest.mark.process("starts stores and programs")

HANDLE = {"runtime": "process", "sandbox_id": "", "ports": {}, "folder": "/old", "pid": 1, "started": "then"}


@pytest.fixture
def data(tmp_path):
    """A DATA_DIR with a key, a conversation's worth of data, and one sandbox that runs."""
    folder = tmp_path / "data"
    with store_of(folder) as redis:
        redis.set(DATA_VERSION, 1)
        redis.rpush("kept", *range(1000))
        with running_sandbox(redis, "old") as name:
            work = folder / "sandboxes" / "old" / name / "work"
            work.mkdir(parents=True)
    (folder / "key").write_text("a-key-of-sixteen-characters\n")
    (folder / "secret_key").write_text("another-key-of-sixteen\n")
    (folder / "sandboxes" / "old" / ".lock").write_text("f" * 32)
    (work / "note.txt").write_text("hello")
    (work / "link").symlink_to("/etc/passwd")
    (work.parent / "handle.json").write_text(json.dumps(HANDLE))
    return folder


@contextmanager
def running_sandbox(redis, host):
    """Its id."""
    path = redis.connection_pool.connection_kwargs["path"]
    sandboxes = wings_of(f"unix://{path}", Config().sandboxes).sandboxes
    assert sandboxes.beat(host, "a supervisor")
    sandbox = sandboxes.start("spec")
    assert sandboxes.claim(host) == sandbox.id
    sandboxes.report(sandbox.id, host, "a supervisor", "RUNNING", handle={**HANDLE, "sandbox_id": sandbox.id})
    yield sandbox.id


def sandboxes_of(folder, host):
    with store_of(folder) as redis:
        assert redis.llen("kept") == 1000
        path = redis.connection_pool.connection_kwargs["path"]
        store = wings_of(f"unix://{path}", Config().sandboxes)
        assert store.sandboxes.beat(host, "another supervisor")
        return store.sandboxes.of_host(host)


def test_a_restored_sandbox_is_paused_on_the_host_that_restores_it_with_its_files(tmp_path, data):
    file, folder = tmp_path / "one.backup", tmp_path / "restored"
    done = backup(data, file)
    assert "0 conversations and 1 sandboxes" in done.stderr
    assert file.stat().st_mode & 0o777 == 0o600

    told = restore(file, folder, "--host", "new")

    assert f"Start the server:  DATA_DIR={folder} make run" in told.stdout
    [sandbox] = sandboxes_of(folder, "new")
    assert (sandbox.status, sandbox.wanted, sandbox.handle) == ("PAUSED", "paused", None)
    assert sandbox.detail.startswith("It was restored from a backup: ")
    work = folder / "sandboxes" / "new" / sandbox.id / "work"
    assert (work / "note.txt").read_text() == "hello"
    assert (work / "link").readlink() == Path("/etc/passwd")
    assert not (work.parent / "handle.json").exists()  # whose process may be one of the old server
    assert [(folder / name).read_text() for name in ("key", "secret_key")] == [
        "a-key-of-sixteen-characters\n",
        "another-key-of-sixteen\n",
    ]
    assert not (folder / RESTORING).exists()


def test_no_settings_of_a_shadow_repository_are_restored(tmp_path, data):
    """A restored file is not trusted: Git would run the programs that such settings name."""
    [sandbox] = (data / "sandboxes" / "old").glob("[!.]*")
    git = sandbox.with_name(f".{sandbox.name}.shadow") / "1c4f" / "git"
    settings = ("config", "commondir", "hooks/reference-transaction", "objects/info/alternates")
    for name in (*settings, "HEAD", "objects/pack/p"):
        (git / name).parent.mkdir(parents=True, exist_ok=True)
        (git / name).write_text("x")
    backup(data, tmp_path / "one.backup")

    restore(tmp_path / "one.backup", tmp_path / "restored", "--host", "old")

    restored = tmp_path / "restored" / git.relative_to(data)
    files = {str(one.relative_to(restored)) for one in restored.rglob("*") if one.is_file()}
    assert files == {"HEAD", "objects/pack/p"}


CONFIGURES = b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$4\r\nport\r\n$4\r\n8249\r\n"


@pytest.mark.parametrize("place", ["commands", "behind-a-snapshot", "another-name"])
def test_a_store_that_would_do_more_than_write_data_is_refused_before_it_runs(tmp_path, data, place):
    """A store runs its files at each start: with such a one it would open a port."""
    folder = data / "appendonlydir"
    file, manifest = max(folder.glob("*.incr.aof")), folder / "appendonly.aof.manifest"
    if place == "behind-a-snapshot":
        with store_server(tmp_path, redis_program()) as (url, _), Redis.from_url(url) as redis:
            redis.set("a", "b")
            with snapshot(redis) as (_, pieces):
                file.write_bytes(b"".join(pieces))
    if place == "another-name":
        manifest.write_text(manifest.read_text() + "file other seq 9 type i\n")
        file = folder / "other"
    with file.open("ab") as store:
        store.write(CONFIGURES)
    assert admin(data, "backup", str(tmp_path / "one.backup")).returncode in (0, 3)

    told = admin(tmp_path, "restore", str(tmp_path / "one.backup"), "--data-dir", str(tmp_path / "restored"))

    assert told.returncode == 1
    assert "the command CONFIG" in told.stderr or "goes on after its snapshot" in told.stderr
    assert [one.name for one in (tmp_path / "restored").iterdir()] == ["lock"]


def test_a_note_of_a_stranger_moves_no_cursor(tmp_path):
    head = replace(HEAD, left_out=["\x1b[2J\x1b]0;title\x07"])
    members = [member for member in MEMBERS if not member[0].name.startswith((b"append", b"secret"))]
    manifest = b"file appendonly.aof.1.incr.aof seq 1 type i\n"
    files = {"manifest": manifest, "1.incr.aof": b""}
    members += [
        (Member(f"appendonlydir/appendonly.aof.{name}".encode(), MemberKind.FILE, 0o600, size=len(content)), content)
        for name, content in files.items()
    ]
    (tmp_path / "file").write_bytes(written(head, members))

    told = restore(tmp_path / "file", tmp_path / "restored")

    assert "\x1b" not in told.stdout
    assert "Note: \\u{1b}[2J" in told.stdout


def test_a_backup_goes_through_a_pipe(tmp_path, data):
    line = f"python -m admin backup - | python -m admin restore - --data-dir {tmp_path / 'restored'}"
    path = {"PATH": f"{PROJECT}/.venv/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=PROJECT,
        env=environment(data, **path),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "restored" / "key").exists()


def test_a_folder_that_has_something_is_left_alone_or_moved_aside(tmp_path, data):
    file = tmp_path / "one.backup"
    backup(data, file)
    before = (data / "key").read_text()
    (data / "key").write_text("changed-after-the-backup\n")

    refused = admin(data, "restore", str(file), "--data-dir", str(data))
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    assert "--force" in refused.stderr
    assert (data / "key").read_text() == "changed-after-the-backup\n"

    told = restore(file, data, "--force")
    [aside] = data.glob("before-*")
    assert str(aside) in told.stdout
    assert (aside / "key").read_text() == "changed-after-the-backup\n"
    assert (data / "key").read_text() == before


def test_a_folder_of_a_server_that_runs_is_refused(tmp_path, data):
    file = tmp_path / "one.backup"
    with store_of(data):
        backup(data, file)
        refused = admin(data, "restore", str(file), "--data-dir", str(data), "--force")
    assert refused.returncode == 1
    assert f"A server runs on {data}: stop it first" in refused.stderr

    with (data / "sandboxes" / "old" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = admin(data, "restore", str(file), "--data-dir", str(data), "--force")
    assert f"A supervisor runs on {data}: stop it first" in refused.stderr


def test_a_damaged_file_and_newer_data_leave_nothing(tmp_path, data):
    file, folder = tmp_path / "one.backup", tmp_path / "restored"
    backup(data, file)
    (tmp_path / "cut.backup").write_bytes(file.read_bytes()[:-100])
    refused = admin(data, "restore", str(tmp_path / "cut.backup"), "--data-dir", str(folder))
    assert refused.returncode == 1
    assert "nothing was restored" in refused.stderr
    assert [one.name for one in folder.iterdir()] == ["lock"]

    with store_of(data) as redis:
        redis.set(DATA_VERSION, 99)
    newer = tmp_path / "newer.backup"
    backup(data, newer)
    with newer.open("rb") as source:
        assert BackupReader(source).head.data == 99
    refused = admin(data, "restore", str(newer), "--data-dir", str(folder))
    assert "Its data have the version 99, and this release" in refused.stderr
    assert [one.name for one in folder.iterdir()] == ["lock"]


def test_a_restore_whose_folders_cannot_all_be_moved_puts_back_what_was_there(tmp_path, data, monkeypatch, capsys):
    """As where a folder below DATA_DIR is a mount of its own, which cannot be renamed."""
    file = tmp_path / "one.backup"
    backup(data, file)
    (data / "key").write_text("changed-after-the-backup\n")
    before, rename = sorted(data.rglob("*")), Path.rename

    def refused(self, target):
        if self == data / "sandboxes" or self == data / RESTORING / "store.program":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refused)

    assert run_restore([str(file), "--data-dir", str(data), "--force"]) == 1
    assert "nothing was restored" in capsys.readouterr().err
    assert sorted(data.rglob("*")) == before
    assert (data / "key").read_text() == "changed-after-the-backup\n"
    with store_of(data) as redis:
        assert redis.llen("kept") == 1000


def test_a_file_that_unpacks_to_more_than_the_disk_has_is_refused_with_the_member_and_the_bound(tmp_path):
    huge = Member(b"data/appendonlydir/appendonly.aof.1.incr.aof", MemberKind.FILE, size=10**17)
    (tmp_path / "bomb").write_bytes(made_of((huge, b"")))

    refused = admin(tmp_path / "restored", "restore", str(tmp_path / "bomb"))

    assert refused.returncode == 1
    assert re.search(
        r"appendonly.aof.1.incr.aof has 100000000000000000 bytes, and \d+ bytes are free, of which 16777216 stay so",
        refused.stderr,
    )
    assert [one.name for one in (tmp_path / "restored").iterdir()] == ["lock"]


def test_members_without_content_count_as_room_too(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(os, "statvfs", lambda path: looks.append(path) or SimpleNamespace(f_bavail=1, f_frsize=2**30))
    room = _Room(tmp_path)
    for _ in range(2 * 2**30 // 2**16):
        room.begin(Member(b"empty", MemberKind.FILE))

    assert len(looks) == 1


def test_a_restore_that_was_killed_is_refused_by_the_server_and_repeated(tmp_path, data):
    file, folder = tmp_path / "one.backup", tmp_path / "restored"
    backup(data, file)
    (folder / RESTORING / "appendonlydir").mkdir(parents=True)

    again = r"A restore into .* was cut off: run this again, which says what to do: .*-m admin restore FILE"
    with pytest.raises(RuntimeError, match=again):
        EmbeddedStore(str(folder), 0)
    restore(file, folder)
    with store_of(folder) as redis:
        assert redis.llen("kept") == 1000


def test_what_a_killed_backup_has_left_is_overwritten_and_a_living_one_is_not_disturbed(tmp_path, data):
    file = tmp_path / "one.backup"
    (tmp_path / "one.backup.part").write_bytes(b"half of a backup" * 100)
    backup(data, file)
    assert not (tmp_path / "one.backup.part").exists()

    with (tmp_path / "one.backup.part").open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        refused = admin(data, "backup", str(file))
    assert refused.returncode == 1
    assert "another backup is being written" in refused.stderr


def test_a_store_that_has_cut_its_file_at_its_start_is_backed_up_whole(tmp_path, data):
    """Redis counts the bytes that it has cut on: the size that it tells lies behind the end of its file."""
    [file] = data.glob("appendonlydir/*.incr.aof")
    with file.open("ab") as half:
        half.write(b"*3\r\n$5\r\nRPUSH\r\n$4\r\nke")
    with store_of(data) as redis:
        redis.rpush("after", "one")
        backup(data, tmp_path / "one.backup")

    restore(tmp_path / "one.backup", tmp_path / "restored")

    with store_of(tmp_path / "restored") as redis:
        assert (redis.llen("kept"), redis.llen("after")) == (1000, 1)


def test_a_full_disk_is_named(tmp_path, data):
    refused = admin(data, "backup", "/dev/full/one.backup")
    assert refused.returncode == 1
    assert re.search(r"nothing was written: .*/dev/full/one.backup.part: Not a directory: \d+ bytes", refused.stderr)


def test_a_store_in_memory_has_nothing_to_back_up(tmp_path):
    with fakeredis_server(tmp_path) as (url, _):
        refused = admin(tmp_path / "data", "backup", str(tmp_path / "file"), REDIS_URL=url)
    assert refused.returncode == 1
    assert "keeps its data in memory" in refused.stderr
    assert not (tmp_path / "file").exists()


def test_a_cluster_is_refused_with_what_to_do(tmp_path):
    refused = admin(tmp_path, "backup", str(tmp_path / "file"), REDIS_URL="redis+cluster://127.0.0.1:1")
    assert refused.returncode == 1
    assert "Back up each of its nodes" in refused.stderr


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_redis_of_ones_own_is_restored_into_the_embedded_store(tmp_path, kind, monkeypatch):
    program = redis_program() if kind == "redis" else valkey_program()
    (tmp_path / "redis").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / f"{kind}-server").symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with store_server(tmp_path / "redis", program) as (url, _):
        with Redis.from_url(url) as redis:
            redis.set(DATA_VERSION, 1)
            redis.rpush("kept", *range(100_000))
        backup(tmp_path / "data", tmp_path / "file", REDIS_URL=url)

    restore(tmp_path / "file", tmp_path / "restored")

    with store_of(tmp_path / "restored") as redis:
        assert redis.llen("kept") == 100_000
    with (tmp_path / "file").open("rb") as source:
        head = BackupReader(source).head
    assert head.is_snapshot
    assert head.program == release(program)
