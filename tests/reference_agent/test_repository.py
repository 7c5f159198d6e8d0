"""What a repository says to the bundled agent, and what of it a prompt and a result have."""

import subprocess

import pytest

from reference_agent.repository import MOST_FILE, MOST_INSTRUCTIONS, FolderRepository, front_matter, given_skills
from reference_agent.tools import Files


@pytest.fixture
def top(tmp_path):
    """A working directory with a repository in it, and the agent server's own folder."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "app" / "web").mkdir(parents=True)
    (tmp_path / ".agent-server").mkdir()
    return tmp_path


def repository(top, folder="repo/app"):
    return FolderRepository(top / folder, Files(top, top / ".agent-server"))


def view(path):
    return {"kind": "FileEditorAction", "command": "view", "path": path}


def test_the_prompt_has_the_instructions_from_the_root_of_the_repository_to_the_folder_but_none_around(top):
    (top / "AGENTS.md").write_text("of the data folder")
    (top / "repo" / "AGENTS.md").write_text("Run make test.\n")
    (top / "repo" / "app" / "CLAUDE.md").write_text("Two blanks.\n")

    told = repository(top).instructions()

    assert told.split("\n") == [
        f'<instructions of="{top}/repo/AGENTS.md">',
        "Run make test.",
        "</instructions>",
        f'<instructions of="{top}/repo/app/CLAUDE.md">',
        "Two blanks.",
        "</instructions>",
    ]


def test_a_folder_that_is_touched_for_the_first_time_tells_its_instructions_once(top):
    (top / "repo" / "app" / "web" / "AGENTS.md").write_text("No frameworks.")
    for name, action in {
        "a file": view("web/page.html"),
        "a search": {"kind": "MCPToolAction", "data": {"pattern": "x", "path": "web"}},
        "a command": {"kind": "TerminalAction", "command": "cd web && ls"},
        "an open quote": {"kind": "TerminalAction", "command": "ls web 'x"},
    }.items():
        one = repository(top)
        assert "No frameworks." in one.instructions_for(action), name
        assert one.instructions_for(action) == "", name


def test_the_instructions_of_a_repository_that_came_after_the_start_are_told_with_the_first_command(top):
    one = repository(top)
    assert one.instructions() == ""
    (top / "repo" / "AGENTS.md").write_text("Late.")
    assert "Late." in one.instructions_for({"kind": "TerminalAction", "command": "ls"})


def test_instructions_that_lie_outside_or_are_no_text_are_left_out(top):
    secret = top / ".agent-server" / "start.json"
    secret.write_text("sealed")
    (top / "repo" / "AGENTS.md").symlink_to(secret)
    (top / "repo" / "app" / "AGENTS.md").symlink_to("/etc/passwd")
    (top / "repo" / "app" / "web" / "AGENTS.md").write_bytes(b"\xff\xfe")
    one = repository(top, "repo/app/web")
    assert one.instructions() == ""
    assert one.instructions_for(view("../../..")) == ""


def test_long_instructions_are_cut_with_a_sentence(top):
    (top / "repo" / "AGENTS.md").write_text("ä" * MOST_FILE)
    told = repository(top).instructions()
    assert f"(Cut off here: {top}/repo/AGENTS.md has {2 * MOST_FILE:,} bytes.)" in told
    assert len(told.encode()) < MOST_FILE + 300

    for folder in ("repo/app", "repo/app/web"):
        (top / folder / "AGENTS.md").write_text("b" * MOST_FILE)
    told = repository(top, "repo/app/web").instructions()
    assert told.endswith("(Cut off here: read the files for the rest.)")
    assert len(told.encode()) < MOST_INSTRUCTIONS + 100


SKILL = """---
name: release
description: >
  How a release
  is made
triggers:
- release
- "tag it"
---
Bump, tag, push.
"""


def test_skills_are_found_by_folder_and_the_first_of_a_name_counts(top):
    for place, text in {
        ".agents/skills/release/SKILL.md": SKILL,
        ".openhands/skills/release.md": "another one",
        ".openhands/microagents/flaky.md": "---\ntriggers: [flaky, timeout]\n---\n# Flaky tests\nRun them twice.",
        ".openhands/microagents/repo.md": "instructions",
        ".agents/skills/empty.md": "",
    }.items():
        path = top / "repo" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    release, flaky = repository(top).skills()

    assert (release.name, release.description) == ("release", "How a release is made")
    assert (release.triggers, release.content) == (("release", "tag it"), "Bump, tag, push.")
    assert (flaky.name, flaky.description, flaky.triggers) == ("flaky", "Flaky tests", ("flaky", "timeout"))
    assert [release.is_triggered(text) for text in ("Please TAG IT.", "prerelease notes", "a release!")] == [
        True,
        False,
        True,
    ]
    assert "instructions" in repository(top).instructions()


@pytest.mark.parametrize("text", ["", "no matter", "---\nname: x", "---\n- a\n\tb: c\n---\nbody", "---\n\n---"])
def test_front_matter_of_any_form_is_read(text):
    front_matter(text)


def test_the_skills_of_a_client_are_offered_or_always_count():
    skills, always = given_skills(
        {
            "skills": [
                {"name": "git", "content": "Sign off.", "trigger": {"type": "keyword", "keywords": ["commit"]}},
                {"name": "pdf", "content": "Use x.", "description": "PDFs", "is_agentskills_format": True},
                {"name": "house", "content": "Be brief.", "trigger": None},
                {"name": "broken", "content": 7},
                "broken",
            ]
        }
    )
    assert [(one.name, one.triggers, one.description) for one in skills] == [
        ("git", ("commit",), ""),
        ("pdf", (), "PDFs"),
    ]
    assert [("Be brief." in one, "the client" in one) for one in always] == [(True, True)]
    for broken in ({}, {"skills": 7}, {"skills": [{"content": "x", "trigger": {"keywords": 7}}]}):
        assert given_skills(broken)[0] == []


@pytest.mark.process("runs git")
def test_the_state_of_git_is_told_in_lines(tmp_path):
    one = FolderRepository(tmp_path, Files(tmp_path, tmp_path / "private"))
    assert one.state() == f"{tmp_path} is in no Git repository."
    for words in ("init -q -b trunk", "-c user.name=A -c user.email=a@b.c commit -q --allow-empty -m 'Begin it'"):
        subprocess.run(f"git {words}", shell=True, cwd=tmp_path, check=True)
    assert "Files with uncommitted changes: 0." in one.state()
    (tmp_path / "new").touch()

    branch, changed, head, commit = one.state().split("\n")

    assert branch == f"{tmp_path} is in a Git repository. Branch: trunk."
    assert changed == "Files with uncommitted changes: 1."
    assert (head, commit.endswith(" Begin it")) == ("Last commits:", True)
