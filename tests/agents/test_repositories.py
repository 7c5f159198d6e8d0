"""The repository of a start: what is cloned, from where, and what is said where it is not."""

import subprocess
from uuid import uuid4

import pytest

from agents.client import AgentRefused, AgentUnreachable
from agents.repositories import clone
from core.wire import ConversationId

ID = ConversationId(str(uuid4()))

runs_git = pytest.mark.process("starts git")


class ListingAgent:
    """An agent server that keeps the command, and answers as it is told; `runs`: it really runs it."""

    def __init__(self, answer=None, *, runs=False):
        self._answer, self._runs, self.command = {"exit_code": 0} if answer is None else answer, runs, ""

    def execute(self, command, folder, seconds):
        self.command = command
        if isinstance(self._answer, Exception):
            raise self._answer
        if not self._runs:
            return self._answer
        done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, timeout=seconds, capture_output=True, text=True)
        return {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def asked(repository, branch=None, provider=None, folder="/work", **agent):
    """The command that a start has run, and what it says."""
    one = ListingAgent(**agent)
    request = {"selected_repository": repository, "selected_branch": branch, "git_provider": provider}
    return one.command if (said := clone(one, str(folder), ID, request)) == "" else said


@pytest.mark.parametrize(
    ("repository", "provider", "words"),
    [
        ("owner/name", None, "git clone --quiet -- https://github.com/owner/name.git "),
        ("group/sub/name", "gitlab", "git clone --quiet -- https://gitlab.com/group/sub/name.git "),
        ("owner/name", "bitbucket", "git clone --quiet -- https://bitbucket.org/owner/name.git "),
        ("https://git.example.org/name.git", None, "git clone --quiet -- https://git.example.org/name.git "),
        ("https://x/';rm;'/name", None, """git clone --quiet -- 'https://x/'"'"';rm;'"'"'/name' """),
    ],
)
def test_a_repository_is_cloned_from_its_provider_or_its_url(repository, provider, words):
    assert words in asked(repository, provider=provider)


def test_a_branch_is_one_word_of_the_command():
    assert "git clone --quiet --branch '--x; y' -- https" in asked("owner/name", "--x; y")


@pytest.mark.parametrize(
    ("repository", "provider", "answer", "words"),
    [
        ("owner/name", "forgejo", None, "The repository owner/name was not cloned: Write its URL: this server does"),
        ("--upload-pack=evil/name", None, None, "evil/name was not cloned: Write owner/name or a URL that "),
        ("owner/name", None, {"exit_code": 128, "stderr": "Cloning\nfatal: no\n"}, "was not cloned: fatal: no"),
        ("owner/name", None, {}, "The repository owner/name was not cloned: Git gave no reason"),
        ("owner/name", None, AgentRefused(404, "Not Found"), "was not cloned: its agent server runs no commands: "),
    ],
)
def test_what_is_not_cloned_is_said_in_a_sentence(repository, provider, answer, words):
    assert words in asked(repository, provider=provider, answer=answer)


ADVICE = "fatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\n"


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        (f"fatal: '/x' does not appear to be a git repository\n{ADVICE}", "fatal: '/x' does not appear to be a git"),
        (f"git@host: Permission denied (publickey).\n{ADVICE}", "git@host: Permission denied (publickey)."),
        (
            "remote: Repository not found.\nfatal: repository 'https://h/x' not found\n",
            "fatal: repository 'https://h/x",
        ),
        (ADVICE, "fatal: Could not read from remote repository."),
    ],
)
def test_the_cause_is_told_rather_than_the_advice_after_it(stderr, cause):
    assert f"was not cloned: {cause}" in asked("owner/name", answer={"exit_code": 128, "stderr": stderr})


def test_an_agent_server_that_is_away_says_nothing_of_the_repository():
    with pytest.raises(AgentUnreachable):
        asked("owner/name", answer=AgentUnreachable("it has ended"))


@pytest.fixture
def bare(tmp_path):
    """A repository with a branch."""
    work, named = tmp_path / "theirs", ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    work.mkdir()
    (work / "a").write_text("one")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        (*named, "commit", "-q", "-m", "First"),
        ("branch", "dev"),
    ):
        subprocess.run(["git", *words], cwd=work, check=True)
    return work


@runs_git
def test_a_clone_is_whole_and_a_second_driver_finds_it(bare, tmp_path):
    folder = tmp_path / "ours"
    folder.mkdir()

    assert "clone" in asked(bare.as_uri(), "dev", folder=folder, runs=True)
    (folder / "theirs" / "mine").touch()
    assert "clone" in asked(bare.as_uri(), "dev", folder=folder, runs=True)

    assert (folder / "theirs" / "a").read_text() == "one"
    assert (folder / "theirs" / "mine").exists()
    assert [path.name for path in folder.iterdir()] == ["theirs"]


@runs_git
def test_a_clone_that_fails_leaves_nothing_and_takes_no_others_place(bare, tmp_path):
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / f".{ID}.clone").mkdir()  # of a driver that was killed

    assert "was not cloned: " in asked((tmp_path / "nothing").as_uri(), folder=folder, runs=True)
    assert "was not cloned: " in asked(bare.as_uri(), "no-such-branch", folder=folder, runs=True)
    assert list(folder.iterdir()) == []
    (folder / "theirs").mkdir()
    assert "something else of the name theirs" in asked(bare.as_uri(), folder=folder, runs=True)
