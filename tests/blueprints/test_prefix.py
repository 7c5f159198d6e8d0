"""Behind a proxy that serves the server below a path and strips it: files, redirects, links, the OpenAPI document."""

import contextlib
import html
import json
import re
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

import httpx
import pytest
from agent_server_client import Client
from werkzeug.test import Client as WsgiClient

from app import create_app
from blueprints.console import _IMPORT, _IMPORTS
from core.approvals import ApprovalLinks, action_digest, shown_arguments
from notifications.messages import Subject, body_of
from settings.config import Config
from tests.blueprints import API, SECRET_KEY, away
from tests.conftest import action

ORIGIN, PREFIX = "https://agents.example.org", "/agents"
HTML = {"Accept": "text/html"}
PROXY = {"trusted_proxies": ("10.0.0.1",), "allowed_hosts": ("agents.example.org",)}
RULES = "/api/v1/approval-rules"


class PrefixProxy:
    """A proxy at a path, which it strips: a WSGI app around another. Outside of the path it has nothing."""

    def __init__(self, app, *, says_so=True, prefix=PREFIX, address="10.0.0.1") -> None:
        self._app, self._prefix, self._address = app, prefix, address
        self._headers = {
            "HTTP_X_FORWARDED_FOR": "192.0.2.1",
            "HTTP_X_FORWARDED_PROTO": "https",
            "HTTP_X_FORWARDED_HOST": "agents.example.org",
            **({"HTTP_X_FORWARDED_PREFIX": prefix} if says_so else {}),
        }

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if f"{path}/".startswith(f"{PREFIX}/"):
            stripped = path.removeprefix(PREFIX) or "/"
            asked = {"PATH_INFO": stripped, "RAW_URI": stripped, "REMOTE_ADDR": self._address}
            return self._app({**environ, **self._headers, **asked}, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"another application"]


@pytest.fixture(scope="module")
def app(redis_url):
    app = create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **PROXY))
    app.extensions["server"].store.data_version.ensure()
    return app


@pytest.fixture(scope="module")
def proxied(app):
    """A client of the server behind the proxy."""
    return WsgiClient(PrefixProxy(app))


@pytest.fixture(scope="module", params=[True, False], ids=["says so", "says nothing"])
def either(request, app):
    """A client behind a proxy that says its path, and of one that does not."""
    return WsgiClient(PrefixProxy(app, says_so=request.param))


def status_of(client, path) -> int:
    """The status of a file, whose response is closed."""
    with contextlib.closing(client.get(path)) as response:
        return response.status_code


def files_of_the_console(client) -> set[str]:
    """The paths of all that the console's page names and its scripts import, as a browser finds them."""
    page = client.get(f"{PREFIX}/console/").get_data(as_text=True)
    [imports] = re.findall(r'<script type="importmap">(.*?)</script>', page)
    place = f"{PREFIX}/console/"
    found = {urljoin(place, name) for name in re.findall(r'(?:src|href)="([^"]+)"', page)}
    mapped = {name: urljoin(place, path) for name, path in json.loads(imports)["imports"].items()}
    waiting = [path for path in found if path.endswith(("js", "mjs"))]
    while waiting:
        path = waiting.pop()
        text = client.get(path).get_data(as_text=True)
        later = re.findall(r"""\bimport\(["']([^"']+)["']\)""", text)
        for name in (*_IMPORT.findall(text), *later):
            if (imported := mapped.get(name) or urljoin(path, name)) not in found:
                found.add(imported)
                waiting.append(imported)
    return found


def test_every_file_of_the_console_is_found_below_the_path_of_a_proxy_even_if_that_does_not_say_so(either):
    found = files_of_the_console(either)

    assert len(found) > 60
    assert len([path for path in found if path.endswith(tuple(_IMPORTS.values()))]) == len(_IMPORTS)
    assert {path: status_of(either, path) for path in found} == dict.fromkeys(found, 200)


