"""The driver of start tasks, on a real store with a host of threads: a READY one stays, a failed one leaves nothing."""

import json
import logging
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import httpx
import pytest

from agents.client import AgentUnreachable
from agents.commands import Commands
from core.wire import Micros
from schemas.app_conversations import AppConversationStartTask
from settings.specs import Specs
from store.approvals.audit import DecisionActor
from store.errors import StoreError, StoreFull
from store.sandboxes import start_tasks
from store.sandboxes.sandboxes import SandboxId
from store.sandboxes.start_tasks import ENDED, MOST_ATTEMPTS, Failure
from supervisor.presence import LeaseLost, Presence
from supervisor.start_tasks import MOST_OF_ONE, MOST_WAITS, CannotStart, StartDriver
from tests.agents import agent_client
from tests.conftest import limits_of, store_of, unchecked
from tests.servers import wait_until

pytestmark = pytest.mark.process("a host on a thread runs what is started")

LIMITS = limits_of(most=20, pause_idlest=False, host_seconds=3600, start_seconds=3600)

#: seconds of a lease here: none ends by itself while a test runs on a busy machine
LEASE = 3000.0

SPECS = """
[[spec]]
id = "good"
command = ["agent"]
created_at = 2026-11-21T00:00:00Z

[[spec]]
id = "unforeseen"  # a message that is not an object is nothing that the driver reckons with
command = ["agent"]
created_at = 2026-11-21T00:00:00Z
[spec.conversation]
initial_message = "none"
"""


