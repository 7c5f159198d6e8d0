"""The audit over HTTP: pages and JSON lines of one conversation and of all, byte for byte as the scripts wrote it."""

import json
from itertools import product
from uuid import uuid4

import httpx
import pytest
from redis import Redis

from admin.audit import main, verify
from core.wire import Micros, utc_time
from schemas import audit as schema
from store.approvals import audit as stored
from store.approvals.audit import SCAN_CHUNK, AuditFilter, audit_member
from tests.audits import KEY, START, chain, keep
from tests.blueprints import NOT_FOUND
from tests.servers import agent_server, store_server

LINES = "application/x-ndjson"

OF_ITS_OWN = pytest.mark.process("starts a server with a long audit")

#: entries of a long audit
LONG = 6000


@pytest.fixture
def redis(store):
    return store.conversations._redis


@pytest.fixture
def path(conversation):
    return f"/api/v1/conversation/{conversation}/audit"


@pytest.fixture
def start():
    """A time of its own for each test: the tests share the index of all."""
    start.next = getattr(start, "next", START) + 10**10
    return start.next


def span(start, seconds=9_000):
    """A query for the entries of one test."""
    return {"time__gte": utc_time(Micros(start)), "time__lt": utc_time(Micros(start + seconds * 1_000_000))}


def pages(client, path, **query):
    """Every page from the first to the last, as lists of entries."""
    found, following = [], {}
    while True:
        page = client.get(path, query_string={**query, **following}).get_json()
        found.append(page["items"])
        if page["next_page_id"] is None:
            return found
        following = {"page_id": page["next_page_id"]}


def all_of(client, **query):
    return [entry for page in pages(client, "/api/v1/audit", **query) for entry in page]


def seqs(entries):
    return [(entry["conversation_id"], entry["seq"]) for entry in entries]


# one conversation


def test_the_audit_of_an_unknown_conversation_is_404(client, path):
    for query in ({}, {"format": "jsonl"}):
        response = client.get(path, query_string=query)
        assert (response.status_code, response.get_json()) == NOT_FOUND


def test_the_audit_of_a_conversation_that_never_waited_is_empty(client, conversation, path):
    client.post("/api/conversations", json={"conversation_id": conversation})

    assert client.get(path).get_json() == {"items": [], "next_page_id": None}
    lines = client.get(path, query_string={"format": "jsonl"})
    assert (lines.status_code, lines.data, lines.mimetype) == (200, b"", LINES)


def test_the_audit_outlives_its_conversation(client, redis, conversation, path):
    client.post("/api/conversations", json={"conversation_id": conversation})
    entries = keep(redis, conversation, chain(conversation, 2), indexed=False)
    assert client.delete(f"/api/conversations/{conversation}").status_code == 200

    assert client.get(f"/api/conversations/{conversation}").status_code == 404
    assert client.get(path).data == b'{"items":[%b],"next_page_id":null}' % b",".join(entries)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 100])
def test_pages_of_a_conversation_have_every_entry_once_oldest_first(client, redis, conversation, path, limit):
    keep(redis, conversation, chain(conversation, 5), indexed=False)

    found = pages(client, path, limit=limit)

    assert [entry["seq"] for page in found for entry in page] == [1, 2, 3, 4, 5]
    assert all(len(page) == limit for page in found[:-1])
    assert found[-1]


def test_a_page_has_the_bytes_of_the_entries_as_stored(client, redis, conversation, path):
    entries = keep(redis, conversation, chain(conversation, 3), indexed=False)

    response = client.get(path, query_string={"limit": 2})

    assert response.data == b'{"items":[%b,%b],"next_page_id":"2"}' % tuple(entries[:2])
    assert response.headers["Cache-Control"] == "no-store"


def test_lines_have_every_entry_of_a_long_audit_and_verify(client, redis, conversation, path):
    entries = keep(redis, conversation, chain(conversation, 350), indexed=False)

    response = client.get(path, query_string={"format": "jsonl"})

    assert response.mimetype == LINES
    assert f"audit_{conversation}.jsonl" in response.headers["Content-Disposition"]
    lines = response.data.splitlines(keepends=True)
    assert lines == [entry + b"\n" for entry in entries]
    assert verify(lines)[1] == 350


def test_lines_begin_after_the_entry_of_a_cursor(client, redis, conversation, path):
    entries = keep(redis, conversation, chain(conversation, 3), indexed=False)

    assert client.get(path, query_string={"format": "jsonl", "page_id": "2"}).data == entries[2] + b"\n"


