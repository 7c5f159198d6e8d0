"""Server-sent events and long polls, on a real server of two workers."""

import json
import queue
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote
from uuid import uuid4

import psutil
import pytest

from store.errors import ConversationNotFound
from tests.conftest import event, message
from tests.servers import PROJECT, agent_server, program, running
from tests.sockets import events_of

pytestmark = pytest.mark.process("follows streams of a real server")


@pytest.fixture
def post(server, conversation):
    """Append events to a conversation that exists; returns the body of the response."""
    server.post("/api/conversations", json={"conversation_id": conversation})
    url = f"/api/v1/webhooks/events/{conversation}"
    return lambda *events: server.post(url, json=list(events)).json()


@pytest.fixture
def search(server, conversation):
    """Read after a seq; returns the numbers of the events, and the seq of the next read."""

    def search(**query):
        response = server.get(f"/api/conversations/{conversation}/events/search", params=query)
        assert response.status_code == 200, response.text
        assert response.json()["next_page_id"] is None
        return [one.get("number") for one in response.json()["items"]], int(response.headers["X-Last-Seq"])

    return search


def numbered(*numbers):
    return [event(number=number) for number in numbers]


# server-sent events


def test_a_stream_sends_the_whole_log_and_then_new_events(server, conversation, post):
    post(*numbered(*range(150)))

    with events_of(server, conversation) as stream:
        past = [next(stream) for _ in range(150)]
        post(*numbered(150))
        live = next(stream)

    assert [(seq, one["number"]) for seq, one in [*past, live]] == [(number + 1, number) for number in range(151)]


@pytest.mark.parametrize(
    ("headers", "query"),
    [({"Last-Event-ID": "2"}, {}), ({}, {"after_seq": "2"}), ({"Last-Event-ID": "2"}, {"after_seq": "0"})],
)
def test_a_stream_continues_after_the_last_received_event(server, conversation, post, headers, query):
    post(*numbered(0, 1, 2))

    with events_of(server, conversation, headers=headers, params=query) as stream:
        assert next(stream)[0] == 3


def test_a_stream_has_the_filters_of_search(server, conversation, post):
    with events_of(server, conversation, params={"kind": "a.b.MessageEvent", "source": "agent"}) as stream:
        post(message("no", "user"), *numbered(1), message("yes", "agent"))

        seq, one = next(stream)
        assert (seq, one["llm_message"]["content"][0]["text"]) == (3, "yes")
    with events_of(server, conversation, params={"body": "YES", "timestamp__gte": "2020-01-01"}) as stream:
        assert next(stream)[0] == 3


def test_an_event_with_line_ends_is_sent_whole(server, conversation, post):
    raw = '[{"id": "lines",\r\n "kind": "PauseEvent",\n\n "source": "user",\r "timestamp": "2026-11-20"}]'
    url = f"/api/v1/webhooks/events/{conversation}"
    server.post(url, content=raw, headers={"Content-Type": "application/json"})

    with events_of(server, conversation) as stream:
        assert next(stream)[1]["id"] == "lines"


@pytest.mark.parametrize("kind", ["StreamingDeltaEvent", "CommandOutputEvent"])
def test_an_event_that_the_log_does_not_keep_has_no_id(server, conversation, post, kind):
    with server.stream("GET", f"/api/conversations/{conversation}/events/stream") as response:
        lines = response.iter_lines()
        next(line for line in lines if line.startswith(":"))  # live
        post(event(kind, "agent", content="x"))

        data = next(line for line in lines if not line.startswith(":") and line)
    assert json.loads(data.removeprefix("data: "))["content"] == "x"


def test_a_stream_ends_with_its_conversation(server, conversation, post):
    with events_of(server, conversation) as stream:
        post(*numbered(1))
        next(stream)

        server.delete(f"/api/conversations/{conversation}")

        assert list(stream) == []


def test_a_stream_of_an_unknown_conversation_or_cursor_is_refused(server, conversation, post):
    unknown = server.get(f"/api/conversations/{uuid4()}/events/stream")
    beyond = server.get(f"/api/conversations/{conversation}/events/stream", params={"after_seq": 1})
    odd = server.get(f"/api/conversations/{conversation}/events/stream", headers={"Last-Event-ID": "x"})

    assert (unknown.status_code, unknown.json()) == (404, {"detail": ConversationNotFound.words})
    assert (beyond.status_code, beyond.json()["detail"][0]["loc"]) == (422, ["query", "after_seq"])
    assert (odd.status_code, odd.json()["detail"][0]["loc"]) == (422, ["header", "Last-Event-ID"])


