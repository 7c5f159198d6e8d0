"""One try of a webhook, over real sockets."""

import socket
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from core import wire
from notifications.sending import NotDelivered, SendingTarget, TargetGone, Webhooks
from tests.notifications import SECRET, receiver
from tests.servers import free_port

BODY = '{"type": "action.pending", "timestamp": "2026-11-20T20:37:22Z", "data": {"title": "Schlüssel"}}'


@pytest.fixture
def webhooks():
    return Webhooks(private=True, seconds=60)


@pytest.fixture
def hook():
    with receiver() as one:
        yield one


@pytest.fixture
def tls_hook(tmp_path):
    """A webhook behind TLS, and the file of its certificate, which it signed itself, for `localhost`."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate, private = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    with receiver(context=context) as one:
        yield one, str(certificate)


def target(url):
    return SendingTarget("id", "name", url, SECRET)


def send(webhooks, url, identity="msg_1"):
    webhooks.send(target(url), identity, BODY, wire.now())


@contextmanager
def raw_server(response: bytes, *, ends: bool):
    """A server that sends bytes to whoever connects, and then ends the connection, or leaves it open."""
    done = threading.Event()

    def serve():
        connection, _ = listener.accept()
        with connection:
            received = b""
            while not received.endswith(BODY.encode()):  # a server that leaves bytes unread resets the connection
                received += connection.recv(65536)
            connection.sendall(response)
            if not ends:
                done.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            done.set()
            thread.join()


def test_a_message_is_signed_after_standard_webhooks(webhooks, hook):
    send(webhooks, hook.url)

    [(headers, body)] = hook.received
    assert body == BODY.encode()
    assert headers["webhook-id"] == "msg_1"
    assert headers["content-type"] == "application/json"
    assert hook.taken[0]["data"] == {"title": "Schlüssel"}


@pytest.mark.process("a target on a raw socket")
@pytest.mark.parametrize("status", [201, 202, 204, 299])
def test_any_status_of_success_is_one(webhooks, status):
    with raw_server(f"HTTP/1.1 {status} \r\nConnection: close\r\n\r\n".encode(), ends=True) as url:
        send(webhooks, url)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_any_other_status_is_a_failure(webhooks, hook, status):
    hook.does = [status]

    with pytest.raises(NotDelivered, match=f"^it answered {status}$"):
        send(webhooks, hook.url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(webhooks, hook, status):
    hook.does = [status]

    with pytest.raises(NotDelivered, match="redirects are not followed"):
        send(webhooks, hook.url)

    assert len(hook.received) == 1


def test_a_target_that_answers_410_wants_no_more(webhooks, hook):
    hook.does = [410]

    with pytest.raises(TargetGone):
        send(webhooks, hook.url)


@pytest.mark.parametrize("does", ["hang", "drip"])
def test_a_target_that_sends_no_whole_response_in_time_has_failed(hook, does):
    hook.does = [does]

    with pytest.raises(NotDelivered, match="in time"):
        send(Webhooks(private=True, seconds=0.3), hook.url)


@pytest.mark.process("a target on a raw socket")
def test_a_target_that_drips_its_head_has_failed():
    with raw_server(b"HTTP/1.1 200 OK\r\nA: b", ends=False) as url, pytest.raises(NotDelivered, match="in time"):
        send(Webhooks(private=True, seconds=0.3), url)


@pytest.mark.process("a target on a raw socket")
@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
    ],
)
def test_a_response_that_ends_half_way_is_a_failure(webhooks, response):
    with raw_server(response, ends=True) as url, pytest.raises(NotDelivered, match=r"response|connection"):
        send(webhooks, url)


@pytest.mark.process("a target on a raw socket")
def test_an_endless_response_is_not_read_to_its_end(webhooks):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    with raw_server(head + b"x" * 100_000, ends=False) as url:
        send(webhooks, url)


def test_a_port_that_nobody_listens_on_is_a_failure(webhooks):
    with pytest.raises(NotDelivered, match="takes no connection"):
        send(webhooks, f"http://127.0.0.1:{free_port()}/")


def test_a_private_address_is_not_connected_to_without_the_setting(hook):
    for host in ("127.0.0.1", "localhost", "127.1"):
        with pytest.raises(NotDelivered, match="private: NOTIFY_PRIVATE=1 allows it"):
            send(Webhooks(private=False), f"http://{host}:{hook.port}/")

    assert hook.received == []


def test_a_name_is_resolved_once_and_the_connection_goes_to_the_checked_address(webhooks, hook, monkeypatch):
    resolve, asked = socket.getaddrinfo, []

    def rebinding(host, *args, **options):
        """The first time the address of the webhook, later one that is refused."""
        if host == "rebinding.example":
            asked.append(host)
            return resolve("127.0.0.1" if len(asked) == 1 else "169.254.169.254", *args, **options)
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)

    send(webhooks, f"http://rebinding.example:{hook.port}/")

    assert len(hook.taken) == len(asked) == 1


def test_the_next_address_of_a_host_is_tried_where_one_takes_no_connection(webhooks, hook, monkeypatch):
    resolve = socket.getaddrinfo

    def two(host, port, *args, **options):
        addresses = ("127.0.0.2", "127.0.0.1") if host == "two.example" else (host,)
        return [info for one in addresses for info in resolve(one, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", two)

    send(webhooks, f"http://two.example:{hook.port}/")

    assert len(hook.taken) == 1


def test_a_target_with_a_trusted_certificate_gets_its_message(tls_hook, monkeypatch):
    hook, certificate = tls_hook
    monkeypatch.setenv("SSL_CERT_FILE", certificate)

    send(Webhooks(private=True, seconds=60), f"https://localhost:{hook.port}/")

    assert len(hook.taken) == 1


def test_a_target_whose_certificate_nobody_trusts_gets_nothing(webhooks, tls_hook):
    hook, _ = tls_hook
    with pytest.raises(NotDelivered, match="takes no connection"):
        send(webhooks, f"https://localhost:{hook.port}/")

    assert hook.received == []


def test_no_failure_shows_the_path_or_the_secret(webhooks, hook):
    for does in (500, 302, 410, "half"):
        hook.does = [does]
        with pytest.raises(NotDelivered) as failure:
            send(webhooks, hook.url)
        assert "secret" not in repr(failure.value)
        assert failure.value.__cause__ is None