def test_the_docs_page_and_its_files_are_found_below_the_path_of_a_proxy_even_if_that_does_not_say_so(either):
    with contextlib.closing(either.get(f"{PREFIX}/docs")) as response:
        page = response.get_data(as_text=True)
    found = [urljoin(f"{PREFIX}/docs", name) for name in re.findall(r'(?:src|href)="([^"]+)"', page)]

    assert len(found) == 3
    assert [path for path in found if status_of(either, path) != 200] == []
    assert either.get(urljoin(f"{PREFIX}/docs", "openapi.json")).get_json()["openapi"]


def led(client, path, **options) -> tuple[int, str]:
    """The status of a redirect, and the address to which it leads a client."""
    response = client.open(path, headers=HTML, **options)
    return response.status_code, urljoin(f"{ORIGIN}{path}", response.headers["Location"])


def test_a_browser_is_led_to_the_console_below_the_path_of_a_proxy_even_if_that_does_not_say_so(either):
    for path in (f"{PREFIX}/", f"{PREFIX}/console"):
        assert led(either, path) == (302, f"{ORIGIN}{PREFIX}/console/")


def test_redirects_stay_below_the_path_of_a_proxy_that_says_it(proxied, conversation):
    assert led(proxied, PREFIX) == (302, f"{ORIGIN}{PREFIX}/console/")
    for method, path in (("GET", "/docs"), ("POST", API), ("GET", f"{API}/{conversation}/events/search")):
        wanted = (307, f"{ORIGIN}{PREFIX}{path}?a=b")
        assert led(proxied, f"{PREFIX}{path}/", method=method, query_string="a=b") == wanted


def test_the_address_of_what_was_made_stays_below_the_path_of_a_proxy_that_says_it(proxied):
    made = proxied.post(f"{PREFIX}{RULES}", json={"decision": "reject", "tool_name": "browser"})
    place = urlsplit(urljoin(f"{ORIGIN}{PREFIX}{RULES}", made.headers["Location"]))

    assert (made.status_code, place.path) == (201, f"{PREFIX}{RULES}/{made.get_json()['id']}")
    assert proxied.get(place.path).get_json() == made.get_json()


def test_the_repeat_of_a_request_gets_its_address_below_the_path_by_which_the_repeat_comes(proxied, app):
    once = {"json": {"decision": "reject", "tool_name": "browser"}, "headers": {"Idempotency-Key": str(uuid4())}}
    first, again = (proxied.post(f"{PREFIX}{RULES}", **once) for _ in range(2))
    straight = app.test_client().post(RULES, **once)

    assert first.headers["Location"] == again.headers["Location"] == f"{PREFIX}{straight.headers['Location']}"
    assert straight.headers["Idempotency-Replayed"] == "true"
    assert app.test_client().get(straight.headers["Location"]).get_json() == first.get_json()


def test_the_openapi_document_names_the_path_of_a_proxy_that_says_it_and_is_else_the_same(proxied, app):
    behind = proxied.get(f"{PREFIX}/openapi.json").get_json()
    straight = app.test_client().get("/openapi.json").get_json()

    assert behind.pop("servers") == [{"url": PREFIX}]
    assert behind == straight
    assert "servers" not in straight


def test_the_server_says_where_its_docs_are(proxied, app):
    assert proxied.get(f"{PREFIX}/server_info").get_json()["docs"] == f"{PREFIX}/docs"
    assert app.test_client().get("/server_info").get_json()["docs"] == "/docs"


def test_a_socket_is_found_below_the_path_of_a_proxy(proxied, conversation):
    assert proxied.get(f"{PREFIX}/sockets/events/{conversation}").status_code == 426


