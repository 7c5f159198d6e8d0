"""The corpus of shell lines: 400 lines, ten rules, and what each says; and what no change of a line may do.

Source: docs/approvals.md#commands.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from hypothesis import given as example
from hypothesis import strategies as st

from core.shell import read_line
from core.shell.rules import allowed, command_pattern, refused

CORPUS = tomllib.loads((Path(__file__).parent / "shell_lines.toml").read_text())
FOR = {letter: command_pattern(text) for letter, text in CORPUS["rules"]["for"].items()}
AGAINST = {letter: command_pattern(text) for letter, text in CORPUS["rules"]["against"].items()}
LINES = [(answers, text) for family in CORPUS["lines"].values() for answers, text in family]

#: Maximum share of answers that are asked for needlessly.
MOST_NEEDLESS = 0.05


class ShellAnswers(NamedTuple):
    """What rules say of a line."""

    alone: frozenset[str]  #: rules for that approve it alone
    together: bool  #: whether the rules for approve it
    rejecting: frozenset[str]
    unsure: frozenset[str]  #: rules against

    @property
    def is_allowed(self) -> bool:
        return self.together and not self.rejecting and not self.unsure


def right(answers: str) -> ShellAnswers:
    """The answers that the corpus names."""
    alone = frozenset(answers) & FOR.keys()
    rejecting = frozenset(answers) & AGAINST.keys()
    unsure = frozenset(AGAINST) if "?" in answers else frozenset(answers.upper()) & AGAINST.keys()
    return ShellAnswers(alone, bool(alone) or "+" in answers, rejecting, unsure - rejecting)


def given(text: str) -> ShellAnswers:
    """The answers of the rules."""
    line = read_line(text)
    wanted = line.needed
    places = {letter: allowed(pattern, line) for letter, pattern in FOR.items()}
    said = {letter: refused(pattern, line) for letter, pattern in AGAINST.items()}
    alone = frozenset(letter for letter, found in places.items() if wanted and wanted <= found)
    return ShellAnswers(
        alone,
        bool(wanted) and wanted <= frozenset().union(*places.values()),
        frozenset(letter for letter, answer in said.items() if answer),
        frozenset(letter for letter, answer in said.items() if answer is None),
    )


def test_the_corpus_has_400_lines_and_names_each_once():
    assert len(LINES) >= 400
    assert len({text for _, text in LINES}) == len(LINES)
    assert len(FOR) + len(AGAINST) == 10


def test_no_rule_approves_a_line_that_it_should_not():
    wrong = [
        text
        for answers, text in LINES
        if not given(text).alone <= right(answers).alone or (given(text).together and not right(answers).together)
    ]
    assert wrong == []


def test_no_line_that_a_rule_should_reject_passes_it():
    wrong = [
        text
        for answers, text in LINES
        if not right(answers).rejecting <= given(text).rejecting | given(text).unsure
        or not right(answers).unsure <= given(text).unsure | given(text).rejecting
    ]
    assert wrong == []


def test_no_rule_rejects_a_line_that_it_should_not():
    wrong = [
        text for answers, text in LINES if not given(text).rejecting <= right(answers).rejecting | right(answers).unsure
    ]
    assert wrong == []


def test_at_most_one_answer_in_twenty_is_asked_for_needlessly():
    needless = []
    for answers, text in LINES:
        should, does = right(answers), given(text)
        needless += [(letter, text) for letter in should.alone - does.alone]
        needless += [(letter, text) for letter in does.unsure - should.unsure]
        needless += [("+", text)] if should.is_allowed and not does.is_allowed else []
    lines = {text for _, text in needless}
    print(f"\n{len(LINES)} lines: {len(lines)} asked for needlessly ({len(lines) / len(LINES):.1%})")
    assert len(lines) <= MOST_NEEDLESS * len(LINES), needless


# properties: from a line of the corpus that is not allowed to one that must not be allowed

REFUSED = [text for answers, text in LINES if right(answers).rejecting]
UNKNOWN = [text for answers, text in LINES if "?" in answers]

#: Lines that words may follow: they end in a command, and not in a heredoc, a comment or an open quote.
_ENDS_IN_A_COMMAND = [
    text for text in REFUSED if "\n" not in text and "#" not in text and text[-1] not in ";&)}`'\"]\\+"
]

_MORE_WORDS = st.lists(
    st.sampled_from(["-v", "--force", "x", "origin", "./a", "'b", "c'", "--", "$x", "*.py", "--output=x"]), max_size=3
)
_WRAPPERS = st.sampled_from(
    [
        "env {}",
        "A=1 env {}",
        "({})",
        "{{ {}; }}",
        "{} && ls",
        "ls; {}",
        "git status | {}",
        "if ls; then {}; fi",
        "for i in 1; do {}; done",
        "ls $({})",
        "cat <({})",
        "{} > /dev/null",
        "{} 2>&1",
        "{} >> x",
        "{} < x",
        "! {}",
        "{} &",
    ]
)
_PREFIXES = st.sampled_from(
    ["timeout 5 ", "nice ", "sudo ", "time ", "command ", "nohup ", "setsid ", "A=1 ", "env -i B=2 ", "exec ", "foo "]
)


def quoted(text: str) -> str:
    """A text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def is_allowed(text: str) -> bool:
    return given(text).is_allowed


