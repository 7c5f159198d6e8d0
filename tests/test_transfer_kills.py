"""Workers are killed while clients export, import and adopt: what was acknowledged is whole, and a repeat goes on."""

import io
import random
import threading
import time
from operator import lt
from uuid import uuid4

import httpx
import psutil
import pytest

from schemas.exports import read_export
from tests.agents import running_sandbox, scripted_agent
from tests.chance import often
from tests.conftest import SECRET_KEY, limits_of, message, store_of
from tests.exports import sealed
from tests.servers import TIMEOUT, agent_server, store_server, wait_until

pytestmark = pytest.mark.faults("kills workers at random moments while clients export, import and adopt")

KILLS, EVENTS = often(3, 60), 300
LINES = {"Content-Type": "application/jsonl"}


class TransferClient(threading.Thread):
    """Repeats a transfer, each time of another conversation, until it is acknowledged."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        super().__init__()
        self._client, self._stopped = httpx.Client(base_url=url, timeout=20), stop
        self.done: list[str] = []
        self.repeats = 0

    def run(self) -> None:
        while not self._stopped.is_set():
            conversation = str(uuid4())
            self.transfer(conversation)
            self.done.append(conversation)
        self._client.close()

    def transfer(self, conversation: str) -> None:
        raise NotImplementedError

    def _until_taken(self, method: str, path: str, **options) -> httpx.Response:
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            try:
                response = self._client.request(method, path, **options)
            except httpx.TransportError:
                self.repeats += 1
                continue
            assert response.status_code in (200, 201), response.text
            return response
        raise TimeoutError(path)


class Exporter(TransferClient):
    """A response that ends properly is a whole export."""

    def __init__(self, url: str, stop: threading.Event, source: str, content: bytes) -> None:
        super().__init__(url, stop)
        self._path, self._content = f"/api/conversations/{source}/export", content

    def transfer(self, _conversation: str) -> None:
        assert self._until_taken("GET", self._path).content == self._content


class Importer(TransferClient):
    def __init__(self, url: str, stop: threading.Event, content: bytes) -> None:
        super().__init__(url, stop)
        self._lines = content.splitlines()[:-1]
        self._id = read_export(io.BytesIO(content))[0]["id"].encode()

    def transfer(self, conversation: str) -> None:
        lines = [self._lines[0].replace(self._id, conversation.encode()), *self._lines[1:]]
        taken = self._until_taken("POST", "/api/conversations/import", content=b"\n".join(sealed(lines)), headers=LINES)
        assert taken.json()["id"] == conversation


class Adopter(TransferClient):
    def __init__(self, url: str, stop: threading.Event, agent, box: str) -> None:
        super().__init__(url, stop)
        self._agent, self._box = agent, box

    def transfer(self, conversation: str) -> None:
        described = {"id": conversation, "title": f"Begun {conversation}", "execution_status": "idle"}
        self._agent.replies[f"/api/conversations/{conversation}"] = {**described, "tags": {"from": conversation[:8]}}
        self._until_taken("POST", f"/api/v1/sandboxes/{self._box}/conversations/{conversation}/adopt")


def test_transfers_whose_workers_are_killed_at_any_moment_are_whole_and_go_on_when_repeated(tmp_path):
    chance, stop = random.Random(31), threading.Event()
    with (
        store_server(tmp_path) as (url, _),
        agent_server(tmp_path / "log", REDIS_URL=url, SECRET_KEY=SECRET_KEY) as (client, master),
        scripted_agent() as agent,
    ):
        limits = limits_of(most=100, pause_idlest=False, host_seconds=3600, start_seconds=120)
        store = store_of(url, limits)
        with running_sandbox(store, agent.url) as sandbox:
            source = client.post("/api/conversations", json={}).json()["id"]
            for _ in range(EVENTS // 100):
                batch = [message("word " * 40) for _ in range(100)]
                assert client.post(f"/api/v1/webhooks/events/{source}", json=batch).status_code == 200
            content = client.get(f"/api/conversations/{source}/export").content
            target = (str(client.base_url), stop)
            importers = [Importer(*target, content) for _ in range(2)]
            adopters = [Adopter(*target, agent, sandbox.id) for _ in range(2)]
            clients = [Exporter(*target, source, content), *importers, *adopters]
            for one in clients:
                one.start()
            for _ in range(KILLS):
                before = list(map(number, (importers, adopters)))
                wait_until(lambda: all(map(lt, before, map(number, (importers, adopters)))), "more")  # noqa: B023
                time.sleep(chance.random() / 5)
                chance.choice(psutil.Process(master.pid).children()).kill()
            stop.set()
            for one in clients:
                one.join(TIMEOUT)
                assert not one.is_alive()
            wait_until(lambda: client.get("/ready").status_code == 200, "the server")

            assert sum(one.repeats for one in clients) > 0
            imported, adopted = ({one for each in some for one in each.done} for some in (importers, adopters))
            assert listed(client) == {source} | imported | adopted
            for one in imported:
                events = client.get(f"/api/conversations/{one}/export").content.splitlines()[1:-1]
                assert events == content.splitlines()[1:-1]
            for one in adopted:
                state = client.get(f"/api/conversations/{one}").json()
                assert (state["title"], state["tags"]) == (f"Begun {one}", {"from": one[:8]})
            redis = store.events._redis
            assert all(redis.ttl(key) > 0 for key in redis.scan_iter("conv:*:fork:*"))


def number(clients: list[TransferClient]) -> int:
    """How many transfers of some clients were acknowledged."""
    return sum(len(one.done) for one in clients)


def listed(client: httpx.Client) -> set[str]:
    found, page = [], None
    while page is not None or not found:
        query = {"limit": 100} | ({"page_id": page} if page else {})
        answer = client.get("/api/conversations/search", params=query).json()
        found += [item["id"] for item in answer["items"]]
        page = answer["next_page_id"]
    assert len(found) == len(set(found))
    return set(found)
