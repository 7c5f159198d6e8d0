"""The OpenAPI document allows nothing that the server refuses: a few requests that fit a schema.

Left out is what no schema says: that a cursor is one that the server gave out, that one member of a query goes with
another, that a time lies in the future, that each action is decided once, that a message of a user says
something, that an `Idempotency-Key` is new, what the SHA-256 of an import is. tests/test_contract.py sends what does
not fit.
"""

import json
import re

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode

from schemas import approvals, audit, destinations, events, fields
from schemas.access import KeyRequest
from schemas.client_settings import SecretPut
from schemas.conversations import StartConversationRequest
from tests.servers import PROJECT

pytestmark = pytest.mark.process(
    "makes requests by chance, which are others with each version of Python and of the generator"
)

DOCUMENT = json.loads((PROJECT / "docs" / "openapi.json").read_text())

#: operations whose schemas say all that the server asks of a request
OPERATIONS = [
    "GET /api/conversations/{conversation_id}/events/count",
    "GET /api/conversations/{conversation_id}/events/histogram",
    "PATCH /api/conversations/{conversation_id}",
    "POST /api/conversations/{conversation_id}/goal",
    "POST /api/conversations/{conversation_id}/secrets",
    "GET /api/conversations",
    "GET /api/conversations/count",
    "GET /api/conversations/search",
    "POST /api/conversations/{conversation_id}/events",
    "POST /api/conversations/{conversation_id}/events/respond_to_confirmation",
    "POST /api/conversations/{conversation_id}/confirmation_policy",
    "POST /api/conversations/{conversation_id}/security_analyzer",
    "POST /api/conversations/{conversation_id}/fork",
    "POST /api/conversations/{conversation_id}/ask_agent",
    "POST /api/conversations/{conversation_id}/navigate",
    "POST /api/conversations/{conversation_id}/switch_llm",
    "GET /api/v1/conversations/search",
    "GET /api/v1/messages/search",
    "GET /api/v1/pending-actions",
    "GET /api/v1/pending-actions/count",
    "GET /api/v1/destinations",
    "GET /api/v1/app-conversations/search",
    "GET /api/v1/app-conversations/count",
    "GET /api/v1/app-conversations/start-tasks/search",
    "GET /api/v1/sandboxes/search",
    "DELETE /api/v1/app-conversations/start-tasks/{start_task_id}",
    "PATCH /api/v1/app-conversations/{conversation_id}",
    "POST /api/v1/conversations/{receiver_id}/pending-messages",
    "POST /api/v1/destinations/decisions",
    "POST /api/v1/destination-rules",
    "POST /api/v1/tickets",
    "PATCH /api/settings",
    "PUT /api/settings/secrets",
    "DELETE /api/settings/secrets/{name}",
    "POST /api/profiles/{name}",
    "POST /api/profiles/{name}/rename",
    "POST /api/agent-profiles/{name}",
    "DELETE /api/agent-profiles/{name}",
    "POST /api/workspaces",
    "POST /api/workspaces/parents",
    "POST /api/v1/keys",
    "GET /api/v1/sandbox-specs/search",
    "GET /api/conversations/{conversation_id}/events/search",
    "GET /api/v1/conversation/{conversation_id}/events/search",
]

#: how refusals begin that no schema can say: of a cursor that the server did not give out, of a time that is past, of
#: members of a query that do not go together, of a provider connection that there is not, and of a message of blanks
UNSAYABLE = (
    "Unknown cursor: ",
    "Must lie in the future",
    "wait needs after_seq",
    "after_seq cannot be combined with",
    "provider_connection_id names ",
    "A message should have a text that is not blank",
)


