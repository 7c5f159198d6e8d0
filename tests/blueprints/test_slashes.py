"""Paths with trailing slashes lead to the path without, and to no other host."""

import socket
from urllib.parse import urljoin

import httpx
import pytest

from tests.blueprints import away
from tests.conftest import event

KEY = "a-key-for-tests-only"


OPERATIONS = [
    ("GET", "/alive"),
    ("GET", "/server_info"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("POST", "/api/conversations"),
    ("GET", "/api/conversations/search"),
    ("GET", "/api/conversations/ID"),
    ("PATCH", "/api/conversations/ID"),
    ("DELETE", "/api/conversations/ID"),
    ("GET", "/api/conversations/not-an-id"),
    ("POST", "/api/conversations/ID/run"),
    ("GET", "/api/conversations/ID/events/count"),
    ("GET", "/api/conversations/ID/events/search"),
    ("POST", "/api/conversations/ID/events"),
    ("POST", "/api/conversations/ID/events/respond_to_confirmation"),
    ("GET", "/api/v1/app-conversations/search"),
    ("POST", "/api/v1/sandboxes"),
    ("POST", "/api/v1/webhooks/conversations"),
]


def test_a_trailing_slash_leads_to_the_path_without(client, conversation):
    for method, path in OPERATIONS:
        path = path.replace("ID", conversation)
        for slashes in ("/", "///"):
            response = client.open(f"{path}{slashes}?a=b%20c&d=%2F", method=method)

            assert (response.status_code, response.headers["Location"]) == (307, f"{path}?a=b%20c&d=%2F"), method
            assert response.get_data() == b""
            assert response.headers["X-Request-Id"]


def test_the_method_and_the_body_are_kept(client, conversation):
    body = {"conversation_id": conversation, "title": "T"}

    response = client.post("/api/conversations/", json=body, follow_redirects=True)

    assert (response.status_code, response.get_json()["title"]) == (201, "T")


@pytest.mark.parametrize(
    "path", ["/%2Fevil.example/", "/%2F%2Fevil.example/", "/%5Cevil.example/", "/nope/", "/alive//x/"]
)
def test_a_path_that_nobody_serves_leads_nowhere(client, path):
    response = client.get(path)

    assert response.status_code == 404
    assert "Location" not in response.headers


@pytest.mark.process("asks a real server")
@pytest.mark.parametrize("path", ["/%2Falive/", "/%2F%2F%2Falive//", "//alive/"])
def test_a_path_that_begins_with_slashes_never_leads_to_a_host(server, path):
    with socket.create_connection(("127.0.0.1", server.base_url.port), timeout=10) as connection:
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % path.encode())
        head = connection.makefile("rb").read().partition(b"\r\n\r\n")[0]

    assert head.startswith((b"HTTP/1.1 404", b"HTTP/1.1 307"))
    assert b"Location: /alive" in head or b"Location" not in head


def test_a_method_that_the_path_does_not_take_leads_nowhere(client):
    assert client.post("/alive/").status_code in (404, 405)


def test_an_event_whose_id_ends_in_a_slash_is_returned(client, conversation):
    one = {**event(), "id": "count/"}
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[one])

    assert client.get(f"/api/conversations/{conversation}/events/count/").get_json() == one


def test_the_guard_stands_before_what_leads_elsewhere(client):
    keyed = away(api_keys=(KEY,)).test_client()
    elsewhere = {"Host": "evil.example", "Accept": "text/html"}
    for path in ("/", "/alive/", "/api/conversations/search/"):
        assert client.get(path, headers=elsewhere).status_code == 421
    # What a slash leads to asks for the key.
    assert keyed.get("/api/conversations/search/", follow_redirects=True).status_code == 401
    assert keyed.get("/").status_code == 401
    led = keyed.get("/", headers={"Accept": "text/html"})
    assert keyed.get(urljoin("/", led.headers["Location"])).status_code == 200


@pytest.mark.process("asks a real server")
def test_a_real_client_follows_with_its_body(server, conversation):
    with httpx.Client(base_url=server.base_url, follow_redirects=True) as follower:
        response = follower.post("/api/conversations/", json={"conversation_id": conversation, "title": "T"})

    assert (response.status_code, response.json()["title"]) == (201, "T")
