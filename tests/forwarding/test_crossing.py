"""What crosses between a client and a sandbox: hostile paths, queries and headers, most of them made by hypothesis."""

import json
import string
from urllib.parse import parse_qsl, quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.client import AgentUnreachable
from agents.forwarding import PATH, ConversationFolder, head_of, headers_of, query_of

PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "/",
        "\\",
        "%2e%2e",
        "%2f",
        "%5c",
        "%252e",
        "\0",
        "\r\n",
        "?",
        "#",
        ";",
        "@",
        ":",
        "~",
        "bash",
        "a.b",
    ]
)
PATHS = st.one_of(
    st.text(max_size=40), st.lists(PARTS | st.text(string.ascii_letters, max_size=5), max_size=10).map("/".join)
)


@settings(max_examples=50)
@given(PATHS)
def test_no_path_that_is_taken_leaves_its_service_however_often_it_is_decoded(path):
    if not PATH.fullmatch(path):
        return
    decoded = path
    for _ in range(3):
        decoded = unquote(decoded)
    assert decoded == path
    assert path.isascii()
    steps = path.removesuffix("/").split("/")
    assert all(step.strip(".") for step in steps)
    assert not set(path) & set("\\?#%;@: \r\n\0")


@pytest.mark.parametrize(
    "path",
    [
        "bash_events/search",
        "bash_events/",
        "bash_commands/0e7bd7c3-9f6c-4a4e-8e8f-0d4c7d3b7d11/stop",
        "commits/0123abcd/changes",
        "download-trajectory/0e7bd7c39f6c4a4e8e8f0d4c7d3b7d11",
        "search_subdirs",
    ],
)
def test_every_path_of_an_agent_server_is_taken(path):
    assert PATH.fullmatch(path)


