"""Requests for permission of a program that speaks ACP, in a whole server of which every part is killed.

Promise: nothing is carried out that nobody approved, nothing after a rejection, nothing twice; each action is decided
once at most, and ends with its result, its rejection, or a sentence that says what became of it. None stays open.

What the program asks and carries out it records in the working folder of its sandbox, which outlives every part.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from tests.chance import often
from tests.servers import FRESH, redis_program, store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT
from tests.v1.processes import ACP_PROGRAM, acp_programs, agents, launchers, supervisor_of, workers
from tests.v1.test_kept_work import every_event, work_of

pytestmark = pytest.mark.faults("kills every part of a server while its agents ask for permission")

#: conversations, the requests of each, and the most of one message
CONVERSATIONS, REQUESTS, MOST_AT_ONCE = often(2, 8), often(16, 125), 20

#: what happens at a random moment after a few requests
DEEDS = ("program", "agent server", "launcher", "supervisor", "worker", "store", "pause")

#: requests between two of these
BETWEEN = often(4, 8)

#: statuses of an agent that does nothing until somebody asks it to
RESTS = ("idle", "paused", "finished", "error", "stuck")

#: of the scripted program; {WORK} is the folder of a sandbox, which is kept
VARIABLES = f"""ACP_COMMAND = "{{PYTHON}} {ACP_PROGRAM}", ACP_MODE = "careful", SCRIPTED_SESSIONS = "{{WORK}}", \
SCRIPTED_RECORD = "{{WORK}}/record\""""


def spec(name: str, variables: str) -> str:
    agent = AGENT.replace("restarts = 0", "restarts = 100").replace("env = {", f"env = {{ {variables},")
    policy = 'confirmation_policy = { kind = "AlwaysConfirm" }'
    return f'[[spec]]\nid = "{name}"\nreadable = ["{ACP_PROGRAM}"]\n{agent}\n[spec.conversation]\n{policy}\n'


#: two agents: one goes on with its session after a death, one begins another one
SPECS = spec("loads", f'{VARIABLES}, SCRIPTED_LOADS = "1"') + spec("forgets", VARIABLES)


class KilledRedis:
    """A Redis that writes each change to its disk before it answers, and that starts again after a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        running = store_server(self._folder, redis_program(), "--appendfsync", "always")
        self.url, self.process = self._stack.enter_context(running)

    def kill(self) -> None:
        self.process.kill()
        self._stack.close()
        self.start()

    def end(self) -> None:
        self._stack.close()


class Whole:
    """A server with its store, its supervisor and its sandboxes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack = folder, contextlib.ExitStack()
        (folder / "specs.toml").write_text(SPECS)
        self.redis = KilledRedis(folder)
        self._stack.callback(self.redis.end)
        settings = {"SANDBOX_SPECS": str(folder / "specs.toml"), "WEB_CONCURRENCY": "2", "HOST_SECONDS": "5"}
        server = supervised_server(folder, REDIS_URL=self.redis.url, **settings)
        client, self.master = self._stack.enter_context(server)
        self.api = WireApi(client)

    def end(self) -> None:
        self._stack.close()

    def record(self, sandbox_id: str) -> list["KillLine"]:
        path = work_of(self.folder, sandbox_id) / "record"
        return [KillLine(*line.split()) for line in path.read_text().splitlines()] if path.exists() else []

    def asked(self, conversation: dict[str, Any]) -> int:
        """How many requests the program of a conversation has made."""
        return sum(line.what == "asked" for line in self.record(conversation["sandbox_id"]))

    def pending(self) -> list[dict[str, Any]]:
        return self.api.call("GET", "/v1/pending-actions", params={"limit": 100})["items"]


class KillLine(NamedTuple):
    """A line of a program's record."""

    what: str  #: `asked`, `ran`, or the kind of an answer that is no permission
    name: str
    process: str


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("acp"))
    yield whole
    whole.end()


@pytest.fixture
def whole(server):
    """The server, which every test leaves without a conversation."""
    yield server
    server.api.clean()