@pytest.fixture(scope="module")
def operations():
    """The operations of the document by their labels."""
    found = schemathesis.openapi.from_dict(DOCUMENT)
    return {one.ok().label: one.ok() for one in found.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
def test_a_request_that_fits_the_document_is_not_refused_for_what_it_says(operations, client, label):
    refused = []

    @given(operations[label].as_strategy(generation_mode=GenerationMode.POSITIVE))
    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def looks(case):
        headers = {name: value for name, value in (case.headers or {}).items() if name != "Idempotency-Key"}
        body = {} if isinstance(case.body, schemathesis.core.NotSet) else {"json": case.body}
        response = client.open(
            case.formatted_path, method=case.method, query_string=case.query or {}, headers=headers, **body
        )
        if response.status_code in (400, 405, 415, 422) or response.status_code >= 500:
            told = response.get_json()
            faults = told["detail"] if isinstance(told.get("detail"), list) else []
            if not faults or not all(fault["msg"].startswith(UNSAYABLE) for fault in faults):
                refused.append((response.status_code, told))

    looks()
    assert refused == []


ONE = "11111111-1111-4111-8111-111111111111"

#: a cursor of each operation, as the server gives them out
CURSORS = {
    "/api/conversations/search": fields.page_id("updated", True, (1_764_000_000_000_000, ONE)),
    "/api/v1/conversations/search": fields.page_id("title", False, ("Grüße \U0001f600", ONE)),
    "/api/v1/app-conversations/search": fields.page_id("title", True, ("", ONE)),
    "/api/v1/app-conversations/start-tasks/search": fields.page_id("created", True, (1, ONE)),
    "/api/v1/messages/search": events.message_page_id((1, ONE, 2, 3)),
    "/api/v1/pending-actions": approvals.page_id(True, (1, f"{ONE} an é action", 3)),
    "/api/v1/destinations": destinations.page_id((1, "a-sandbox.1 pypi.org:443")),
    "/api/v1/audit": audit.place_id(True, (1, "destinations-2026-11-25", 3)),
}


@pytest.mark.parametrize("path", CURSORS)
def test_a_cursor_fits_the_document_and_what_is_none_does_not(path):
    [schema] = [one["schema"] for one in DOCUMENT["paths"][path]["get"]["parameters"] if one.get("name") == "page_id"]

    assert re.search(schema["pattern"], CURSORS[path])
    for nonsense in ("", "nonsense", "0", f"{CURSORS[path]}-", f"-{CURSORS[path]}"):
        assert not re.search(schema["pattern"], nonsense), nonsense


@pytest.mark.parametrize(
    ("members", "fits"),
    [
        ({"decision": "approve"}, True),
        ({"decision": "reject", "always": {"max_uses": 1}}, True),
        ({"decision": "approve", "arguments": {}}, False),
        ({"decision": "edit"}, False),
        ({"decision": "edit", "arguments": {}}, True),
        ({"decision": "edit", "arguments": {}, "always": None}, True),
        ({"decision": "edit", "arguments": {}, "always": True}, False),
    ],
)
def test_an_edit_alone_has_arguments_and_makes_no_rule(client, members, fits):
    decision = {"action_id": "one", **members}
    document = {"$ref": "#/components/schemas/PendingDecision", "components": DOCUMENT["components"]}
    response = client.post(f"/api/v1/conversation/{ONE}/pending-actions/decisions", json={"decisions": [decision]})

    assert Draft202012Validator(document).is_valid(decision) is fits
    assert response.status_code == (404 if fits else 422)


def component(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


ACP, ACP_SETTINGS, ASKS = {"kind": "ACPAgent"}, {"agent_kind": "acp"}, {"kind": "AlwaysConfirm"}


@pytest.mark.parametrize(
    ("members", "fits"),
    [
        ({"agent": ACP}, True),
        ({"agent": ACP, "confirmation_policy": {"kind": "NeverConfirm"}}, True),
        ({"agent": {"kind": "Agent"}, "confirmation_policy": ASKS}, True),
        ({"agent": ACP, "confirmation_policy": ASKS}, False),
        ({"agent_settings": ACP_SETTINGS, "confirmation_policy": ASKS}, False),
        ({"agent_settings": ACP_SETTINGS, "confirmation_policy": {"kind": "ConfirmRisky"}}, False),
    ],
)
def test_an_agent_that_acts_unasked_goes_with_no_policy_that_holds_back(members, fits):
    assert component("StartConversationRequest").is_valid(members) is fits
    assert (StartConversationRequest().validate(members) == {}) is fits


@pytest.mark.parametrize(
    ("value", "fits"), [("a b", True), (" a", True), ("**********", False), (" \t", False), ("a\0", False), ("", False)]
)
def test_the_value_of_a_secret_fits_the_document_where_it_is_taken(value, fits):
    secret = {"name": "KEY", "value": value}

    assert component("SecretPut").is_valid(secret) is fits
    assert (SecretPut().validate(secret) == {}) is fits


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a key", True),
        ("é \U0001f600", True),
        ("not yet in Unicode: \u0378", True),
        (" a", False),
        ("a ", False),
        ("a\u200bb", False),
        ("a tag\U000e0041", False),
        ("a note\U0001d173", False),
    ],
)
def test_the_name_of_a_key_fits_the_document_where_it_is_taken(name, fits):
    request = {"name": name, "scopes": ["read"]}

    assert component("KeyRequest").is_valid(request) is fits
    assert (KeyRequest().validate(request) == {}) is fits


def test_an_export_fits_what_the_document_says_of_an_import_and_what_is_none_does_not(client, conversation):
    client.post("/api/conversations", json={"conversation_id": conversation, "title": "of two\nlines"})
    content = {"content": [{"type": "text", "text": "a message"}]}
    client.post(f"/api/conversations/{conversation}/events", json=content)
    text = client.get(f"/api/conversations/{conversation}/export").get_data(as_text=True)
    content = DOCUMENT["paths"]["/api/conversations/import"]["post"]["requestBody"]["content"]
    [first, second] = [re.compile(one["schema"]["pattern"]) for one in content.values()]

    assert first == second
    assert first.search(text)
    assert first.search(text.removesuffix("\n"))
    for nonsense in ("", "{}", "[]\n" + text, text + text, text.replace("\n", "\n\n", 1), text.rpartition("{")[0]):
        assert not first.search(nonsense), nonsense


@pytest.mark.parametrize("day", ["2026-02-30", "2026-02-29", "1900-02-29", "2026-04-31", "0000-01-01", "2026-13-01"])
def test_a_day_that_no_calendar_has_does_not_fit_the_time_of_an_event(day):
    pattern = DOCUMENT["components"]["schemas"]["Event"]["properties"]["timestamp"]["pattern"]

    assert not re.search(pattern, f"{day}T10:00:00")
    assert all(re.search(pattern, f"{one}T10:00:00Z") for one in ("2024-02-29", "2000-02-29", "2026-04-30"))
