"""Workers, Redis and hooks are killed while hooks ask: each request is decided once, and nothing else is executed.

Half of the requests are answered at their "terminal", the others in the inbox or by a rule; the terminal and the inbox
may answer the same one at once.
"""

import contextlib
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import uuid4

import httpx
import psutil
import pytest

from tests.approvals.terminals import REQUESTS, AskedTerminal
from tests.chance import often
from tests.servers import TIMEOUT, agent_server, store_server, wait_until

pytestmark = pytest.mark.faults("kills workers and Redis at random moments while hooks ask")

HOOKS, EACH = often(12, 50), often(8, 20)
ADMIN = "an-admin-key-for-tests-only"
LEASE = 8

#: Seconds after which a request that got no answer has failed: a slow machine starts its workers slowly.
PATIENCE = 4 * TIMEOUT


class KilledServer:
    """A server and its Redis, both of which are killed now and then; requests are repeated until they are answered."""

    def __init__(self, folder) -> None:
        self.folder, self.stack, self.killed = folder, contextlib.ExitStack(), []
        self.store = self.stack.enter_context(contextlib.ExitStack())
        url, self.redis = self.store.enter_context(store_server(folder))
        settings = {"SESSION_API_KEY": ADMIN, "MAX_FOLLOWERS_PER_KEY": "1000", "RATE_LIMIT_FAILURES": "none"}
        client, self.master = self.stack.enter_context(agent_server(folder / "log", REDIS_URL=url, **settings))
        self.url = client.base_url

    def kill_a_worker(self) -> None:
        if workers := psutil.Process(self.master.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                random.choice(workers).send_signal(signal.SIGKILL)
                self.killed.append("worker")

    def kill_redis(self) -> None:
        self.redis.kill()
        self.redis.wait()
        self.store.close()
        _, self.redis = self.store.enter_context(store_server(self.folder))
        self.killed.append("redis")

    def ask(self, client, method: str, path: str, key: str, body=None, once: str = ""):
        """The response to a request; nobody knows what became of one that got none, so it is sent again."""
        headers = {"X-Session-API-Key": key} | ({"Idempotency-Key": once} if once else {})
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                response = client.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                continue
            if response.status_code not in (429, 500, 502, 503, 507) and "Retry-After" not in response.headers:
                return response
            time.sleep(0.05)
        raise TimeoutError(path)


class KilledHook:
    """A hook, and the terminal that it is at: it asks again and again, and may be killed as it waits."""

    def __init__(self, server: KilledServer, key: str, chance: random.Random) -> None:
        self.server, self.key, self.chance = server, key, chance
        self.client = httpx.Client(base_url=server.url, timeout=20)
        self.terminal = AskedTerminal(SimpleNamespace(keys={}), key)
        self.asked: list[SimpleNamespace] = []

    def run(self) -> None:
        for number in range(EACH):
            self.one(f"touch {number} {uuid4().hex[:8]}", number)
        self.client.close()

    def one(self, command: str, number: int) -> None:
        tool = "ByRule" if number % 5 == 3 else "Bash"
        body = {**self.terminal.whole, "tool_name": tool, "arguments": {"command": command}}
        body |= {"lease_seconds": LEASE, "order": "races", "expires_in": 600}
        response = self.server.ask(self.client, "POST", REQUESTS, self.key, body, once=uuid4().hex)
        assert response.status_code == 201, response.text
        found = SimpleNamespace(**response.json(), command=command, executed=False, claimed="", is_killed=False)
        self.asked.append(found)
        path = f"{REQUESTS}/{found.id}"
        answers, dies = number % 2 == 0, self.chance.random() < 0.1
        if answers:
            time.sleep(self.chance.random() / 4)
            told = {"outcome": self.chance.choice(("allowed", "refused"))}
            response = self.server.ask(self.client, "POST", f"{path}/outcome", self.key, told, once=uuid4().hex)
            assert response.status_code in (200, 409), response.text
            found.claimed = told["outcome"] if response.status_code == 200 else ""
        if dies and not answers:
            found.is_killed = True
            return
        state = "pending"
        until = time.monotonic() + PATIENCE
        while state == "pending" and time.monotonic() < until:
            shown = self.server.ask(self.client, "GET", f"{path}?wait=2", self.key).json()
            state = shown["state"]
        assert state != "pending", "open for ever"
        if state == "approved":
            found.executed = True
            told = {**self.terminal.whole, "kind": "call", "tool_name": tool, "arguments": {"command": command}}
            self.server.ask(self.client, "POST", f"{REQUESTS}/reports", self.key, told, once=uuid4().hex)


def decide_what_waits(server: KilledServer, stop: threading.Event, decided: list[int]) -> None:
    """A person who decides every other item of the inbox, at random."""
    chance = random.Random(7)
    with httpx.Client(base_url=server.url, timeout=20) as client:
        while not stop.is_set():
            page = server.ask(client, "GET", "/api/v1/pending-actions", ADMIN).json()
            for item in page["items"]:
                number = int(item["arguments"]["command"].split()[1])
                if number % 2 == 0 and chance.random() < 0.7:
                    continue  # most of these are the terminal's
                one = {"action_id": item["action_id"], "decision": chance.choice(("approve", "reject"))}
                path = f"/api/v1/conversation/{item['conversation_id']}/pending-actions/decisions"
                answer = server.ask(client, "POST", path, ADMIN, {"decisions": [one]}, once=uuid4().hex)
                decided.append(answer.status_code)
            time.sleep(0.05)


def kill_until(server: KilledServer, stop: threading.Event) -> None:
    """Kill again once the server answers: on a slow machine it would do nothing but start otherwise."""
    chance = random.Random(3)
    with httpx.Client(base_url=server.url, timeout=5) as client:
        while not stop.wait(0.5 + 2 * chance.random()):
            with contextlib.suppress(httpx.TransportError):
                if client.get("/ready").status_code == 200:
                    server.kill_redis() if chance.random() < 0.25 else server.kill_a_worker()


def entries_of(server: KilledServer, client, conversation_id: str) -> list[dict]:
    found, page = [], ""
    while True:
        path = f"/api/v1/conversation/{conversation_id}/audit?limit=100{page}"
        got = server.ask(client, "GET", path, ADMIN).json()
        found += got["items"]
        if not got["next_page_id"]:
            return found
        page = f"&page_id={got['next_page_id']}"


def test_hooks_that_ask_under_kills_are_answered_once_and_execute_nothing_undecided(tmp_path, capsys):
    server, stop, decided = KilledServer(tmp_path), threading.Event(), []
    with server.stack, httpx.Client(base_url=server.url, timeout=20) as client:
        made = server.ask(client, "POST", "/api/v1/keys", ADMIN, {"name": "hooks", "scopes": ["ask"]}).json()
        rule = {"decision": "approve", "tool_name": "ByRule"}
        assert server.ask(client, "POST", "/api/v1/approval-rules", ADMIN, rule).status_code == 201
        hooks = [KilledHook(server, made["key"], random.Random(number)) for number in range(HOOKS)]
        person = threading.Thread(target=decide_what_waits, args=(server, stop, decided))
        killer = threading.Thread(target=kill_until, args=(server, stop))
        person.start()
        killer.start()
        try:
            with ThreadPoolExecutor(HOOKS) as pool:
                done = [pool.submit(hook.run) for hook in hooks]
                for one in done:
                    one.result()
        finally:
            stop.set()
            person.join()
            killer.join()
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")
        count = "/api/v1/pending-actions/count"
        wait_until(lambda: server.ask(client, "GET", count, ADMIN).json() == 0, "an inbox without open requests")

        verdicts: list[str] = []
        for hook in hooks:
            entries = entries_of(server, client, hook.asked[0].conversation_id)
            by_action: dict[str, list[dict]] = {}
            for entry in entries:
                for action_id in entry["action_ids"]:
                    by_action.setdefault(action_id, []).append(entry)
            assert not any(entry["decision"] == "unapproved" for entry in entries)
            for asked in hook.asked:
                [entry] = by_action[asked.action_id]  # neither lost nor decided twice
                verdicts.append(f"{entry['decision']} by {entry['actor']['kind']}")
                assert entry["decision"] == "approve" or not asked.executed
                if asked.claimed:  # the terminal was told that it had won
                    assert entry["actor"]["kind"] == "terminal"
                    assert entry["decision"] == {"allowed": "approve", "refused": "reject"}[asked.claimed]
                if entry["decision"] == "withdrawn":
                    assert asked.is_killed or asked.claimed == ""
        with capsys.disabled():
            print({one: verdicts.count(one) for one in sorted(set(verdicts))})
            print({one: server.killed.count(one) for one in sorted(set(server.killed))}, len(verdicts), "requests")
        assert len(verdicts) == HOOKS * EACH
        assert {"approve by terminal", "reject by terminal", "approve by key", "approve by rule"} <= set(verdicts)
