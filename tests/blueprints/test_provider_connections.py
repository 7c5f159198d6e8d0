"""Provider connections: a key and a base URL that several of a key's profiles share."""

import pytest

from agents.provider_connections import MOST_CONNECTIONS
from app import create_app
from settings.config import Config
from tests.blueprints.test_client_settings import LLM, MASK, MINE, SEALED, THEIRS, patched, started
from tests.conftest import LIMITS, SECRET_KEY

CONNECTIONS = "/api/llm/provider-connections"
OURS = {
    "display_name": "Ours",
    "provider": "openai",
    "api_key": "sk-shared-hush",
    "base_url": "https://ours.example/v1",
}

SPEC = """
[[spec]]
id = "brought"
own_agents = true
command = ["true"]
created_at = 2026-11-21T00:00:00Z
initial_env = { LLM_MODEL = "openai/of-the-spec", LLM_BASE_URL = "https://spec.example/v1" }
"""


def created(caller, headers=MINE, **members):
    response = caller.post(CONNECTIONS, json=OURS | members, headers=headers)
    assert response.status_code == 201, response.text
    return response.get_json()


def changed(caller, connection, **members):
    response = caller.patch(f"{CONNECTIONS}/{connection['id']}", json=members, headers=MINE)
    assert response.status_code == 200, response.text
    return response.get_json()


def linked(caller, connection, name="mine", **members):
    """Keep a profile that names a connection."""
    llm = {"model": LLM["model"], "provider_connection_id": connection["id"], **members}
    response = caller.post(f"/api/profiles/{name}", json={"llm": llm}, headers=MINE)
    assert response.status_code == 201, response.text


def with_agent(caller, profile):
    """The body of a start with an agent of a model's profile."""
    caller.post("/api/agent-profiles/helper", json={"llm_profile_ref": profile}, headers=MINE)
    return {"agent_profile_id": caller.get("/api/agent-profiles/helper", headers=MINE).get_json()["profile"]["id"]}


def fault(response):
    assert response.status_code == 422, response.text
    [one] = response.get_json()["detail"]
    return one["loc"], one["msg"]


def test_a_connection_is_made_listed_changed_and_deleted_and_never_shows_its_key(caller):
    first = created(caller)
    assert {name: first[name] for name in ("display_name", "provider", "base_url", "api_key_set")} == {
        "display_name": "Ours",
        "provider": "openai",
        "base_url": OURS["base_url"],
        "api_key_set": True,
    }
    assert first["created_at"] == first["updated_at"] > 1_700_000_000
    second = caller.post(CONNECTIONS, json={"display_name": "B", "api_key": "k"}, headers=MINE).get_json()
    assert (second["provider"], second["base_url"]) == ("custom", None)
    assert caller.get(CONNECTIONS, headers=MINE).get_json() == [first, second]

    renamed = changed(caller, first, display_name="Renamed", base_url=None)
    assert (renamed["display_name"], renamed["base_url"]) == ("Renamed", None)
    deleted = caller.delete(f"{CONNECTIONS}/{first['id']}", headers=MINE)
    assert (deleted.status_code, deleted.get_json()) == (200, {**renamed, "api_key_set": False})
    assert caller.get(CONNECTIONS, headers=MINE | SEALED).get_json() == [second]


def test_no_response_and_no_value_in_redis_has_the_key_of_a_connection(keyed, caller):
    connection = created(caller, base_url="https://me:pass-hush@ours.example/v1")
    assert connection["base_url"] == MASK
    assert changed(caller, connection, base_url=MASK)["base_url"] == MASK
    linked(caller, connection)
    caller.post("/api/profiles/mine/activate", headers=MINE)
    shown = [
        caller.get(path, headers=headers).text
        for path in (CONNECTIONS, "/api/profiles", "/api/profiles/mine", "/api/settings")
        for headers in (MINE, MINE | SEALED)
    ]
    kept = keyed.extensions["server"].store.access.settings._redis.hgetall("client:{settings-1}")
    assert "hush" not in f"{shown} {kept}"

    _, body = started(keyed, caller, with_agent(caller, "mine"))
    assert body["agent_settings"]["llm"]["base_url"] == "https://me:pass-hush@ours.example/v1"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"api_key": "k"}, ["display_name"]),
        ({"display_name": "", "api_key": "k"}, ["display_name"]),
        ({"display_name": "x" * 129, "api_key": "k"}, ["display_name"]),
        ({"display_name": "x", "provider": "", "api_key": "k"}, ["provider"]),
        ({"display_name": "x"}, ["api_key"]),
        ({"display_name": "x", "api_key": " \n"}, ["api_key"]),
        ({"display_name": "x", "api_key": MASK}, ["api_key"]),
        ({"display_name": "x", "api_key": "k", "base_url": "x" * 2049}, ["base_url"]),
        ({"display_name": "x", "api_key": "k", "models": []}, ["models"]),
    ],
)
def test_a_connection_that_is_none_is_422_and_names_the_member(caller, body, place):
    loc, _ = fault(caller.post(CONNECTIONS, json=body, headers=MINE))
    assert loc == ["body", *place]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"display_name": None},
        {"provider": None},
        {"api_key": None},
        {"api_key": MASK},
        {"api_key": ""},
        {"id": "x"},
    ],
)
def test_a_change_that_leaves_no_connection_is_422_and_changes_nothing(caller, body):
    connection = created(caller)
    assert caller.patch(f"{CONNECTIONS}/{connection['id']}", json=body, headers=MINE).status_code == 422
    assert caller.get(CONNECTIONS, headers=MINE).get_json() == [connection]


