"""The shell of a conversation: what lasts between commands, how a program is typed into, and how it ends."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from core.masking import Mask
from reference_agent import shell
from reference_agent.shell import GOES_ON, KILLED, NOT_EXECUTED, ShellTerminal
from tests.servers import wait_until

pytestmark = pytest.mark.process("runs shells")


@pytest.fixture
def terminal(tmp_path):
    terminal = ShellTerminal(tmp_path)
    yield terminal
    terminal.end()


def do(terminal, command, secrets=None, mask=None, **members):
    """The exit code and the text of an action."""
    action = {"command": command, **members}
    told = terminal.start(action, secrets or {}) or terminal.finish(action, *([mask] if mask else []))
    return told["exit_code"], told["content"][0]["text"]


def typed(terminal, text, **members):
    return do(terminal, text, is_input=True, **members)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_folder_variables_functions_aliases_and_options_last(terminal, tmp_path):
    (tmp_path / "sub").mkdir()
    assert do(terminal, "cd sub; export A=one; b=two; f() { echo fun $1; }; alias g='echo ali'; set -o pipefail") == (
        0,
        "",
    )
    assert do(terminal, "pwd; echo $A $b; f x; g y; false | true; echo $?") == (
        0,
        f"{tmp_path}/sub\none two\nfun x\nali y\n1\n",
    )
    assert terminal.folder == tmp_path / "sub"


def test_it_is_bash(terminal):
    assert do(terminal, "[[ abc == a* ]] && echo {1..3}; declare -A m=([k]=v); source /dev/null") == (0, "1 2 3\n")
    assert do(terminal, "echo ${m[k]}") == (0, "v\n")


def test_a_long_command_of_many_lines_keeps_its_lines_quotes_and_exit_code(terminal):
    text = "cat <<'E'\n" + "x'\"$`\\!\n" * 20_000 + "E\n(exit 5)"
    code, printed = do(terminal, text)
    assert (code, printed.count("x'\"$`\\!\n") > 10_000) == (5, True)


def test_a_syntax_error_is_told_and_the_shell_goes_on(terminal):
    code, text = do(terminal, "echo 'open")
    assert (code != 0, "unexpected EOF" in text) == (True, True)
    assert do(terminal, "echo next") == (0, "next\n")


def test_output_has_no_colours_and_no_terminal_width(terminal, tmp_path):
    for name in "abc":
        (tmp_path / name).touch()
    assert do(terminal, "ls; test -t 1 || echo pipe") == (0, "a\nb\nc\npipe\n")


def test_a_program_is_typed_into(terminal):
    code, text = do(terminal, 'read -p "name? " x; echo hello $x', timeout=1)
    assert (code, text.startswith("name? "), "still running" in text) == (GOES_ON, True, True)
    assert typed(terminal, "you") == (0, "hello you\n")


def test_an_interpreter_keeps_its_state_between_what_is_typed(terminal):
    do(terminal, "python3 -i -q", timeout=1)
    typed(terminal, "x = 6 * 7", timeout=1)
    code, text = typed(terminal, "print(x)", timeout=1)
    assert (code, "42" in text) == (GOES_ON, True)
    assert typed(terminal, "C-d")[0] == 0


def test_keys_interrupt_end_and_stop_a_program(terminal):
    assert do(terminal, "sleep 60; echo after", timeout=1)[0] == GOES_ON
    code, text = typed(terminal, "C-c")
    assert (code, "after" in text) == (130, False)
    assert do(terminal, "cat", timeout=1)[0] == GOES_ON
    assert typed(terminal, "C-d")[0] == 0
    assert do(terminal, "sleep 60", timeout=1)[0] == GOES_ON
    assert typed(terminal, "C-z")[0] == 148
    assert "Stopped" in do(terminal, "jobs")[1]
    assert do(terminal, "kill -9 %1; wait; echo gone")[1].endswith("gone\n")


@pytest.mark.parametrize("loop", ["while :; do sleep 0.1; done", "while :; do :; done"])
def test_a_loop_of_the_shell_itself_is_interrupted_and_its_state_stays(terminal, loop):
    do(terminal, "kept=yes")
    assert do(terminal, loop, timeout=1)[0] == GOES_ON
    assert typed(terminal, "C-c")[0] == 130
    assert do(terminal, "echo $kept") == (0, "yes\n")


def test_a_silent_command_is_handed_back_and_its_end_is_waited_for(terminal, monkeypatch):
    monkeypatch.setattr(shell, "SILENT_SECONDS", 0.5)
    code, text = do(terminal, "echo first; sleep 1.2; echo last")
    assert (code, text.startswith("first\n(No new output for 0.5 s, ")) == (GOES_ON, True)
    assert "an empty command waits" in text
    codes = []
    while not codes or codes[-1] == GOES_ON:
        code, text = do(terminal, "")
        codes.append(code)
    assert (codes[-1], text) == (0, "last\n")


def test_what_prints_is_not_silent(terminal, monkeypatch):
    monkeypatch.setattr(shell, "SILENT_SECONDS", 0.5)
    assert do(terminal, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done") == (0, "1\n2\n3\n4\n5\n6\n")


def test_two_looks_at_a_silent_command_differ_so_that_waiting_is_no_loop(terminal, monkeypatch):
    monkeypatch.setattr(shell, "SILENT_SECONDS", 1)
    do(terminal, "sleep 60")
    assert do(terminal, "")[1] != do(terminal, "")[1]


def test_a_command_beside_one_that_runs_is_not_executed(terminal, tmp_path):
    do(terminal, "sleep 60", timeout=1)
    code, text = do(terminal, "touch never")
    assert (code, "not executed" in text, (tmp_path / "never").exists()) == (GOES_ON, True, False)
    assert do(terminal, "touch never")[1] == text


def test_what_ended_unseen_is_told_before_the_next_command(terminal):
    do(terminal, "sleep 1.3; echo late; (exit 4)", timeout=1)
    time.sleep(1)
    assert do(terminal, "echo next") == (
        0,
        "(The previous command has ended with exit code 4. Last output:\nlate\n)\nnext\n",
    )


def test_input_for_no_program_is_no_command(terminal, tmp_path):
    code, text = typed(terminal, "touch typed")
    assert (code, text, (tmp_path / "typed").exists()) == (NOT_EXECUTED, "No command is running.", False)
    assert do(terminal, "")[0] == NOT_EXECUTED


def test_input_that_a_program_has_not_read_is_no_command_and_no_input_of_the_next_one(terminal, tmp_path):
    do(terminal, "sleep 1.5", timeout=1)
    assert typed(terminal, "touch typed")[0] == 0
    assert do(terminal, "read -t 0.2 x; echo $?") == (0, "142\n")
    assert not (tmp_path / "typed").exists()


def test_input_that_a_terminal_cannot_hold_is_refused(terminal):
    do(terminal, "sleep 60", timeout=1)
    code, text = typed(terminal, "x" * 5000)
    assert (code, "at most 4000 bytes" in text) == (NOT_EXECUTED, True)


def test_a_background_process_runs_on_and_its_words_are_in_no_later_output(terminal, tmp_path):
    assert do(terminal, "(while :; do echo tick; echo x >>ticks; sleep 0.05; done) & echo $! >pid")[0] == 0
    time.sleep(0.3)
    assert do(terminal, "echo next") == (0, "next\n")
    assert is_alive(int((tmp_path / "pid").read_text()))


def test_a_server_in_the_background_is_probed(terminal):
    command = "python3 -u -m http.server 0 --bind 127.0.0.1 >log 2>&1 & sleep 1; grep -o 'port [0-9]*' log"
    port = do(terminal, command)[1].split()[-1]
    assert do(terminal, f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/")[1] == "200"
    assert do(terminal, "kill %1; wait; echo done")[1].endswith("done\n")


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("set -e; false; echo no", 1)])
def test_a_shell_that_ends_is_begun_again_with_its_folder_and_variables(terminal, tmp_path, command, code):
    (tmp_path / "sub").mkdir()
    do(terminal, "cd sub; export A=one; f() { echo fun; }")
    seen, text = do(terminal, f"echo before; {command}")
    assert (seen, text.startswith("before\n"), "no" in text.split("\n")[1:2]) == (code, True, False)
    assert f"starts a new shell in {tmp_path}/sub, with the same variables and functions" in text
    assert do(terminal, "pwd; echo $A; f; false; echo on") == (0, f"{tmp_path}/sub\none\nfun\non\n")


def test_a_shell_that_is_killed_is_begun_again_and_says_what_is_lost(terminal, tmp_path):
    do(terminal, "A=one")
    code, text = do(terminal, "kill -9 $$")
    assert (code, "starts a new shell" in text, "without its variables" in text) == (KILLED, True, True)
    assert do(terminal, "echo A=$A; pwd") == (0, f"A=\n{tmp_path}\n")


def test_a_shell_whose_files_are_removed_is_begun_again(terminal):
    do(terminal, ":")
    code, text = do(terminal, f"rm -r {terminal._shell._files}")
    assert (code, "The shell has ended" in text) == (KILLED, True)
    assert do(terminal, "echo on") == (0, "on\n")


def test_a_reset_ends_what_runs_and_forgets(terminal, tmp_path):
    do(terminal, "cd /; A=one; sleep 60", timeout=1)
    code, text = do(terminal, "", reset=True)
    assert (code, text) == (0, f"(The shell was reset. The next command starts a new shell in {tmp_path}.)")
    assert do(terminal, "echo A=$A; pwd") == (0, f"A=\n{tmp_path}\n")
    assert do(terminal, "echo B", reset=True)[1].endswith("\nB\n")


def test_after_a_restart_it_begins_in_the_last_folder_and_says_so(terminal, tmp_path):
    (tmp_path / "sub").mkdir()
    terminal.resume(str(tmp_path / "sub"))
    _, text = do(terminal, "pwd")
    assert text.startswith("(The agent server was started again, so this is a new shell, in ")
    assert text.endswith(f"are gone.)\n{tmp_path}/sub\n")
    assert do(terminal, "pwd") == (0, f"{tmp_path}/sub\n")


def test_a_folder_that_is_gone_is_replaced_by_the_working_folder(terminal, tmp_path):
    terminal.resume(str(tmp_path / "gone"))
    assert do(terminal, "pwd")[1].endswith(f"\n{tmp_path}\n")


@pytest.mark.parametrize("command", ["sleep 60; touch after", "while :; do sleep 0.1; done"])
def test_an_interrupt_ends_the_command_and_keeps_the_shell(terminal, tmp_path, command):
    do(terminal, "kept=yes")
    threading.Timer(0.5, terminal.kill).start()
    code, text = do(terminal, f"echo half; {command}")
    assert (code, text) == (KILLED, "half\nInterrupted.")
    assert do(terminal, "echo $kept") == (0, "yes\n")
    assert not (tmp_path / "after").exists()


def test_a_line_that_no_interrupt_ends_is_killed_with_its_shell(terminal, tmp_path):
    threading.Timer(0.5, terminal.kill).start()
    code, text = do(terminal, "trap '' INT; echo half; sleep 60; touch after")
    assert (code, text.startswith("half\nInterrupted. The shell has ended.")) == (KILLED, True)
    assert do(terminal, "echo on") == (0, "on\n")
    assert not (tmp_path / "after").exists()


def test_where_nobody_goes_on_a_command_is_killed_at_its_limit(tmp_path):
    terminal = ShellTerminal(tmp_path, hands_back=False)
    code, text = do(terminal, "echo half; sleep 60", timeout=1)
    assert (code, text) == (KILLED, "half\nKilled: it did not end within 1 s.")
    assert do(terminal, "echo next") == (0, "next\n")
    terminal.end()


def test_its_end_leaves_no_process_behind(tmp_path):
    terminal = ShellTerminal(tmp_path)
    lasts = "sh -c 'echo $$ >{}; exec sleep 61' &"
    do(terminal, f"{lasts.format('one')} setsid {lasts.format('two')} (setsid {lasts.format('three')})")
    wait_until(lambda: all((tmp_path / name).exists() for name in ("one", "two", "three")), "what runs on")
    do(terminal, "echo $$ >shell; sleep 64", timeout=1)
    pids = [int((tmp_path / name).read_text()) for name in ("one", "two", "three", "shell")]
    assert all(map(is_alive, pids))

    terminal.end()

    wait_until(lambda: not any(map(is_alive, pids)), "the end of its processes")
    assert do(terminal, "echo on")[0] == NOT_EXECUTED


def test_its_end_ends_a_command_that_is_waited_for(tmp_path):
    terminal, seen = ShellTerminal(tmp_path), []
    worker = threading.Thread(target=lambda: seen.append(do(terminal, "echo $$ >pid; sleep 60")))
    worker.start()
    wait_until((tmp_path / "pid").exists, "the command")

    terminal.end()
    worker.join(5)

    assert seen[0][0] == KILLED


def test_a_secret_is_known_from_the_command_after_it_was_given_and_hidden(terminal):
    assert do(terminal, "echo $ONE$TWO", {"ONE": "first"}) == (0, "first\n")
    given = {"ONE": "first", "TWO": 'it\'s\n"second" $x'}
    assert do(terminal, 'echo "$ONE$TWO"; env | grep -c TWO', given) == (0, 'firstit\'s\n"second" $x\n1\n')
    assert do(terminal, "echo $THREE", {"THREE": "abcdefgh12345"}, Mask(["abcdefgh12345"])) == (0, "<secret-hidden>\n")


def test_git_commits_by_a_neutral_name_unless_there_is_another(terminal):
    name, commit = "git log -1 --format='%an %ae'", "git commit -q --allow-empty -m"
    assert do(terminal, f"HOME=$PWD; git init -q .; {commit} a; {name}") == (0, "Agent agent@localhost\n")
    own = "git config user.name Ada; git config user.email ada@example.org"
    assert do(terminal, f"{own}; {commit} b; {name}") == (0, "Ada ada@example.org\n")


def test_no_git_command_waits_in_an_editor_or_a_pager(terminal):
    do(terminal, "HOME=$PWD; git init -q .; git commit -q --allow-empty -m a")
    assert do(terminal, "git commit -q --amend --allow-empty; git log --format=%s") == (0, "a\n")


def test_a_program_that_asks_at_its_terminal_is_seen_and_answered(terminal):
    ask = "import getpass; print('got', getpass.getpass('Password: '))"
    code, text = do(terminal, f'python3 -c "{ask}"', timeout=1)
    assert (code, text.startswith("Password: ")) == (GOES_ON, True)
    assert typed(terminal, "secret")[1].split()[-2:] == ["got", "secret"]


def test_a_long_output_is_bounded_and_whole_in_a_file(terminal, tmp_path):
    code, text = do(terminal, "seq 1000000; echo end")
    assert (code, len(text) < 110_000, text.endswith("end\n")) == (0, True, True)
    [whole] = (tmp_path / ".outputs").glob("*.txt")
    assert whole.read_text().splitlines()[999_999] == "1000000"


def test_without_bash_sh_runs_the_commands_and_says_so(terminal, tmp_path, monkeypatch):
    monkeypatch.setattr(shell.shutil, "which", lambda _: None)
    (tmp_path / "sub").mkdir()
    code, text = do(terminal, "cd sub; export A=one; (exit 3)")
    assert (code, text) == (3, "(bash is not installed, so /bin/sh runs the commands.)")
    assert do(terminal, "pwd; echo $A; sleep 0.1") == (0, f"{tmp_path}/sub\none\n")
    assert do(terminal, "read x; echo got $x", timeout=1)[0] == GOES_ON
    assert typed(terminal, "it") == (0, "got it\n")
    assert do(terminal, "sleep 60", timeout=1)[0] == GOES_ON
    assert typed(terminal, "C-c")[0] == 130


def test_a_command_that_no_shell_can_read_is_not_executed(terminal):
    assert do(terminal, "echo a\0b")[0] == NOT_EXECUTED
    assert do(terminal, "echo on") == (0, "on\n")


def test_a_conversation_begins_no_shell_before_its_first_command(tmp_path):
    before = {*Path("/tmp").glob("agent-shell-*")}
    terminal = ShellTerminal(tmp_path)
    terminal.end()
    assert {*Path("/tmp").glob("agent-shell-*")} == before


def test_the_shells_own_files_are_removed_with_it(tmp_path):
    terminal = ShellTerminal(tmp_path)
    do(terminal, ":")
    folder = terminal._shell._files
    assert folder.stat().st_mode & 0o777 == 0o700
    terminal.end()
    assert not folder.exists()


def test_commands_one_after_the_other_take_no_pause(terminal):
    do(terminal, ":")
    began = time.monotonic()
    for _ in range(20):
        do(terminal, "true")
    assert time.monotonic() - began < 2  # the pause of a background process is 0.2 s for each


def test_a_stopped_agent_process_leaves_no_shell(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from reference_agent.shell import ShellTerminal\n"
        "t = ShellTerminal(Path(sys.argv[1])); a = {'command': 'echo $$ >pid; sleep 60', 'timeout': 1}\n"
        "t.start(a, {}); t.finish(a); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": ".", "AGENT_TMPDIR": str(tmp_path)}
    with subprocess.Popen(["python3", "-c", code, str(tmp_path)], env=environment) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the shell")
        pid = int((tmp_path / "pid").read_text())
        process.kill()
    wait_until(lambda: not is_alive(pid), "the end of the shell")
