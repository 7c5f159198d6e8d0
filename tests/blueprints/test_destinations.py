"""`/api/v1/destinations` and `/api/v1/destination-rules`: listed, decided once by what was shown, revoked."""

from uuid import uuid4

import pytest

from core.prices import BUDGET_SETTINGS, ModelBudget
from tests.store.conftest import fresh_sandboxes, running_sandbox

URL, RULES = "/api/v1/destinations", "/api/v1/destination-rules"


@pytest.fixture
def sandbox(client, store, redis_url):
    """A running sandbox of a server without others, and without rules."""
    return running_sandbox(fresh_sandboxes(redis_url)).id


def ask(store, sandbox, name="example.org"):
    return store.destinations.verdict(sandbox, name, 443, "curl")


def decide(client, item, **members):
    bound = {name: item[name] for name in ("sandbox_id", "name", "port", "digest")}
    return client.post(f"{URL}/decisions", json=bound | {"decision": "approve", "scope": "conversation"} | members)


def test_a_destination_is_listed_and_decided_once(client, store, sandbox):
    ask(store, sandbox), ask(store, sandbox)
    [item] = client.get(URL, query_string={"sandbox_id": sandbox}).get_json()["items"]
    shown = {
        name: item[name] for name in ("subject", "sandbox_id", "conversation_id", "name", "port", "program", "tries")
    }
    assert shown == {
        "subject": "destination",
        "sandbox_id": sandbox,
        "conversation_id": None,
        "name": "example.org",
        "port": 443,
        "program": "curl",
        "tries": 2,
    }
    assert decide(client, item, digest=64 * "0").status_code == 409
    assert not ask(store, sandbox).is_allowed
    assert decide(client, item).get_json() == {"success": True, "rule_id": None}
    assert ask(store, sandbox).is_allowed
    assert decide(client, item).status_code == 404


def test_always_makes_a_rule_whose_revocation_closes(client, store, sandbox):
    ask(store, sandbox)
    [item] = client.get(URL).get_json()["items"]
    rule_id = decide(client, item, scope="always").get_json()["rule_id"]
    assert ask(store, sandbox).is_allowed
    [rule] = client.get(RULES).get_json()
    assert (rule["id"], rule["name"], rule["port"], rule["uses"]) == (rule_id, "example.org", 443, 1)
    assert client.delete(f"{RULES}/{rule_id}").get_json() == {"success": True}
    assert client.delete(f"{RULES}/{rule_id}").status_code == 404
    assert not ask(store, sandbox).is_allowed


def test_a_rule_of_a_suffix_is_made_once(client, store, sandbox):
    wanted = {"name": "*.example.org", "decision": "approve"}
    assert client.post(RULES, json=wanted).get_json()["port"] == 443
    assert client.post(RULES, json=wanted).status_code == 409
    assert ask(store, sandbox, "a.example.org").is_allowed


@pytest.mark.parametrize("name", ["*", "*.org", "10.0.0.1", "Example.org", "", 1])
def test_a_rule_without_a_right_name_is_refused_by_the_field(client, name):
    refused = client.post(RULES, json={"name": name, "decision": "approve"})
    assert refused.status_code == 422
    assert refused.get_json()["detail"][0]["loc"][-1] == "name"


def test_what_a_sandbox_reached_is_listed(client, store, sandbox):
    store.destinations.record(sandbox, "example.org", 443, "allowed", 10, 20)
    [reached] = client.get(f"/api/v1/sandboxes/{sandbox}/destinations").get_json()
    assert (reached["name"], reached["allowed"], reached["sent"], reached["received"]) == ("example.org", 1, 10, 20)
    assert client.get("/api/v1/sandboxes/none/destinations").status_code == 404


def test_pages_go_on_after_their_cursor(client, store, sandbox):
    for number in range(3):
        ask(store, sandbox, f"n{number}.example.org")
    first = client.get(URL, query_string={"limit": 2}).get_json()
    second = client.get(URL, query_string={"limit": 2, "page_id": first["next_page_id"]}).get_json()
    names = [one["name"] for one in first["items"] + second["items"]]
    assert (names, second["next_page_id"]) == ([f"n{number}.example.org" for number in range(3)], None)
    for cursor in ("x", "1-", "1-zz", "1-00"):
        refused = client.get(URL, query_string={"page_id": cursor})
        assert (refused.status_code, refused.get_json()["detail"][0]["loc"][-1]) == (422, "page_id")


def test_a_decision_is_audited_with_its_key_and_address(client, store, sandbox):
    ask(store, sandbox)
    [item] = client.get(URL).get_json()["items"]
    decide(client, item, scope="once", reason="Only now")
    found = client.get("/api/v1/audit", query_string={"sort_order": "TIME_DESC", "limit": 1}).get_json()
    [entry] = found["items"]
    assert entry["destination"] == {"name": "example.org", "port": 443, "sandbox_id": sandbox}
    assert (entry["decision"], entry["scope"], entry["reason"]) == ("approve", "once", "Only now")
    assert (entry["actor"]["kind"], entry["actor"]["address"]) == ("key", "127.0.0.1")
    assert entry["digests"] == [item["digest"]]
    chain = client.get("/api/v1/audit", query_string={"chain": entry["chain"]}).get_json()["items"]
    assert entry in chain
    both = {"chain": entry["chain"], "conversation_id": str(uuid4())}
    assert client.get("/api/v1/audit", query_string=both).status_code == 422
    assert client.get("/api/v1/audit", query_string={"chain": "destinations-x"}).status_code == 422


