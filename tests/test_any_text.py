"""Any text whatever, in any member of any request: taken or refused by name, and nothing that was taken fails later."""

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.blueprints.test_exports import as_another, exported
from tests.chance import often
from tests.conftest import action, event, message, observation
from tests.exports import sealed
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi

TORN = "a\ud83d"  #: what a client's cut of an emoji leaves

texts = st.text(st.characters(exclude_categories=()) | st.sampled_from("\0\u2028\u2029\u202e\u2066\ud83d\udc00"))

#: members of one operation that get a text of a mebibyte: all of them would take half a minute
MOST_LONG = 2

_DOCUMENT = json.loads((Path(__file__).parent.parent / "docs" / "openapi.json").read_text())

#: members with which the response waits for a sandbox, that nobody starts in this process
_STARTS = ("agent", "agent_settings", "agent_profile_id")


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = _DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def filled(schema: dict[str, Any], text: str) -> Any:
    """A value of a schema, with a text in every place that takes any."""
    schema = resolved(schema)
    for choices in ("oneOf", "anyOf", "allOf"):
        if choices in schema and "properties" not in schema:  # beside those it says which must be there
            return filled(schema[choices][0], text)
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    kind = schema["type"][0] if isinstance(schema.get("type"), list) else schema.get("type")
    if kind == "object":
        members = schema.get("properties", {})
        return {name: filled(inner, text) for name, inner in members.items()} or {text: text, "x": [{"y": text}]}
    if kind == "array":
        return [filled(schema.get("items", {}), text)]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "boolean":
        return True
    return {"uuid": str(uuid4()), "date-time": "2026-11-20T20:37:22Z"}.get(schema.get("format"), text)


def bodies(schema: dict[str, Any], text: str) -> Iterator[Any]:
    """Bodies of a schema: with a text in every member, and in one beside those that must be there."""
    whole, members = filled(schema, text), resolved(schema).get("properties", {})
    yield from (whole, text, {text: text})
    needed = {name: filled(members[name], "x") for name in resolved(schema).get("required", ())}
    for name in members:
        if name not in _STARTS:
            yield {**needed, name: whole[name]}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in _DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if method != "parameters" and "content" in operation.get("requestBody", {}):
                content = operation["requestBody"]["content"].get("application/json")
                if content and content["schema"]:
                    yield method, path, content["schema"]


OPERATIONS = [*operations()]


def naming(path: str, conversation: str) -> str:
    """The query by which a call of a sandbox's services names a conversation: without one it would start a sandbox."""
    return f"?cid={conversation}" if path.startswith(("/api/bash/", "/api/file/")) else ""


#: what each operation is tried with in a quick test; the others draw texts by chance
SOME = (TORN, "a\0b\u2028\u202e")

by_chance = pytest.mark.faults("asks every operation again and again, with texts by chance")


@pytest.mark.parametrize("text", SOME)
def test_a_body_of_any_text_is_taken_or_refused_and_the_conversation_still_takes_a_message(client, store, text):
    assert_bodies_are_answered(client, store, text)


