"""What clients read of an app conversation's folder: confined to it, also from a sandbox that does not run."""

import io
import json
import os
import zipfile
from uuid import UUID, uuid4

import pytest

from store.errors import EventNotFound
from store.sandboxes.files import MOST_BYTES
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT

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


def test_a_path_out_of_the_folder_is_422_and_names_the_parameter(api, work):
    conversation, _ = work
    paths = ("../outside", "/etc/passwd", "a/../../outside", "/workspace/project/../../etc/passwd", "/workspace", "\0")

    for path in paths:
        for found, member in (
            (read(api, conversation, path, status=422), "file_path"),
            (listed(api, conversation, path, status=422), "path"),
        ):
            assert found["detail"][0]["loc"] == ["query", member], path


def changed(api, conversation, *, status=200, **query):
    return api.call("GET", f"{PATH}/{conversation}/git/changes", params={"path": ".", **query}, status=status)


def recorded(api, conversation):
    """Wait until the folder was recorded at the start of the conversation."""
    at = f"/api{PATH}/{conversation}/git/changes"
    query = {"path": ".", "since": "start"}
    wait_until(lambda: api.client.get(at, params=query).status_code == 200, "the record of the start")


def test_changes_since_the_start_need_no_repository_and_no_running_sandbox(api, work):
    conversation, folder = work
    recorded(api, conversation)
    (folder / "src").mkdir()
    (folder / "src" / "a.txt").write_text("one\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "x.log").write_text("noise")

    added = [{"status": "ADDED", "path": ".gitignore"}, {"status": "ADDED", "path": "src/a.txt"}]
    assert changed(api, conversation, since="start") == added
    assert changed(api, conversation, since="start", path="src") == [{"status": "ADDED", "path": "a.txt"}]
    query = {"path": "src/a.txt", "since": "start"}
    assert api.call("GET", f"{PATH}/{conversation}/git/diff", params=query) == {"modified": "one\n", "original": None}
    sandbox = api.conversation(conversation)["sandbox_id"]
    api.call("POST", f"/v1/sandboxes/{sandbox}/pause")
    api.wait_for(sandbox, "PAUSED")
    assert changed(api, conversation, since="start") == added
    assert api.sandbox(sandbox)["status"] == "PAUSED"


def test_a_moment_that_is_no_event_or_goes_with_a_ref_is_refused(api, work):
    conversation, _ = work

    assert changed(api, conversation, since="nothing", status=404)["detail"] == EventNotFound.words
    for query, member in (({"since": "start", "ref": "HEAD"}, "ref"), ({"until": "3"}, "until")):
        assert changed(api, conversation, status=422, **query)["detail"][0]["loc"] == ["query", member]


def test_a_shadow_repository_ends_with_its_sandbox(api, work):
    conversation, folder = work
    recorded(api, conversation)
    shadow = folder.parent.with_name(f".{folder.parent.name}.shadow")
    assert shadow.is_dir()

    api.call("DELETE", f"{PATH}/{conversation}")
    wait_until(lambda: not shadow.exists(), "the end of the shadow repository")
    wait_until(lambda: not shadow.with_name(f"{shadow.name}.lock").exists(), "the end of its lock")


def test_a_folder_without_a_repository_is_409_in_one_sentence_at_both_doors(api, work):
    conversation, _ = work
    sentence = {"detail": "The folder is not in a Git repository that can be read"}

    for door in (f"{PATH}/{conversation}", f"/conversations/{conversation}"):
        for end, path in (("changes", "."), ("diff", "a.txt")):
            assert api.call("GET", f"{door}/git/{end}", params={"path": path}, status=409) == sentence, (door, end)


def test_a_symlink_that_leads_outside_is_neither_followed_nor_listed(api, work, tmp_path):
    conversation, folder = work
    (tmp_path / "secret").write_text("of the host")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "PLAN.md").symlink_to("/etc/passwd")

    for path in ("link", "folder/secret", None):
        read(api, conversation, path, status=404)
    assert listed(api, conversation) == []
    assert listed(api, conversation, "folder") == []


def test_a_symlink_that_stays_in_the_folder_leads_where_it_leads_the_agent(api, work):
    conversation, folder = work
    (folder / "real").mkdir()
    (folder / "real" / "a.txt").write_text("inside")
    (folder / "relative").symlink_to("real")
    (folder / "absolute").symlink_to(folder / "real" / "a.txt")

    assert read(api, conversation, "relative/a.txt") == read(api, conversation, "absolute") == "inside"
    assert listed(api, conversation, "relative") == ["a.txt"]
    assert listed(api, conversation) == ["real/a.txt"]


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """Calls of a server whose data lies behind a symlink, and whose sandboxes end their processes when they rest."""
    folder = tmp_path_factory.mktemp("linked")
    (folder / "real").mkdir()
    (folder / "data").symlink_to(folder / "real")
    (folder / "specs.toml").write_text(f'[[spec]]\nid = "rests"\nidle_stop_seconds = 0.1\nisolation = "auto"\n{AGENT}')
    with supervised_server(folder / "data", SANDBOX_SPECS=str(folder / "specs.toml")) as (client, _):
        yield WireApi(client)


