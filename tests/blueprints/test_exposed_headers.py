"""Which headers of a response a page of an allowed origin may read, and what else it may ask for."""

import ast
import json
import re

import pytest

from agents import forwarding
from app import create_app
from blueprints.posture import EXPOSED
from settings.config import Config
from tests.blueprints import API, FOREIGN, away
from tests.conftest import message
from tests.servers import PROJECT

APP, RULES = "https://app.example.org", "/api/v1/approval-rules"
KEY = "a-key-for-tests-only"

#: headers of responses that no page reads, and who does
WITHHELD = {
    "Access-Control-Allow-Credentials": "the browser",
    "Access-Control-Allow-Headers": "the browser",
    "Access-Control-Allow-Methods": "the browser",
    "Access-Control-Allow-Origin": "the browser",
    "Access-Control-Allow-Private-Network": "the browser",
    "Access-Control-Expose-Headers": "the browser",
    "Access-Control-Max-Age": "the browser",
    "Content-Security-Policy": "the browser",
    "Cross-Origin-Opener-Policy": "the browser",
    "Cross-Origin-Resource-Policy": "the browser",
    "Referrer-Policy": "the browser",
    "Set-Cookie": "the browser",
    "Vary": "caches",
    "X-Accel-Buffering": "proxies",
    "X-Content-Type-Options": "the browser",
    "X-Frame-Options": "the browser",
    "X-Robots-Tag": "search engines",
}

#: what browsers show to every page that may read the body: the Fetch standard, 2.2.2
SAFELISTED = {"Cache-Control", "Content-Language", "Content-Length", "Content-Type", "Expires", "Last-Modified"}

#: what the code names as a header of requests alone
OF_REQUESTS = {
    "Accept-Encoding",
    "Accept-Language",
    "Access-Control-Request-Headers",
    "Access-Control-Request-Method",
    "Access-Control-Request-Private-Network",
    "Idempotency-Key",
    "If-Match",
    "If-Modified-Since",
    "X-Agent-Host",
    "X-Agent-User",
    "X-Agent-Version",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Last-Event-ID",
    "Sec-Fetch-Dest",
    "Sec-Fetch-Mode",
    "Sec-Fetch-Site",
    "Service-Worker",
    "X-Expose-Secrets",
    "X-Person-Proxy-Secret",
    "X-Session-API-Key",
    "X-Stainless-Retry-Count",
}

#: of one hop alone: no browser shows them to any page
OF_ONE_HOP = {"Connection", "Transfer-Encoding", "TRANSFER-ENCODING"}

#: names of members of a conversation that look like headers
NO_HEADERS = {"Parent-Span-Context", "Span-Name"}

#: what the libraries add to responses, whose code is not read here
OF_LIBRARIES = {"Accept-Ranges", "Allow", "Content-Range", "Date", "ETag", "Last-Modified", "Server"}

HEADER = re.compile(
    r"[A-Z][A-Za-z]*(?:-[A-Z][A-Za-z0-9]*)+|Age|Allow|Date|ETag|Expires|Link|Location|Refresh|Server|Vary|Via|Warning"
)


def named_headers() -> set[str]:
    """All headers that the rooms name which write responses, and those that a sandbox's response may have."""
    sources = [*(PROJECT / "blueprints").rglob("*.py"), *(PROJECT / "boot").rglob("*.py")]
    sources += [PROJECT / "agents/forwarding.py", PROJECT / "app.py", PROJECT / "gunicorn.conf.py"]
    words = {
        node.value
        for path in sources
        if path.name != "posture.py"  # the list itself
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and HEADER.fullmatch(node.value)
    }
    forwarded = {name.title().replace("Etag", "ETag") for name in forwarding._RESPONSE_HEADERS}
    return words | forwarded | OF_LIBRARIES | {"Connection"}


def documented_headers(value) -> set[str]:
    """All headers of responses that a part of the OpenAPI document names."""
    if isinstance(value, list):
        return set().union(*map(documented_headers, value))
    if not isinstance(value, dict):
        return set()
    headers = value.get("headers")
    named = set(headers) if isinstance(headers, dict) else set()
    return named.union(*map(documented_headers, value.values()))


def test_every_header_that_the_document_promises_a_client_is_exposed_to_a_page():
    promised = documented_headers(json.loads((PROJECT / "docs/openapi.json").read_text())["paths"])

    assert len(promised) > 3
    assert promised - EXPOSED.keys() - SAFELISTED == set()


def exposed(response) -> set[str]:
    return set(response.headers["Access-Control-Expose-Headers"].split(", "))


