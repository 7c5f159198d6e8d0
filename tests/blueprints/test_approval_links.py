"""The page of a one-time link: what it shows, what it decides, and every reason why it decides nothing."""

import html
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from app import create_app
from core.approvals import ApprovalLinks, action_digest, shown_arguments
from core.prices import ModelBudget
from core.wire import now
from settings.config import Config
from store.approvals.audit import DecisionActor
from tests.blueprints import away
from tests.conftest import SECRET_KEY, action, message
from tests.servers import wait_until
from tests.store.conftest import fresh_sandboxes, running_sandbox

ADMIN = {"Authorization": "Bearer an-admin-key-of-the-settings"}
URL = "http://localhost"


@pytest.fixture(scope="module")
def app(redis_url):
    """A server with keys: the page needs none of them."""
    return create_app(
        Config.of(
            redis_url=redis_url,
            redis_timeout=10,
            secret_key=SECRET_KEY,
            public_url=URL,
            api_keys=("an-admin-key-of-the-settings",),
            rate_limit_failures="none",
        )
    )


@pytest.fixture(scope="module")
def links(app) -> ApprovalLinks:
    return app.extensions["server"].links


@pytest.fixture
def waits(client, conversation, links):
    """Actions that wait in a conversation, and a link to the first."""

    def wait(*actions, title="Tidy up", **options) -> str:
        body = {"conversation_id": conversation, "title": title, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        assert client.post("/api/conversations", json=body, headers=ADMIN).status_code in (200, 201)
        posted = client.post(f"/api/v1/webhooks/events/{conversation}", json=list(actions), headers=ADMIN)
        assert posted.status_code == 200, posted.get_data()
        return link_to(links, conversation, actions[0], **options)

    return wait


def link_to(links, conversation, act, **options) -> str:
    digest = action_digest(act["tool_name"], shown_arguments(act["action"]))
    return links.make(conversation, act["id"], digest, "the team's chat", **options).removeprefix(URL)


def pending(client, conversation) -> list[str]:
    found = client.get(f"/api/conversations/{conversation}/pending_actions", headers=ADMIN).get_json()
    return [one["id"] for one in found]


def audit(app, conversation) -> list[dict]:
    return [json.loads(entry) for entry in app.extensions["server"].store.approvals.audit.of(conversation, limit=100)]


def text(response) -> str:
    """What a person reads on a page."""
    assert response.mimetype == "text/html"
    return html.unescape(re.sub(r"<[^>]*>", "", response.get_data(as_text=True).partition("</style>")[2]))


def press(client, link, decision, **form):
    return client.post(link, data={"decision": decision, **form})


def asked_at_a_terminal(client, links) -> tuple[dict, str]:
    """A request of an agent in a terminal, and a link to it."""
    session = {"id": uuid4().hex, "cwd": "/home/ada/<b>shop", "host": "laptop", "user": "ada"}
    call = {"tool_name": "Bash", "arguments": {"command": "touch proof"}}
    body = {"agent": {"name": "claude-code"}, "session": session, **call}
    response = client.post("/api/v1/permission-requests", json=body, headers=ADMIN)
    assert response.status_code == 201, response.text
    asked = response.get_json()
    link = links.make(asked["conversation_id"], asked["action_id"], asked["digest"], "the team's chat")
    return asked, link.removeprefix(URL)


def test_the_page_says_whose_agent_asks_and_then_who_answered_at_the_terminal(client, links):
    asked, link = asked_at_a_terminal(client, links)

    assert "claude-code · ada@laptop · /home/ada/<b>shop" in text(client.get(link))
    path = f"/api/v1/permission-requests/{asked['id']}/outcome"
    assert client.post(path, json={"outcome": "allowed"}, headers=ADMIN).status_code == 200
    assert "by ada@laptop, at the terminal of the agent" in text(client.get(link))


def test_the_page_says_first_that_less_is_shown_than_will_run(client, waits):
    shown = {"title": "touch proof", "kind": "execute"}
    words = [{"kind": "MCPToolAction", "data": data} for data in ({**shown, "_incomplete": "Words."}, shown)]
    links = [waits(action(action=one, tool_name="execute"), title=str(number)) for number, one in enumerate(words)]

    [part, whole] = [text(client.get(link)).partition("Conversation")[0] for link in links]
    assert "What is shown is less than what will run" in part
    assert "less than what will run" not in whole


# endings


def test_a_tampered_link_shows_and_decides_nothing(client, conversation, waits):
    link = waits(act := action())
    for token in (link[:-9] + "AAAAAAAA" + link[-1], link[:-20], link + ".x", "/approvals/unknown"):
        for response in (client.get(token), press(client, token, "approve")):
            assert response.status_code == 403
            assert "not one of this server" in text(response)
    assert pending(client, conversation) == [act["id"]]


def test_a_link_that_another_server_signed_is_tampered(client, conversation, waits):
    waits(act := action())
    other = ApprovalLinks(("a key of another server",), public_url=URL, seconds=60)

    assert press(client, link_to(other, conversation, act), "approve").status_code == 403
    assert pending(client, conversation) == [act["id"]]


def test_wrong_tokens_of_one_address_are_limited_as_wrong_keys_are(redis_url):
    config = Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, rate_limit_failures="3/hour")
    client = create_app(config).test_client()
    address = {"REMOTE_ADDR": f"2001:db8::{uuid4().hex[:4]}:{uuid4().hex[:4]}"}

    statuses = [client.get("/approvals/wrong", environ_base=address).status_code for _ in range(4)]

    assert statuses == [403, 403, 403, 429]
    refused = client.get("/approvals/wrong", environ_base=address)
    assert int(refused.headers["Retry-After"]) > 0
    assert "RATE_LIMIT_FAILURES" in text(refused)


