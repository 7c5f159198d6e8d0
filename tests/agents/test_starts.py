"""A request that waits for the start of an agent: what it gets at the start's end, what it leaves, and which folder."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from agents import starts
from agents.starts import (
    MOST_OWN_TITLE,
    StartFailed,
    StartNotDone,
    StartWaits,
    folder_for,
    movable,
    own_request,
    started,
    template_of,
    title_of_message,
)
from settings.specs import Specs
from store.errors import SecretsRefused, TooManyStarts
from store.sandboxes.start_tasks import Failure
from tests.conftest import SECRET_KEY, limits_of, store_of, unchecked
from tests.servers import wait_until
from tests.store.conftest import present_for

LIMITS = limits_of(most=10_000, pause_idlest=False, host_seconds=3600, start_seconds=60)
BODY = {"body": {"agent": {"llm": {"api_key": "planted"}}}, "headers": {}}


@pytest.fixture
def make(redis_url):
    """A store of those limits without start tasks, with one living host."""

    def do(secret_key: str = SECRET_KEY, **limits):
        store = store_of(redis_url, unchecked(LIMITS, **limits), secret_key)
        for key in store.start_tasks._redis.scan_iter("{starts}*"):
            store.start_tasks._redis.delete(key)
        store.sandboxes.beat("h", "supervisor")
        return store

    return do


def begin(store, conversation):
    return store.start_tasks.create_once(conversation, {"kept": {}}, BODY, echo={})


def wait(store, conversation):
    return started(store, conversation, lambda: begin(store, conversation))


def claim(store):
    """The next start task and its lease, as soon as there is one."""
    claimed: list = []
    wait_until(lambda: claimed.extend(store.start_tasks.claim() or ()) or claimed, "a start task")
    return claimed


def keys(store, pattern: str) -> list[bytes]:
    return list(store.start_tasks._redis.scan_iter(pattern))


def test_a_start_that_takes_longer_goes_on_and_the_next_request_finds_it(make, conversation):
    store = make(sandbox_start_seconds=0.3)
    begin(store, conversation)
    claim(store)

    with pytest.raises(StartNotDone, match="SANDBOX_START_SECONDS"):
        wait(store, conversation)

    start, is_new = begin(store, conversation)
    assert (start.status, is_new) == ("WORKING", False)
    assert store.start_tasks.count(conversation_id=conversation) == 1


class StartClock:
    """A clock that sleeping moves."""

    def __init__(self):
        self.now, self.pauses = 1000.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def test_a_start_that_waits_for_a_place_is_looked_at_once_a_second(make, conversation, monkeypatch):
    store, clock = make(sandbox_start_seconds=60), StartClock()
    monkeypatch.setattr(starts, "time", clock)
    start, _ = begin(store, conversation)
    _, lease = claim(store)
    store.start_tasks.await_place(start.id, lease, "Waiting for a place")

    with pytest.raises(StartWaits, match=r"Waiting for a place\. Repeat the request"):
        wait(store, conversation)

    assert sum(clock.pauses) == pytest.approx(60)
    assert len(clock.pauses) < 80
    assert max(clock.pauses) == 1.0


@pytest.mark.faults("a race of threads")
def test_of_many_requests_for_one_id_one_makes_the_start_task(make, conversation):
    store = make()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: begin(store, conversation), range(16)))

    assert len({start.id for start, _ in made}) == 1
    assert sorted(is_new for _, is_new in made) == [False] * 15 + [True]


@pytest.mark.faults("a race of threads")
def test_a_failed_start_fails_its_request_with_its_reason_and_the_next_one_succeeds(make, conversation):
    store = make()
    have_begun = Barrier(3)

    def begin_together():
        begun = begin(store, conversation)
        have_begun.wait(30)
        return begun

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(started, store, conversation, begin_together) for _ in range(2)]
        have_begun.wait(30)
        claimed = claim(store)
        store.start_tasks.fail(*claimed, "why", Failure(422, [{"msg": "why"}]))
        failures = [one.exception(30) for one in waiting]

    assert all(isinstance(failure, StartFailed) for failure in failures)
    assert {failure.failure.status for failure in failures} == {422}
    assert keys(store, "{starts}:body:*") == []
    assert begin(store, conversation)[1]


@pytest.mark.faults("a race of threads")
def test_a_conversation_that_a_failed_start_has_left_is_waited_for_and_then_started_again(make, conversation):
    store = make()
    start, _ = begin(store, conversation)
    _, lease = store.start_tasks.claim()
    store.conversations.create(conversation, sandbox_id="box", app={"start_id": start.id})
    store.start_tasks.fail(start, lease, "why", Failure(502, "why"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, store, conversation)
        store.conversations.delete(conversation)
        claimed = claim(store)
        second, lease = claimed
        store.conversations.create(conversation, sandbox_id="box", app={"start_id": second.id})
        assert store.start_tasks.finish(second.id, lease, "READY")
        state, is_new = waiting.result(30)

    assert (state["app"]["start_id"], is_new) == (second.id, True)


@pytest.mark.faults("a race of threads")
def test_an_id_that_another_start_has_taken_meanwhile_is_that_conversation(make, conversation):
    store = make()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, store, conversation)
        claimed = claim(store)
        store.conversations.create(conversation)
        store.start_tasks.fail(*claimed, "exists", Failure(409, "exists"))
        state, is_new = waiting.result(30)

    assert (state["id"], is_new) == (conversation, False)


def test_a_start_without_a_supervisor_that_could_go_on_is_503(make, conversation):
    store = make(sandbox_start_seconds=0.2)
    start, _ = begin(store, conversation)
    store.start_tasks._redis.zadd("{starts}:due", {start.id: 1})
    present_for(store.start_tasks._redis, "{starts}", 1)  # supervisors were there, and none took it

    [failed] = store.start_tasks.get_many([start.id])

    assert (failed.status, failed.failure.status) == ("ERROR", 503)


def test_the_cap_of_starts_and_a_server_without_a_key_refuse_and_leave_nothing(make, conversation):
    with pytest.raises(TooManyStarts):
        begin(make(max_starts=0), conversation)
    store = make(secret_key="")
    with pytest.raises(SecretsRefused):
        begin(store, conversation)

    assert keys(store, "{starts}:*") == []


def test_a_body_is_sealed_for_its_conversation_and_goes_with_its_start_task(make, conversation):
    store = make()
    start, _ = begin(store, conversation)
    [sealed] = [store.start_tasks._redis.get(key) for key in keys(store, "{starts}:body:*")]

    assert b"planted" not in sealed
    assert store.start_tasks.body_of(start) == BODY
    with pytest.raises(SecretsRefused):
        store.start_tasks._sealer.open_body("another", sealed)
    store.start_tasks.forget(start.id)
    assert keys(store, "{starts}:body:*") == []


def test_a_deleted_conversation_leaves_no_body(make, conversation):
    store = make()
    sealed = store.start_tasks.bodies.sealed(conversation, {**BODY["body"], "initial_message": {}, "secrets": {}})
    store.conversations.create(conversation, sandbox_id="box", app={}, start_body=sealed)
    assert store.start_tasks.bodies.of(conversation) == BODY["body"]

    store.conversations.delete(conversation)

    assert store.start_tasks.bodies.of(conversation) is None


FOLDERS = [
    ("/home/somebody/project", "/box/work"),
    ("/", "/box/work"),
    ("/box", "/box/work"),
    ("/box/workshop", "/box/work"),
    ("/box/work/../..", "/box/work"),
    ("../../etc", "/box/work"),
    ("sub/../../other", "/box/work"),
    ("", "/box/work"),
    (".", "/box/work"),
    ("C:/Users/x", "/box/work"),
    ("C:\\Users\\x", "/box/work"),
    ("odd\0name", "/box/work"),
    ("/box/work", "/box/work"),
    ("/box/work/project", "/box/work/project"),
    ("/box/work/a/../b/", "/box/work/b"),
    ("workspace/project", "/box/work/workspace/project"),
]


def test_a_folder_inside_the_sandboxs_is_kept_and_any_other_is_the_sandboxs_own():
    assert [(asked, folder_for(asked, "/box/work")) for asked, _ in FOLDERS] == FOLDERS


def test_a_sandbox_of_an_older_release_whose_folder_is_unknown_is_where_its_agent_server_runs():
    assert folder_for("/home/x", ".") == folder_for("x/y", ".") == "."


@pytest.mark.parametrize(
    ("asked", "folder"),
    [("/old/box/work/sub/a", "/new/box/work/sub/a"), ("sub", "/new/box/work/sub")]
    + [(asked, "/new/box/work") for asked in ("/old/box/work", "/home/me/sub", "/old/box/work/../x", ".", "")],
)
def test_a_folder_inside_the_sandboxs_is_found_below_another_data_folder(asked, folder):
    body = {"workspace": {"kind": "LocalWorkspace", "working_dir": asked}}
    kept = movable(body, "/old/box/work")
    assert own_request("id", kept, "/new/box/work")["workspace"]["working_dir"] == folder
    assert own_request("id", kept, "/old/box/work") == own_request("id", body, "/old/box/work")


def test_a_body_without_a_workspace_stays_without():
    assert own_request("id", {"agent": {}, "odd": 1}, "/w") == {"agent": {}, "odd": 1, "conversation_id": "id"}


def test_a_template_names_the_way_out_of_the_sandbox_that_gets_it(make):
    store = make()
    [spec] = Specs.load("").all
    llm = {"model": "gpt", "base_url": "{EGRESS}/agent-model", "usage_id": "agent"}
    spec = replace(spec, conversation={"agent": {"llm": llm, "tools": [{"name": "terminal"}]}, "max_iterations": 5})
    fresh = store.sandboxes.start(spec.id, host="h")
    without = template_of(spec, fresh)
    sandbox = replace(fresh, handle={"egress_url": "http://127.0.0.1:1023"})

    assert without == spec.conversation
    filled = template_of(spec, sandbox)
    assert filled["agent"]["llm"] == {**llm, "base_url": "http://127.0.0.1:1023/agent-model"}
    assert (filled["agent"]["tools"], filled["max_iterations"]) == ([{"name": "terminal"}], 5)
    assert spec.conversation["agent"]["llm"] is llm


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ([{"type": "text", "text": "\n Mend the door \nand the window"}], "Mend the door"),
        ([{"type": "text", "text": "run: ls -la\nthen stop"}], "ls -la"),
        ([{"type": "image", "image_urls": ["x"]}, {"type": "text", "text": "Look"}], "Look"),
        ([{"type": "text", "text": "x" * 100}], "x" * (MOST_OWN_TITLE - 1) + "…"),
        (
            [{"text": one} for one in ('<message role="system">', "Be brief.", "</message>", "Mend the door")],
            "Mend the door",
        ),
        ([{"type": "text", "text": "  "}], None),
        ([], None),
        (None, None),
    ],
)
def test_a_first_message_stands_for_the_title_of_its_first_line(content, title):
    assert title_of_message(content) == title
