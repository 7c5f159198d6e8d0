"""Download, upload and copy a sandbox of 1 GB; prints seconds and the growth of the server's memory:

python -m bench.archives [MIB]
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import httpx
import psutil

from bench import servers

_SETTINGS = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "HOST_ID": "bench", "MAX_ARCHIVE_BYTES": str(1 << 40)}

#: seconds between two polls, and until a step counts as failed
_POLL, _TIMEOUT = 0.02, 600.0

_MIB = 1 << 20


def main() -> int:
    """Half of the content is random and half compresses well."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with (
        tempfile.TemporaryDirectory(prefix="bench-archives-") as folder,
        servers.redis_server(durable=True) as url,
        servers.gunicorn("app:create_app()", url, 2, **_SETTINGS, DATA_DIR=folder) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=_TIMEOUT) as client,
    ):
        source = _started(client)
        archive = Path(folder) / "archive.tar.zst"
        _fill(Path(folder) / "sandboxes" / "bench" / source / "work" / "large", size)
        for name, step in {
            "download": lambda: _download(client, source, archive),
            "upload": lambda: _upload(client, archive),
            "copy": lambda: _started(client, **{"from": source}),
        }.items():
            seconds, growth = _measured(step)
            print(f"{name:9} {size} MiB: {seconds:6.1f} s, {size / seconds:6.0f} MiB/s; {growth}", flush=True)
        print(f"archive: {archive.stat().st_size / _MIB:.0f} MiB")
    return 0


def _fill(path: Path, size: int) -> None:
    random = Random(1)
    with path.open("wb") as file:
        for number in range(size):
            file.write(random.randbytes(_MIB) if number % 2 else (b"%d " % number * 200_000)[:_MIB])


def _download(client: httpx.Client, sandbox_id: str, archive: Path) -> None:
    with client.stream("GET", f"/sandboxes/{sandbox_id}/archive") as response, archive.open("wb") as file:
        response.raise_for_status()
        for piece in response.iter_raw():
            file.write(piece)


def _upload(client: httpx.Client, archive: Path) -> None:
    def pieces() -> Iterator[bytes]:
        with archive.open("rb") as file:
            while piece := file.read(_MIB):
                yield piece

    headers = {"Content-Type": "application/zstd", "Content-Length": str(archive.stat().st_size)}
    response = client.post("/sandboxes", params={"from": "archive"}, content=pieces(), headers=headers)
    response.raise_for_status()


def _started(client: httpx.Client, **query: str) -> str:
    """The id of a new sandbox that runs."""
    response = client.post("/sandboxes", params=query)
    response.raise_for_status()
    identity: str = response.json()["id"]
    deadline = time.monotonic() + _TIMEOUT
    while (found := client.get("/sandboxes", params={"id": identity}).json()[0])["status"] != "RUNNING":
        if found["status"] == "ERROR" or time.monotonic() > deadline:
            raise RuntimeError(found["status_detail"])
        time.sleep(_POLL)
    return identity


def _measured(step: Callable[[], object]) -> tuple[float, str]:
    """Seconds, and the growth of the memory of the workers, the supervisor and Redis during the step."""
    processes = {each.pid: _role(each) for each in psutil.Process().children(recursive=True)}
    before = {pid: (role, _memory(pid, "VmRSS")) for pid, role in processes.items() if role}
    for pid in before:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the kernel's peak begins again
    began = time.monotonic()
    step()
    seconds = time.monotonic() - began
    growth: dict[str, float] = {}
    for pid, (role, kib) in before.items():
        growth[role] = max(growth.get(role, 0.0), (_memory(pid, "VmHWM") - kib) / 1024)
    return seconds, ", ".join(f"{role} +{mib:.0f} MiB" for role, mib in sorted(growth.items()))


def _role(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    roles = {"--stand-by": "supervisor", "gunicorn": "worker", "redis-server": "redis"}
    return next((role for word, role in roles.items() if word in words), "")


def _memory(pid: int, name: str) -> int:
    """KiB. Source: proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))


if __name__ == "__main__":
    sys.exit(main())
