"""Which Host and which Origin the server refuses, in both postures, before anything else is done."""

import pytest
from werkzeug.datastructures import Headers

from app import create_app
from blueprints.posture import Posture
from config import Config
from origins import host_pattern

#: nothing listens there: a request that asks the store gets 503
NOWHERE = "unix:///nowhere/redis.sock"
KEY = "a-key-for-tests-only"
OPEN, KEYED = Posture(is_open=True), Posture(is_open=False)
FOREIGN = "https://evil.example"


def client_of(**settings):
    return create_app(Config(redis_url=NOWHERE, **settings)).test_client()


def misdirected(posture, host, target="/", path="/"):
    return posture.refusal_of_host(host, target, path) is not None


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8000",
        "localhost.",
        "app.localhost:1",
        "127.0.0.1",
        "127.8.9.1:65535",
        "[::1]",
        "[0::1]:80",
    ],
)
def test_without_keys_a_name_of_loopback_is_accepted(host):
    assert not misdirected(OPEN, host)


@pytest.mark.parametrize(
    "host",
    [
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
    ],
)
def test_without_keys_any_other_host_is_refused_and_with_keys_it_is_accepted(host):
    assert misdirected(OPEN, host)
    assert not misdirected(KEYED, host)


@pytest.mark.parametrize(
    "host",
    [
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
    ],
)
def test_a_missing_or_malformed_host_is_refused_in_both_postures(host):
    assert misdirected(OPEN, host)
    assert misdirected(KEYED, host)


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


@pytest.mark.parametrize("target", ["http://evil/", "http://localhost@evil/", "//", "evil:80", "http:///", "*x"])
def test_a_uri_whose_host_differs_from_the_header_is_refused(target):
    expected = not target.startswith("/")  # a path of two slashes is a path

    assert misdirected(KEYED, "localhost", target) is expected


@pytest.mark.parametrize("target", ["http://localhost/alive", "HTTP://LOCALHOST./alive", "/alive", "*"])
def test_a_uri_whose_host_is_that_of_the_header_is_accepted(target):
    assert not misdirected(KEYED, "localhost", target)


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


@pytest.mark.parametrize("path", PATHS)
def test_a_misdirected_request_is_421_in_words_on_every_path(path):
    response = client_of().get(path, headers={"Host": "evil"})

    assert response.status_code == 421
    assert "This server is not evil" in response.get_json()["detail"]


def test_a_repeated_host_is_refused():
    assert client_of().get("/alive", headers={"Host": "localhost,localhost"}).status_code == 421


RULES = [rule for rule in create_app(Config(redis_url=NOWHERE)).url_map.iter_rules() if not rule.websocket]
WRITES = [(rule, method) for rule in RULES for method in sorted(rule.methods - {"GET", "HEAD", "OPTIONS"})]


@pytest.mark.parametrize("settings", [{}, {"api_keys": (KEY,)}], ids=["open", "keys"])
@pytest.mark.parametrize(("rule", "method"), WRITES, ids=lambda one: getattr(one, "rule", one))
def test_a_page_elsewhere_can_do_nothing_by_any_rule(rule, method, settings):
    client = client_of(**settings)
    path = rule.rule.replace("<conversation_id:conversation_id>", "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001")
    bodyless = {"content_type": "text/plain", "headers": {"X-Session-API-Key": KEY}}

    for lie in ({"Origin": FOREIGN}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        response = client.open(path, method=method, **{**bodyless, "headers": {**bodyless["headers"], **lie}})
        assert response.status_code == 403
        assert "ALLOWED_ORIGINS" in response.get_data(as_text=True)  # the page of a link says it to people


def test_every_kind_of_write_is_among_the_rules():
    assert len(WRITES) >= 25
    assert {method for _, method in WRITES} >= {"POST", "PATCH", "DELETE"}


def forwarded(settings, peer, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client_of(**settings).post("/alive", environ_base={"REMOTE_ADDR": peer}, headers=names).status_code


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_our_own_page_behind_a_trusted_proxy_has_the_origin_that_the_proxy_names(peer):
    settings = {"trusted_proxies": ("10.0.0.0/8",), "allowed_hosts": ("agents.example",)}
    own = {"Host": "127.0.0.1:8000", "X_Forwarded_Host": "agents.example", "X_Forwarded_Proto": "https"}

    assert forwarded(settings, peer, Origin="https://agents.example", **own) == 405
    assert forwarded(settings, peer, Origin="http://agents.example", **own) == 403
    assert forwarded(settings, peer, **{**own, "X_Forwarded_Host": "agents.example, evil"}) == 421


@pytest.mark.parametrize(
    ("proxies", "peer"), [((), "127.0.0.1"), ((), "10.1.2.3"), (("10.0.0.0/8",), "11.1.2.3"), (("10.0.0.0/8",), "")]
)
def test_nobody_else_is_believed(proxies, peer):
    lie = {"Host": "evil.example", "X_Forwarded_Host": "localhost", "Forwarded": "host=localhost"}

    assert forwarded({"trusted_proxies": proxies}, peer, **lie) == 421
