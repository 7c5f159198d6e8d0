"""The seconds of a sandbox from its rest on disk to RUNNING, against a bare process; its files stay."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench import servers
from bench.measure import Effort, Row
from bench.sandboxes import answering, started, timed, wait
from specs import BUNDLED


def rows(effort: Effort) -> list[Row]:
    """Pause one sandbox of the bundled spec until its processes have ended, and resume it; again and again."""
    with ExitStack() as stack:
        bare = median(answering(stack, 1) for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="bench-rests-") as folder:
        specs = Path(folder) / "specs.toml"
        specs.write_text(BUNDLED.read_text().replace("idle_pause_seconds = 1200", "idle_stop_seconds = 0.01"))
        settings = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "HOST_ID": "bench", "SANDBOX_SPECS": str(specs)}
        with (
            servers.redis_server() as url,
            servers.gunicorn("app:create_app()", url, 2, **settings, DATA_DIR=folder) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30) as client,
        ):
            started(client, 1)
            [sandbox] = client.get("/sandboxes/search").json()["items"]
            kept = Path(folder) / "sandboxes" / "bench" / sandbox["id"] / "work" / "kept"
            kept.write_text("kept")
            seconds = [_rest(client, sandbox["id"]) for _ in range(effort.rests)]
            if kept.read_text() != "kept":
                raise RuntimeError("rests: a file of the sandbox has changed")
    return [
        Row(
            "a sandbox that rests on disk: resume to RUNNING, against the same agent server as a bare process",
            median(seconds) / bare,
            " ×",
            f"{1000 * median(seconds):.0f} ms against {1000 * bare:.0f} ms; largest {1000 * max(seconds):.0f} ms of "
            f"{len(seconds)} rests",
            raw={"ours": seconds, "theirs": bare, "unit": "s"},
        )
    ]


def _rest(client: httpx.Client, identity: str) -> float:
    """One rest; the seconds from the resume to RUNNING."""
    timed(client, f"/sandboxes/{identity}/pause")
    wait(lambda: "files are kept" in (_read(client, identity)["status_detail"] or ""))
    since = timed(client, f"/sandboxes/{identity}/resume")
    return since + wait(lambda: _read(client, identity)["status"] == "RUNNING")


def _read(client: httpx.Client, identity: str) -> dict[str, Any]:
    [found] = client.get("/sandboxes", params={"id": identity}).raise_for_status().json()
    return dict(found)
