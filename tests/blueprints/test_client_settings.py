"""What a key keeps for its clients: settings, secrets and profiles, sealed; and starts, which open what they name."""

from uuid import uuid4

import pytest

from core.bounds import MOST_SECRETS_BYTES
from core.refused import RefusalKind, Refused
from schemas.conversations import MOST_SECRET_BYTES
from store.access.client_settings import MOST_BYTES
from store.keys import ClientKeys
from tests.blueprints import KEYS

MINE, THEIRS = ({"X-Session-API-Key": key} for key in KEYS)
SEALED = {"X-Expose-Secrets": "encrypted"}
MASK = "**********"
LLM = {"model": "openai/gpt-x", "api_key": "sk-hush-hush", "base_url": "https://llm.example/v1"}


@pytest.fixture
def redis(keyed):
    return keyed.extensions["server"].store.access.settings._redis


def patched(caller, headers=MINE, **diffs):
    return caller.patch("/api/settings", json={f"{name}_diff": diff for name, diff in diffs.items()}, headers=headers)


def scoped(caller, *scopes):
    made = caller.post("/api/v1/keys", json={"name": "scoped", "scopes": list(scopes)}, headers=MINE).get_json()
    return made["id"], {"X-Session-API-Key": made["key"]}


class KeptStart(Refused):
    """Ends a start where its request has been made: no supervisor runs here that would take it."""

    kind = RefusalKind.LATER
    words = "Kept"


def started(keyed, caller, body, headers=MINE):
    """The start task that a request makes and the body that an agent server would get, or the refusal."""
    conversation_id, seen = str(uuid4()), []
    tasks = keyed.extensions["server"].store.start_tasks
    create_once = tasks.create_once

    def keep(identity, task, given, **options):
        seen.append((task, given["body"]))
        raise KeptStart

    tasks.create_once = keep
    try:
        response = caller.post("/api/conversations", json={"conversation_id": conversation_id, **body}, headers=headers)
    finally:
        tasks.create_once = create_once
    return seen[0] if seen else response


def test_settings_begin_with_what_the_spec_of_agents_says(caller):
    settings = caller.get("/api/settings", headers=MINE).get_json()

    assert settings["agent_settings"] == {"schema_version": 9, "agent_kind": "openhands", "llm": {}, "mcp_config": {}}
    assert settings["conversation_settings"]["confirmation_mode"] is True  # as the bundled spec has it
    assert (settings["llm_api_key_is_set"], settings["active_profile"], settings["misc_settings"]) == (False, None, {})


def test_a_change_is_merged_null_removes_and_a_mask_keeps_a_secret(caller):
    patched(caller, agent_settings={"llm": LLM, "tools": [{"name": "terminal"}]}, misc_settings={"a": {"b": 1, "c": 2}})
    changed = patched(
        caller,
        agent_settings={"llm": {"api_key": MASK, "base_url": None}, "tools": None},
        misc_settings={"a": {"b": None}},
        conversation_settings={"max_iterations": 7},
    ).get_json()

    assert changed["agent_settings"]["llm"] == {"model": LLM["model"], "api_key": MASK}
    assert "tools" not in changed["agent_settings"]
    assert changed["misc_settings"] == {"a": {"c": 2}}
    assert changed["conversation_settings"]["max_iterations"] == 7
    assert changed == caller.get("/api/settings", headers=MINE).get_json()
    sealed = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]["llm"]["api_key"]
    assert sealed.startswith("gAAAAA")


def test_the_password_of_a_url_is_masked_and_comes_back_masked_or_sealed(caller, keyed):
    url = "https://me:hush-hush@llm.example/v1"
    shown = patched(caller, agent_settings={"llm": {**LLM, "base_url": url}}).get_json()
    assert shown["agent_settings"]["llm"]["base_url"] == MASK
    sealed = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]["llm"]["base_url"]
    assert "hush" not in sealed

    for carried in (MASK, sealed):
        patched(caller, agent_settings={"llm": {"base_url": carried}})
        settings = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]
        _, body = started(keyed, caller, {"agent_settings": settings, "secrets_encrypted": True})
        assert body["agent_settings"]["llm"]["base_url"] == url