# all conversations


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_of_all_have_every_entry_once_in_either_order(client, redis, start, limit):
    ids = sorted(str(uuid4()) for _ in range(3))
    for one in ids:
        keep(redis, one, chain(one, 4, at=start), at=start)  # equal times in all three
    expected = [(one, seq) for seq in (1, 2, 3, 4) for one in ids]

    assert seqs(all_of(client, limit=limit, **span(start))) == expected
    assert seqs(all_of(client, limit=limit, sort_order="TIME", **span(start))) == expected
    assert seqs(all_of(client, limit=limit, sort_order="TIME_DESC", **span(start))) == expected[::-1]


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_entries_of_one_moment_are_in_the_order_of_their_seqs(client, redis, conversation, start, limit):
    keep(redis, conversation, chain(conversation, 12, at=start), at=start, indexed=False)
    redis.zadd("{approvals}:audit", {audit_member(conversation, seq): start for seq in range(1, 13)})

    entries = all_of(client, limit=limit, **span(start))
    assert [entry["seq"] for entry in entries] == list(range(1, 13))
    entries = all_of(client, limit=limit, sort_order="TIME_DESC", **span(start))
    assert [entry["seq"] for entry in entries] == list(range(12, 0, -1))


def test_an_entry_that_comes_while_a_client_pages_is_neither_missed_nor_repeated(client, redis, conversation, start):
    entries = chain(conversation, 5, at=start)
    keep(redis, conversation, entries[:4], at=start)
    query = {"limit": 2, **span(start)}

    first = client.get("/api/v1/audit", query_string=query).get_json()
    keep(redis, conversation, entries[4:], at=start + 4_000_000, indexed=False)
    redis.zadd("{approvals}:audit", {audit_member(conversation, 5): start + 4_000_000})
    redis.zrem("{approvals}:audit", audit_member(conversation, 2))  # the cursor's own entry may be trimmed
    rest = all_of(client, page_id=first["next_page_id"], **query)

    assert [entry["seq"] for entry in first["items"] + rest] == [1, 2, 3, 4, 5]


def test_times_bound_a_search_from_the_first_to_before_the_second(client, redis, conversation, start):
    keep(redis, conversation, chain(conversation, 5, at=start), at=start)
    times = {"time__gte": utc_time(Micros(start + 1_000_000)), "time__lt": utc_time(Micros(start + 3_000_000))}

    for order in ("TIME", "TIME_DESC"):
        assert {entry["seq"] for entry in all_of(client, sort_order=order, **times)} == {2, 3}
    assert all_of(client, time__gte=times["time__lt"], time__lt=times["time__gte"]) == []


FILTERED = [
    ({"actor": "ada"}, {1, 2}),
    ({"actor": "ad"}, set()),
    ({"actor_kind": "rule"}, {3}),
    ({"decision": "reject"}, {2, 3}),
    ({"decision": "reject", "actor": "ada"}, {2}),
    ({"decision": "unapproved"}, set()),
    ({"tool_name": "terminal"}, {1, 2}),
    ({"tool_name": "term"}, set()),
    ({"text": "RM -R"}, {2}),
    ({"text": "strasse"}, {1, 2, 3}),
    ({"text": "terminal", "decision": "reject"}, {2}),
]

#: what entries say of their actions: two of terminals, and one of an earlier release
SHOWN = [
    {"shown": [{"tool_name": "terminal", "text": "make", "summary": None}]},
    {"shown": [{"tool_name": "terminal", "text": "rm -r build", "summary": "Remove"}]},
    {},
]


def test_filters_keep_what_passes_all_of_them(client, redis, conversation, start):
    rule = {"kind": "rule", "name": "rule_1", "address": ""}
    for number, (actor, decision) in enumerate([(KEY, "approve"), (KEY, "reject"), (rule, "reject")], 1):
        one, at = str(uuid4()), start + number * 1_000_000
        words = {"reason": str(number), "conversation_title": "Straße", **SHOWN[number - 1]}
        keep(redis, one, chain(one, 1, at=at, actor=actor, decision=decision, **words), at=at)

    for filters, found in FILTERED:
        entries = all_of(client, **filters, **span(start))
        assert {int(entry["reason"]) for entry in entries} == found, filters


def test_the_entries_of_one_conversation_are_read_from_its_own_audit(client, redis, conversation, start):
    keep(redis, conversation, chain(conversation, 5, at=start), at=start, indexed=False)
    other = str(uuid4())
    keep(redis, other, chain(other, 2, at=start), at=start)
    times = {"time__gte": utc_time(Micros(start + 2_000_000)), "time__lt": utc_time(Micros(start + 4_000_000))}

    for order, limit in product(("TIME", "TIME_DESC"), (1, 2, 5, 100)):
        entries = all_of(client, conversation_id=conversation, sort_order=order, limit=limit)
        assert [entry["seq"] for entry in entries] == ([1, 2, 3, 4, 5] if order == "TIME" else [5, 4, 3, 2, 1])
        entries = all_of(client, conversation_id=conversation, sort_order=order, limit=limit, **times)
        assert {entry["seq"] for entry in entries} == {3, 4}


def test_a_search_for_what_is_rare_reads_a_bounded_number_of_entries_for_a_page(
    client, redis, store, conversation, start, monkeypatch
):
    monkeypatch.setattr(stored, "MOST_SCANNED", 2 * SCAN_CHUNK)
    number = 5 * SCAN_CHUNK
    keep(redis, conversation, chain(conversation, number, at=start), at=start)
    last = str(uuid4())
    keep(redis, last, chain(last, 1, at=start + number * 1_000_000, decision="edit"), at=start + number * 1_000_000)

    found = pages(client, "/api/v1/audit", decision="edit", **span(start))

    assert [len(page) for page in found] == [0, 0, 1]
    assert AuditFilter().reads_entries is False


