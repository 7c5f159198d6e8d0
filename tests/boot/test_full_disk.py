"""A full disk under the embedded store is named; what is stored is served, and the server goes on when it has room."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from core.disk import RESERVE, shortage
from tests.boot.test_embedded import ids_of
from tests.conftest import message
from tests.servers import agent_server, store_server, wait_until

SENTENCE = "The disk of DATA_DIR is full: "


@contextmanager
def small_disk(folder: Path):
    """A disk of 48 MiB at a folder, while the block runs."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, left: int) -> Path:
    """A file that leaves so many bytes of the disk."""
    found, file = os.statvfs(folder), folder / "fill"
    with file.open("wb") as filled:
        os.posix_fallocate(filled.fileno(), 0, found.f_bfree * found.f_frsize - left)
    return file


def test_a_disk_with_room_and_a_folder_that_does_not_tell_have_no_shortage(tmp_path):
    assert shortage(tmp_path / "missing") is None


@pytest.mark.faults("fills a disk")
def test_a_disk_that_is_nearly_full_refuses_what_is_new_in_words_and_serves_the_rest(tmp_path, conversation):
    with (
        small_disk(tmp_path / "disk") as disk,
        agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(disk / "data"), WEB_CONCURRENCY="1") as (client, _),
    ):
        url = f"/api/v1/webhooks/events/{conversation}"
        assert client.post(url, json=[message("before")]).status_code == 200
        filler = fill(disk, RESERVE // 2)

        wait_until(lambda: client.post(url, json=[message("refused")]).status_code == 507, "the refusal")
        assert client.post(url, json=[message("refused")]).json()["detail"].startswith(SENTENCE)
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert ready.json()["detail"].startswith(SENTENCE)
        assert SENTENCE in client.get("/server_info").json()["notice"]
        assert client.get(f"/api/conversations/{conversation}").status_code == 200
        assert client.delete(f"/api/conversations/{conversation}").status_code == 200

        filler.unlink()
        wait_until(lambda: client.post(url, json=[message("after")]).status_code == 200, "room")
        assert client.get("/ready").status_code == 200


@pytest.mark.faults("fills a disk")
def test_a_store_that_ends_by_a_full_disk_says_so_and_loses_nothing_acknowledged(tmp_path, conversation):
    with (
        small_disk(tmp_path / "disk") as disk,
        agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(disk / "data"), WEB_CONCURRENCY="1") as (client, _),
    ):
        url = f"/api/v1/webhooks/events/{conversation}"
        kept, others = [message("kept") for _ in range(20)], [str(uuid4()) for _ in range(40)]
        assert client.post(url, json=kept).status_code == 200
        for other in others:
            assert client.post("/api/conversations", json={"conversation_id": other}).status_code == 201
        filler = fill(disk, 0)

        # A deletion is taken while the last page of the store's file has room, and then ends the store
        deleted = [client.delete(f"/api/conversations/{other}") for other in others]
        refused = [one for one in deleted if one.status_code != 200]
        assert refused
        refused += [client.post(url, json=[message("x" * 100_000)]) for _ in range(5)]
        assert {one.status_code for one in refused} <= {503, 507}
        assert all(one.json()["detail"].startswith(SENTENCE) for one in refused), [one.text for one in refused]
        said = f"cannot write its file in {disk / 'data'}. {SENTENCE}"
        wait_until(lambda: said in log(tmp_path), "the line of the log")

        filler.unlink()
        wait_until(lambda: client.post(url, json=[message("after")]).status_code == 200, "the store")
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")
        assert {event["id"] for event in kept} <= {*ids_of(client, conversation)}


def log(folder: Path) -> str:
    return (folder / "log").read_text()


@pytest.mark.faults("fills a disk")
def test_a_redis_of_its_own_that_cannot_write_its_file_is_named(tmp_path, conversation):
    with (
        small_disk(tmp_path / "disk") as disk,
        store_server(disk) as (redis_url, _),
        agent_server(tmp_path / "log", REDIS_URL=redis_url, WEB_CONCURRENCY="1") as (client, _),
    ):
        url = f"/api/v1/webhooks/events/{conversation}"
        assert client.post(url, json=[message("before")]).status_code == 200
        filler = fill(disk, 0)

        wait_until(lambda: client.post(url, json=[message("x" * 100_000)]).status_code == 503, "the refusal")
        refused = client.post(url, json=[message("refused")])
        assert refused.json()["detail"].startswith("Redis cannot write its file, and refuses writes (")
        assert "No space left on device" in refused.json()["detail"]
        assert "aof_last_write_status is err" in client.get("/ready").json()["detail"]
        assert client.get(f"/api/conversations/{conversation}/events/count").status_code == 200

        filler.unlink()
        wait_until(lambda: client.post(url, json=[message("after")]).status_code == 200, "room")
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")
