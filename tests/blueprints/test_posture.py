"""Which Host and which Origin the server refuses, before anything else is done; and the headers of every response."""

import re
import subprocess

import pytest
from werkzeug.datastructures import Headers

from blueprints.posture import Posture
from core.origins import host_pattern
from tests.blueprints import FOREIGN, away
from tests.servers import PROJECT, program

KEY = "a-key-for-tests-only"
OPEN, KEYED = Posture(is_open=True), Posture(is_open=False)


def misdirected(posture, host, target="/", path="/"):
    return posture.refusal_of_host(host, target, path) is not None


LOOPBACK = [
    "localhost",
    "LocalHost:8000",
    "localhost.",
    "app.localhost:1",
    "127.0.0.1",
    "127.8.9.1:65535",
    "[::1]",
    "[0::1]:80",
]


ELSEWHERE = [
    "evil",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "xlocalhost",
    "0.0.0.0",
    "10.0.0.1",
    "[::]",
    "[::ffff:10.0.0.1]",
    "127.1",  # other ways of writing the address, which no browser sends
    "2130706433",
    "0x7f.0.0.1",
    "127.0.0.01",
    "xn--e1awd7f.example",
]


MALFORMED = [
    None,
    "",
    ".",
    ":8000",
    "localhost:",
    "localhost:0",
    "localhost:65536",
    "localhost:8000:8000",
    "localhost:eight",
    "user@localhost",
    "user:pass@localhost",
    "evil@127.0.0.1",
    "localhost/evil",
    "localhost?evil",
    "localhost#evil",
    "localhost\\evil",
    "localhost evil",
    "localhost,evil",
    "localhost\tevil",
    "l\u00f6calhost",
    "localhost%00.evil",
    "[::1",
    "[::1%25lo]",
    "[localhost]",
    "::1",
    "http://localhost",
    "a" * 300,
]


def refused(posture, hosts):
    return [host for host in hosts if misdirected(posture, host)]


def test_without_keys_a_name_of_loopback_is_accepted_and_any_other_refused():
    assert refused(OPEN, LOOPBACK) == []
    assert refused(OPEN, ELSEWHERE) == ELSEWHERE


def test_with_keys_every_host_that_is_well_formed_is_accepted():
    assert refused(KEYED, LOOPBACK + ELSEWHERE) == []


def test_a_missing_or_malformed_host_is_refused_in_both_postures():
    for posture in (OPEN, KEYED):
        assert refused(posture, MALFORMED) == MALFORMED


@pytest.mark.parametrize("is_open", [True, False])
def test_allowed_hosts_hold_in_both_postures_and_loopback_beside_them(is_open):
    posture = Posture(
        is_open, tuple(map(host_pattern, ("Agents.Example.org.", "*.internal", "[FE80::0:1]", "bücher.de")))
    )

    for host in ("agents.example.org", "AGENTS.example.org.:443", "a.internal", "b.a.internal:1", "[fe80::1]:9"):
        assert not misdirected(posture, host)
    for host in ("xn--bcher-kva.de", "127.0.0.1:8000", "localhost"):
        assert not misdirected(posture, host)
    for host in ("evil", "example.org", "x.agents.example.org", "internal", "evilinternal", "agents.example.org.evil"):
        assert misdirected(posture, host)


def test_an_asterisk_allows_every_host_that_is_well_formed():
    posture = Posture(True, ("*",))

    assert not misdirected(posture, "evil.example")
    assert misdirected(posture, "user@evil.example")


def test_a_uri_whose_host_differs_from_the_header_is_refused():
    for target in ("http://evil/", "http://localhost@evil/", "evil:80", "http:///", "*x"):
        assert misdirected(KEYED, "localhost", target), target


def test_a_uri_whose_host_is_that_of_the_header_is_accepted_and_one_without_a_host_too():
    for target in ("http://localhost/alive", "HTTP://LOCALHOST./alive", "/alive", "*", "//"):  # two slashes are a path
        assert not misdirected(KEYED, "localhost", target), target


