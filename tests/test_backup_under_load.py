"""A backup that is taken under load has everything that was acknowledged before its command began.

Writers append events, decide actions, upload files and change settings, and note what was acknowledged. LONG=1: more
backups, and the server's workers are killed meanwhile.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from tests.approvals import DecidedConversation
from tests.backups import environment, restore
from tests.chance import often
from tests.conftest import action, message, status
from tests.servers import PROJECT, TIMEOUT, redis_program, supervised_server, valkey_program, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import SPECS

pytestmark = pytest.mark.faults("backs a server up while clients write, and kills backups")

BACKUPS, KILLED = often(3, 10), often(5, 40)


class Writers:
    """Four clients that write without a pause; what was acknowledged of each kind, in its order."""

    def __init__(self, client: httpx.Client, sandboxed: str) -> None:
        """sandboxed: id of a conversation in a sandbox."""
        self._url, self._sandboxed, self._stop = str(client.base_url), sandboxed, threading.Event()
        self.log = str(uuid4())
        self.acknowledged: dict[str, list[str]] = {"events": [], "decisions": [], "files": [], "settings": []}
        self._decided = DecidedConversation(client, str(uuid4()))
        kinds: dict[str, Callable[[httpx.Client, int], str]] = {
            "events": self._append,
            "decisions": self._decide,
            "files": self._upload,
            "settings": self._change,
        }
        self._threads = [threading.Thread(target=self._write, args=item) for item in kinds.items()]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT)

    def now(self) -> dict[str, set[str]]:
        """What is acknowledged at this moment."""
        return {kind: set(list(found)) for kind, found in self.acknowledged.items()}

    def found(self, client: httpx.Client) -> dict[str, set[str]]:
        """The same as a server has it."""
        events, page = set(), {}
        while True:
            reply = client.get(f"/api/conversations/{self.log}/events/search", params={"limit": 100, **page}).json()
            events |= {one["id"] for one in reply["items"]}
            if not reply["next_page_id"]:
                break
            page = {"page_id": reply["next_page_id"]}
        decided = DecidedConversation.__new__(DecidedConversation)
        decided.server, decided.id = client, self._decided.id
        place = f"/api/conversations/{self._sandboxed}/file/download"
        names = self.acknowledged["files"]
        files = {name for name in names if client.get(place, params={"path": name}).text == f"content of {name}"}
        return {
            "events": events,
            "decisions": {action_id for one in decided.entries for action_id in one["action_ids"]},
            "files": files,
            "settings": {one["name"] for one in client.get("/api/profiles").json()["profiles"]},
        }

    def _write(self, kind: str, act: Callable[[httpx.Client, int], str]) -> None:
        with httpx.Client(base_url=self._url, timeout=20) as client:
            number = 0
            while not self._stop.is_set():
                number += 1
                try:
                    self.acknowledged[kind].append(act(client, number))
                except httpx.HTTPError:
                    continue  # its worker was killed: it was not acknowledged

    def _append(self, client: httpx.Client, number: int) -> str:
        event = message(f"event {number} " + "x" * 500)
        client.post(f"/api/v1/webhooks/events/{self.log}", json=[event]).raise_for_status()
        return event["id"]

    def _decide(self, client: httpx.Client, number: int) -> str:
        asked, place = action(f"make {number}"), f"/api/v1/webhooks/events/{self._decided.id}"
        client.post(place, json=[status("running"), asked, status("waiting_for_confirmation")]).raise_for_status()
        body = {"accept": bool(number % 2), "reason": "because"}
        path = f"/api/conversations/{self._decided.id}/events/respond_to_confirmation"
        client.post(path, json=body).raise_for_status()
        return asked["id"]

    def _upload(self, client: httpx.Client, number: int) -> str:
        name = f"file-{number}.txt"
        files = {"file": (name, f"content of {name}".encode())}
        path = f"/api/conversations/{self._sandboxed}/file/upload"
        client.post(path, params={"path": name}, files=files).raise_for_status()
        return name

    def _change(self, client: httpx.Client, number: int) -> str:
        name = f"profile-{number % 40}-{number}"
        client.post(f"/api/profiles/{name}", json={"llm": {"model": "m/one"}}).raise_for_status()
        if number > 20:  # a key keeps a bounded number of them
            time.sleep(0.5)
        return name


def started(data: Path, file: Path) -> subprocess.Popen:
    words = [sys.executable, "-m", "admin", "backup", str(file)]
    return subprocess.Popen(words, cwd=PROJECT, env=environment(data), stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_everything_acknowledged_before_the_command_began_is_restored(tmp_path, kind):
    redis_program(), valkey_program()
    path = {} if kind == "redis" else {"PATH": str(tmp_path / "bin")}
    if path:
        link_all_but_redis(tmp_path / "bin")
    specs, data, chance = tmp_path / "specs.toml", tmp_path / "data", random.Random(47)
    specs.write_text(SPECS)
    settings = {"REDIS_URL": "", "SANDBOX_SPECS": str(specs), "SECRET_KEY": "", **path}
    known: list[tuple[Path, dict[str, set[str]]]] = []
    data.mkdir()
    with supervised_server(data, **settings) as (client, _):
        assert client.get("/ready").json()["store"]["kind"] == kind
        sandboxed = str(UUID(WireApi(client).app_conversation(sandbox_spec_id="free")["id"]))
        with Writers(client, sandboxed) as writers:
            for number in range(BACKUPS):
                wait_until(lambda: min(map(len, writers.acknowledged.values())) > 3, "writes of each kind")
                time.sleep(1)
                known.append((tmp_path / f"{number}.backup", writers.now()))
                with started(data, known[-1][0]) as taken:
                    assert taken.wait(TIMEOUT) == 0, taken.stderr.read()
            for _ in range(KILLED):
                with started(data, tmp_path / "killed.backup") as taken:
                    time.sleep(2 * chance.random())
                    taken.send_signal(signal.SIGKILL)
            assert client.get("/ready").status_code == 200

    for file, acknowledged in known:
        folder = tmp_path / "restored" / file.stem
        folder.parent.mkdir(exist_ok=True)
        told = restore(file, folder, **path)
        assert "dropped" not in told.stderr
        with supervised_server(folder, **settings) as (client, _):
            found = writers.found(client)
            lost = {kind: acknowledged[kind] - found[kind] for kind in acknowledged}
            assert lost == {kind: set() for kind in acknowledged}
    assert not [one for one in tmp_path.glob("*.backup") if one.stat().st_mode & 0o077]


def link_all_but_redis(folder: Path) -> None:
    """A folder of the programs in /usr/bin without redis-server, so that the wheel's Valkey is the store."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(("redis", "valkey")):
            (folder / program.name).symlink_to(program)