def test_a_sealed_secret_in_a_visible_member_stays_sealed(caller):
    patched(caller, agent_settings={"llm": LLM})
    sealed = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]["llm"]["api_key"]

    shown = patched(caller, agent_settings={"llm": {"model": sealed}}).get_json()

    assert shown["agent_settings"]["llm"]["model"] == sealed


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, []),
        ({"agent_settings_diff": {"agent_kind": "robot"}}, ["agent_settings_diff", "agent_kind"]),
        ({"agent_settings_diff": {"llm": {"model": 5}}}, ["agent_settings_diff", "llm", "model"]),
        ({"conversation_settings_diff": {"max_iterations": 0}}, ["conversation_settings_diff", "max_iterations"]),
        ({"active_profile": "../x"}, ["active_profile"]),
        ({"active_agent_profile_id": "x"}, ["active_agent_profile_id"]),
    ],
)
def test_a_change_that_is_none_is_422_and_names_the_member(caller, body, place):
    response = caller.patch("/api/settings", json=body, headers=MINE)

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"][: len(place) + 1] == ["body", *place]


def test_a_pointer_to_a_profile_that_does_not_exist_is_404(caller):
    for body in ({"active_profile": "none"}, {"active_agent_profile_id": str(uuid4())}):
        assert caller.patch("/api/settings", json=body, headers=MINE).status_code == 404


def test_no_response_and_no_value_in_redis_has_a_secret_in_plain_text(caller, redis):
    patched(
        caller,
        agent_settings={"llm": LLM, "mcp_config": {"m": {"url": "https://m.example", "headers": {"X": "hush-3"}}}},
    )
    caller.post("/api/profiles/mine", json={"llm": LLM}, headers=MINE)
    caller.put("/api/settings/secrets", json={"name": "TOKEN", "value": "hush-2"}, headers=MINE)

    for path in ("settings", "settings/secrets", "profiles", "profiles/mine", "agent-profiles"):
        for headers in (MINE, MINE | SEALED):
            assert "hush" not in caller.get(f"/api/{path}", headers=headers).get_data(as_text=True)
    kept = redis.hgetall(ClientKeys.root("settings-1"))
    assert len(kept) > 4
    assert b"hush" not in b"".join([*kept, *kept.values()])


def test_secrets_are_never_shown_in_plain_text_nor_sealed_to_a_key_that_only_reads(caller):
    patched(caller, agent_settings={"llm": LLM})

    refused = caller.get("/api/settings", headers={**MINE, "X-Expose-Secrets": "plaintext"})
    assert (refused.status_code, refused.get_json()["detail"][0]["loc"]) == (422, ["header", "X-Expose-Secrets"])
    _, reader = scoped(caller, "read")
    assert caller.get("/api/settings", headers=reader).status_code == 200
    refused = caller.get("/api/settings", headers=reader | SEALED)
    assert (refused.status_code, "write" in refused.get_json()["detail"]) == (403, True)
    assert caller.get("/api/settings/secrets/TOKEN", headers=MINE).status_code == 405
    assert caller.patch("/api/settings", json={"misc_settings_diff": {}}, headers=reader).status_code == 403


def test_a_key_never_sees_what_another_keeps(caller):
    patched(caller, agent_settings={"llm": LLM})
    caller.post("/api/profiles/mine", json={"llm": LLM}, headers=MINE)
    caller.put("/api/settings/secrets", json={"name": "TOKEN", "value": "hush"}, headers=MINE)

    assert caller.get("/api/settings", headers=THEIRS).get_json()["agent_settings"]["llm"] == {}
    assert caller.get("/api/profiles", headers=THEIRS).get_json()["profiles"] == []
    assert caller.get("/api/profiles/mine", headers=THEIRS).status_code == 404
    assert caller.get("/api/settings/secrets", headers=THEIRS).get_json() == {"secrets": []}
    assert caller.delete("/api/settings/secrets/TOKEN", headers=THEIRS).status_code == 404


def test_a_revoked_key_keeps_nothing(caller, redis):
    key_id, writer = scoped(caller, "write")
    patched(caller, headers=writer, misc_settings={"a": 1})
    assert redis.exists(ClientKeys.root(key_id))

    caller.delete(f"/api/v1/keys/{key_id}", headers=MINE)

    assert not redis.exists(ClientKeys.root(key_id))


