"""Which paths a rule approves and rejects.

Source: docs/approvals.md#paths.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.paths import MOST_STARS, fits_path, path_fault, rejects_path

ALLOWED = [
    ("src/**", "src/a.py"),
    ("src/**", "./src/a/b.py"),
    ("src/*", "src/.eslintrc"),
    ("src/.env", "src/.env"),
    ("src/*.py", "src/a.py"),
    ("src/**/*.py", "src/a.py"),
    ("src/**/*.py", "src/a/b/c.py"),
    ("**", "a/b"),
    ("/work/**", "/work/a"),
    ("a.txt", "a.txt"),
    (".git/config", ".git/config"),
    ("день/*", "день/a"),
]

ASKED = [
    ("src/**", "src/../x"),
    ("src/**", "src/a/../../x"),
    ("src/**", "/src/a"),
    ("src/**", "/work/src/a"),
    ("/work/**", "work/a"),
    ("/work/**", "/work/../etc/passwd"),
    ("/work/**", "/work//etc"),
    ("/work/**", "//work/a"),
    ("src/*", "src/a/b"),
    ("src/*.py", "src/a.py/b"),
    ("src/*.py", "src/a.pyc"),
    ("src/**", "SRC/a"),
    ("src/**", "srcs/a"),
    ("**", ".git/hooks/pre-commit"),
    ("**", "a/.git/config"),
    ("**", "a/.GIT/config"),
    ("*/config", ".git/config"),
    ("**", "~/x"),
    ("**", "a\\b"),
    ("**", "a\nb"),
    ("**", "a\0"),
    ("**", "a\u200bb"),
    ("**", ""),
    ("**", "a/" * 300),
    ("**", None),
    ("**", ["a"]),
]

REJECTED = [
    ("src/**", "src/a", True),
    ("src/**", "SRC/a", True),
    ("src/**", "./src//a", True),
    ("src/**", "x/../src/a", True),
    ("src/**", "/work/src/a", None),
    ("src/**", "../work/src/a", None),
    ("src/**", "docs/a", False),
    ("src/**", "/work/docs/a", False),
    ("/etc/**", "/etc/passwd", True),
    ("/etc/**", "/tmp/../etc/passwd", True),
    ("/etc/**", "../../etc/passwd", None),
    ("/etc/**", "etc/passwd", None),
    ("/etc/**", "/tmp/x", False),
    ("**/.git/**", ".git/config", True),
    (".env", "a\0", None),
]


def test_a_path_within_a_pattern_is_allowed():
    assert [pair for pair in ALLOWED if not fits_path(*pair)] == []


def test_a_path_that_may_lead_elsewhere_is_asked():
    assert [pair for pair in ASKED if fits_path(*pair)] == []


@pytest.mark.parametrize(("pattern", "path", "answer"), REJECTED)
def test_a_rule_that_rejects_sees_through_case_and_parts_that_lead_back(pattern, path, answer):
    assert rejects_path(pattern, path) is answer


@pytest.mark.parametrize("pattern", ["a//b", "a/../b", "./a", "/", "a/", "a\\b", "a\n", "*" * (MOST_STARS + 1)])
def test_a_pattern_that_leads_elsewhere_is_refused(pattern):
    assert path_fault(pattern)


_PATHS = st.text(st.sampled_from("ab/.*~G"), min_size=1, max_size=10)


@given(_PATHS, _PATHS)
def test_a_path_that_a_pattern_allows_is_one_that_it_rejects(pattern, path):
    if path_fault(pattern) is None and fits_path(pattern, path):
        assert rejects_path(pattern, path) is True


@given(_PATHS)
def test_no_path_beside_a_folder_is_allowed_by_a_pattern_about_it(path):
    if fits_path("a/**", path):
        assert path.removeprefix("./").startswith("a")
        assert ".." not in path.split("/")
