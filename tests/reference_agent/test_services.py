"""Commands, files and Git, which the reference agent serves to clients of its sandbox."""

import os
import stat
import subprocess
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

from agents.client import MOST_BYTES
from core.filenames import from_text
from reference_agent.commands import MOST_KEPT, MOST_RUNNING
from schemas.forwarding import NAMED
from tests.reference_agent.program import ReferenceAgent, reference_agent

pytestmark = pytest.mark.process("starts the agent, commands and Git")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    agent = ReferenceAgent(tmp_path_factory.mktemp("services"))
    yield agent
    agent.kill()


@pytest.fixture(params=["the process", "a conversation"])
def place(request, agent):
    """The path under which the services lie, and the folder that relative paths begin in."""
    if request.param == "the process":
        return "/api", agent.home
    name = uuid4().hex
    conversation = agent.begin(workspace={"kind": "LocalWorkspace", "working_dir": name})
    return conversation, agent.home / name


def execute(agent, at, command, **more):
    return agent.client.post(f"{at}/bash/execute_bash_command", json={"command": command, **more})


def outputs(agent, at, command_id, after=-1):
    wanted = {"command_id__eq": command_id, "kind__eq": "BashOutput", "order__gt": after, "sort_order": "TIMESTAMP"}
    return agent.client.get(f"{at}/bash/bash_events/search", params=wanted).json()["items"]


def test_a_command_runs_in_the_folder_and_tells_both_outputs_and_its_code(agent, place):
    at, folder = place

    told = execute(agent, at, "pwd; echo no >&2; exit 3").json()

    assert (told["kind"], told["order"], told["exit_code"]) == ("BashOutput", 0, 3)
    assert (told["stdout"].strip(), told["stderr"]) == (str(folder), "no\n")


def test_a_started_command_is_followed_by_the_order_of_its_outputs(agent, place):
    at, _ = place
    begun = agent.client.post(
        f"{at}/bash/start_bash_command", json={"command": "echo one; read x; sleep 0.3; echo two"}
    )
    begun = begun.json()
    assert (begun["kind"], begun["command"]) == ("BashCommand", "echo one; read x; sleep 0.3; echo two")

    told, order = [], -1
    while not told or told[-1]["exit_code"] is None:
        told += outputs(agent, at, begun["id"], order)
        order = told[-1]["order"] if told else -1

    assert [one["order"] for one in told] == list(range(len(told)))
    assert "".join(one["stdout"] or "" for one in told) == "one\ntwo\n"
    assert agent.client.get(f"{at}/bash/bash_events/{told[0]['id']}").json() == told[0]


def test_a_command_that_is_stopped_or_takes_too_long_ends_with_all_that_it_started(agent):
    begun = agent.client.post("/api/bash/start_bash_command", json={"command": "sleep 100 & sleep 100"}).json()
    assert agent.client.post(f"/api/bash/bash_commands/{begun['id']}/stop").json() == {"success": True}
    while not (told := outputs(agent, "/api", begun["id"])):
        pass
    assert told[-1]["exit_code"] == -9

    late = execute(agent, "/api", "sleep 100", timeout=1).json()
    assert (late["exit_code"], "did not end within 1 s" in late["stderr"]) == (-9, True)


def test_output_beyond_the_bound_is_cut_and_says_so(agent):
    told = execute(agent, "/api", f"head -c {3 * MOST_KEPT} /dev/zero | tr '\\0' x; echo end >&2").json()

    assert told["exit_code"] == 0
    assert f"output beyond {MOST_KEPT} characters is not kept" in told["stdout"]
    assert len(told["stdout"]) + len(told["stderr"]) < MOST_KEPT + 200


@pytest.mark.parametrize("text", ["я", "😀", "\\001"])
def test_what_commands_print_fits_into_responses_that_this_server_reads(agent, text):
    for _ in range(3):
        response = execute(agent, "/api", f"yes \"$(printf '{text * 50}')\" | head -n {MOST_KEPT // 50}")
        assert response.json()["exit_code"] == 0
        assert len(response.content) < MOST_BYTES

    page_id, ids = None, []
    while page_id or not ids:
        query = {"limit": 100} | ({"page_id": page_id} if page_id else {})
        response = agent.client.get("/api/bash/bash_events/search", params=query)
        assert len(response.content) < MOST_BYTES
        ids += [one["id"] for one in response.json()["items"]]
        page_id = response.json()["next_page_id"]
    assert len(ids) == len(set(ids)) > 30


def test_only_so_many_commands_run_at_once(agent):
    begun = [
        agent.client.post("/api/bash/start_bash_command", json={"command": "sleep 100"}) for _ in range(MOST_RUNNING)
    ]
    try:
        refused = execute(agent, "/api", "true")
        assert (refused.status_code, str(MOST_RUNNING) in refused.json()["detail"]) == (429, True)
    finally:
        for one in begun:
            agent.client.post(f"/api/bash/bash_commands/{one.json()['id']}/stop")


