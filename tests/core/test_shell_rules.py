"""Which commands a pattern of a rule stands for, and where its `*` does not go.

Source: docs/approvals.md#commands; GTFOBins.
"""

import pytest

from core.shell import read_line
from core.shell.rules import allowed, approval_fault, command_pattern, pattern_fault, refused


def approves(pattern: str, text: str) -> bool:
    """Whether a pattern alone approves a line."""
    line = read_line(text)
    return bool(line.needed) and line.needed <= allowed(command_pattern(pattern), line)


COVERED = [
    ("git *", "git commit -am fix"),
    ("git -c core.pager=less log *", "git -c core.pager=less log -3"),
    ("git * --stat", "git log -p --stat"),
    ("git config user.name *", "git config user.name Ada"),
    ("tar *", "tar czf a.tgz src"),
    ("find *", "find . -name x -type f"),
    ("awk *", "awk -F: '{print $1}' x"),
    ("sed *", "sed -n 1,20p x"),
    ("sed *", "sed -E 's/a+/b/g' x"),
    ("python *", "python -u x.py -c y"),
    ("python -m pytest *", "python -m pytest -q tests"),
    ("python -c *", "python -c 1"),
    ("make * > build.log", "make all >> build.log"),
    ("make * > logs/*", "make all > logs/a.log 2>&1"),
    ("DRY_RUN=1 deploy *", "DRY_RUN=1 deploy x"),
    ("DRY_RUN=* deploy *", "DRY_RUN=yes deploy"),
    ("sudo apt install *", "sudo apt install x"),
    ("sudo -u www git status *", "sudo -u www git status -s"),
    ("timeout 5 make *", "make all"),
    ("cat docs/*", "cat docs/a.md"),
    ("cat docs/*.md", "cat docs/a/b.md"),
    ("./run.sh *", "./run.sh a"),
    ("/usr/bin/git status", "/usr/bin/git status"),
    ("npm run test:*", "npm run test:unit"),
]

NOT_COVERED = [
    ("git *", "git -c core.pager=x log"),
    ("git *", "git -C /x status"),
    ("git *", "git --work-tree=/x checkout ."),
    ("git *", "git config alias.x '!sh'"),
    ("git *", "git clone -u x y"),
    ("git *", "git clone 'ext::sh -c x'"),
    ("git log *", "git log --output=x"),
    ("git log *", "git log --outp x"),
    ("git grep *", "git grep -Ovi x"),
    ("git rebase *", "git rebase -x ls"),
    ("git fetch *", "git fetch --upload-pack=x"),
    ("tar *", "tar xf a --checkpoint-action=exec=sh"),
    ("tar *", "tar xf a --to-comm=sh"),
    ("tar *", "tar cfI a sh"),
    ("find *", "find . -delete"),
    ("find *", "find . -exec sh x \\;"),
    ("find *", "find . -fprintf /x y"),
    ("awk *", "awk 'BEGIN{system(\"ls\")}'"),
    ("awk *", "awk -f x"),
    ("awk *", "awk '{print > \"/x\"}' y"),
    ("sed *", "sed 's/a/b/e' x"),
    ("sed *", "sed 'w /x' y"),
    ("sed *", "sed -i s/a/b/ x"),
    ("sed *", "sed -e 5p -rne '1e ls' x"),
    ("python *", "python -c 1"),
    ("python *", "python -m timeit 1"),
    ("python -m pytest *", "python -m pytest -p x"),
    ("perl *", "perl -e 1"),
    ("node *", "node --require x y"),
    ("make *", "make SHELL=./x"),
    ("make *", "make -f x"),
    ("sort *", "sort --compress-prog=sh x"),
    ("sort *", "sort -uo/x y"),
    ("rg *", "rg --pre sh x"),
    ("zip *", "zip a b -T -TT sh"),
    ("rsync *", "rsync -e sh a b"),
    ("curl *", "curl -sSLo x y"),
    ("man *", "man -P sh x"),
    ("less *", "less +!sh x"),
    ("go *", "go test -exec sh"),
    ("npm *", "npm exec x"),
    ("docker *", "docker run x"),
    ("sqlite3 *", "sqlite3 x '.shell ls'"),
    ("test *", "test -v 'a[$(x)]'"),
    ("printf *", "printf -v PATH x"),
    ("read *", "read PATH < x"),
    ("read *", "read 'a[$(x)]' < y"),
    ("read *", "read 'a[i]' < y"),
    ("read *", "read $x < y"),
    ("unset *", "unset 'a[$(x)]'"),
    ("getopts *", "getopts a: 'a[$(x)]'"),
    ("getopts *", "getopts a: PATH -a x"),
    ("wait *", "wait -n -p PATH"),
    ("test *", "test 'a[$(x)]' -eq 1"),
    ("eslint *", "eslint --rulesdir x ."),
    ("tsc *", "tsc --OUTDIR /x"),
    ("pylint *", "pylint --init-hook=x y"),
    ("gradlew *", "gradlew -I x build"),
    ("cmake *", "cmake -E rm x"),
    ("foo *", "foo --exec=x"),
    ("foo *", "foo $x"),
    ("cat docs/*", "cat docs/../x"),
    ("cat docs/*", "cat docs/$x"),
    ("cat docs/*", 'cat "docs/$x"'),
    ("cat docs/*", "cat docs/a b"),
    ("cat *", "cat < /dev/tcp/10.0.0.1/80"),
    ("make * > logs/*", "make > logs/../x"),
    ("make * > logs/*", "make > $x"),
    ("make *", "make > x"),
    ("DRY_RUN=1 deploy *", "deploy x"),
    ("DRY_RUN=1 deploy *", "DRY_RUN=0 deploy x"),
    ("DRY_RUN=1 deploy *", "DRY_RUN=1 PATH=. deploy x"),
    ("sudo apt install *", "apt install x"),
    ("sudo apt install *", "sudo -u x apt install y"),
    ("sudo apt install *", "sudo A=1 apt install x"),
    ("apt install *", "sudo apt install x"),
    ("run.sh", "./run.sh"),
    ("./run.sh", "run.sh"),
    ("git status", "git status -s"),
    ("git", "git status"),
    ("bash *", "bash -c ls"),
]