@pytest.fixture(scope="module")
def client(redis_url):
    app = create_app(Config.of(redis_url=redis_url, redis_timeout=10, allowed_origins=(APP,)))
    app.extensions["server"].store.data_version.ensure()
    return app.test_client()


def test_each_header_that_the_code_names_is_exposed_or_withheld_and_no_list_has_another():
    decided = EXPOSED.keys() | WITHHELD.keys()
    of_responses = named_headers() - SAFELISTED - OF_REQUESTS - OF_ONE_HOP - NO_HEADERS - {"Server"}

    assert of_responses - decided == set(), "decide it: EXPOSED of blueprints/posture.py, or WITHHELD here"
    assert {name for name in decided - of_responses if not name.startswith("Access-Control-")} == set()
    assert EXPOSED.keys() & (WITHHELD.keys() | SAFELISTED) == set()


def test_a_page_of_an_allowed_origin_reads_the_cursor_of_a_long_poll_and_the_name_of_a_download(client, conversation):
    client.post(API, json={"conversation_id": conversation})
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("hello")])

    poll = client.get(f"{API}/{conversation}/events/search?after_seq=0", headers={"Origin": APP})
    download = client.get(f"{API}/{conversation}/export", headers={"Origin": APP})

    assert poll.status_code == download.status_code == 200
    for response, name in ((poll, "X-Last-Seq"), (download, "Content-Disposition")):
        assert name in response.headers
        assert name in exposed(response)


def test_every_header_of_a_response_is_decided_whatever_its_status(client, conversation):
    rule = {"tool_name": "terminal", "decision": "approve", "conversation_ids": [conversation]}
    once = {"Idempotency-Key": f"once {conversation}"}
    client.post(API, json={"conversation_id": conversation}, headers=once)
    asked = [
        ("POST", API, 201, {"json": {"conversation_id": conversation}, "headers": once}),
        ("POST", RULES, 201, {"json": rule}),
        ("DELETE", "/alive", 405, {}),
        ("GET", "/nope", 404, {}),
        ("GET", "/alive/", 307, {}),
        ("GET", "/console/", 200, {}),
        ("GET", "/docs/assets/page/docs.js", 206, {"headers": {"Range": "bytes=0-1"}}),
        ("GET", "/docs/assets/page/docs.js", 416, {"headers": {"Range": "bytes=9999999-"}}),
        ("GET", "/approvals/wrong", 403, {}),
        ("GET", f"{API}/{conversation}/events/search", 200, {}),
        ("OPTIONS", API, 204, {"headers": {"Access-Control-Request-Method": "POST"}}),
    ]
    known = EXPOSED.keys() | WITHHELD.keys() | SAFELISTED
    for method, path, status, options in asked:
        options = {**options, "headers": {**options.get("headers", {}), "Origin": APP}}
        with client.open(path, method=method, **options) as response:
            assert response.status_code == status, path
            assert set(response.headers.keys()) - known == set(), path
            assert exposed(response) == EXPOSED.keys(), path


def preflight(client, origin, **headers):
    return client.options(API, headers={"Origin": origin, "Access-Control-Request-Method": "POST", **headers})


PRIVATE = {"Access-Control-Request-Private-Network": "true"}


def test_a_page_of_an_allowed_origin_that_asks_may_reach_a_private_network(client):
    answered = preflight(client, APP, **PRIVATE)

    assert answered.status_code == 204
    assert answered.headers["Access-Control-Allow-Private-Network"] == "true"
    assert "Access-Control-Request-Private-Network" in answered.headers["Vary"]


def test_nobody_else_and_nobody_who_does_not_ask_is_told_of_a_private_network(client):
    for origin, headers in ((APP, {}), (APP, {"Access-Control-Request-Private-Network": "false"}), (FOREIGN, PRIVATE)):
        assert "Access-Control-Allow-Private-Network" not in preflight(client, origin, **headers).headers
    read = client.get("/alive", headers={"Origin": APP, **PRIVATE})
    assert "Access-Control-Allow-Private-Network" not in read.headers


def test_an_origin_that_is_refused_is_told_which_setting_would_allow_it():
    keyed = away(api_keys=(KEY,)).test_client()
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Origin": FOREIGN}
    refusals = [
        preflight(keyed, FOREIGN, **PRIVATE),
        keyed.post(API, headers={"Origin": FOREIGN}),
        keyed.post(API, headers={"Origin": "null"}),
        keyed.post(API, headers={"Sec-Fetch-Site": "cross-site"}),
        keyed.get("/sockets/events/5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001", headers=upgrade),
    ]

    assert [response.status_code for response in refusals] == [403] * 5
    assert [response for response in refusals if "ALLOWED_ORIGINS" not in response.get_json()["detail"]] == []
