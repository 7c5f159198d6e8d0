"""Hundreds of races about one action each, on two servers: one outcome, one entry of the audit, one consumption.

Whoever can decide an action decides it at once: people who approve, reject or edit, a rule, the deadline, a run, a
message. In every tenth race a worker or a supervisor is killed.
"""

import io
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from uuid import uuid4

import httpx
import psutil
import pytest

from admin.audit import verify
from tests.chance import often
from tests.conftest import action
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.faults("hundreds of races on two servers, with kills")

RACES, LANES = often(100, 1000), 8
CONTENDERS = ("approve", "reject", "edit", "accept all", "run", "message")
WAITS = "waiting_for_confirmation"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two servers on one Redis, each with two workers and a supervisor: the addresses, and the master processes."""
    folder = tmp_path_factory.mktemp("races")
    with store_server(folder) as (url, _):
        ours = [folder / "one", folder / "two"]
        for each in ours:
            each.mkdir()
        settings = [{"SUPERVISOR": "1", "HOST_ID": each.name, "DATA_DIR": str(each)} for each in ours]
        with (
            agent_server(ours[0] / "log", REDIS_URL=url, **settings[0]) as (one, first),
            agent_server(ours[1] / "log", REDIS_URL=url, **settings[1]) as (two, second),
        ):
            yield [one.base_url, two.base_url], [first, second]


def kill_one(masters) -> None:
    """Kill a worker or a supervisor of one of the servers; its master, or its keeper, starts another."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(random.choice(masters).pid).children(recursive=True)
        random.choice([one for one in children if not any("boot.keeper" in word for word in one.cmdline())]).kill()


