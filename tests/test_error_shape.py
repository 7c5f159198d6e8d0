"""One shape of an error over every route: 422 is HTTPValidationError, every other one `{"detail": "text"}`; OpenAI's
below `/v1/`."""

import json
import re
from collections import Counter
from uuid import uuid4

import pytest

from app import create_app
from core.refused import Refused
from docs import make
from settings.config import Config
from tests.fitting import body_of, operation_of

LIMITS = {"rate_limit_starts": "none", "secret_key": "a key for tests only"}
UNREACHABLE = create_app(Config.of(redis_url="unix:///nowhere/redis.sock", **LIMITS))
RULES = [
    rule
    for rule in UNREACHABLE.url_map.iter_rules()
    if not rule.rule.startswith(("/docs", "/openapi", "/approvals", "/console")) and not rule.websocket
]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

#: operations that read lines of JSON, and lines that each accepts
LINED = {
    "import_conversation": json.dumps(
        {
            "format": "agent-server-conversation",
            "version": 2,
            "events": 0,
            "id": str(uuid4()),
            "execution_status": "idle",
            "confirmation_policy": {"kind": "NeverConfirm"},
            "created_at": "2026-11-20T20:00:00Z",
            "updated_at": "2026-11-20T20:00:00Z",
        }
    )
}
#: operations that respond without the store
STORELESS = {
    "send_test_notifications": 409,  # the settings name no target
    "alive": 200,
    "health": 200,
    "server_info": 200,
    "show_metrics": 200,
    "root": 200,
    "follow_events": 426,
    "open_terminal": 426,
    "get_web_client_config": 200,
    "list_approval_modes": 200,
    "get_current_user": 200,
    "search_sandbox_specs": 200,
    "batch_get_sandbox_specs": 200,
    "list_models": 200,
    "get_model": 200,
    "get_home": 200,
    "validate_profile": 200,
    "get_agent_schema": 200,
    "get_conversation_schema": 200,
    "list_tools": 200,
    "get_tool_catalog": 200,
    "list_skills": 200,
    "get_hooks": 200,
    "delete_workspace_session": 204,
    "follow_commands": 426,
    "get_permission_request": 404,  # no id of a request
    "tell_permission_outcome": 404,
    "take_hook_event": 404,  # no known agent
}


@pytest.fixture
def client():
    return UNREACHABLE.test_client()


#: parameters of paths that not every text fits: ids, and names
IDS = {"conversation_id", "receiver_id", "start_task_id", "profile_id"}
NAMES = {"model": "openhands_reference-agent", "name": "some_name"}


