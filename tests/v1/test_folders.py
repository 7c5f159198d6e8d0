"""What clients read of an app conversation's folder: confined to it, also from a sandbox that does not run."""

import io
import json
import os
import zipfile
from uuid import UUID, uuid4

import pytest

from store.sandboxes.files import MOST_BYTES

pytestmark = pytest.mark.process("starts a sandbox for each test")

PATH = "/v1/app-conversations"


@pytest.fixture
def work(api, folder):
    """A conversation of the reference agent, and its working folder on this host."""
    conversation = api.app_conversation(sandbox_spec_id="free")
    [work] = (folder / "sandboxes").glob(f"*/{conversation['sandbox_id']}/work")
    return conversation["id"], work


def read(api, conversation, path=None, *, status=200):
    query = {} if path is None else {"file_path": str(path)}
    return api.call("GET", f"{PATH}/{conversation}/file", params=query, status=status)


def listed(api, conversation, path=None, *, status=200):
    query = {} if path is None else {"path": str(path)}
    return api.call("GET", f"{PATH}/{conversation}/files", params=query, status=status)


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../outside", "/workspace/project/../../etc/passwd", "/workspace", "\0"]
)
def test_a_path_out_of_the_folder_is_422_and_names_the_parameter(api, work, path):
    conversation, _ = work

    for found, member in (
        (read(api, conversation, path, status=422), "file_path"),
        (listed(api, conversation, path, status=422), "path"),
    ):
        assert found["detail"][0]["loc"] == ["query", member]


def test_a_symlink_is_neither_followed_nor_listed(api, work, tmp_path):
    conversation, folder = work
    (tmp_path / "secret").write_text("of the host")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "PLAN.md").symlink_to("/etc/passwd")

    assert [read(api, conversation, path) for path in ("link", "folder/secret", None)] == ["", "", ""]
    assert listed(api, conversation) == []
    assert listed(api, conversation, "folder") == []


def test_what_is_no_file_reads_as_nothing(api, work):
    conversation, folder = work
    (folder / "directory").mkdir()
    os.mkfifo(folder / "pipe")

    assert [read(api, conversation, path) for path in (None, "directory", "pipe", ".", "directory/none")] == [""] * 5


def test_a_file_is_read_by_its_relative_name_and_by_the_usual_name_of_the_folder(api, work):
    conversation, folder = work
    (folder / "PLAN.md").write_text("# Plan ✓")
    (folder / "bytes").write_bytes(b"a\xffb")

    assert [read(api, conversation, path) for path in (None, "PLAN.md", "./x/../PLAN.md")] == ["# Plan ✓"] * 3
    assert read(api, conversation, "/workspace/project/PLAN.md") == "# Plan ✓"
    assert read(api, conversation, "bytes") == "a\N{REPLACEMENT CHARACTER}b"


def test_a_file_that_is_too_long_is_413_and_says_so(api, work):
    conversation, folder = work
    (folder / "full").write_bytes(b"x" * MOST_BYTES)
    (folder / "long").write_bytes(b"x" * (MOST_BYTES + 1))

    assert len(read(api, conversation, "full")) == MOST_BYTES
    assert f"more than {MOST_BYTES} bytes" in read(api, conversation, "long", status=413)["detail"]


def test_files_are_listed_without_what_tools_make(api, work):
    conversation, folder = work
    for name in ("b.txt", "src/a.py", "src/deep/c.py", "node_modules/x/y.js", "src/.git/HEAD"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")

    assert listed(api, conversation) == ["b.txt", "src/a.py", "src/deep/c.py"]
    assert listed(api, conversation, "src") == ["a.py", "deep/c.py"]
    assert listed(api, conversation, "/workspace/project/src/deep") == ["c.py"]
    assert listed(api, conversation, "none") == []


def test_at_most_two_thousand_files_are_listed(api, work):
    conversation, folder = work
    for number in range(2001):
        (folder / str(number)).touch()

    assert len(listed(api, conversation)) == 2000


def test_a_paused_sandbox_is_read_and_is_not_woken(api, work):
    conversation, folder = work
    (folder / "PLAN.md").write_text("plan")
    sandbox = api.conversation(conversation)["sandbox_id"]
    api.call("POST", f"/v1/sandboxes/{sandbox}/pause")

    assert read(api, conversation) == "plan"
    assert listed(api, conversation) == ["PLAN.md"]
    assert api.call("GET", f"{PATH}/{conversation}/skills") == {"skills": []}
    assert api.call("GET", f"{PATH}/{conversation}/hooks") == {"hooks": []}
    assert api.sandbox(sandbox)["status"] == "PAUSED"


def test_the_files_of_a_deleted_sandbox_are_410(api, work):
    conversation, _ = work
    api.call("DELETE", f"/v1/sandboxes/{api.conversation(conversation)['sandbox_id']}")

    assert "MISSING" in read(api, conversation, status=410)["detail"]
    assert "MISSING" in listed(api, conversation, status=410)["detail"]


@pytest.mark.parametrize(
    ("end", "route"),
    [
        ("git/changes?path=/workspace/project", "/api/git/changes"),
        ("git/diff?path=a.py&ref=HEAD", "/api/git/diff"),
        ("skills", "/api/skills"),
        ("hooks", "/api/hooks"),
    ],
)
def test_an_agent_server_that_lacks_a_route_is_502_and_the_route_is_named(api, work, end, route):
    found = api.call("GET", f"{PATH}/{work[0]}/{end}", status=502)

    assert found["detail"] == f"The agent server of the conversation's sandbox does not serve {route}"


def test_a_download_has_every_event_in_order_and_no_key(api):
    said = {"content": [{"type": "text", "text": "run: echo hi"}]}
    conversation = api.app_conversation(sandbox_spec_id="free", initial_message=said)["id"]
    api.until(conversation, "finished")

    response = api.client.get(f"/api{PATH}/{conversation}/download")

    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/zip"
    assert f"conversation_{UUID(conversation)}.zip" in response.headers["Content-Disposition"]
    events = api.events(conversation)
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "meta.json",
            *(f"event_{number:06d}_{event['id']}.json" for number, event in enumerate(events)),
        ]
        assert [json.loads(archive.read(name)) for name in archive.namelist()[1:]] == events
        meta = json.loads(archive.read("meta.json"))
    assert (meta["id"], meta["session_api_key"]) == (conversation, None)


def test_events_come_by_their_ids_with_null_for_an_unknown_one(api):
    said = {"content": [{"type": "text", "text": "hello"}], "run": False}
    conversation = api.app_conversation(sandbox_spec_id="free", initial_message=said)["id"]
    path = f"/v1/conversation/{conversation}/events"
    [first, *_] = api.events(conversation)

    assert api.call("GET", path, params={"id": ["none", first["id"]]}) == [None, first]
    for query in ({}, {"id": ["x"] * 101}):
        assert api.call("GET", path, params=query, status=422)["detail"][0]["loc"] == ["query", "id"]
    assert api.call("GET", f"/v1/conversation/{uuid4()}/events", params={"id": "x"}, status=404)
