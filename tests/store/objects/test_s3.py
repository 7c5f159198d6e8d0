"""A bucket of a real S3 server: outages, refusals, and requests of a worker that go on meanwhile."""

import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from settings import ConfigError
from settings.config import Config
from store.conversations.cold import ObjectsAway
from store.objects import open_objects
from store.objects import s3 as module
from tests.s3 import BUCKET, s3_server
from tests.servers import TIMEOUT, free_port, running

pytestmark = pytest.mark.process("starts an S3 server")

#: a worker's process: one greenlet waits for the bucket, and the other one is served meanwhile
WORKER = """
from gevent import monkey
monkey.patch_all()
import socket, sys, threading
from settings.config import Config
from store.objects import open_objects

port = int(sys.argv[1])
place = open_objects(Config.of(redis_url="redis://unused", cold_url="s3://cold/p",
                            cold_s3_endpoint=f"http://127.0.0.1:{port}").keeping)
threading.Thread(target=lambda: print(place.get("name").decode(), flush=True), name="get").start()
other = socket.create_connection(("127.0.0.1", port))
other.sendall(b"other")
assert other.recv(2) == b"go"  # the bucket has the request
other.sendall(b"served")
"""


def bucket_at(url: str, *, name: str = BUCKET):
    settings = {"cold_url": f"s3://{name}/prefix", "cold_s3_endpoint": url}
    return open_objects(Config.of(redis_url="redis://unused", **settings).keeping)


@pytest.mark.process("starts an S3 server twice, and has boto3 try again")
def test_a_server_that_is_killed_is_away_until_it_is_back(aws, tmp_path):
    with s3_server(tmp_path) as server:
        place = bucket_at(server.url)
        place.put("name", b"content")
        contents = server.contents()
        assert list(contents) == ["prefix/name"]
        server.kill()

        for call in (lambda: place.get("name"), lambda: place.put("new", b""), lambda: place.delete("name")):
            with pytest.raises(ObjectsAway, match=f"the bucket {BUCKET}: "):
                call()
        with pytest.raises(ObjectsAway):
            list(place.names())

        with s3_server(tmp_path, server.port, contents):
            assert place.get("name") == b"content"
            assert list(place.names()) == ["name"]


def test_a_bucket_that_does_not_exist_is_away_and_no_object_is_missing(aws, s3):
    place = bucket_at(s3.url, name="no-such-bucket")

    for call in (lambda: place.get("name"), lambda: place.put("name", b"")):
        with pytest.raises(ObjectsAway, match="NoSuchBucket"):
            call()


def test_objects_beside_the_prefix_and_below_it_are_not_its(aws, s3):
    place = bucket_at(s3.url)
    for key in ("other/name", "prefix/folder/name", "prefixed", "prefix/not a name"):
        s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"x")

    place.put("mine", b"content")

    assert list(place.names()) == ["mine"]


def test_the_names_of_all_pages_are_listed(aws, s3, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 2)
    place = open_objects(
        Config.of(redis_url="redis://unused", cold_url=f"s3://{BUCKET}/many", cold_s3_endpoint=s3.url).keeping
    )
    for number in range(5):
        s3.client.put_object(Bucket=BUCKET, Key=f"many/name-{number}", Body=b"")

    assert list(place.names()) == [f"name-{number}" for number in range(5)]


def test_without_credentials_the_place_is_away(aws, s3, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(ObjectsAway, match="credentials"):
        bucket_at(s3.url).get("name")


def test_a_profile_that_does_not_exist_refuses_the_start(aws, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")

    with pytest.raises(ConfigError, match=r"^COLD_URL: .*no-such-profile"):
        bucket_at("")


def test_the_endpoint_may_be_that_of_the_variables_of_aws(aws, s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    place = bucket_at("")

    place.put("by-variable", b"content")

    assert place.get("by-variable") == b"content"
    place.delete("by-variable")


@pytest.mark.process("starts a process of its own, in which gevent patches the standard library")
def test_other_requests_of_a_worker_go_on_while_one_waits_for_the_bucket(aws):
    port = free_port()
    command = [sys.executable, "-c", WORKER, str(port)]
    with (
        socket.create_server(("127.0.0.1", port)) as listener,
        running(command, stdout=subprocess.PIPE, text=True) as process,
        process.stdout,
        closing_all() as accepted,
    ):
        listener.settimeout(TIMEOUT)
        for _ in range(2):
            connection, _ = listener.accept()
            accepted[connection.recv(4096)[:5]] = connection
        accepted[b"other"].sendall(b"go")
        assert accepted[b"other"].recv(6) == b"served"
        accepted[b"GET /"].sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: "x"\r\n\r\ncontent')
        assert process.stdout.readline() == "content\n"


@contextmanager
def closing_all():
    connections = {}
    try:
        yield connections
    finally:
        for connection in connections.values():
            connection.close()
