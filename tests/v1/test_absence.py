"""A supervisor or a host that is suspended in each state of a start, a pause and a delivery, and a clock that steps.

Every acknowledged message and decision arrives once, and no living agent is killed. Scripted agents hold the request
by which a state is known, all at once, so that one stop meets every state. The supervisor of another host, which shares
the queues, drives on what the stopped one leaves. Source: docs/durability.md, "Absence is not death".
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from uuid import UUID, uuid4

import psutil
import pytest
from redis import Redis

from store.approvals.audit import SERVER, DecisionActor
from tests.agents import propose, running_sandbox, scripted_agent
from tests.chance import often
from tests.conftest import SECRET_KEY, limits_of, message, store_of
from tests.servers import TIMEOUT, agent_server, free_port, store_server, wait_until
from tests.store.conftest import stepped
from tests.supervisor import supervisor
from tests.v1 import WireApi
from tests.v1.conftest import AGENT, SPECS
from tests.v1.processes import agents, in_sandboxes, kill_all, suspended
from tests.v1.test_pending_messages import put, said

pytestmark = pytest.mark.faults("stops a supervisor for seconds, with LONG=1 for minutes")

HOUR = 3600

#: seconds for which a supervisor or a host is stopped; a lease of a queue or a start has 5 s, and a host is lost after
#: HOST_SECONDS
STOPS = [10, 1, 60, 300][: often(1, 4)]

#: seconds by which the clock of a host steps
STEPS = [-HOUR, HOUR][: often(1, 2)]

HOST_SECONDS = 5

#: what stands under way → the end of the path by which its agent knows that it got there
STATES = {
    "a message: the agent's log is read": ("queue", "/events/search"),
    "a message: noted as sent": ("queue", "/{conversation}"),
    "a message: received, not answered": ("queue", "/events"),
    "a decision: the agent's status is read": ("decision", "/{conversation}"),
    "a decision: the agent's action is read": ("decision", "/events/search"),
    "a decision: received, not answered": ("decision", "/respond_to_confirmation"),
    "a start: received, not answered": ("start", "/api/conversations"),
}


class Stage:
    """An agent that something is sent to, and that holds the first request of a state until it may go on."""

    def __init__(self, stack: ExitStack, store, what: str, end: str) -> None:
        self._store, self.what = store, what
        self.agent = stack.enter_context(scripted_agent())
        self.agent.state = {"execution_status": "idle"}
        self.agent.on_request = self._receive
        self.box = stack.enter_context(running_sandbox(store, self.agent.url)).id
        self.conversation = str(uuid4())
        self._end = end.format(conversation=self.conversation)
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()
        stack.callback(self.may_go_on.set)

    def begin(self, api: WireApi) -> None:
        """Have the supervisors send."""
        if self.what == "start":
            request = {"conversation_id": self.conversation, "sandbox_id": self.box}
            self._task = api.start_task(**request)["id"]
        elif self.what == "queue":
            self._store.conversations.create(self.conversation, sandbox_id=self.box, app={})
            self.agent.logs[self.conversation] = [message("earlier")]
            # Of one who may not decide: the agent is asked for its status between the note and the message.
            sender, content = DecisionActor("message", "someone", may_decide=False), [{"type": "text", "text": "hello"}]
            self._store.conversations.queued_messages.put(self.conversation, content=content, actor=sender)
        else:
            self.agent.logs[self.conversation] = [propose(self._store, self.conversation, self.box)]
            self.agent.reported[self.conversation] = "waiting_for_confirmation"
            claim = self._store.approvals.deliveries.open(self.conversation, self.box, 30)
            self._store.approvals.deliveries.decide(claim, "approve", actor=SERVER)
            self._store.approvals.deliveries.close(claim, again_in=0)

    def _receive(self, path: str) -> None:
        if path.endswith("/events"):
            self.agent.logs[self.conversation].append(message("hello"))
        elif path.endswith("/respond_to_confirmation"):
            self.agent.reported[self.conversation] = "finished"
        if path.endswith(self._end):
            self.is_reached.set()
            self.may_go_on.wait(TIMEOUT)

    def has_ended(self, api: WireApi) -> bool:
        if self.what == "start":
            return api.task(self._task)["status"] in ("READY", "ERROR")
        if self.what == "queue":
            return self._store.conversations.queued_messages.waiting_for(self.conversation) == 0
        return self._store.approvals.deliveries.get(self.conversation) is None

    def received(self) -> int:
        """How often the agent has received what was sent; a start counts once per conversation, as it does there."""
        if self.what == "start":
            return len({body["conversation_id"] for body in self.agent.posted("/api/conversations")})
        return len(self.agent.posted("/events") if self.what == "queue" else self.agent.decisions)


@pytest.fixture
def whole(tmp_path):
    """A server with two supervisors, of which the second one is suspended; and an agent for each state."""
    specs = tmp_path / "specs.toml"
    specs.write_text(f'{SPECS}\n[[spec]]\nid = "reference-agent"\n{AGENT}')
    with ExitStack() as stack:
        url, _ = stack.enter_context(store_server(tmp_path))
        redis = stack.enter_context(Redis.from_url(url))
        settings = {"SANDBOX_SPECS": str(specs), "SECRET_KEY": SECRET_KEY, "HOST_SECONDS": str(HOST_SECONDS)}
        settings["PORT"] = str(free_port())
        client, _ = stack.enter_context(agent_server(tmp_path / "server.log", REDIS_URL=url, **settings))
        limits = limits_of(most=100, pause_idlest=False, host_seconds=HOST_SECONDS, start_seconds=120)
        store = store_of(url, limits)
        store.data_version.ensure()
        boxes = stack.enter_context(ExitStack())
        stages = {name: Stage(boxes, store, *state) for name, state in STATES.items()}
        boxes.enter_context(beating(store, "scripted"))
        stack.callback(lambda: kill_all(in_sandboxes(tmp_path)))
        hosts = [
            stack.enter_context(supervisor(redis, tmp_path / host, HOST_ID=host, **settings))[0]
            for host in ("first", "second")
        ]
        wait_until(lambda: redis.zscore("{sandboxes}:hosts", "first"), "the first supervisor")
        wait_until(lambda: redis.zscore("{sandboxes}:hosts", "second"), "the second supervisor")
        hosts[1].send_signal(signal.SIGSTOP)
        api = WireApi(client)
        yield SimpleNamespace(api=api, store=store, redis=redis, stages=stages, hosts=hosts, folder=tmp_path)
        for host in hosts:
            host.send_signal(signal.SIGCONT)
        boxes.close()
        api.clean()


@contextmanager
def beating(store, host: str) -> Iterator[None]:
    """Hold the lease of the host of the scripted agents, which no supervisor has."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.5):
            store.sandboxes.beat(host, "supervisor")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def beats(redis: Redis, host: str, number: int) -> None:
    """Wait for so many heartbeats of a host's supervisor."""
    for _ in range(number):
        last = redis.zscore("{sandboxes}:hosts", host)
        wait_until(lambda last=last: redis.zscore("{sandboxes}:hosts", host) not in (None, last), f"a beat of {host}")


