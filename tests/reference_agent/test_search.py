"""`grep` and `glob` of the bundled agent: what they find, what they leave out, and that both are bounded."""

import os
import shutil
import subprocess
import threading
import time

import pytest

from reference_agent import search
from reference_agent.search import MOST_FOUND, MOST_LINES, Search, matcher
from reference_agent.tools import Files, ToolRefused


@pytest.fixture
def folder(tmp_path):
    for name, text in {
        "app/main.py": "import os\nTODO = 1\n",
        "app/view.ts": "// TODO: a view\n",
        "app/view.tsx": "nothing\n",
        "README.md": "no more to do\n",
        "built/out.py": "TODO\n",
        ".agent-server/conversations/x/events.jsonl": "TODO\n",
        ".github/ci.yml": "# TODO\n",
        "odd/a:1:b\n.py": "TODO\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "binary").write_bytes(b"\0TODO")
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    return tmp_path


@pytest.fixture(params=["rg", "git"])
def way(request, monkeypatch):
    """With ripgrep, and without."""
    if request.param == "git":
        monkeypatch.setattr(search.shutil, "which", lambda _name: None)
    elif not shutil.which("rg"):
        pytest.skip("ripgrep is not installed")


def made(folder):
    return Search(Files(folder, folder / ".agent-server" / "conversations"))


pytestmark = pytest.mark.process("runs a search")


def test_grep_prints_each_line_with_its_file_and_skips_ignored_files(folder, way):
    subprocess.run("git init -q . && echo built > .gitignore", shell=True, cwd=folder, check=True)

    [head, *lines] = made(folder).grep("TODO").split("\n")
    assert head == "4 lines in 4 files below .:"
    assert sorted(lines) == sorted(
        [
            ".github/ci.yml:1:# TODO",
            "app/main.py:2:TODO = 1",
            "app/view.ts:1:// TODO: a view",
            "odd/a:1:b",
            ".py:1:TODO",
        ]
    )


def test_grep_takes_a_pattern_of_names_a_folder_and_a_file(folder, way):
    one = made(folder)
    assert one.grep("TODO", include="*.{ts,tsx}").split("\n")[1:] == ["app/view.ts:1:// TODO: a view"]
    assert one.grep("^import", "app").split("\n") == ["1 lines in 1 files below app:", "main.py:1:import os"]
    assert one.grep("TODO", "app/main.py").split("\n")[1:] == ["main.py:2:TODO = 1"]


def test_a_search_limits_its_output_and_says_that_there_is_more(folder, way):
    (folder / "many").write_text("TODO\n" * (MOST_LINES + 1))
    told = made(folder).grep("TODO", "many")
    assert told.count("\n") == MOST_LINES + 1
    assert told.endswith("narrow the pattern, the path or `include`")
    (folder / "long").write_text("TODO" + "x" * 100_000)
    assert len(made(folder).grep("TODO", "long")) < 1000


def test_an_invalid_expression_or_a_path_outside_is_refused(folder, way):
    for wrong in (lambda one: one.grep("("), lambda one: one.grep("x", "../"), lambda one: one.glob("*", "/etc")):
        with pytest.raises(ToolRefused):
            wrong(made(folder))


def test_a_slow_expression_is_stopped_by_its_timeout_and_by_a_person(folder, monkeypatch):
    monkeypatch.setattr(search.shutil, "which", lambda _name: None)
    (folder / "app" / "main.py").write_text(("a" * 20 + "!\n") * 20_000)
    monkeypatch.setattr(search, "_SECONDS", 0.5)
    with pytest.raises(ToolRefused, match="was interrupted"):
        made(folder).grep("(a+)+$", "app/main.py")

    monkeypatch.setattr(search, "_SECONDS", 60)
    one, begin = made(folder), time.monotonic()
    threading.Timer(0.3, one.stop).start()
    with pytest.raises(ToolRefused, match="was interrupted"):
        one.grep("(a+)+$", "app/main.py")
    assert time.monotonic() - begin < 20


def test_glob_finds_names_at_any_depth_newest_first(folder):
    for age, name in enumerate(("app/main.py", "built/out.py")):
        os.utime(folder / name, (1_000_000 - age, 1_000_000 - age))
    os.utime(folder / "odd/a:1:b\n.py", (900_000, 900_000))
    os.utime(folder / "link.py", (800_000, 800_000), follow_symlinks=False)
    one = made(folder)
    assert one.glob("*.py").split("\n")[1:] == ["app/main.py", "built/out.py", "odd/a:1:b", ".py", "link.py"]
    assert one.glob("app/**/*.py").split("\n")[1:] == ["app/main.py"]
    assert one.glob(f"{folder}/app/*.tsx").split("\n")[1:] == ["app/view.tsx"]
    assert one.glob("*.jsonl") == "0 files below .:"
    for number in range(MOST_FOUND + 1):
        (folder / f"{number}.many").touch()
    assert one.glob("*.many").endswith("… and 1 more")


@pytest.mark.parametrize(
    ("pattern", "those", "not_those"),
    [
        ("", ["a", "b/c"], []),
        ("*.py", ["a.py", "b/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py"]),
        ("**/test_?.py", ["test_1.py", "a/b/test_2.py"], ["test_10.py"]),
        ("*.{ts,tsx}", ["a.ts", "b/a.tsx"], ["a.t", "a.ts,tsx"]),
        ("[!a-c]?[0-9]", ["dx1"], ["ax1", "dxx"]),
        ("{app,lib}/{a,b}.{py,js}", ["app/a.py", "lib/b.js"], ["app/c.py"]),
        ("src/**", ["src/a", "src/a/b"], ["lib/a"]),
        ("**/" * 40 + "*a" * 40 + "b", ["x/" + "a" * 40 + "b"], ["x/" * 200 + "a" * 200]),
        ("a}b,c", ["a}b,c"], ["ac"]),
        ("a[b", ["a[b"], ["ab"]),
        ("a+(b)", ["a+(b)"], ["aab"]),
    ],
)
def test_a_pattern_of_names_matches_as_in_a_shell(pattern, those, not_those):
    matches = matcher(pattern)
    assert [one for one in [*those, *not_those] if matches(one)] == those


def test_braces_that_expand_to_too_many_patterns_are_refused():
    with pytest.raises(ToolRefused):
        matcher("{a,b}" * 60)
