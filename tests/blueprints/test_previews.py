"""Hosts of previews: what is served there and what is not, the ticket, the cookie, and who may send what.

No program listens behind these: a request that is let in finds no sandbox, and gets 503. The real thing is shown in
tests/forwarding/test_previews.py.
"""

from base64 import b64encode
from hashlib import sha256

import pytest

from agents.previews import Preview
from app import create_app
from core.access import ANYONE
from settings.config import Config
from store.sandboxes.sandboxes import SandboxId
from tests.agents import running_sandbox
from tests.blueprints import SECRET_KEY, away

SANDBOX = SandboxId("3ae4e3ee96yX3863PGC0sT")
LABEL = Preview(SANDBOX, 8000).label
OTHER = Preview(SANDBOX, 8001).label
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
KEY = "the-first-key-of-the-settings"
LET_IN = 503


def host(label: str = LABEL) -> str:
    return f"{label}.preview.localhost"


def ask(client, path="/", label=LABEL, method="GET", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.open(path, method=method, headers={"Host": host(label), **named})


@pytest.fixture
def ticket(store):
    """Makes tickets."""
    return lambda label=LABEL: store.access.tickets.make(ANYONE, f"preview {label}", ANYONE.scopes)


@pytest.fixture
def cookie(app, ticket):
    """What a browser sends after it has opened the preview."""
    with app.test_client(use_cookies=False) as client:
        opened = ask(client, f"/_preview?ticket={ticket()}")
    assert opened.status_code == 303
    return opened.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
def client(app):
    return app.test_client(use_cookies=False)


@pytest.mark.parametrize("path", ["/", "/alive", "/console/", "/openapi.json", "/api/v1/sandboxes/search", "/docs"])
@pytest.mark.parametrize(
    "place", [host(), "preview.localhost", "PREVIEW.localhost.:80", "x.preview.localhost", f"a.{host()}"]
)
def test_a_host_of_previews_serves_no_route_of_this_server(client, path, place):
    response = client.get(path, headers={"Host": place})

    assert response.status_code in (403, 404)
    assert response.mimetype == "text/plain"
    assert "default-src 'none'" in response.headers.getlist("Content-Security-Policy")


def test_a_refusal_is_a_page_without_a_script_in_a_tab_and_text_for_programs(client):
    shown = ask(client, Accept="text/html,*/*;q=0.8", **NAVIGATION)
    policy = shown.headers.getlist("Content-Security-Policy")

    assert (shown.status_code, shown.mimetype) == (403, "text/html")
    assert "This preview is not open in this browser" in shown.text
    style = shown.text.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy
    assert "<script" not in shown.text
    for headers in ({}, {"Accept": "text/html", "Sec_Fetch_Dest": "image"}):
        assert ask(client, **headers).mimetype == "text/plain"


@pytest.mark.parametrize("place", ["localhost", "xpreview.localhost", "preview.localhost.example.org"])
def test_another_host_is_served_as_ever(client, place):
    assert client.get("/alive", headers={"Host": place}).mimetype == "application/json"


def test_a_ticket_opens_its_preview_once_and_becomes_a_cookie_of_that_host_alone(client, ticket):
    made = ticket()
    opened = ask(client, f"/_preview?ticket={made}", Sec_Fetch_Site="cross-site", **NAVIGATION)

    assert (opened.status_code, opened.headers["Location"]) == (303, "/")
    parts = opened.headers["Set-Cookie"].split("; ")
    assert parts[0].startswith("agent_preview=")
    assert {"HttpOnly", "Path=/", "SameSite=Lax", "Max-Age=28800"} <= {*parts}
    assert not [part for part in parts if part.startswith("Domain")]
    assert ask(client, f"/_preview?ticket={made}").status_code == 403


def test_over_https_the_cookie_is_one_that_no_other_host_can_set(client, ticket):
    path = f"/_preview?ticket={ticket()}"
    opened = client.get(path, base_url=f"https://{host()}")

    assert opened.headers["Set-Cookie"].startswith("__Host-agent_preview=")
    assert "; Secure;" in opened.headers["Set-Cookie"]


def test_a_ticket_of_another_preview_or_of_a_conversation_opens_nothing_and_stays_good(client, store, ticket):
    other, about_all = ticket(OTHER), store.access.tickets.make(ANYONE, None, ANYONE.scopes)

    for made in (other, about_all, "", "ticket_x"):
        assert ask(client, f"/_preview?ticket={made}").status_code == 403
    assert ask(client, f"/_preview?ticket={other}", OTHER).status_code == 303


def test_a_ticket_of_a_preview_opens_no_stream(keyed, ticket):
    keyless = keyed.application.test_client(use_cookies=False)

    assert keyless.get(f"/api/v1/conversations/stream?ticket={ticket()}").status_code == 403


def test_a_cookie_opens_its_own_port_alone(client, cookie):
    assert ask(client, Cookie=cookie).status_code == LET_IN
    assert ask(client, label=OTHER, Cookie=cookie).status_code == 403
    assert ask(client).status_code == 403
    assert ask(client, Cookie=cookie[:-4]).status_code == 403


def test_a_cookie_that_another_page_has_set_for_all_previews_changes_nothing(client, cookie):
    assert ask(client, Cookie=f"agent_preview=evil; {cookie}").status_code == LET_IN


def test_a_page_that_sets_as_many_cookies_as_a_head_may_have_keeps_nobody_out_of_its_preview(client, cookie):
    """A browser sends those of a longer path first, so the page's own come before ours."""
    of_page = "; ".join(["agent_preview=x"] * ((8000 - len(cookie)) // len("agent_preview=x; ")))

    assert ask(client, Cookie=f"{of_page}; {cookie}").status_code == LET_IN
    assert ask(client, Cookie=f"{cookie}; {of_page}").status_code == LET_IN
    assert ask(client, Cookie=of_page).status_code == 403


def test_a_cookie_of_a_workspace_opens_no_preview_and_that_of_a_preview_no_workspace(store, cookie):
    session = store.access.sessions.make(ANYONE)

    assert store.access.sessions.find(session, f"preview {LABEL}") is None
    assert store.access.sessions.find(cookie.partition("=")[2]) is None


def test_a_revoked_key_ends_its_previews(client, store):
    made, key = store.access.keys.make("shown", ["write", "approve"], None)
    sealed = store.access.sessions.make(store.access.keys.find(key), f"preview {LABEL}")
    assert ask(client, Cookie=f"agent_preview={sealed}").status_code == LET_IN

    store.access.keys.revoke(made.id)

    assert ask(client, Cookie=f"agent_preview={sealed}").status_code == 403


def test_a_cookie_of_nobodys_key_opens_nothing_where_keys_are_needed(store, cookie):
    guard = away(api_keys=(KEY,)).extensions["server"].guard
    principal, seconds = store.access.sessions.find(cookie.partition("=")[2], f"preview {LABEL}")

    assert 0 < seconds <= 8 * 3600
    assert not guard.stands(principal)


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, True),
        ({"Origin": f"http://{host()}"}, True),
        ({"Sec-Fetch-Site": "cross-site", **NAVIGATION}, True),
        ({"Sec-Fetch-Site": "same-site", **NAVIGATION}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, False),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, False),
        ({"Origin": f"http://{host(OTHER)}"}, False),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "null"}, False),
        ({"Service-Worker": "script", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Upgrade": "websocket", "Connection": "Upgrade"}, False),
    ],
)
def test_a_page_of_another_origin_asks_for_nothing_but_a_page_in_a_tab(client, cookie, headers, is_let_in):
    response = client.get("/", headers={"Host": host(), "Cookie": cookie, **headers})

    assert response.status_code == (LET_IN if is_let_in else 403)