def test_an_expired_link_is_too_late(client, conversation, waits):
    link = waits(act := action(), deadline=now() - 1)

    for response in (client.get(link), press(client, link, "approve")):
        assert (response.status_code, "This link has expired" in text(response)) == (410, True)
    assert pending(client, conversation) == [act["id"]]


def test_the_link_of_a_deleted_conversation_finds_nothing(client, conversation, waits):
    link = waits(action())
    assert client.delete(f"/api/conversations/{conversation}", headers=ADMIN).status_code == 200

    for response in (client.get(link), press(client, link, "approve")):
        assert (response.status_code, "deleted" in text(response)) == (404, True)


def test_a_link_says_who_was_faster_and_how(client, conversation, waits):
    link = waits(action())
    path = f"/api/conversations/{conversation}/events/respond_to_confirmation"
    assert client.post(path, json={"accept": False, "reason": "Not <now>"}, headers=ADMIN).get_json()["success"]

    for response in (client.get(link), press(client, link, "approve")):
        assert response.status_code == 409
        assert "This action was rejected at 20" in text(response)
        assert "with the key settings-1. The reason: Not <now>" in text(response)
        assert "<now>" not in response.get_data(as_text=True)


def test_a_used_link_says_what_it_was_used_for(client, conversation, waits, app):
    link = waits(action())
    assert press(client, link, "approve").status_code == 200

    for response in (client.get(link), press(client, link, "approve"), press(client, link, "reject")):
        assert response.status_code == 409
        assert re.search(r"This link was used at 20\S+Z: the action was approved", text(response))
    assert len(audit(app, conversation)) == 1


def test_an_action_that_is_another_one_than_the_link_shows_is_not_decided(client, conversation, waits, links):
    waits(act := action("ls"))
    changed = link_to(links, conversation, {**act, "action": {**act["action"], "command": "ls -la"}})

    assert "not the action that the link was made for" in text(client.get(changed))
    response = press(client, changed, "approve")
    assert (response.status_code, "Nothing was decided" in text(response)) == (409, True)
    assert pending(client, conversation) == [act["id"]]


def test_a_store_that_is_away_is_a_page_that_asks_to_try_again():
    app = away(secret_key=SECRET_KEY, public_url=URL)
    link = link_to(app.extensions["server"].links, str(uuid4()), action())

    for response in (app.test_client().get(link), press(app.test_client(), link, "approve")):
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert "it may have been taken: try again" in text(response)


@pytest.mark.parametrize("form", [{}, {"decision": ""}, {"decision": "edit"}, {"decision": "APPROVE"}])
def test_a_form_without_a_decision_shows_the_action_again(client, conversation, waits, form):
    link = waits(act := action())

    response = client.post(link, data=form)

    assert (response.status_code, "lacks a decision" in text(response)) == (422, True)
    assert pending(client, conversation) == [act["id"]]


def test_a_reason_that_is_too_long_is_refused_before_the_link_is_used(client, conversation, waits):
    link = waits(act := action())

    response = press(client, link, "reject", reason="é" * 1100)

    assert (response.status_code, "MAX_REASON_BYTES" in text(response)) == (422, True)
    assert pending(client, conversation) == [act["id"]]
    assert press(client, link, "approve").status_code == 200


