"""What commands print into a pipe or a file: whole lines, whole ids, times of the wire."""

import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from agent_server_client import Conversation, Output, PendingAction
from agent_server_client.cli import program
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.program import CommandSession
from agent_server_client.cli.shown import when

from tests.client.responses import responding
from tests.client.test_questions import waiting_action
from tests.conftest import action, message


def test_an_error_is_one_line_however_long_it_is(ctl):
    shown = ctl("logs", "0" * 200, code=4).stderr
    assert len(shown.splitlines()) == 1


def test_what_is_said_beside_the_output_has_whole_ids(ctl, started):
    one = started()
    assert one in ctl("send", one, "hello").stderr
    assert one in ctl("pause", one).stderr
    assert one in ctl("rm", one, "--yes").stderr


def test_a_message_that_rejects_what_waits_is_not_sent_where_nobody_can_be_asked(ctl, client, started):
    one = started()
    client.post(f"/api/v1/webhooks/events/{one}", json=[action("ls")])

    refused = ctl("send", one, "hello", code=2).stderr

    assert "This message rejects 1 action, and nobody can be asked here: give --yes" in refused
    assert len(client.get(f"/api/conversations/{one}/pending_actions").json) == 1
    ctl("send", one, "hello", "--yes")
    assert client.get(f"/api/conversations/{one}/pending_actions").json == []


