"""Each sentence that docs/troubleshooting.md quotes is one that the code prints."""

import ast
import re
from pathlib import Path

import pytest

from tests.servers import PROJECT

PAGE = (PROJECT / "docs" / "troubleshooting.md").read_text()

#: the first cell of each row, and in it what is quoted
CELLS = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| ") and "what you see" not in line]
QUOTED = [quoted for cell in CELLS for quoted in re.findall(r"`([^`]+)`", cell)]

#: fewest characters of a quote between two `…`: a shorter one is found anywhere
SHORTEST = 12


@pytest.fixture(scope="module")
def printed() -> str:
    """Every text of the code, one a line, with `…` for what differs."""
    return "\n".join(text for path in _code() for text in _texts(path))


def _code() -> list[Path]:
    packages = [
        path.parent for path in PROJECT.glob("*/__init__.py") if path.parent.name not in ("tests", "docs", "bench")
    ]
    folders = [*packages, PROJECT / "client" / "src", PROJECT / "console"]
    within = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".js")]
    return [*within, *PROJECT.glob("*.py"), PROJECT / "Makefile"]


def _texts(path: Path) -> list[str]:
    source = path.read_text()
    if path.suffix != ".py":
        return source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values]
            found.append("".join(parts))
    return [" ".join(text.split()) for text in found]


def pattern(quoted: str) -> str:
    return ".*".join(re.escape(part.strip()) for part in quoted.split("…"))


@pytest.mark.parametrize("quoted", QUOTED)
def test_the_code_prints_each_sentence_of_the_page(quoted, printed):
    assert max(len(part) for part in quoted.split("…")) >= SHORTEST

    assert re.search(pattern(quoted), printed), quoted


def test_a_sentence_that_the_code_does_not_print_is_noticed(printed):
    assert not re.search(pattern("cannot listen on … (HOST, PORT): …. Choose another DOOR"), printed)


def test_the_page_has_the_sentences_of_a_first_day():
    assert len(CELLS) >= 30
