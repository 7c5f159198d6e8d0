"""A key with the scope `ask` stands in files that agents can read: it opens what it asks, and nothing else."""

import re
from uuid import uuid4

import pytest

from agents.asking import MOST_PER_MINUTE, PIECE_BYTES
from app import create_app
from settings.config import Config
from store.approvals.asked import MOST_OPEN, MOST_OPEN_HERE, MOST_SESSIONS, TooMuchAsked
from tests.approvals import ADMIN, shown
from tests.approvals.terminals import AskedTerminal, TerminalInbox, ask_key, set_back
from tests.blueprints import NOWHERE

#: operations of this scope, and those that need no key, or none of this kind
OWN = re.compile("/api/v1/(permission-requests|hooks)")


@pytest.fixture(scope="module")
def house(request):
    return request.getfixturevalue("apps")


def routes():
    app = create_app(Config.of(redis_url=NOWHERE, api_keys=(ADMIN,), rate_limit_failures="none"))
    for rule in app.url_map.iter_rules():
        needs = getattr(app.view_functions[rule.endpoint], "needs", None)
        for method in sorted(rule.methods - {"HEAD", "OPTIONS"}):
            if needs and needs.scope not in ("open", "link") and not rule.websocket and not OWN.match(rule.rule):
                path = re.sub("<conversation_id:[^>]+>", "5f1c9f6e-1111-4111-8111-111111111111", rule.rule)
                yield method, re.sub("<[^>]+>", "x", path)


def test_every_other_operation_is_refused(house):
    key, passed, tried = shown(ask_key(house)), [], list(routes())
    for method, path in tried:
        status = house.anyone.request(method, path, headers=key, json={} if method != "GET" else None).status_code
        if status not in (401, 403):
            passed.append((method, path, status))

    assert passed == []
    assert len(tried) > 100


def test_no_other_key_but_an_admins_asks(house):
    for kind in ("read", "write", "approve", "hook", "session"):
        assert AskedTerminal(house, house.keys[kind]).opens().status_code in (401, 403)
    assert AskedTerminal(house, ADMIN).opens().status_code == 201


def test_a_hook_that_is_too_old_is_told_what_to_do(house):
    key = shown(ask_key(house))
    response = house.anyone.get(
        "/api/v1/permission-requests/none", headers={**key, "User-Agent": "agentctl/0.0.9 hook"}
    )

    assert response.status_code == 409
    assert "agentctl 0.0.9, and this server takes 0.1.0 or later" in response.json()["detail"]
    assert house.anyone.get("/api/v1/permission-requests/none", headers=key).status_code == 404


def test_a_decision_of_an_asker_trains_no_rule(house):
    """Proposals and rehearsals read decisions of people: a terminal's are the asker's word."""
    terminal, inbox = AskedTerminal(house), TerminalInbox(house)
    for number in range(4):
        asked = terminal.asks(f"echo {number}", tool="Trained")
        assert terminal.tells(asked, "allowed").status_code == 200

    found = inbox.server.get("/api/v1/approval-rules/proposals").json()
    assert [one for one in found["items"] if one["rule"]["tool_name"] == "Trained"] == []


def test_open_requests_of_a_session_and_of_a_key_and_new_sessions_are_bounded(house):
    asked, session, ask = house.store.approvals.asked, str(uuid4()), {"lease": 20, "patience": 590}
    for number in range(MOST_OPEN_HERE):
        asked.hold("flood", session, f"{number}", ask)
    asked.hold("flood", session, "1", ask)  # it is counted already
    with pytest.raises(TooMuchAsked, match=f"This session has {MOST_OPEN_HERE} permission requests open"):
        asked.hold("flood", session, "one more", ask)
    for number in range(MOST_OPEN - MOST_OPEN_HERE):
        asked.hold("flood", str(uuid4()), f"{number}", ask)
    with pytest.raises(TooMuchAsked, match=f"This key has {MOST_OPEN} permission requests open"):
        asked.hold("flood", str(uuid4()), "one more", ask)
    asked.hold("another key", str(uuid4()), "one more", ask)

    for _ in range(MOST_SESSIONS):
        asked.hold_session("many", str(uuid4()))
    with pytest.raises(TooMuchAsked, match=f"This key has begun {MOST_SESSIONS} sessions within 24 hours"):
        asked.hold_session("many", str(uuid4()))


def test_what_its_terminal_did_not_allow_counts_no_longer_after_the_turn(house):
    terminal = AskedTerminal(house, ask_key(house, "turns"))
    asked = terminal.asks(expires_in=30, lease_seconds=600)
    set_back(house, asked, "ends")
    redis = house.store.conversations._redis
    owner = house.store.conversations.get(asked.conversation_id)["origin"]["key_id"]
    assert redis.zcard(f"asking:{{{owner}}}:open") == 1
    terminal.reports("turn")

    assert redis.zcard(f"asking:{{{owner}}}:open") == 0


def test_too_long_arguments_are_refused_with_the_bound(house):
    response = AskedTerminal(house).opens("x" * 600_000)

    assert response.status_code == 422
    assert "524288 bytes" in response.json()["detail"][0]["msg"]


def test_what_a_key_sends_within_a_minute_is_bounded_by_its_bytes_too(house):
    terminal = AskedTerminal(house, ask_key(house, "heavy"))
    call = {"kind": "call", "tool_name": "Bash", "arguments": {"command": "x" * 500_000}}
    number = MOST_PER_MINUTE // (500_000 // PIECE_BYTES) + 1
    sent = [terminal.post("/reports", {**terminal.whole, **call}) for _ in range(number)]

    assert {one.status_code for one in sent[:40]} == {204}
    assert (sent[-1].status_code, "each 8 KiB of one count as another" in sent[-1].json()["detail"]) == (429, True)
    assert terminal.opens("x" * 60_000).status_code == 429


@pytest.mark.parametrize(
    ("member", "value", "status"),
    [("tool_name", "x" * 5000, 422), ("prompt", "x" * 1_000_000, 200)],
)
def test_an_event_of_a_hook_has_the_bounds_of_a_request(house, member, value, status):
    name = {"tool_name": "PermissionRequest", "prompt": "UserPromptSubmit"}[member]
    event = {"hook_event_name": name, "session_id": uuid4().hex, "cwd": "/x", "tool_input": {}, member: value}
    headers = shown(ask_key(house))
    response = house.anyone.post("/api/v1/hooks/claude", json=event, params={"patience": 1}, headers=headers)

    assert response.status_code == status
    found = house.one.get("/api/v1/conversations/search", params={"kind": "external", "limit": 100}).json()["items"]
    [mine] = [one for one in found if one["external"]["session"] == event["session_id"]] or [None]
    assert (mine is None) == (status == 422)
    if mine:
        [said] = house.one.get(f"/api/conversations/{mine['id']}/events/search").json()["items"]
        assert len(said["llm_message"]["content"][0]["text"]) == 64 * 1024
