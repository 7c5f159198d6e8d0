"""People through a real server: what gunicorn leaves of a request's head is what the guard sees."""

import socket
from urllib.parse import urlsplit

import pytest

from blueprints.people import SECRET_HEADER
from tests.people import SECRET
from tests.servers import agent_server, store_server
from tests.shared import ADMIN

pytestmark = pytest.mark.process("starts a server, whose parser of heads is what counts here")

ADA = "ada@example.org"
NAMED, SHOWN = f"X-Forwarded-User: {ADA}", f"{SECRET_HEADER}: {SECRET}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that believes a proxy on this machine, and only it, whom it also trusts in what it says of clients."""
    folder = tmp_path_factory.mktemp("people")
    settings = {
        "AUTH": "keys",
        "SESSION_API_KEY": ADMIN,
        "PERSON_HEADER": "X-Forwarded-User",
        "PERSON_GROUPS_HEADER": "X-Forwarded-Groups",
        "PERSON_PROXIES": "127.0.0.1",
        "PERSON_PROXY_SECRET": SECRET,
        "TRUSTED_PROXIES": "127.0.0.0/8",
        "RATE_LIMIT_FAILURES": "none",
        "WEB_CONCURRENCY": "1",
        # gunicorn reads this one by itself, and believes less with it than without
        "FORWARDED_ALLOW_IPS": "*",
    }
    with store_server(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url, **settings) as (client, _):
        made = client.post(
            "/api/v1/grants",
            json={"role": "approve", "person": ADA},
            headers={"Authorization": f"Bearer {ADMIN}"},
        )
        assert made.status_code == 201, made.text
        yield urlsplit(str(client.base_url))


def asked(server, *lines, source="127.0.0.1"):
    """Status and body of /users/me for a head of these lines, from an address of this machine."""
    head = "\r\n".join(["GET /api/v1/users/me HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *lines, "", ""])
    with socket.create_connection((server.hostname, server.port), timeout=20, source_address=(source, 0)) as client:
        client.sendall(head.encode("latin-1"))
        response = b"".join(iter(lambda: client.recv(65536), b""))
    return int(response.split()[1]), response.partition(b"\r\n\r\n")[2].decode()


def test_the_proxy_names_a_person(server):
    status, body = asked(server, NAMED, SHOWN)
    assert (status, f'"person":"{ADA}"' in body.replace(" ", "")) == (200, True)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        pytest.param([NAMED, NAMED, SHOWN], "several times", id="the same name twice"),
        pytest.param(["X-Forwarded-User: root", NAMED, SHOWN], "several times", id="two names"),
        pytest.param([NAMED, SHOWN, SHOWN], "PERSON_PROXY_SECRET", id="the secret twice"),
        pytest.param(
            [NAMED, "X-Forwarded-Groups: a", "X-Forwarded-Groups: b", SHOWN], "several times", id="two groups"
        ),
        pytest.param(["X-Forwarded-User:", SHOWN], "authenticated nobody", id="an empty name"),
        pytest.param([f"X-Forwarded-User: {'a' * 4000}", SHOWN], "one name", id="a long name"),
        pytest.param(["X-Forwarded-User: J\xfcrgen", SHOWN], "one name", id="no ASCII"),
        pytest.param([NAMED], "PERSON_PROXY_SECRET", id="no secret"),
        pytest.param([NAMED, SHOWN, f"Authorization: Bearer {ADMIN}"], "a key", id="a key beside it"),
        pytest.param(["X_Forwarded_User: " + ADA, SHOWN], "A key is needed", id="an underscore"),
        pytest.param([NAMED, "X_Forwarded_User: root", "X-Person_Proxy-Secret: x"], "PERSON_PROXY_SECRET", id="mixed"),
    ],
)
def test_a_head_that_leaves_a_doubt_is_refused(server, lines, says):
    status, body = asked(server, *lines)
    assert (status, says in body) == (401, True), body


def test_an_underscore_adds_nothing_to_what_the_proxy_sends(server):
    status, body = asked(server, "X_Forwarded_User: root", NAMED, SHOWN, "X_Forwarded_Groups: admins")
    assert (status, '"groups":[]' in body.replace(" ", "")) == (200, True), body


@pytest.mark.parametrize("lines", [(), ("X-Forwarded-For: 127.0.0.1",), ("Forwarded: for=127.0.0.1",)])
def test_a_peer_at_another_address_is_not_the_proxy_whatever_it_says_of_itself(server, lines):
    status, body = asked(server, NAMED, SHOWN, *lines, source="127.0.0.2")
    assert (status, "PERSON_PROXIES" in body) == (401, True), body


def test_what_the_proxy_says_of_its_client_does_not_take_the_trust_from_it(server):
    assert asked(server, NAMED, SHOWN, "X-Forwarded-For: 192.0.2.7")[0] == 200


def test_a_fold_or_a_control_in_a_head_never_reaches_the_guard(server):
    assert asked(server, "X-Forwarded-User: ada\r\n @example.org", SHOWN)[0] == 400
    assert asked(server, "X-Forwarded-User : " + ADA, SHOWN)[0] == 400
    assert asked(server, "X-Forwarded-User: a\x00da", SHOWN)[0] == 400