def test_a_body_that_is_too_long_decides_nothing(client, conversation, waits):
    link = waits(act := action())

    assert press(client, link, "reject", reason="x" * 300_000).status_code == 413
    assert pending(client, conversation) == [act["id"]]


def test_a_form_of_a_foreign_page_decides_nothing(client, conversation, waits):
    link = waits(act := action())
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post(link, data={"decision": "approve"}, headers=headers).status_code == 403
    assert pending(client, conversation) == [act["id"]]


# a crash between the use of the link and its decision


def test_a_decision_that_a_crash_cut_off_is_taken_by_its_repeat(client, conversation, waits, app, links):
    # Given a link that was used by a process which was killed before it decided
    link = waits(act := action())
    used = links.read(link.rpartition("/")[2])
    assert app.extensions["server"].store.approvals.link_uses.take(used.identity, used.ends, "reject")[0] == "first"
    assert "This link was used to reject" in text(client.get(link))

    # Then it takes no other decision, and the same one once
    other = press(client, link, "approve")
    assert (other.status_code, "open the link again and repeat it" in text(other)) == (409, True)
    assert pending(client, conversation) == [act["id"]]
    assert press(client, link, "reject", reason="too risky").status_code == 200
    assert press(client, link, "reject", reason="too risky").status_code == 409
    assert [entry["decision"] for entry in audit(app, conversation)] == ["reject"]


@pytest.mark.faults("a race of threads")
def test_of_many_forms_at_once_one_decides(app, client, conversation, waits):
    link = waits(action())
    decisions = ["approve", "reject"] * 4

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(lambda one: press(app.test_client(), link, one).status_code, decisions))

    assert sorted(statuses) == [200] + [409] * 7
    [entry] = audit(app, conversation)
    assert entry["decision"] == decisions[statuses.index(200)]


# what decides


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_no_request_but_a_post_decides(client, conversation, waits, method):
    link = waits(act := action())
    for headers in ({}, {"Sec-Purpose": "prefetch"}, {"Sec-Fetch-Site": "cross-site"}):
        response = client.open(f"{link}?decision=approve", method=method, headers=headers)
        assert response.status_code == 200
    assert pending(client, conversation) == [act["id"]]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_no_other_method_is_served(client, waits, method):
    assert client.open(waits(action()), method=method).status_code == 405


def test_an_approval_by_a_link_is_audited_with_its_target_and_address(client, conversation, waits, app):
    link = waits(act := action())

    response = press(client, link, "approve")

    assert (response.status_code, "The action is approved" in text(response)) == (200, True)
    [entry] = audit(app, conversation)
    assert entry["decision"] == "approve"
    assert entry["action_ids"] == [act["id"]]
    assert entry["actor"] == {"kind": "link", "name": "the team's chat", "address": "127.0.0.1"}
    assert client.get(f"/api/conversations/{conversation}", headers=ADMIN).get_json()["execution_status"] == "running"


def test_a_rejection_by_a_link_tells_the_agent_the_reason(client, conversation, waits):
    link = waits(action())

    response = press(client, link, "reject", reason=" Use the\r\ntrash ")

    assert (response.status_code, "Use the\ntrash" in text(response)) == (200, True)
    events = client.get(f"/api/conversations/{conversation}/events/search", headers=ADMIN).get_json()["items"]
    assert [one["rejection_reason"] for one in events if one["kind"] == "UserRejectObservation"] == ["Use the\ntrash"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_link_decides_once_and_makes_no_rule_whatever_its_form_has(client, conversation, waits, verb):
    def rules() -> list[dict]:
        return client.get("/api/v1/approval-rules", headers=ADMIN).get_json()

    before, act = rules(), action("make deploy")
    url = waits(act)
    forged = {"decision": verb, "always": "true", "scope": "everywhere", "conversation_ids": "", "max_uses": "9"}
    assert client.post(url, data=forged).status_code == 200

    assert rules() == before
    again = action("make deploy")
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[again], headers=ADMIN)
    assert pending(client, conversation) == [again["id"]]


