"""The file tool of the reference agent: what it does in the working folder, and that nothing leads out of it."""

import json
import os
import subprocess
import sys
import threading
from itertools import product

import pytest

from reference_agent.log import MODULES
from reference_agent.shell import ShellTerminal
from reference_agent.tools import MCP, MOST_ENTRIES, MOST_FILE, TOOLS, AgentTool, Files, for_model, read_call

#: tools whose actions the published SDK reads by itself
OF_THE_SDK = (MCP, "Finish", "Think", "InvokeSkill")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    (folder / "private").mkdir(parents=True)
    (tmp_path / "outside").write_text("hidden\n")
    return folder


@pytest.fixture
def files(folder):
    return Files(folder, folder / "private")


def do(files, command, path, **members):
    """Whether an action has worked, and what it says."""
    seen = files.observe({"command": command, "path": str(path), **members})
    return not seen["is_error"], seen["content"][0]["text"]


COMMANDS = ("view", "create", "str_replace", "insert", "undo_edit")
ALLOWED = {("create", "missing"), ("view", "")}
PATHS = [
    *[
        "../outside",
        "a/../../outside",
        "/etc/passwd",
        "link",
        "up/outside",
        "absolute",
        "private",
        "private/x",
        "chain/outside",
        "loop",
        "pipe",
        "missing",
    ],
    "",
    "\0",
    "x" * 300,
]


def test_each_tool_outside_of_the_sdk_has_a_module_for_clients():
    assert set(MODULES) == {name for name, tool in TOOLS.items() if tool.stem not in OF_THE_SDK}


def test_a_path_that_leads_out_or_to_no_file_is_refused(files, folder):
    (folder / "link").symlink_to("../outside")
    (folder / "up").symlink_to("..")
    (folder / "chain").symlink_to("up")
    (folder / "absolute").symlink_to(folder.parent / "outside")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    before = sorted(folder.parent.rglob("*"))

    for command, path in sorted(set(product(COMMANDS, PATHS)) - ALLOWED):
        done, text = do(files, command, path, file_text="x", old_str="hidden", new_str="seen", insert_line=0)

        assert (done, "hidden" in text) == (False, False), (command, path)
        assert (folder.parent / "outside").read_text() == "hidden\n", (command, path)
        assert sorted(folder.parent.rglob("*")) == before, (command, path)


def test_a_listing_names_two_levels_without_what_links_lead_to(files, folder):
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "file").touch()
    (folder / ".hidden").touch()
    (folder / "up").symlink_to("..")
    assert do(files, "view", ".")[1].splitlines()[1:] == ["a/", "a/b/", "a/file", "private/", "up"]


def test_a_long_listing_and_a_long_file_are_cut_off(files, folder):
    for number in range(MOST_ENTRIES + 1):
        (folder / f"{number}").touch()
    (folder / "long").write_text("line\n" * 20_000)
    assert "more than 500 entries" in do(files, "view", folder)[1]
    assert "cut off" in do(files, "view", "long")[1]
    assert do(files, "view", "long", view_range=[19_999, -1]) == (True, " 19999\tline\n 20000\tline")


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"\xff\xfe", "is not UTF-8 text"), (b"x" * (MOST_FILE + 1), "is larger than 1048576 bytes")],
)
def test_a_binary_or_too_large_file_is_refused(files, folder, content, told):
    (folder / "file").write_bytes(content)
    for command in ("view", "str_replace", "insert"):
        assert told in do(files, command, "file", old_str="x", new_str="y")[1]
    assert (folder / "file").read_bytes() == content


def test_an_edit_cannot_make_a_file_too_large(files, folder):
    (folder / "file").write_text("x" * (MOST_FILE - 1) + "y")
    assert do(files, "str_replace", "file", old_str="y", new_str="zz") == (
        False,
        "str_replace file: would be larger than 1048576 bytes",
    )
    assert (folder / "file").stat().st_size == MOST_FILE


