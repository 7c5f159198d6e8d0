"""A call that names no conversation: it reaches a sandbox of its own key, the workspace where it has no other."""

import json
from contextlib import ExitStack
from hashlib import sha256
from uuid import uuid4

import pytest

from app import create_app
from settings.config import Config
from store.errors import SandboxNotFound
from tests.agents import running_sandbox
from tests.conftest import LIMITS, SECRET_KEY, unchecked

KEYS = ("the-first-key-of-the-settings", "the-other-key-of-the-settings")
MINE, THEIRS = ({"X-Session-API-Key": key} for key in KEYS)


@pytest.fixture(scope="module")
def keyed(redis_url):
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=KEYS, **LIMITS))


@pytest.fixture
def caller(keyed):
    """A client of a server that wants keys."""
    return keyed.test_client()


@pytest.fixture
def own(store, upstream):
    """Starts a sandbox of a key, with a conversation in a folder, and returns its id."""
    with ExitStack() as running:

        def start(owner: str, real: str = "", asked: str = "", started_from: str = "", by: str = "") -> str:
            sandbox = running.enter_context(running_sandbox(store, upstream.url, owner=owner))
            store.sandboxes.begin(sandbox.id, "scripted", "supervisor", "process")
            store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=upstream.url)
            if real:
                folder = {"working_dir": real}
                app = {"started_from": started_from, "started_by": by or owner} if started_from else {}
                store.conversations.create(
                    str(uuid4()), sandbox_id=sandbox.id, app=app, workspace=folder, asked_dir=asked
                )
            return sandbox.id

        yield start


@pytest.fixture
def workspace(store, upstream):
    """Has the workspace sandbox of a key run, and returns its id."""
    with ExitStack() as running:

        def start(owner: str) -> str:
            running.enter_context(running_sandbox(store, upstream.url))  # a host lives
            identity = store.sandboxes.workspaces.named(owner)
            store.sandboxes.start("reference-agent", identity, owner=owner, gives_way=True)
            while store.sandboxes.get(identity).host != "scripted":
                assert store.sandboxes.claim("scripted")
            store.sandboxes.begin(identity, "scripted", "supervisor", "process")
            told = {"agent_url": upstream.url, "urls": [], "handle": {}, "working_dir": "/work/own"}
            store.sandboxes.report(identity, "scripted", "supervisor", "RUNNING", **told)
            running.callback(store.sandboxes.report, identity, "scripted", "supervisor", "GONE")
            return identity

        yield start


def reached(store, upstream) -> str:
    """The sandbox that the last call reached."""
    return store.sandboxes.of_session_key(upstream.requests[-1]["headers"]["X-Session-API-Key"])


def test_a_call_never_reaches_the_sandbox_of_another_key_but_the_workspace_of_its_own(
    caller, store, upstream, own, workspace
):
    own("settings-1")
    theirs = workspace("settings-2")

    for path in ("/api/file/search_subdirs", "/api/git/changes", "/api/bash/bash_events/search"):
        assert caller.get(path, headers=THEIRS).status_code == 200
        assert reached(store, upstream) == theirs
    assert caller.post("/api/bash/start_bash_command", json={"command": "ls"}, headers=THEIRS).status_code == 200
    assert reached(store, upstream) == theirs


def test_a_path_means_one_inside_of_the_workspace_unless_every_machine_has_it(caller, upstream, workspace):
    workspace("settings-1")

    for path, wanted in (
        ("/tmp/interop/x", "/work/own/tmp/interop/x"),
        ("/workspace/project", "/work/own/workspace/project"),
        ("/work/own/x", "/work/own/x"),
        ("/etc/hostname", "/etc/hostname"),
        ("x", "x"),
    ):
        caller.post("/api/bash/start_bash_command", json={"command": "ls", "cwd": path}, headers=MINE)
        assert json.loads(upstream.requests[-1]["body"])["cwd"] == wanted
    caller.post("/api/bash/start_bash_command", json={"command": "ls"}, headers=MINE)
    assert json.loads(upstream.requests[-1]["body"])["cwd"] == "/work/own"