def test_an_action_of_high_risk_is_approved_only_with_the_box_checked(client, conversation, waits):
    link = waits(act := action("rm -rf build", security_risk="LOW"))
    assert 'name="sure"' in client.get(link).get_data(as_text=True)

    refused = press(client, link, "approve")
    assert refused.status_code == 422
    assert "The risk is high: check the box to approve. Nothing was decided." in text(refused)
    assert pending(client, conversation) == [act["id"]]

    assert press(client, link, "approve", sure="yes").status_code == 200
    assert pending(client, conversation) == []


def test_an_action_of_high_risk_is_rejected_without_the_box(client, conversation, waits):
    link = waits(action("rm -rf build"))
    assert press(client, link, "reject").status_code == 200
    assert pending(client, conversation) == []


def test_an_action_of_low_risk_has_no_box(client, waits):
    assert 'name="sure"' not in client.get(waits(action("ls"))).get_data(as_text=True)


def test_a_link_decides_its_action_alone(client, conversation, waits):
    link = waits(action("one"), other := action("two"))

    assert press(client, link, "approve").status_code == 200
    assert pending(client, conversation) == [other["id"]]


# what is shown


def test_the_page_shows_the_action_in_full(client, waits):
    act = action("rm -rf build", summary="Clears the build", security_risk="MEDIUM")
    act["thought"] = [{"type": "text", "text": "I should tidy up."}]
    act["action"] |= {"timeout": 3, "env": {"A": None}, "kind": "TerminalAction"}
    link = waits(act)

    page = text(client.get(link))

    digest = action_digest("terminal", {"command": "rm -rf build", "timeout": 3, "env": {"A": None}})
    shown = (
        "Tidy up",
        "terminal",
        "rm -rf build",
        "Clears the build",
        "I should tidy up.",
        "MEDIUM",
        "HIGH",
        "Deletes",
        digest,
        '"A": null',
    )
    assert [one for one in shown if one not in page] == []
    assert "TerminalAction" not in page


def test_nothing_that_an_agent_wrote_is_interpreted(client, waits):
    evil = "<script>alert(1)</script>{{ 7*7 }}\x1b[2J\u202e</pre>'\""
    act = action(evil, summary=evil, tool_name=evil, security_risk="HIGH")
    act["thought"] = [{"type": "text", "text": evil}, "odd", {"type": "text", "text": 7}]
    act["action"][evil] = {evil: [evil]}
    link = waits(act, message("x"), title="<b>Title</b>\u202e")

    page = client.get(link).get_data(as_text=True)

    assert "<script" not in page
    assert "<b>" not in page
    assert "{{ 7*7 }}" in page
    assert not set("\x1b\u202e") & set(page)
    assert page.count("<mark>\\u{1b}</mark>[2J<mark>\\u{202e}</mark>&lt;/pre&gt;") >= 4


@pytest.mark.parametrize("arguments", ["text", 3, ["a"], {}])
def test_arguments_of_any_shape_are_shown(client, waits, arguments):
    link = waits({**action(), "action": arguments})

    assert client.get(link).status_code == 200


def test_the_page_runs_nothing_loads_nothing_and_is_kept_nowhere(client, waits):
    link = waits(action())
    for response in (client.get(link), client.get("/approvals/wrong"), press(client, link, "approve")):
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Robots-Tag"] == "noindex, nofollow"
        page = response.get_data(as_text=True)
        assert '<meta name="robots" content="noindex, nofollow">' in page
        assert not re.search(r"<(script|link|img|iframe|a)\b|src=|url\(|@import|\son\w+=", page)


def test_no_page_elsewhere_learns_of_the_link(client, waits):
    link = waits(action())

    assert client.get(link).headers["Referrer-Policy"] == "same-origin"  # else the form has `Origin: null`
    assert press(client, link, "approve").headers["Referrer-Policy"] == "no-referrer"