class KillingPerson(threading.Thread):
    """Approves or rejects what waits, by chance, as often as it sees it; knows the responses that came."""

    def __init__(self, url: str, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(base_url=url, timeout=20, limits=FRESH)
        self._chance, self._stop_asked = random.Random(seed), stop
        self.won: list[tuple[str, str]] = []  #: action and verb of the decisions that took effect, as this person knows
        self.refused = 0

    def run(self) -> None:
        while not self._stop_asked.is_set():
            with contextlib.suppress(httpx.HTTPError):
                page = self._client.get("/api/v1/pending-actions", params={"limit": 100})
                for item in page.json()["items"] if page.status_code == 200 else ():
                    self._decide(item)
            time.sleep(self._chance.uniform(0, 0.1))
        self._client.close()

    def _decide(self, item: dict[str, Any]) -> None:
        verb = "approve" if self._chance.random() < 0.7 else "reject"
        decision = {"action_id": item["action_id"], "digest": item["digest"], "decision": verb}
        path = f"/api/v1/conversation/{item['conversation_id']}/pending-actions/decisions"
        with contextlib.suppress(httpx.HTTPError):
            response = self._client.post(path, json={"decisions": [decision]})
            if response.status_code == 200:
                self.won.append((item["action_id"], verb))
            self.refused += response.status_code == 409


class Chaos:
    """Kills and pauses, each kind as often as the others."""

    def __init__(self, whole: Whole, seed: int) -> None:
        self._whole, self._chance = whole, random.Random(seed)
        self._left: list[str] = []
        self.done = Counter[str]()

    def strike(self) -> None:
        if not self._left:
            self._left = self._chance.sample(DEEDS, len(DEEDS))
        deed = self._left.pop()
        self.done[deed] += self._do(deed)

    def _do(self, deed: str) -> bool:
        """Whether there was anything to kill."""
        folder, master = self._whole.folder, self._whole.master
        match deed:
            case "store":
                self._whole.redis.kill()
                return True
            case "pause":
                return self._pause()
            case "program":
                victims = acp_programs(folder)
            case "agent server":
                victims = agents(folder)
            case "launcher":
                victims = launchers(folder)
            case "worker":
                victims = workers(master)
            case _:
                victims = [supervisor_of(master)]
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            self._chance.choice(victims).kill()
            return True
        return False

    def _pause(self) -> bool:
        """Pause a sandbox, and resume it a moment later."""
        client = self._whole.api.client
        with contextlib.suppress(httpx.HTTPError):
            items = client.get("/api/v1/sandboxes/search").json()["items"]
            path = f"/api/v1/sandboxes/{self._chance.choice(items)['id']}"
            is_paused = client.post(f"{path}/pause").status_code == 200
            time.sleep(self._chance.uniform(0, 1))
            client.post(f"{path}/resume")
            return is_paused
        return False


def goes_on(whole: Whole, conversation: dict[str, Any]) -> bool:
    """Have an agent that rests ask on. False once it has asked often enough and rests."""
    asked = whole.asked(conversation)
    with contextlib.suppress(httpx.HTTPError, TypeError, LookupError):
        client, identity = whole.api.client, conversation["id"]
        [state] = client.get("/api/v1/app-conversations", params={"ids": identity}).json()
        if state["sandbox_status"] == "ERROR":
            client.post(f"/api/v1/sandboxes/{conversation['sandbox_id']}/resume")
        elif state["execution_status"] in RESTS and asked >= REQUESTS:
            return False
        elif state["execution_status"] in RESTS:
            text = f"work {min(MOST_AT_ONCE, REQUESTS - asked)}"
            body = {"content": [{"type": "text", "text": text}], "run": True}
            client.post(f"/api/v1/app-conversations/{identity}/send-message", json=body)
    return True


class KillOutcome:
    """What became of the requests of one conversation."""

    def __init__(self, whole: Whole, conversation: dict[str, Any]) -> None:
        identity = conversation["id"]
        path = f"/api/v1/conversation/{identity}"
        events = every_event(whole.api.client, f"{path}/events/search")
        audit = every_event(whole.api.client, f"{path}/audit")
        self.record = whole.record(conversation["sandbox_id"])
        actions = [one for one in events if one["kind"] == "ActionEvent"]
        self.unasked = [one["summary"] for one in actions if not one["summary"].startswith("echo ")]
        self.names = {one["id"]: one["summary"].removeprefix("echo ") for one in actions}
        calls = {one["tool_call_id"]: one["id"] for one in actions}
        self.ends: dict[str, list[dict[str, Any]]] = {action_id: [] for action_id in self.names}
        for one in events:
            if one["kind"] in ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent"):
                self.ends[one.get("action_id") or calls[one["tool_call_id"]]].append(one)
        self.verbs: dict[str, list[str]] = {action_id: [] for action_id in self.names}
        for entry in audit:
            for action_id in entry["action_ids"]:
                self.verbs[action_id].append(entry["decision"])
        self.sentences = [one["detail"] for one in events if one["kind"] == "ConversationErrorEvent"]

    def said(self, what: str) -> list[str]:
        return [line.name for line in self.record if line.what == what]

    def faults(self) -> dict[str, list[Any]]:
        """What breaks a promise, by the promise."""
        ran, approved = self.said("ran"), {self.names[one] for one, said in self.verbs.items() if said == ["approve"]}
        rejected = {self.names[one] for one, said in self.verbs.items() if "reject" in said}
        last = {line.process: line for line in self.record}
        answers = {line.name for line in self.record if line.what != "asked"}
        known = Counter(self.names.values())
        unseen = [line for line in self.record if line.what == "asked" and line.name not in known]
        return {
            "executed undecided": [one for one in ran if one not in approved],
            "executed after a rejection": [one for one in ran if one in rejected],
            "executed twice": [one for one, number in Counter(ran).items() if number > 1],
            "decided twice": [one for one, said in self.verbs.items() if len(said) > 1],
            "gone on unapproved": [one for one, said in self.verbs.items() if "unapproved" in said],
            "permitted for ever": [line for line in self.record if line.what in ("allow_always", "reject_always")],
            "one request, two actions": [one for one, number in known.items() if number > 1],
            "open for ever": [self.names[one] for one, ends in self.ends.items() if not ends],
            "ended twice": [ends for ends in self.ends.values() if len(ends) > 1],
            "not asked": self.unasked,
            "lost": [name for name in approved - {*ran} if not self._is_told(name)],
            "executed, and said to be rejected": [
                one for one in ran if any(end["kind"] == "UserRejectObservation" for end in self._ends_of(one))
            ],
            # A request that nobody has seen is the last of a process that was killed, and the conversation says so.
            "unseen": [line for line in unseen if line.name in answers or last[line.process].what != "asked"],
            "unseen without a sentence": unseen if len(unseen) > 2 * len(self.sentences) else [],
        }

    def _ends_of(self, name: str) -> list[dict[str, Any]]:
        return [end for one, ends in self.ends.items() if self.names[one] == name for end in ends]

    def _is_told(self, name: str) -> bool:
        """Whether an approved action that did not take place has an error with a sentence."""
        return any(end["kind"] == "AgentErrorEvent" and end["error"] for end in self._ends_of(name))


def test_no_request_is_executed_undecided_decided_twice_or_lost_whatever_is_killed(whole):
    names = ["loads", "forgets"] * CONVERSATIONS
    conversations = [whole.api.app_conversation(sandbox_spec_id=name) for name in names[:CONVERSATIONS]]
    stop, seed = threading.Event(), random.randrange(1 << 32)
    print(f"seed {seed}")
    people = [KillingPerson(str(whole.api.client.base_url), seed + place, stop) for place in range(2)]
    chaos, chance, began = Chaos(whole, seed), random.Random(seed), time.monotonic()
    for person in people:
        person.start()
    left, strikes_at = list(conversations), BETWEEN
    while left:
        assert time.monotonic() < began + often(300, 3000), "the requests do not come to an end"
        left = [one for one in left if goes_on(whole, one)]
        if sum(map(whole.asked, conversations)) >= strikes_at:
            strikes_at += BETWEEN
            time.sleep(chance.uniform(0, 0.4))
            chaos.strike()
        time.sleep(0.05)
    wait_until(lambda: whole.pending() == [], "the end of what waits")
    took = time.monotonic() - began
    stop.set()
    for person in people:
        person.join()

    for one in conversations:  # what an agent server has is in the log here once it was compared
        agent_rests = partial(rests, whole, one)
        wait_until(agent_rests, f"the agent of {one['id']}")
    outcomes = [KillOutcome(whole, one) for one in conversations]
    faults = Counter[str]()
    for one in outcomes:
        for promise, found in one.faults().items():
            faults[promise] += len(found)
            if found:
                print(promise, found[:5])
    asked, ran = sum(len(one.said("asked")) for one in outcomes), sum(len(one.said("ran")) for one in outcomes)
    verbs = Counter(verb for one in outcomes for said in one.verbs.values() for verb in said)
    ends = Counter(end["kind"] for one in outcomes for ends in one.ends.values() for end in ends)
    print(f"{asked} requests in {took:.0f} s, {ran} executed, decisions {dict(verbs)}, ends {dict(ends)}")
    print(f"kills {dict(chaos.done)}, refused decisions {sum(one.refused for one in people)}")
    assert not +faults
    won = [decision for person in people for decision in person.won]
    assert len({action_id for action_id, _ in won}) == len(won)
    taken = {action_id: said[0] for one in outcomes for action_id, said in one.verbs.items() if said}
    assert all(taken[action_id] == verb for action_id, verb in won)
    assert all(chaos.done[deed] for deed in DEEDS)


def rests(whole: Whole, conversation: dict[str, Any]) -> bool:
    """Whether an agent rests, and our log has as many events as its own."""
    state = whole.api.conversation(conversation["id"])
    headers = {"X-Session-API-Key": state["session_api_key"]}
    url = state["conversation_url"]
    theirs = httpx.get(url, headers=headers).json()["execution_status"]
    ids = {one["id"] for one in every_event(httpx.Client(headers=headers), f"{url}/events/search")}
    path = f"/api/v1/conversation/{conversation['id']}/events/search"
    ours = {one["id"] for one in every_event(whole.api.client, path)}
    return theirs == state["execution_status"] in RESTS and ids <= ours


@pytest.fixture
def waiting(whole):
    """A conversation whose program waits for what it has asked, one or two things; its sandbox is frozen."""
    conversation = whole.api.app_conversation(sandbox_spec_id="loads")
    whole.api.send(conversation["id"], "work 1", run=True)
    wait_until(lambda: 0 < len(whole.record(conversation["sandbox_id"])) == len(whole.pending()), "the requests")
    whole.api.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/pause")
    whole.api.wait_for(conversation["sandbox_id"], "PAUSED")
    return conversation


def decide(whole: Whole, verb: str) -> None:
    """Decide all that waits."""
    for item in whole.pending():
        decision = {"action_id": item["action_id"], "digest": item["digest"], "decision": verb}
        path = f"/v1/conversation/{item['conversation_id']}/pending-actions/decisions"
        whole.api.call("POST", path, json={"decisions": [decision]})


@pytest.mark.parametrize(("verb", "what"), [("approve", "ran"), ("reject", "reject_once")])
@pytest.mark.parametrize("order", ["decided, then resumed by it", "resumed, then decided"])
def test_a_request_waits_through_a_pause_of_its_sandbox(whole, waiting, verb, what, order):
    sandbox_id, number = waiting["sandbox_id"], len(whole.pending())
    if order.startswith("resumed"):
        whole.api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
        whole.api.wait_for(sandbox_id, "RUNNING")
    assert [line.what for line in whole.record(sandbox_id)] == ["asked"] * number

    decide(whole, verb)

    whole.api.until(waiting["id"], "finished")
    assert [line.what for line in whole.record(sandbox_id)] == ["asked"] * number + [what] * number
    assert not any(map(bool, KillOutcome(whole, waiting).faults().values()))
