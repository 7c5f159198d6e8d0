"""`agentctl rules`: approval rules are listed, added, revoked, and kept in a file."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from agent_server_client.cli import rules
from agent_server_client.cli.rule_files import arguments_of, content, difference, in_words

from tests.conftest import action, message

FILE = str(Path(__file__).with_name("rules.toml"))
STATUS = ("--decision", "approve", "--tool", "terminal", "--command", "git status *")


@pytest.fixture(autouse=True)
def _no_rules(client):
    """The rules of other tests are revoked."""
    for rule in listed(client):
        client.delete(f"/api/v1/approval-rules/{rule['id']}")


def listed(client) -> list[dict]:
    return client.get("/api/v1/approval-rules").json


def test_a_rule_is_added_with_each_option_listed_and_revoked_by_the_beginning_of_its_id(ctl, client, started):
    one = started()
    options = ("--risk", "low", "--conversation", one[:13], "--for", "7d", "--uses", "3", "--reason", "Read only.")

    said = ctl("rules", "add", *STATUS, *options).stderr

    [rule] = listed(client)
    assert f"Added rule {rule['id']}: approves terminal: git status *, risk at most LOW, in {one[:8]}" in said
    assert (rule["decision"], rule["tool_name"], rule["max_risk"]) == ("approve", "terminal", "LOW")
    assert rule["arguments"] == {"command": {"command": "git status *"}}
    assert (rule["conversation_ids"], rule["max_uses"], rule["reason"]) == ([one], 3, "Read only.")
    assert rule["expires_at"] is not None
    [row] = [line.split("\t") for line in ctl("rules").stdout.splitlines()]
    assert row[:4] == [rule["id"], "approve", f"terminal: git status *, risk at most LOW, in {one[:8]}", "0 of 3"]
    assert ctl("rules", "ls").stdout == ctl("rules").stdout

    assert f"Revoked: {rule['id']}" in ctl("rules", "rm", rule["id"][:8]).stderr
    assert listed(client) == []
    assert "agentctl rules add --decision approve" in ctl("rules").stderr


def test_a_rule_of_a_path_decides_what_the_file_tool_writes_there(ctl, client, started):
    one = started()
    ctl("rules", "add", "--decision", "approve", "--tool", "file_editor", "--path", "src/**")
    write = {"command": "create", "path": "src/a.py", "file_text": "x"}
    inside, outside = (
        action("", tool_name="file_editor", action={"kind": "FileEditorAction", **write, **more})
        for more in ({}, {"path": "other/a.py"})
    )

    client.post(f"/api/v1/webhooks/events/{one}", json=[message("hello"), inside, outside])

    waiting = client.get("/api/v1/pending-actions").json["items"]
    assert [item["action_id"] for item in waiting] == [outside["id"]]


def test_a_pattern_that_the_server_refuses_is_told_and_makes_nothing(ctl, client):
    assert "command" in ctl("rules", "add", *STATUS[:-1], "git status; rm", code=1).stderr
    assert listed(client) == []


def test_a_file_is_compared_by_content_and_applied_once(ctl, client):
    assert [line[0] for line in ctl("rules", "diff", FILE, code=1).stderr.splitlines()] == ["+", "+", "+", "0"]

    said = ctl("rules", "apply", FILE, "--yes").stderr

    made = listed(client)
    assert len(made) == 3
    assert all(one["id"] in said for one in made)
    assert {one["reason"] for one in made} == {"It changes nothing.", ""}
    assert ctl("rules", "diff", FILE).stderr.strip() == "3 rules as in the file"
    assert json.loads(ctl("rules", "apply", FILE, "--json").stdout) == {"made": [], "revoked": [], "same": 3}


def test_what_the_file_does_not_have_goes_with_prune_alone(ctl, client):
    ctl("rules", "apply", FILE, "--yes")
    other = json.loads(ctl("rules", "add", *STATUS[:-1], "ls *", "--json").stdout)["id"]

    assert "1 rule of the server stay" in ctl("rules", "apply", FILE, "--yes").stderr
    assert other in {one["id"] for one in listed(client)}
    assert f"- approves terminal: ls *  {other}" in ctl("rules", "diff", FILE, code=1).stderr

    ctl("rules", "apply", FILE, "--prune", code=2)
    assert json.loads(ctl("rules", "apply", FILE, "--prune", "-y", "--json").stdout)["revoked"] == [other]
    assert len(listed(client)) == 3


def test_a_rehearsal_says_what_a_rule_would_have_answered_and_ends_with_1_where_a_person_rejected_some(
    ctl, client, started
):
    tool = f"tool-{uuid4().hex}"
    one = started()
    status, again, push = (action(line, tool_name=tool) for line in ("git status -s", "git status", "git push -f"))
    client.post(f"/api/v1/webhooks/events/{one}", json=[message("hello"), status, again, push])
    ctl("approve", status["id"], again["id"], "--yes")
    ctl("reject", push["id"])
    options = ("rules", "rehearse", "--decision", "approve", "--tool", tool)

    fits = ctl(*options, "--command", "git status *").stdout
    told = ctl(*options, "--command", "git *", code=1).stdout

    assert f"This rule approves {tool}: git status *" in fits
    assert "It would have answered 2 of " in fits
    assert "People decided 1 of them otherwise:" in told
    assert told.splitlines()[-1].endswith("\tgit push -f")
    assert listed(client) == []
    assert json.loads(ctl(*options, "--command", "git status *", "--json").stdout)["rejected"] == 0


def test_the_rules_of_a_file_that_the_server_lacks_are_rehearsed_as_a_check(ctl, client, started, tmp_path):
    tool = f"tool-{uuid4().hex}"
    one = started()
    status, push = (action(line, tool_name=tool) for line in ("git status -s", "git push -f"))
    client.post(f"/api/v1/webhooks/events/{one}", json=[message("hello"), status, push])
    ctl("approve", status["id"], "--yes")
    ctl("reject", push["id"])
    file, rule = tmp_path / "rules.toml", f'[[rules]]\ndecision = "approve"\ntool_name = "{tool}"\ncommand = '
    file.write_text(f'{rule}"git status *"\n{rule}"git *"\n')

    told = ctl("rules", "rehearse", str(file), code=1).stdout
    as_json = [json.loads(line) for line in ctl("rules", "rehearse", str(file), "--json", code=1).stdout.splitlines()]

    assert told.count("This rule approves") == 2
    assert [(one["answered"], one["rejected"]) for one in as_json] == [(1, 0), (2, 1)]
    assert [one["rule"]["arguments"]["command"]["command"] for one in as_json] == ["git status *", "git *"]
    file.write_text(f'{rule}"git status *"\n')
    assert "It would have answered 1 of " in ctl("rules", "rehearse", str(file)).stdout
    ctl("rules", "apply", str(file), "--yes")
    nothing = ctl("rules", "rehearse", str(file))
    assert (nothing.stdout, "nothing to rehearse" in nothing.stderr) == ("", True)


def test_a_rehearsal_of_nothing_or_of_both_a_file_and_options_ends_with_2(ctl):
    assert "Give a file of rules, or --decision and --tool" in ctl("rules", "rehearse", code=2).stderr
    assert "not both" in ctl("rules", "rehearse", FILE, "--tool", "terminal", code=2).stderr


@pytest.mark.process("starts the process of a rehearsal")
def test_what_more_than_one_page_holds_is_rehearsed_in_the_background(ctl, client, started, monkeypatch):
    monkeypatch.setattr(rules, "_PAGE", 1)
    monkeypatch.setattr(rules, "_POLL", 0.05)
    tool = f"tool-{uuid4().hex}"
    one = started()
    actions = [action(f"git status {number}", tool_name=tool) for number in range(3)]
    client.post(f"/api/v1/webhooks/events/{one}", json=[message("hello"), *actions])
    ctl("approve", *(one["id"] for one in actions), "--yes")
    found = json.loads(ctl("rules", "rehearse", *STATUS[:2], "--tool", tool, "--json").stdout)
    assert (found["answered"], found["rejected"]) == (3, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules = 1", "must have a table [[rules]]"),
        ("[[rules]]\ndecision = 'approve'", "needs the member tool_name"),
        ("[[rules]]\ndecision = 'approve'\ntool_name = 'x'\ntoool = 1", "unknown member toool"),
        ("[[rules]]\ndecision = 'approve'\ntool_name = 'x'\ncommand = 1", "command and path must be strings"),
        ("[[", "is not TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_list_of_rules_ends_with_2_and_its_reason(ctl, tmp_path, text, words):
    file = tmp_path / "wrong.toml"
    if text is not None:
        file.write_text(text)
    assert words in ctl("rules", "diff", str(file), code=2).stderr


def test_content_is_what_a_rule_decides_whatever_the_form_of_its_members():
    rule = {"decision": "approve", "tool_name": "terminal", "expires_at": "2030-01-01T00:00:00Z", "reason": "a"}
    same = rule | {"expires_at": "2030-01-01T01:00:00+01:00", "reason": "b", "max_uses": None, "id": "1", "uses": 7}
    assert content(rule) == content(same)
    assert content(rule) != content(rule | {"arguments": {}})
    assert difference([rule | {"expires_at": "2020-01-01T00:00:00Z"}], []).missing == []
    assert len(difference([rule], [same, same]).extra) == 1


def test_a_rule_is_one_line_of_words_and_shows_no_character_that_hides_itself():
    of = {"tool_name": "terminal"}
    assert in_words(of) == "terminal: whatever its arguments"
    assert in_words(of | {"arguments": {}}) == "terminal: without arguments"
    assert in_words(of | {"arguments": {"n": {"equals": 1}, "t": {"any": True}}}) == "terminal: n = 1, any t"
    assert in_words(of | {"arguments": arguments_of(None, "src/**")}).startswith(
        "terminal: path in src/**, any command, "
    )
    assert in_words(of | {"arguments": {"c": {"equals": "a\nb\u202e"}}}) == "terminal: c = a\\u{a}b\\u{202e}"
    assert in_words(of | {"tags": {"team": "a", "x": None}}).endswith("tag team=a, tag x")
    of |= {"machine": "laptop", "person": "ada", "agent": "codex", "key_id": "k1"}
    assert in_words(of).endswith("on the machine laptop, of the person ada, of the agent codex, of the key k1")


def test_a_rule_for_a_machine_a_person_and_an_agent_is_made_and_kept_in_a_file(ctl, client, tmp_path):
    ctl("rules", "add", *STATUS, "--machine", "laptop", "--person", "ada", "--agent", "claude-code")

    [rule] = listed(client)
    assert (rule["machine"], rule["person"], rule["agent"]) == ("laptop", "ada", "claude-code")
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[rules]]\ndecision = "approve"\ntool_name = "terminal"\ncommand = "git status *"\n'
        'machine = "laptop"\nperson = "ada"\nagent = "claude-code"\n'
    )
    assert ctl("rules", "diff", str(file)).stderr.strip() == "1 rule as in the file"