def refuse(store, sandbox, setting="MODEL_BUDGET_DAY") -> None:
    """Have a call of a model be refused by a budget that is used up."""
    found = store.spending.so_far(sandbox)
    whose = {"MODEL_BUDGET_CONVERSATION": found.conversation, "MODEL_BUDGET_KEY": found.key}.get(setting, found.day)
    allowed = (whose.allowed_nanos, whose.allowed_tokens)
    why = f"Used up ({setting})"
    words = {"more": ModelBudget(5_000_000_000, 200), "day": found.today, "allowed": allowed}
    store.spending.refuse(sandbox, "", setting, "127.0.0.1", 80, why, **words)


def decide_budget(client, item, **members):
    bound = {"sandbox_id": item["sandbox_id"], "budget": item["budget"]["setting"], "digest": item["digest"]}
    return client.post(f"{URL}/decisions", json=bound | {"decision": "approve", "scope": "once"} | members)


@pytest.mark.parametrize("setting", BUDGET_SETTINGS)
def test_a_budget_that_is_used_up_is_listed_beside_destinations_and_allowed_once_more(client, store, sandbox, setting):
    ask(store, sandbox)
    refuse(store, sandbox, setting)
    _, item = client.get(URL, query_string={"sandbox_id": sandbox}).get_json()["items"]
    assert (item["subject"], item["sandbox_id"], item["name"], item["port"]) == ("budget", sandbox, None, None)
    budget = item["budget"]
    assert (budget["setting"], budget["dollars"], budget["tokens"]) == (setting, 5.0, 200)
    assert (budget["key_id"] == "") is (setting == "MODEL_BUDGET_KEY")
    assert (budget["day"] is None) is (setting == "MODEL_BUDGET_CONVERSATION")

    assert decide_budget(client, item, digest=64 * "0").status_code == 409
    assert decide_budget(client, item).get_json() == {"success": True, "rule_id": None}
    assert decide_budget(client, item).status_code == 404
    account = store.spending.so_far(sandbox)
    of = {"MODEL_BUDGET_CONVERSATION": account.conversation, "MODEL_BUDGET_KEY": account.key}.get(setting, account.day)
    assert (of.allowed_nanos, of.allowed_tokens) == (5_000_000_000, 200)


def test_a_budget_is_never_allowed_always(client, store, sandbox):
    refuse(store, sandbox)
    [item] = client.get(URL).get_json()["items"]
    for decision, scope in (("approve", "always"), ("approve", "conversation"), ("reject", "once")):
        refused = decide_budget(client, item, decision=decision, scope=scope)
        assert refused.status_code == 422
        [detail] = refused.get_json()["detail"]
        assert detail["loc"] == ["body", "scope"]
        assert "always is not offered, for that an operator raises MODEL_BUDGET_DAY" in detail["msg"]
    assert decide_budget(client, item, decision="reject", scope="conversation").status_code == 200
    refuse(store, sandbox)
    assert client.get(URL).get_json()["items"] == []


@pytest.mark.parametrize(
    ("members", "member"),
    [
        ({}, "name"),
        ({"name": "example.org"}, "port"),
        ({"budget": "MODEL_BUDGET_DAY", "port": 443}, "budget"),
        ({"budget": "MODEL_BUDGET_YEAR"}, "budget"),
    ],
)
def test_a_decision_is_of_a_name_and_a_port_or_of_a_budget(client, members, member):
    decision = {"sandbox_id": "s", "decision": "approve", "scope": "once", "digest": 64 * "0"}
    refused = client.post(f"{URL}/decisions", json=decision | members)
    assert refused.status_code == 422
    assert refused.get_json()["detail"][0]["loc"] == ["body", member]


def test_a_decision_about_a_budget_is_audited_with_its_setting_and_key(client, store, sandbox):
    refuse(store, sandbox, "MODEL_BUDGET_KEY")
    [item] = client.get(URL).get_json()["items"]
    decide_budget(client, item, reason="Go on")
    [entry] = client.get("/api/v1/audit", query_string={"sort_order": "TIME_DESC", "limit": 1}).get_json()["items"]
    assert entry["budget"] == {"setting": "MODEL_BUDGET_KEY", "sandbox_id": sandbox}
    assert "destination" not in entry
    assert (entry["decision"], entry["scope"], entry["reason"]) == ("approve", "once", "Go on")
    assert entry["digests"] == [item["digest"]]


def test_pages_go_on_after_the_cursor_of_a_budget(client, store, sandbox):
    for setting in BUDGET_SETTINGS:
        refuse(store, sandbox, setting)
    found, cursor = [], None
    for _ in range(3):
        query = {"limit": 1, "sandbox_id": sandbox} | ({"page_id": cursor} if cursor else {})
        page = client.get(URL, query_string=query).get_json()
        found, cursor = found + page["items"], page["next_page_id"]
    assert cursor is None
    assert {one["budget"]["setting"] for one in found} == set(BUDGET_SETTINGS)
