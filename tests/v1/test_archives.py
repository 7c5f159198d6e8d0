"""Sandboxes' files taken along over HTTP: downloaded, uploaded and copied, whole or with an error and nothing left."""

import io
import json
import os
import random
import socket
import tarfile
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from supervisor.archives import compressed, decompressed
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import supervisor_of

pytestmark = pytest.mark.process("packs, uploads and copies the files of real sandboxes")

MOST = 300 * 1024 * 1024
ZSTD, TAR = {"Content-Type": "application/zstd"}, {"Content-Type": "application/x-tar"}


@pytest.fixture(scope="module")
def server(tmp_path_factory, specs):
    folder = tmp_path_factory.mktemp("archives")
    settings = {"SANDBOX_SPECS": specs, "HOST_ID": "h", "MAX_ARCHIVE_BYTES": str(MOST), "BODY_SECONDS": "2"}
    with supervised_server(folder, **settings) as (client, master):
        yield WireApi(client), folder / "sandboxes" / "h", master


@pytest.fixture
def api(server):
    yield server[0]
    server[0].clean()


@pytest.fixture
def folders(server, api):
    """The folder of all sandboxes, which has none after the test."""
    yield server[1]
    api.clean()
    assert not list(server[1].glob("*/"))


@pytest.fixture
def box(api, folders):
    """A running sandbox and its working folder."""
    sandbox = api.running_sandbox("free")
    return sandbox, folders / sandbox["id"] / "work"


def packed(**files: bytes) -> bytes:
    """A tar archive; a name may have any characters."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


def zst(data: bytes) -> bytes:
    return b"".join(compressed([data]))


def contents(archive: bytes) -> dict[str, bytes | None]:
    """The files of a `.tar.zst`."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(decompressed([archive])))) as tar:
        return {each.name: tar.extractfile(each).read() for each in tar.getmembers() if each.isfile()}


def upload(api: WireApi, data, headers=ZSTD, **query: str) -> httpx.Response:
    return api.client.post("/api/v1/sandboxes", params={"from": "archive", **query}, content=data, headers=headers)


def download(api: WireApi, sandbox_id: str) -> httpx.Response:
    return api.client.get(f"/api/v1/sandboxes/{sandbox_id}/archive")


def random_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for number in range(size >> 20):
            file.write(random.Random(number).randbytes(1 << 20))


@pytest.mark.parametrize(
    ("data", "headers", "status", "words"),
    [
        (zst(packed(**{"../out": b"x"})), ZSTD, 422, "../out"),
        (packed(**{"/etc/out": b"x"}), TAR, 422, "/etc/out"),
        (b"no archive", ZSTD, 400, "not a zstd"),
        (b"no archive" * 100, TAR, 400, "not a tar"),
        (b"", ZSTD, 400, "too early"),
        (b"", TAR, 400, "too early"),
        (zst(packed(file=os.urandom(5000)))[:-2000], ZSTD, 400, "too early"),
        (zst(packed(file=os.urandom(5000)))[:-1], ZSTD, 400, "too early"),
        (zst(packed(file=b"x")[:700]), ZSTD, 400, "too early"),
        (zst(packed(file=b"x")) + b"rubbish after it", ZSTD, 400, "not a zstd"),
        (zst(packed(zeros=bytes(MOST))), ZSTD, 413, "MAX_ARCHIVE_BYTES"),
        (zst(packed(file=b"x")), {"Content-Type": "application/gzip"}, 415, "application/zstd or application/x-tar"),
        (zst(packed(file=b"x")), {}, 415, "absent"),
    ],
    ids=[
        *("dots", "absolute", "not a zstd", "not a tar", "empty", "empty tar", "cut", "cut by a byte", "cut tar"),
        *("rubbish", "bomb", "gzip", "typeless"),
    ],
)
def test_an_archive_that_is_refused_leaves_no_sandbox_and_no_folder(api, folders, data, headers, status, words):
    response = upload(api, data, headers, sandbox_spec_id="free")

    assert response.status_code == status, response.text
    assert words in json.dumps(response.json()["detail"])
    assert api.call("GET", "/v1/sandboxes/search")["items"] == []
    assert not list(folders.glob("*/"))


def test_a_body_longer_than_the_bound_is_refused_before_it_is_read(api, folders):
    with socket.create_connection((api.client.base_url.host, api.client.base_url.port)) as connection:
        lines = ["POST /api/v1/sandboxes?from=archive HTTP/1.1", "Host: localhost", "Content-Type: application/x-tar"]
        connection.sendall("\r\n".join([*lines, f"Content-Length: {MOST + 1}", "", ""]).encode())

        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_body_of_another_request_keeps_its_bounds(api):
    too_long = bytes(9 * 1024 * 1024)

    assert api.client.post("/api/conversations", content=too_long, headers=TAR).status_code == 413