def test_a_sandbox_reaches_its_webhooks_and_nothing_else_under_the_name_that_it_has_for_the_server():
    posture = Posture(True, webhook_host="agents.example.org")

    for host in ("host.docker.internal:8000", "agents.example.org"):
        assert not misdirected(posture, host, path="/api/v1/webhooks/events/x")
        assert misdirected(posture, host, path="/api/v1/webhooks")
        assert misdirected(posture, host, path="/api/conversations")


def foreign(posture, method="POST", scheme="http", host="localhost:8000", **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return posture.refusal_of_origin(method, Headers({"Host": host, **names}), scheme) is not None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("posture", [OPEN, KEYED], ids=["open", "keys"])
def test_a_page_elsewhere_may_change_nothing(posture, method):
    for origin in (
        FOREIGN,
        "null",
        "",
        "http://localhost",
        "http://localhost:8001",
        "https://localhost:8000",
        "nonsense",
    ):
        assert foreign(posture, method, Origin=origin)
    for origin in ("http://127.0.0.1:8000", "http://localhost:8000,http://evil", "http://a@localhost:8000"):
        assert foreign(posture, method, Origin=origin)
    for site in ("cross-site", "Cross-Site", "cross-site,none", "", "nonsense"):
        assert foreign(posture, method, Sec_Fetch_Site=site)
        assert foreign(posture, method, Sec_Fetch_Site=site, Origin="http://localhost:8000")


def test_our_own_pages_and_programs_may_change_things():
    for headers in ({}, {"Origin": "http://localhost:8000"}, {"Origin": "HTTP://LocalHost:8000"}):
        assert not foreign(OPEN, **headers)
        assert not foreign(OPEN, **headers, Sec_Fetch_Site="same-origin")
    assert not foreign(OPEN, host="localhost", Origin="http://localhost:80")
    assert not foreign(OPEN, scheme="https", host="a.example:443", Origin="https://a.example")
    assert not foreign(OPEN, Sec_Fetch_Site="none")


def test_pages_of_allowed_origins_may_change_things():
    posture = Posture(False, allowed_origins=frozenset({"https://app.example", "vscode-webview://abc"}))

    for origin in ("https://app.example", "https://APP.example:443", "vscode-webview://ABC"):
        assert not foreign(posture, Origin=origin, Sec_Fetch_Site="cross-site")
    for origin in ("http://app.example", "https://app.example:8443", "https://x.app.example", "null"):
        assert foreign(posture, Origin=origin)


def test_an_upgrade_is_no_read():
    for upgrade in ("websocket", "WebSocket, x", "h2c"):
        assert foreign(OPEN, "GET", Upgrade=upgrade, Origin=FOREIGN)
        assert not foreign(OPEN, "GET", Upgrade=upgrade, Origin="http://localhost:8000")
    assert not foreign(OPEN, "GET", Origin=FOREIGN)


PATHS = [
    "/alive",
    "/docs",
    "/console/",
    "/docs/assets/page/docs.js",
    "/openapi.json",
    "/nope",
    "/api/v1/sandboxes/search",
]


def test_a_misdirected_request_is_421_in_words_on_every_path():
    for path in PATHS:
        response = away().test_client().get(path, headers={"Host": "evil"})
        assert response.status_code == 421, path
        assert "This server is not evil" in response.get_json()["detail"], path


def test_a_repeated_host_is_refused():
    assert away().test_client().get("/alive", headers={"Host": "localhost,localhost"}).status_code == 421


@pytest.mark.parametrize("settings", [{}, {"api_keys": (KEY,)}], ids=["open", "keys"])
def test_a_page_elsewhere_can_do_nothing_by_any_rule(settings):
    app = away(**settings)
    rules = [rule for rule in app.url_map.iter_rules() if not rule.websocket]
    writes = [(rule.rule, method) for rule in rules for method in sorted(rule.methods - {"GET", "HEAD", "OPTIONS"})]
    assert len(writes) >= 25
    assert {method for _, method in writes} >= {"POST", "PATCH", "DELETE"}

    faults = []
    for rule, method in writes:
        path = rule.replace("<conversation_id:conversation_id>", "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001")
        for lie in ({"Origin": FOREIGN}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            headers = {"X-Session-API-Key": KEY, **lie}
            response = app.test_client().open(path, method=method, content_type="text/plain", headers=headers)
            # the page of a link says it to people
            if response.status_code != 403 or "ALLOWED_ORIGINS" not in response.get_data(as_text=True):
                faults.append((method, rule, lie, response.status))
    assert faults == []


def forwarded(settings, peer, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return away(**settings).test_client().post("/alive", environ_base={"REMOTE_ADDR": peer}, headers=names).status_code


PROXIED = {"trusted_proxies": ("10.0.0.0/8",), "allowed_hosts": ("agents.example",)}


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_our_own_page_behind_a_trusted_proxy_has_the_origin_that_the_proxy_names(peer):
    own = {"Host": "127.0.0.1:8000", "X_Forwarded_Host": "agents.example", "X_Forwarded_Proto": "https"}

    assert forwarded(PROXIED, peer, Origin="https://agents.example", **own) == 405
    assert forwarded(PROXIED, peer, Origin="http://agents.example", **own) == 403
    assert forwarded(PROXIED, peer, **{**own, "X_Forwarded_Host": "agents.example, evil"}) == 421


@pytest.mark.parametrize(
    ("settings", "peer"), [({}, "127.0.0.1"), ({}, "10.1.2.3"), (PROXIED, "11.1.2.3"), (PROXIED, "")]
)
def test_nobody_else_is_believed(settings, peer):
    lie = {"Host": "evil.example", "X_Forwarded_Host": "localhost", "Forwarded": "host=localhost"}

    assert forwarded(settings, peer, **lie) == 421


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


@pytest.fixture(scope="module")
def client():
    return away(allowed_origins=(APP, "tauri://localhost")).test_client()


def responses(client, **headers):
    """The path of each request, its expected status and its response, whose body is not read: a stream has no end."""
    for method, path, options, status in REQUESTS:
        options = {**options, "headers": {**options.get("headers", {}), **headers}}
        with client.open(path, method=method, **options) as response:
            yield path, status, response


def test_a_page_of_an_allowed_origin_may_read_every_response_errors_too(client):
    for path, status, response in responses(client, Origin=APP):
        assert response.status_code == status, path
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


def test_no_other_page_may_read_any_response(client):
    for origin in (FOREIGN, "null", "http://app.example", "https://app.example.evil", f"{APP},{FOREIGN}"):
        for path, _, response in responses(client, Origin=origin):
            assert not [name for name, _ in response.headers if name.startswith("Access-Control")], path
            assert "Origin" in response.headers["Vary"], path  # else a cache would hand one page's response to another


def preflight(client, origin, path="/api/conversations", **headers):
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", **headers}
    return client.options(path, headers=asked)


@pytest.mark.parametrize("origin", [APP, "tauri://localhost"])
def test_a_preflight_of_an_allowed_origin_is_answered_without_a_key(origin):
    client = away(api_keys=("a-key-for-tests-only",), allowed_origins=(APP, "tauri://localhost")).test_client()

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
    client = away().test_client()

    response = client.get("/alive", headers={"Origin": FOREIGN})

    assert response.status_code == 200
    assert "Access-Control-Allow-Origin" not in response.headers
    assert preflight(client, FOREIGN).status_code == 403


def test_every_response_tells_browsers_what_to_refuse(client):
    for path, _, response in responses(client):
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
    with client.get("/docs") as response:
        page = response.get_data(as_text=True)

    assert not re.search(r"<script[^>]*>[^<]", page)
    assert not re.search(r"<style|style=| on\w+=|javascript:", page)


@pytest.mark.process("starts a program")
def test_the_docs_page_authorizes_the_key_of_the_fragment_and_removes_it_from_the_address_bar():
    script = PROJECT / "console/vendor/page" / "docs.js"

    ran = subprocess.run(
        [program("node"), PROJECT / "tests" / "blueprints" / "docs_page.cjs", script],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
