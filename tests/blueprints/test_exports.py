"""Exports and imports: ids, order and bytes stay, whole or not at all, and no secret leaves."""

import json
import re
from dataclasses import replace
from uuid import uuid4

import duckdb
import pytest

from schemas import exports
from store.conversations.copies import PAGE, Copy
from store.errors import IdInUse
from tests.apps import serve_with
from tests.blueprints import API, at, log, said
from tests.blueprints.test_forks import assert_same_log
from tests.conftest import action, event, message, observation, recorded
from tests.exports import sealed
from tests.servers import PROJECT

LINES = {"content_type": "application/x-ndjson"}

#: an event as some agents write them: with line feeds between its members
PRETTY = json.dumps(event(note='a "quoted" \\ word', **at(4)), indent=2)


def append(client, conversation, *raw: str):
    body = f"[{', '.join(raw)}]"
    path = f"/api/v1/webhooks/events/{conversation}"
    assert client.post(path, data=body, content_type="application/json").status_code == 200


def exported(client, url) -> list[bytes]:
    response = client.get(f"{url}/export")
    assert response.status_code == 200
    assert response.mimetype == "application/x-ndjson"
    assert response.get_data().endswith(b"\n")
    return response.get_data().removesuffix(b"\n").split(b"\n")


def imported(client, lines, status=201):
    """Import lines, with the digest of them unless they have one."""
    has_end = not lines or any(b"agent-server-conversation-end" in one for one in lines[-2:])
    response = client.post(f"{API}/import", data=b"\n".join(lines if has_end else sealed(lines)), **LINES)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def as_another(lines) -> tuple[str, list[bytes]]:
    """The export of a conversation with another id, without its last line."""
    identity = str(uuid4())
    head = {**json.loads(lines[0]), "id": identity}
    return f"{API}/{identity}", [json.dumps(head).encode(), *lines[1:-1]]


def keys_of(store, url) -> list[bytes]:
    return store.conversations._redis.keys(f"conv:{{{url.rpartition('/')[2]}}}*")


@pytest.fixture
def lines(client, url, conversation):
    """The export of a conversation with a head and three events."""
    append(client, conversation, *(json.dumps(event(**at(second))) for second in range(3)))
    return exported(client, url)


def test_an_import_has_the_bytes_of_every_event_and_the_same_query_results(client, url, conversation):
    # Given a log of several pages with every kind of event, out of order, some of odd bytes
    odd = f'{{ "id":"{uuid4()}",\t"kind" : "m.MessageEvent","source":"agent", "timestamp":"1999-01-01T00:00:00Z",'
    odd += '"x":1e3,"llm_message":{"content":[{"type":"text","text":"Stra\\u00dfe \\ud83d\\ude00 ß"}]}, "none":null }'
    append(client, conversation, *map(json.dumps, recorded("pending")), odd, PRETTY)
    append(client, conversation, *(json.dumps(said(f"o {n}", **at(n % 60))) for n in range(2 * PAGE)))
    before = client.get(url).get_json()
    lines = exported(client, url)
    assert len(lines) == 2 + json.loads(lines[0])["events"] == 2 + len(log(client, url))
    assert odd.encode() in lines
    assert json.dumps(PRETTY).encode() in lines

    # When a conversation is made of its export
    copy, others = as_another(lines)
    response = imported(client, others)

    # Then it has the same log, and the same members where no agent is asked
    assert_same_log(client, url, copy)
    assert response == client.get(copy).get_json()
    differing = {name for name in before if response[name] != before[name]}
    assert differing == {"id", "execution_status"}
    assert (before["execution_status"], response["execution_status"]) == ("waiting_for_confirmation", "paused")
    assert client.get(f"{copy}/pending_actions").get_json() == []

    # And its own export is that which it was made of
    again = exported(client, copy)
    assert again[1:-1] == lines[1:-1]

    # And it can be gone on with, and deleted
    append(client, copy.rpartition("/")[2], json.dumps(message("more")))
    assert client.get(f"{copy}/events/count").get_json() == len(lines) - 1
    assert client.delete(copy).status_code == 200