def test_curl_follows_a_stream(server, conversation, post):
    url = f"{server.base_url}/api/conversations/{conversation}/events/stream"
    post(*numbered(1))

    with running([program("curl"), "-sN", url], stdout=subprocess.PIPE, text=True) as curl, curl.stdout:
        lines = [next(curl.stdout) for _ in range(4)]
    assert (lines[2], lines[3][:7]) == ("id: 1\n", "data: {")


@contextmanager
def page(script):
    """Serves a page with a script, and collects the reports of the script: the page's address, and the reports."""
    reports = queue.Queue()

    class LivePageHandler(BaseHTTPRequestHandler):
        def do_GET(self):
            path, _, report = self.path.partition("?")
            if path == "/report":
                reports.put(unquote(report))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"" if path == "/report" else f"<!doctype html><script>{script}</script>".encode())

        def log_message(self, *_):
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), LivePageHandler) as site:
        threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}/", reports
        site.shutdown()


@pytest.mark.browser("starts a browser, and a server whose workers end")
def test_a_browser_follows_a_stream_and_reconnects(backend, conversation, tmp_path):
    browser = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("neither chromium nor google-chrome is on the PATH: EventSource is not tried in a browser")
    folder, url = backend
    with agent_server(folder / "browser", REDIS_URL=url) as (client, master):
        webhook = f"/api/v1/webhooks/events/{conversation}"
        client.post(webhook, json=numbered(1, 2))
        stream = f"{client.base_url}/api/conversations/{conversation}/events/stream"
        script = (PROJECT / "tests" / "blueprints" / "event_source.js").read_text().replace("STREAM", stream)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-web-security", f"--user-data-dir={tmp_path}"]
        with page(script) as (address, reports), running([browser, *flags, address], stderr=subprocess.DEVNULL):
            assert sorted(reports.get(timeout=60) for _ in range(2)) == ["1:1", "2:2"]

            # When other workers replace the workers
            for worker in psutil.Process(master.pid).children():
                if "gunicorn" in " ".join(worker.cmdline()):
                    worker.terminate()
            client.post(webhook, json=numbered(3))

            # Then the browser continues after its last event
            assert reports.get(timeout=60) == "3:3"


# long polls


def test_a_poll_returns_existing_events_at_once_in_the_order_of_appending(search, post):
    post(*numbered(0), event(number=1, timestamp="2020-01-01"), *numbered(2))

    assert search(after_seq=0) == ([0, 1, 2], 3)
    assert search(after_seq=1, wait=30) == ([1, 2], 3)
    assert search(after_seq=0, limit=2, wait=30) == ([0, 1], 2)
    assert search(after_seq=3) == ([], 3)


def test_a_poll_waits_for_the_next_event(search, post):
    later = threading.Timer(0.3, post, numbered(7))
    later.start()

    assert search(after_seq=0, wait=20) == ([7], 1)
    later.join()


def test_a_poll_that_times_out_returns_the_next_cursor(search, post):
    post(*numbered(1))

    assert search(after_seq=1, wait=0.2) == ([], 1)


def test_filters_apply_to_a_poll_too(search, post):
    post(*numbered(*range(3)))
    later = threading.Timer(0.3, post, [*numbered(4), {**message("x"), "number": 5}])
    later.start()

    assert search(after_seq=0, kind="MessageEvent", wait=20) == ([5], 5)
    assert search(after_seq=0, kind="MessageEvent", source="agent", wait=0.1) == ([], 5)
    assert search(after_seq=0, body="X") == ([5], 5)
    assert search(after_seq=0, timestamp__lt="2020-01-01") == ([], 5)
    later.join()


def test_a_selective_filter_reads_all_of_a_long_log(search, post):
    for start in range(0, 2000, 500):
        post(*numbered(*range(start, start + 500)))
    post({**message("last"), "number": -1})

    assert search(after_seq=0, kind="MessageEvent", limit=1) == ([-1], 2001)


@pytest.mark.parametrize(("query", "member"), [({"after_seq": 1}, "after_seq"), ({"wait": 1}, "wait")])
def test_an_invalid_poll_is_refused(server, conversation, post, query, member):
    response = server.get(f"/api/conversations/{conversation}/events/search", params=query)

    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["query", member]


def test_a_poll_of_a_conversation_that_is_deleted_meanwhile_is_404(server, conversation, post):
    later = threading.Timer(0.3, lambda: server.delete(f"/api/conversations/{conversation}"))
    later.start()

    response = server.get(f"/api/conversations/{conversation}/events/search", params={"after_seq": 0, "wait": 20})

    assert response.status_code == 404
    later.join()
