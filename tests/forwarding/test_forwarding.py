"""Calls that are forwarded to the agent server of a sandbox, over HTTP."""

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from agents import forwarding
from agents.forwarding import Forwarding
from agents.waking import wake
from tests.agents import running_sandbox
from tests.apps import serve_with
from tests.forwarding import Upstream
from tests.servers import TIMEOUT

FOREIGN = {
    "Cookie": "session=ours",
    "X-Forwarded-For": "10.0.0.1",
    "Forwarded": "for=10.0.0.1",
    "Proxy-Authorization": "Basic eDp5",
    "X-Custom": "anything",
    "Range": "bytes=0-3",
}


def scoped(conversation: str, rest: str) -> str:
    return f"/api/conversations/{conversation}/{rest}"


# refusals come first


OUTSIDE = [
    "bash/../events",
    "bash/%2e%2e/run",
    "bash/%2E%2E%2Frun",
    "bash/%252e%252e/run",
    "bash/a/../../run",
    "bash//run",
    "bash/a//b",
    "bash/a%2F%2Fb",
    "bash/..%5c..%5crun",
    "bash/.",
    "bash/a%00b",
    "bash/a%0d%0ab",
    "bash/a%3Fb",
    "bash/" + "a/" * 9 + "a",
    "bash/" + "a" * 200,
    "file/.git/config",
    "settings/everything",
    "workspaces/index.html",
]


def test_a_path_that_would_leave_its_service_is_404_and_reaches_no_sandbox(client, upstream: Upstream, linked):
    paths = [path for rest in OUTSIDE for path in (scoped(linked, rest), f"/api/{rest}")]

    assert [path for path in paths if client.get(path).status_code not in (404, 405)] == []
    assert upstream.requests == []


@pytest.mark.parametrize("value", ["plaintext", "encrypted", ""])
def test_a_call_that_asks_for_secrets_is_refused(client, upstream, linked, value):
    response = client.get(scoped(linked, "bash/echo"), headers={"X-Expose-Secrets": value})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["header", "X-Expose-Secrets"]
    assert upstream.requests == []


def test_a_detached_conversation_is_409_in_words_and_an_unknown_one_404(client, store, conversation):
    assert client.get(scoped(conversation, "git/changes")).status_code == 404
    store.conversations.create(conversation)
    response = client.get(scoped(conversation, "git/changes"))
    assert response.status_code == 409
    assert "has no sandbox" in response.get_json()["detail"]


@pytest.mark.parametrize("answer", ['{"url": null}', '{"url": "http://localhost:8001/?tkn=a&folder=/work"}'])
def test_the_url_of_vs_code_is_forwarded_as_it_came(client, upstream, linked, answer):
    upstream.headers = [("Content-Type", "application/json")]

    response = client.get(scoped(linked, "vscode/url"), query_string={"answer": answer})

    assert (response.status_code, response.get_data(as_text=True)) == (200, answer)


@pytest.mark.parametrize(
    "answer",
    [
        '{"url": "javascript:alert(1)"}',
        '{"url": " JavaScript:alert(1)"}',
        '{"url": "java\\nscript:alert(1)"}',
        '{"url": "data:text/html,x"}',
        '{"url": "//elsewhere.example"}',
        '{"url": 1}',
        '{"url": "http://a", "url": "javascript:alert(1)"}',
        '["javascript:alert(1)"]',
        "<script>alert(1)</script>",
    ],
)
@pytest.mark.parametrize("scoping", [scoped, lambda _, rest: f"/api/{rest}"])
def test_a_url_of_vs_code_that_a_browser_would_run_is_502(client, upstream, linked, answer, scoping):
    upstream.headers = [("Content-Type", "application/json")]

    response = client.get(scoping(linked, "vscode/url"), query_string={"answer": answer, "cid": linked})

    assert response.status_code == 502
    assert "neither null nor a URL of http or https" in response.get_json()["detail"]


def test_a_repeatable_call_is_refused_for_no_response_is_kept_of_it(client, upstream, linked):
    response = client.post(scoped(linked, "bash/echo"), json={}, headers={"Idempotency-Key": "once"})

    assert response.status_code == 400
    assert "does not cover" in response.get_json()["detail"]
    assert upstream.requests == []


@pytest.mark.parametrize("status", [301, 302, 307, 401])
def test_a_redirect_is_502_and_nobody_follows_it(client, upstream, linked, status):
    upstream.status, upstream.headers = status, [("Location", f"{upstream.url}/elsewhere")]

    response = client.get(scoped(linked, "file/echo"))

    assert response.status_code == 502
    assert "Location" not in response.headers
    assert upstream.url not in response.get_data(as_text=True)
    assert len(upstream.requests) == 1