def test_a_form_of_another_origin_is_refused(client, cookie):
    sent = {"Host": host(), "Cookie": cookie, "Sec-Fetch-Site": "same-site", **NAVIGATION}

    assert client.post("/", headers=sent).status_code == 403


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND"])
def test_a_method_beyond_the_usual_ones_is_refused(client, cookie, method):
    assert ask(client, method=method, Cookie=cookie).status_code == 501


@pytest.fixture(scope="module")
def keyed(redis_url):
    """A client of an app that needs a key, and that any host reaches; the client shows that key."""
    config = Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=(KEY,))
    client = create_app(config).test_client(use_cookies=False)
    client.environ_base["HTTP_X_SESSION_API_KEY"] = KEY
    return client


@pytest.mark.parametrize("scopes", [["write"], ["approve"], ["read"]])
def test_a_key_without_both_scopes_opens_no_preview_and_lists_no_ports(client, keyed, scopes):
    key = keyed.post("/api/v1/keys", json={"name": "short", "scopes": scopes}).json["key"]
    shown = {"X-Session-API-Key": key}

    for refused in (
        keyed.post(f"/api/v1/sandboxes/{SANDBOX}/previews", json={"port": 8000}, headers=shown),
        keyed.get(f"/api/v1/sandboxes/{SANDBOX}/ports", headers=shown),
    ):
        assert refused.status_code == 403
        assert "scope" in refused.json["detail"]


def test_an_unknown_sandbox_has_no_previews(client):
    assert client.post(f"/api/v1/sandboxes/{SANDBOX}/previews", json={"port": 8000}).status_code == 404
    assert client.get(f"/api/v1/sandboxes/{SANDBOX}/ports").status_code == 404


@pytest.mark.parametrize("port", [0, 80, 1023, 65536, "8000", None, 8000.5])
def test_a_port_that_is_none_is_named(client, port):
    refused = client.post(f"/api/v1/sandboxes/{SANDBOX}/previews", json={"port": port})

    assert refused.status_code == 422
    assert refused.json["detail"][0]["loc"] == ["body", "port"]


@pytest.fixture
def sandbox(store):
    """A sandbox whose agent server nobody reaches."""
    with running_sandbox(store, "http://127.0.0.1:1") as sandbox:
        yield sandbox


def test_a_server_that_is_reached_by_a_name_needs_a_host_of_previews(keyed, sandbox):
    path = f"/api/v1/sandboxes/{sandbox.id}/previews"
    refused = keyed.post(path, json={"port": 8000}, headers={"Host": "agents.example.org"})

    assert refused.status_code == 409
    assert "PREVIEW_HOST" in refused.json["detail"]
    assert keyed.post(path, json={"port": 8000}, headers={"Host": "localhost"}).status_code == 502


def test_an_opened_preview_is_in_the_audit_of_each_conversation_of_its_sandbox(client, store, sandbox, conversation):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    label = Preview(sandbox.id, 8000).label
    made = store.access.tickets.make(ANYONE, f"preview {label}", ANYONE.scopes)

    assert ask(client, f"/_preview?ticket={made}", label).status_code == 303

    [entry] = client.get(f"/api/v1/conversation/{conversation}/audit").json["items"]
    assert entry["decision"] == "preview_opened"
    assert entry["actor"] == {"address": "127.0.0.1", "kind": "key", "name": "anyone"}
    assert f"port 8000 of sandbox {sandbox.id}" in entry["reason"]
