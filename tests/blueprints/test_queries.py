"""Members of a query: those that an operation has, and the refusal of all others."""

import re
from uuid import uuid4

import pytest

from tests.blueprints import API

ID = str(uuid4())

#: what probes and scrapers call: they add members of their own
PROBED = {"/", "/alive", "/health", "/ready", "/server_info", "/metrics"}


def operations(app):
    """Method and path, with ids in it, of every operation that reads its query itself."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        is_page = not hasattr(view, "_apidoc")
        if (
            rule.rule in PROBED
            or is_page
            or view.needs.scope in ("link", "hook")
            or getattr(view, "is_forwarded", False)
        ):
            continue
        for method in rule.methods - {"HEAD", "OPTIONS"}:
            yield method, re.sub("<[^>]*>", ID, rule.rule)


def test_every_operation_refuses_a_member_that_it_does_not_have_and_names_it(client):
    passed = []
    for method, path in operations(client.application):
        response = client.open(path, method=method, query_string={"misspelt": "1"})
        refusals = response.get_json(silent=True) or {}
        openais = [["query", refusals["error"]["param"]]] if "error" in refusals else []
        places = openais or [one["loc"] for one in refusals["detail"]]
        if response.status_code != 422 or places != [["query", "misspelt"]]:
            passed.append((method, path, response.status_code))

    assert passed == []


@pytest.mark.parametrize("path", sorted(PROBED))
@pytest.mark.parametrize("query", ["_=1732550000", "module=http&target=x&target=y", "x", "limit=nine", "=", "%ff=%00"])
def test_what_probes_and_scrapers_call_ignores_its_query(client, path, query):
    response = client.get(f"{path}?{query}")

    assert response.status_code == 200
    assert (response.mimetype == "text/plain") == (path == "/metrics")


def test_a_refusal_says_what_the_query_may_have(client, url):
    response = client.get(f"{url}/events/count?knd=MessageEvent&kind=MessageEvent")

    [refusal] = response.get_json()["detail"]
    assert (refusal["loc"], refusal["type"]) == (["query", "knd"], "extra_forbidden")
    assert "body, kind, source, timestamp__gte, timestamp__lt" in refusal["msg"]
    assert "no query" in client.post(f"{url}/pause?x=1").get_json()["detail"][0]["msg"]


def test_a_refusal_is_short_whatever_was_sent(client):
    many = "&".join(f"{'x' * 200}{number}=1" for number in range(100))

    response = client.get(f"{API}/search?{many}")

    assert response.status_code == 422
    assert len(response.data) < 8192
    assert "and 90 more are unknown" in response.text
    assert all(refusal["loc"][1].endswith("…") for refusal in response.get_json()["detail"])
    assert client.get(f"{API}/search?%ff%00=1").status_code == 422


SENT = [
    (API, {"ids": ID, "include_skills": "true"}),
    (f"{API}/search", {"limit": 20, "sort_order": "UPDATED_AT_DESC", "include_skills": "false"}),
    ("/api/v1/app-conversations/search", {"limit": 20, "sort_order": "UPDATED_AT_DESC"}),
    ("/api/v1/app-conversations/count", {"sandbox_id__eq": "x"}),
    ("/api/v1/app-conversations/start-tasks/search", {"conversation_id__eq": ID, "sort_order": "CREATED_AT"}),
    ("/api/v1/users/me", {"expose_secrets": "false"}),
]


def test_what_published_clients_send_is_taken(client):
    found = [(path, query, client.get(path, query_string=query).status_code) for path, query in SENT]
    assert [one for one in found if one[2] != 200] == []


def test_what_is_forwarded_but_answered_here_refuses_a_misspelt_member(client):
    response = client.get(f"/api/file/home?cdi={ID}")

    assert (response.status_code, response.get_json()["detail"][0]["loc"]) == (422, ["query", "cdi"])
    assert client.get("/api/file/home").status_code == 200


def test_a_socket_refuses_a_member_that_it_does_not_have_before_the_handshake(client, url):
    response = client.get(f"/sockets/events/{ID}?resend_mod=all")

    assert (response.status_code, response.get_json()["detail"][0]["loc"]) == (422, ["query", "resend_mod"])


def test_the_document_names_every_member_that_an_operation_has(client):
    document = client.get("/openapi.json").get_json()
    for path, query in (
        ("/api/conversations", {"ids", "include_skills"}),
        ("/api/v1/app-conversations", {"ids", "limit", "title__contains", "sort_order"}),
        ("/api/conversations/{conversation_id}/events/stream", {"after_seq", "kind", "source"}),
        ("/api/v1/pending-actions/stream", {"last_event_id"}),
    ):
        documented = document["paths"][path]["get"]["parameters"]
        assert query <= {one["name"] for one in documented if one.get("in") == "query"}, path
