"""Twelve deciders, a rule, a deadline, an owner's change and a revoked right at once: one outcome, by those who may."""

import http.client
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import NamedTuple
from uuid import uuid4

import pytest

from core.people import voter
from core.wire import micros, now
from tests.chance import often
from tests.conftest import action
from tests.people import SETTINGS, by, proxied_app, through
from tests.servers import agent_server, store_server
from tests.shared import ADMIN

pytestmark = pytest.mark.faults("hundreds of races of many deciders, of which a quarter wait for a deadline")

LANES = 4
PEOPLE = [f"p{number}@example.org" for number in range(8)]
REVOKED, FIRST_OWNER, SECOND_OWNER = PEOPLE[7], PEOPLE[0], PEOPLE[1]


class RaceAnswer(NamedTuple):
    status_code: int
    text: str

    @property
    def json(self):
        return json.loads(self.text)


class Apps:
    """Two apps on one store, of which each request takes one."""

    races = often(200, 1000)

    def __init__(self, redis_url):
        self.apps = [proxied_app(redis_url) for _ in range(2)]

    def send(self, method, path, headers, body=None):
        response = random.choice(self.apps).test_client().open(path, method=method, json=body, **headers)
        return RaceAnswer(response.status_code, response.text)

    def expire(self, conversation_id):
        """What a supervisor does, again and again."""
        for _ in range(20):
            random.choice(self.apps).extensions["server"].commands.expire(conversation_id)


