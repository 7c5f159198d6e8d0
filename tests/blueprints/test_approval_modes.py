"""Approval modes over HTTP: the table, the mode of a conversation, its change, and where one is refused."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from agents.modes import containment_fault, start_fault
from app import create_app
from core.modes import MODES, mode_named, mode_of
from settings.config import Config
from tests.blueprints.test_rule_scopes import ADMIN, ScopesHouse, app_with_an_admin
from tests.conftest import action, event

MODES_URL = "/api/v1/approval-modes"


@pytest.fixture
def house(redis_url):
    return ScopesHouse(app_with_an_admin(redis_url))


def set_mode(house, conversation, mode, key=ADMIN, status=200):
    return house.ask("POST", f"/api/v1/conversation/{conversation}/approval-mode", key, status, json={"mode": mode})


def mode_shown(house, conversation):
    return house.ask("GET", f"/api/conversations/{conversation}")["approval_mode"]


def test_the_modes_are_one_table_and_each_policy_has_its_own_mode(house):
    table = house.ask("GET", MODES_URL)
    assert [one["name"] for one in table] == [mode.name for mode in MODES]
    for one in table:
        if one["approves_inside"]:  # its policy is that of another mode: the server does the rest
            continue
        conversation = house.ask("POST", "/api/conversations", status=201, json={"confirmation_policy": one["policy"]})
        assert conversation["approval_mode"] == one["name"]


def test_a_policy_that_is_no_mode_shows_none(house):
    policy = {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False}
    assert (
        house.ask("POST", "/api/conversations", status=201, json={"confirmation_policy": policy})["approval_mode"]
        is None
    )
    assert mode_of({"kind": "ConfirmRisky"}) is None
    assert mode_of(None) == "nothing"


def test_a_mode_is_changed_while_the_conversation_goes_on_and_holds_from_the_next_action_on(house):
    for risk, waits in (("LOW", False), ("MEDIUM", True)):
        conversation = house.starts(ADMIN)
        assert mode_shown(house, conversation) == "everything"
        set_mode(house, conversation, "risky")
        assert mode_shown(house, conversation) == "risky"
        one = action("ls", security_risk=risk)
        house.ask("POST", f"/api/v1/webhooks/events/{conversation}", json=[one])
        found = house.ask("GET", f"/api/v1/pending-actions?conversation_id={conversation}")["items"]
        assert ([item["action_id"] for item in found] == [one["id"]]) is waits


def test_asking_nothing_is_refused_where_no_sandbox_holds_the_agent(house):
    conversation = house.starts(ADMIN)
    refused = set_mode(house, conversation, "nothing", status=409)
    assert refused["detail"].startswith("“Ask nothing” is for conversations in a sandbox: this conversation has none")
    assert mode_shown(house, conversation) == "everything"


def changes(house, conversation):
    """The changes of the mode in a conversation's log."""
    found = house.ask("GET", f"/api/conversations/{conversation}/events/search")["items"]
    return [event for event in found if event.get("key") == "approval_mode"]


def audit(house, conversation):
    return house.ask("GET", f"/api/v1/conversation/{conversation}/audit")["items"]


def test_who_changes_a_mode_and_to_what_is_in_the_log_beside_it_and_in_the_audit(house):
    ada = house.key("ada", "approve", "write")
    conversation = house.starts(ADMIN)
    for mode in ("risky", "risky", "outside"):
        set_mode(house, conversation, mode, ada["key"])

    first, second = changes(house, conversation)
    assert first["value"] == {"before": "everything", "mode": "risky"}
    assert second["value"] == {"before": "risky", "mode": "outside"}
    entries = audit(house, conversation)
    words = "“Ask what leaves the folder”. Before: “Ask what is risky”."
    assert [(one["decision"], one["actor"]["name"], one["action_ids"]) for one in entries] == [
        ("mode_changed", "ada", []),
        ("mode_changed", "ada", []),
    ]
    assert entries[1]["reason"] == words
    ids = "&".join(f"action_id={event['id']}" for event in (first, second))
    found = house.ask("GET", f"/api/v1/conversation/{conversation}/decisions?{ids}")
    assert [(one["actor"], one["seq"]) for one in found] == [({"kind": "key", "name": "ada"}, seq) for seq in (1, 2)]
    everywhere = house.ask("GET", "/api/v1/audit?decision=mode_changed&text=leaves the folder")["items"]
    assert [one["hash"] for one in everywhere] == [entries[1]["hash"]]


def test_a_policy_of_the_wire_is_recorded_as_the_mode_that_it_is_or_by_its_own_name(house):
    conversation = house.starts(ADMIN)
    policies = ({"kind": "NeverConfirm"}, {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False})
    for policy in policies:
        path = f"/api/conversations/{conversation}/confirmation_policy"
        house.ask("POST", path, json={"policy": policy})

    assert [event["value"]["mode"] for event in changes(house, conversation)] == ["nothing", None]
    assert [one["reason"] for one in audit(house, conversation)] == [
        "“Ask nothing”. Before: “Ask everything”.",
        "The policy ConfirmRisky. Before: “Ask nothing”.",
    ]


