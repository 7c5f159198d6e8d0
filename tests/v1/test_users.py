"""What a key is told of itself, and what a sandbox's session key opens: never more than the sandbox has already."""

import pytest

from tests.servers import supervised_server
from tests.v1 import WireApi
from tests.v1.conftest import AGENT

pytestmark = pytest.mark.process("starts a server with keys, and sandboxes in it")

ADMIN = "an-admin-key-of-the-settings"

SPECS = f"""
[[spec]]
id = "with-model"
secret_env = {{ LLM_API_KEY = "sk-of-the-model", GITHUB_TOKEN = "of-github" }}
{AGENT.replace("initial_env = {", 'initial_env = { LLM_MODEL = "openai/some", LLM_BASE_URL = "http://models/v1",')}

[[spec]]
id = "without-model"
{AGENT}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("users")
    (folder / "specs.toml").write_text(SPECS)
    with supervised_server(folder, SANDBOX_SPECS=str(folder / "specs.toml"), SESSION_API_KEY=ADMIN) as (client, _):
        yield client


@pytest.fixture
def api(server):
    server.headers["Authorization"] = f"Bearer {ADMIN}"
    api = WireApi(server)
    yield api
    server.headers["Authorization"] = f"Bearer {ADMIN}"
    api.clean()


@pytest.fixture
def read(api):
    """A key that may read alone."""
    return api.call("POST", "/v1/keys", json={"name": "reader", "scopes": ["read"]}, status=201)


def session(sandbox):
    return {"X-Session-API-Key": sandbox["session_api_key"]}


def test_a_wrong_session_key_shows_no_secret(api, read):
    box = api.running_sandbox("with-model")
    path, wrong = f"/v1/sandboxes/{box['id']}/settings/secrets", {"X-Session-API-Key": "wrong"}
    for headers in (wrong, {**wrong, "Authorization": f"Bearer {ADMIN}"}, {"Authorization": f"Bearer {ADMIN}"}):
        api.client.headers.pop("Authorization", None)
        api.call("GET", path, headers=headers, status=401)
        api.call("GET", f"{path}/GITHUB_TOKEN", headers=headers, status=401)
        api.call("GET", "/v1/users/me", params={"expose_secrets": "true"}, headers=headers, status=401)
    api.call("GET", path, headers={"Authorization": f"Bearer {read['key']}"}, status=403)


def test_a_session_key_shows_the_secrets_of_its_own_sandbox_alone(api):
    box, other = api.running_sandbox("with-model"), api.running_sandbox("without-model")
    api.client.headers.pop("Authorization")

    path = f"/v1/sandboxes/{box['id']}/settings/secrets"
    names = [one["name"] for one in api.call("GET", path, headers=session(box))["secrets"]]
    value = api.client.get(f"/api{path}/GITHUB_TOKEN", headers=session(box))

    assert names == ["LLM_API_KEY", "GITHUB_TOKEN"]
    assert (value.status_code, value.text) == (200, "of-github")
    assert value.headers["Content-Type"].startswith("text/plain")
    assert api.call("GET", f"{path}/OTHER", headers=session(box), status=404)["detail"] == "Secret not found"
    assert "another sandbox" in api.call("GET", path, headers=session(other), status=403)["detail"]
    of_other = f"/v1/sandboxes/{other['id']}/settings/secrets"
    assert api.call("GET", of_other, headers=session(other)) == {"secrets": []}


def test_a_session_key_opens_nothing_once_its_sandbox_is_paused(api):
    box = api.running_sandbox("with-model")
    api.call("POST", f"/v1/sandboxes/{box['id']}/pause")

    path = f"/v1/sandboxes/{box['id']}/settings/secrets"
    for headers in (session(box), {}):
        api.call("GET", path, headers=headers, status=401)
    api.call("GET", "/v1/users/me", params={"expose_secrets": "true"}, headers=session(box), status=401)


def test_the_user_is_the_key_and_sees_the_model_without_its_key(api, read):
    user = api.call("GET", "/v1/users/me", headers={"Authorization": f"Bearer {read['key']}"})

    assert user == {
        "id": read["id"],
        "name": "reader",
        "scopes": ["read"],
        "person": None,
        "groups": [],
        "grants": [],
        "llm_model": "openai/some",
        "llm_base_url": "http://models/v1",
        "llm_api_key": None,
        "llm_profiles": {"profiles": {}, "active": None},
        "mcp_config": None,
    }


def test_with_a_session_key_beside_the_key_the_user_sees_the_model_of_that_sandbox(api, read):
    box, other = api.running_sandbox("with-model"), api.running_sandbox("without-model")
    key, exposed = {"Authorization": f"Bearer {read['key']}"}, {"expose_secrets": "true"}

    user = api.call("GET", "/v1/users/me", params=exposed, headers={**key, **session(box)})
    assert (user["id"], user["llm_model"], user["llm_api_key"]) == (read["id"], "openai/some", "sk-of-the-model")
    user = api.call("GET", "/v1/users/me", headers={**key, **session(box)})
    assert user["llm_api_key"] is None
    user = api.call("GET", "/v1/users/me", params=exposed, headers={**key, **session(other)})
    assert (user["llm_model"], user["llm_api_key"]) == (None, None)


def test_the_configuration_of_web_clients_needs_no_key(api):
    api.client.headers.pop("Authorization")

    assert api.call("GET", "/v1/web-client/config")["kind"] == "WebClientConfig"
