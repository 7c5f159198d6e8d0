"""The approval mode `outside`: what stays inside the folder passes, all else waits for a person."""

import pytest

from tests.blueprints.test_approval_modes import mode_shown, set_mode
from tests.blueprints.test_rule_records import audit
from tests.blueprints.test_rule_scopes import ADMIN, LS, ScopesHouse, app_with_an_admin
from tests.conftest import action

FOLDER = "/w/shop"


@pytest.fixture
def house(redis_url):
    house = ScopesHouse(app_with_an_admin(redis_url))
    for key in house.store.approvals.rules._redis.scan_iter("{rules}*"):
        house.store.approvals.rules._redis.delete(key)
    return house


@pytest.fixture
def inside(house):
    conversation = house.starts(ADMIN, FOLDER)
    set_mode(house, conversation, "outside")
    return conversation


@pytest.mark.parametrize(
    "command", ["ls -la", "cat a.txt | wc -l", "echo x > a.txt", "pwd", "mkdir -p src && touch src/a", "grep -r x ."]
)
def test_what_only_reads_and_writes_inside_passes(house, inside, command):
    assert not house.waits(inside, command)


@pytest.mark.parametrize(
    "command",
    [
        *("curl https://example.org", "rm a", "cat /etc/passwd", "echo x > ../a", "echo x > /w/other/a", "npm test"),
        *("./a.sh", "cat .env", "python -c 'x'", "git push", "git commit -m x", "echo x > .git/hooks/pre-commit"),
        *("cp -r hooks .git/", "eval $x", "ls; rm a", "unheardof x", "sudo ls", "cd .GIT && echo x > config"),
    ],
)
def test_what_leaves_the_folder_or_is_not_known_waits(house, inside, command):
    assert house.waits(inside, command)


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        (f"{FOLDER}/src/a.py", False),
        ("/w/other/a.py", True),
        (f"{FOLDER}/../a.py", True),
        (f"{FOLDER}/.git/config", True),
    ],
)
def test_an_edit_passes_inside_the_folder_alone(house, inside, path, waits):
    values = {"kind": "X", "command": "create", "path": path, "file_text": "x"}
    one = action("", tool_name="file_editor", action=values)
    house.ask("POST", f"/api/v1/webhooks/events/{inside}", json=[one])
    found = house.ask("GET", f"/api/v1/pending-actions?conversation_id={inside}")["items"]
    assert bool(found) is waits


def test_a_conversation_of_no_known_folder_lets_no_edit_by_an_absolute_path_pass(house):
    conversation = house.starts(ADMIN)
    set_mode(house, conversation, "outside")
    one = action("", tool_name="file_editor", action={"kind": "X", "command": "create", "path": "/w/shop/a"})
    house.ask("POST", f"/api/v1/webhooks/events/{conversation}", json=[one])
    assert house.ask("GET", f"/api/v1/pending-actions?conversation_id={conversation}")["items"]


def test_the_audit_says_that_the_server_approved_it_and_why(house, inside):
    assert not house.waits(inside, "ls")
    _, entry = audit(house, inside)
    assert (entry["decision"], entry["actor"]["kind"], entry["shown"][0]["text"]) == ("approve", "server", "ls")
    assert "Ask what leaves the folder" in entry["reason"]


def test_a_rule_that_rejects_wins_over_the_mode_and_one_that_is_unsure_leaves_it_to_a_person(house, inside):
    house.rules(decision="reject", arguments={"command": {"command": "ls *"}})
    assert not house.waits(inside, "ls -la")
    assert [one["decision"] for one in audit(house, inside)] == ["mode_changed", "reject"]
    house.rules(decision="reject", tool_name="terminal", arguments={"absent": {"equals": "x"}})
    assert house.waits(inside, "cat a.txt")


def test_a_rule_that_approves_counts_beside_the_mode(house, inside):
    house.rules(**{**LS, "arguments": {"command": {"command": "npm test *"}}})
    assert not house.waits(inside, "npm test")
    assert not house.waits(inside, "ls")
    assert house.waits(inside, "npm install x")


def test_what_waits_and_stays_inside_is_approved_when_the_mode_is_chosen(house):
    conversation = house.starts(ADMIN, FOLDER)
    waiting = house.acts(conversation, "ls")
    set_mode(house, conversation, "outside")
    found = house.ask("GET", f"/api/v1/pending-actions?conversation_id={conversation}")["items"]
    assert waiting not in [one["action_id"] for one in found]


@pytest.mark.parametrize("back", ["everything", "policy"])
def test_another_mode_or_policy_ends_it(house, inside, back):
    assert mode_shown(house, inside) == "outside"
    if back == "policy":
        body = {"policy": {"kind": "AlwaysConfirm"}}
        house.ask("POST", f"/api/conversations/{inside}/confirmation_policy", json=body)
    else:
        set_mode(house, inside, "everything")
    assert mode_shown(house, inside) == "everything"
    assert house.waits(inside, "ls")


def test_a_copy_has_the_mode_of_its_source(house, inside):
    copy = house.ask("POST", f"/api/conversations/{inside}/fork", status=201, json={})["id"]
    assert mode_shown(house, copy) == "outside"
    assert not house.waits(copy, "ls")
    assert house.waits(copy, "rm a")