def test_create_makes_folders_and_replaces_no_file(files, folder):
    assert do(files, "create", "new/file", file_text="one\n")[0]
    assert do(files, "create", "new/file", file_text="two\n") == (
        False,
        "create new/file: already exists; edit it with str_replace or insert",
    )
    assert (folder / "new/file").read_text() == "one\n"


def test_results_name_files_by_their_path_in_the_folder(files, folder):
    (folder / "notes").mkdir()
    (folder / "notes/a.txt").write_text("one\n")

    edited = files.observe({"command": "insert", "path": f"{folder}/notes/a.txt", "insert_line": 0, "new_str": "zero"})
    listed = files.observe({"command": "view", "path": "."})
    undone = files.observe({"command": "undo_edit", "path": "notes/a.txt"})

    heads = [one["content"][0]["text"].partition("\n")[0] for one in (edited, listed, undone)]
    assert heads == ["notes/a.txt now reads:", "., without hidden files:", "Your last edit of notes/a.txt is undone."]


def test_str_replace_needs_text_that_occurs_once(files, folder):
    (folder / "file").write_text("a b a")
    for old in ("", "a", "x"):
        assert not do(files, "str_replace", "file", old_str=old, new_str="c")[0]
    assert (folder / "file").read_text() == "a b a"


INSERTED = [
    ("a\nb\n", 0, "new\na\nb\n"),
    ("a\nb\n", 1, "a\nnew\nb\n"),
    ("a\nb\n", 2, "a\nb\nnew\n"),
    ("a\nb", 2, "a\nb\nnew"),
    ("", 0, "new\n"),
    ("a\r\nb\r\n", 1, "a\r\nnew\nb\r\n"),
    ("a\u2028b\n", 1, "a\u2028b\nnew\n"),
]


def test_insert_puts_lines_after_a_line(files, folder):
    for (before, line, after), inserted in product(INSERTED, ("new", "new\n")):
        (folder / "file").write_bytes(before.encode())
        assert do(files, "insert", "file", insert_line=line, new_str=inserted)[0]
        assert (folder / "file").read_bytes().decode() == after
        assert not do(files, "insert", "file", insert_line=9, new_str=inserted)[0]


def test_the_last_edit_of_a_file_is_undone_once_and_not_over_a_later_change(files, folder):
    (folder / "file").write_text("a")
    do(files, "str_replace", "file", old_str="a", new_str="b")
    do(files, "create", "other", file_text="new")
    do(files, "str_replace", "file", old_str="b", new_str="c")

    assert do(files, "undo_edit", "file") == (True, "Your last edit of file is undone.")
    assert (folder / "file").read_text() == "b"
    (folder / "file").write_text("of a command")
    assert do(files, "undo_edit", "file") == (
        False,
        "undo_edit file: has changed since your last edit, so the edit was not undone",
    )
    (folder / "file").write_text("b")
    assert do(files, "undo_edit", "file")[0]
    assert (folder / "file").read_text() == "a"
    assert do(files, "undo_edit", "file") == (False, "undo_edit file: has no edit that can be undone")
    assert do(files, "undo_edit", "other")[0]
    assert not (folder / "other").exists()


def test_what_can_be_undone_is_bounded(files, folder, monkeypatch):
    monkeypatch.setattr("reference_agent.tools.MOST_UNDONE", 5)
    for name in ("one", "two"):
        (folder / name).write_text("1234")
        do(files, "str_replace", name, old_str="1", new_str="0")
    assert [do(files, "undo_edit", name)[0] for name in ("one", "two")] == [False, True]


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("file_editor", {"command": "view", "path": "x", "view_range": "[1, 2]"}, {"view_range": [1, 2]}),
        ("file_editor", {"command": "insert", "path": "x", "insert_line": "3", "new_str": "[1]"}, {"insert_line": 3}),
        ("task_tracker", {"command": "plan", "task_list": '[{"title": "a"}]'}, {"task_list": [{"title": "a"}]}),
    ],
)
def test_an_argument_that_is_a_string_of_json_is_parsed(name, arguments, action):
    made, _ = read_call(name, json.dumps(arguments))
    assert {key: made[key] for key in action} == action