def test_an_agent_server_that_ends_without_a_response_is_502(client, upstream, linked):
    response = client.get(scoped(linked, "bash/refuses"))

    assert response.status_code == 502
    assert "does not answer" in response.get_json()["detail"]


def test_an_agent_server_that_is_not_there_is_502(client, store, sandbox, linked):
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url="http://127.0.0.1:1")
    assert client.get(scoped(linked, "bash/echo")).status_code == 502


def test_an_agent_server_that_stays_silent_is_502(app, client, store, upstream, linked, monkeypatch):
    serve_with(monkeypatch, app, forwarding=Forwarding(store, wake_seconds=0, silence=0.3))

    response = client.get(scoped(linked, "bash/waits"))

    assert response.status_code == 502
    assert response.get_json()["detail"] == "The agent server was silent for 0.3 s"
    assert upstream.ended.wait(10)


@pytest.mark.faults("a race of threads")
def test_one_call_more_than_a_process_forwards_at_once_is_503_with_retry_after(
    app, client, store, upstream, linked, monkeypatch
):
    monkeypatch.setattr(forwarding, "_MOST", 1)
    monkeypatch.setattr(forwarding, "_ROOM", 0.1)
    serve_with(monkeypatch, app, forwarding=Forwarding(store, wake_seconds=0))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(app.test_client().get, scoped(linked, "bash/waits"), buffered=True)
        assert upstream.arrived.wait(TIMEOUT)
        second = client.get(scoped(linked, "bash/echo"))
        upstream.go_on.set()

    assert (second.status_code, second.headers["Retry-After"]) == (503, "1")
    assert first.result().status_code == 200
    assert client.get(scoped(linked, "bash/echo"), buffered=True).status_code == 200


def test_a_sandbox_that_does_not_wake_in_time_is_503_with_retry_after(app, client, store, sandbox, linked, monkeypatch):
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")
    serve_with(monkeypatch, app, forwarding=Forwarding(store, wake_seconds=0.2))

    response = client.get(scoped(linked, "bash/echo"))

    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert store.sandboxes.get(sandbox.id).wanted == "running"


def test_a_sandbox_that_was_deleted_is_410(client, store, sandbox, linked):
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "GONE")
    assert client.get(scoped(linked, "bash/echo")).status_code == 410


# what crosses


@pytest.mark.parametrize(
    ("method", "rest", "kept"),
    [  # what is masked is read whole
        ("GET", "file/x", {"range"}),
        ("GET", "git/changes", set()),
        ("POST", "bash/x", set()),
        ("DELETE", "bash/bash_events", set()),
    ],
)
def test_a_call_reaches_the_agent_server_with_its_key_and_no_foreign_header(
    client, upstream, sandbox, linked, method, rest, kept
):
    response = client.open(
        scoped(linked, rest),
        method=method,
        query_string={"a": "b c", "cid": "x"},
        headers={**FOREIGN, "Authorization": "Bearer our-own-key", "X-Session-API-Key": "our-own-key"},
    )

    assert response.status_code == 200
    [seen] = upstream.requests
    assert (seen["method"], seen["path"], seen["query"]) == (method, scoped(linked, rest), {"a": "b c"})
    assert seen["headers"]["X-Session-API-Key"] == sandbox.session_api_key
    assert {name.lower() for name in seen["headers"]} & {name.lower() for name in FOREIGN} == kept
    assert "our-own-key" not in json.dumps(seen)