def test_a_long_line_of_stderr_is_not_wrapped(capsys):
    session = CommandSession()
    session.err.print("word " * 100)
    session.tell({}, "word " * 100)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_terminal_whose_stderr_is_a_file_gets_the_commands_with_whole_ids(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    item = waiting_action()
    approver = Approver(CommandSession(), "rules")
    approver.decide(PendingAction(responding()[0], item))
    assert f"agentctl approve {item['action_id']} --digest {item['digest']}" in capsys.readouterr().err


def test_times_are_those_of_the_wire(ctl, client):
    client.post("/api/v1/keys", json={"name": "me", "scopes": ["admin"], "expires_at": "2999-01-02T03:04:05Z"})
    [cells] = [line.split("\t") for line in ctl("keys").stdout.splitlines()]
    assert datetime.fromisoformat(cells[4]).hour == 3

    assert when(CommandSession().out, "2026-11-28T00:00:00Z") == "2026-11-28T00:00:00Z"
    assert " ago" not in ctl("status").stdout


PROFILES = '[work]\nurl = "http://127.0.0.1"\n[play]\nurl = "http://127.0.0.1"\n'


def test_without_a_chosen_server_the_status_names_the_profiles(ctl, tmp_path):
    path = tmp_path / "agentctl/config.toml"
    path.parent.mkdir()
    path.write_text(PROFILES)

    said = ctl("status", url=None).stderr
    assert "No server is chosen, so this is http://127.0.0.1:8000" in said
    assert "Your profiles: work, play. Choose one by --profile NAME or AGENTCTL_PROFILE" in said
    assert "profiles" not in ctl("status").stderr
    assert "profiles" not in ctl("--profile", "work", "status", url=None).stderr
    assert "and `key`. Your profiles: work, play." in ctl("--profile", "wrk", "ls", url=None, code=2).stderr
    path.write_text(PROFILES.replace("play", "default"))
    assert "profiles" not in ctl("status", url=None).stderr


LISTINGS = {"approve": "inbox", "reject": "inbox", "keys revoke": "keys"}


@pytest.mark.parametrize(
    "words",
    [
        *("logs", "send", "pause", "resume", "rm", "open", "files", "upload", "download", "diff", "push", "sh", "chat"),
        *LISTINGS,
    ],
)
@pytest.mark.parametrize("empty", ["", " \t"])
def test_an_empty_id_is_refused_in_the_same_words_everywhere(ctl, words, empty):
    more = {"send": ("hello",), "upload": (__file__,)}.get(words, ())
    said = ctl(*words.split(), empty, *more, code=2).stderr
    assert f"The id is empty. `agentctl {LISTINGS.get(words, 'ls')}` shows the ids." in said


def test_an_empty_id_approves_nothing(ctl, client, started):
    one = started()
    client.post(f"/api/v1/webhooks/events/{one}", json=[message("hello"), action("ls")])
    ctl("approve", "", "--yes", code=2)
    assert [item["conversation_id"] for item in json.loads(ctl("inbox", "--json").stdout)] == [one]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_list_that_is_cut_says_so_and_how_to_get_the_rest(ctl, started, form):
    before = len(json.loads(ctl("ls", "--all", "--json").stdout))
    made = [started(title="Cut") for _ in range(3)]

    cut = ctl("ls", "--limit", "2", *form)
    assert f"2 of {before + 3} shown; --all shows the rest" in cut.stderr
    assert sum(one in cut.stdout for one in made) == 2
    assert (
        "2 shown, and there are more; --all shows the rest" in ctl("ls", "--limit", "2", "--text", "Cut", *form).stderr
    )
    whole = ctl("ls", "--limit", "2", "--all", *form)
    assert not whole.stderr
    assert all(one in whole.stdout for one in made)
    assert not ctl("ls", "--limit", str(before + 3), *form).stderr


def test_an_id_beyond_those_that_are_looked_up_is_not_said_to_be_missing(ctl, started, monkeypatch):
    monkeypatch.setattr(program, "_LOOKED_UP", 1)
    one, _ = started(), started()
    said = ctl("logs", one[:10], code=4).stderr
    assert "among the 1 conversations that changed last. Write the whole id" in said
    ctl("logs", one)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_list_of_files_that_may_be_cut_says_so(ctl, started, monkeypatch, form):
    monkeypatch.setattr("agent_server_client.cli.folders._MOST_NAMES", 1)
    monkeypatch.setattr("agent_server_client._sync_files.Files.list", lambda *_: ["a.txt"])
    assert "1 files shown, and there may be more: give a folder" in ctl("files", started(), *form).stderr


BEFORE_WORK = [
    (("run", "x", "--pull", "out"), "--pull", "write and approve"),
    (("run", "x", "--repo", "."), "--repo", "write and approve"),
    (("run", "x", "--approve", "all"), "--approve all", "write and approve"),
    (("run", "x", "--approve", "never"), "--approve never", "write and approve"),
    (("send", str(uuid4()), "x", "-f", "--approve", "never"), "--approve never", "write and approve"),
    (("logs", str(uuid4()), "-f", "--approve", "never"), "--approve never", "approve"),
]


@pytest.mark.parametrize(("words", "subject", "scopes"), BEFORE_WORK)
def test_a_scope_that_is_needed_at_the_end_is_asked_for_before_any_work(
    ctl, client, monkeypatch, words, subject, scopes
):
    monkeypatch.setattr("agent_server_client._sync.Client.user", lambda _: {"scopes": ["read", "write"]})
    monkeypatch.setattr("agent_server_client._sync.Client.post", lambda *_, **__: pytest.fail("it began to work"))

    said = ctl(*words, code=5).stderr

    assert f"{subject} needs a key with {scopes}, and yours has read and write" in said
    assert "An admin makes one by `agentctl keys new NAME --scope" in said


def test_a_run_that_is_not_followed_refuses_to_write_files_at_its_end(ctl):
    assert "Leave one of them out" in ctl("run", "x", "--pull", "out", "-d", code=2).stderr


def test_a_question_is_not_asked_of_one_who_may_not_answer_it(ctl, started, monkeypatch):
    one = started()
    monkeypatch.setattr("agent_server_client._sync.Client.user", lambda _: {"scopes": ["read", "write"]})
    monkeypatch.setattr("agent_server_client.cli.conversations.is_asked", lambda: True)
    assert "`rm` needs a key with admin" in ctl("rm", one, code=5).stderr


@pytest.mark.parametrize(
    ("option", "seconds"), [(("--for", "30m"), 1800), (("--for", "2h"), 7200), (("--days", "3"), 259_200)]
)
def test_a_key_ends_after_minutes_hours_or_days(ctl, option, seconds):
    made = json.loads(ctl("keys", "new", uuid4().hex, *option, "--json").stdout)
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert seconds - 60 < left.total_seconds() <= seconds


@pytest.mark.parametrize(
    "option",
    [
        *(("--for", words) for words in ("30", "0m", "m", "", "1.5h", "9999999d")),
        *(("--for", "1h", "--days", "1"), ("--days", "999999999")),
    ],
)
def test_a_time_that_is_none_is_refused_before_a_key_is_made(ctl, option):
    name = uuid4().hex
    ctl("keys", "new", name, *option, code=2)
    assert name not in ctl("keys").stdout


def test_a_second_key_of_a_name_is_made_with_a_word_about_the_first(ctl):
    name = uuid4().hex
    first = ctl("keys", "new", name, "--json")
    assert "Another key" not in first.stderr
    identity = json.loads(first.stdout)["id"]

    second = ctl("keys", "new", name)
    assert f"Another key has the name {name} and stays. To end it: agentctl keys revoke {identity}" in second.stderr
    assert second.stdout.startswith("key_")


def test_lines_of_a_script_get_no_prompt_and_end_with_the_code_of_the_last_one(ctl, started, monkeypatch):
    conversation, asked = started(), []

    def execute(_, line):
        asked.append(line.rpartition("\n")[2])
        yield Output("out\n", "", 3)

    monkeypatch.setattr(Conversation, "execute", execute)
    done = ctl("sh", conversation, code=3, input="make\nls\n")
    assert (done.stdout, done.stderr) == ("out\nout\n", "")
    assert asked[:2] == ["make", "ls"]
    nothing = ctl("sh", conversation, input="")
    assert (nothing.stdout, nothing.stderr) == ("", "")