@pytest.mark.parametrize("body", [{}, {"command": 1}, {"command": "true", "timeout": 0}, {"command": "true", "cwd": 1}])
def test_a_command_that_is_none_is_422_in_words(agent, body):
    refused = agent.client.post("/api/bash/start_bash_command", json=body)
    assert (refused.status_code, "should be" in refused.json()["detail"][0]["msg"]) == (422, True)


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o444])
def test_an_upload_over_a_file_keeps_its_mode(agent, place, mode):
    at, folder = place
    file = folder / uuid4().hex
    file.write_text("#!/bin/sh\necho old\n")
    file.chmod(mode)

    sent = agent.client.post(f"{at}/file/upload", params={"path": file.name}, files={"file": b"#!/bin/sh\necho new\n"})

    assert sent.json() == {"success": True, "file_size": 19}
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("#!/bin/sh\necho new\n", mode)


def test_a_file_that_is_uploaded_is_downloaded_again(agent, place):
    at, folder = place
    sent = agent.client.post(f"{at}/file/upload", params={"path": "new/a.bin"}, files={"file": b"a\0b"})
    assert sent.json() == {"success": True, "file_size": 3}

    for path in ("new/a.bin", f"{folder}/new/a.bin"):
        assert agent.client.get(f"{at}/file/download", params={"path": path}).content == b"a\0b"
    assert agent.client.get(f"{at}/file/download", params={"path": "none"}).status_code == 404


@pytest.mark.parametrize("name", ["line\nfeed", "return\r\n.txt", "bell\x07", "del\x7f", "caf\xe9\n", 'quote"\n\\'])
def test_a_file_whose_name_no_header_can_hold_is_downloaded(agent, place, name):
    at, folder = place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"content")

    answer = agent.client.get(f"{at}/file/download", params={"path": name})

    assert (answer.status_code, answer.content) == (200, b"content")
    assert answer.headers["Content-Disposition"].isprintable()


def test_a_file_whose_name_is_not_utf8_is_changed_and_downloaded(agent, place):
    at, folder = place
    repository = os.fsencode(folder / uuid4().hex)
    os.makedirs(repository)  # noqa: PTH103 - a path of bytes
    subprocess.run(["git", "init", "-q", repository], check=True)
    with open(repository + b"/caf\xe9", "w") as file:  # noqa: PTH123 - as above
        file.write("content")
    within = quote(os.path.basename(repository))  # noqa: PTH119 - as above

    [change] = agent.client.get(f"{at}/git/changes?path={within}").json()
    path = f"path={within}/{quote(from_text(change['path']), errors='surrogateescape')}"

    assert change == {"status": "ADDED", "path": "caf\uefe9"}
    assert agent.client.get(f"{at}/file/download?{path}").content == b"content"
    assert agent.client.get(f"{at}/git/diff?{path}").json() == {"modified": "content", "original": None}
    assert agent.client.get(f"{at}/file/download?{path}%E9").status_code == 404


def test_no_path_leads_out_of_the_working_directory_or_to_what_the_agent_server_keeps(agent, place):
    at, folder = place
    Path(folder / "out").unlink(missing_ok=True)
    (folder / "out").symlink_to("/etc")

    for path in ("/etc/passwd", "../../../../../etc/passwd", "out/passwd", str(agent.conversations / "x"), "a\0b"):
        for refused in (
            agent.client.get(f"{at}/file/download", params={"path": path}),
            agent.client.post(f"{at}/file/upload", params={"path": path}, files={"file": b"x"}),
            agent.client.get(f"{at}/git/diff", params={"path": path}),
        ):
            assert refused.status_code == 400, path