@by_chance
@settings(
    max_examples=often(2, 10), suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the app is the same for all
@given(texts)
def test_a_body_of_a_text_by_chance_is_taken_or_refused(client, store, text):
    assert_bodies_are_answered(client, store, text)


def assert_bodies_are_answered(client, store, text):
    """Every operation takes or refuses a text in each member, and the conversation still takes a message."""
    assert len(OPERATIONS) > 25
    store.sandboxes.beat("a host that starts nothing", "a supervisor")
    for method, path, schema in OPERATIONS:
        conversation = str(uuid4())
        client.post("/api/conversations", json={"conversation_id": conversation})
        url = path.replace("{conversation_id}", conversation).replace("{receiver_id}", conversation)
        url += naming(path, conversation)
        for body in bodies(schema, text):
            body = {k: v for k, v in body.items() if k not in _STARTS} if isinstance(body, dict) else body
            response = client.open(url.replace("{", "").replace("}", ""), method=method.upper(), json=body)
            assert response.status_code < 500, (path, body, response.text)
            response.close()  # of the start that is streamed only its first state is read

        hello = {"content": [{"type": "text", "text": "hello"}]}
        for verb, said in (("events", hello), ("pause", {}), ("run", {})):
            response = client.post(f"/api/conversations/{conversation}/{verb}", json=said)
            assert response.status_code == 200, (path, response.text)


def everything() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in _DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield method.upper(), path, {"parameters": methods.get("parameters", []), **operation}


EVERYTHING = [*everything()]

#: operations whose body is no JSON, or is another program's: each is a door of its own
OTHER_BODIES = {
    ("POST", path): [*operation["requestBody"]["content"]]
    for method, path, operation in EVERYTHING
    if method == "POST" and "requestBody" in operation
    if not operation["requestBody"]["content"].get("application/json", {}).get("schema")
}


def written(text: str) -> str:
    """Any text as a URL has it."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def in_place(path: str, conversation: str, other: str = "x") -> str:
    """A path with a conversation that is there, and with another text in the place of each other parameter."""
    return re.sub(r"\{(\w+)\}", lambda name: conversation if name[1] == "conversation_id" else other, path)


@pytest.mark.parametrize("text", [*SOME, "../..", "%"])
def test_any_text_in_a_path_in_a_query_and_in_a_header_is_taken_or_refused(client, store, text):
    assert_places_are_answered(client, store, text)


@by_chance
@settings(max_examples=often(2, 10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
def test_a_text_by_chance_in_a_path_in_a_query_and_in_a_header_is_taken_or_refused(client, store, text):
    assert_places_are_answered(client, store, text)


def assert_places_are_answered(client, store, text):
    """Every operation takes or refuses a text in its path, its query and its headers."""
    store.sandboxes.beat("a host that starts nothing", "a supervisor")
    conversation, raw = str(uuid4()), written(text)
    assert client.post("/api/conversations", json={"conversation_id": conversation}).status_code == 201
    latin = text.encode("utf-8", "surrogatepass").decode("latin-1").replace("\r", " ").replace("\n", " ")
    for method, path, operation in EVERYTHING:
        here = in_place(path, conversation)
        query = naming(path, conversation)
        asked = [(re.sub(r"\{\w+\}", lambda _: raw, path) + query, {})] if "{" in path else []
        here += f"{query}&" if query else "?"
        asked.append((f"{here}{raw}={raw}", {}))
        for one in operation["parameters"]:
            kind, name = one.get("in"), one.get("name")
            if kind == "query":
                asked.append((f"{here}{name}={raw}", {}))
            elif kind == "header":
                asked.append((here, {name: latin}))
        for url, headers in asked if method != "DELETE" or "{conversation_id}" not in path else asked[:1]:
            response = client.open(url, method=method, headers=headers)
            assert response.status_code < 500, (method, url, headers, response.status_code)
            response.close()  # of a stream nothing is read

    hello = {"content": [{"type": "text", "text": "hello"}]}
    assert client.post(f"/api/conversations/{conversation}/events", json=hello).status_code == 200


@settings(max_examples=often(4, 16), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
@example(TORN)
@example("a\0b\u2028\u202e")
def test_any_body_of_an_operation_that_wants_no_json_is_taken_or_refused(client, store, text):
    store.sandboxes.beat("a host that starts nothing", "a supervisor")
    assert len(OTHER_BODIES) >= 8
    conversation, raw = str(uuid4()), text.encode("utf-8", "surrogatepass")
    assert client.post("/api/conversations", json={"conversation_id": conversation}).status_code == 201
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--x--\r\n' % (raw, raw)
    told = [raw, part, *(json.dumps(one).encode() for one in (text, {text: text}, [text], {"path": text}))]
    for (method, path), kinds in OTHER_BODIES.items():
        for body in told:
            for kind in (*kinds, "application/json"):
                kind = f"{kind}; boundary=x" if kind.startswith("multipart") else kind
                url = in_place(path, conversation) + naming(path, conversation)
                response = client.open(url, method=method, data=body, content_type=kind)
                assert response.status_code < 500, (path, kind, body, response.status_code, response.text[:500])
                response.close()


@settings(max_examples=often(4, 16), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
@example(TORN)
@example("a\0b\u2028\u202e")
def test_an_import_with_any_text_in_any_member_is_taken_or_refused_and_what_was_taken_goes_on(client, text):
    conversation = str(uuid4())
    client.post("/api/conversations", json={"conversation_id": conversation, "title": "t", "tags": {"a": "b"}})
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("hello")])
    _, lines = as_another(exported(client, f"/api/conversations/{conversation}"))
    head, first = json.loads(lines[0]), json.loads(lines[1])
    changed = [[json.dumps({**head, name: text}).encode(), *lines[1:]] for name in head if name != "format"]
    changed += [[lines[0], json.dumps({**first, name: text}).encode()] for name in first]
    changed += [
        [json.dumps({**head, name: {text: [text]}}).encode(), *lines[1:]] for name in ("tags", "stats", "agent")
    ]
    for told in changed:
        identity = str(uuid4())
        asked = {**json.loads(told[0])}
        if asked["id"] != text:
            told[0] = json.dumps({**asked, "id": identity}).encode()
        response = client.post(
            "/api/conversations/import", data=b"\n".join(sealed(told)), content_type="application/x-ndjson"
        )
        assert response.status_code < 500, (told, response.text[:500])
        if response.status_code == 201:
            url = f"/api/conversations/{response.get_json()['id']}"
            assert client.get(f"{url}/export").status_code == 200
            hello = {"content": [{"type": "text", "text": "hello"}]}
            posted = client.post(f"/api/v1/webhooks/events/{response.get_json()['id']}", json=[message("hello")])
            assert posted.status_code == 200  # from then on an agent runs it, which takes messages
            assert client.post(f"{url}/events", json=hello).status_code == 200


def test_a_text_of_a_mebibyte_in_any_member_is_taken_or_refused_and_the_conversation_goes_on(client, store):
    store.sandboxes.beat("a host that starts nothing", "a supervisor")
    long, taken = "x" * (1 << 20), set()
    for method, path, schema in OPERATIONS:
        conversation = str(uuid4())
        client.post("/api/conversations", json={"conversation_id": conversation})
        url = path.replace("{conversation_id}", conversation).replace("{receiver_id}", conversation)
        url += naming(path, conversation)
        members = resolved(schema).get("properties", {})
        needed = {name: filled(members[name], "x") for name in resolved(schema).get("required", ())}
        take_text = (name for name in members if name not in _STARTS and "torn" in str(filled(members[name], "torn")))
        for name in islice(take_text, MOST_LONG):
            body = {**needed, name: filled(members[name], long)}
            response = client.open(url.replace("{", "").replace("}", ""), method=method.upper(), json=body)
            assert response.status_code < 500, (path, name, response.text[:500])
            taken |= {path} if response.status_code < 400 else set()
            response.close()

        for verb, said in (("events", {"content": [{"type": "text", "text": "hello"}]}), ("pause", {}), ("run", {})):
            response = client.post(f"/api/conversations/{conversation}/{verb}", json=said)
            assert response.status_code == 200, (path, response.text[:500])
    assert taken  # a member that no door keeps is ignored


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("events", {"content": [{"type": "text", "text": TORN}]}, ["content", 0, "text"]),
        ("events", {"content": [{"type": "image", "image_urls": [TORN]}]}, ["content", 0, "image_urls", 0]),
        ("secrets", {"secrets": {"NAME": TORN}}, ["secrets", "NAME"]),
        ("secrets", {"secrets": {"NAME": {"value": TORN}}}, ["secrets", "NAME", "value"]),
        ("secrets", {"secrets": {TORN: "x"}}, ["secrets", "a\ufffd"]),
        ("security_analyzer", {"security_analyzer": {"kind": TORN}}, ["security_analyzer", "kind"]),
        ("switch_llm", {"llm": {"model": TORN}}, ["llm", "model"]),
        ("events/respond_to_confirmation", {"accept": True, "unknown": {"x": [TORN]}}, ["unknown", "x", 0]),
    ],
)
def test_a_text_of_a_client_with_a_lone_surrogate_is_refused_with_the_name_of_its_member(client, path, body, place):
    conversation = client.post("/api/conversations").get_json()["id"]

    response = client.post(f"/api/conversations/{conversation}/{path}", json=body)

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert (fault["loc"], fault["type"]) == (["body", *place], "string_unicode")


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("conversations", {"initial_message": {"content": [{"type": "text", "text": TORN}]}}, "initial_message"),
        ("conversations", {"agent": {"kind": "Agent", "llm": {"model": TORN}}}, "agent"),
        ("conversations", {"agent": {"kind": "Agent"}, "not_ours": TORN}, "not_ours"),
        ("v1/app-conversations", {"initial_message": {"content": [{"type": "text", "text": TORN}]}}, "initial_message"),
        ("v1/app-conversations", {"selected_repository": TORN}, "selected_repository"),
        (f"v1/conversations/{UUID(int=1)}/pending-messages", {"content": [{"type": "text", "text": TORN}]}, "content"),
    ],
)
def test_a_start_or_a_queued_message_with_a_lone_surrogate_is_refused_at_the_door(client, path, body, place):
    response = client.post(f"/api/{path}", json=body)

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"][:2] == ["body", place]


@pytest.mark.parametrize("path", ["x" * (1 << 20), "a/" * 2048, f"a/{'x' * 256}/b", "é" * 128])
def test_a_working_folder_that_no_system_can_make_is_refused_at_the_door(client, path):
    body = {"agent": {"kind": "Agent"}, "workspace": {"kind": "LocalWorkspace", "working_dir": path}}

    response = client.post("/api/conversations", json=body)

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["body", "workspace", "working_dir"]


@pytest.mark.parametrize("raw", ["body=\xff", "body=%FF", "body=%ED%A0%BD", "body=\xed\xa0\xbd", "kind=x&body=%C3"])
@pytest.mark.parametrize("path", ["api/conversations/{}/events/count", "api/v1/messages/search"])
def test_a_query_that_is_no_unicode_is_refused_with_the_name_of_its_member(client, path, raw):
    conversation = client.post("/api/conversations").get_json()["id"]

    response = client.get(f"/{path.format(conversation)}", environ_overrides={"QUERY_STRING": raw})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["query", "body"]


def test_a_query_of_any_other_text_is_read_as_it_came(client):
    conversation = client.post("/api/conversations").get_json()["id"]
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("a\0b\u2028😀+c d")])
    url = f"/api/conversations/{conversation}/events/count"

    for part, number in (("a\0b", 1), ("\u2028😀", 1), ("+c d", 1), ("", 1), ("%", 0)):
        assert client.get(f"{url}?body={quote(part)}").get_json() == number
    assert client.get(f"{url}?body=C+D&body=x").get_json() == 1


@pytest.mark.parametrize(
    "told",
    [
        {**message("hi", "agent"), "extended_content": [{"type": "text", "text": TORN}]},
        message(TORN),
        action(TORN, summary=TORN, thought=[{"type": "text", "text": TORN}], tool_call_id=TORN, llm_response_id=TORN),
        action(tool_name=TORN),
        observation({"id": TORN}, observation={"content": [{"type": "text", "text": TORN}]}, tool_call_id=TORN),
        event("AgentErrorEvent", "agent", error=TORN, tool_call_id=TORN),
        event("ConversationErrorEvent", "environment", code=TORN, detail=TORN),
        event("ConversationStateUpdateEvent", "environment", key="stats", value={TORN: TORN}),
        event(
            "ConversationStateUpdateEvent", "environment", key="full_state", value={"title": TORN, "tags": {"a": TORN}}
        ),
    ],
    ids=lambda told: told["kind"],
)
def test_an_event_of_an_agent_is_kept_as_it_came_and_everything_that_shows_it_works(client, conversation, told):
    client.post("/api/conversations", json={"conversation_id": conversation})
    url = f"/api/conversations/{conversation}"

    assert client.post(f"/api/v1/webhooks/events/{conversation}", json=[told]).status_code == 200

    found = client.get(f"{url}/events/search").get_json()["items"]
    assert found == ([] if told.get("key") == "full_state" else [told])
    for path in (
        "",
        "/pending_actions",
        "/export",
        "/agent_final_response",
        "/events/histogram",
        "/events/count?body=a",
    ):
        assert client.get(f"{url}{path}").status_code == 200
    for path in ("v1/pending-actions?text=a", "v1/messages/search?text=a", "conversations/search", "v1/audit"):
        assert client.get(f"/api/{path}").status_code == 200
    lines = client.get(f"{url}/export").data
    for path, body in (("fork", {}), ("events/respond_to_confirmation", {"accept": False}), ("run", {}), ("pause", {})):
        assert client.post(f"{url}/{path}", json=body).status_code in (200, 201)
    client.delete(url)
    assert client.post("/api/conversations/import", data=lines, content_type="application/x-ndjson").status_code == 201


@pytest.mark.faults("starts a server with a supervisor and a sandbox")
def test_what_was_taken_of_any_text_leaves_a_sandbox_that_takes_a_message_and_runs_a_command(tmp_path):
    odd = [TORN, "a\0b", "\u2028\u2029", "\u202e\u2066x", "", "x" * (1 << 20), "😀"]
    with supervised_server(tmp_path) as (client, _):
        api = WireApi(client)
        conversation = api.app_conversation()["id"]
        legacy, app = f"/api/conversations/{UUID(conversation)}", f"/api/v1/app-conversations/{conversation}"
        client.post(f"{legacy}/confirmation_policy", json={"policy": {"kind": "NeverConfirm"}}).raise_for_status()
        for number, text in enumerate(odd):
            said = [{"type": "text", "text": text}]
            for method, path, body in (
                ("POST", f"{app}/send-message", {"content": said}),
                ("POST", f"{legacy}/events", {"content": said, "run": True}),
                ("POST", f"/api/v1/conversations/{conversation}/pending-messages", {"content": said}),
                ("POST", f"{legacy}/secrets", {"secrets": {"NAME": text}}),
                ("POST", f"{legacy}/secrets", {"secrets": {text: "value"}}),
                ("PATCH", app, {"title": text, "tags": {"a": text}}),
                ("POST", f"{legacy}/ask_agent", {"question": text}),
                ("POST", f"{legacy}/bash/execute_bash_command", {"command": text, "cwd": text}),
                ("POST", f"/api/bash/start_bash_command?cid={UUID(conversation)}", {"command": text}),
                ("GET", f"{legacy}/git/changes?path={shown(text)}", None),
                ("GET", f"{legacy}/file/download?path={shown(text)}", None),
                ("POST", f"{legacy}/file/upload?path={shown(text)}", {"file": text}),
                ("POST", f"{legacy}/events/respond_to_confirmation", {"accept": False, "reason": text}),
                ("GET", f"{app}/file?file_path={shown(text)}", None),
                ("POST", "/api/v1/app-conversations/stream-start", {"title": text, "sandbox_id": text[:99] or None}),
            ):
                content = None if body is None else json.dumps(body)
                response = client.request(
                    method, path, content=content, headers={"Content-Type": "application/json"}, timeout=60
                )
                assert response.status_code < 500, (path, text[:9], response.text)
            wait_until(
                lambda: api.conversation(conversation)["execution_status"] in ("idle", "finished", "paused"), "rest"
            )
            api.send(conversation, f"run: echo still-{number}-here")
            wait_until(partial(has_printed, api, conversation, f"still-{number}-here"), "the command")
        api.clean()


@pytest.mark.faults("starts a server with a supervisor and sandboxes")
def test_an_agent_of_any_text_starts_or_is_refused_and_one_that_starts_takes_a_message_and_runs_a_command(tmp_path):
    odd = [TORN, "a\0b", "x" * (1 << 20), "", "\u2028\u202e\u2066x", "😀"][: often(3, 6)]
    policy = {"confirmation_policy": {"kind": "NeverConfirm"}}
    with supervised_server(tmp_path) as (client, _):
        api = WireApi(client)
        started = []
        for text in odd:
            said = {"content": [{"type": "text", "text": text}]}
            for body in (
                {"agent": {"kind": "Agent", "name": text}, **policy},
                {"agent": {"kind": "Agent"}, "initial_message": said, **policy},
                {"agent": {"kind": "Agent"}, "title": text[:200], "tags": {"a": text[:200]}, **policy},
                {"agent": {"kind": "Agent"}, "secrets": {"NAME": text}, **policy},
                {"agent": {"kind": "Agent"}, "workspace": {"kind": "LocalWorkspace", "working_dir": text}, **policy},
            ):
                content = json.dumps(body)
                response = client.post(
                    "/api/conversations", content=content, headers={"Content-Type": "application/json"}, timeout=120
                )
                assert response.status_code < 500, (body, response.text[:500])
                if response.status_code < 300:
                    started.append(response.json()["id"])
        assert len(started) > len(odd)
        for number, conversation in enumerate(started):
            api.send(conversation, f"run: echo still-{number}-here")
            wait_until(partial(has_printed, api, conversation, f"still-{number}-here"), "the command")
            client.delete(f"/api/v1/app-conversations/{conversation}").raise_for_status()
        api.clean()


def shown(text: str) -> str:
    """The beginning of a text as a query has it."""
    return quote(text[:99].encode("utf-8", "surrogatepass"))


def has_printed(api: WireApi, conversation: str, word: str) -> bool:
    newest = api.events(conversation, kind="ObservationEvent", sort_order="TIMESTAMP_DESC")
    return any(word in json.dumps(one["observation"]["content"]) for one in newest)
