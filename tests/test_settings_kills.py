"""Workers are killed while clients write settings: what was acknowledged is kept, and a rename happens whole or not."""

import os
import random
import signal
import threading
import time

import httpx
import psutil
import pytest

from tests.chance import often
from tests.servers import TIMEOUT, agent_server, store_server, wait_until

pytestmark = pytest.mark.faults("kills workers at random moments while clients write settings")

SECONDS, WRITERS = often(10, 60), 3


class SettingsWriter(threading.Thread):
    """Renames a profile of its own again and again, and puts a secret after each rename."""

    def __init__(self, url: str, mine: str, stop: threading.Event) -> None:
        super().__init__()
        self._client, self._mine, self._stopped = httpx.Client(base_url=url, timeout=20), mine, stop
        self.names = [f"{mine}-0"]  #: that the profile may have: the last one that is known, and the one that was tried
        self.number, self.secret = 0, -1

    def run(self) -> None:
        self._until_taken("POST", f"/api/profiles/{self.names[0]}", {"llm": {"model": f"m/{self._mine}"}})
        while not self._stopped.is_set():
            self.number += 1
            new = f"{self._mine}-{self.number}"
            self.names = [self.names[0], new]
            status = self._until_taken("POST", f"/api/profiles/{self.names[0]}/rename", {"new_name": new})
            assert status in (200, 404)  # the rename before the kill took place
            self.names = [new]
            secret = {
                "name": f"{self._mine.upper()}_SECRET",
                "value": str(self.number),
                "description": str(self.number),
            }
            self._until_taken("PUT", "/api/settings/secrets", secret)
            self.secret = self.number
        self._client.close()

    def _until_taken(self, method: str, path: str, body: dict) -> int:
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            try:
                return self._client.request(method, path, json=body).status_code
            except httpx.TransportError:
                continue
        raise TimeoutError(path)


def test_settings_that_were_acknowledged_outlive_workers_that_are_killed_at_any_moment(tmp_path):
    chance, stop, killed = random.Random(20), threading.Event(), 0
    with (
        store_server(tmp_path) as (url, _),
        agent_server(tmp_path / "log", REDIS_URL=url) as (client, master),
    ):
        writers = [SettingsWriter(str(client.base_url), f"w{number}", stop) for number in range(WRITERS)]
        for one in writers:
            one.start()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(3 * chance.random())
            if workers := psutil.Process(master.pid).children():
                os.kill(chance.choice(workers).pid, signal.SIGKILL)
                killed += 1
        stop.set()
        for one in writers:
            one.join(TIMEOUT)
            assert not one.is_alive()
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")

        assert killed > 2
        profiles = [one["name"] for one in client.get("/api/profiles").json()["profiles"]]
        secrets = {one["name"]: one["description"] for one in client.get("/api/settings/secrets").json()["secrets"]}
        assert sorted(profiles) == sorted(one.names[0] for one in writers)
        assert secrets == {f"W{number}_SECRET": str(one.secret) for number, one in enumerate(writers)}
        for one in writers:
            assert one.number > 2
            config = client.get(f"/api/profiles/{one.names[0]}").json()["config"]
            assert config["model"] == f"m/{one._mine}"