def test_a_tool_that_only_reads_or_keeps_a_list_has_a_low_risk_and_asks_the_model_for_none():
    for name, arguments in (("grep", {"pattern": "x"}), ("task_tracker", {"command": "view"})):
        made, rating = read_call(name, json.dumps({**arguments, "security_risk": "HIGH", "summary": "x"}))
        assert (rating, made.get("data", {}).get("summary")) == ({"security_risk": "LOW"}, None)
    asked = {one["function"]["name"]: one["function"]["parameters"]["required"] for one in for_model()}
    assert (asked["grep"], asked["fetch"]) == (["pattern"], ["url", "security_risk", "summary"])


def test_a_tool_of_an_mcp_server_keeps_its_arguments_with_the_names_of_our_rating():
    schema = {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}
    tools = {"note": AgentTool("MCPTool", "Notes", schema["properties"], ("summary",), schema=schema)}
    [asked] = for_model(tools)
    assert asked["function"]["parameters"]["required"] == ["summary", "security_risk"]
    made, rating = read_call("note", '{"summary": "a", "more": [1], "security_risk": "LOW"}', tools)
    assert made == {"data": {"summary": "a", "more": [1]}, "kind": "MCPToolAction"}
    assert rating == {"security_risk": "LOW"}


def test_an_edit_needs_its_arguments(files, folder):
    (folder / "file").write_text("a")
    assert do(files, "create", "other") == (False, "create other: create needs file_text")
    assert do(files, "str_replace", "file", new_str="b") == (False, "str_replace file: str_replace needs old_str")
    assert do(files, "insert", "file", insert_line=0) == (False, "insert file: insert needs new_str")
    assert do(files, "view", "file", view_range=[1]) == (False, "view file: view_range should have two numbers")


def test_an_edit_keeps_the_mode_of_a_file_and_leaves_no_draft(files, folder):
    (folder / "script").write_text("echo one\n")
    (folder / "script").chmod(0o755)
    assert do(files, "str_replace", "script", old_str="one", new_str="two")[0]
    assert (folder / "script").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in folder.iterdir()) == ["private", "script"]


@pytest.mark.process("starts a program")
def test_a_write_that_the_disk_refuses_leaves_the_file_as_it_was(files, folder):
    script = (
        "import resource, signal, sys; from pathlib import Path; from reference_agent.tools import Files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "seen = Files(Path(sys.argv[1]), Path('/nowhere')).observe(\n"
        "    {'command': 'str_replace', 'path': 'file', 'old_str': 'a', 'new_str': 'b' * 1000})\n"
        "print(seen['is_error'], seen['content'][0]['text'])"
    )
    (folder / "file").write_text("a")
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    ).stdout
    assert done.strip() == "True str_replace file: File too large"
    assert (folder / "file").read_text() == "a"
    assert sorted(path.name for path in folder.iterdir()) == ["file", "private"]


@pytest.mark.faults("a race of threads")
def test_an_edit_is_seen_whole_or_not_at_all(files, folder):
    (folder / "file").write_text("0" * 50_000)
    seen, goes_on = set(), threading.Event()

    def look():
        while not goes_on.is_set():
            seen.add((folder / "file").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for old, new in ("01", "12", "23"):
        assert do(files, "str_replace", "file", old_str=old * 50_000, new_str=new * 50_000)[0]
    goes_on.set()
    reader.join()
    assert seen <= {digit * 50_000 for digit in "0123"}


@pytest.mark.process("starts a command")
def test_a_secret_that_is_invalid_in_an_environment_does_not_stop_commands(folder):
    terminal, secrets = ShellTerminal(folder), {"GOOD": "kept", "NUL": "a\0b", "a=b": "x", "": "x", "\0": "x"}

    assert terminal.start({"command": "echo $GOOD$NUL"}, secrets) is None

    seen = terminal.finish({"command": "echo $GOOD$NUL"})
    terminal.end()
    assert (seen["content"][0]["text"].strip(), seen["exit_code"]) == ("kept", 0)
