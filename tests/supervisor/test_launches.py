"""What a sandbox is told of its way out, as the programs in it read that; what the log says of a host's sandboxes."""

import logging
from types import SimpleNamespace
from urllib.request import proxy_bypass_environment

import httpx
import pytest
import requests

from runtimes.isolation import Abilities
from supervisor import launches
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


def test_the_log_says_to_which_specs_the_network_of_a_host_belongs(monkeypatch, caplog):
    can = Abilities("", "pasta does not start", landlock=6, seccomp=True, users=True)
    monkeypatch.setattr(launches, "abilities", lambda: can)
    monkeypatch.setattr(launches, "unsupported", lambda _: "")
    noted = []
    hosts = SimpleNamespace(note=lambda *told: noted.append(told))

    with caplog.at_level(logging.INFO, "supervisor"):
        launches.announce(SimpleNamespace(sandboxes=SimpleNamespace(hosts=hosts)), "here", range(1))

    assert caplog.messages == [
        'process sandboxes are isolated by bubblewrap. With `egress = "open"` their network is none. '
        "The internet: pasta does not start."
    ]
    assert [host for host, *_ in noted] == ["here"]