class Live:
    """A server with two workers, which expire what is due by themselves."""

    races = often(20, 200)

    def __init__(self, port):
        self._port = port

    def send(self, method, path, headers, body=None):
        shown = {**headers["headers"], "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request(method, path, content, shown)
            response = connection.getresponse()
            return RaceAnswer(response.status, response.read().decode())

    def expire(self, _):
        """The workers do."""


@contextmanager
def live(folder):
    settings = {name.upper(): str(value) for name, value in SETTINGS.items() if isinstance(value, str)}
    settings |= {"SESSION_API_KEY": ADMIN, "PERSON_PROXIES": "127.0.0.1"}
    settings |= {"RATE_LIMIT_FAILURES": "none", "RATE_LIMIT_WRITES": "none"}
    with store_server(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url, **settings) as (client, _):
        yield Live(client.base_url.port)


@pytest.fixture(scope="module", params=["two apps", "a server"])
def server(request, redis_url, tmp_path_factory):
    if request.param == "two apps":
        yield Apps(redis_url)
        return
    with live(tmp_path_factory.mktemp("races")) as found:
        yield found


def made(server, path, body):
    response = server.send("POST", path, by(), body)
    assert response.status_code == 201, response.text
    return response.json


@pytest.fixture(scope="module")
def deciders(server):
    """What each of twelve deciders shows: seven people, and five keys, of which two are one of these people's."""
    for name in PEOPLE[:7]:
        for role in ("ask", "approve"):
            made(server, "/api/v1/grants", {"role": role, "person": name})
    rule = {"decision": "ask", "tool_name": "terminal", "quorum": 3, "not_by_owner": True}
    made(server, "/api/v1/approval-rules", rule)
    made(server, "/api/v1/approval-rules", {"decision": "approve", "tool_name": "terminal"})
    keys = [{"name": f"key {number}", "scopes": ["approve"]} for number in range(3)]
    keys += [{"name": name, "scopes": ["approve"], "person": PEOPLE[2]} for name in ("laptop", "phone")]
    return [through(name) for name in PEOPLE[:7]] + [by(made(server, "/api/v1/keys", one)["key"]) for one in keys]


class PeopleRace:
    def __init__(self, number, server, deciders):
        self.number, self.server, self.deciders = number, server, deciders
        self.id, self.action = str(uuid4()), action("make race")
        self.revoked_at = 0
        self.has_deadline = number % 4 == 1

    def begin(self):
        # Each race has a right of its own to revoke: a grant for a tag that no other conversation has.
        self.tag = f"r{uuid4().hex[:12]}"
        self.grant = made(
            self.server, "/api/v1/grants", {"role": "approve", "person": REVOKED, "tags": {self.tag: None}}
        )
        body = {"conversation_id": self.id, "confirmation_policy": {"kind": "AlwaysConfirm"}, "tags": {self.tag: ""}}
        if self.has_deadline:
            body["confirmation_seconds"] = 1
        started = self.server.send("POST", "/api/conversations", through(FIRST_OWNER), body)
        assert started.status_code == 201, started.text
        posted = self.server.send("POST", f"/api/v1/webhooks/events/{self.id}", by(), [self.action])
        assert posted.status_code == 200, posted.text
        if self.has_deadline:
            time.sleep(random.uniform(0.85, 1.0))

    def decide(self, headers, barrier, verb):
        barrier.wait(60)
        decisions = [{"action_id": self.action["id"], "decision": verb}]
        path = f"/api/v1/conversation/{self.id}/pending-actions/decisions"
        for _ in range(20):
            response = self.server.send("POST", path, headers, {"decisions": decisions})
            assert response.status_code in (200, 403, 409), response.text
            if "send the request again" not in response.text:
                return response
        raise AssertionError(response.text)

    def change_owner(self, barrier):
        barrier.wait(60)
        path = f"/api/v1/conversation/{self.id}/owner"
        response = self.server.send("PUT", path, by(), {"owner": SECOND_OWNER})
        assert response.status_code in (200, 409), response.text

    def revoke(self, barrier):
        barrier.wait(60)
        assert self.server.send("DELETE", f"/api/v1/grants/{self.grant['id']}", by()).status_code == 200
        self.revoked_at = now()

    def run(self):
        self.begin()
        verbs = ["approve"] * 13
        if self.number % 5 == 0:
            verbs[random.randrange(13)] = "reject"
        barrier = threading.Barrier(16)
        with ThreadPoolExecutor(16) as pool:
            headers = [*self.deciders, through(REVOKED)]
            done = [pool.submit(self.decide, one, barrier, verb) for one, verb in zip(headers, verbs, strict=True)]
            done += [pool.submit(one, barrier) for one in (self.change_owner, self.revoke, self.expire)]
            for each in done:
                each.result()
        self.said = [f"{one.status_code} {one.text[:400]}" for one in (each.result() for each in done[:13])]
        late = self.decide(through(REVOKED), threading.Barrier(1), "approve")
        assert late.status_code == 403, late.text
        self.check()

    def audit(self):
        return self.server.send("GET", f"/api/v1/conversation/{self.id}/audit", by()).json["items"]

    def expire(self, barrier):
        barrier.wait(60)
        self.server.expire(self.id)

    def is_final(self, entry):
        return self.action["id"] in entry["action_ids"] and entry["decision"] in ("approve", "reject")

    def check(self):
        ends = time.monotonic() + 20  # a deadline ends it within a second, on a quiet machine
        while not any(map(self.is_final, entries := self.audit())) and time.monotonic() < ends:
            time.sleep(0.1)
        owner = FIRST_OWNER
        final = [entry for entry in entries if self.is_final(entry)]
        if len(final) != 1:
            told = "\n".join([f"race {self.number}", *map(json.dumps, entries), *self.said])
            pytest.fail(f"{len(final)} entries end it, where one should\n{told}")
        for entry in entries:
            if entry["decision"] == "owner_changed":
                owner = SECOND_OWNER
            if entry["decision"] != "approve":
                continue
            names = [PEOPLE[2] if name in ("laptop", "phone") else name for name in entry["agreed"]]
            assert len({voter(name) for name in names}) == len(names) == 3, entry
            assert owner not in names, (owner, entry)
            assert entry["actor"]["kind"] in ("person", "key"), entry
            assert entry["actor"]["name"] == entry["agreed"][-1], entry
            if REVOKED in names:
                assert micros(entry["time"]) <= self.revoked_at, entry
        partial = [entry for entry in entries if entry["decision"] == "agree"]
        assert all(entry["seq"] < final[0]["seq"] for entry in partial), "nothing is counted after the end"


def test_of_many_deciders_enough_of_those_who_may_have_one_outcome(server, deciders):
    numbers = iter(range(server.races))
    lock = threading.Lock()

    def lane():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            PeopleRace(number, server, deciders).run()

    with ThreadPoolExecutor(LANES) as pool:
        for each in [pool.submit(lane) for _ in range(LANES)]:
            each.result()