def test_a_response_keeps_its_type_and_gives_a_browser_nothing_to_run(client, upstream, linked):
    upstream.headers = [
        ("Content-Type", "text/html"),
        ("Content-Disposition", "inline; filename*=utf-8''page.html"),
        ("Set-Cookie", "a=b"),
        ("Access-Control-Allow-Origin", "*"),
        ("ETag", '"1"'),
    ]

    response = client.get(scoped(linked, "file/download"), query_string={"size": 5})

    assert response.data == b"01234"
    assert response.headers["Content-Type"] == "text/html"
    assert response.headers["Content-Disposition"] == "attachment; filename*=utf-8''page.html"
    assert response.headers["Content-Security-Policy"].startswith("sandbox")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert (response.headers["ETag"], response.headers["Cache-Control"]) == ('"1"', "no-store")
    assert "Set-Cookie" not in response.headers
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("door", ["/api/conversations/{}/", "/api/"])
def test_what_commands_and_git_tell_shows_no_secret_of_the_sandbox_and_a_file_comes_as_it_is(
    client, store, upstream, sandbox, linked, door
):
    store.conversations.put_secrets(linked, {"TOKEN": "sesame-ghp_1"}, sandbox.id)
    upstream.headers = [("Content-Type", "application/json"), ("ETag", '"1"'), ("Accept-Ranges", "bytes")]
    said = {"detail": "sesame-ghp_1 c2VzYW1lLWdocF8x", "cid": linked}

    for rest in ("bash/bash_events/says", "git/diff/says"):
        response = client.get(door.format(linked) + rest, query_string=said, headers={"Range": "bytes=3-"})

        assert response.get_json() == {"detail": "<secret-hidden> <secret-hidden>"}
        assert not {"Content-Length", "ETag", "Accept-Ranges"} & {name for name, _ in response.headers}
        assert "Range" not in upstream.requests[-1]["headers"]
    response = client.get(f"{door.format(linked)}file/says", query_string=said)
    assert response.get_json() == {"detail": said["detail"]}
    assert response.headers["ETag"] == '"1"'


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_the_errors_of_an_agent_server_are_its_own(client, upstream, linked, status):
    upstream.status, upstream.headers = status, [("Content-Type", "application/json")]
    response = client.get(scoped(linked, "bash/echo"))
    assert response.status_code == status
    assert response.get_json()["path"].endswith("bash/echo")


def test_a_head_request_has_no_body_and_ends_the_exchange(client, upstream, linked):
    response = client.head(scoped(linked, "file/download"))
    assert response.status_code == 405
    assert upstream.requests[0]["method"] == "HEAD"


def test_a_command_without_a_folder_runs_in_that_of_its_conversation(client, upstream, linked):
    client.post(scoped(linked, "bash/start_bash_command"), json={"command": "ls"})
    client.post(scoped(linked, "bash/start_bash_command"), json={"command": "ls", "cwd": "/tmp"})
    client.post(scoped(linked, "bash/start_bash_command"), data="[", content_type="application/json")

    sent = [seen["body"] for seen in upstream.requests]
    assert json.loads(sent[0]) == {"command": "ls", "cwd": "/work/project"}
    assert json.loads(sent[1])["cwd"] == "/tmp"
    assert sent[2] == "["


def test_a_command_runs_in_the_folder_that_a_sandbox_has_once_it_woke(
    client, store, upstream, sandbox, conversation, monkeypatch
):
    def report(status, working_dir):
        store.sandboxes.report(
            sandbox.id, "scripted", "supervisor", status, agent_url=upstream.url, handle={"working_dir": working_dir}
        )

    def woken(*args):
        store.sandboxes.ask(sandbox.id, "resume")
        report("RUNNING", "/new/work")  # restored below another DATA_DIR
        return wake(*args)

    store.conversations.create(conversation, sandbox_id=sandbox.id, app={}, workspace={"working_dir": "."})
    report("RUNNING", "/old/work")
    store.sandboxes.ask(sandbox.id, "pause")
    report("PAUSED", "/old/work")
    monkeypatch.setattr(forwarding, "wake", woken)

    client.post(scoped(conversation, "bash/start_bash_command"), json={"command": "ls"})

    assert json.loads(upstream.requests[0]["body"])["cwd"] == "/new/work"


@pytest.mark.parametrize("place", ["conversation", "cid", "session key"])
def test_a_path_in_the_folder_that_was_asked_for_means_the_sandboxs_folder(client, upstream, sandbox, linked, place):
    base = scoped(linked, "") if place == "conversation" else "/api/"
    named = {"cid": linked} if place == "cid" else {}
    shown = {"X-Session-API-Key": sandbox.session_api_key} if place == "session key" else {}

    client.get(f"{base}git/changes", query_string={"path": "/tmp/ws/a b/ü", **named}, headers=shown)
    body = {"command": "ls", "cwd": "/tmp/ws/a b/ü"}
    client.post(f"{base}bash/start_bash_command", json=body, query_string=named, headers=shown)

    assert upstream.requests[0]["query"]["path"] == "/work/project/a b/ü"
    assert json.loads(upstream.requests[1]["body"]) == {"command": "ls", "cwd": "/work/project/a b/ü"}


def test_conversations_of_one_sandbox_that_asked_for_different_folders_map_no_path(
    client, store, upstream, sandbox, linked
):
    folder = {"working_dir": "/work/other"}
    store.conversations.create(str(uuid4()), sandbox_id=sandbox.id, app={}, workspace=folder, asked_dir="/tmp/ws")
    shown = {"X-Session-API-Key": sandbox.session_api_key}

    client.get("/api/git/changes", query_string={"path": "/tmp/ws"}, headers=shown)

    assert upstream.requests[0]["query"]["path"] == "/tmp/ws"