def test_changes_of_a_repository_are_told_against_its_last_commit(agent, place):
    at, folder = place
    repository = folder / uuid4().hex
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q"], check=True)
    (repository / "new ü.txt").write_text("new\n")
    asked = {"path": repository.name}
    assert agent.client.get(f"{at}/git/changes", params=asked).json() == [{"status": "ADDED", "path": "new ü.txt"}]

    for name in ("stays", "changes", "goes/away"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("old\n")
    subprocess.run([*git, "add", "stays", "changes", "goes"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    (repository / "changes").write_text("changed\n")
    (repository / "goes" / "away").unlink()
    (repository / "goes").rmdir()

    assert agent.client.get(f"{at}/git/changes", params=asked).json() == [
        {"status": "UPDATED", "path": "changes"},
        {"status": "DELETED", "path": "goes/away"},
        {"status": "ADDED", "path": "new ü.txt"},
    ]
    for name, modified, original in (
        ("changes", "changed\n", "old\n"),
        ("goes/away", None, "old\n"),
        ("new ü.txt", "new\n", None),
    ):
        told = agent.client.get(f"{at}/git/diff", params={"path": f"{repository}/{name}"}).json()
        assert told == {"modified": modified, "original": original}
    refused = agent.client.get(f"{at}/git/changes", params={**asked, "ref": "--output=x"})
    assert (refused.status_code, "ref" in refused.json()["detail"]) == (400, True)


def test_commits_of_a_repository_are_told_newest_first_with_what_each_has_changed(agent, place):
    at, folder = place
    repository = folder / uuid4().hex
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=Ä T", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q"], check=True)
    asked = {"path": repository.name}
    assert agent.client.get(f"{at}/git/commits", params=asked).json() == {"commits": [], "has_more": False}
    for text in ("first", "second"):
        (repository / "a").write_text(f"{text}\n")
        subprocess.run([*git, "add", "a"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"{text}: it\n\nbody"], check=True)

    told = agent.client.get(f"{at}/git/commits", params={**asked, "limit": 1}).json()

    [newest] = told["commits"]
    assert (newest["subject"], newest["author"], told["has_more"]) == ("second: it", "Ä T", True)
    changes = agent.client.get(f"{at}/git/commits/{newest['sha']}/changes", params=asked).json()
    assert changes == [{"status": "UPDATED", "path": "a"}]
    both = {"path": f"{repository}/a", "commit": newest["short_sha"]}
    assert agent.client.get(f"{at}/git/diff", params=both).json() == {"modified": "second\n", "original": "first\n"}
    for commit, status in (("--output=x", 422), ("f" * 40, 400)):
        assert agent.client.get(f"{at}/git/diff", params={**both, "commit": commit}).status_code == status
    assert agent.client.get(f"{at}/git/commits", params={**asked, "limit": 201}).status_code == 422


def test_a_folder_without_a_repository_is_409_in_words(agent, place):
    at, _ = place
    refused = agent.client.get(f"{at}/git/changes", params={"path": "."})
    assert (refused.status_code, "not in a Git repository" in refused.json()["detail"]) == (409, True)


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_a_repository_of_either_hash_has_changes_before_its_first_commit_and_of_it(agent, place, hashes):
    at, folder = place
    repository = folder / uuid4().hex
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q", f"--object-format={hashes}", str(repository)], check=True)
    (repository / "a").write_text("a\n")
    subprocess.run([*git, "add", "a"], check=True)
    added, asked = [{"status": "ADDED", "path": "a"}], {"path": repository.name}

    assert agent.client.get(f"{at}/git/changes", params=asked).json() == added
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    [first] = agent.client.get(f"{at}/git/commits", params=asked).json()["commits"]

    assert agent.client.get(f"{at}/git/commits/{first['sha']}/changes", params=asked).json() == added
    diff = {"path": f"{repository}/a", "commit": first["sha"]}
    assert agent.client.get(f"{at}/git/diff", params=diff).json() == {"modified": "a\n", "original": None}


def test_a_repository_around_the_working_folder_is_none_of_it(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "home").mkdir()

    with reference_agent(tmp_path / "home") as agent:
        refused = agent.client.get("/api/git/changes", params={"path": "."})

    assert (refused.status_code, "not in a Git repository" in refused.json()["detail"]) == (409, True)


OPERATIONS = [
    ("POST", "bash/start_bash_command"),
    ("POST", "bash/execute_bash_command"),
    ("POST", "bash/bash_commands/x/stop"),
    ("GET", "bash/bash_events/search"),
    ("GET", "bash/bash_events/x"),
    ("DELETE", "bash/bash_events"),
    ("POST", "file/upload"),
    ("GET", "file/download"),
    ("GET", "git/changes"),
    ("GET", "git/commits"),
    ("GET", "git/commits/abcd/changes"),
    ("GET", "git/diff"),
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_a_member_that_an_operation_does_not_have_is_refused_and_named(agent, place, method, path):
    refused = agent.client.request(method, f"{place[0]}/{path}", params={"misspelt": "1"})

    [fault] = refused.json()["detail"]
    assert (refused.status_code, fault["loc"], fault["type"]) == (422, ["query", "misspelt"], "extra_forbidden")


def test_every_member_that_the_document_names_is_taken(agent):
    """The server hands a query on: what its OpenAPI document says of these operations, the bundled agent takes."""
    served = {path for _, path in OPERATIONS}
    taken = {"limit": "1", "order__gt": "1", "timestamp__gte": "2026-11-20T20:37:22Z", "timestamp__lt": "2026-11-20"}
    for one in (one for one in NAMED if f"{one.service}/{one.path}" in served):
        for member in one.query:
            query = {member["name"]: taken.get(member["name"], "x")}
            response = agent.client.request(one.method, f"/api/{one.service}/{one.path}", params=query)
            assert "Unknown member" not in response.text, (one.path, query)


def test_commands_are_searched_by_their_time(agent):
    begun = agent.client.post("/api/bash/start_bash_command", json={"command": "true"}).json()
    moment, at = begun["timestamp"], "/api/bash/bash_events/search"

    def found(**query):
        query = {"command_id__eq": begun["id"], "kind__eq": "BashCommand", **query}
        return [one["id"] for one in agent.client.get(at, params=query).json()["items"]]

    assert found(timestamp__gte=moment) == found(timestamp__lt="2999-01-01") == [begun["id"]]
    assert found(timestamp__lt=moment) == found(timestamp__gte="2999-01-01T00:00:00Z") == []
    assert agent.client.get(at, params={"timestamp__lt": "soon"}).status_code == 422


def test_the_services_need_the_key(agent):
    for path in ("/api/bash/bash_events/search", "/api/file/download?path=x", "/api/git/changes?path=."):
        assert agent.client.get(path, headers={"X-Session-API-Key": "another"}).status_code == 401
