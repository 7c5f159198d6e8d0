"""A call that names no conversation: it reaches a sandbox that its own key has started, or none."""

import json
from contextlib import ExitStack
from uuid import uuid4

import pytest

from app import create_app
from settings.config import Config
from tests.agents import running_sandbox
from tests.conftest import LIMITS, SECRET_KEY

KEYS = ("the-first-key-of-the-settings", "the-other-key-of-the-settings")
MINE, THEIRS = ({"X-Session-API-Key": key} for key in KEYS)


@pytest.fixture(scope="module")
def keyed(redis_url):
    return create_app(Config(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=KEYS, **LIMITS))


@pytest.fixture
def caller(keyed):
    """A client of a server that wants keys."""
    return keyed.test_client()


@pytest.fixture
def own(store, upstream):
    """Starts a sandbox of a key, with a conversation in a folder, and returns its id."""
    with ExitStack() as running:

        def start(owner: str, real: str = "", asked: str = "") -> str:
            sandbox = running.enter_context(running_sandbox(store, upstream.url, owner=owner))
            store.sandboxes.begin(sandbox.id, "scripted", "supervisor", "process")
            store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=upstream.url)
            if real:
                folder = {"working_dir": real}
                store.conversations.create(
                    str(uuid4()), sandbox_id=sandbox.id, app={}, workspace=folder, asked_dir=asked
                )
            return sandbox.id

        yield start


def reached(store, upstream) -> str:
    """The sandbox that the last call reached."""
    return store.sandboxes.of_session_key(upstream.requests[-1]["headers"]["X-Session-API-Key"])


def test_a_call_never_reaches_the_sandbox_of_another_key_also_where_it_is_the_only_one(caller, upstream, own):
    own("settings-1")

    for path in ("/api/file/search_subdirs", "/api/git/changes", "/api/bash/bash_events/search"):
        refused = caller.get(path, headers=THEIRS)
        assert refused.status_code == 409
        assert "start a conversation" in refused.get_json()["detail"]
        assert "/api/conversations/ID/" in refused.get_json()["detail"]
    assert caller.post("/api/bash/start_bash_command", json={"command": "ls"}, headers=THEIRS).status_code == 409
    assert upstream.requests == []


def test_a_call_reaches_the_sandbox_of_its_own_key_beside_those_of_others(caller, store, upstream, own):
    mine, theirs = own("settings-1"), own("settings-2")

    for headers, sandbox in ((MINE, mine), (THEIRS, theirs)):
        assert caller.get("/api/file/search_subdirs", headers=headers).status_code == 200
        assert reached(store, upstream) == sandbox


def test_a_call_reaches_no_sandbox_that_nobody_has_started(caller, upstream, own):
    own("")
    assert caller.get("/api/file/search_subdirs", headers=MINE).status_code == 409
    assert upstream.requests == []


def test_a_folder_says_which_of_several_own_sandboxes_is_meant(caller, store, upstream, own):
    first, second = own("settings-1", "/work/a", "/tmp/first"), own("settings-1", "/work/b", "/tmp/second")
    own("settings-2", "/work/c", "/tmp/third")

    for path, sandbox in (("/tmp/second/x", second), ("/work/a", first), ("/tmp/first", first)):
        command = {"command": "ls", "cwd": path}
        assert caller.post("/api/bash/start_bash_command", json=command, headers=MINE).status_code == 200
        assert reached(store, upstream) == sandbox
        assert caller.get("/api/git/changes", query_string={"path": path}, headers=MINE).status_code == 200
        assert reached(store, upstream) == sandbox

    upstream.requests.clear()
    for path in ("/tmp/third", "/work/c", "/work/ab", "/work/a/../c", "a"):
        refused = caller.get("/api/git/changes", query_string={"path": path}, headers=MINE)
        assert refused.status_code == 409
        assert "?cid=ID" in refused.get_json()["detail"]
    both = caller.get("/api/git/changes?path=/work/a&path=/work/b", headers=MINE)
    assert both.status_code == 409
    assert upstream.requests == []


def test_a_folder_that_two_own_sandboxes_have_says_nothing(caller, upstream, own):
    own("settings-1", "/workspace"), own("settings-1", "/workspace")
    assert caller.get("/api/git/changes", query_string={"path": "/workspace"}, headers=MINE).status_code == 409
    assert upstream.requests == []