def test_a_path_below_what_the_agents_own_pwd_prints_is_opened_also_once_its_processes_have_ended(linked):
    said = {"content": [{"type": "text", "text": "run: pwd; echo found > a.txt; ln -s $(pwd)/a.txt b.txt"}]}
    conversation = linked.app_conversation(initial_message=said)
    identity, sandbox_id = conversation["id"], conversation["sandbox_id"]
    linked.until(identity, "finished")
    [seen] = linked.events(identity, kind__eq="ObservationEvent")
    pwd = seen["observation"]["content"][0]["text"].strip()

    for _ in ("while it runs", "after its processes have ended"):
        assert read(linked, identity, f"{pwd}/a.txt") == read(linked, identity, f"{pwd}/b.txt") == "found\n"
        assert listed(linked, identity, pwd) == ["a.txt"]
        refused = read(linked, identity, f"{pwd}/../a.txt", status=422)
        assert refused["detail"][0]["loc"] == ["query", "file_path"]
        linked.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")
        wait_until(lambda: "files are kept" in (linked.sandbox(sandbox_id)["status_detail"] or ""), "its rest")


def test_what_is_no_file_is_404_and_an_empty_file_is_empty(api, work):
    conversation, folder = work
    (folder / "directory").mkdir()
    os.mkfifo(folder / "pipe")

    (folder / "empty").touch()

    assert read(api, conversation, "empty") == ""
    for path in (None, "directory", "pipe", ".", "directory/none"):
        assert "no such file" in read(api, conversation, path, status=404)["detail"]


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


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"\xff/\xfe", "\uefe9".encode(), "café \uf8ff".encode()])
def test_each_listed_name_opens_its_file_whatever_its_bytes_are(api, work, name):
    conversation, folder = work
    place = os.path.join(os.fsencode(folder), name)  # noqa: PTH118 - a path of bytes
    os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120 - as above
    with open(place, "w") as file:  # noqa: PTH123 - as above
        file.write("content")

    [text] = listed(api, conversation)

    text.encode()
    assert read(api, conversation, text) == "content"


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


def test_the_bundled_agent_serves_git_commands_and_files_at_both_doors(api):
    said = {"content": [{"type": "text", "text": "run: pwd; git init -q . && echo hi > a.txt"}]}
    conversation = api.app_conversation(sandbox_spec_id="free", initial_message=said)
    identity = conversation["id"]
    api.until(identity, "finished")
    [seen] = api.events(identity, kind__eq="ObservationEvent")
    pwd, own = seen["observation"]["content"][0]["text"].splitlines()[0], f"/conversations/{identity}"

    changed = [{"status": "ADDED", "path": "a.txt"}]
    for door in (f"{PATH}/{identity}", own):
        for path in (".", pwd):
            assert api.call("GET", f"{door}/git/changes", params={"path": path}) == changed
        assert api.call("GET", f"{door}/git/diff", params={"path": "a.txt"}) == {"modified": "hi\n", "original": None}
    ran = api.call("POST", f"{own}/bash/execute_bash_command", json={"command": "cat a.txt; pwd"})
    assert (ran["exit_code"], ran["stdout"]) == (0, f"hi\n{pwd}\n")
    upload = {"params": {"path": "b.txt"}, "files": {"file": b"sent"}}
    assert api.call("POST", f"{own}/file/upload", **upload)["file_size"] == 4
    assert read(api, identity, f"{pwd}/b.txt") == "sent"


@pytest.mark.parametrize(
    ("end", "route"),
    [
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
            "decisions.json",
        ]
        assert [json.loads(archive.read(name)) for name in archive.namelist()[1:-1]] == events
        meta = json.loads(archive.read("meta.json"))
    assert (meta["id"], meta["session_api_key"]) == (conversation, None)


def test_events_come_by_their_ids_with_null_for_an_unknown_one(api):
    said = {"content": [{"type": "text", "text": "hello"}], "run": False}
    conversation = api.app_conversation(sandbox_spec_id="free", initial_message=said)["id"]
    path = f"/v1/conversation/{conversation}/events"
    wait_until(lambda: api.events(conversation), "the message, which the agent reports")
    [first, *_] = api.events(conversation)

    assert api.call("GET", path, params={"id": ["none", first["id"]]}) == [None, first]
    for query in ({}, {"id": ["x"] * 101}):
        assert api.call("GET", path, params=query, status=422)["detail"][0]["loc"] == ["query", "id"]
    assert api.call("GET", f"/v1/conversation/{uuid4()}/events", params={"id": "x"}, status=404)