def test_json_longer_than_the_bound_of_bodies_is_413(client, upstream, linked):
    body = json.dumps({"command": "x" * (9 << 20)})
    response = client.post(scoped(linked, "bash/start_bash_command"), data=body, content_type="application/json")
    assert response.status_code == 413
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("status", "path", "detail", "is_lacking"),
    [
        (404, "/api/git/says", "Not Found", True),
        (404, "/api/git/says", "The bundled agent does not serve GET /api/git/says", True),
        (405, "/api/bash/says", "Method Not Allowed", True),
        (404, "/api/file/says", "File not found", False),
        (404, "/api/bash/bash_events/7/says", "Not Found", False),
        (400, "/api/git/says", "Not Found", False),
    ],
)
def test_a_route_that_the_agent_server_lacks_is_named_in_one_sentence_with_its_own_status(
    client, upstream, linked, status, path, detail, is_lacking
):
    upstream.status = status

    response = client.get(path, query_string={"cid": linked, "detail": detail})

    sentence = f"The agent server of the conversation's sandbox does not serve {path}"
    assert (response.status_code, json.loads(response.data)) == (status, {"detail": sentence if is_lacking else detail})


def test_both_doors_say_the_same_of_a_route_that_the_agent_server_lacks(client, upstream, linked):
    upstream.status, detail = 404, "The bundled agent does not serve it"

    said = client.get(scoped(linked, "git/says"), query_string={"detail": detail}).get_json()["detail"]
    also = client.get(f"/api/v1/app-conversations/{linked}/git/changes?path=.").get_json()["detail"]

    assert said == f"The agent server of the conversation's sandbox does not serve {scoped(linked, 'git/says')}"
    assert also == "The agent server of the conversation's sandbox does not serve /api/git/changes"


# without a conversation


def test_the_conversation_of_cid_says_which_sandbox_is_meant(client, upstream, linked):
    client.post("/api/bash/start_bash_command", query_string={"cid": linked, "x": "1"}, json={"command": "ls"})

    [seen] = upstream.requests
    assert (seen["path"], seen["query"]) == ("/api/bash/start_bash_command", {"x": "1"})
    assert json.loads(seen["body"])["cwd"] == "/work/project"


def test_a_cid_that_is_no_id_is_422_and_an_unknown_one_404(client):
    refused = client.get("/api/bash/echo", query_string={"cid": "x"})
    assert refused.status_code == 422
    assert refused.get_json()["detail"][0]["loc"] == ["query", "cid"]
    assert client.get("/api/bash/echo", query_string={"cid": str(uuid4())}).status_code == 404


def test_a_call_that_names_none_of_several_sandboxes_is_409_and_says_what_to_give(client, store, sandbox, upstream):
    with running_sandbox(store, upstream.url, owner="anyone"):
        response = client.get("/api/file/search_subdirs")

    assert response.status_code == 409
    assert "Several sandboxes" in response.get_json()["detail"]
    assert "?cid=ID" in response.get_json()["detail"]
    assert upstream.requests == []


def test_the_session_key_of_a_sandbox_says_which_is_meant_also_where_no_key_is_needed(client, upstream, sandbox):
    response = client.get("/api/git/changes", headers={"X-Session-API-Key": sandbox.session_api_key})
    assert response.status_code == 200
    assert upstream.requests[0]["path"] == "/api/git/changes"


@pytest.mark.parametrize("text", ["a\ud83d", "a\0b", "\u2028\u202e\u2066", "", "😀", "../..", "x" * (1 << 20), "%ff"])
def test_a_forwarded_call_of_any_text_is_forwarded_or_refused_and_the_next_one_goes_on(client, upstream, linked, text):
    query = {"path": text[:99].encode("utf-8", "surrogatepass")}
    for at in (scoped(linked, ""), "/api/"):
        for method, rest, body in (
            ("POST", "bash/start_bash_command", {"command": text, "cwd": text}),
            ("POST", "bash/execute_bash_command", {text: [text]}),
            ("POST", "file/upload", {"path": text}),
            ("GET", "git/diff", None),
            ("GET", "file/download", None),
        ):
            content = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
            asked = {**query, "size": "1", "cid": linked}
            response = client.open(at + rest, method=method, query_string=asked, **content)
            assert response.status_code < 500, (rest, response.data[:200])
            if body and response.status_code == 200 and len(text) < 65_536:  # of which the upstream keeps the beginning
                crossed = json.loads(upstream.requests[-1]["body"])
                assert text in [*crossed, *crossed.values()]
        assert client.get(f"{at}bash/echo", query_string={"cid": linked}).status_code == 200