def test_the_next_start_of_a_key_adopts_its_workspace_and_a_failed_one_gives_it_back(store, workspace):
    mine, workspaces = workspace("settings-1"), store.sandboxes.workspaces

    assert workspaces.named("settings-1") == mine
    assert workspaces.adopt("settings-2", "reference-agent", "start-0", gives_way=True) is None
    assert workspaces.adopt("settings-1", "another", "start-0", gives_way=True) is None
    assert workspaces.adopt("settings-1", "reference-agent", "start-1", gives_way=True) == mine
    assert workspaces.adopt("settings-1", "reference-agent", "start-1", gives_way=True) == mine  # the second driver
    assert workspaces.adopt("settings-1", "reference-agent", "start-2", gives_way=True) is None
    assert workspaces.known("settings-1") != mine
    assert store.sandboxes.get(mine).adopted == "start-1"

    assert workspaces.give_back(mine, "start-1")
    assert workspaces.known("settings-1") == mine

    assert workspaces.adopt("settings-1", "reference-agent", "start-3", gives_way=True) == mine
    other = workspaces.named("settings-1")
    assert other != mine
    assert not workspaces.give_back(mine, "start-3")
    assert workspaces.named("settings-1") == other


def test_a_start_that_ended_takes_no_workspace_from_the_next_one_that_has_adopted_it(store, workspace):
    mine, workspaces = workspace("settings-1"), store.sandboxes.workspaces
    workspaces.adopt("settings-1", "reference-agent", "start-1", gives_way=True)
    assert workspaces.give_back(mine, "start-1")
    workspaces.adopt("settings-1", "reference-agent", "start-2", gives_way=True)

    assert workspaces.give_back(mine, "start-1")  # cleared away once more: it is not for deletion

    assert workspaces.known("settings-1") != mine
    assert store.sandboxes.get(mine).adopted == "start-2"


def test_a_workspace_that_failed_before_it_ran_is_gone_with_the_next_call(store, upstream):
    with running_sandbox(store, upstream.url):  # a host lives
        failed = store.sandboxes.workspaces.named("settings-1")
        store.sandboxes.start("reference-agent", failed, owner="settings-1", gives_way=True)
        while store.sandboxes.get(failed).host != "scripted":
            assert store.sandboxes.claim("scripted")
        store.sandboxes.report(failed, "scripted", "supervisor", "ERROR", detail="no such program")

        other = store.sandboxes.workspaces.named("settings-1")

    assert other != failed
    assert store.sandboxes.get(failed).wanted == "deleted"


def test_a_workspace_of_a_lost_host_ends_as_others_do(store, workspace):
    mine = workspace("settings-1")
    long_ago = store.sandboxes.get(mine).active_at - round(store.sandboxes.limits.workspace_seconds * 1e6)
    store.events._redis.hset(f"{{sandboxes}}:box:{mine}", "active_at", long_ago)
    store.sandboxes.report(mine, "scripted", "supervisor", "MISSING")

    store.sandboxes.workspaces.expire()

    with pytest.raises(SandboxNotFound):
        store.sandboxes.get(mine)
    assert store.sandboxes.workspaces.known("settings-1") is None


def test_a_workspace_that_cannot_be_started_is_the_one_that_the_next_call_starts(
    caller, store, upstream, keyed, monkeypatch
):
    with running_sandbox(store, upstream.url):  # a host lives
        sandboxes = keyed.extensions["server"].store.sandboxes
        full = unchecked(sandboxes.limits, max_sandboxes=1, sandbox_overflow="refuse")
        monkeypatch.setattr(sandboxes, "limits", full)
        refused = caller.post("/api/bash/start_bash_command", json={"command": "ls"}, headers=MINE)

        named = store.sandboxes.workspaces.named("settings-1")
        assert store.sandboxes.workspaces.named("settings-1") == named

    assert refused.status_code == 429
    assert store.sandboxes.workspaces.known("settings-1") is None
    nothing = caller.get("/api/file/search_subdirs", headers=MINE)
    assert (nothing.status_code, "start a conversation" in nothing.get_json()["detail"]) == (409, True)
    with pytest.raises(SandboxNotFound):
        store.sandboxes.get(named)