def stop(whole, seconds: float) -> None:
    """Stop the first supervisor for so long, while its agents go on and the second one drives."""
    whole.hosts[0].send_signal(signal.SIGSTOP)
    for stage in whole.stages.values():
        stage.may_go_on.set()
    whole.hosts[1].send_signal(signal.SIGCONT)
    time.sleep(seconds)
    whole.hosts[0].send_signal(signal.SIGCONT)


def step(whole, seconds: float) -> None:
    """Step the clock of Redis while the first supervisor's requests are slow, and let both go on for some rounds."""
    whole.hosts[0].send_signal(signal.SIGSTOP)
    stepped(whole.redis, seconds)
    if seconds > 0:
        for key in whole.redis.scan_iter("{sandboxes}:agent:*"):
            whole.redis.delete(key)  # as its time is over
    for host in whole.hosts:
        host.send_signal(signal.SIGCONT)
    beats(whole.redis, "second", 4)
    for stage in whole.stages.values():
        stage.may_go_on.set()


@pytest.mark.parametrize(
    ("act", "seconds"), [*((stop, seconds) for seconds in STOPS), *((step, seconds) for seconds in STEPS)]
)
def test_a_supervisor_that_is_away_loses_nothing_doubles_nothing_and_kills_no_agent(whole, act, seconds):
    api, store = whole.api, whole.store
    conversations = [api.app_conversation(sandbox_spec_id="free") for _ in range(2)]
    kept, paused = [one["sandbox_id"] for one in conversations]
    living = agents(whole.folder)
    assert len(living) == 2
    hello = {"content": [{"type": "text", "text": "hello"}], "run": False}
    for stage in whole.stages.values():
        stage.begin(api)
    for name, stage in whole.stages.items():
        wait_until(stage.is_reached.is_set, name)

    starts = [api.start_task(sandbox_spec_id="free", initial_message=hello)["id"]]
    wait_until(lambda: api.task(starts[0])["status"] != "WORKING", "a start that waits for its sandbox")
    starts.append(api.start_task(sandbox_spec_id="free", initial_message=hello)["id"])
    store.sandboxes.ask(paused, "pause")
    act(whole, seconds)

    for name, stage in whole.stages.items():
        wait_until(lambda stage=stage: stage.has_ended(api), name)
    ready = [api.finished(start) for start in starts]
    api.wait_for(kept, "RUNNING")
    api.wait_for(paused, "PAUSED")
    beats(whole.redis, "first", 3)  # a thread of it that woke up late has gone on by now
    assert {name: stage.received() for name, stage in whole.stages.items()} == dict.fromkeys(STATES, 1)
    assert [one["status"] for one in ready] == ["READY"] * 2, [one["detail"] for one in ready]
    assert api.task(whole.stages["a start: received, not answered"]._task)["status"] == "READY"
    for one in ready:
        wait_until(lambda one=one: said(api, one["app_conversation_id"]), "the first message")
        assert said(api, one["app_conversation_id"]) == ["hello"]
    assert all(process.is_running() for process in living)
    for stage in whole.stages.values():
        assert api.count(str(UUID(stage.conversation)), kind="ConversationErrorEvent") == 0