def test_profiles_and_bytes_of_a_key_are_bounded_by_errors_that_say_so(caller):
    for number in range(50):
        assert caller.post(f"/api/profiles/p{number}", json={"llm": LLM}, headers=MINE).status_code == 201
    refused = caller.post("/api/profiles/more", json={"llm": LLM}, headers=MINE)
    assert (refused.status_code, "50 profiles" in refused.get_json()["detail"]) == (409, True)
    assert caller.post("/api/profiles/p1", json={"llm": LLM}, headers=MINE).status_code == 201

    noise = "".join(uuid4().hex for _ in range(MOST_BYTES // 16))
    refused = patched(caller, misc_settings={"noise": noise})
    assert (refused.status_code, str(MOST_BYTES) in refused.get_json()["detail"]) == (413, True)
    assert caller.get("/api/settings", headers=MINE).get_json()["misc_settings"] == {}


def test_a_server_without_a_secret_key_shows_settings_and_keeps_none(keyless):
    assert keyless.get("/api/settings").status_code == 200
    refused = keyless.patch("/api/settings", json={"misc_settings_diff": {"a": 1}})
    assert (refused.status_code, "SECRET_KEY" in refused.get_json()["detail"]) == (503, True)


def test_a_change_between_a_read_and_a_write_is_not_undone(keyed, caller):
    settings = keyed.extensions["server"].store.access.settings
    calls, kept = [], {"value": "x", "description": None}

    def change(entries):
        if not calls:
            calls.append(1)
            settings.change("settings-1", lambda others: others.update({"secret A": kept}))
        entries["secret B"] = kept

    settings.change("settings-1", change)

    names = [one["name"] for one in caller.get("/api/settings/secrets", headers=MINE).get_json()["secrets"]]
    assert names == ["A", "B"]


@pytest.mark.parametrize("name", ["1A", "A-B", "A" * 65, "A B"])
def test_a_secret_with_another_name_than_a_variable_has_is_422(caller, name):
    refused = caller.put("/api/settings/secrets", json={"name": name, "value": "x"}, headers=MINE)
    assert (refused.status_code, refused.get_json()["detail"][0]["loc"]) == (422, ["body", "name"])


def test_an_active_profile_is_the_model_of_the_settings_and_follows_its_new_name(caller):
    caller.post("/api/profiles/mine", json={"llm": LLM}, headers=MINE)
    caller.post("/api/agent-profiles/helper", json={"llm_profile_ref": "mine"}, headers=MINE)
    assert caller.post("/api/profiles/mine/activate", headers=MINE).get_json()["llm_applied"] is True
    assert caller.get("/api/settings", headers=MINE).get_json()["agent_settings"]["llm"]["model"] == LLM["model"]

    caller.post("/api/profiles/mine/rename", json={"new_name": "ours"}, headers=MINE)

    assert caller.get("/api/settings", headers=MINE).get_json()["active_profile"] == "ours"
    assert caller.get("/api/agent-profiles/helper", headers=MINE).get_json()["profile"]["llm_profile_ref"] == "ours"
    used = caller.delete("/api/profiles/ours", headers=MINE)
    assert (used.status_code, "helper" in used.get_json()["detail"]) == (409, True)


def test_an_agent_profile_keeps_its_id_and_a_draft_is_judged(caller):
    caller.post("/api/profiles/mine", json={"llm": LLM}, headers=MINE)
    for text in ("first", "second"):
        body = {"llm_profile_ref": "mine", "system_message_suffix": text}
        caller.post("/api/agent-profiles/helper", json=body, headers=MINE)
    profile = caller.get("/api/agent-profiles/helper", headers=MINE).get_json()["profile"]
    assert (profile["revision"], profile["system_message_suffix"]) == (1, "second")

    report = caller.post("/api/agent-profiles/helper/materialize", headers=MINE).get_json()
    assert (report["valid"], report["llm_api_key_set"]) == (True, True)
    assert report["resolved_settings"]["llm"] == {**LLM, "api_key": MASK}
    draft = {"profile": {"llm_profile_ref": "none", "mcp_server_refs": ["gone"]}}
    report = caller.post("/api/agent-profiles/helper/materialize", json=draft, headers=MINE).get_json()
    assert (report["valid"], len(report["errors"]), report["resolved_settings"]) == (False, 2, None)


def test_without_profiles_the_default_agent_follows_the_settings(caller):
    listed = caller.get("/api/agent-profiles", headers=MINE).get_json()
    assert [one["name"] for one in listed["profiles"]] == ["default"]
    assert listed == caller.get("/api/agent-profiles", headers=MINE).get_json()
    assert listed["active_agent_profile_id"] == listed["profiles"][0]["id"]


def test_a_start_opens_what_was_sealed_for_its_key(keyed, caller):
    patched(caller, agent_settings={"llm": LLM})
    settings = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]
    assert settings["llm"]["api_key"] != LLM["api_key"]

    _, body = started(keyed, caller, {"agent_settings": settings, "secrets_encrypted": True})

    assert body["agent_settings"]["llm"] == LLM
    assert body["secrets_encrypted"] is False
    _, body = started(keyed, caller, {"agent": {"llm": {"model": "m"}}, "secrets": {"TOKEN": "gAAAAA-of-the-user"}})
    assert body["secrets"] == {"TOKEN": "gAAAAA-of-the-user"}  # nobody says that this is sealed


def test_a_start_with_what_was_sealed_for_another_key_is_422(keyed, caller):
    patched(caller, agent_settings={"llm": LLM})
    settings = caller.get("/api/settings", headers=MINE | SEALED).get_json()["agent_settings"]

    refused = started(keyed, caller, {"agent_settings": settings, "secrets_encrypted": True}, headers=THEIRS)

    assert refused.status_code == 422
    assert "not sealed it for this key" in refused.get_json()["detail"][0]["msg"]


def test_a_start_with_an_agent_profile_gets_the_model_of_that_profile(keyed, caller):
    caller.post("/api/profiles/mine", json={"llm": LLM}, headers=MINE)
    caller.post("/api/agent-profiles/helper", json={"llm_profile_ref": "mine", "secret_refs": []}, headers=MINE)
    identity = caller.get("/api/agent-profiles/helper", headers=MINE).get_json()["profile"]["id"]

    task, body = started(keyed, caller, {"agent_profile_id": identity, "secrets": {"OTHER": "x"}})

    assert body["agent_settings"]["llm"] == LLM
    assert "agent_profile_id" not in body
    assert (body["secrets"], task["secrets"]) == ({}, None)


def test_a_start_that_looks_up_a_kept_secret_gets_its_value(keyed, caller):
    caller.put("/api/settings/secrets", json={"name": "TOKEN", "value": "hush", "description": "d"}, headers=MINE)
    secrets = {
        "TOKEN": {"kind": "LookupSecret", "url": "/api/settings/secrets/TOKEN"},
        "ELSEWHERE": {"kind": "LookupSecret", "url": "https://other.example/api/settings/secrets/TOKEN"},
    }

    task, body = started(keyed, caller, {"agent": {"llm": LLM}, "secrets": secrets})

    assert body["secrets"]["TOKEN"] == {"kind": "StaticSecret", "value": "hush", "description": "d"}
    assert body["secrets"]["ELSEWHERE"] == secrets["ELSEWHERE"]
    assert task["secrets"] == body["secrets"]
    gone = {"GONE": {"kind": "LookupSecret", "url": "/api/settings/secrets/GONE"}}
    assert started(keyed, caller, {"agent": {"llm": LLM}, "secrets": gone}).status_code == 404


def test_the_largest_kept_secret_starts_an_agent_and_one_that_is_looked_up_too_often_is_refused(keyed, caller):
    kept = {"name": "TOKEN", "value": "é" * (MOST_SECRET_BYTES // len(r"\u00e9"))}
    assert caller.put("/api/settings/secrets", json=kept, headers=MINE).status_code == 200
    larger = caller.put("/api/settings/secrets", json={**kept, "value": kept["value"] + "é"}, headers=MINE)
    assert (larger.status_code, larger.get_json()["detail"][0]["loc"]) == (422, ["body", "value"])
    lookup = {"kind": "LookupSecret", "url": "/api/settings/secrets/TOKEN"}

    _, body = started(keyed, caller, {"agent": {"llm": LLM}, "secrets": {"A": lookup}})
    assert body["secrets"]["A"]["value"] == kept["value"]
    often = {f"A{number}": lookup for number in range(MOST_SECRETS_BYTES // MOST_SECRET_BYTES + 1)}
    refused = started(keyed, caller, {"agent": {"llm": LLM}, "secrets": often})
    assert (refused.status_code, refused.get_json()["detail"][0]["loc"]) == (422, ["body", "secrets"])


def test_no_log_line_has_a_secret(caller, capfd):
    caller.put("/api/settings/secrets", json={"name": "TOKEN", "value": "hush-hush"}, headers=MINE)
    caller.post("/api/profiles/mine", json={"llm": LLM}, headers=MINE)
    said = capfd.readouterr()
    assert "hush" not in said.out + said.err


GITHUB = {
    "transport": "http",
    "url": "https://github.example/mcp",
    "auth": {"strategy": "bearer", "value": "hush-hush"},
}


def servers(caller, method="GET", path="", status=200, **options):
    """The servers of tools that the settings have after a call."""
    response = caller.open(f"/api/settings{path}", method=method, headers=MINE, **options)
    assert response.status_code == status, response.text
    return response.get_json()["agent_settings"]["mcp_config"]


def sealed_value(caller):
    """The credential of the server `github`, sealed for its key."""
    settings = caller.get("/api/settings", headers=MINE | SEALED).get_json()
    return settings["agent_settings"]["mcp_config"]["github"]["auth"]["value"]


def test_a_server_of_tools_keeps_its_credential_while_another_comes_changes_and_goes(caller):
    made = servers(caller, "POST", "/mcp/github", 201, json=GITHUB)
    servers(caller, "POST", "/mcp/docs", 201, json={"transport": "http", "url": "https://docs.example/mcp"})
    changed = servers(caller, "PATCH", "/mcp/docs", json={"description": "Documentation"})
    left = servers(caller, "DELETE", "/mcp/docs")

    assert made["github"]["auth"] == {"strategy": "bearer", "value": MASK}
    assert changed["docs"]["description"] == "Documentation"
    assert {*left} == {"github"}
    assert left["github"] == made["github"]
    assert sealed_value(caller) not in ("", MASK, GITHUB["auth"]["value"])


def test_a_server_of_tools_is_switched_off_and_loses_nothing_and_null_removes_a_member(caller):
    servers(caller, "POST", "/mcp/github", 201, json=GITHUB)

    off = servers(caller, "PATCH", "/mcp/github", json={"enabled": False})["github"]
    described = servers(caller, "PATCH", "/mcp/github", json={"description": "GitHub"})["github"]
    bare = servers(caller, "PATCH", "/mcp/github", json={"auth": None})["github"]

    assert (off["enabled"], off["url"], off["auth"]["value"]) == (False, GITHUB["url"], MASK)
    assert (described["enabled"], described["description"]) == (False, "GitHub")
    assert "auth" not in bare


def test_a_server_of_tools_is_made_once_and_one_that_is_missing_is_neither_changed_nor_deleted(caller):
    servers(caller, "POST", "/mcp/github", 201, json=GITHUB)
    other = {"transport": "http", "url": "https://replacement.example/mcp"}

    again = caller.post("/api/settings/mcp/github", json=other, headers=MINE)
    patch = caller.patch("/api/settings/mcp/missing", json={"description": "Missing"}, headers=MINE)
    delete = caller.delete("/api/settings/mcp/missing", headers=MINE)

    assert (again.status_code, patch.status_code, delete.status_code) == (409, 404, 404)
    assert servers(caller)["github"]["url"] == GITHUB["url"]


@pytest.mark.parametrize(
    "body",
    [
        {"agent": {"llm": {"model": "m", "api_key": "sk-never-told"}}, "max_iterations": "sk-never-told"},
        {"agent": "sk-never-told"},
        {"confirmation_policy": {"kind": "sk-never-told"}},
    ],
)
def test_a_refused_start_repeats_nothing_of_what_was_sent(caller, body):
    response = caller.post("/api/conversations", json=body, headers=MINE)

    assert response.status_code == 422
    assert response.get_json()["detail"]
    assert "sk-never-told" not in response.text