class StartedAgent(BaseHTTPRequestHandler):
    """An agent server that accepts every request. `says`: the body of its response to a body; `go_on`: it waits."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_POST(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.go_on.wait(60)
        said = self.server.says(sent.decode())
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_DELETE(self):
        self.server.deleted.append(self.path)
        self.do_POST()

    def log_message(self, *args):
        pass


@pytest.fixture
def agent():
    with ThreadingHTTPServer(("127.0.0.1", 0), StartedAgent) as server:
        server.daemon_threads = True
        server.status, server.deleted = 201, []
        server.says, server.go_on = lambda _: b"{}", threading.Event()
        server.go_on.set()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(redis_url, monkeypatch, agent):
    """A store without sandboxes and start tasks, and a host that runs started sandboxes and ends deleted ones."""
    monkeypatch.setattr(start_tasks, "LEASE", LEASE)
    store = store_of(redis_url, LIMITS, "a key for tests only")
    for pattern in ("{starts}*", "{sandboxes}*"):
        for key in store.start_tasks._redis.scan_iter(pattern):
            store.start_tasks._redis.delete(key)
    store.sandboxes.beat("h", "supervisor")
    done = threading.Event()
    url = f"http://127.0.0.1:{agent.server_address[1]}"

    def host():
        while not done.wait(0.01):
            while claimed := store.sandboxes.claim("h"):
                store.sandboxes.begin(claimed, "h", "supervisor", "process", hidden=["sk-of-the-spec"])
                store.sandboxes.report(claimed, "h", "supervisor", "RUNNING", agent_url=url, urls=[], handle={})
            for sandbox in store.sandboxes.of_host("h"):
                if sandbox.wanted == "deleted":
                    store.sandboxes.report(sandbox.id, "h", "supervisor", "GONE")

    thread = threading.Thread(target=host)
    thread.start()
    yield store
    done.set()
    thread.join()


@pytest.fixture
def driver(store, tmp_path):
    path = tmp_path / "specs.toml"
    path.write_text(SPECS)
    specs = Specs.load(str(path))
    return StartDriver(store, Commands(store, agent_client(10), specs), specs, shared=False, start_seconds=60)


def test_a_start_waits_for_the_room_that_a_nearly_full_redis_lacks(store, driver, monkeypatch):
    task = store.start_tasks.create({}, echo={})
    monkeypatch.setattr(store.link.health, "_asked_again_at", float("inf"))
    monkeypatch.setattr(store.link.health, "_full", (99, 100))
    claimed, lease = store.start_tasks.claim()

    with pytest.raises(StoreFull):
        driver.drive(claimed, lease)
    monkeypatch.setattr(store.link.health, "_full", None)

    assert read(store, task).status not in ("READY", "ERROR")
    driver.drive(claimed, lease)
    assert read(store, task).status == "READY"


def started(store, driver, **request):
    """The start task of a request after its first drive."""
    task = store.start_tasks.create(request, echo={})
    claimed, lease = store.start_tasks.claim()
    assert claimed.id == task.id
    driver.drive(claimed, lease)
    return read(store, task)


def read(store, task):
    return store.start_tasks.get_many([task.id])[0]


def until_gone(store, sandbox_id):
    wait_until(lambda: store.sandboxes.get_many([sandbox_id]) == [None], "the end of the sandbox")


def is_whole(store, task) -> bool:
    """Whether the conversation and the sandbox of a start task exist."""
    sandbox = store.sandboxes.get(SandboxId(task.sandbox_id))
    conversation = store.conversations.get(task.conversation_id)
    return (sandbox.status, sandbox.wanted) == ("RUNNING", "running") and conversation["sandbox_id"] == sandbox.id


def test_a_ready_start_task_whose_id_is_back_in_the_queue_keeps_its_conversation_and_sandbox(store, driver):
    ready = started(store, driver)
    assert (ready.status, ready.own_sandbox) == ("READY", True)
    assert is_whole(store, ready)

    store.start_tasks._redis.zadd("{starts}:due", {ready.id: 0})
    while claimed := store.start_tasks.claim():
        driver.drive(*claimed)
    driver.clear_failed()

    assert read(store, ready) == ready
    assert is_whole(store, ready)


class StartKilled(BaseException):
    """The driver is killed here."""


def kill(*_args, **_options):
    raise StartKilled


def clones(agent, code=0, said=""):
    """Have an agent server answer a clone; the commands that it has run so far."""
    ran = []

    def says(body):
        if "git clone" not in body:
            return b"{}"
        ran.append(body)
        return json.dumps({"exit_code": code, "stdout": "", "stderr": said}).encode()

    agent.says = says
    return ran


def test_a_start_whose_repository_cannot_be_cloned_fails_names_the_cause_and_leaves_nothing(store, driver, agent):
    clones(agent, 128, "fatal: the token hush-hush-hush is refused\n")

    failed = started(store, driver, selected_repository="owner/name", secrets={"TOKEN": "hush-hush-hush"})

    assert (failed.status, failed.failed_in) == ("ERROR", "PREPARING_REPOSITORY")
    assert failed.detail.startswith("The repository owner/name was not cloned: fatal: the token")
    assert "hush-hush-hush" not in failed.detail
    assert store.conversations.get_many([failed.conversation_id]) == [None]
    until_gone(store, failed.sandbox_id)
    clones(agent)
    assert (ready := started(store, driver, selected_repository="owner/name")).detail == ""
    assert (ready.status, ready.failed_in) == ("READY", "")


def test_a_start_that_follows_a_failed_one_tells_the_talk_once_what_it_lacks(store, driver, agent, monkeypatch):
    # Given a start that failed by its clone
    clones(agent, 128, "fatal: no such repository\n")
    echo = {"selected_repository": "owner/name"}
    failed = store.start_tasks.create(dict(echo), echo=echo)
    driver.drive(*store.start_tasks.claim())

    # When another start follows it, whose driver is killed before its end
    task = store.start_tasks.create({"failed_start_id": failed.id}, echo={})
    claimed = store.start_tasks.claim()
    with monkeypatch.context() as patch:
        patch.setattr(store.start_tasks, "finish", kill)
        with pytest.raises(StartKilled):
            driver.drive(*claimed)
    ready = again(store, driver, task)

    # Then one event of the talk says what it lacks, and the record claims no repository
    assert ready.status == "READY"
    [event] = map(json.loads, store.events.search(ready.conversation_id)[0])
    assert (event["kind"], event["code"]) == ("ConversationErrorEvent", "StartedWithoutRepository")
    assert event["detail"] == (
        "The repository owner/name was not cloned: fatal: no such repository. This conversation started without it."
    )
    state = store.conversations.get(ready.conversation_id)
    assert "selected_repository" not in state["app"]
    assert "repository" not in (state["origin"] or {})


def test_a_start_after_an_ended_start_names_the_missing_repository(store, driver, agent):
    echo = {"selected_repository": "owner/name"}
    task = store.start_tasks.create(dict(echo), echo=echo)
    store.start_tasks.end(task.id)

    ready = started(store, driver, failed_start_id=task.id)

    [event] = map(json.loads, store.events.search(ready.conversation_id)[0])
    assert event["detail"] == f"{ENDED}. This conversation started without the repository owner/name."


@pytest.mark.parametrize("point", ["advance", "finish", "bury"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_driver_that_is_killed_around_a_failed_clone_leaves_one_failed_start_and_nothing_else(
    store, driver, agent, monkeypatch, point, is_after
):
    # Given a clone that fails, and a driver that is killed before or after a step of what follows
    ran = clones(agent, 128, "fatal: no\n")
    act = getattr(store.start_tasks, point)

    def step(*args, **options):
        if not ran:
            return act(*args, **options)
        if is_after:
            act(*args, **options)
        raise StartKilled

    task = store.start_tasks.create({"selected_repository": "owner/name"}, echo={})
    claimed = store.start_tasks.claim()
    with monkeypatch.context() as patch:
        patch.setattr(store.start_tasks, point, step)
        with pytest.raises(StartKilled):
            driver.drive(*claimed)

    # When another driver takes over what is left
    store.start_tasks._redis.zadd("{starts}:due", {task.id: 0})
    while claimed := store.start_tasks.claim():
        driver.drive(*claimed)
    store.start_tasks._redis.zadd("{starts}:failed", {task.id: 0}, xx=True)
    driver.clear_failed()

    # Then the start has failed by its clone, and neither its conversation nor its sandbox is there
    failed = read(store, task)
    assert (failed.status, failed.failed_in) == ("ERROR", "PREPARING_REPOSITORY")
    assert failed.detail == "The repository owner/name was not cloned: fatal: no"
    assert store.conversations.get_many([task.conversation_id]) == [None]
    until_gone(store, failed.sandbox_id)
    assert store.start_tasks.claim_failed() is None


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_clone_that_a_person_is_asked_for_waits_for_the_decision(store, driver, agent, decision):
    # Given a clone whose host nobody has allowed
    ran = clones(agent, 128, "fatal: 403\n")
    says = agent.says

    def asks(body):
        answer = says(body)
        if len(ran) == 1 and not store.destinations.waiting():
            [sandbox] = store.sandboxes.of_host("h")
            store.destinations.verdict(sandbox.id, "git.example.org", 443)
        return answer

    agent.says = asks
    waits = started(store, driver, selected_repository="https://git.example.org/owner/name")
    assert (waits.status, waits.waits) == ("PREPARING_REPOSITORY", 1)
    assert "git.example.org:443 waits for your decision in the inbox" in waits.detail

    # When it is driven again before the decision, then it clones nothing
    assert again(store, driver, waits).waits == 2
    assert len(ran) == 1

    # When a person decides, then it clones once more, and ends by what comes of it
    [asked] = store.destinations.waiting(waits.sandbox_id)
    store.destinations.decide(asked, decision, "once", DecisionActor("key", "ada"))
    if decision == "approve":
        clones(agent)
    ended = again(store, driver, waits)
    assert ended.status == ("READY" if decision == "approve" else "ERROR")


def test_the_sandbox_of_a_start_task_is_owned_by_the_key_that_asked_for_it(store, driver):
    task = store.start_tasks.create({}, echo={}, owner="a key")
    driver.drive(*store.start_tasks.claim())
    assert store.sandboxes.owned_by("a key")[0] == [read(store, task).sandbox_id]


def test_a_ready_start_task_says_what_its_agent_ignores_without_secrets(store, driver, agent):
    sentences = ["tools are ignored: a, hush-hush-hush.", 3, "x" * 100_000]
    agent.says = lambda _: json.dumps({"ignored": sentences}).encode()
    ready = started(store, driver, secrets={"TOKEN": "hush-hush-hush"})
    assert (ready.status, ready.detail.startswith("tools are ignored: a, **********. xxx")) == ("READY", True)
    assert len(ready.detail) <= 4000

    for odd in (b"no JSON", b"[]", b'{"ignored": {"a": "b"}}', b'{"ignored": null}'):
        agent.says = lambda _, odd=odd: odd
        assert (started(store, driver).status, started(store, driver).detail) == ("READY", "")


@pytest.mark.parametrize("is_own_body", [False, True])
def test_a_conversation_keeps_which_client_started_it(store, driver, is_own_body):
    if is_own_body:
        given, wanted = {"body": {"agent": {}}, "headers": {}}, {"started_from": "a digest", "kept": {}}
        task, _ = store.start_tasks.create_once(str(uuid4()), wanted, given, echo={}, owner="a key")
    else:
        task = store.start_tasks.create({"started_from": "a digest"}, echo={}, owner="a key")
    driver.drive(*store.start_tasks.claim())

    app = store.conversations.get(task.conversation_id)["app"]
    assert (app["started_from"], app["started_by"]) == ("a digest", "a key")


@pytest.mark.parametrize("is_own_body", [False, True])
def test_a_conversation_keeps_where_its_start_began_for_rules(store, driver, agent, is_own_body):
    clones(agent)
    if is_own_body:
        body = {"agent": {}, "workspace": {"working_dir": "/home/ada/shop/"}}
        given, wanted = {"body": body, "headers": {}}, {"kept": {}}
        task, _ = store.start_tasks.create_once(str(uuid4()), wanted, given, echo={}, owner="a key")
    else:
        request = {"selected_repository": "ada/shop", "git_provider": "gitlab"}
        task = store.start_tasks.create(request, echo={}, owner="a key")
    driver.drive(*store.start_tasks.claim())

    origin = store.conversations.get(task.conversation_id)["origin"]
    place = {"folder": "/home/ada/shop"} if is_own_body else {"repository": "gitlab.com/ada/shop"}
    assert origin == {"key_id": "a key", **place}


def test_a_late_driver_leaves_the_sandbox_and_conversation_of_a_ready_start_task(store, driver):
    task = store.start_tasks.create({}, echo={})
    late = store.start_tasks.claim()
    store.start_tasks._redis.zadd("{starts}:due", {task.id: 0})
    driver.drive(*store.start_tasks.claim())
    ready = read(store, task)
    assert ready.status == "READY"

    driver.drive(*late)

    assert read(store, task) == ready
    assert is_whole(store, ready)


def test_the_sandbox_of_a_late_driver_of_a_failed_start_task_is_removed(store, driver):
    task = store.start_tasks.create({}, echo={})
    late, lease = store.start_tasks.claim()
    sandbox_id = f"{task.id[:10]}late"
    store.start_tasks.advance(task.id, lease, sandbox_id=sandbox_id, own_sandbox="1")
    store.start_tasks._redis.zadd("{starts}:due", {task.id: 0})
    _, second = store.start_tasks.claim()
    store.start_tasks.finish(task.id, second, "ERROR", "the second driver says so")
    driver.clear_failed()

    driver.drive(replace(late, sandbox_id=sandbox_id, own_sandbox=True), lease)

    until_gone(store, sandbox_id)
    assert store.conversations.get_many([task.conversation_id]) == [None]
    assert read(store, task).detail == "the second driver says so"


def test_a_failed_start_task_reports_its_reason_and_leaves_neither_sandbox_nor_conversation(store, driver, agent):
    agent.status = 418

    failed = started(store, driver)

    assert failed.status == "ERROR"
    assert "418" in failed.detail
    until_gone(store, failed.sandbox_id)
    assert store.conversations.get_many([failed.conversation_id]) == [None]
    assert store.start_tasks.claim_failed() is None


@pytest.fixture
def lost(store, monkeypatch):
    """While `lost` is set, the host of every sandbox is lost."""
    is_lost, get = threading.Event(), type(store.sandboxes).get_many

    def missing(self, ids):
        return [one and (replace(one, status="MISSING") if is_lost.is_set() else one) for one in get(self, ids)]

    monkeypatch.setattr(type(store.sandboxes), "get_many", missing)
    return is_lost


def again(store, driver, task):
    """The start task after it was driven once more."""
    store.start_tasks._redis.zadd("{starts}:due", {task.id: 0})
    driver.drive(*store.start_tasks.claim())
    return read(store, task)


def test_a_start_task_whose_host_is_lost_waits_says_why_and_goes_on_when_the_host_is_back(store, driver, lost):
    lost.set()
    waits = started(store, driver)
    assert (waits.status, waits.waits) == ("WAITING_FOR_SANDBOX", 1)
    assert "its host, which has its files, does not answer" in waits.detail
    for _ in range(MOST_ATTEMPTS + 1):
        waits = again(store, driver, waits)
    assert waits.status == "WAITING_FOR_SANDBOX"

    lost.clear()
    ready = again(store, driver, waits)
    assert (ready.status, ready.detail, ready.sandbox_id) == ("READY", "", waits.sandbox_id)
    assert is_whole(store, ready)


def test_starts_into_a_sandbox_that_is_slow_wait_for_each_other_and_those_of_others_do_not(store, driver):
    sandbox = store.sandboxes.get(SandboxId(started(store, driver).sandbox_id))
    with ExitStack() as slow:
        for _ in range(MOST_OF_ONE):
            slow.enter_context(driver._turn_in(sandbox.id))
        waits = started(store, driver, sandbox_id=sandbox.id)
        assert (waits.status, waits.waits) == ("WAITING_FOR_SANDBOX", 1)
        assert f"{MOST_OF_ONE} conversations already begin in the sandbox {sandbox.id}, the most" in waits.detail
        assert started(store, driver).status == "READY"  # in a sandbox of its own

    ready = again(store, driver, waits)
    assert (ready.status, ready.sandbox_id) == ("READY", sandbox.id)
    assert not driver._in


def test_a_start_task_whose_host_is_lost_for_an_hour_fails(store, driver, lost):
    lost.set()
    waits = started(store, driver)
    store.start_tasks._redis.hset(f"{{starts}}:task:{waits.id}", "waits", MOST_WAITS)

    failed = again(store, driver, waits)

    assert failed.status == "ERROR"
    assert failed.failure.status == 503


def test_a_start_task_gives_its_sandbox_all_its_time_though_the_supervisor_was_away(store, driver, monkeypatch):
    seen, get = [], type(store.sandboxes).get

    def starting(self, sandbox_id):
        found = get(self, sandbox_id)
        if len(seen) == 4:
            return found
        seen.append(Micros(found.seen_at + len(seen) * 3600 * 1_000_000))
        return replace(found, status="STARTING", seen_at=seen[-1])

    monkeypatch.setattr(type(store.sandboxes), "get", starting)

    assert started(store, driver).status == "READY"


@pytest.mark.parametrize("was_away", [True, False])
def test_an_agent_that_does_not_answer_a_driver_that_was_stopped_is_asked_again(
    store, driver, agent, monkeypatch, was_away
):
    monkeypatch.setattr(Presence, "was_away", lambda _: was_away)

    def unreachable(*_):
        raise AgentUnreachable("the agent server did not answer in time")

    with monkeypatch.context() as patch:
        patch.setattr(Commands, "agent_in", unreachable)
        once = started(store, driver)

    if was_away:
        assert (once.status, once.waits) == ("STARTING_CONVERSATION", 1)
        assert again(store, driver, once).status == "READY"
    else:
        assert once.status == "ERROR"


@pytest.mark.parametrize("is_back", [True, False])
def test_an_agent_server_that_was_killed_during_a_start_is_asked_once_more(store, driver, agent, monkeypatch, is_back):
    def killed(*_):
        raise AgentUnreachable("The agent server does not answer: refused") from httpx.ConnectError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(Commands, "agent_in", killed)
        once = started(store, driver)
        assert (once.status, once.waits) == ("STARTING_CONVERSATION", 1)
        if not is_back:
            ended = again(store, driver, once)
            assert (ended.status, ended.failure.status) == ("ERROR", 502)
            assert f"The conversation {once.conversation_id} was not started, in two tries: start it" in ended.detail
    if is_back:
        assert again(store, driver, once).status == "READY"


def test_another_driver_removes_the_leftovers_of_a_failed_start_task_whose_driver_died(store, driver):
    task = store.start_tasks.create({}, echo={})
    _, lease = store.start_tasks.claim()
    sandbox = store.sandboxes.start("good")
    store.start_tasks.advance(task.id, lease, sandbox_id=sandbox.id, own_sandbox="1")
    store.conversations.create(task.conversation_id, sandbox_id=sandbox.id, app={"start_id": task.id})
    store.start_tasks.finish(task.id, lease, "ERROR", "and then it died")

    driver.clear_failed()

    until_gone(store, sandbox.id)
    assert store.conversations.get_many([task.conversation_id]) == [None]


def test_a_failed_start_task_leaves_the_conversation_of_another_one_in_its_sandbox(store, driver):
    task = store.start_tasks.create({}, echo={})
    _, lease = store.start_tasks.claim()
    sandbox = store.sandboxes.start("good")
    store.start_tasks.advance(task.id, lease, sandbox_id=sandbox.id, own_sandbox="1")
    ready = started(store, driver, sandbox_id=sandbox.id)
    assert ready.status == "READY"

    store.start_tasks.finish(task.id, lease, "ERROR", "it failed")
    driver.clear_failed()

    assert is_whole(store, ready)


def test_a_start_that_is_ended_before_any_step_of_its_driver_leaves_nothing_though_the_driver_is_killed_after_it(
    store, driver, monkeypatch
):
    steps = {
        "is chosen": (store.start_tasks, "advance"),
        "is started": (store.sandboxes, "start"),
        "is created": (store.conversations, "create"),
        "is told": (driver._commands, "agent_in"),
        "is ready": (store.start_tasks, "finish"),
    }
    for place, name in steps.values():
        task, step = store.start_tasks.create({}, echo={}), getattr(place, name)

        def end_before_it(*args, task=task, step=step, **options):
            store.start_tasks.end(task.id)
            driver.clear_failed()
            step(*args, **options)
            raise KeyboardInterrupt

        with monkeypatch.context() as killed:
            killed.setattr(place, name, end_before_it)
            claimed, lease = store.start_tasks.claim()
            assert claimed.id == task.id
            with suppress(KeyboardInterrupt):
                driver.drive(claimed, lease)

        ended = read(store, task)
        assert (ended.status, ended.detail) == ("ERROR", ENDED), name
        assert store.conversations.get_many([task.conversation_id]) == [None], name
        if ended.sandbox_id:
            until_gone(store, ended.sandbox_id)
    assert store.start_tasks.claim() is None


def test_an_agent_in_a_sandbox_that_stays_is_told_of_the_end_of_a_start_again(store, driver, agent):
    sandbox = store.sandboxes.start("good")
    assert started(store, driver, sandbox_id=sandbox.id).status == "READY"
    task = store.start_tasks.create({"sandbox_id": sandbox.id}, echo={})
    _, lease = store.start_tasks.claim()
    written = {"sandbox_id": sandbox.id, "agent_server_url": "http://agent", "status": "STARTING_CONVERSATION"}
    store.start_tasks.advance(task.id, lease, **written)
    store.start_tasks.end(task.id)

    for _ in range(2):
        driver.clear_failed()
        store.start_tasks._redis.zadd("{starts}:failed", {task.id: 0}, xx=True)
    assert agent.deleted == [f"/api/conversations/{task.conversation_id}"] * 2
    store.start_tasks._redis.hincrby(f"{{starts}}:task:{task.id}", "updated_at", -61_000_000)
    driver.clear_failed()

    assert store.start_tasks._redis.zcard("{starts}:failed") == 0
    assert store.sandboxes.get(sandbox.id).wanted == "running"


def test_a_sandbox_that_is_deleted_while_its_start_waits_is_not_started_again_by_the_next_driver(store, driver):
    task = store.start_tasks.create({}, echo={})
    _, lease = store.start_tasks.claim()
    sandbox = store.sandboxes.start("good", SandboxId(f"{task.id[:10]}own"), start_id=task.id)
    store.start_tasks.advance(task.id, lease, sandbox_id=sandbox.id, own_sandbox="1")
    store.sandboxes.ask(sandbox.id, "delete")
    until_gone(store, sandbox.id)

    failed = again(store, driver, task)

    assert failed.status == "ERROR"
    assert store.sandboxes.get_many([sandbox.id]) == [None]


def test_a_start_whose_sandbox_is_deleted_says_so(store, driver):
    task = store.start_tasks.create({}, echo={})
    start, lease = store.start_tasks.claim()
    store.sandboxes.beat("another", "its supervisor")
    sandbox = store.sandboxes.start("good", host="another")
    store.sandboxes.ask(sandbox.id, "delete")

    with pytest.raises(CannotStart, match=f"{sandbox.id} was deleted"):
        driver._running(replace(start, sandbox_id=sandbox.id), lease)

    assert read(store, task).status == "WORKING"


def test_a_driver_whose_start_was_ended_has_not_failed_it(store):
    task = store.start_tasks.create({}, echo={})
    start, lease = store.start_tasks.claim()
    store.start_tasks.end(task.id)
    assert not store.start_tasks.fail(start, lease, "why", Failure(502, "why"))
    assert read(store, task).detail == ENDED


def test_a_start_that_is_ended_while_its_sandbox_is_paused_does_not_resume_it(store, driver):
    task = store.start_tasks.create({}, echo={})
    start, lease = store.start_tasks.claim()
    sandbox = store.sandboxes.start("good")
    wait_until(lambda: store.sandboxes.get(sandbox.id).status == "RUNNING", "the sandbox")
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "h", "supervisor", "PAUSED", handle="")
    store.start_tasks.end(task.id)

    with pytest.raises(LeaseLost):
        driver._running(replace(start, sandbox_id=sandbox.id), lease)

    assert store.sandboxes.get(sandbox.id).wanted == "paused"


def test_an_id_that_is_taken_fails_and_leaves_its_conversation(store, driver):
    ready = started(store, driver)
    failed = started(store, driver, conversation_id=ready.conversation_id)
    assert failed.status == "ERROR"
    assert "exists" in failed.detail
    assert is_whole(store, ready)


def test_an_unexpected_error_is_logged_retried_with_backoff_and_then_ends_the_start_task(store, driver, caplog):
    task = store.start_tasks.create({"sandbox_spec_id": "unforeseen"}, echo={})
    due = []
    with caplog.at_level(logging.ERROR, "supervisor"):
        for _ in range(MOST_ATTEMPTS - 1):
            driver.drive(*store.start_tasks.claim())
            assert store.start_tasks.claim() is None
            assert read(store, task).status == "STARTING_CONVERSATION"
            due.append(store.start_tasks._redis.zscore("{starts}:due", task.id) / 1e6)
            store.start_tasks._redis.zadd("{starts}:due", {task.id: 0})
        driver.drive(*store.start_tasks.claim())
        assert store.start_tasks.claim() is None

    assert [record.exc_info[0] for record in caplog.records] == [AttributeError] * MOST_ATTEMPTS
    assert due[1] - due[0] > 1
    failed = read(store, task)
    assert failed.status == "ERROR"
    assert "unforeseen error" in failed.detail
    driver.clear_failed()
    until_gone(store, failed.sandbox_id)


def test_a_start_task_whose_failure_cannot_be_written_ends_after_as_many_attempts(store, driver, monkeypatch):
    task = store.start_tasks.create({"sandbox_id": "absent"}, echo={})
    monkeypatch.setattr(store.start_tasks, "fail", lambda *_: {}["absent"])

    for _ in range(MOST_ATTEMPTS):
        driver.drive(*store.start_tasks.claim())
        store.start_tasks._redis.zadd("{starts}:due", {task.id: 0}, xx=True)

    assert store.start_tasks.claim() is None
    assert "unforeseen error" in read(store, task).detail


def test_what_a_start_has_left_and_cannot_be_removed_holds_up_no_other(store, driver, monkeypatch, caplog):
    tasks = [store.start_tasks.create({}, echo={}) for _ in range(2)]
    for _ in tasks:
        start, lease = store.start_tasks.claim()
        store.start_tasks.finish(start.id, lease, "ERROR", "and then it died")
    cleared, clear = [], driver._clear

    def failing(failed):
        cleared.append(failed.id)
        if len(cleared) == 1:
            raise ValueError
        clear(failed)

    monkeypatch.setattr(driver, "_clear", failing)
    driver.clear_failed()

    assert sorted(cleared) == sorted(task.id for task in tasks)
    assert f"start task {cleared[0]}: its leftovers cannot be removed" in caplog.text


def test_a_failure_without_a_text_is_reported_by_its_kind(store, driver, monkeypatch, caplog):
    class Wordless(StoreError):
        pass

    def refuse(*_):
        raise Wordless

    monkeypatch.setattr(driver._specs, "get", refuse)
    with caplog.at_level(logging.WARNING, "supervisor"):
        failed = started(store, driver)

    assert failed.detail == "Wordless"
    assert f"start task {failed.id}: Wordless" in caplog.text


@pytest.mark.faults("many threads race")
def test_concurrent_renewals_never_revive_a_finished_start_task(store, driver, monkeypatch):
    monkeypatch.setattr("supervisor.start_tasks.LEASE", 0.003)  # a renewal every millisecond
    ids = []
    for _ in range(10):
        ids.append(started(store, driver).id)
        assert store.start_tasks._redis.zcard("{starts}:due") == 0
    time.sleep(0.05)
    assert store.start_tasks.claim() is None
    assert [task.status for task in store.start_tasks.get_many(ids)] == ["READY"] * 10


# secrets of a start that has ended

TOLD = "ghp_of-the-start"


def kept_words(store) -> str:
    """The hashes that the store keeps, start tasks and conversations among them, and the names of its other keys."""
    redis = store.start_tasks._redis
    return repr([key if redis.type(key) != b"hash" else (key, redis.hgetall(key)) for key in redis.scan_iter("*")])


SAYS = {
    "a text": lambda sent: json.dumps({"detail": f"bad: {sent}"}),
    "faults": lambda sent: json.dumps({"detail": [{"loc": ["body"], "msg": f"bad: {sent}", "type": "value_error"}]}),
    "no JSON": lambda sent: sent,
    "a text that is cut within a secret": lambda sent: "x" * (495 - sent.index("ghp_")) + sent,
}


@pytest.mark.parametrize("status", [404, 422, 500])
@pytest.mark.parametrize("says", SAYS.values(), ids=SAYS)
def test_a_start_that_its_agent_server_refuses_keeps_none_of_its_secrets(store, driver, agent, caplog, status, says):
    # Given an agent server that repeats what it was sent, and says what is in its environment
    agent.status, agent.says = status, lambda sent: says(f"{sent} sk-of-the-spec").encode()

    failed = started(store, driver, secrets={"TOKEN": TOLD})
    until_gone(store, failed.sandbox_id)

    # Then neither the client, nor the store, nor the log has a secret of either, or a part of one
    assert failed.status == "ERROR"
    seen = f"{failed}{kept_words(store)}{caplog.text}"
    assert [word for word in ("ghp_", "sk-of") if word in seen] == []


def test_a_start_that_is_ended_while_its_agent_server_begins_leaves_none_of_its_secrets(store, driver, agent):
    # Given a start whose agent server has its secrets, and does not answer yet
    agent.go_on.clear()
    task = store.start_tasks.create({"secrets": {"TOKEN": TOLD}}, echo={})
    driving = threading.Thread(target=driver.drive, args=store.start_tasks.claim())
    driving.start()
    wait_until(lambda: read(store, task).status == "STARTING_CONVERSATION", "the call of the agent server")
    wait_until(lambda: ":secrets" in kept_words(store), "the secrets of the conversation")

    # When a client ends it, and then the agent server begins all the same
    store.start_tasks.end(task.id)
    driver.clear_failed()
    agent.go_on.set()
    driving.join()

    # Then nothing sealed is left of it
    until_gone(store, read(store, task).sandbox_id)
    assert [*store.start_tasks._redis.scan_iter(f"*{task.conversation_id}*:s*")] == []  # secrets, start
    assert driver._store.start_tasks.secrets_of(task) == {}
    assert TOLD not in kept_words(store)


# places


@pytest.fixture
def tight(redis_url, store, tmp_path):
    """A store with a place for one sandbox, whose agent runs, and a driver of its start tasks."""
    tight = store_of(redis_url, unchecked(LIMITS, max_sandboxes=1, sandbox_overflow="pause"), "a key for tests only")
    path = tmp_path / "specs.toml"
    path.write_text(SPECS)
    specs = Specs.load(str(path))
    driver = StartDriver(tight, Commands(tight, agent_client(10), specs), specs, shared=False, start_seconds=60)
    first = started(tight, driver)
    tight.conversations.change_status(first.conversation_id, "run")
    tight.sandboxes._redis.hincrby(f"{{sandboxes}}:box:{first.sandbox_id}", "active_at", -60_000_000)
    return tight, driver, first


def drive_due(store, driver) -> list[str]:
    """The start tasks that a supervisor drives now, in order."""
    driven = []
    while claimed := store.start_tasks.claim():
        driven.append(claimed[0].id)
        driver.drive(*claimed)
    return driven


def wait_no_longer(store) -> None:
    """Have the first start task that waits for a place be due."""
    store.start_tasks._redis.zadd("{starts}:due", {store.start_tasks.first_waiting(): 0})


def test_a_start_that_finds_no_place_waits_and_says_so(tight):
    store, driver, first = tight

    waiting = started(store, driver)

    assert (waiting.status, waiting.waits_for_place) == ("WAITING_FOR_SANDBOX", True)
    assert waiting.detail.startswith("Waiting for a place: 1 of 1 sandboxes are running (MAX_SANDBOXES)")
    assert "at most 300 s (PLACE_SECONDS)" in waiting.detail
    assert store.sandboxes.get(first.sandbox_id).wanted == "running"
    store.sandboxes.ask(first.sandbox_id, "delete")
    wait_no_longer(store)
    assert drive_due(store, driver) == [waiting.id]
    ready = read(store, waiting)
    assert (ready.status, ready.detail, ready.waits_for_place) == ("READY", "", False)
    assert store.start_tasks.first_waiting() is None


def test_a_start_that_waits_gets_the_place_of_an_agent_that_has_finished(tight):
    store, driver, first = tight
    waiting = started(store, driver)
    store.conversations.change_status(first.conversation_id, "pause")

    wait_no_longer(store)
    drive_due(store, driver)

    assert read(store, waiting).status == "READY"
    assert store.sandboxes.get(first.sandbox_id).wanted == "paused"


def test_starts_get_places_in_the_order_of_their_creation_and_a_new_one_overtakes_none(tight):
    store, driver, first = tight
    waiting = [started(store, driver) for _ in range(3)]
    store.sandboxes.ask(first.sandbox_id, "delete")
    until_gone(store, first.sandbox_id)

    late = started(store, driver)  # a place is free, and is not for this one
    assert late.waits_for_place
    assert store.start_tasks.first_waiting() == waiting[0].id
    for one, following in zip(waiting, [*waiting[1:], late], strict=True):
        wait_no_longer(store)
        assert drive_due(store, driver)[0] == one.id
        assert read(store, one).status == "READY"
        assert store.start_tasks.first_waiting() == following.id
        store.conversations.change_status(one.conversation_id, "run")
        store.sandboxes.ask(SandboxId(read(store, one).sandbox_id), "delete")


def test_the_end_of_the_first_that_waits_makes_the_next_due_at_once(tight):
    store, driver, _ = tight
    one, other = started(store, driver), started(store, driver)
    assert store.start_tasks.claim() is None  # the second is not tried before its turn
    store.start_tasks.end(one.id)
    claimed, _ = store.start_tasks.claim()
    assert claimed.id == other.id


def test_a_start_that_has_waited_as_long_as_it_may_fails_with_what_to_do(tight):
    store, driver, _ = tight
    waiting = started(store, driver)
    store.start_tasks._redis.hincrby(f"{{starts}}:task:{waiting.id}", "waiting_at", -301_000_000)
    wait_no_longer(store)
    drive_due(store, driver)

    failed = read(store, waiting)
    assert failed.status == "ERROR"
    assert failed.detail.startswith("No place became free within 300 s (PLACE_SECONDS): 1 of 1 sandboxes are running")
    assert failed.detail.endswith("Pause or delete a sandbox, or raise MAX_SANDBOXES, then start again")
    assert failed.failure == Failure(429, failed.detail, True)
    assert AppConversationStartTask().dump(failed)["failure_status"] == 429


def test_a_start_whose_driver_was_killed_after_it_found_a_place_keeps_it_and_holds_up_none(tight):
    store, driver, first = tight
    one, other = started(store, driver), started(store, driver)
    store.sandboxes.ask(first.sandbox_id, "delete")
    until_gone(store, first.sandbox_id)
    store.sandboxes.start("good", SandboxId(one.sandbox_id), start_id=one.id)

    wait_no_longer(store)
    drive_due(store, driver)

    assert read(store, one).status == "READY"
    assert store.start_tasks.first_waiting() == other.id


def test_with_refuse_a_start_that_finds_no_place_fails_at_once(store, driver, monkeypatch):
    monkeypatch.setattr(store.sandboxes, "limits", unchecked(LIMITS, max_sandboxes=0))
    failed = started(store, driver)
    assert (failed.status, failed.failure.status, failed.failure.is_passing) == ("ERROR", 429, True)
    assert "MAX_SANDBOXES" in failed.detail
