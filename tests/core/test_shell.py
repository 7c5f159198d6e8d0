"""The commands of a shell line: those that Bash runs, and what makes a line doubtful.

Source: docs/approvals.md#commands.
"""

import random
import shutil
import subprocess
from itertools import pairwise

import pytest

from core.shell import MOST_COMMANDS, MOST_LINE, MOST_SIGNS, read_line
from core.shell.words import Command, Word
from core.shell.wrappers import MOST_DEPTH


def commands(text: str) -> list[str]:
    """The commands of a line that are no wrappers, each as its words."""
    found = [one.words for one in read_line(text).commands if not one.is_followed]
    return [" ".join(word.text for word in words if word.is_whole) for words in found if words]


def known(text: str) -> list[str]:
    """How much of each word of a line's last command is known."""
    return [word.known for word in read_line(text).commands[-1].words]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("git status -s", ["git status -s"]),
        ("a; b && c || d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("env A=1 timeout 5 sh -c 'a; b c'", ["a", "b c"]),
        ("find . -name x -exec rm {} \\; -print", ["find . -name x -print", "rm"]),
        ("a $(b `c`) <(d)", ["c", "b", "d", "a"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("cat <<'E'\n$(a)\nE\nb", ["cat", "b"]),
        ("cat <<E\n$(a)\nE", ["a", "cat"]),
    ],
)
def test_the_commands_of_a_line_are_found_in_what_wraps_them(text, found):
    assert commands(text) == found
    assert read_line(text).doubts == ()


def test_a_word_is_known_whole_or_by_its_beginning_or_not_at_all():
    assert known("a 'b' src/*.py src/{a,b} \"$x\" $x *.py -x* x$y.* ~/x") == [
        *("whole", "whole", "begins", "begins", "one", "any", "any", "any", "any", "begins"),
    ]


def test_variables_and_files_of_a_command_are_told_apart_from_its_words():
    [command] = read_line("A=1 B='x y' make all > log 2>&1 >> more < in >/dev/null").commands
    assert [word.text for word in command.words] == ["make", "all"]
    assert [(name, value.text) for name, value in command.sets] == [("A", "1"), ("B", "x y")]
    assert [(write.sign, write.path.text) for write in command.writes] == [(">", "log"), (">>", "more")]
    assert command.is_fed


def test_the_text_of_a_quoted_heredoc_in_a_substitution_is_known():
    text = "git commit -m \"$(cat <<'EOF'\nFix $x `y`\n\nMore\nEOF\n)\""
    assert read_line(text).commands[-1].words[-1] == Word("Fix $x `y`\n\nMore")


@pytest.mark.parametrize(
    "text",
    [
        "a " + "x" * MOST_LINE,
        "a;" * (MOST_COMMANDS + 1),
        "(" * MOST_SIGNS + ")",
        "env " * (MOST_DEPTH + 2) + "a",
        "eval " * (MOST_DEPTH + 2) + "a",
        "a \ud800",
        "a \0",
    ],
)
def test_a_line_beyond_a_bound_is_doubtful(text):
    assert read_line(text).doubts


def test_lines_that_are_hard_to_parse_end_by_their_bounds_and_not_by_their_time():
    for unit in ("))", "== ", "a|", "if ", "do esac ", "<<A ", "$(", "'\"", "eval ", "find -exec a ; ", "[ ", "\\\n"):
        line = read_line((unit * MOST_LINE)[:MOST_LINE])
        assert len(line.commands) <= MOST_COMMANDS + 1


# Bash itself: a line's commands run in an empty PATH, where each tells its words

_TELL = r"""
command_not_found_handle() { local m; printf -v m '%s\1' "$@"; printf '%s\2' "$m" >>"$TOLD"; }
cat() { local l; [ $# = 0 ] && while IFS= read -r l; do printf '%s\n' "$l"; done; }
PATH=/nowhere
eval "$1"
"""

_SEEDS = (
    *("c0 a; c1 b", "c0 $(c1 a) | c2", "if c0; then c1; fi", "c0 <<E\na\nE\nc1", "c0 'a b' \"c1 $x\""),
    *("(c0; c1) && { c2; }", "for f in a b; do c0 $f; done", "c0 <<'E' | c1\n$(c2)\nE\n", "A=1 c0 `c1`"),
    *("case a in a) c0;; b) c1;; esac", 'c0 "$(c1 "a")"', "! c0 && [ -f x ] || c1", "c0 # c1\nc2", "c0 \\\n c1"),
    *("time A=1 c0 && [ -f x ] || c1", "c0 > x a 2>&1", "[[ a && b ]] || c0; { c1; }", "eval 'c0 a' ; env c1"),
    *("c0 <(c1) > /dev/null", "c0 a{b,c}d", "c0 ~/x *", "[[ a == a ]] && c0", "c0 \"$(cat <<'E'\nx\nE\n)\""),
)
_PARTS = (
    *(
        "c0",
        "c1",
        "a",
        " ",
        " ",
        " ",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "'",
        '"',
        "\\",
        "$x",
        "${x}",
        "$(",
        "`",
        ")",
        "(",
    ),
    *(
        "{ ",
        " }",
        "<<E",
        "\nE\n",
        "<<'E'",
        "E",
        "> /dev/null",
        "2>&1",
        "$'",
        "\\x41",
        "\\\n",
        "#",
        "if ",
        "then ",
        "fi",
    ),
    *("else ", "for f in ", "do ", "done", "while ", "! ", "[ ", "]", "[[ ", "]]", "case ", "in ", "esac", ";;", "x="),
    *("=", "<(", "*", "?", "{a,b}", "~", "$((", "))", "!", "<<<", "time ", "\t", "-", "c1 ", "'c1'", '"c0"', "A=1 "),
)


def _mutated(chance: random.Random) -> str:
    text = chance.choice(_SEEDS)
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice([0, 0, 0, 1, 2]))
        text = text[:start] + chance.choice(_PARTS) + text[end:]
    return text