@pytest.mark.parametrize(("pattern", "text"), COVERED)
def test_a_pattern_stands_for_what_its_author_meant(pattern, text):
    assert pattern_fault(pattern) is None
    assert approves(pattern, text)


@pytest.mark.parametrize(("pattern", "text"), NOT_COVERED)
def test_no_star_stands_for_a_word_that_runs_or_writes_something_else(pattern, text):
    assert pattern_fault(pattern) is None
    assert not approves(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        ("sudo *", "env sudo ls", True),
        ("sudo *", "ls", False),
        ("sudo rm *", "sudo rm x", True),
        ("sudo rm *", "rm x", False),
        ("timeout 5 git push", "git push", True),
        ("docker push *", "docker --context x push y", None),
        ("docker push *", "docker build push", False),
        ("pip install *", "pip3.11 install x", None),
        ("* --force", "git push --force", True),
        ("* --force", "git push -f", None),
        ("git push", "git commit -m push", False),
        ("rm *", "find . -delete", True),
        ("rm /etc/*", "rm /etc/x", True),
        ("rm /etc/*", "rm ../etc/x", None),
        ("make * > x", "make", True),
        ("rm *", "read 'a[$(rm x)]' < y", None),
        ("rm *", "unset 'a[$(rm x)]'", None),
        ("rm *", "printf -v 'a[$(rm x)]' y", None),
        ("rm *", "test -v 'a[$(rm x)]'", None),
        ("rm *", "[ 'a[`rm x`]' -eq 1 ]", None),
        ("rm *", "printf '%s[%s]' a b", False),
        ("rm *", "test -f 'a[1].txt'", False),
        ("git push", "gh repo clone git -- push", None),
    ],
)
def test_a_pattern_that_rejects_is_compared_widely(pattern, text, answer):
    assert refused(command_pattern(pattern), read_line(text)) is answer


@pytest.mark.parametrize("pattern", ["*", "sudo *", "g*t status", "sudo -u * *", "env *"])
def test_a_pattern_that_approves_names_its_program(pattern):
    assert pattern_fault(pattern) is None
    assert approval_fault(pattern)