def wrapped_in(text: str, wrappers: list[str]) -> str:
    for wrapper in wrappers:
        text = wrapper.format(text)
    return text


def test_no_line_that_is_refused_or_unknown_is_allowed():
    assert [text for text in REFUSED + UNKNOWN if is_allowed(text)] == []


@example(st.sampled_from(_ENDS_IN_A_COMMAND), _MORE_WORDS)
def test_no_word_that_is_added_to_a_refused_line_makes_it_allowed(text, words):
    assert not is_allowed(" ".join([text, *words]))


#: Lines that are whole: what follows `&&` at the end of a line completes it.
_WHOLE = [text for text in REFUSED + UNKNOWN if not text.rstrip().endswith(("&", "|"))]


@example(st.sampled_from(_WHOLE), st.lists(_WRAPPERS, min_size=1, max_size=4))
def test_no_wrapper_and_no_redirection_around_a_line_that_is_not_allowed_makes_it_allowed(text, wrappers):
    assert not is_allowed(wrapped_in(text, wrappers))


@example(st.sampled_from(REFUSED + UNKNOWN), st.lists(_PREFIXES, min_size=1, max_size=3))
def test_no_program_before_a_line_that_is_not_allowed_makes_it_allowed(text, prefixes):
    assert not is_allowed("".join(prefixes) + text)


@example(
    st.sampled_from(REFUSED + UNKNOWN), st.lists(st.sampled_from(["sh -c {}", "bash -lc {}", "eval {}"]), max_size=3)
)
def test_no_shell_around_a_line_that_is_not_allowed_makes_it_allowed(text, shells):
    for shell in shells:
        text = shell.format(quoted(text))
    assert not is_allowed(text)


_SPELLINGS = ["{0}", "\\{0}", "'{0}'", '"{0}"', "{0}''"]


@example(st.data())
def test_no_spelling_of_a_refused_command_makes_it_allowed(data):
    letters = [data.draw(st.sampled_from(_SPELLINGS)).format(letter) for letter in "gitpush"]
    blank = data.draw(st.sampled_from([" ", "\t", " \\\n", "  "]))
    line = "".join(letters[:3]) + blank + "".join(letters[3:])
    answers = given(line)
    assert "P" in answers.rejecting | answers.unsure


@example(st.text(st.sampled_from("git status;&|()<>$`'\"\\\n#!{}*=x "), max_size=24))
def test_a_line_is_allowed_only_if_each_of_its_words_comes_from_a_rule(text):
    found = given(text)
    if found.together:
        names = {command.words[0].text for command in read_line(text).commands if command.words}
        assert names <= {"git", "ls", "cat", "npm", "make", "true", ":", "set"}