def test_no_log_line_has_the_token(client, waits):
    class KeptRecords(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    lines, handler = [], KeptRecords()
    logging.getLogger("request_log").addHandler(handler)
    link = waits(action())
    for decision in ("approve", "approve"):
        press(client, link, decision)
    press(client, "/approvals/planted", "approve")
    logging.getLogger("request_log").removeHandler(handler)

    asked = [json.loads(line) for line in lines][-3:]
    assert [(one["path"], one["status"]) for one in asked] == [
        ("/approvals/<token>", 200),
        ("/approvals/<token>", 409),
        ("/approvals/<token>", 403),
    ]
    assert [one["key"] for one in asked] == ["link of the team's chat", "link of the team's chat", "nobody"]
    assert link.rpartition("/")[2] not in str(lines)


def test_redis_has_no_token_and_forgets_the_use_of_a_link_after_its_end(client, waits, app):
    link = waits(action(), deadline=now() + 5_000_000)
    used = app.extensions["server"].links.read(link.rpartition("/")[2])
    assert press(client, link, "approve").status_code == 200

    redis = app.extensions["server"].store.sandboxes._redis
    key = "{approvals}:link:" + used.identity
    assert 0 < redis.pttl(key) <= 65_000
    assert {name: value for name, value in redis.hgetall(key).items() if name != b"at"} == {b"decision": b"approve"}


@pytest.mark.process("waits for the end of a link")
def test_a_used_link_is_too_late_after_its_end(client, waits):
    link = waits(action(), deadline=now() + 5_000_000)
    assert press(client, link, "approve").status_code == 200

    wait_until(lambda: client.get(link).status_code == 410, "the end of the link")


# destinations


@pytest.fixture
def asked(app, client, links, redis_url):
    """Has a sandbox ask for a name; returns the link to decide it, and what asks again."""
    store = app.extensions["server"].store
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id

    def ask(program="curl"):
        store.destinations.verdict(sandbox, "example.org", 443, program)
        [item] = store.destinations.waiting(sandbox)
        link = links.make("", f"{sandbox} example.org:443", item.digest, "the team's chat").removeprefix(URL)
        return link, lambda: store.destinations.verdict(sandbox, "example.org", 443)

    return ask


def test_a_link_shows_what_a_sandbox_asks_to_reach_and_a_get_decides_nothing(client, asked):
    link, again = asked("<b>curl\u202e")
    shown = text(client.get(link))
    for words in ("May the sandbox reach this?", "example.org", "443", "<b>curl\\u{202e}", "Allow once", "Refuse"):
        assert words in shown
    assert "Risk" not in shown
    assert not again().is_allowed


def test_a_link_allows_one_connection_once_and_the_audit_names_its_target(app, client, asked):
    link, again = asked()
    assert "may connect once" in text(press(client, link, "approve"))
    assert [again().is_allowed for _ in range(2)] == [True, False]
    used = press(client, link, "approve")
    assert (used.status_code, "This link was used" in text(used)) == (409, True)
    found = client.get(
        "/api/v1/audit", query_string={"sort_order": "TIME_DESC", "actor_kind": "link", "limit": 1}, headers=ADMIN
    )
    [entry] = found.get_json()["items"]
    assert (entry["decision"], entry["scope"], entry["actor"]["name"]) == ("approve", "once", "the team's chat")
    assert entry["destination"]["name"] == "example.org"


def test_a_link_refuses_with_a_reason_for_the_audit(client, asked):
    link, again = asked()
    assert "may not connect" in text(press(client, link, "reject", reason="Not now"))
    assert "a person rejected it" in again().reason


def test_a_link_whose_destination_was_decided_elsewhere_decides_nothing(app, client, asked):
    link, again = asked()
    store = app.extensions["server"].store
    store.destinations.decide(store.destinations.waiting()[0], "reject", "conversation", DecisionActor("key", "ada"))
    for response in (client.get(link), press(client, link, "approve")):
        assert response.status_code == 409
        assert "This destination does not wait" in text(response) or "This link was used" in text(response)
    assert not again().is_allowed


@pytest.mark.parametrize(
    ("verb", "words", "tokens"), [("approve", "has the same amount once more", 200), ("reject", "stays closed", 0)]
)
def test_a_link_decides_a_budget_once(app, client, links, redis_url, verb, words, tokens):
    store = app.extensions["server"].store
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id
    more = {"more": ModelBudget(tokens=200), "day": store.spending.so_far(sandbox).today}
    store.spending.refuse(sandbox, "", "MODEL_BUDGET_DAY", "127.0.0.1", 80, "Used up", **more)
    [item] = store.destinations.waiting(sandbox)
    link = links.make("", f"{sandbox} MODEL_BUDGET_DAY:0", item.digest, "the team's chat").removeprefix(URL)

    shown = text(client.get(link))
    assert all(one in shown for one in ("May this budget have the same amount again?", "MODEL_BUDGET_DAY", "200"))
    assert store.spending.of_day().all.allowed_tokens == 0
    assert words in text(press(client, link, verb))
    assert store.spending.of_day().all.allowed_tokens == tokens
    again = press(client, link, verb)
    assert (again.status_code, "This link was used" in text(again)) == (409, True)
    assert store.spending.of_day().all.allowed_tokens == tokens