def test_a_folder_of_a_paused_sandbox_means_that_one_also_while_another_runs(caller, store, upstream, own):
    first, _ = own("settings-1", "/work/a"), own("settings-1", "/work/b")
    store.sandboxes.ask(first, "pause")
    store.sandboxes.report(first, "scripted", "supervisor", "PAUSED")
    forwarding = caller.application.extensions["forwarding"]

    assert forwarding.own_sandbox("settings-1", lambda: ["/work/a/x"]) == first
    assert forwarding.own_sandbox("settings-1", lambda: ["/work/b"]) != first
    assert forwarding.own_sandbox("settings-1", lambda: []) != first  # nothing wakes a sandbox that nobody names
    assert upstream.requests == []


def test_all_callers_are_one_where_no_key_is_needed(client, store, upstream, own):
    own("settings-1")
    first = own("anyone", "/work/a", "/tmp/first")
    assert client.get("/api/file/search_subdirs").status_code == 200
    assert reached(store, upstream) == first

    second = own("anyone", "/work/b", "/tmp/second")
    assert client.get("/api/file/search_subdirs").status_code == 409
    command = {"command": "ls", "cwd": "/tmp/second"}
    assert client.post("/api/bash/start_bash_command", json=command).status_code == 200
    assert reached(store, upstream) == second


OF_GIT = [
    ("changes", 200),
    ("diff", 200),
    ("commits", 200),
    ("commits/0123abcd/changes", 200),
    ("repositories/search", 200),
    ("changes?path=/work/a/b", 200),
    ("diff?path=/etc/passwd", 403),
    ("commits?workspace_dir=/etc", 403),
    ("changes/etc/passwd", 403),
    ("diff/work/a/b", 403),
    ("show/HEAD", 403),
    ("commits/a/b/changes", 403),
]


def test_a_key_that_may_not_approve_reaches_known_operations_of_git_in_the_conversations_folder(
    caller, keyed, store, upstream, own
):
    reader = caller.post("/api/v1/keys", json={"name": "reader", "scopes": ["read"]}, headers=MINE).get_json()
    sandbox, conversation = own("settings-1"), str(uuid4())
    store.conversations.create(conversation, sandbox_id=sandbox, app={}, workspace={"working_dir": "/work/a"})
    for rest, status in OF_GIT:
        path, before = f"/api/conversations/{conversation}/git/{rest}", len(upstream.requests)

        assert caller.get(path, headers={"X-Session-API-Key": reader["key"]}).status_code == status, rest
        assert len(upstream.requests) - before == (status == 200), rest
        assert caller.get(path, headers=MINE).status_code == 200, rest
    caller.delete(f"/api/v1/keys/{reader['id']}", headers=MINE)


def test_a_folder_that_its_agent_names_by_a_relative_path_lies_where_its_pwd_says(caller, store, upstream, own):
    reader = caller.post("/api/v1/keys", json={"name": "reader", "scopes": ["read"]}, headers=MINE).get_json()
    sandbox, conversation = own("settings-1"), str(uuid4())
    store.sandboxes.report(sandbox, "scripted", "supervisor", working_dir="/data/x/work")
    store.conversations.create(conversation, sandbox_id=sandbox, app={}, workspace={"working_dir": "."})
    path, shown = f"/api/conversations/{conversation}/git/changes", {"X-Session-API-Key": reader["key"]}

    assert caller.get(path, query_string={"path": "/data/x/work/src"}, headers=shown).status_code == 200
    assert caller.get(path, query_string={"path": "/data/x/other"}, headers=shown).status_code == 403
    assert [seen["query"] for seen in upstream.requests] == [{"path": "/data/x/work/src"}]
    caller.delete(f"/api/v1/keys/{reader['id']}", headers=MINE)


def test_the_key_of_a_request_owns_the_sandboxes_that_it_starts_and_no_response_says_so(caller, store, own):
    own("")  # its host takes none
    made = caller.post("/api/v1/sandboxes", headers=MINE).get_json()
    app = caller.post("/api/v1/app-conversations", json={}, headers=THEIRS).get_json()

    assert store.sandboxes._redis.hget(f"{{sandboxes}}:box:{made['id']}", "owner") == b"settings-1"
    assert store.start_tasks._redis.hget(f"{{starts}}:task:{app['id']}", "owner") == b"settings-2"
    shown = json.dumps([made, app, caller.get(f"/api/v1/sandboxes?id={made['id']}", headers=MINE).get_json()])
    assert "owner" not in shown
    assert "settings-" not in shown
    store.start_tasks.forget(app["id"])
