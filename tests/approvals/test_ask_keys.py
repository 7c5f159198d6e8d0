"""A key with the scope `ask` stands in files that agents can read: it opens what it asks, and nothing else."""

import re

import pytest

from app import create_app
from settings.config import Config
from tests.approvals import ADMIN, shown
from tests.approvals.terminals import Inbox, Terminal, ask_key
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
        assert Terminal(house, house.keys[kind]).opens().status_code in (401, 403)
    assert Terminal(house, ADMIN).opens().status_code == 201


def test_a_decision_of_an_asker_trains_no_rule(house):
    """Proposals and rehearsals read decisions of people: a terminal's are the asker's word."""
    terminal, inbox = Terminal(house), Inbox(house)
    for number in range(4):
        asked = terminal.asks(f"echo {number}", tool="Trained")
        assert terminal.tells(asked, "allowed").status_code == 200

    found = inbox.server.get("/api/v1/approval-rules/proposals").json()
    assert [one for one in found["items"] if one["rule"]["tool_name"] == "Trained"] == []


def test_too_long_arguments_are_refused_with_the_bound(house):
    response = Terminal(house).opens("x" * 600_000)

    assert response.status_code == 422
    assert "524288 bytes" in response.json()["detail"][0]["msg"]
