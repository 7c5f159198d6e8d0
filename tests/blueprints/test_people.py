"""People who come through a proxy that has authenticated them. Source: docs/access.md, "People"."""

import pytest
from flask import g

from core.people import MOST_GROUPS, MOST_NAME
from settings import ConfigError
from settings.config import Config
from tests.people import ELSEWHERE, PROXY, SECRET, SETTINGS, by, proxied_app, through
from tests.shared import ADMIN


@pytest.fixture(scope="module")
def proxied(redis_url):
    return proxied_app(redis_url)


@pytest.fixture
def client(proxied):
    return proxied.test_client()


@pytest.fixture
def grant(client):
    """Gives rights; they end with the test."""
    made = []

    def give(role, **wanted):
        response = client.post("/api/v1/grants", json={"role": role, **wanted}, **by())
        assert response.status_code == 201, response.json
        made.append(response.json["id"])
        return response.json["id"]

    yield give
    for one in made:
        client.delete(f"/api/v1/grants/{one}", **by())


def me(client, **request):
    return client.get("/api/v1/users/me", **request)


def test_a_person_whom_the_trusted_proxy_names_is_that_person(client, grant):
    grant("approve", person="ada@example.org")
    found = me(client, **through()).json
    assert (found["name"], found["person"], found["scopes"]) == (
        "ada@example.org",
        "ada@example.org",
        ["read", "approve"],
    )
    assert [(one["role"], one["tags"]) for one in found["grants"]] == [("approve", None)]


def test_a_person_has_the_rights_of_their_groups(client, grant):
    grant("approve", group="payments")
    found = me(client, **through(groups="staff, payments")).json
    assert (found["groups"], found["scopes"]) == (["payments", "staff"], ["read", "approve"])
    assert me(client, **through(groups="staff")).status_code == 403


def test_a_person_without_a_right_is_told_who_gives_one(client):
    refused = me(client, **through("nobody@example.org"))
    assert refused.status_code == 403
    assert refused.json["detail"] == "nobody@example.org has no right here: an admin gives one by POST /api/v1/grants"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({**through(), "environ_base": {"REMOTE_ADDR": ELSEWHERE}}, "PERSON_PROXIES"),
        ({**through(), "environ_base": {"REMOTE_ADDR": ""}}, "PERSON_PROXIES"),
        ({**through(**{"X-Forwarded-For": PROXY}), "environ_base": {"REMOTE_ADDR": ELSEWHERE}}, "PERSON_PROXIES"),
        (through(secret=None), "PERSON_PROXY_SECRET"),
        (through(secret=""), "PERSON_PROXY_SECRET"),
        (through(secret=SECRET + "x"), "PERSON_PROXY_SECRET"),
        (through(secret=f"{SECRET},{SECRET}"), "PERSON_PROXY_SECRET"),
        (through(""), "authenticated nobody"),
        (through(None, "payments"), "authenticated nobody"),
        (through("ada@example.org,root"), "one name"),
        (through("ada root"), "one name"),
        (through("Jürgen".encode().decode("latin-1")), "one name"),
        (through("a" * (MOST_NAME + 1)), "one name"),
        (through(groups=",".join(f"g{n}" for n in range(MOST_GROUPS + 1))), "groups"),
        (through(groups="two words"), "groups"),
        (through(Authorization=f"Bearer {ADMIN}"), "a key"),
    ],
)
def test_a_request_that_leaves_a_doubt_about_the_person_is_refused_in_a_sentence(client, grant, request_, says):
    grant("admin", person="ada@example.org")
    refused = me(client, **request_)
    assert refused.status_code == 401
    assert says in refused.json["detail"]


def test_the_peer_is_the_other_end_of_the_connection_whatever_the_proxy_says_of_its_client(client, grant):
    grant("admin", person="ada@example.org")
    assert me(client, **through(**{"X-Forwarded-For": "192.0.2.7"})).status_code == 200


def test_upper_and_lower_case_of_a_name_differ_in_rights(client, grant):
    grant("admin", person="ada@example.org")
    assert me(client, **through("Ada@example.org")).status_code == 403


def test_a_server_without_the_setting_believes_no_header(app, client):
    open_one = app.test_client()
    assert me(open_one, **through()).json["person"] is None


def test_the_scopes_of_keys_mean_what_they_did(client, grant):
    grant("ask", person="ada@example.org")
    found = me(client, **by()).json
    assert (found["person"], found["grants"]) == (None, [])
    assert found["scopes"] == ["read", "write", "approve", "admin", "ask"]


def test_a_revoked_right_opens_nothing_from_the_next_request_on(client, grant, proxied):
    one = grant("approve", person="ada@example.org")
    assert me(client, **through()).status_code == 200
    guard = proxied.extensions["server"].guard
    with proxied.test_request_context("/api/v1/users/me", **through()):
        assert guard.check() is None
        principal = g.principal
    assert guard.following.are_live(principal)
    client.delete(f"/api/v1/grants/{one}", **by())
    assert me(client, **through()).status_code == 403
    assert not guard.following.are_live(principal)


@pytest.mark.parametrize(
    ("wrong", "member"),
    [
        ({"role": "owner", "person": "ada"}, "role"),
        ({"role": "admin"}, "person"),
        ({"role": "admin", "person": "ada", "group": "payments"}, "person"),
        ({"role": "admin", "person": "a b"}, "person"),
        ({"role": "admin", "group": "a" * (MOST_NAME + 1)}, "group"),
        ({"role": "admin", "person": "ada", "tags": {}}, "tags"),
        ({"role": "admin", "person": "ada", "tags": {"Team": "x"}}, "tags"),
    ],
)
def test_a_grant_that_is_none_is_refused_by_its_member(client, wrong, member):
    refused = client.post("/api/v1/grants", json=wrong, **by())
    assert refused.status_code == 422
    assert member in refused.json["detail"][0]["loc"], refused.json


def test_grants_are_an_admins(client, grant):
    grant("approve", person="ada@example.org")
    assert client.get("/api/v1/grants", **through()).status_code == 403
    assert (
        client.post("/api/v1/grants", json={"role": "admin", "person": "ada@example.org"}, **through()).status_code
        == 403
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"auth": "auto"},
        {"auth": "open"},
        {"person_proxies": ()},
        {"person_proxies": ("somewhere",)},
        {"person_proxy_secret": ""},
        {"person_proxy_secret": "short"},
        {"person_header": ""},
        {"person_header": "X_Forwarded_User"},
        {"person_header": "Authorization"},
        {"person_header": "x-forwarded-for"},
        {"person_groups_header": "X-Forwarded-User"},
        {"person_groups_header": "X Groups"},
    ],
)
def test_settings_by_which_a_person_might_come_unauthenticated_stop_the_start(wrong):
    with pytest.raises(ConfigError, match=r"PERSON_"):
        Config.of(**{**SETTINGS, **wrong})