def test_an_entry_whose_audit_has_expired_is_left_out(client, redis, conversation, start):
    keep(redis, conversation, chain(conversation, 2, at=start), at=start)
    gone = str(uuid4())
    redis.zadd("{approvals}:audit", {audit_member(gone, 1): start})

    assert seqs(all_of(client, limit=1, **span(start))) == [(conversation, 1), (conversation, 2)]


def test_lines_of_all_verify(client, redis, start):
    for _ in range(3):
        one = str(uuid4())
        keep(redis, one, chain(one, 120, at=start), at=start)

    response = client.get("/api/v1/audit", query_string={"format": "jsonl", **span(start)})

    assert response.mimetype == LINES
    heads, entries = verify(response.data.splitlines(keepends=True))
    assert (len(heads), entries) == (3, 360)


def test_a_search_that_cannot_be_is_422_and_names_the_parameter(client, path):
    for url, query in (("/api/v1/audit", {"actor_kind": "model"}), (path, {"page_id": "-1"})):
        response = client.get(url, query_string=query)

        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"] == ["query", *query]


def test_the_actors_of_the_interface_are_those_of_the_store():
    assert schema.ACTOR_KINDS == stored.ACTOR_KINDS


# a real server


@pytest.mark.process("asks a real server")
def test_the_command_verifies_an_export_of_a_server(server, backend, conversation, capsys):
    with Redis.from_url(backend[1], retry=None) as redis:
        keep(redis, conversation, chain(conversation, 350))
    of_one = f"/api/v1/conversation/{conversation}/audit"

    for path in (of_one, f"/api/v1/audit?limit=7&conversation_id={conversation}"):
        assert main(["verify", str(server.base_url.join(path))]) == 0
        assert "350 entries of 1 conversations verify" in capsys.readouterr().err
    assert main(["verify", str(server.base_url.join(of_one.replace(conversation, str(uuid4()))))]) == 2
    assert "the server responds 404" in capsys.readouterr().err


@pytest.fixture(scope="module")
def exporting(tmp_path_factory):
    """A server with keys, and a store in which a conversation has a long audit; its id."""
    folder, conversation = tmp_path_factory.mktemp("audit"), str(uuid4())
    with (
        store_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, SESSION_API_KEY="an-admin-key-for-tests") as (client, _),
    ):
        client.headers["X-Session-API-Key"] = "an-admin-key-for-tests"
        yield client, url, conversation, folder


@pytest.fixture(scope="module")
def long_audit(exporting):
    client, url, conversation, _ = exporting
    with Redis.from_url(url, retry=None) as redis:
        keep(redis, conversation, chain(conversation, LONG, reason="x" * 4000))  # more than sockets buffer
    return client, conversation


@OF_ITS_OWN
def test_the_command_verifies_the_exports_of_a_server(long_audit, monkeypatch, capsys):
    client, conversation = long_audit
    monkeypatch.setenv("SESSION_API_KEY", "an-admin-key-for-tests")

    for path in (f"/api/v1/conversation/{conversation}/audit", "/api/v1/audit?limit=7"):
        assert main(["verify", str(client.base_url.join(path))]) == 0
        assert f"{LONG} entries of 1 conversations verify" in capsys.readouterr().err
    assert main(["verify", str(client.base_url.join(f"/api/v1/conversation/{uuid4()}/audit"))]) == 2
    assert "the server responds 404" in capsys.readouterr().err
    monkeypatch.setenv("SESSION_API_KEY", "wrong")
    assert main(["verify", str(client.base_url.join("/api/v1/audit"))]) == 2


@OF_ITS_OWN
def test_a_client_that_hangs_up_in_an_export_leaves_a_server_that_exports(exporting, long_audit):
    client, conversation = long_audit
    for _ in range(5):
        with client.stream("GET", "/api/v1/audit", params={"format": "jsonl"}) as response:
            assert json.loads(next(response.iter_bytes()).split(b"\n")[0])["seq"] == 1

    response = client.get(f"/api/v1/conversation/{conversation}/audit", params={"format": "jsonl"})
    assert len(response.content.splitlines()) == LONG
    assert "Traceback" not in (exporting[3] / "log").read_text()


@OF_ITS_OWN
def test_an_export_ends_before_its_last_entry_where_its_key_is_revoked(long_audit):
    client, _ = long_audit
    made = client.post("/api/v1/keys", json={"name": "exporter", "scopes": ["admin"]}).json()
    headers = {"X-Session-API-Key": made["key"]}

    with client.stream("GET", "/api/v1/audit", params={"format": "jsonl"}, headers=headers) as response:
        pieces = response.iter_bytes()
        next(pieces)
        assert client.delete(f"/api/v1/keys/{made['id']}").status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