def test_an_upload_that_stops_leaves_no_sandbox_and_no_folder(api, folders):
    data = packed(file=random.Random(1).randbytes(8 << 20))
    with socket.create_connection((api.client.base_url.host, api.client.base_url.port)) as connection:
        lines = ["POST /api/v1/sandboxes?from=archive HTTP/1.1", "Host: localhost", "Content-Type: application/x-tar"]
        connection.sendall("\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data[: 6 << 20])
        wait_until(lambda: list(folders.glob("*/work.part/file")), "a folder that is being filled")

    wait_until(lambda: not api.call("GET", "/v1/sandboxes/search")["items"], "the end of the sandbox")
    wait_until(lambda: not list(folders.glob("*/")), "the end of its folder")


def test_a_sandbox_that_is_deleted_while_it_is_filled_ends_at_once(api, folders):
    data = packed(file=random.Random(1).randbytes(8 << 20))

    def pieces():
        yield data[: 6 << 20]
        wait_until(lambda: list(folders.glob("*/work.part/file")), "a folder that is being filled")
        [item] = api.call("GET", "/v1/sandboxes/search")["items"]
        assert item["status"] == "STARTING"
        api.call("DELETE", f"/v1/sandboxes/{item['id']}")
        yield data[6 << 20 :]

    response = upload(api, pieces(), TAR)

    assert response.status_code == 503
    assert "not wanted" in response.json()["detail"]


def test_an_upload_whose_supervisor_is_killed_fails_and_leaves_nothing(api, folders, server):
    data = packed(file=random.Random(1).randbytes(30 << 20))

    def pieces():
        yield data[: 10 << 20]
        wait_until(lambda: list(folders.glob("*/work.part/file")), "a folder that is being filled")
        supervisor_of(server[2]).kill()
        yield data[10 << 20 :]

    response = upload(api, pieces(), TAR)

    assert response.status_code == 503
    assert response.headers["Connection"] == "close"  # the rest of the body may never be read
    assert "broken off" in response.json()["detail"]
    wait_until(lambda: not list(folders.glob("*/")), "the end of its folder")


def test_a_download_whose_sandbox_is_deleted_breaks_off(api, box):
    sandbox, work = box
    random_file(work / "large", 64 << 20)

    with api.client.stream("GET", f"/api/v1/sandboxes/{sandbox['id']}/archive") as response:
        pieces = response.iter_raw()
        next(pieces)
        api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def test_a_download_breaks_off_when_its_supervisor_ends(api, box, server):
    sandbox, work = box
    random_file(work / "large", 64 << 20)

    with api.client.stream("GET", f"/api/v1/sandboxes/{sandbox['id']}/archive") as response:
        pieces = response.iter_raw()
        next(pieces)
        supervisor_of(server[2]).terminate()

        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def test_a_sandbox_of_a_host_that_does_not_answer_has_no_archive_now(api, box, server):
    sandbox, _ = box
    supervisor = supervisor_of(server[2])
    supervisor.suspend()
    try:
        response = download(api, sandbox["id"])
        assert response.status_code == 503
        assert "its supervisor is not running" in response.json()["detail"]
    finally:
        supervisor.resume()


def test_one_archive_more_than_a_host_packs_at_once_is_refused_until_one_has_ended(api, box):
    sandbox, work = box
    random_file(work / "large", 64 << 20)
    path = f"/api/v1/sandboxes/{sandbox['id']}/archive"

    with api.client.stream("GET", path) as one, api.client.stream("GET", path) as two:
        assert [one.status_code, two.status_code] == [200, 200]
        third = download(api, sandbox["id"])
        assert third.status_code == 503
        assert third.headers["Retry-After"]
        assert "which is its maximum" in third.json()["detail"]
        assert upload(api, zst(packed(file=b"x"))).status_code == 503
        assert len(api.call("GET", "/v1/sandboxes/search")["items"]) == 1
        copy = api.call("POST", "/v1/sandboxes", params={"from": sandbox["id"]})
        assert copy["status"] == "STARTING"

    api.wait_for(copy["id"], "RUNNING")
    wait_until(lambda: download(api, sandbox["id"]).status_code == 200, "a free place")


@pytest.mark.parametrize("paused", [False, True])
def test_a_download_has_every_file_of_a_sandbox_that_runs_or_is_paused(api, box, paused):
    sandbox, work = box
    (work / "folder").mkdir()
    (work / "folder" / "file").write_bytes(b"content")
    (work / "out").symlink_to("/etc/passwd")
    if paused:
        api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")

    response = download(api, sandbox["id"])

    assert response.headers["Content-Type"] == "application/zstd"
    assert response.headers["Content-Disposition"] == f"attachment; filename={sandbox['id']}.tar.zst"
    assert contents(response.content)["./folder/file"] == b"content"
    assert "./out" not in contents(response.content)


@pytest.mark.parametrize("path", ["nope/archive", "a.b/archive"])
def test_an_archive_of_an_unknown_sandbox_is_404(api, path):
    assert api.client.get(f"/api/v1/sandboxes/{path}").status_code == 404
    assert api.client.head(f"/api/v1/sandboxes/{path}").status_code == 404


def test_a_head_request_packs_nothing(api, box):
    for _ in range(4):
        wait_until(lambda: api.client.head(f"/api/v1/sandboxes/{box[0]['id']}/archive").status_code == 200, "a place")


@pytest.mark.parametrize("form", ["zstd", "tar"])
def test_an_uploaded_archive_becomes_the_files_of_a_new_sandbox(api, folders, form):
    data = packed(**{"./folder/file": b"content"})

    response = upload(api, data if form == "tar" else zst(data), TAR if form == "tar" else ZSTD, sandbox_spec_id="free")

    assert response.status_code == 200
    assert response.headers["Connection"] == "keep-alive"
    assert response.json()["sandbox_spec_id"] == "free"
    sandbox = api.wait_for(response.json()["id"], "RUNNING")
    assert (folders / sandbox["id"] / "work" / "folder" / "file").read_bytes() == b"content"
    assert contents(download(api, sandbox["id"]).content)["./folder/file"] == b"content"


def test_several_frames_are_one_archive(api, folders):
    data = packed(file=b"content")

    sandbox = upload(api, zst(data[:700]) + zst(b"") + zst(data[700:])).json()

    assert (folders / sandbox["id"] / "work" / "file").read_bytes() == b"content"


def test_a_slow_upload_may_take_longer_than_another_body(api, folders):
    data = packed(file=random.Random(1).randbytes(100_000))

    def pieces():
        for at in range(0, len(data), 10_000):
            yield data[at : at + 10_000]
            time.sleep(0.3)  # beyond BODY_SECONDS in all

    sandbox = upload(api, pieces(), TAR).json()

    assert (folders / sandbox["id"] / "work" / "file").stat().st_size == 100_000


@pytest.mark.parametrize("paused", [False, True])
def test_a_copy_has_the_files_of_its_source_as_its_own(api, box, folders, paused):
    sandbox, work = box
    (work / "file").write_bytes(b"content")
    if paused:
        api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")

    started = api.call("POST", "/v1/sandboxes", params={"from": sandbox["id"]})

    assert started["sandbox_spec_id"] == "free"
    copy = api.wait_for(started["id"], "RUNNING")
    (folders / copy["id"] / "work" / "file").write_bytes(b"changed")
    assert (work / "file").read_bytes() == b"content"
    assert copy["session_api_key"] != sandbox["session_api_key"]


def test_a_copy_may_have_another_spec(api, box):
    copy = api.call("POST", "/v1/sandboxes", params={"from": box[0]["id"], "sandbox_spec_id": "asks"})

    assert api.wait_for(copy["id"], "RUNNING")["sandbox_spec_id"] == "asks"


def test_a_copy_of_an_unknown_sandbox_is_404(api):
    for unknown in ("nope", "", "../x"):
        api.call("POST", "/v1/sandboxes", params={"from": unknown}, status=404)


def test_a_copy_whose_source_has_no_files_is_an_error_in_words(api, folders):
    absent = api.start_sandbox("absent")
    api.wait_for(absent["id"], "ERROR")
    copy = api.call("POST", "/v1/sandboxes", params={"from": absent["id"], "sandbox_spec_id": "free"})

    assert "No such file" in api.wait_for(copy["id"], "ERROR")["status_detail"]


class ArchivePeak:
    """The growth of the memory of a server's processes, as the kernel keeps its greatest."""

    def __init__(self, master) -> None:
        self._processes = [psutil.Process(master.pid), *psutil.Process(master.pid).children(recursive=True)]
        names = {each.pid: " ".join(each.cmdline()) for each in self._processes}
        self.pids = [pid for pid, name in names.items() if "gunicorn" in name or "supervisor" in name]
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the greatest begins again
        self._before = {pid: self._kib(pid, "VmRSS") for pid in self.pids}

    @staticmethod
    def _kib(pid: int, name: str) -> int:
        [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(name)]
        return int(line.split()[1])

    def growth(self) -> int:
        """KiB, of the process that grew most."""
        return max(self._kib(pid, "VmHWM") - before for pid, before in self._before.items())


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this kernel does not reset VmHWM")
def test_256_mib_are_downloaded_uploaded_and_copied_in_bounded_memory(api, box, folders, server):
    sandbox, work = box
    random_file(work / "large", 256 << 20)
    download(api, api.running_sandbox("free")["id"])  # what is loaded once
    peak = ArchivePeak(server[2])
    read, write = os.pipe()

    def pump() -> None:
        with (
            os.fdopen(write, "wb") as out,
            api.client.stream("GET", f"/api/v1/sandboxes/{sandbox['id']}/archive") as response,
        ):
            for piece in response.iter_raw():
                out.write(piece)

    thread = threading.Thread(target=pump)
    thread.start()
    with os.fdopen(read, "rb") as archive:
        uploaded = httpx.post(
            f"{api.client.base_url}/api/v1/sandboxes",
            params={"from": "archive"},
            content=iter(lambda: archive.read(1 << 16), b""),
            headers=ZSTD,
            timeout=120,
        )
    thread.join()
    copied = api.call("POST", "/v1/sandboxes", params={"from": sandbox["id"]})
    api.wait_for(copied["id"], "RUNNING")

    assert uploaded.status_code == 200
    for other in (uploaded.json()["id"], copied["id"]):
        assert (folders / other / "work" / "large").read_bytes() == (work / "large").read_bytes()
    assert peak.growth() < 64 * 1024
