"""What a pattern of a rule that rejects matches, what it surely does not, and when it is unsure.

Source: docs/approvals.md#rules.
"""

from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.approvals import fits_pattern
from core.wide_match import MOST_SEARCHED, fits_widely


def widely(pattern: str, text: str) -> bool | None:
    return fits_widely(pattern.split("*"), text)


REFUSED = [
    "git push",
    "git push; true",
    "git push\n",
    "git  push",
    "git\tpush",
    'git "push"',
    "g''it push",
    "g\\it push",
    "git\\\npush",
    "GIT PUSH",
    "sh -c 'git push'",
    "cd ../a && git push --force",
    "A=1 git push",
    "true | git push",
    "echo $(git push)",
    "git push é",
]


@pytest.mark.parametrize("text", REFUSED)
def test_other_spellings_of_a_command_match(text):
    assert widely("*git push*", text) is True


UNSURE = [
    "git -C . push",
    "git -c alias.x=push x",
    "/usr/lib/git-core/git-push",
    "git.exe push",
    "alias g=git; g push",
    "p=push; git $p",
    "git pu??",
    "git {push,}",
    "git `cat verb`",
    "echo Z2l0IHB1c2g= | base64 -d | sh",
    "sh < script",
    "sh <(cat script)",
    "git pu\t",
    "git pu\b\b push",
    "\N{FULLWIDTH LATIN SMALL LETTER G}it push",
    "git\N{ZERO WIDTH SPACE} status",
    "perl -esystem+q/git/,q/pu/.q/sh/",
    "python3.11 -c 'import os'",
    "perl5.36-x86_64-linux-gnu -esystem+q/gi/.q/t/,q/pu/.q/sh/",
    "PERL5OPT='-Mstrict;system+q.gi..q.t.,q.pu..q.sh.' perl x",
    "nodejs --input-type=module -e 'import \"data:text/javascript;base64,aW1wb3J0\"'",
    "NODE_OPTIONS=--import=data:text/javascript;base64,aW1wb3J0 npm -v",
    "deno run data:text/javascript;base64,aW1wb3J0",
    "sed '1s/.../giQ pW;/;s/Q/t/;s/W/ush/;1e' x",
    "sed -n 1p -e 's/a/gi/;e' x",
    "xargs -a x -d : -I, sh -c 'gi,t pu,sh'",
    "parallel -I, 'gi,t pu,sh' ::: ''",
    "socat -u 'SYSTEM:printf gi; echo t pu; echo sh' EXEC:sh",
    'ex -s -c \'exe "term gi"."t pu"."sh"\'',
    "/usr/bin/vim +1 x",
    'luajit -e \'for k in os.execute, "gi".."t pu".."sh" do end\'',
    'gnuplot -e \'system "gi"."t pu"."sh"\'',
    "rails runner 'system :gi.to_s+:t.to_s'",
    "unknown run \"system 'gi'+'t pu'+'sh'\"",
    "git -c help.autocorrect=-1 pusj",
    "x" * (MOST_SEARCHED + 1),
]


@pytest.mark.parametrize("text", UNSURE)
def test_a_text_that_may_run_the_command_leaves_it_unsure(text):
    assert widely("*git push*", text) is None


OTHERS = [
    "ls -la",
    "git status",
    "cd a && make; git log --oneline",
    "echo 'a b' \"c\"",
    'git commit -m "don\'t"',
    "python x.py",
    "rm -rf node_modules",
    "cd a; sed -n 1,200p a.py b.py && ls",
    "cat a.ex vim.txt",
    "",
]


@pytest.mark.parametrize("text", OTHERS)
def test_a_plain_text_without_a_word_of_the_pattern_does_not_match(text):
    assert widely("*git push*", text) is False


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        ("*rm -rf*", "rm -rf x", True),
        ("*rm -rf*", "rm -fr x", None),
        ("*rm -rf*", "rm -r -f x", None),
        ("*rm -rf*", "rm --recursive --force x", None),
        ("*rm -rf*", "rm -r x", False),
        ("*rm -rf*", "ls -rf x", False),
        ("*--force*", "git push -f", None),
        ("*--force*", "git push --forc", None),
        ("*--force*", "git push origin", False),
        ("/etc/*", "/tmp/../etc/passwd", None),
        ("/etc/*", "//etc/passwd", None),
        ("/etc/*", "/tmp/passwd", False),
        ("git pu*", "env git pull", None),
        ("*sh x", "bash -v x", None),
        ("*pip install*", "pip3.11 install x", None),
        ("*python *", "python3 x", None),
        ("*pip install*", "3 install x", False),
        ('*"*', "ls", False),
        ("git push", "git push ", True),
        ("git push", "git push -v", None),
        ("*", "anything | at all", True),
    ],
)
def test_words_options_and_places_are_compared(pattern, text, answer):
    assert widely(pattern, text) is answer


_TEXTS = st.text(st.sampled_from(ascii_lowercase[:3] + " .;'\\*-$\n"), max_size=12)


@given(_TEXTS, _TEXTS)
def test_what_matches_narrowly_matches_widely(pattern, text):
    if fits_pattern(pattern, text):
        assert widely(pattern, text) is True


_WRAPPERS = st.sampled_from(
    [
        "env {}",
        "A=1 {}",
        "timeout 5 {}",
        "sudo -n {}",
        "sh -c '{}'",
        'bash -lc "{}"',
        "({})",
        "{} &",
        "{}; true",
        "true && {}",
        "{} > out 2>&1",
        "$({})",
        "`{}`",
        "xargs {}",
        "cat <<E | sh\n{}\nE",
        "{} # words",
    ]
)


@st.composite
def _spelled(draw) -> str:
    """A word as a shell reads it too: quotes, backslashes and upper case at any place."""
    return "".join(
        draw(st.sampled_from([letter, letter.upper(), f"\\{letter}", f"'{letter}'", f'"{letter}"', f"{letter}''"]))
        if letter != " "
        else letter
        for letter in "git push"
    )


@given(_spelled(), st.lists(_WRAPPERS, max_size=4), st.lists(st.sampled_from(["-C", ".", "-v", "--no-pager"])))
def test_no_spelling_and_no_wrapper_makes_a_rejected_command_surely_another(spelled, wrappers, options):
    line = spelled.replace(" ", " ".join(["", *options, ""]))
    for wrapper in wrappers:
        line = wrapper.format(line)
    assert widely("*git push*", line) is not False