def test_an_event_of_an_agent_that_looks_like_a_change_of_the_mode_has_no_decision(house):
    conversation = house.starts(ADMIN)
    value = {"before": "everything", "mode": "nothing"}
    forged = event("ConversationStateUpdateEvent", "environment", key="approval_mode", value=value)
    house.ask("POST", f"/api/v1/webhooks/events/{conversation}", json=[forged])

    assert mode_shown(house, conversation) == "everything"
    assert audit(house, conversation) == []
    path = f"/api/v1/conversation/{conversation}/decisions?action_id={forged['id']}"
    assert house.ask("GET", path) == [None]


def test_a_key_that_may_only_write_changes_no_mode(house):
    writer = house.key("writer", "write")["key"]
    conversation = house.starts(writer)
    for mode in MODES:
        set_mode(house, conversation, mode.name, writer, status=403)
    assert mode_shown(house, conversation) == "everything"


def test_a_mode_of_another_name_is_refused_with_the_names(house):
    refused = set_mode(house, house.starts(ADMIN), "yolo", status=422)
    assert "everything, risky" in json.dumps(refused)
    set_mode(house, uuid4(), "risky", status=404)


SPEC = """
[[spec]]
id = "{id}"
created_at = 2026-11-21T00:00:00Z
command = ["true"]
initial_env = {{}}
ports = {{ AGENT_SERVER = 8000 }}
isolation = "{isolation}"
[spec.conversation]
confirmation_policy = {{ kind = "{kind}" }}
"""


@pytest.fixture(scope="module")
def app_with_specs(redis_url, tmp_path_factory):
    """A server of three specs: `open` has no isolation, `held` asks for everything, `free` for nothing."""
    file = tmp_path_factory.mktemp("specs") / "specs.toml"
    kinds = (("held", "auto", "AlwaysConfirm"), ("open", "none", "AlwaysConfirm"), ("free", "auto", "NeverConfirm"))
    file.write_text("".join(SPEC.format(id=id, isolation=isolation, kind=kind) for id, isolation, kind in kinds))
    config = Config.of(
        redis_url=redis_url, secret_key="a key for tests only", api_keys=(ADMIN,), sandbox_specs=str(file)
    )
    return create_app(config)


@pytest.fixture
def specs(app_with_specs):
    house = ScopesHouse(app_with_specs)
    house.store.sandboxes.beat("h", "supervisor")
    return house


def start(house, key=ADMIN, status=200, **body):
    return house.ask("POST", "/api/v1/app-conversations", key, status, json=body)


def test_a_start_that_holds_less_back_than_its_spec_needs_a_key_that_approves(specs):
    writer = specs.key("writer", "write")["key"]
    for mode, status in (("everything", 200), ("risky", 403), ("outside", 403), ("nothing", 403)):
        start(specs, writer, status, sandbox_spec_id="held", approval_mode=mode)
    for mode in ("everything", "risky", "nothing"):
        start(specs, writer, sandbox_spec_id="free", approval_mode=mode)
    assert start(specs, specs.key("both", "write", "approve")["key"], approval_mode="risky")["request"]["approval_mode"]
    assert "Use a key with the scope approve" in start(specs, writer, 403, approval_mode="nothing")["detail"]


def test_a_start_that_asks_nothing_is_refused_by_name_where_the_spec_isolates_nothing(specs):
    refused = start(specs, status=422, sandbox_spec_id="open", approval_mode="nothing")
    [fault] = refused["detail"]
    assert fault["loc"] == ["body", "approval_mode"]
    assert "the spec open does not isolate its sandboxes" in fault["msg"]
    start(specs, sandbox_spec_id="open", approval_mode="risky")


def test_a_sandbox_holds_its_agent_as_far_as_its_host_could_isolate_it(specs):
    found = specs.app.extensions["server"].specs
    sandbox = specs.store.sandboxes.start("held")
    for kind, is_held in (("bubblewrap", True), ("landlock", True), ("none", False)):
        isolated = replace(sandbox, handle={"isolation": {"kind": kind}})
        assert (containment_fault(found.get("held"), isolated) == "") is is_held
    assert containment_fault(found.get("held"), None) == ""


def test_asking_nothing_may_be_chosen_for_a_sandbox_that_has_not_started_yet(specs):
    sandbox = specs.store.sandboxes.start("held")
    asked = start(specs, sandbox_id=sandbox.id, approval_mode="nothing")
    assert asked["request"]["sandbox_id"] == sandbox.id

    spec, mode = specs.app.extensions["server"].specs.get("held"), mode_named("nothing")
    assert start_fault(spec, replace(sandbox, handle={"isolation": {"kind": "none"}}), mode)