def test_events_of_any_year_are_imported_and_found_by_their_times(client, url, conversation):
    """A score of Redis is exact to the microsecond from 1684 to 2255, and to 32 µs in the years 1 and 9999."""
    times = [
        "9999-12-31T23:59:59",
        "1969-12-31T23:59:59.999999",
        "2026-11-20",
        "0001-01-01",
        "2262-04-12",
        "1970-01-01",
    ]
    append(client, conversation, *(json.dumps({**message("needle"), "timestamp": one, "id": one}) for one in times))
    for before in ("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"):
        head, *lines = exported(client, url)
        head = json.dumps({**json.loads(head), "created_at": before, "updated_at": before}).encode()
        client.delete(url)
        imported(client, [head, *lines[:-1]])

        assert exported(client, url)[1:-1] == lines[:-1]
        for query in ({}, {"body": "needle"}, {"kind": "MessageEvent"}):
            assert shown(client, url, **query) == sorted(times)
            assert shown(client, url, sort_order="TIMESTAMP_DESC", **query) == sorted(times, reverse=True)
            assert shown(client, url, timestamp__gte="1970-01-01", **query) == sorted(times)[2:]
            assert shown(client, url, timestamp__lt="1970-01-01", **query) == sorted(times)[:2]
            assert shown(client, url, timestamp__gte="9999-12-31", **query) == [times[0]]
            assert shown(client, url, timestamp__lt="0001-01-02", **query) == ["0001-01-01"]
        assert client.get(f"{url}/events/histogram").get_json()["total"] == len(times)
        assert client.get(url).get_json()["updated_at"] == before.replace("Z", ".000000Z")
        listed = client.get(f"{API}/search", query_string={"sort_order": "UPDATED_AT", "limit": 1}).get_json()["items"]
        assert [one["id"] for one in listed] == [conversation]


def shown(client, url, **query) -> list[str]:
    """The ids of all events of a search, a page of one event at a time."""
    found, page = [], {}
    while page is not None:
        body = client.get(f"{url}/events/search", query_string={**query, "limit": 1, **page}).get_json()
        found += [one["id"] for one in body["items"]]
        page = {"page_id": body["next_page_id"]} if body["next_page_id"] else None
    return found


def test_an_import_restores_a_deleted_conversation_under_its_id(client, url, conversation):
    act = action()
    append(client, conversation, json.dumps(act), json.dumps(observation(act)))
    client.patch(url, json={"title": "Kept", "tags": {"project": "alpha"}, "confirmation_seconds": 60})
    client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "ConfirmRisky", "threshold": "HIGH"}})
    before, lines = client.get(url).get_json(), exported(client, url)
    client.delete(url)

    assert imported(client, lines) == before

    assert client.get(url).get_json() == before
    query = {"text": "Kept", "tag": "project=alpha", "updated__gte": before["created_at"]}
    found = client.get("/api/v1/conversations/search", query_string=query)
    assert conversation in [one["id"] for one in found.get_json()["items"]]


def test_a_repeat_says_so_and_changes_nothing_also_after_more_events(client, store, lines):
    copy, others = as_another(lines)
    first = imported(client, others)
    keys = sorted(keys_of(store, copy))

    assert imported(client, others, 200) == first
    assert sorted(keys_of(store, copy)) == keys

    append(client, copy.rpartition("/")[2], json.dumps(event()))
    imported(client, others, 200)
    assert client.get(f"{copy}/events/count").get_json() == len(lines) - 1


@pytest.mark.parametrize("change", ["event", "longer", "created_at"])
def test_an_import_does_not_change_another_conversation_with_its_id(client, store, lines, change):
    copy, others = as_another(lines)
    imported(client, others)
    keys, head = sorted(keys_of(store, copy)), json.loads(others[0])
    match change:
        case "event":
            others[2] = json.dumps({**json.loads(others[2]), "more": True}).encode()
        case "longer":
            others.append(json.dumps(event()).encode())
            head["events"] += 1
        case "created_at":
            head["created_at"] = "2020-01-01T00:00:00Z"

    refusal = imported(client, [json.dumps(head).encode(), *others[1:]], 409)

    assert refusal == {"detail": IdInUse.words}
    assert log(client, copy) == [json.loads(line) for line in lines[1:-1]]
    assert sorted(keys_of(store, copy)) == keys


def test_an_export_of_no_events_is_imported_too(client, url):
    copy, others = as_another(exported(client, url))

    imported(client, others)

    assert client.get(f"{copy}/events/count").get_json() == 0
    imported(client, [*sealed(others), b""], 200)


def test_a_head_request_names_the_file_and_has_no_body(client, url, conversation):
    response = client.head(f"{url}/export")

    assert response.headers["Content-Disposition"] == f"attachment; filename=conversation_{conversation}.jsonl"
    assert "Content-Length" not in response.headers
    assert response.get_data() == b""