def test_a_key_reaches_no_connection_of_another_key(keyed, caller):
    connection = created(caller)
    path, llm = f"{CONNECTIONS}/{connection['id']}", {"model": "m", "provider_connection_id": connection["id"]}

    assert caller.get(CONNECTIONS, headers=THEIRS).get_json() == []
    assert caller.patch(path, json={"api_key": "k"}, headers=THEIRS).status_code == 404
    assert caller.delete(path, headers=THEIRS).status_code == 404
    saved = caller.post("/api/profiles/x", json={"llm": llm}, headers=THEIRS)
    set_ = caller.patch("/api/settings", json={"agent_settings_diff": {"llm": llm}}, headers=THEIRS)
    checked = caller.post("/api/profiles/x/validate", json={"llm": llm}, headers=THEIRS)
    start = started(keyed, caller, {"agent": {"llm": llm}}, headers=THEIRS)
    for response, member in ((saved, "llm"), (set_, "agent_settings_diff"), (checked, "llm"), (start, "agent")):
        loc, words = fault(response)
        assert loc == ["body", member]
        assert "which this key does not have" in words


def test_a_key_that_only_reads_lists_connections_and_changes_none(caller):
    made = caller.post("/api/v1/keys", json={"name": "reader", "scopes": ["read"]}, headers=MINE).get_json()
    reader = {"X-Session-API-Key": made["key"]}
    assert caller.get(CONNECTIONS, headers=reader).get_json() == []
    assert caller.post(CONNECTIONS, json=OURS, headers=reader).status_code == 403
    for method in (caller.patch, caller.delete):
        assert method(f"{CONNECTIONS}/x", json={"provider": "x"}, headers=reader).status_code == 403


def test_connections_of_a_key_are_bounded_by_an_error_that_says_so(caller):
    for _ in range(MOST_CONNECTIONS):
        created(caller)
    refused = caller.post(CONNECTIONS, json=OURS, headers=MINE)
    assert refused.status_code == 409
    assert refused.get_json()["detail"] == "A key keeps at most 64 provider connections: delete one first"


def test_a_linked_profile_has_no_key_of_its_own_and_says_whether_its_connection_has_one(caller):
    connection = created(caller)
    linked(caller, connection, api_key="sk-own", base_url="https://own.example")

    [profile] = caller.get("/api/profiles", headers=MINE).get_json()["profiles"]
    assert (profile["provider_connection_id"], profile["api_key_set"], profile["base_url"]) == (
        connection["id"],
        True,
        None,
    )
    assert profile["provider_connection_broken"] is False
    detail = caller.get("/api/profiles/mine", headers=MINE | SEALED).get_json()
    assert detail["api_key_set"] is True
    assert detail["config"] == {"model": LLM["model"], "provider_connection_id": connection["id"]}


def test_a_start_with_a_linked_profile_gets_just_what_one_with_its_own_key_gets(keyed, caller):
    linked(caller, created(caller))
    _, body = started(keyed, caller, with_agent(caller, "mine"))

    own = {"model": LLM["model"], "api_key": OURS["api_key"], "base_url": OURS["base_url"]}
    caller.post("/api/profiles/own", json={"llm": own}, headers=MINE)
    _, expected = started(keyed, caller, with_agent(caller, "own"))
    for one in (body, expected):
        del one["conversation_id"]
    assert body == expected
    assert body["agent_settings"]["llm"] == own


def test_a_later_start_uses_the_connection_as_it_is_then(keyed, caller):
    connection = created(caller)
    linked(caller, connection)
    caller.post("/api/profiles/mine/activate", headers=MINE)
    shown = caller.get("/api/settings", headers=MINE).get_json()
    assert shown["agent_settings"]["llm"]["base_url"] == OURS["base_url"]
    assert (shown["agent_settings"]["llm"]["api_key"], shown["llm_api_key_is_set"]) == (MASK, True)
    carried = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]
    changed(caller, connection, api_key="sk-rotated", base_url=None)

    default = caller.get("/api/agent-profiles", headers=MINE).get_json()["active_agent_profile_id"]
    for body in (
        with_agent(caller, "mine"),
        {"agent_profile_id": default},
        {"agent_settings": carried, "secrets_encrypted": True},
        {"agent": {"llm": {"model": LLM["model"], "provider_connection_id": connection["id"]}}},
    ):
        _, sent = started(keyed, caller, body)
        assert sent.get("agent_settings", sent.get("agent"))["llm"] == {"model": LLM["model"], "api_key": "sk-rotated"}


