"""The view that the server is measured against starts under the server's own gunicorn settings, and counts."""

import httpx

from bench import servers
from tests.servers import redis_server


def test_the_bare_view_counts(tmp_path):
    with redis_server(tmp_path) as (url, _), servers.gunicorn("bench.baseline:create_app()", url) as port:
        response = httpx.get(f"http://127.0.0.1:{port}/api/conversations/none/events/count")

    assert (response.status_code, response.json()) == (200, 0)