@given(st.dictionaries(st.text(string.ascii_letters + "-", min_size=1, max_size=24), st.text(max_size=20), max_size=12))
def test_no_header_of_a_client_but_those_named_reaches_a_sandbox(sent):
    sent |= {"Cookie": "c", "Authorization": "Bearer ours", "X-Session-API-Key": "ours", "X-Forwarded-For": "1.2.3.4"}
    sent |= {
        "Host": "evil",
        "Connection": "upgrade",
        "Upgrade": "h2c",
        "X-Expose-Secrets": "plaintext",
        "Range": "bytes=1-",
    }

    crossed = headers_of(sent.get, "the sandbox's")

    assert crossed["X-Session-API-Key"] == "the sandbox's"
    assert crossed["Range"] == "bytes=1-"
    assert crossed["Accept-Encoding"] == "identity"
    assert "ours" not in "".join(crossed.values())
    known = {"accept", "accept-language", "accept-encoding", "content-type", "range", "x-session-api-key"}
    known |= {"if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since"}
    assert {name.lower() for name in crossed} <= known


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=30)), max_size=12))
def test_no_header_of_a_sandbox_gives_a_browser_a_cookie_a_permission_or_a_page(sent):
    sent += [(b"Set-Cookie", b"a=b"), (b"Access-Control-Allow-Origin", b"*"), (b"Location", b"http://evil/")]
    sent += [(b"Content-Type", b"text/html"), (b"Content-Security-Policy", b"default-src *"), (b"Connection", b"close")]
    sent += [
        (b"Content-Disposition", b"inline; filename=x.html"),
        (b"Service-Worker-Allowed", b"/"),
        (b"Link", b"</x>"),
    ]

    status, headers = head_of(200, sent)

    crossed = dict(headers)
    assert status == 200
    assert crossed["Content-Disposition"] == "attachment; filename=x.html"
    assert crossed["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert crossed["X-Content-Type-Options"] == "nosniff"
    known = {"accept-ranges", "content-disposition", "content-encoding", "content-length", "content-range", "etag"}
    known |= {"content-type", "last-modified", "content-security-policy", "x-content-type-options"}
    assert {name.lower() for name, _ in headers} <= known
    assert not any({"\r", "\n", "\0"} & set(value) for _, value in headers)


def test_a_length_beside_a_transfer_coding_does_not_frame_the_response():
    _, headers = head_of(200, [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")])
    assert "Content-Length" not in dict(headers)


def test_a_204_has_no_length():
    for sent in (b"0", b"5"):
        _, headers = head_of(204, [(b"Content-Length", sent), (b"ETag", b'"a"')])
        assert dict(headers).keys() & {"Content-Length", "Etag"} == {"Etag"}
    assert dict(head_of(304, [(b"Content-Length", b"5")]).headers)["Content-Length"] == "5"


def test_json_is_shown_and_anything_else_is_saved():
    _, shown = head_of(200, [(b"Content-Type", b"application/json; charset=utf-8")])
    assert "Content-Disposition" not in dict(shown)
    for kind in (b"text/html", b"image/svg+xml", b"application/json5", b""):
        _, saved = head_of(200, [(b"Content-Type", kind)])
        assert dict(saved)["Content-Disposition"] == "attachment"


@pytest.mark.parametrize("status", [101, 301, 302, 303, 307, 308, 401])
def test_a_redirect_an_upgrade_and_a_refused_key_are_failures_of_the_agent_server(status):
    with pytest.raises(AgentUnreachable):
        head_of(status, [(b"Location", b"http://169.254.169.254/")])


@given(st.lists(st.tuples(st.text(min_size=1, max_size=10), st.text(max_size=20)), max_size=8))
def test_a_query_crosses_without_keys_and_with_its_paths_mapped(pairs):
    raw = "&".join(
        ["cid=1", "session_api_key=ours", "Ticket=ours", "path=/asked/a", "AUTHORIZATION=ours"]
        + [f"{name.encode().hex()}={value.encode().hex()}" for name, value in pairs]
    )

    crossed = parse_qsl(query_of(raw.encode(), lambda path: path.replace("/asked", "/real")), keep_blank_values=True)

    assert crossed[0] == ("path", "/real/a")
    assert crossed[1:] == [(name.encode().hex(), value.encode().hex()) for name, value in pairs]


def test_a_path_that_is_no_utf_8_crosses_as_it_came():
    assert query_of(b"path=%FF%2Fa&path=", str) == "path=%FF%2Fa&path="


def test_a_name_as_a_list_escapes_it_crosses_as_its_bytes_in_a_path_alone():
    escaped = quote("\uefff")
    assert query_of(f"path={escaped}&text={escaped}".encode(), str) == f"path=%FF&text={escaped}"


INSIDE = [
    ("/tmp/ws", True),
    ("/tmp/ws/a", True),
    ("/work/project", True),
    ("/work/project/a/../b/", True),
    ("/tmp/ws/..", False),
    ("/work/project/../other", False),
    ("/work/projects", False),
    ("/work", False),
    ("/", False),
    ("/etc", False),
    ("project", False),
    ("", False),
]


def test_a_path_is_in_the_folder_that_was_asked_for_and_in_the_sandboxs():
    folder = ConversationFolder("/tmp/ws", "/work/project")
    assert [(path, folder.has(path)) for path, _ in INSIDE] == INSIDE


def test_a_path_in_the_folder_that_was_asked_for_is_one_in_the_sandboxs_and_others_stay():
    folder = ConversationFolder("/tmp/ws", "/work/project")
    real = {
        "/tmp/ws": "/work/project",
        "/tmp/ws/": "/work/project/",
        "/tmp/ws/a b/ü": "/work/project/a b/ü",
        "/tmp/wsx": "/tmp/wsx",
        "/etc/passwd": "/etc/passwd",
        "ws": "ws",
        "": "",
    }

    assert {asked: folder.mapped(asked) for asked in real} == real
    bodies = {asked: folder.mapped_json(json.dumps({"cwd": asked}).encode(), is_command=True) for asked in real}
    assert {asked: json.loads(body)["cwd"] for asked, body in bodies.items()} == real


def test_nothing_is_in_a_folder_that_is_not_known():
    assert not ConversationFolder().has("/")
    assert not ConversationFolder("/tmp/ws").has("/tmp/ws")
