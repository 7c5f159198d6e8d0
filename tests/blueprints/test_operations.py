"""Health, readiness and information of the server, and paths that it does not serve."""

import pytest


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


@pytest.mark.parametrize("path", ["/alive", "/health", "/ready", "/server_info"])
def test_operations_accept_only_reads(client, path):
    assert client.head(path).status_code == 200

    response = client.post(path)

    assert (response.status_code, response.get_json()) == (405, {"detail": "Method Not Allowed"})
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize("path", ["/", "/nope", "/alive/", "/api/conversations/", "/api/v1/webhooks", "/api/v1//nope"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_404_in_json(client, path, method):
    response = client.open(path, method=method)

    assert response.mimetype == "application/json"
    assert (response.status_code, response.get_json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("GET", "/ID"), ("GET", "/ID//events/count")])
def test_an_extra_slash_never_gets_an_html_page(client, conversation, method, path):
    response = client.open(f"/api//conversations{path.replace('ID', conversation)}", method=method)

    assert response.mimetype == "application/json"
