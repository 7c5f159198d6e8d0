"""A preview of a program in a real sandbox: its address, its pages, uploads, streams and sockets, and its end."""

import base64
from pathlib import Path
from socket import create_connection
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.servers import TIMEOUT, supervised_server, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts a whole server, a sandbox, and a program in it")

KEY = "the-first-key-of-the-settings"
PROGRAM = (Path(__file__).parent / "shown_program.py").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server with a key, and a sandbox in which a program listens; its id and the port."""
    settings = {"SESSION_API_KEY": KEY, "WEB_CONCURRENCY": "2"}
    with supervised_server(tmp_path_factory.mktemp("previews"), **settings) as (client, _):
        client.headers["X-Session-API-Key"] = KEY
        conversation = WireApi(client).app_conversation(title="Shown")
        sandbox = conversation["sandbox_id"]
        script = base64.b64encode(PROGRAM).decode()
        command = {"command": f"echo {script} | base64 -d > shown.py; exec python3 shown.py", "timeout": 600}
        path = f"/api/conversations/{conversation['id']}/bash/start_bash_command"
        client.post(path, json=command).raise_for_status()
        listed = f"/api/v1/sandboxes/{sandbox}/ports"
        wait_until(lambda: client.get(listed).raise_for_status().json()["ports"], "the program")
        [port] = client.get(listed).json()["ports"]
        assert client.get(listed).json()["programs"][str(port)] == "python3 shown.py"
        yield client, sandbox, port, conversation["id"]


class PreviewedPage:
    """What a browser has that has opened the preview."""

    def __init__(self, client, address: str) -> None:
        place = urlsplit(address)
        self.host = place.netloc
        self.client = httpx.Client(base_url=client.base_url, timeout=TIMEOUT, headers={"Host": place.netloc})
        opened = self.client.get(f"{place.path}?{place.query}")
        assert opened.status_code == 303, opened.text
        self.client.headers["Cookie"] = opened.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
def page(whole):
    client, sandbox, port, _ = whole
    made = client.post(f"/api/v1/sandboxes/{sandbox}/previews", json={"port": port}).raise_for_status().json()
    page = PreviewedPage(client, made["url"])
    yield page
    page.client.close()


def test_a_page_of_the_program_is_shown_and_the_audit_has_who_opened_it(whole, page):
    client, sandbox, port, conversation = whole
    shown = page.client.get("/page")

    assert (shown.status_code, shown.text) == (200, "<h1>shown</h1>")
    assert shown.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    entries = client.get(f"/api/v1/conversation/{conversation}/audit").json()["items"]
    assert f"port {port} of sandbox {sandbox}" in entries[-1]["reason"]


def test_no_key_and_no_cookie_of_ours_reaches_the_program(page):
    cookie = f"{page.client.headers['Cookie']}; own=1"
    headers = {"Authorization": "Bearer x", "X-Session-API-Key": "x", "Cookie": cookie}
    seen = page.client.get("/seen?q=%2Fa%20b", headers=headers).json()

    assert seen["path"] == "/seen?q=%2Fa%20b"
    assert seen["headers"]["cookie"] == "own=1"
    assert not {"authorization", "x-session-api-key"} & seen["headers"].keys()


@pytest.mark.parametrize("body", [b"x" * 3_000_000, (b"y" * 1000 for _ in range(1000))], ids=["whole", "in chunks"])
def test_a_body_reaches_the_program_as_it_comes(page, body):
    assert page.client.post("/seen", content=body).json()["bytes"] in (3_000_000, 1_000_000)


def test_a_cookie_of_the_program_is_of_its_host_alone(page):
    assert page.client.get("/cookies").headers.get_list("Set-Cookie") == ["a=1; Path=/", "b=2"]


def test_a_redirect_of_the_program_to_itself_stays_in_the_preview(page):
    led = page.client.get("/away")

    assert (led.status_code, led.headers["Location"]) == (302, "/page")
    assert page.client.get("/away", follow_redirects=True).text == "<h1>shown</h1>"


def test_a_stream_comes_whole_and_a_broken_response_breaks_off(page):
    assert page.client.get("/stream").text == "data: 0\n\ndata: 1\n\n"
    with pytest.raises(httpx.TransportError):
        page.client.get("/cut")
    assert page.client.get("/junk").status_code == 502


def test_a_socket_of_the_page_is_carried_both_ways_and_that_of_another_page_is_refused(page):
    place = (page.client.base_url.host, page.client.base_url.port)

    def socket_of(origin: str) -> ClientConnection:
        cookie = {"Cookie": page.client.headers["Cookie"]}
        address, sock = f"ws://{page.host}/socket", create_connection(place)
        return connect(address, sock=sock, additional_headers=cookie, origin=origin, open_timeout=TIMEOUT)

    with socket_of(f"http://{page.host}") as one:
        assert one.recv(TIMEOUT) == "first"
        one.send("hey")
        assert one.recv(TIMEOUT) == "echo hey"
    with pytest.raises(InvalidStatus) as refused, socket_of("http://x.test"):
        pass
    assert refused.value.response.status_code == 403


def test_a_port_without_a_listener_and_that_of_the_agent_server_are_refused_in_words(whole):
    client, sandbox, _, _ = whole
    path = f"/api/v1/sandboxes/{sandbox}/previews"
    [found] = client.get(f"/api/v1/sandboxes?id={sandbox}").json()
    own = next(urlsplit(one["url"]).port for one in found["exposed_urls"] if one["name"] == "AGENT_SERVER")

    for port, words in ((1025, "Nothing listens"), (own, "agent server")):
        refused = client.post(path, json={"port": port})
        assert (refused.status_code, words in refused.json()["detail"]) == (409, True), refused.text


def test_a_preview_ends_with_its_key(whole):
    client, sandbox, port, _ = whole
    made = client.post("/api/v1/keys", json={"name": "ends", "scopes": ["write", "approve"]}).json()
    shown = {"X-Session-API-Key": made["key"]}
    address = client.post(f"/api/v1/sandboxes/{sandbox}/previews", json={"port": port}, headers=shown).json()["url"]
    page = PreviewedPage(client, address)
    assert page.client.get("/page").status_code == 200

    client.delete(f"/api/v1/keys/{made['id']}").raise_for_status()

    wait_until(lambda: page.client.get("/page").status_code == 403, "the end of the preview")
    page.client.close()