def test_what_a_workspace_has_is_read_after_a_pause(caller, store, upstream, workspace):
    mine = workspace("settings-1")
    store.sandboxes.ask(mine, "pause")
    store.sandboxes.report(mine, "scripted", "supervisor", "PAUSED")
    forwarding = caller.application.extensions["server"].forwarding

    known = store.sandboxes.workspaces.known("settings-1")
    assert forwarding.own_sandbox("settings-1", lambda: [], lambda: known) == mine


def test_a_workspace_that_nobody_has_used_for_long_is_deleted_and_the_next_call_has_another(store, workspace):
    mine = workspace("settings-1")

    store.sandboxes.workspaces.expire()
    assert store.sandboxes.get(mine).wanted == "running"
    long_ago = store.sandboxes.get(mine).active_at - round(store.sandboxes.limits.workspace_seconds * 1e6)
    store.events._redis.hset(f"{{sandboxes}}:box:{mine}", "active_at", long_ago)
    store.sandboxes.workspaces.expire()

    assert store.sandboxes.get(mine).wanted == "deleted"
    assert store.sandboxes.workspaces.named("settings-1") != mine


def test_a_call_reaches_the_sandbox_of_its_own_key_beside_those_of_others(caller, store, upstream, own):
    mine, theirs = own("settings-1"), own("settings-2")

    for headers, sandbox in ((MINE, mine), (THEIRS, theirs)):
        assert caller.get("/api/file/search_subdirs", headers=headers).status_code == 200
        assert reached(store, upstream) == sandbox


def test_a_call_reaches_no_sandbox_that_nobody_has_started(caller, store, upstream, own, workspace):
    own("")
    mine = workspace("settings-1")
    assert caller.get("/api/file/search_subdirs", headers=MINE).status_code == 200
    assert reached(store, upstream) == mine


def test_a_call_for_which_no_host_could_start_a_sandbox_says_what_to_do(caller, store, upstream):
    store.events._redis.delete("{sandboxes}:hosts")
    refused = caller.get("/api/file/search_subdirs", headers=MINE)
    assert refused.status_code == 409
    assert "start a conversation" in refused.get_json()["detail"]
    assert "/api/conversations/ID/" in refused.get_json()["detail"]
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
    forwarding = caller.application.extensions["server"].forwarding

    assert forwarding.own_sandbox("settings-1", lambda: ["/work/a/x"]) == first
    assert forwarding.own_sandbox("settings-1", lambda: ["/work/b"]) != first
    assert forwarding.own_sandbox("settings-1", lambda: []) != first  # nothing wakes a sandbox that nobody names
    assert upstream.requests == []


def client_named(program: str, address: str = "127.0.0.1") -> str:
    return sha256(f"{address}\n{program}".encode()).hexdigest()[:32]


@pytest.mark.parametrize("path", ["/api/bash/bash_events/search", "/api/git/changes?path=/workspace"])
def test_of_several_own_sandboxes_a_call_reaches_that_of_the_last_start_of_its_client(
    caller, store, upstream, own, path
):
    other, mine = client_named("another/2"), client_named("script/1")
    own("settings-1", "/work/a", "/workspace", mine)
    last = own("settings-1", "/work/b", "/workspace", mine)
    own("settings-1", "/work/c", "/workspace", other)
    own("settings-1", "/work/d", "/workspace", client_named("script/1", "10.0.0.9"))
    own("settings-1", "/work/e", "/workspace", mine, by="settings-2")
    own("settings-2", "/work/f", "/workspace", mine)

    response = caller.get(path, headers={**MINE, "User-Agent": "script/1"})

    assert (response.status_code, response.headers["X-Sandbox-Id"]) == (200, last)
    assert reached(store, upstream) == last


def test_a_client_that_started_none_of_several_own_sandboxes_is_told_what_to_do_also_in_the_status_line(
    caller, upstream, own
):
    own("settings-1", "/work/a", "", client_named("script/1"))
    own("settings-1", "/work/b", "", client_named("script/1"))
    own("settings-2", "/work/f", "", client_named("stranger/1"))

    refused = caller.get("/api/bash/bash_events/search", headers={**MINE, "User-Agent": "stranger/1"})

    assert refused.status_code == 409
    assert "start a conversation with this program first" in refused.get_json()["detail"]
    assert refused.status.startswith("409 CONFLICT - several of your sandboxes run: start a conversation with this")
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
