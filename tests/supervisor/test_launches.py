"""What a sandbox is told of its way out, as the programs in it read that; what the log says of a host's sandboxes."""

import logging
from types import SimpleNamespace
from urllib.request import proxy_bypass_environment

import httpx
import pytest
import requests

from runtimes.isolation import Abilities
from settings.specs import Specs
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


#: of a spec with a process or a container
SPEC = """created_at = 2026-11-21T00:00:00Z
command = ["agent"]
ports = { AGENT_SERVER = 8000 }"""

SPECS = """
[[spec]]
id = "by-name"
egress = "named"
{0}

[[spec]]
id = "bare"
isolation = "none"
{0}

[[spec]]
id = "open"
{0}

[[spec]]
id = "a-container"
runtime = "docker"
image = "agent"
egress = "none"
{0}
"""


def test_the_log_and_the_status_say_of_each_spec_what_isolates_it_and_what_it_reaches(monkeypatch, caplog, tmp_path):
    can = Abilities("", "pasta does not start", landlock=6, seccomp=True, users=True)
    monkeypatch.setattr(launches, "abilities", lambda: can)
    monkeypatch.setattr(launches, "unsupported", lambda _: "")
    (tmp_path / "specs.toml").write_text(SPECS.format(SPEC))
    noted, specs = [], Specs.load(str(tmp_path / "specs.toml"))
    hosts = SimpleNamespace(note=lambda *told: noted.append(told))

    with caplog.at_level(logging.INFO, "supervisor"):
        launches.announce(SimpleNamespace(sandboxes=SimpleNamespace(hosts=hosts)), "here", range(1), specs)

    assert [message.split(". ")[0] for message in caplog.messages] == [
        "the sandboxes of by-name are isolated by bubblewrap, and reach by name what the spec allows",
        "the sandboxes of bare are NOT ISOLATED, and have the network of this machine",
        "the sandboxes of open are isolated by bubblewrap, and reach no network",
        "the sandboxes of a-container are containers, and reach no network",
    ]
    assert "It does not reach the internet: pasta does not start." in caplog.messages[2]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING", "INFO"]
    [(host, isolation, _)] = noted
    assert (host, isolation["kind"]) == ("here", "bubblewrap")
    assert [(one["spec"], one["kind"], one["network"]) for one in isolation["specs"]] == [
        ("by-name", "bubblewrap", "named"),
        ("bare", "none", "host"),
        ("open", "bubblewrap", "none"),
        ("a-container", "container", "none"),
    ]


def test_a_spec_that_requires_what_the_host_does_not_have_is_said_not_to_start(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(launches, "abilities", lambda: Abilities("no bwrap here", "", 6, seccomp=True, users=True))
    (tmp_path / "specs.toml").write_text(f'[[spec]]\nid = "must"\nisolation = "required"\n{SPEC}')
    hosts = SimpleNamespace(note=lambda *_: None)

    launches.announce(
        SimpleNamespace(sandboxes=SimpleNamespace(hosts=hosts)),
        "here",
        range(1),
        Specs.load(str(tmp_path / "specs.toml")),
    )

    assert "They do not start: its spec says" in caplog.text
