"""Files that usually hold secrets: no wildcard of a rule that approves stands for them."""

import pytest

from core.paths import fits_path, rejects_path
from core.shell import read_line
from core.shell.rules import allowed, command_pattern


@pytest.mark.parametrize(
    "line",
    [
        *("cat .env", "cat src/.env.production", "cat ~/.ssh/id_rsa", "cat /root/.aws/credentials", "cat .npmrc"),
        *(
            "cat /etc/shadow",
            "cat /proc/1/environ",
            "cat a.py key.pem",
            "cat .e*",
            "cat < .netrc",
            "bash -c 'cat .env'",
        ),
    ],
)
def test_no_words_of_a_pattern_stand_for_a_file_with_secrets(line):
    assert not allowed(command_pattern("cat *"), read_line(line)) or read_line(line).doubts


@pytest.mark.parametrize(
    "line", ["cat a.py", "cat .env.example", "cat src/*.py", "cat environment.py", "cat ../a", "cat $x"]
)
def test_other_files_are_covered(line):
    assert allowed(command_pattern("cat *"), read_line(line))


def test_a_pattern_that_names_the_file_allows_it():
    assert allowed(command_pattern("cat .env"), read_line("cat .env"))


def test_a_path_of_a_rule_stands_for_none_of_them_unless_it_rejects():
    assert not fits_path("src/**", "src/.env")
    assert not fits_path("src/**", "src/keys/a.pem")
    assert rejects_path("src/**", "src/.env") is True
