"""Patterns that are proposed for commands: 60 and more lines, with what is proposed for each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.shell import read_line
from core.shell.proposals import propose_command
from core.shell.rules import allowed, approval_fault, command_pattern, pattern_fault

PROPOSED = {
    "git status": "git status *",
    "git status -s": "git status *",
    "  git   log --oneline  ": "git log *",
    "/usr/bin/git diff HEAD~1": "git diff *",
    "git --no-pager log": "git log *",
    "git commit -m 'A message; with a sign'": "git commit *",
    "git add src/a.py": "git add *",
    "git status && git status -b": "git status *",
    "git status 2>&1": "git status *",
    "git status > /dev/null": "git status *",
    "git status; true": "git status *",
    "LANG=C git diff": "git diff *",
    "env CI=1 git diff": "git diff *",
    "timeout 5 git show HEAD": "git show *",
    "bash -c 'git status'": "git status *",
    "command git status": "git status *",
    "eval 'git status'": "git status *",
    "ls": "ls *",
    "ls -la 'a folder'": "ls *",
    "cat $file": "cat *",
    "grep -rn word src": "grep *",
    "cd a && cd b": "cd *",
    "find . -name '*.py'": "find *",
    "sed -n 1,9p file": "sed *",
    "pytest -q tests": "pytest *",
    "python -m pytest -q": "python -m pytest *",
    "python3 -m pytest": "python3 -m pytest *",
    "npm test": "npm test *",
    "npm run build": "npm run build *",
    "cargo test --all": "cargo test *",
    "go vet ./...": "go vet *",
    "pip list": "pip list *",
    "docker compose ps": "docker compose ps *",
    "kubectl logs pod": "kubectl logs *",
    "gh pr view 3": "gh pr view *",
}

NOTHING = [
    "",
    "# a comment",
    "true",
    "rm -rf build",
    "mv a b",
    "make test",
    "./git status",
    "./run.sh",
    "python x.py",
    "python -c 'print(1)'",
    "python -m http.server",
    "node x.js",
    "git push",
    "git push origin main",
    "git checkout .",
    "git reset --hard",
    "git branch -D main",
    "git config x y",
    "git -C other status",
    "git -c alias.x=y status",
    "git diff --output=x",
    "git ''",
    "git $verb",
    "git",
    "GIT.EXE status",
    "git status > out",
    "git status | tee out",
    "git status && ls",
    "git status | cat",
    "git status; rm x",
    "PAGER=x git log",
    "sudo git status",
    "nohup git status",
    "xargs rm",
    "echo x | xargs git push",
    "echo $(git push)",
    "find . -delete",
    "find . -exec rm {} ;",
    "find . -exec rm {} \\;",
    "sed -i s/a/b/ file",
    "sed 'e date' file",
    "sort -o x y",
    "pytest -p plugin",
    "npm run 'a*b'",
    "npm run -- build",
    "npm exec x",
    "docker run x",
    "docker exec x ls",
    "kubectl delete pod x",
    "printenv",
    "curl https://example.com",
    "ssh host ls",
    'eval "$line"',
    "g=git; $g status",
    "git status !!",
    "git status\u200b",
    "if",
    "ls 'open",
    "x" * 20_000,
]


@pytest.mark.parametrize("line", PROPOSED)
def test_a_pattern_is_proposed(line):
    assert propose_command(line) == PROPOSED[line]


@pytest.mark.parametrize("line", NOTHING)
def test_no_pattern_is_proposed(line):
    assert propose_command(line) is None


PIECES = [*PROPOSED, *(line for line in NOTHING if len(line) < 100), "--output=x", "-o", "x", "> out", "$(rm x)", "'"]
LINES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).flatmap(
    lambda pieces: st.sampled_from([joint.join(pieces) for joint in (" ", " && ", "; ", " | ", "\n")])
)


@given(LINES)
def test_a_proposed_pattern_may_be_that_of_a_rule_and_approves_the_line(line):
    pattern = propose_command(line)
    if pattern is not None:
        assert pattern_fault(pattern) is None
        assert approval_fault(pattern) is None
        wanted = read_line(line).needed
        assert wanted
        assert wanted <= allowed(command_pattern(pattern), read_line(line))