def test_no_export_has_a_secret(client, keeper):
    secret, api_key = f"s-{uuid4()}", f"k-{uuid4()}"
    request = {"secrets": {"TOKEN": secret}, "workspace": {"api_key": api_key}}
    made = keeper.post(API, json=request).get_json()

    [head, end] = exported(keeper, f"{API}/{made['id']}")

    assert secret.encode() not in head
    assert api_key.encode() not in head
    assert json.loads(head)["secret_registry"]["secret_sources"]["TOKEN"]["value"] == "**********"
    _, others = as_another([head, end])
    assert imported(client, others)["secret_registry"] == {"secret_sources": {}}


def members(**changes):
    """Change the first line; None takes a member out."""

    def change(lines):
        head = {name: value for name, value in {**json.loads(lines[0]), **changes}.items() if value is not None}
        return [json.dumps(head).encode(), *lines[1:]]

    return change


def line(number, raw):
    return lambda lines: [*lines[: number - 1], raw, *lines[number:]]


LONG = event(text="x" * 5_000_000)

WRONG = {
    "an empty body": (lambda _: [], ["line 1"], "Invalid JSON"),
    "a page of HTML": (lambda _: [b"<html>"], ["line 1"], "Invalid JSON"),
    "a list": (lambda _: [b"[]"], ["line 1"], "object"),
    "another format": (members(format="other"), ["line 1", "format"], "agent-server-conversation"),
    "an older version": (members(version=1), ["line 1", "version"], "greater than or equal to 2"),
    "a newer version": (members(version=3), ["line 1", "version"], "less than or equal to 2"),
    "no version": (members(version=None), ["line 1", "version"], "Field required"),
    "an id that is none": (members(id="x"), ["line 1", "id"], "UUID"),
    "a policy that is none": (
        members(confirmation_policy={"kind": "x"}),
        ["line 1", "confirmation_policy", "kind"],
        "one of",
    ),
    "a status that is none": (members(execution_status="x"), ["line 1", "execution_status"], "idle"),
    "a time that is none": (members(created_at="x"), ["line 1", "created_at"], "date-time"),
    "a creation to come": (members(created_at="9999-12-31T23:59:59Z"), ["line 1", "created_at"], "that is past"),
    "a change to come": (members(updated_at="2126-01-01"), ["line 1", "updated_at"], "that is past"),
    "a time before the first": (
        members(created_at="0001-01-01T00:00:00+23:59"),
        ["line 1", "created_at"],
        "from the year 1 on",
    ),
    "a number of the wrong type": (members(max_iterations="x"), ["line 1", "max_iterations"], "integer"),
    "a tag of the wrong type": (members(tags={"a": 1}), ["line 1", "tags", "a", "value"], "string"),
    "a member that is too long": (members(workspace={"a": "x" * 300_000}), ["line 1", "workspace"], "More bytes"),
    "an analyzer that is too long": (
        members(security_analyzer={"a": "x" * 300_000}),
        ["line 1", "security_analyzer"],
        "More bytes",
    ),
    "a source that is too long": (
        members(forked_from_conversation_id="x" * 129),
        ["line 1", "forked_from_conversation_id"],
        "at most 128 characters",
    ),
    "an event of a source that is too long": (
        members(forked_from_event_id="x" * 129),
        ["line 1", "forked_from_event_id"],
        "at most 128 characters",
    ),
    "a count beyond what the store counts": (
        members(unapproved_resumes=10**40),
        ["line 1", "unapproved_resumes"],
        "less than or equal",
    ),
    "fewer events than announced": (members(events=4), ["line 5"], "announces 4 events"),
    "more events than announced": (members(events=2), ["line 4"], "announces 2 events"),
    "an event that is not JSON": (line(3, b"{"), ["line 3"], "Invalid JSON"),
    "an empty line": (line(3, b""), ["line 3"], "Invalid JSON"),
    "bytes that are not UTF-8": (line(3, b'{"id":"\xff"}'), ["line 3"], "not UTF-8"),
    "an event that is a number": (line(2, b"1"), ["line 2"], "object"),
    "an event without a kind": (
        line(4, b'{"id":"a","source":"b","timestamp":"2026-01-01"}'),
        ["line 4", "kind"],
        "required",
    ),
    "text that is not an event": (line(2, b'"\\n"'), ["line 2"], "Invalid JSON"),
    "an event that is too long": (line(2, json.dumps(LONG).encode()), ["line 2"], "at most 4194304 bytes"),
    "an event of an earlier id": (
        lambda lines: [*lines[:3], lines[1]],
        ["line 4", "id"],
        "An earlier event has the id",
    ),
}