def test_a_one_time_link_shows_its_action_and_its_form_decides_below_the_path_of_a_proxy(proxied, conversation):
    act = action()
    policy = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    proxied.post(f"{PREFIX}{API}", json=policy)
    proxied.post(f"{PREFIX}/api/v1/webhooks/events/{conversation}", json=[act])
    links = ApprovalLinks((SECRET_KEY,), public_url=f"{ORIGIN}{PREFIX}/", seconds=60)
    digest = action_digest(act["tool_name"], shown_arguments(act["action"]))
    link = links.make(conversation, act["id"], digest, "the team's chat")

    assert link.startswith(f"{ORIGIN}{PREFIX}/approvals/")
    page = proxied.get(urlsplit(link).path)
    text = html.unescape(page.get_data(as_text=True))
    assert (page.status_code, re.findall(r"<form[^>]*>", text)) == (200, ['<form method="post">'])
    assert not re.search(r'(?:src|href|action)="', text)
    own = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
    decided = proxied.post(urlsplit(link).path, data={"decision": "approve"}, headers=own)
    assert (decided.status_code, "Approved" in decided.get_data(as_text=True)) == (200, True)


def test_links_of_notifications_lead_below_the_path_of_the_public_url():
    entry = {"type": "conversation.finished", "time": "2026-11-20T20:00:00Z", "conversation_id": "c"}
    for url in (f"{ORIGIN}{PREFIX}", f"{ORIGIN}{PREFIX}/"):
        told = json.loads(body_of(entry, Subject(), public_url=url, approval_link=None))
        assert told["data"]["link"] == f"{ORIGIN}{PREFIX}/console/#/conversations/c"


def test_no_response_sets_a_cookie_or_names_the_path_in_its_policy(proxied):
    for path in ("/", "/console/", "/docs", "/openapi.json", "/alive", "/nope"):
        with contextlib.closing(proxied.get(f"{PREFIX}{path}", headers=HTML)) as response:
            headers = response.headers
        assert "Set-Cookie" not in headers, path
        assert PREFIX not in headers["Content-Security-Policy"], path  # it names the origin, as 'self'


def test_the_client_takes_an_address_with_a_path(app, conversation):
    with Client(f"{ORIGIN}{PREFIX}/", transport=httpx.WSGITransport(PrefixProxy(app)), retry_seconds=0.1) as client:
        client.request("POST", API, json={"conversation_id": conversation})
        found = client.conversation(conversation).info()
        user = client.user()

    assert found["id"] == conversation
    assert user["id"]


@pytest.mark.parametrize("prefix", ["/agents/", "/a-b/c.d_e~f", "/"])
def test_the_path_of_a_proxy_may_end_in_a_slash_and_have_several_parts(prefix):
    client = WsgiClient(PrefixProxy(away(**PROXY), prefix=prefix))

    response = client.get(f"{PREFIX}/alive/")

    assert (response.status_code, response.headers["Location"]) == (307, f"{prefix.rstrip('/')}/alive")


def test_a_path_that_would_lead_elsewhere_is_refused_in_words():
    for prefix in ("//evil.example", "agents", "https://evil.example", "/a//b", "/a\\b", "/a b"):
        client = WsgiClient(PrefixProxy(away(**PROXY), prefix=prefix))

        for path in ("/", "/console", "/alive/", "/openapi.json", "/docs", "/nope"):
            response = client.get(f"{PREFIX}{path}", headers=HTML)
            assert response.status_code == 400, (prefix, path)
            assert "X-Forwarded-Prefix" in response.get_json()["detail"], path
            assert "Location" not in response.headers, path


def test_the_last_path_counts_and_nobody_but_a_trusted_proxy_is_believed():
    app = away(**PROXY)
    behind_another = WsgiClient(PrefixProxy(app, prefix="/lie, /agents"))
    from_elsewhere = WsgiClient(PrefixProxy(app, address="10.0.0.2"))
    host = {"Host": "agents.example.org"}

    assert behind_another.get(f"{PREFIX}/alive/").headers["Location"] == f"{PREFIX}/alive"
    assert from_elsewhere.get(f"{PREFIX}/alive/", headers=host).headers["Location"] == "/alive"
    assert "servers" not in from_elsewhere.get(f"{PREFIX}/openapi.json", headers=host).get_json()
