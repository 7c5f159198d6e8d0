"""The table of exit codes in docs/client.md, walked through: each code by the commands that end with it."""

import re
from uuid import uuid4

import httpx
import pytest
from agent_server_client.cli import agentctl
from agent_server_client.cli.program import CommandSession
from click.testing import CliRunner

from tests.client.responses import responding
from tests.client.test_questions import waiting_action
from tests.servers import PROJECT

ID = str(uuid4())
EMPTY = {"items": [], "next_page_id": None}
ONE = {"items": [waiting_action()], "next_page_id": None}


def refusal(status, **members):
    return httpx.Response(status, json={"detail": "Refused for a reason", **members})


def state(status):
    return {"id": ID, "execution_status": status, "title": "A deploy"}


PROBLEMS = [{"action_id": "9c0d1e2f-act", "problem": "not_pending"}]

#: code, what is typed, what the server responds with, and what the person is told
WALK = [
    (0, ("ls",), [EMPTY], "No conversations. Start one"),
    (0, ("inbox",), [EMPTY, EMPTY], "Nothing waits for a decision"),
    (0, ("pause", ID), [state("finished")], "Nothing stops, because the agent is finished"),
    (0, ("pause", ID), [state("running"), {}], "Asked to stop"),
    (0, ("resume", ID), [state("paused"), 3, {}], "Goes on"),
    (0, ("files", ID), [[]], "No files."),
    (1, ("resume", ID), [state("finished")], "Nothing goes on, because the agent has finished"),
    (1, ("resume", ID), [state("waiting_for_confirmation"), refusal(409)], "Refused for a reason"),
    (1, ("send", ID, "hi"), [refusal(422)], "Refused for a reason"),
    (2, ("ls", "--no-such-option"), [], "No such option"),
    (2, ("--json", "ls"), [], "--json comes after the command: agentctl ls --json"),
    (2, ("ls", "--profile", "x"), [], "--profile comes before the command: agentctl --profile NAME ls"),
    (2, ("send", ID, " "), [], "TEXT is empty"),
    (2, ("run", "x", "--approve", "ask"), [], "needs a terminal"),
    (2, ("logs", "-f", ID, "--approve", "ask"), [], "needs a terminal"),
    (2, ("approve", "9c0d"), [ONE], "give --digest, or --yes"),
    (2, ("rm", ID), [], "give --yes"),
    (2, ("download", ID, "", "-"), [], "prints one file"),
    (2, ("--profile", "nowhere", "ls"), None, "no profile nowhere"),
    (3, ("status",), [httpx.ConnectError("refused")], "does not answer"),
    (3, ("ls",), [httpx.ConnectError("refused")], "does not answer"),
    (3, ("pause", ID), [state("running"), httpx.ReadTimeout("timed out")], "not known whether this took effect"),
    (4, ("logs", "0000"), [EMPTY], "No conversation begins with 0000"),
    (4, ("logs", ID), [refusal(404)], "Refused for a reason"),
    (4, ("files", ID, "zzz"), [[]], "The sandbox has no file below zzz"),
    (4, ("download", ID, "zzz"), [[None], state("idle")], "The conversation has no sandbox"),
    (5, ("ls",), [refusal(401)], "Refused for a reason"),
    (5, ("approve", "9c0d", "--yes"), [ONE, refusal(403)], "Refused for a reason"),
    (6, ("approve", "9c0d", "--yes"), [EMPTY], "Nothing waits under 9c0d: it is decided already"),
    (6, ("reject", "9c0d"), [EMPTY], "Nothing waits under 9c0d: it is decided already"),
    (
        6,
        ("approve", "pypi.org:443", "--yes"),
        [EMPTY, EMPTY],
        "No sandbox asks for pypi.org:443: it is decided already",
    ),
    (6, ("approve", "9c0d", "--yes"), [ONE, refusal(409, problems=PROBLEMS), [None]], "Somebody was faster"),
    (6, ("approve", "9c0d", "--digest", "0" * 64), [ONE], "not the one that was shown"),
]


@pytest.mark.parametrize(("code", "words", "responses", "told"), WALK, ids=lambda value: "" if value is None else None)
def test_a_command_ends_with_the_code_of_the_table_and_says_why(code, words, responses, told, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("AGENT_SERVER_URL", raising=False)
    if responses is not None:
        given = [
            one if isinstance(one, (httpx.Response, Exception)) else httpx.Response(200, json=one) for one in responses
        ]
        client, _ = responding(*given, retry_seconds=0.0)
        monkeypatch.setattr(CommandSession, "client", lambda *_, **__: client)

    result = CliRunner().invoke(agentctl, words, prog_name="agentctl")

    assert result.exit_code == code, (result.output, result.exception)
    assert told in " ".join(result.stderr.split())


def table():
    [rows] = re.findall(
        r"^\| exit code \|.*\n\|.*\n((?:\|.*\n)+)", (PROJECT / "docs/client.md").read_text(), re.MULTILINE
    )
    return dict(re.findall(r"^\| (\d+) \| (.+) \|$", rows, re.MULTILINE))


def test_the_table_of_the_page_is_that_of_the_help():
    shown = re.sub(r"\s+", " ", CliRunner().invoke(agentctl, ["--help"], prog_name="agentctl").stdout)
    for code, meaning in table().items():
        assert f"{code} {meaning}" in shown


def test_each_code_of_the_table_is_walked_through_here_or_at_a_terminal():
    at_a_terminal = {"7", "130", "141"}  # test_terminal.py, test_output.py
    assert set(table()) == {str(code) for code, *_ in WALK} | at_a_terminal


@pytest.mark.parametrize("group", [[], ["keys"]])
def test_the_summaries_in_the_help_are_whole_sentences_at_80_columns(group, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(agentctl, [*group, "--help"], prog_name="agentctl", terminal_width=80).stdout
    assert "Commands:" in shown
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize("key", ["secret-key ", "secret\rkey", "secret\nkey", "secret-k\u00e9y"])
def test_a_key_that_no_header_can_carry_ends_with_5_and_is_not_shown(key):
    environment = {"AGENT_SERVER_URL": "http://127.0.0.1:9", "AGENT_SERVER_KEY": key}

    result = CliRunner().invoke(agentctl, ["status"], env=environment, prog_name="agentctl")

    assert result.exit_code == 5
    assert "The key has a blank, a line end or a character beyond ASCII" in result.output
    assert "secret" not in result.output
