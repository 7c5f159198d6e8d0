"""What a sandbox is told of its way out, as the programs in it read that."""

from urllib.request import proxy_bypass_environment

import httpx
import pytest
import requests

from supervisor.launches import WAY_OUT

PROXY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def way_out(monkeypatch):
    for name, value in WAY_OUT.items():
        monkeypatch.setenv(name, value.replace("{EGRESS}", PROXY))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2", "127.0.1.1", "0.0.0.0", "sandbox"])
def test_a_server_of_the_sandbox_itself_is_reached_without_the_proxy(host):
    url = f"http://{host}:8000/"

    assert proxy_bypass_environment(f"{host}:8000")
    assert requests.utils.get_environ_proxies(url) == {}
    with httpx.Client() as client:
        assert client._transport_for_url(httpx.URL(url)) is client._transport


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "sandbox.example", "notlocalhost"])
def test_every_other_server_is_reached_by_the_proxy(host):
    assert not proxy_bypass_environment(f"{host}:8000")
    with httpx.Client() as client:
        assert client._transport_for_url(httpx.URL(f"http://{host}:8000/")) is not client._transport