def test_an_invalid_line_is_named_and_nothing_is_imported(client, store, lines):
    for name, (change, loc, words) in WRONG.items():
        copy, others = as_another(lines)

        [fault] = imported(client, change(others), 422)["detail"]

        assert fault["loc"] == ["body", *loc], name
        assert words in fault["msg"], name
        assert client.get(copy).status_code == 404, name
        assert keys_of(store, copy) == [], name


def test_a_repeated_event_id_is_found_pages_later(client, store, lines):
    copy, others = as_another(lines)
    many = [json.dumps(event()).encode() for _ in range(2 * PAGE)]
    many[PAGE + 7] = many[5]

    [fault] = imported(client, [*members(events=len(many))(others)[:1], *many], 422)["detail"]

    assert fault["loc"] == ["body", f"line {PAGE + 7 + 2}", "id"]
    assert keys_of(store, copy) == []


def test_a_line_that_never_ends_is_refused_before_it_is_read_whole(client, monkeypatch):
    monkeypatch.setattr(exports, "MOST_LINE_BYTES", 200_000)

    [fault] = imported(client, [b'{"format":"' + b"x" * 2_000_000], 422)["detail"]

    assert (fault["loc"], fault["msg"]) == (["body", "line 1"], "A line should have at most 200000 bytes")


def test_more_kinds_than_the_settings_allow_are_refused(client, store, lines):
    copy, others = as_another(lines)
    many = [json.dumps(event(f"Kind{number}")).encode() for number in range(262)]

    refusal = imported(client, [*members(events=len(many))(others)[:1], *many], 422)

    assert "MAX_EVENT_KINDS" in refusal["detail"][0]["msg"]
    assert keys_of(store, copy) == []


def test_other_media_types_and_idempotency_keys_are_refused(client, lines):
    assert client.post(f"{API}/import", json={}).status_code == 415
    keyed = client.post(f"{API}/import", data=lines[0], headers={"Idempotency-Key": "k"}, **LINES)
    assert keyed.status_code == 400
    assert "exports" in keyed.get_json()["detail"]


def test_deleting_the_id_during_an_import_ends_the_import(client, lines, monkeypatch):
    url, lines = as_another(lines)
    append, deleted = Copy.append, []

    def overtaken(copy, events):
        deleted.append(client.delete(url).status_code)
        return append(copy, events)

    monkeypatch.setattr(Copy, "append", overtaken)
    assert "has ended this copy" in imported(client, lines, status=409)["detail"]

    assert deleted == [200]
    assert (client.get(url).status_code, client.delete(url).status_code) == (404, 404)


def test_an_import_beyond_the_bound_is_refused(app, client, store, lines, monkeypatch):
    config = app.extensions["server"].config
    small = replace(config, http=replace(config.http, max_import_bytes=2000))
    serve_with(monkeypatch, app, config=small)
    copy, others = as_another(lines)
    many = [json.dumps(event()).encode() for _ in range(PAGE)]

    refusal = imported(client, [*members(events=len(many))(others)[:1], *many], 413)

    assert refusal == {"detail": "The body is longer than 2000 bytes"}
    assert keys_of(store, copy) == []


def test_an_unknown_conversation_is_not_exported(client):
    assert client.get(f"{API}/{uuid4()}/export").status_code == 404


def test_duckdb_reads_an_export_as_the_documentation_shows(client, url, conversation, tmp_path):
    append(client, conversation, *(json.dumps(said("o", **at(second))) for second in (1, 3)), PRETTY)
    (tmp_path / "conversation.jsonl").write_bytes(client.get(f"{url}/export").get_data())
    query = re.search(r"```sql\n(.*?)```", (PROJECT / "docs/keeping.md").read_text(), re.DOTALL)[1]

    rows = duckdb.sql(query.replace("conversation.jsonl", str(tmp_path / "conversation.jsonl"))).fetchall()

    shown = [(kind, source, number, first.second, last.second) for kind, source, number, first, last in rows]
    assert shown == [("MessageEvent", "agent", 2, 1, 3), ("PauseEvent", "user", 1, 4, 4)]