def run_by_bash(text: str, folder) -> list[list[str]]:
    """The words of each command that Bash runs for a line."""
    told = folder / "told"
    told.write_bytes(b"")
    (folder / "empty").mkdir(exist_ok=True)
    subprocess.run(
        [shutil.which("bash"), "--norc", "--noprofile", "-c", _TELL, "bash", text],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=folder / "empty",
        env={"TOLD": str(told)},
        timeout=20,
        check=False,
    )
    return [one.split("\1")[:-1] for one in told.read_text(errors="replace").split("\2") if one]


def is_run(words: list[str], command: Command) -> bool:
    """Whether words are those of a command as it was read."""
    ends = {0}
    for word in command.words:
        after = set()
        for start in ends:
            if word.known == "whole":
                after |= {start + 1} if words[start : start + 1] == [word.text] else set()
            elif word.known == "one":
                after |= {start + 1} if start < len(words) else set()
            else:
                after |= set(range(start + (word.known == "begins"), len(words) + 1))
        ends = after
    return len(words) in ends


@pytest.mark.process("runs Bash 1,500 times")
def test_bash_runs_no_command_that_the_reading_of_a_line_does_not_have(tmp_path):
    chance, clear = random.Random(49), 0
    for _ in range(10_000):
        text = _mutated(chance)
        line = read_line(text)
        if line.doubts or not line.commands:
            continue
        clear += 1
        for words in run_by_bash(text, tmp_path):
            assert any(is_run(words, command) for command in line.commands), (text, words)
        if clear == 1500:
            break
    assert clear > 1000


@pytest.mark.process("runs Bash")
def test_bash_tells_the_words_of_the_commands_that_it_runs(tmp_path):
    assert run_by_bash("c0 'a b' | c1 $(c2 x)", tmp_path) != []
    told = {tuple(words) for words in run_by_bash("x='a b'; c0 $x \"$x\"; c1", tmp_path)}
    assert told == {("c0", "a", "b", "a b"), ("c1",)}
    assert all(first != second for first, second in pairwise(sorted(told)))
