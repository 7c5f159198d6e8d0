"""The work of a conversation as a branch: what is committed, where it goes, and what is said where it cannot."""

import subprocess
from dataclasses import replace

import pytest

from agents.client import AgentUnreachable
from agents.pushes import (
    CannotPush,
    ConversationRemote,
    PushFailed,
    RequestedPush,
    author_of,
    commit,
    find_remote,
    push,
)
from settings.egress import NAMED, NO_WAY, OPEN, Service
from settings.specs import Specs
from tests.git_server import ADA, repository

pytestmark = pytest.mark.process("starts git")

WORK = RequestedPush("agent/mend", "Mend the parser", "It read dates twice.", "ada@example.org <ada@example.org>")


class PushedAgent:
    """An agent server that really runs a command, in the folder."""

    def execute(self, command, folder, seconds):
        done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, timeout=seconds, capture_output=True, text=True)
        return {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


class AwayApi:
    """An agent server that runs no commands."""

    def execute(self, *_):
        raise AgentUnreachable("nothing answers")


AGENT = PushedAgent()


def git(folder, *words):
    return subprocess.run(["git", *ADA, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def spec():
    """Makes specs: with an open way out, or with another one and its services."""
    bundled = Specs.load("").of_own_agents
    return lambda egress=OPEN, *services: replace(bundled, id="plain", egress=egress, services=services)


@pytest.fixture
def bare(tmp_path):
    return repository(tmp_path, "theirs", a__txt="one\n", __gitignore="*.log\n")


@pytest.fixture
def folder(tmp_path, bare):
    """The folder of a conversation, which has a clone with changes of every kind."""
    (tmp_path / "folder").mkdir()
    clone = tmp_path / "folder" / "theirs"
    git(tmp_path, "clone", "-q", str(bare), str(clone))
    (clone / "a.txt").write_text("two\n")
    (clone / "new folder").mkdir()
    (clone / "new folder" / "b.txt").write_text("b\n")
    (clone / "noise.log").write_text("ignored")
    (clone / ".agent-server").mkdir()
    (clone / ".agent-server" / "own").write_text("of the agent")
    return tmp_path / "folder"


def pushed(folder, spec, work=WORK):
    remote = find_remote(AGENT, str(folder), None, spec(), "")
    made = commit(AGENT, str(folder), remote, work)
    push(AGENT, str(folder), remote, work.branch, made)
    return made


def test_the_changes_leave_as_one_commit_of_a_new_branch_by_the_one_who_asks(folder, bare, spec):
    made = pushed(folder, spec)

    assert git(bare, "rev-parse", "agent/mend") == made
    assert git(bare, "log", "-1", "--format=%an <%ae>, %cn: %B", "agent/mend") == (
        "ada@example.org <ada@example.org>, ada@example.org: Mend the parser\n\nIt read dates twice."
    )
    assert git(bare, "diff", "--name-status", "main", "agent/mend").splitlines() == ["M\ta.txt", "A\tnew folder/b.txt"]


def test_the_folder_keeps_its_branch_its_index_and_its_files(folder, spec):
    clone = folder / "theirs"
    git(clone, "add", "a.txt")
    before = git(clone, "status", "--porcelain", "--branch")
    pushed(folder, spec)
    assert git(clone, "status", "--porcelain", "--branch") == before


def test_no_hook_of_the_repository_runs(folder, bare, spec):
    hooks = folder / "theirs" / ".git" / "hooks"
    for name in ("pre-commit", "commit-msg", "pre-push", "post-commit", "reference-transaction"):
        (hooks / name).write_text("#!/bin/sh\ntouch ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    pushed(folder, spec)
    assert not list((folder / "theirs").rglob("ran"))


def test_a_second_push_goes_on_from_the_first_and_a_repeat_makes_no_other_commit(folder, bare, spec):
    first = pushed(folder, spec)
    assert pushed(folder, spec) == first
    (folder / "theirs" / "a.txt").write_text("three\n")
    second = pushed(folder, spec)
    assert git(bare, "rev-parse", "agent/mend^") == first
    assert git(bare, "rev-parse", "agent/mend") == second


def test_commits_of_the_agent_itself_leave_too_and_its_own_branch_goes_on(folder, bare, spec):
    clone = folder / "theirs"
    git(clone, "checkout", "-q", "-b", "agent/mend")
    git(clone, "add", "--all", ".", ":(exclude).agent-server")
    git(clone, "commit", "-q", "-m", "By the agent")
    own = git(clone, "rev-parse", "HEAD")
    assert pushed(folder, spec) == own
    (clone / "a.txt").write_text("three\n")
    made = pushed(folder, spec)
    assert git(bare, "rev-parse", "agent/mend^") == own
    assert git(clone, "rev-parse", "HEAD") == made
    assert git(clone, "status", "--porcelain") == "?? .agent-server/"


def test_what_the_remote_has_already_is_not_pushed(folder, spec):
    clone = folder / "theirs"
    git(clone, "checkout", "-q", ".")
    git(clone, "clean", "-qfd")
    with pytest.raises(CannotPush, match="The remote already has all changes"):
        pushed(folder, spec)


def test_a_branch_with_other_commits_is_not_overwritten(folder, bare, spec):
    clone = folder / "theirs"
    git(clone, "branch", "agent/mend")
    git(clone, "commit", "-q", "--allow-empty", "-m", "Elsewhere")
    with pytest.raises(CannotPush, match="The branch has other commits than the folder: choose another branch"):
        pushed(folder, spec)


def test_a_branch_of_the_remote_that_others_made_is_not_overwritten(folder, bare, spec):
    git(bare, "branch", "agent/mend", git(bare, "commit-tree", "main^{tree}", "-m", "Of others"))
    with pytest.raises(PushFailed, match=r"Git in the sandbox: ! .*refs/heads/agent/mend \[rejected\]"):
        pushed(folder, spec)


def test_a_repository_without_a_commit_is_pushed(tmp_path, spec):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "empty.git")], check=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", str(tmp_path / "empty.git"))
    (folder / "a").write_text("one")
    pushed(folder, spec)
    assert git(tmp_path / "empty.git", "show", "agent/mend:a") == "one"


def test_words_of_a_request_are_words_of_no_command(folder, bare, spec):
    title = "'; touch here; echo '$(touch here)"
    pushed(folder, spec, WORK._replace(title=title, description='"`touch here`"'))
    assert git(bare, "log", "-1", "--format=%s", "agent/mend") == title
    assert not list(folder.rglob("here"))


def test_the_longest_words_that_a_request_may_have_are_pushed(folder, bare, spec):
    work = RequestedPush("b" * 200, "'" * 200, "\U0001f600" * 20_000, "ada <ada@example.org>")
    pushed(folder, spec, work)
    assert git(bare, "log", "-1", "--format=%B", work.branch) == f"{work.title}\n\n{work.description}"


def test_a_folder_that_is_no_repository_has_several_or_has_no_remote_says_so(tmp_path, folder, spec):
    def refusal(place, path=None):
        with pytest.raises(CannotPush) as refused:
            find_remote(AGENT, str(place), path, spec(), "")
        return str(refused.value)

    empty = tmp_path / "empty"
    empty.mkdir()
    assert refusal(empty).startswith(
        "The conversation's folder is not a Git repository, so there is no remote to push to"
    )
    assert refusal(folder, "other").startswith("other is not a Git repository")
    git(folder, "init", "-q", "second")
    assert "name one as path, such as one of second, theirs" in refusal(folder)
    assert "The repository has no remote" in refusal(folder, "second")
    assert find_remote(AGENT, str(folder), "theirs", spec(), "").path == "theirs"


def test_an_agent_server_without_commands_says_so(spec):
    with pytest.raises(PushFailed, match="No command runs in the sandbox: nothing answers"):
        find_remote(AwayApi(), "/", None, spec(), "")


GIT_SERVICE = Service("git", "https://git.example.org/team", {"Authorization": "Basic secret"})
WAY = "http://127.0.0.1:1023"


@pytest.mark.parametrize(
    ("url", "to"),
    [
        ("https://git.example.org/team/app.git", f"{WAY}/git/app.git"),
        ("https://me:secret@git.example.org/team/app.git", None),
        ("git@git.example.org:team/app.git", f"{WAY}/git/app.git"),
        ("ssh://git@git.example.org/team/app.git", f"{WAY}/git/app.git"),
        (f"{WAY}/git/app.git", f"{WAY}/git/app.git"),
        (f"{WAY}/other/app.git", None),
        ("https://git.example.org/other/app.git", None),
        ("https://elsewhere.example.org/team/app.git", None),
    ],
)
def test_a_named_way_out_pushes_through_the_service_that_the_remote_is_below(folder, spec, url, to):
    git(folder / "theirs", "remote", "set-url", "origin", url)
    if to is None:
        with pytest.raises(CannotPush, match=r"No service of the spec plain has a credential for https?://") as refused:
            find_remote(AGENT, str(folder), None, spec(NAMED, GIT_SERVICE), WAY)
        assert "secret" not in str(refused.value)
        return
    found = find_remote(AGENT, str(folder), None, spec(NAMED, GIT_SERVICE), WAY)
    shown = "https://git.example.org/team/app.git"
    assert found == ConversationRemote("theirs", "main", "main", shown, to, "team/app", "git.example.org")


def test_a_sandbox_without_a_way_out_pushes_nothing(folder, spec):
    with pytest.raises(CannotPush, match="Sandboxes of the spec plain have no network"):
        find_remote(AGENT, str(folder), None, spec(NO_WAY), "")


def test_an_author_has_the_address_that_is_the_name():
    assert author_of("ada@example.org") == "ada@example.org <ada@example.org>"
    assert author_of("ci <x>\n") == "ci  x <agent-server@localhost>"
    assert author_of("") == "anyone <agent-server@localhost>"