@pytest.mark.parametrize("seconds", STOPS)
def test_a_host_that_was_suspended_gets_every_message_once_and_its_agents_live(whole, seconds):
    api = whole.api
    conversations = [api.app_conversation(sandbox_spec_id="free") for _ in range(2)]
    (kept, paused), talk = [one["sandbox_id"] for one in conversations], conversations[0]["id"]
    living = agents(whole.folder)
    hello = {"content": [{"type": "text", "text": "hello"}], "run": False}
    start = api.start_task(sandbox_spec_id="free", initial_message=hello)["id"]
    wait_until(lambda: api.task(start)["status"] != "WORKING", "a start that waits for its sandbox")
    whole.store.sandboxes.ask(paused, "pause")
    put(api, talk, "before")

    with suspended(psutil.Process(whole.hosts[0].pid), whole.folder / "first"):
        whole.hosts[1].send_signal(signal.SIGCONT)
        put(api, talk, "as it sleeps")
        time.sleep(seconds)
        if seconds > HOST_SECONDS:
            api.wait_for(kept, "MISSING")
            put(api, talk, "while it is missing")

    ready = api.finished(start)
    assert ready["status"] == "READY", ready["detail"]
    api.wait_for(kept, "RUNNING")
    api.wait_for(paused, "PAUSED")
    expected = ["before", "as it sleeps", "while it is missing"][: 3 if seconds > HOST_SECONDS else 2]
    wait_until(lambda: len(said(api, talk)) >= len(expected), "the messages")
    wait_until(lambda: said(api, ready["app_conversation_id"]), "the first message")
    beats(whole.redis, "first", 3)  # a thread of it that woke up late has gone on by now
    assert said(api, talk) == expected
    assert said(api, ready["app_conversation_id"]) == ["hello"]
    assert len(living) == 2
    assert all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in living)
    assert api.count(str(UUID(talk)), kind="ConversationErrorEvent") == 0