def test_the_address_of_the_specs_model_never_gets_the_key_of_a_connection(redis_url, tmp_path):
    """The template's base URL is that of its own model: a connection without one means its provider."""
    specs = tmp_path / "specs.toml"
    specs.write_text(SPEC)
    config = Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, sandbox_specs=str(specs), **LIMITS)
    app = create_app(config)
    app.extensions["server"].store.access.settings.forget("anyone")
    caller = app.test_client()
    connection = created(caller, base_url=None)
    llm = {"model": "openai/of-the-spec", "provider_connection_id": connection["id"]}
    patched(caller, agent_settings={"llm": llm})

    default = caller.get("/api/agent-profiles").get_json()["active_agent_profile_id"]
    _, body = started(app, caller, {"agent_profile_id": default})
    assert body["agent_settings"]["llm"] == {"model": "openai/of-the-spec", "api_key": OURS["api_key"]}


def test_a_link_that_was_kept_before_there_were_connections_is_shown_as_broken_and_starts_nothing(keyed, caller):
    def link(entries):
        llm = {"model": LLM["model"], "provider_connection_id": "gone"}
        entries |= {"llm old": llm, "settings": {"agent_settings": {"llm": llm}, "active_profile": "old"}}

    keyed.extensions["server"].store.access.settings.change("settings-1", link)

    [profile] = caller.get("/api/profiles", headers=MINE).get_json()["profiles"]
    assert (profile["provider_connection_broken"], profile["api_key_set"]) == (True, False)
    for path in ("/api/profiles/old", "/api/settings", "/api/llm/models", "/api/agent-profiles"):
        assert caller.get(path, headers=MINE).status_code == 200
    report = caller.post("/api/agent-profiles/default/materialize", headers=MINE).get_json()
    assert (report["valid"], report["errors"]) == (False, ["The model's provider connection gone does not exist"])
    loc, words = fault(started(keyed, caller, with_agent(caller, "old")))
    assert (loc, "'gone'" in words) == (["body", "agent_settings"], True)


def test_a_connection_that_is_used_is_kept_and_its_users_are_named(caller):
    connection = created(caller)
    linked(caller, connection, "b")
    linked(caller, connection, "a")
    caller.post("/api/profiles/b/activate", headers=MINE)
    path = f"{CONNECTIONS}/{connection['id']}"

    refused = caller.delete(path, headers=MINE)
    assert refused.status_code == 409
    assert refused.get_json()["detail"] == (
        "The provider connection Ours is used by the profiles a, b and by the settings. Give these models another "
        "connection or a key of their own first"
    )
    for name in ("a", "b"):
        caller.delete(f"/api/profiles/{name}", headers=MINE)
    assert "by the settings" in caller.delete(path, headers=MINE).get_json()["detail"]
    patched(caller, agent_settings={"llm": {"provider_connection_id": None, "api_key": "sk-own"}})
    assert caller.delete(path, headers=MINE).status_code == 200


@pytest.mark.parametrize("own", [{"api_key": "sk-own"}, {"base_url": "https://own.example"}])
def test_a_key_for_linked_settings_is_refused_with_a_next_step(caller, own):
    linked(caller, created(caller))
    caller.post("/api/profiles/mine/activate", headers=MINE)
    before = caller.get("/api/settings", headers=MINE).get_json()

    loc, words = fault(patched(caller, agent_settings={"llm": own}))
    assert loc == ["body", "agent_settings_diff"]
    assert "send provider_connection_id: null" in words
    assert caller.get("/api/settings", headers=MINE).get_json() == before

    back = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]["llm"]
    del back["provider_connection_id"]
    assert patched(caller, agent_settings={"llm": back}).status_code == 200  # just as it was shown
    ended = patched(caller, agent_settings={"llm": {"provider_connection_id": None, **own}}).get_json()
    assert "provider_connection_id" not in ended["agent_settings"]["llm"]


def test_a_sealed_key_makes_a_connection_and_no_visible_member_opens_one(keyed, caller):
    patched(caller, agent_settings={"llm": LLM})
    sealed = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]["llm"]["api_key"]
    connection = caller.post(CONNECTIONS, json=OURS | {"api_key": sealed}, headers=MINE).get_json()
    assert caller.post(CONNECTIONS, json=OURS | {"api_key": sealed}, headers=THEIRS).status_code == 422

    assert LLM["api_key"] not in caller.post(CONNECTIONS, json=OURS | {"provider": sealed[:128]}, headers=MINE).text
    linked(caller, connection)
    _, body = started(keyed, caller, with_agent(caller, "mine"))
    assert body["agent_settings"]["llm"]["api_key"] == LLM["api_key"]


def test_a_model_within_an_agent_may_have_a_connection_too(keyed, caller):
    llm = {"model": "small", "provider_connection_id": created(caller)["id"]}
    agent = {"llm": LLM, "condenser": {"kind": "LLMSummarizingCondenser", "llm": llm}}
    _, body = started(keyed, caller, {"agent": agent})
    shared = {name: OURS[name] for name in ("api_key", "base_url")}
    assert body["agent"] == {"llm": LLM, "condenser": {**agent["condenser"], "llm": {"model": "small", **shared}}}
