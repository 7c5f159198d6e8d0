"""Read your writes: the next read on the other worker shows what one has acknowledged, in counts and searches too.

The writes go to the agent of a sandbox, which posts by a webhook what it did with a message or a pause: the response
comes after that. LONG=1: 500 writes of each kind.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID

import httpx
import psutil
import pytest

from tests.chance import often
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import SPECS

pytestmark = pytest.mark.process("starts a server of two workers, and a sandbox with the bundled agent")

#: writes of each kind
WRITES = often(10, 500)

#: writes of each kind over one pair of connections, which the server ends when they were idle for 5 s
ROUND = 10

Client = httpx.Client


@contextmanager
def each_worker(server: Client, master: int) -> Iterator[list[tuple[int, Client]]]:
    """The id of each of the two workers, and a client whose connection is kept, so that it stays with its worker."""
    found = dict[int, Client]()
    with ExitStack() as stack:

        def asks_another() -> bool:
            client = stack.enter_context(httpx.Client(base_url=server.base_url, timeout=30))
            client.get("/alive").raise_for_status()
            found.setdefault(worker_of(client, master), client)
            return len(found) == 2

        wait_until(asks_another, "a connection to each worker")
        yield list(found.items())


def worker_of(client: Client, master: int) -> int:
    """The id of the worker that has the only connection of a client."""
    [kept] = client._transport._pool.connections
    port = kept._connection._network_stream.get_extra_info("client_addr")[1]
    for worker in psutil.Process(master).children():
        if any(one.raddr and one.raddr.port == port for one in worker.net_connections()):
            return worker.pid
    raise AssertionError("no worker has the connection")


def next_reads(writer: Client, reader: Client, identity: str, numbers: range) -> Counter[str]:
    """The number of writes of each kind that the next read did not show.

    identity: of a conversation in a sandbox. numbers: of the writes, which go on from those before, from 1.
    """
    place, unseen = f"/api/conversations/{identity}", Counter[str]()

    def write(method: str, path: str, **options) -> None:
        writer.request(method, f"{place}{path}", **options).raise_for_status()

    def read(path: str = "", /, **query) -> httpx.Response:
        return reader.get(f"{place}{path}", params=query).raise_for_status()

    def look(kind: str, is_seen: Callable[[], bool]) -> None:
        unseen[kind] += not is_seen()

    users = {"kind": "MessageEvent", "source": "user"}
    for number in numbers:
        text = f"message {number} of these"
        write("POST", "/events", json={"role": "user", "content": [{"type": "text", "text": text}], "run": False})
        look("message", lambda: read("/events/search", body=text).json()["items"] != [])  # noqa: B023 - called at once
        look("count", lambda: read("/events/count", **users).json() == number)  # noqa: B023
        write("POST", "/pause")
        look("pause", lambda: read().json()["execution_status"] == "paused")
        policy = {"kind": "NeverConfirm" if number % 2 else "AlwaysConfirm"}
        write("POST", "/confirmation_policy", json={"policy": policy})
        look("policy", lambda: read().json()["confirmation_policy"]["kind"] == policy["kind"])  # noqa: B023
        write("PATCH", "", json={"title": f"title {number}."})
        titled = {"title__contains": f"title {number}."}
        path = "/api/v1/app-conversations/search"
        look("title", lambda: reader.get(path, params=titled).json()["items"] != [])  # noqa: B023
        write("PATCH", "", json={"tags": {"number": f"{number}"}})
        look("tags", lambda: read().json()["tags"]["number"] == f"{number}")  # noqa: B023
        write("POST", "/file/upload", params={"path": "note.txt"}, files={"file": ("note.txt", text.encode())})
        look("upload", lambda: read("/file/download", path="note.txt").text == text)  # noqa: B023
        write("POST", "/run")
        wait_until(lambda: read().json()["execution_status"] == "finished", "the end of the run")
    return unseen


def test_the_next_read_on_the_other_worker_shows_each_write(tmp_path):
    specs = tmp_path / "specs.toml"
    specs.write_text(SPECS)
    with supervised_server(tmp_path, SANDBOX_SPECS=str(specs), WEB_CONCURRENCY="2") as (server, master):
        identity = str(UUID(WireApi(server).app_conversation(sandbox_spec_id="free")["id"]))

        unseen = Counter[str]()
        for first in range(1, WRITES, ROUND):
            with each_worker(server, master.pid) as [(_, writer), (_, reader)]:
                unseen.update(next_reads(writer, reader, identity, range(first, first + ROUND)))

        assert {kind: number for kind, number in unseen.items() if number} == {}
        assert len(unseen) == 7
