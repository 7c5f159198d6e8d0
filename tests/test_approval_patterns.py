"""What the pattern of an approval rule matches, and what it never matches. Source: docs/approvals.md."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.rules import MOST_MATCHED, MOST_STARS, RUN, fits_pattern, pattern_fault

#: a pattern, and texts that try to bring in more than its author meant
SMUGGLED = [
    # a second command
    ("git status*", "git status; rm -rf /"),
    ("git status*", "git status;rm -rf /"),
    ("git status*", "git status && rm -rf /"),
    ("git status*", "git status || rm -rf /"),
    ("git status*", "git status | sh"),
    ("git status*", "git status |& sh"),
    ("git status*", "git status & rm -rf /"),
    ("git status*", "git status &"),
    # line ends, and what some readers take for them
    ("git status*", "git status\nrm -rf /"),
    ("git status*", "git status\r\nrm -rf /"),
    ("git status*", "git status\rrm -rf /"),
    ("git status*", "git status\n"),
    ("git status", "git status\n"),
    ("git status*", "git status\vrm -rf /"),
    ("git status*", "git status\frm -rf /"),
    ("git status*", "git status\x85rm -rf /"),
    ("git status*", "git status\N{LINE SEPARATOR}rm -rf /"),
    ("git status*", "git status\N{PARAGRAPH SEPARATOR}rm -rf /"),
    ("git status*", "git status\x1crm -rf /"),
    ("git status*", "git status \\\nrm"),
    ("git status*", "git status\0; rm -rf /"),
    ("git status*", "git status\0"),
    # substitution
    ("git log *", "git log $(rm -rf /)"),
    ("git log *", "git log `rm -rf /`"),
    ("git log *", "git log $HOME"),
    ("git log *", "git log ${IFS}x"),
    ("git log *", "git log$IFS-x"),
    ("git log *", "git log $'\\x3b'"),
    ("git log *", 'git log $"x"'),
    ("git log *", "git log $((1+1))"),
    ("git log *", "git log <(rm x)"),
    ("git log *", "git log >(rm x)"),
    # redirection
    ("echo *", "echo x > /etc/passwd"),
    ("echo *", "echo x >> /etc/passwd"),
    ("echo *", "echo x 2>/etc/passwd"),
    ("echo *", "echo x >| /etc/passwd"),
    ("cat *", "cat < /etc/shadow"),
    ("cat *", "cat << END"),
    ("cat *", "cat <<< x"),
    # expansion
    ("cat *", "cat ~/.ssh/id_rsa"),
    ("cat *", "cat ~root/x"),
    ("cat *", "cat /etc/pass*"),
    ("cat *", "cat /etc/passw?"),
    ("cat *", "cat /etc/[p]asswd"),
    ("cat *", "cat {/etc/passwd,x}"),
    ("cat *", "cat {1..9}"),
    ("cat *", "cat !$"),
    ("cat *", "cat !!"),
    ("cat *", "cat ^x^y"),
    ("cat *", "cat %1"),
    ("cat *", "cat %COMSPEC%"),
    ("cat *", "cat x # y"),
    ("cat *", "cat #"),
    # quotes
    ("cat *", "cat 'x'"),
    ("cat *", 'cat "x"'),
    ("cat *", "cat \\x"),
    ('git commit -m "*"', 'git commit -m "x"; rm -rf "/"'),
    ('git commit -m "*"', 'git commit -m "$(rm -rf /)"'),
    ('git commit -m "*"', 'git commit -m "`id`"'),
    ('git commit -m "*"', 'git commit -m "x\\"'),
    ('git commit -m "*"', 'git commit -m "x" "y"'),
    ("git commit -m '*'", "git commit -m 'x' ; rm '/'"),
    ("echo '*' '*'", "echo 'x'';' '"),
    # a variable that is set makes a command of the next word
    ("git*", "git=1 rm -rf /"),
    ("git*", "git+=1 rm -rf /"),
    ("git*", "git_=1 rm -rf /"),
    ("*make", "LD_PRELOAD=./x make"),
    ("*", "PATH=. ls"),
    ("*", "x=1 -y=2 z=3"),
    ("-a;git*", "-a;git=1 rm"),
    ("a[0]*", "a[0]=1 rm"),
    ("git *", "git =ls"),
    ("git *", "git a=b"),
    # out of a directory
    ("cat docs/*", "cat docs/../../etc/shadow"),
    ("cat docs/*", "cat docs/.."),
    ("/work/*", "/work/../etc/passwd"),
    ("/work/.*", "/work/../etc/passwd"),
    ("/work/*./x", "/work/../x"),
    ("a*", "a..b"),
    # letters that look like others, blanks that look like spaces
    ("git status*", "gіt status"),
    ("git status*", "git\N{NO-BREAK SPACE}status"),
    ("git *", "git st\N{CYRILLIC SMALL LETTER A}tus"),
    ("git *", "git \N{FULLWIDTH SEMICOLON} rm"),
    ("git *", "git x\N{IDEOGRAPHIC SPACE}y"),
    ("git *", "git \N{RIGHT-TO-LEFT OVERRIDE}x"),
    ("git *", "git \N{ZERO WIDTH SPACE}x"),
    ("git *", "git ١"),
    ("git *", "git \ud800"),
    ("git *", "git \x1b[2K"),
    ("git *", "git \x08x"),
    ("git *", "git\tstatus"),
    ("git *", "git x\ty"),
    # the pattern is the whole text, and its literal parts are exact
    ("git status*", " git status"),
    ("git status*", "sudo git status"),
    ("git status*", "x; git status"),
    ("git status*", "Git status"),
    ("git status*", "git  status"),
    ("git status*", "git statu"),
    ("git status", "git status "),
    ("git status", "git status*"),
    ("git * --stat", "git log --stat x"),
    ("ls; *", "ls ; x"),
    # the author wrote metacharacters once, and they are there twice
    ("ls | head -n *", "ls | head -n 1 | sh"),
    ("ls * | head", "ls | sh | head"),
    ("cd x && make *", "cd x && make && rm"),
    ("echo $HOME/*", "echo $HOME/$HOME"),
    # no text
    ("*", None),
    ("*", 1),
    ("*", True),
    ("*", ["git status"]),
    ("*", {"command": "ls"}),
    ("git*", "git" + " x" * MOST_MATCHED),
]

FITTING = [
    ("git status*", "git status"),
    ("git status*", "git status -s --porcelain"),
    ("git log *", "git log --format=short -n 3 v1.2.3"),
    ("git log *", "git log HEAD@ a,b c:d x+y"),
    ("git * --stat", "git log -p --stat"),
    ("git commit -m '*'", "git commit -m 'Fix the door'"),
    ("ls * | head -n *", "ls -la /tmp | head -n 10"),
    ("cd /work && make *", "cd /work && make test"),
    ("rm '*'", "rm ''"),
    ("*", ""),
    ("*", "ls -la"),
    ("**", "ls"),
    ("a*b*c", "a-b-b-c"),
    ("*a*a*", "aaa"),
    ("cat docs/*.md", "cat docs/a/b.md"),
    ("cat ./*", "cat ./x/.hidden"),
    ("git diff *..*", "git diff main..next"),
    ("FOO=1 make *", "FOO=1 make -j=2 all"),
    ("git status", "git status"),
    ("echo; ls", "echo; ls"),
    ("день *", "день 1"),
]


@pytest.mark.parametrize(("pattern", "value"), SMUGGLED, ids=repr)
def test_a_pattern_matches_nothing_that_was_smuggled_in(pattern, value):
    assert not fits_pattern(pattern, value)


@pytest.mark.parametrize(("pattern", "value"), FITTING, ids=repr)
def test_a_pattern_matches_what_its_author_meant(pattern, value):
    assert fits_pattern(pattern, value)


def test_a_run_holds_no_character_that_any_shell_reads_as_more_than_a_letter_of_a_word():
    assert not RUN & set(";&|<>()$`\\\"'#~!?*[]{}^%\n\r\t\0")
    assert set(string.printable) >= RUN


@pytest.mark.parametrize("pattern", ["echo $*", "echo \\*", "!*", "echo `*`", "*" * (MOST_STARS + 1)])
def test_a_pattern_that_would_run_what_a_star_stands_for_is_refused(pattern):
    assert pattern_fault(pattern)


@pytest.mark.parametrize("pattern", ["git status*", "echo $HOME *", "*" * MOST_STARS, "'*'", "x"])
def test_a_pattern_without_such_a_star_is_accepted(pattern):
    assert pattern_fault(pattern) is None


# properties

#: texts in which shells see more than words, often enough
_SHELLISH = st.text(st.sampled_from("ab .-=/;|&$`'\"\\\n{}()<>#~!\u2028\0"), max_size=12) | st.text(max_size=12)
_PATTERNS = st.lists(_SHELLISH, min_size=1, max_size=4).map("*".join)


@st.composite
def _filled(draw):
    """A pattern, and a text that has something in the place of each `*`."""
    pattern = draw(_PATTERNS)
    parts = pattern.split("*")
    runs = [draw(_SHELLISH) for _ in parts[1:]]
    return pattern, parts[0] + "".join(run + part for run, part in zip(runs, parts[1:], strict=True))


@given(_filled() | st.tuples(_PATTERNS, _SHELLISH))
def test_a_text_that_matches_has_the_metacharacters_of_the_literal_parts_and_no_other(filled):
    pattern, value = filled
    if fits_pattern(pattern, value) and pattern != value:
        literal = [one for one in pattern if one not in RUN and one != "*"]
        assert [one for one in value if one not in RUN] == literal


@given(_filled())
def test_a_text_matches_if_its_runs_have_only_letters_digits_and_spaces(filled):
    pattern, _ = filled
    assert fits_pattern(pattern, pattern.replace("*", "a 1"))
    assert fits_pattern(pattern, pattern.replace("*", ""))


@given(st.text(), st.text())
def test_a_pattern_without_a_star_matches_itself_alone(pattern, value):
    if "*" not in pattern and len(value) <= MOST_MATCHED:
        assert fits_pattern(pattern, value) == (pattern == value)


@given(st.text(st.characters(exclude_characters="".join(RUN)), min_size=1), st.text(max_size=8), st.text(max_size=8))
def test_a_star_crosses_no_character_outside_its_allow_list(foreign, before, after):
    assert not fits_pattern("*", before + foreign + after)
    assert not fits_pattern("git *", f"git {before}{foreign}{after}")