def address(rule, conversation_id: str) -> str:
    """The URL of a rule, with this id where one is needed, and a text that fits in any other place."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return conversation_id if name in IDS else NAMES.get(name, f"some-{name.removesuffix('_id')}")

    return re.sub(r"<(?:\w+:)?(\w+)>", fill, rule.rule)


def name_of(rule) -> str:
    return rule.endpoint.rpartition(".")[2]


def assert_error(response, status: int) -> None:
    assert response.status_code == status
    assert response.mimetype == "application/json"
    if response.request.path.startswith("/v1/"):
        error = response.get_json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert "<" not in error["message"]
        return
    detail = response.get_json()["detail"]
    if status == 422:
        assert detail
        for fault in detail:
            assert set(fault) == {"loc", "msg", "type"}
            assert fault["loc"][0] in ("path", "query", "body")
            assert all(isinstance(fault[member], str) and fault[member] for member in ("msg", "type"))
    else:
        assert isinstance(detail, str)
        assert "<" not in detail


def of(rule) -> str:
    return next(method for method in METHODS if method in rule.methods)


def faults_of(rules, check) -> list[str]:
    """What a check says of each rule that does not pass it."""
    assert rules
    faults = []
    for rule in rules:
        try:
            check(rule)
        except AssertionError as fault:
            faults.append(f"{rule.endpoint}: {fault}")
    return faults


def test_a_wrong_method_is_405_and_names_the_allowed_methods(client):
    put = {rule.rule for rule in RULES if "PUT" in rule.methods}

    def check(rule):
        response = client.open(address(rule, str(uuid4())), method="PATCH" if rule.rule in put else "PUT")
        assert_error(response, 405)
        assert of(rule) in response.headers["Allow"]

    assert faults_of(RULES, check) == []


@pytest.mark.parametrize("bad", ["x", "5f1c8a52", "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f000g", "%00", "{}"])
def test_a_conversation_id_other_than_a_uuid_is_422(client, bad):
    def check(rule):
        response = client.open(address(rule, bad), method=of(rule), json=body_of(rule))
        assert_error(response, 422)
        assert response.get_json()["detail"][0]["loc"] == ["path", "conversation_id"]

    assert faults_of([rule for rule in RULES if "conversation_id" in rule.arguments], check) == []


def test_a_store_that_cannot_be_reached_is_503(client):
    def check(rule):
        name, method = name_of(rule), of(rule)
        operation = operation_of(rule)
        query = operation.query() if operation else {}
        body = {"json": body_of(rule)}
        if name in LINED:
            body = {"data": LINED[name], "content_type": "application/x-ndjson"}
        headers = {"Authorization": "Bearer some key"} if "/webhooks/" in rule.rule else {}

        response = client.open(address(rule, str(uuid4())), method=method, query_string=query, headers=headers, **body)

        assert response.status_code != 422, f"it needs a body in UNSAID of tests/fitting.py: {response.text}"
        if name in STORELESS:
            assert response.status_code == STORELESS[name]
        else:
            assert_error(response, 503)
            assert int(response.headers["Retry-After"]) > 0

    assert faults_of(RULES, check) == []


def reads(rule) -> bool:
    """Whether an operation reads a body of JSON before it asks anything else."""
    found = operation_of(rule)
    return found.takes_json() and not found.is_forwarded and not found.is_of_sandboxes


READING = [rule for rule in RULES if "POST" in rule.methods and reads(rule)]


def test_bodies_other_than_json_are_refused(client):
    def check(rule):
        path = address(rule, str(uuid4()))
        cut = client.post(path, data="{", content_type="application/json")
        assert_error(cut, 422)
        found = cut.get_json()
        assert (found["error"]["code"] if "error" in found else found["detail"][0]["type"]) == "json_invalid"
        assert_error(client.post(path, data="{}", content_type="text/plain"), 415)
        assert_error(client.post(path, data="a=b", content_type="application/x-www-form-urlencoded"), 415)

    assert faults_of(READING, check) == []


def test_bodies_that_no_reader_of_json_may_take_are_refused(client):
    """One operation of each blueprint: its operations share the reader."""

    def check(rule):
        path = address(rule, str(uuid4()))
        for hostile in (b'"\xff"', b"[" * 100_000, b'{"a": NaN}', b"1" * 5000):
            assert_error(client.post(path, data=hostile, content_type="application/json"), 422)
        assert_error(client.post(path, data=b"[" + b" " * 10_000_000 + b"]", content_type="application/json"), 413)

    assert faults_of(list({rule.endpoint.rpartition(".")[0]: rule for rule in READING}.values()), check) == []


@pytest.mark.parametrize("path", ["/nope", "/api", "/api/conversation/", "/api/v1/nope", "/docs/assets/nope"])
def test_an_unknown_route_is_404(client, path):
    assert_error(client.get(path), 404)


def test_an_unexpected_error_is_500_with_an_id_that_the_log_has_too(client, monkeypatch, caplog):
    def fail(*_args, **_filters):
        raise RuntimeError("secret inner text")

    monkeypatch.setattr(type(UNREACHABLE.extensions["server"].store.events), "count", fail)

    response = client.get(f"/api/conversations/{uuid4()}/events/count")

    assert_error(response, 500)
    assert response.get_json()["detail"] == "Internal Server Error"
    assert response.get_json()["error_id"] in caplog.text
    assert "secret inner text" in caplog.text
    assert "secret inner text" not in response.get_data(as_text=True)


def test_the_page_of_errors_is_made_from_the_code():
    assert make.ERRORS.read_text() == make.errors(), "run `make docs`"


def test_no_two_refusals_have_one_name():
    names = Counter(one.__name__ for one in {*make.refusals(Refused)})

    assert [name for name, number in names.items() if number > 1] == []
