"""The headers of every response: CORS for the origins that the settings allow, and what browsers are told to refuse."""

import re
import subprocess

import pytest

from app import create_app
from config import Config
from tests.blueprints.test_posture import FOREIGN, NOWHERE
from tests.servers import PROJECT, program

APP = "https://app.example"
ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001"

#: requests whose responses have these statuses: a view, an error of each kind, a page, an asset
REQUESTS = [
    ("GET", "/alive", {}, 200),
    ("GET", "/nope", {}, 404),
    ("POST", "/alive", {}, 405),
    ("GET", f"/api/conversations/{ID}", {}, 503),
    ("GET", f"/api/conversations/{ID}/events/stream", {}, 503),
    ("GET", f"/sockets/events/{ID}", {}, 426),
    ("GET", "/api/conversations/x/events/count", {}, 422),
    ("POST", "/api/conversations", {"data": "x", "content_type": "text/plain"}, 415),
    ("POST", "/api/conversations", {"data": b" " * 9_000_000, "content_type": "application/json"}, 413),
    ("GET", "/alive", {"headers": {"Host": "evil"}}, 421),
    ("GET", "/docs", {}, 200),
    ("GET", "/docs/assets/page/docs.js", {}, 200),
    ("GET", "/console/", {}, 200),
    ("GET", "/console/0123456789abcdef/main.js", {}, 404),
]
CASES = pytest.mark.parametrize(("method", "path", "options", "status"), REQUESTS, ids=lambda one: str(one)[:40])


@pytest.fixture(scope="module")
def client():
    return create_app(Config(redis_url=NOWHERE, allowed_origins=(APP, "tauri://localhost"))).test_client()


def sent(client, method, path, options, **headers):
    """A response whose body is not read: a stream would have no end."""
    headers = {**options.get("headers", {}), **headers}
    return client.open(path, method=method, **{**options, "headers": headers})


@CASES
def test_a_page_of_an_allowed_origin_may_read_every_response_errors_too(client, method, path, options, status):
    with sent(client, method, path, options, Origin=APP) as response:
        assert response.status_code == status
        assert response.headers["Access-Control-Allow-Origin"] == APP
        assert response.headers["Access-Control-Allow-Credentials"] == "true"
        assert "Retry-After" in response.headers["Access-Control-Expose-Headers"]
        assert "Origin" in response.headers["Vary"]


def test_an_unforeseen_error_bears_the_headers_too(client, monkeypatch):
    monkeypatch.setitem(client.application.view_functions, "Server Details.alive", lambda: 1 / 0)

    response = client.get("/alive", headers={"Origin": APP})

    assert response.status_code == 500
    assert response.headers["Access-Control-Allow-Origin"] == APP
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@CASES
def test_no_other_page_may_read_any_response(client, method, path, options, status):
    for origin in (FOREIGN, "null", "http://app.example", "https://app.example.evil", f"{APP},{FOREIGN}"):
        with sent(client, method, path, options, Origin=origin) as response:
            assert not [name for name, _ in response.headers if name.startswith("Access-Control")]
            assert "Origin" in response.headers["Vary"]  # else a cache would hand one page's response to another


def preflight(client, origin, path="/api/conversations", **headers):
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", **headers}
    return client.options(path, headers=asked)


@pytest.mark.parametrize("origin", [APP, "tauri://localhost"])
def test_a_preflight_of_an_allowed_origin_is_answered_without_a_key(origin):
    settings = {"api_keys": ("a-key-for-tests-only",), "allowed_origins": (APP, "tauri://localhost")}
    client = create_app(Config(redis_url=NOWHERE, **settings)).test_client()

    response = preflight(client, origin, **{"Access-Control-Request-Headers": "authorization,x-session-api-key"})

    assert (response.status_code, response.get_data()) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == origin
    assert response.headers["Access-Control-Allow-Credentials"] == "true"
    assert response.headers["Access-Control-Allow-Headers"] == "authorization,x-session-api-key"
    assert set(response.headers["Access-Control-Allow-Methods"].split(", ")) >= {"GET", "POST", "PATCH", "DELETE"}
    assert response.headers["Access-Control-Max-Age"] == "600"
    assert {"Origin", "Access-Control-Request-Headers"} <= set(response.headers["Vary"].split(", "))


def test_a_preflight_of_any_other_origin_is_refused(client):
    for origin in (FOREIGN, "null", "*"):
        response = preflight(client, origin)
        assert response.status_code == 403
        assert not [name for name, _ in response.headers if name.startswith("Access-Control")]


def test_without_allowed_origins_no_response_depends_on_the_origin():
    client = create_app(Config(redis_url=NOWHERE)).test_client()

    response = client.get("/alive", headers={"Origin": FOREIGN})

    assert response.status_code == 200
    assert "Access-Control-Allow-Origin" not in response.headers
    assert preflight(client, FOREIGN).status_code == 403


@CASES
def test_every_response_tells_browsers_what_to_refuse(client, method, path, options, status):
    with sent(client, method, path, options) as response:
        headers = response.headers
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self'; " if path == "/console/" else "default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert ("script-src" in policy) is (path in ("/docs", "/console/"))
        is_kept = path.startswith("/docs") or path == "/console/"
        assert headers["Cache-Control"] == ("no-cache" if is_kept else "no-store")


def test_the_docs_page_has_no_script_and_no_style_of_its_own(client):
    page = client.get("/docs").get_data(as_text=True)

    assert not re.search(r"<script[^>]*>[^<]", page)
    assert not re.search(r"<style|style=| on\w+=|javascript:", page)


def test_the_docs_page_authorizes_the_key_of_the_fragment_and_removes_it_from_the_address_bar():
    script = PROJECT / "assets" / "page" / "docs.js"

    ran = subprocess.run(
        [program("node"), PROJECT / "tests" / "blueprints" / "docs_page.js", script],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