class ApprovalRace:
    """One action, and all that decide it at once."""

    def __init__(self, number: int, http: list[httpx.Client], kill) -> None:
        self.id = str(uuid4())
        self.number, self.http, self.kill = number, http, kill
        self.by_rule, self.expires = number % 3 == 0, number % 4 == 1
        self.action = action("make race", tool_name="by rule" if self.by_rule else "terminal")
        self.claimed: list[str] = []  #: contenders that were told that their decision took effect

    def begin(self) -> None:
        start = {"conversation_id": self.id, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        self.send("POST", "/api/conversations", start | ({"confirmation_seconds": 1} if self.expires else {}))
        told = {"id": f"told {self.id}", "timestamp": "2026-01-01T00:00:00", "source": "environment"}
        told |= {"key": "capabilities", "value": ["edit"], "kind": "ConversationStateUpdateEvent"}
        self.send("POST", f"/api/v1/webhooks/events/{self.id}", [told])

    def run(self) -> None:
        contenders = random.sample(CONTENDERS, 4)
        with ThreadPoolExecutor(len(contenders) + 1) as pool:
            barrier = threading.Barrier(len(contenders) + 1)
            posted = pool.submit(self.post, barrier)
            done = [pool.submit(self.contend, one, barrier) for one in contenders]
            if self.number % 10 == 0:
                self.kill()
            posted.result()
            for each in done:
                each.result()

    def post(self, barrier) -> None:
        """The agent proposes the action: of some races before the others begin, of those of a rule at the same time."""
        if self.by_rule:
            barrier.wait(60)
        self.send("POST", f"/api/v1/webhooks/events/{self.id}", [self.action])
        if not self.by_rule:
            barrier.wait(60)

    def contend(self, what: str, barrier) -> None:
        barrier.wait(60)
        if self.expires:
            time.sleep(random.uniform(0.9, 1.1))
        if self.by_rule:  # while the action is on its way
            wait_until(
                lambda: self.get(f"/api/conversations/{self.id}/events/count?kind=ActionEvent") == 1, "the action"
            )
        client = self.http[hash(what) % 2]
        each = {"action_id": self.action["id"], "decision": what, "reason": f"by {what}"}
        decisions = f"/api/v1/conversation/{self.id}/pending-actions/decisions"
        try:
            match what:
                case "approve" | "reject":
                    won = client.post(decisions, json={"decisions": [each]}).status_code == 200
                case "edit":
                    each["arguments"] = {"command": "true"}
                    won = client.post(decisions, json={"decisions": [each]}).status_code == 200
                case "accept all":
                    url = f"/api/conversations/{self.id}/events/respond_to_confirmation"
                    won = client.post(url, json={"accept": True, "reason": ""}).json().get("success", False)
                case "run":
                    won = False  # a run succeeds also where it decides nothing
                    client.post(f"/api/conversations/{self.id}/run")
                case "message":
                    won = False  # so does a message
                    content = [{"type": "text", "text": "something else"}]
                    client.post(f"/api/conversations/{self.id}/events", json={"content": content, "run": False})
        except httpx.TransportError:
            return  # its worker was killed
        if won:
            self.claimed.append(what)

    def send(self, method: str, path: str, body) -> None:
        """A request that is repeated until it is answered: a worker may be killed meanwhile."""
        for attempt in count():
            try:
                response = self.http[attempt % 2].request(method, path, json=body)
            except httpx.TransportError:
                continue
            assert response.status_code < 300, response.text
            return

    def get(self, path: str):
        for attempt in count():
            try:
                response = self.http[attempt % 2].get(path)
            except httpx.TransportError:
                continue
            assert response.status_code == 200, response.text
            return response.json()

    def settle(self) -> None:
        """Decide what nobody has: every contender may have been on the worker that was killed."""
        wait_until(
            lambda: self.get(f"/api/conversations/{self.id}")["execution_status"] != WAITS or self.reject(), "it"
        )

    def reject(self) -> bool:
        self.send("POST", f"/api/conversations/{self.id}/events/respond_to_confirmation", {"accept": False})
        return False

    def check(self) -> str:
        """Whether there is one outcome; returns who decided."""
        [entry] = self.get(f"/api/v1/conversation/{self.id}/audit")["items"]
        log = f"/api/conversations/{self.id}/events/search?after_seq=0&limit=100"  # in its own order, not that of times
        events = self.get(log)["items"]
        states = [one["value"] for one in events if one.get("key") == "execution_status"]
        rejected = [one["action_id"] for one in events if one["kind"] == "UserRejectObservation"]
        edited = [one["value"] for one in events if one.get("key") == "edited_action"]

        assert entry["action_ids"] == [self.action["id"]]
        assert states[0] == WAITS
        assert states.count(WAITS) == 1
        assert rejected == ([self.action["id"]] if entry["decision"] == "reject" else [])
        assert len(edited) == (entry["decision"] == "edit")
        kind = entry["actor"]["kind"]
        if kind == "expiry":  # a run that comes too late rejects the action, and runs
            assert states[1] in ("idle", "running")
        else:
            assert states[1] == ("idle" if entry["decision"] == "reject" else "running")
        if self.claimed:
            [winner] = self.claimed
            assert kind == "key"
            assert entry["decision"] == ("approve" if winner == "accept all" else winner)
        return kind


def test_hundreds_of_races_have_one_outcome_one_entry_and_one_consumption_each(servers, capsys):
    addresses, masters = servers
    with httpx.Client(base_url=addresses[0], timeout=60) as one, httpx.Client(base_url=addresses[1], timeout=60) as two:
        one.post("/api/v1/approval-rules", json={"decision": "approve", "tool_name": "by rule"}).raise_for_status()

        def race(number: int) -> str:
            contest = ApprovalRace(number, [one, two], lambda: kill_one(masters))
            contest.begin()
            contest.run()
            contest.settle()
            return contest.check()

        with ThreadPoolExecutor(LANES) as lanes:
            kinds = list(lanes.map(race, range(RACES)))

        with capsys.disabled():
            print({kind: kinds.count(kind) for kind in sorted(set(kinds))})
        assert {"key", "run", "message", "rule", "expiry"} <= set(kinds)
        wait_until(lambda: one.get("/api/v1/pending-actions/count").json() == 0, "an empty inbox")

        def export() -> int:
            body = one.get("/api/v1/audit?format=jsonl").content
            return verify(io.BytesIO(body).readlines())[1]

        wait_until(lambda: export() == RACES, "an audit of every race that verifies")
