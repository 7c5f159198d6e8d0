"""A disk that fails under the embedded store is named, loses nothing acknowledged, and the server goes on after it."""

import shutil
import subprocess
import threading

import pytest

from tests.boot.test_embedded import ids_of, write_until
from tests.conftest import message
from tests.servers import agent_server, wait_until

#: fails each call about the store's file with EIO, as a disk does, while the file FAILING is there
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    char link[64], path[4096];
    if (access(FAILING, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, ".aof") != NULL;
}

ssize_t write(int fd, const void *from, size_t count) {
    if (WRITES && fails(fd)) { errno = EIO; return -1; }
    return ((ssize_t (*)(int, const void *, size_t)) dlsym(RTLD_NEXT, "write"))(fd, from, count);
}

int fdatasync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""


@pytest.fixture(params=["write", "fdatasync"])
def failing(request, tmp_path):
    """The file that makes the disk fail while it is there, and the library that does it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here, by which a disk fails")
    flag, library = tmp_path / "failing", tmp_path / "failing.so"
    defined = [f'-DFAILING="{flag}"', f"-DWRITES={int(request.param == 'write')}"]
    command = [compiler, "-shared", "-fPIC", "-x", "c", *defined, "-o", library, "-", "-ldl"]
    subprocess.run(command, input=SHIM, text=True, check=True)
    return flag, library


@pytest.mark.faults("has a disk fail")
def test_a_disk_that_fails_is_named_and_what_was_acknowledged_is_there_when_it_works_again(
    tmp_path, conversation, failing
):
    flag, library = failing
    data = tmp_path / "data"
    settings = {"REDIS_URL": "", "DATA_DIR": str(data), "WEB_CONCURRENCY": "1", "LD_PRELOAD": str(library)}
    with agent_server(tmp_path / "log", **settings) as (client, _):
        stopped, acknowledged = threading.Event(), []
        writer = threading.Thread(target=write_until, args=(stopped, str(client.base_url), conversation, acknowledged))
        writer.start()
        wait_until(lambda: len(acknowledged) > 20, "twenty events")
        flag.touch()
        url = f"/api/v1/webhooks/events/{conversation}"
        wait_until(lambda: client.post(url, json=[message("refused")]).status_code == 503, "the refusal")
        said = f"cannot write its file in {data}. The disk failed: Input/output error. "
        wait_until(lambda: said in (tmp_path / "log").read_text(), "the line of the log")
        flag.unlink()
        before = len(acknowledged)
        wait_until(lambda: len(acknowledged) > before + 20, "twenty events more")
        stopped.set()
        writer.join()
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")
        found = ids_of(client, conversation)
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
