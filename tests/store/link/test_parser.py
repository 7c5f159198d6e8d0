"""An idle connection that leaves the pool: it is checked without a wait, and one that is of no use is replaced."""

import subprocess
import sys

import pytest
from redis import Redis
from redis.connection import ConnectionPool

from store.link.connection import connect
from store.link.parser import Parser
from tests.servers import PROJECT, redis_server


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url


@pytest.fixture
def client(url):
    with Redis(connection_pool=ConnectionPool.from_url(url, parser_class=Parser, max_connections=1)) as client:
        yield client


def test_the_store_reads_replies_by_it(url):
    connection = connect(url, timeout=5, max_connections=1).commands.connection_pool.get_connection()

    assert type(connection._parser) is Parser


def test_a_connection_with_a_reply_that_nobody_read_is_replaced(client):
    connection = client.connection_pool.get_connection()
    connection.send_command("ECHO", "of another request")
    assert connection.can_read(timeout=5)
    client.connection_pool.release(connection)

    assert client.echo("mine") == b"mine"


def test_a_connection_that_the_server_has_closed_is_replaced(client, url):
    before = client.client_id()
    with Redis.from_url(url) as other:
        assert other.client_kill_filter(_id=before) == 1

    assert client.client_id() != before


def test_a_connection_with_a_reply_that_was_received_and_not_read_can_be_read(client):
    connection = client.connection_pool.get_connection()
    connection.send_packed_command(connection.pack_commands([("ECHO", "one"), ("ECHO", "two")]))
    assert connection.read_response() == b"one"

    assert connection.can_read()
    assert connection.read_response() == b"two"
    assert not connection.can_read()
    client.connection_pool.release(connection)


#: another greenlet is ready to run: whoever waits lets it run
UNDER_GEVENT = """
from gevent import monkey, spawn
monkey.patch_all()
import sys
from redis import Redis
from redis.connection import ConnectionPool
from store.link.parser import Parser

ran = []
for parser in ({"parser_class": Parser}, {}):
    client = Redis(connection_pool=ConnectionPool.from_url(sys.argv[1], **parser))
    client.ping()
    connection = client.connection_pool.get_connection()
    other = spawn(ran.append, len(parser))
    assert connection.can_read() is False
    print(ran)
    other.join()
    ran.clear()
"""


def test_under_gevent_the_check_does_not_wait_for_the_loop_as_that_of_redis_py_does(url):
    found = subprocess.run(
        [sys.executable, "-c", UNDER_GEVENT, url], cwd=PROJECT, capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines() == ["[]", "[0]"]
