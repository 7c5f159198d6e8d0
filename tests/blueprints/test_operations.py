"""Health, readiness and information of the server, and paths that it does not serve."""

import pytest

from wire import micros, now


def test_alive_and_health_respond(client):
    for path in ("/alive", "/health"):
        assert client.get(path).get_json() == {"status": "ok"}


def test_ready_reports_the_store(client, redis_url):
    state = client.get("/ready").get_json()

    assert state["status"] == "ready"
    # of the backends, only the real single server keeps an append-only file
    assert state["store"]["durable"] is redis_url.startswith("unix:")
    assert state["store"]["kind"] in ("redis", "fakeredis")


def test_server_info_has_the_members_that_clients_check(client):
    info = client.get("/server_info").get_json()

    assert tuple(int(part) for part in info["version"].split(".")) >= (1, 28, 0)
    assert info["title"] == "Agent Server"
    assert info["uptime"] >= 0
    assert "events" in info["capabilities"]
    assert (info["notice"] is None) is info["store"]["durable"]


def test_server_info_has_every_member_of_the_agent_server(client):
    info = client.get("/server_info").get_json()

    # Source: build_server_info of the agent server 1.58
    members = {
        *("uptime", "idle_time", "title", "version", "sdk_version", "tools_version", "workspace_version"),
        *("build_git_sha", "build_git_ref", "python_version", "usable_tools", "runtime_idle_timeout_seconds"),
        *("conversation_runtime", "available_conversation_runtimes", "capabilities", "app_backend_ingress_url"),
        *("max_foreground_terminal_timeout_seconds", "docs", "redoc"),
    }
    assert members <= set(info)
    assert {"terminal", "file_editor", "task_tracker"} <= set(info["usable_tools"])
    assert (info["conversation_runtime"], info["available_conversation_runtimes"]) == ("local", [])


def test_the_idle_time_begins_again_with_a_change_of_a_conversation(client, conversation):
    client.post("/api/conversations", json={"conversation_id": conversation})
    state = client.get(f"/api/conversations/{conversation}").get_json()

    idle_time = client.get("/server_info").get_json()["idle_time"]

    assert 0 <= idle_time <= (now() - micros(state["updated_at"])) / 1e6


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/plain"])
def test_the_root_describes_the_server_to_programs(client, accept):
    root = client.get("/", headers={"Accept": accept} if accept else {})

    varying = {"uptime", "idle_time"}
    info = client.get("/server_info").get_json()
    assert {name: value for name, value in root.get_json().items() if name not in varying} == {
        name: value for name, value in info.items() if name not in varying
    }


def test_the_root_leads_a_browser_to_the_docs(client):
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

    response = client.get("/", headers={"Accept": accept})

    assert (response.status_code, response.headers["Location"]) == (302, "/docs")
    assert "Accept" in response.headers["Vary"]


@pytest.mark.parametrize("path", ["/alive", "/health", "/ready", "/server_info"])
def test_operations_accept_only_reads(client, path):
    assert client.head(path).status_code == 200

    response = client.post(path)

    assert (response.status_code, response.get_json()) == (405, {"detail": "Method Not Allowed"})
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize("path", ["/nope", "/nope/", "/api/conversation/", "/api/v1/webhooks", "/api/v1//nope"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_404_in_json(client, path, method):
    response = client.open(path, method=method)

    assert response.mimetype == "application/json"
    assert (response.status_code, response.get_json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("GET", "/ID"), ("GET", "/ID//events/count")])
def test_an_extra_slash_never_gets_an_html_page(client, conversation, method, path):
    response = client.open(f"/api//conversations{path.replace('ID', conversation)}", method=method)

    assert response.mimetype == "application/json"
