"""Requests to a service: no path leaves its base URL, its own credential replaces others, and a redirect loses it."""

import pytest

from egress.services import Base, Wrong, below, kept, returned, split_target, toward, within
from settings.egress import Service
from tests.refusals import taken

MODEL = Service("model", "https://models.example/v1", {"Authorization": "Bearer the-key"})
BASE = Base.of(MODEL)


def test_a_target_names_a_service_and_the_rest():
    assert split_target("/model/chat?x=1") == ("model", "/chat?x=1")
    assert split_target("/model") == ("model", "")
    assert split_target("/model?x=/y") == ("model", "?x=/y")
    assert split_target("/") == ("", "")


def test_a_path_goes_below_the_base():
    assert below("/v1", "/chat/completions?x=1") == "/v1/chat/completions?x=1"
    assert below("/v1", "") == "/v1"
    assert below("", "") == "/"
    assert below("", "?x=1") == "/?x=1"
    assert below("/api", "/projects/group%2Fproject/.well-known/a..b/...") == (
        "/api/projects/group%2Fproject/.well-known/a..b/..."
    )


def test_a_path_that_could_leave_the_base_is_refused():
    leaving = [
        "/..",
        "/../x",
        "/a/../../x",
        "/.",
        "/./x",
        "/%2e%2e/x",
        "/%2E./x",
        "/..%2fx",
        "/a%2f..%2fb",
        "/%252e%252e/",
    ]
    leaving += ["/..;/x", "/..;a=b/x", "/%2e%2e%3b/x", "/..%5cx", "/a%5c..%5cb", "/%25252e", "/%00", "/a%0d%0aX:y"]
    leaving += ["/..%3fx", "/..%23x", "/..%3bx", "/..%253fx", "/%20..%20/x", "/.%20./x", "/..%09/x"]
    leaving += ["/%c0%ae%c0%ae/x", "/%e0%80%ae/x", "/..%c0%afx", "/%ff", "/%ef%bc%8e%ef%bc%8e/x", "/..%ef%bc%8fx"]
    leaving += ["/a\\..\\b", "/a b", "/a#b", "/ä", "/%zz", "/a\r\nb", "/x?a b", "/x?a\r\nb"]
    assert taken(leaving, lambda rest: below("/v1", rest), Wrong) == []


def test_the_services_credential_replaces_what_the_sandbox_shows():
    given = [(b"Host", b"x"), (b"Authorization", b"Bearer placeholder"), (b"X-Api-Key", b"p"), (b"Cookie", b"a=b")]
    assert toward(MODEL, b"POST", [*given, (b"Accept", b"*/*")]) == [
        (b"accept", b"*/*"),
        (b"authorization", b"Bearer the-key"),
    ]


@pytest.mark.parametrize(
    "name", ["X_Usr", "x-usr", "X-HTTP-Method-Override", "X_Original_URL", "X-Forwarded-Host", "Forwarded", "Api_Key"]
)
def test_no_header_that_a_service_reads_as_another_one_passes(name):
    service = Service("near", "http://near.example", {"X-Usr": "ours"})

    assert toward(service, b"POST", [(name.encode(), b"theirs")]) == [(b"x-usr", b"ours")]


@pytest.mark.parametrize("name", [b"Transfer_Encoding", b"Content_Length", b"Proxy_Authorization", b"Host_", b"Te"])
def test_no_header_that_frames_a_request_passes_in_another_spelling(name):
    assert kept([(name, b"1")]) == ([(b"host_", b"1")] if name == b"Host_" else [])


def test_a_sandbox_cannot_have_the_credential_dropped():
    given = [(b"Connection", b"authorization"), (b"Connection", b"content-length, x-own"), (b"X-Own", b"1")]
    assert toward(MODEL, b"POST", [*given, (b"Content-Length", b"3")]) == [
        (b"content-length", b"3"),
        (b"authorization", b"Bearer the-key"),
    ]


def test_headers_of_one_connection_end_here():
    names = "Connection Keep-Alive Proxy-Connection Proxy-Authorization TE Trailer Upgrade Expect HTTP2-Settings Host"
    assert kept([(name.encode(), b"x") for name in names.split()]) == []


def test_a_request_with_two_lengths_is_refused():
    with pytest.raises(Wrong, match="more than one"):
        kept([(b"Content-Length", b"3"), (b"Transfer-Encoding", b"chunked")])


def test_a_redirect_below_the_base_stays_with_the_service_and_others_go_by_name():
    def location(value: str) -> str:
        [(_, found)] = returned(MODEL, BASE, [(b"Location", value.encode())])
        return found.decode()

    assert location("https://models.example/v1/files/1?x=2") == "/model/files/1?x=2"
    assert location("/v1/files/1") == "/model/files/1"
    assert location("https://models.example/v2/x") == "https://models.example/v2/x"
    assert location("https://models.example/v1x") == "https://models.example/v1x"
    assert location("/v2/x") == "https://models.example/v2/x"
    assert location("https://models.example.evil.org/v1/x") == "https://models.example.evil.org/v1/x"
    assert location("//evil.org/v1") == "//evil.org/v1"
    assert location("next") == "next"


def test_a_base_url_says_where_its_requests_go():
    assert Base("https", "models.example", 443, "/v1") == BASE
    assert BASE.authority == b"models.example"
    near = Base.of(Service("near", "http://127.0.0.1:11434/v1"))
    assert (near.port, near.authority) == (11434, b"127.0.0.1:11434")
    assert Base.of(Service("six", "http://[::1]:8080")).authority == b"[::1]:8080"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("/model/files/2", "https://models.example/v1/files/2"),
        ("http://127.0.0.1:1023/model/files/2", "https://models.example/v1/files/2"),
        ("https://models.example/v1/files/2", "https://models.example/v1/files/2"),
        ("/v1/files/2", "https://models.example/v1/files/2"),
    ],
)
def test_the_destination_of_a_copy_goes_below_the_base(value, found):
    assert within(MODEL, BASE, [(b"Destination", value.encode())]) == [(b"Destination", found.encode())]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Destination", "https://models.example/v2/x"),
        ("Destination", "/v2/x"),
        ("destination", "/model/../v2/x"),
        ("Destination", "/model/%2e%2e/v2/x"),
        ("Destination", "//models.example/v2/x"),
        ("Destination", "https:\\\\models.example/v2/x"),
        ("Destination", "other/x"),
        ("Destination", ""),
        ("X-Copy-From", "/other/x"),
        ("X_Amz_Copy_Source", "/other/x"),
    ],
)
def test_no_header_names_a_resource_outside_of_the_base(name, value):
    with pytest.raises(Wrong):
        within(MODEL, BASE, [(name.encode(), value.encode())])
