"""What stands in for servers of a module's own: an app that is reached in this process, and whole servers that the
tests of a process share. Each of these starts when the first test asks for it, and ends with the run.
"""

import functools
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import httpx
from flask import Flask

from tests.servers import agent_server, store_server

#: the key of the shared server that needs one
ADMIN = "an-admin-key-of-the-settings"


#: the address of an app in this process
HERE = "http://127.0.0.1"


def client_of(app: Flask, key: str = "") -> httpx.Client:
    """A client of an app in this process, as there is one of a server; key: that it shows."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(transport=httpx.WSGITransport(app), base_url=HERE, headers=headers)


#: what ends with the last test of a process, while its run still waits for it
_running = ExitStack()


def stop_shared_servers() -> None:
    _running.close()
    shared_server.cache_clear()


@functools.cache
def shared_server(key: str = "") -> SimpleNamespace:
    """A server of two workers as `make run` starts it, which needs a key where one is given.

    Its members: `client`, of its admin; `master`, its process; `url` of its Redis.
    """
    folder = Path(_running.enter_context(tempfile.TemporaryDirectory(prefix="agent-server-tests-")))
    url, _ = _running.enter_context(store_server(folder))
    settings = {"REDIS_URL": url, "SESSION_API_KEY": key, "RATE_LIMIT_FAILURES": "none"}
    client, master = _running.enter_context(agent_server(folder / "log", **settings))
    if key:
        client.headers["Authorization"] = f"Bearer {key}"
    return SimpleNamespace(client=client, master=master, url=url)
