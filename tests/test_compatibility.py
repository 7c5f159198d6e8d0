"""The table of compatibility: true to this server and to the documents of its peers."""

import functools

import pytest

from app import create_app
from docs import make
from settings.config import Config

PEERS = ("agent-server", "app-server")

OPERATIONS = sorted({one for peer in PEERS for one in make.operations(peer)})


@pytest.fixture(scope="module")
def app():
    return create_app(Config.of(redis_url="redis://127.0.0.1:1"))


def test_the_stored_table_is_current():
    assert make.COMPATIBILITY.read_text() == make.compatibility(), "run `make docs`"


def test_an_operation_of_a_peer_is_served_or_has_one_reason_not_to_be(app, monkeypatch):
    monkeypatch.setattr(make, "reasons", functools.cache(make.reasons))  # reads a file
    faults = [
        str(operation)
        for operation in OPERATIONS
        if len(make.reasons_for(operation)) != (0 if make.is_served(app, operation) else 1)
    ]
    assert faults == []


def test_every_reason_is_that_of_an_operation(monkeypatch):
    monkeypatch.setattr(make, "reasons", functools.cache(make.reasons))
    used = {reason for operation in OPERATIONS for reason in make.reasons_for(operation)}
    assert [text for _, text in make.reasons() if text not in used] == []


def test_an_operation_that_is_not_served_is_404_as_json(app):
    response = app.test_client().get("/api/meta-profiles")
    assert (response.status_code, list(response.get_json())) == (404, ["detail"])
