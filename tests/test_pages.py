"""Every command of the pages that a newcomer reads, typed in a fresh copy of the project that has `.venv/run` alone.

A `sh` block runs as it stands, in the order of its page, but for the port and what `REPLACED` names. `LEFT_OUT` has
each line that is not typed here, with the reason.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import httpx
import pytest

from tests.agents.scripted_model import calls, run, scripted_model
from tests.servers import PROJECT, free_port, program, store_server, wait_until

pytestmark = pytest.mark.process("sets up a copy of the project with pip, and starts servers")

PAGES = (
    *("README", "docs/tour", "docs/agents", "docs/egress", "docs/client", "docs/operations", "docs/approvals"),
    *("docs/backup", "docs/upgrade", "docs/troubleshooting"),
)

#: lines that are not typed, each with the reason
LEFT_OUT = {
    "make test ": "it is the run that this test is part of",
    "sudo apt-get install": "it changes the machine",
    "make openhands": "it needs Python 3.12 and fetches 700 MB; tests/interop runs that agent",
    "SANDBOX_SPECS=openhands.toml": "it runs what `make openhands` has fetched",
    "make agent NAME=": "it fetches up to 500 MB from the npm registry",
    "agentctl run --agent": "it runs what `make agent` has fetched; tests/interop runs those agents",
    "docker compose up": "tests/image runs the image",
    "git checkout EARLIER-RELEASE": "the copy has one release",
}

#: what stands for an address or a file of the reader's
REPLACED = {
    "pipx install ./client": ".venv/bin/pip install --quiet ./client",
    "git pull && make run": "make run",  # the copy has nothing to pull from
    "agentctl logs ID": "agentctl logs $ID",
    "--heads heads-before": "--heads heads-today",
    "redis://localhost:6379/0": "$REDIS_URL",
    "$ID/events/stream ": "$ID/events/stream || true ",  # it ends by its --max-time
}

#: how a line begins that starts a program which lasts
SERVES = re.compile(r"(?:^|\s)(?:make run|gunicorn -c|python -m supervisor)(?:\s|$)")

SECONDS = 300


class PageReader:
    """Types the lines of a page in the copy, and stops at the end what it has started."""

    def __init__(self, place: Path, folder: Path, **environment: str) -> None:
        self.place, self.folder = place, folder
        self.port = str(free_port())
        self.environment = {
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
            "PATH": f"{place}/.venv/bin:{_path_without_venv()}",
            "PORT": self.port,
            "DATA_DIR": str(folder / "data"),
            "CURL_HOME": str(folder),  # with which a refused request fails its line
            "SERVER": f"http://127.0.0.1:{self.port}",
            "AGENT_SERVER_URL": f"http://127.0.0.1:{self.port}",
            **environment,
        }
        (folder / ".curlrc").write_text("fail-with-body\n")
        self._running: list[subprocess.Popen[bytes]] = []

    def read(self, script: str) -> str:
        """Type a block. A line that starts a server ends the one before it and waits until it is ready."""
        printed, lines = "", list[str]()
        for line in self._mine(script).splitlines():
            if SERVES.search(line):
                printed += self._typed("\n".join(lines))
                lines = []
                self._serve(line)
            else:
                lines.append(line)
        return printed + self._typed("\n".join(lines))

    def _typed(self, script: str) -> str:
        if not script.strip():
            return ""
        # A page defines names in one block and uses them in the next ones.
        names = self.folder / "names"
        known = f"source {names}\n" if names.exists() else ""
        keeps = f"\n{{ declare -f; declare -p ID API id digest decision || true; }} > {names} 2> /dev/null"
        ran = subprocess.run(
            [program("bash"), "-ec", known + script + keeps],
            cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _serve(self, line: str) -> None:
        self.stop()
        with (self.folder / "log").open("ab") as log:
            started = subprocess.Popen(
                [program("bash"), "-c", line],
                cwd=self.place, env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running.append(started)
        if "supervisor" in line:
            wait_until(lambda: b"supervisor" in (self.folder / "log").read_bytes(), "the supervisor", seconds=SECONDS)
            assert started.poll() is None, (self.folder / "log").read_text()
            return
        url = f"http://127.0.0.1:{self.port}/ready"
        ready = lambda: started.poll() is not None or httpx.get(url).status_code == 200  # noqa: E731
        wait_until(ready, f"a server that is ready: {line}", seconds=SECONDS)
        assert started.poll() is None, (self.folder / "log").read_text()

    def _mine(self, script: str) -> str:
        for words, own in REPLACED.items():
            script = script.replace(words, own)
        kept = [line for line in script.splitlines() if not any(line.startswith(words) for words in LEFT_OUT)]
        return "\n".join(kept).replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")

    def stop(self) -> None:
        """End what runs, as Ctrl-C does."""
        while self._running:
            process = self._running.pop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                pytest.fail("the server did not end after Ctrl-C")
            assert "Traceback" not in (self.folder / "log").read_text()


def _path_without_venv() -> str:
    own = str(Path(sys.prefix) / "bin")
    return os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if one != own)


def blocks(page: str) -> list[str]:
    found = re.findall(r"^ *```sh\n(.*?)^ *```", (PROJECT / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    return [dedent(block) for block in found]


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The files of the project as Git knows them, with `.venv/run` made by make."""
    place = tmp_path_factory.mktemp("newcomer") / "agent-server"
    listed = subprocess.run(
        [program("git"), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, place / name)
    python = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}")
    ran = subprocess.run(
        ["make", ".venv/run", f"PYTHON={python}"], cwd=place, capture_output=True, text=True, timeout=900, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return place


@pytest.fixture
def reader(copy, tmp_path) -> Iterator[type[PageReader]]:
    made = list[PageReader]()

    def make(**environment: str) -> PageReader:
        made.append(PageReader(copy, tmp_path, **environment))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_the_readme(reader):
    newcomer = reader()
    for block in blocks("README"):
        newcomer.read(block)


def test_the_tour(reader):
    newcomer = reader()
    newcomer.read("make run")
    _key, *rest = blocks("docs/tour")  # the first block is for a server that has a key
    printed = newcomer.read("make demo") + "".join(newcomer.read(block) for block in rest)

    assert "Rejecting it: success is true" in printed
    assert printed.count("GNU/Linux") >= 2  # the agent outside of a sandbox, and the one in it
    assert not (newcomer.place / ".venv" / "dev").exists()


def test_agents(reader):
    with scripted_model() as model:
        model.script = [calls(run("date > today.txt && cat today.txt"))]
        newcomer = reader()
        newcomer.read(f"LLM_MODEL=scripted LLM_API_KEY=sk-scripted LLM_BASE_URL={model.url} make run")
        for block in blocks("docs/agents"):
            newcomer.read(block)


@pytest.mark.parametrize(("page", "begins"), [("docs/egress", ""), ("docs/client", "make run")])
def test_pages_of_a_server(reader, page, begins):
    newcomer = reader()
    for block in (begins, *blocks(page)):
        newcomer.read(block)


def test_operations(reader, tmp_path):
    with store_server(tmp_path) as (url, _):
        newcomer = reader(REDIS_URL=url, SECRET_KEY="a key for tests only")
        for block in blocks("docs/operations"):
            newcomer.read(block)


def test_approvals(reader):
    newcomer = reader(SESSION_API_KEY="a-key-of-the-reader")
    newcomer.read("make run")
    for block in blocks("docs/approvals"):
        newcomer.read(re.sub(r"(curl -sN .*)", r"\1 --max-time 2 || true", block))


def test_backup(reader, tmp_path):
    newcomer = reader(HOME=str(tmp_path))
    newcomer.read("make run\nmake demo")
    for block in blocks("docs/backup"):
        newcomer.read(block)

    assert "count" in newcomer.read('echo count; curl -s "$SERVER/api/conversations/count" | grep -x 1')


def test_upgrade(reader, tmp_path):
    newcomer = reader(HOME=str(tmp_path))
    newcomer.read("make run\nmake demo")
    upgrade, roll_back = blocks("docs/upgrade")
    newcomer.read(upgrade)
    newcomer.stop()
    newcomer.read(roll_back)


def test_troubleshooting(reader):
    newcomer = reader()
    newcomer.read("make run\nmake demo\n.venv/bin/pip install --quiet ./client")
    newcomer.read("ID=$(agentctl ls | cut -f1)")
    for block in blocks("docs/troubleshooting"):
        newcomer.read(block)
