"""The examples of docs/ ask the server that the settings name."""

import runpy
import sys

import pytest

from tests.servers import PROJECT

SETTINGS = [
    ({}, "http://127.0.0.1:8000"),
    ({"PORT": "8123"}, "http://127.0.0.1:8123"),
    ({"PORT": "8123", "AGENT_SERVER_URL": "https://agents.example.org"}, "https://agents.example.org"),
]


@pytest.mark.parametrize("example", ["demo", "echo_agent", "aais_envelopes"])
@pytest.mark.parametrize(("given", "url"), SETTINGS, ids=["nothing", "PORT", "AGENT_SERVER_URL"])
def test_an_example_asks_the_server_that_the_settings_name(monkeypatch, example, given, url):
    monkeypatch.setattr(sys, "argv", [example])
    for name in ("PORT", "AGENT_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    assert runpy.run_path(str(PROJECT / f"docs/examples/{example}.py"), run_name=example)["HERE"] == url
