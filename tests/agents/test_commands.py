"""What is passed on to an agent, how often, and what becomes of its answers: a scripted agent server, real sockets."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agents.commands import Commands, NotReachable
from agents.link import AgentRefused, AgentUnreachable, http_client
from store.keys import ConversationKeys
from store.sandboxes import SandboxId
from supervisor.answers import deliver_next
from tests.conftest import action, as_events, status


class Scripted(ThreadingHTTPServer):
    """Answers as the test says and keeps what it was asked. A status of 0 closes the connection without an answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, object]] = []
        self.keys: set[str] = set()
        self.statuses: list[int] = []  #: of the next answers; 200 when there is none
        self.state = {"execution_status": "waiting_for_confirmation"}
        self.latest = ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def posted(self, end: str) -> list[object]:
        return [body for path, body in self.asked if path.startswith("POST") and path.endswith(end)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path = self.path.partition("?")[0]
        self.server.asked.append((f"{self.command} {path}", body))
        self.server.keys.add(self.headers["X-Session-API-Key"])
        code = self.server.statuses.pop(0) if self.server.statuses else 200
        if not code:
            self.close_connection = True
            return
        reply = {"detail": "as scripted"} if code >= 400 else self.server.state
        if path.endswith("/events/search"):
            reply = {"items": [{"id": self.server.latest}]}
        raw = json.dumps(reply).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_POST = do_DELETE = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def agent():
    agent = Scripted()
    yield agent
    agent.shutdown()
    agent.server_close()


@pytest.fixture
def commands(store):
    return Commands(store, http_client(2))


@pytest.fixture
def sandbox(store, agent):
    """A sandbox that runs, as its supervisor has said, with that agent in it."""
    store.sandboxes.beat("scripted", "supervisor")
    sandbox = store.sandboxes.start("spec")
    while store.sandboxes.get(sandbox.id).host != "scripted":
        assert store.sandboxes.claim("scripted")
    store.sandboxes.report(sandbox.id, "scripted", "RUNNING", agent_url=agent.url, urls=[], handle={})
    yield store.sandboxes.get(sandbox.id)
    store.sandboxes.report(sandbox.id, "scripted", "GONE")


@pytest.fixture
def waiting(store, conversation, sandbox, agent):
    """A conversation whose agent waits for an answer to one action."""
    proposed = action("uname")
    agent.latest = proposed["id"]
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    batch = as_events([status("running"), proposed, status("waiting_for_confirmation")])
    store.events.append(conversation, batch, sandbox_id=sandbox.id)
    return conversation


def test_a_message_is_passed_on_with_the_key_and_written_by_nobody_else(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    content = [{"type": "text", "text": "hello"}]

    commands.send(conversation, content=content, run=True)

    assert agent.posted("/events") == [{"role": "user", "content": content, "run": True}]
    assert agent.keys == {sandbox.session_api_key}
    assert store.events.count(conversation) == 0


def test_a_message_rejects_what_waits_before_it_arrives(commands, waiting, agent):
    commands.send(waiting, content=[], run=True)
    paths = [path.rpartition("/")[2] for path, _ in agent.asked]
    assert paths == ["respond_to_confirmation", "events"]
    assert agent.posted("/respond_to_confirmation")[0]["accept"] is False


def test_an_answer_is_delivered_once(store, commands, waiting, sandbox, agent):
    assert commands.answer(waiting, accept=True, reason="fine")
    assert not commands.answer(waiting, accept=True, reason="fine")
    assert agent.posted("/respond_to_confirmation") == [{"accept": True, "reason": "fine"}]
    store.events.append(waiting, as_events([status("running")]), sandbox_id=sandbox.id)
    commands.redeliver(waiting, store.answers.get(waiting))  # a moment later: it has moved
    assert len(agent.posted("/respond_to_confirmation")) == 1
    assert store.answers.get(waiting) is None


def test_an_acceptance_that_the_agent_took_and_dropped_is_delivered_again(store, commands, waiting, sandbox, agent):
    """A published agent server does that between its word that it waits and the end of its run."""
    commands.answer(waiting, accept=True, reason="")
    store.answers._due_in(waiting, -1)

    while deliver_next(store, commands):
        pass

    assert len(agent.posted("/respond_to_confirmation")) == 2
    assert store.answers.get(waiting) is not None
    store.events.append(waiting, as_events([status("running")]), sandbox_id=sandbox.id)
    store.answers._due_in(waiting, -1)
    while deliver_next(store, commands):
        pass
    assert len(agent.posted("/respond_to_confirmation")) == 2
    assert store.answers.get(waiting) is None


def test_an_agent_that_goes_on_to_wait_is_given_up_and_the_log_says_so(store, commands, waiting, agent):
    commands.answer(waiting, accept=True, reason="")
    root = ConversationKeys(waiting).root
    words = store.answers._redis.hget(root, "answer").decode().split("\n")
    words[2] = str(int(words[2]) - 601_000_000)  # decided so long ago
    store.answers._redis.hset(root, "answer", "\n".join(words))
    store.answers._due_in(waiting, -1)

    while deliver_next(store, commands):
        pass

    assert store.answers.get(waiting) is None
    [raw], _ = store.events.search(waiting, kind="ConversationErrorEvent")
    assert "goes on to wait" in json.loads(raw)["detail"]


def test_a_message_behind_an_acceptance_accepts_no_later_action(store, commands, waiting, agent):
    commands.answer(waiting, accept=True, reason="")
    agent.latest = "another"

    commands.send(waiting, content=[], run=True)

    assert [body["accept"] for body in agent.posted("/respond_to_confirmation")] == [True]
    assert len(agent.posted("/events")) == 1


@pytest.mark.parametrize("failure", [0, 500, 503])
def test_an_answer_that_the_agent_did_not_take_is_delivered_again(store, commands, waiting, agent, failure):
    agent.statuses = [failure]

    assert commands.answer(waiting, accept=False, reason="no")

    answer = store.answers.get(waiting)
    assert answer is not None
    agent.statuses = [200, 200, failure]  # the state, the latest action, and no success once more
    with pytest.raises((AgentUnreachable, AgentRefused)):
        commands.redeliver(waiting, answer)
    assert store.answers.get(waiting) == answer
    commands.redeliver(waiting, answer)
    assert store.answers.get(waiting) is None
    assert agent.posted("/respond_to_confirmation") == [{"accept": False, "reason": "no"}] * 3


@pytest.mark.parametrize("moved_on", ["no longer waits", "waits for another action"])
def test_an_answer_that_was_heard_is_not_given_to_what_came_later(store, commands, waiting, agent, moved_on):
    agent.statuses = [0]  # heard, but the reply was lost
    commands.answer(waiting, accept=True, reason="")
    if moved_on == "no longer waits":
        agent.state = {"execution_status": "running"}
    else:
        agent.latest = "another"

    commands.redeliver(waiting, store.answers.get(waiting))

    assert len(agent.posted("/respond_to_confirmation")) == 1
    assert store.answers.get(waiting) is None


@pytest.mark.parametrize("why", ["refused", "gone"])
def test_an_answer_that_can_never_be_delivered_is_told_in_the_log(store, commands, waiting, sandbox, agent, why):
    agent.statuses = [500, 404]
    assert commands.answer(waiting, accept=True, reason="")
    if why == "gone":
        store.sandboxes.report(sandbox.id, "scripted", "ERROR", detail="it ended")
    store.answers._due_in(waiting, -1)

    while deliver_next(store, commands):
        pass

    assert store.answers.get(waiting) is None
    [raw], _ = store.events.search(waiting, kind="ConversationErrorEvent")
    told = json.loads(raw)
    assert told["code"] == "AnswerNotDelivered"
    assert "accepted" in told["detail"]


def test_what_can_be_repeated_is_tried_twice_and_what_cannot_once(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [0]
    commands.change_status(conversation, "pause")
    assert len(agent.posted("/pause")) == 2

    agent.statuses = [0, 0]
    with pytest.raises(AgentUnreachable):
        commands.send(conversation, content=[], run=False)
    with pytest.raises(AgentUnreachable):
        commands.change_status(conversation, "run")
    assert len(agent.posted("/events")) == len(agent.posted("/run")) == 1


@pytest.mark.parametrize("told", ["PAUSED", "MISSING", "ERROR"])
def test_nothing_is_asked_of_a_sandbox_that_does_not_run(store, commands, conversation, sandbox, agent, told):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    if told == "PAUSED":
        store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", told)

    with pytest.raises(NotReachable, match=told):
        commands.send(conversation, content=[], run=True)
    assert agent.asked == []


def test_nobody_is_asked_of_a_sandbox_that_was_forgotten(store, commands, conversation):
    store.conversations.create(conversation, sandbox_id=SandboxId("forgotten"), app={})
    with pytest.raises(NotReachable, match="MISSING"):
        commands.set_policy(conversation, {"kind": "NeverConfirm"})
    commands.delete(conversation)


def test_a_refusal_says_what_the_agent_said(store, commands, conversation, sandbox, agent):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    agent.statuses = [409]
    with pytest.raises(AgentRefused, match="409: as scripted"):
        commands.change_status(conversation, "run")
