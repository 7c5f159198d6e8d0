"""A web client's terminal and file panel, on a real sandbox: /sockets/bash-events, and files by a browser's cookie."""

import io
import json
import zipfile
from contextlib import contextmanager

import pytest
from websockets.sync.client import connect

from tests.servers import TIMEOUT, supervised_server
from tests.sockets import SocketListener
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts a whole server and a sandbox")

KEY, OTHER = "the-first-key-of-the-settings", "the-other-key-of-the-settings"
SHOWN = {"X-Session-API-Key": KEY}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server with two keys, and the conversation of the first in its sandbox, which has a page."""
    folder = tmp_path_factory.mktemp("terminal")
    with supervised_server(folder, SESSION_API_KEYS=f"{KEY},{OTHER}") as (client, master):
        client.headers.update(SHOWN)
        conversation = WireApi(client).app_conversation(title="Shown")
        made = {
            "command": "mkdir -p sub && echo '<b>page</b>' > index.html && echo text > sub/a.txt && echo x > ../out.txt"
        }
        client.post("/api/bash/execute_bash_command", json=made).raise_for_status()
        yield client, conversation["id"], master


@contextmanager
def terminal(client, key=KEY, query=""):
    address = str(client.base_url).replace("http", "ws").rstrip("/")
    with connect(f"{address}/sockets/bash-events{query}", open_timeout=TIMEOUT, close_timeout=1) as connection:
        connection.send(json.dumps({"type": "auth", "session_api_key": key}))
        yield SocketListener(connection)


def test_a_command_over_the_socket_says_what_it_prints_and_how_it_ends(whole):
    with terminal(whole[0]) as one:
        one.send({"command": "echo one; echo two >&2; exit 3", "timeout": 20})
        told = one.receive_until(exit_code=3)

    assert told[0]["kind"] == "BashCommand"
    assert {event["command_id"] for event in told[1:]} == {told[0]["id"]}
    assert "".join(event["stdout"] or "" for event in told[1:]) == "one\n"
    assert "".join(event["stderr"] or "" for event in told[1:]) == "two\n"


def test_what_was_run_before_comes_again_where_it_is_asked_for(whole):
    with terminal(whole[0], query="?resend_mode=all") as one:
        assert one.receive()["kind"] == "BashCommand"


def test_long_outputs_of_another_script_come_again_too(whole):
    client, _, _ = whole
    for number in range(6):
        words = {"command": f"yes 'Привет, мир' | head -c 1000000; exit {number}", "timeout": 60}
        told = client.post("/api/bash/execute_bash_command", json=words).raise_for_status().json()
        assert told["exit_code"] == number

    with terminal(client, query="?resend_mode=all") as one:
        told = [event for number in range(6) for event in one.receive_until(exit_code=number)]

    assert not [event for event in told if event["kind"] == "BashError"]
    assert sum((event.get("stdout") or "").count("Привет") for event in told) > 6 * 40_000


def test_what_is_no_command_is_answered_and_the_socket_goes_on(whole):
    with terminal(whole[0]) as one:
        for sent in ("nonsense", {"command": ""}, {"command": "ls", "timeout": 0}):
            one.send(sent)
            assert one.receive()["kind"] == "BashError"
        one.send({"command": "true"})
        assert one.receive_until(exit_code=0)


def test_a_command_of_another_key_reaches_no_sandbox_of_this_one(whole):
    with terminal(whole[0], OTHER) as one:
        one.send({"command": "ls"})
        refused = one.receive()
    assert (refused["kind"], refused["code"]) == ("BashError", "SandboxNotNamed")


def test_a_wrong_key_closes_the_socket(whole):
    with terminal(whole[0], "w" * 30) as one:
        assert one.closed_with() == 4001


def test_a_key_that_may_not_approve_runs_nothing(whole):
    made = whole[0].post("/api/v1/keys", json={"name": "writer", "scopes": ["write"]}).json()
    with terminal(whole[0], made["key"]) as one:
        assert one.closed_with() == 1008


def test_a_browser_reads_the_files_of_a_workspace_by_its_cookie_alone_and_a_page_acts_for_nobody(whole):
    client, conversation, _ = whole
    given = client.post("/api/auth/workspace-session").raise_for_status()
    [cookie] = given.headers.get_list("set-cookie")
    for part in ("HttpOnly", "Secure", "SameSite=None", "Partitioned", "Path=/api/conversations"):
        assert part in cookie
    client.cookies.clear()
    shown = {"Cookie": cookie.partition(";")[0], "X-Session-API-Key": ""}

    def read(path, headers=shown):
        request = client.build_request("GET", path, headers=headers)
        if "X-Session-API-Key" in headers and not headers["X-Session-API-Key"]:
            del request.headers["X-Session-API-Key"]
        return client.send(request)

    page = read(f"/api/conversations/{conversation}/workspace")
    assert (page.status_code, page.text, page.headers["Content-Type"]) == (
        200,
        "<b>page</b>\n",
        "text/html; charset=utf-8",
    )
    policy = page.headers["Content-Security-Policy"]
    assert "sandbox allow-scripts;" in policy
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy  # so that of default-src holds, which is 'none'
    assert "Content-Disposition" not in page.headers
    text = read(f"/api/conversations/{conversation}/workspace/sub/a.txt")
    assert (text.text, text.headers["Content-Type"]) == ("text\n", "text/plain; charset=utf-8")
    assert read(f"/api/conversations/{conversation}/workspace/none").status_code == 404
    assert read(f"/api/conversations/{conversation}/workspace/%2e%2e/out.txt").status_code in (400, 404)

    for elsewhere in ("/api/settings", f"/api/conversations/{conversation}", "/api/conversations/count"):
        assert read(elsewhere).status_code == 401
    forged = {**shown, "Cookie": "workspace_session=forged"}
    assert read(f"/api/conversations/{conversation}/workspace", forged).status_code == 401


def test_a_conversation_is_downloaded_by_its_id_alone(whole):
    client, conversation, _ = whole
    downloaded = client.get(f"/api/file/download-trajectory/{conversation}").raise_for_status()
    assert "meta.json" in zipfile.ZipFile(io.BytesIO(downloaded.content)).namelist()
