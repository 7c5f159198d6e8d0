"""`/api/v1/spending` and a sandbox's `spending`: what models cost, by sandbox, by key and by day."""

from dataclasses import replace

import pytest

from core.prices import Used
from settings.models import ModelSettings
from tests.apps import serve_with
from tests.store.conftest import fresh_sandboxes

DAY = "/api/v1/spending"


@pytest.fixture
def sandbox(store, redis_url):
    """A sandbox that a key has started, of a store without others."""
    return fresh_sandboxes(redis_url).start("spec", owner="me").id


def test_a_sandbox_shows_what_it_has_spent_and_its_budget(client, app, store, sandbox, monkeypatch):
    bounded = replace(app.extensions["server"].config, models=ModelSettings(model_budget_conversation="5"))
    serve_with(monkeypatch, app, config=bounded)
    used = Used(input=60, output=10, cached=40, written=5)
    store.spending.book(sandbox, "me", "gpt-5.5", used, 1_250_000_000, model="gpt-5.5", calls=1, estimated=0)
    store.spending.book(sandbox, "me", "other", Used(1), None, model="mine", calls=1, estimated=1)

    assert client.get(f"/api/v1/sandboxes/{sandbox}/spending").get_json() == {
        "calls": 2,
        "refused": 0,
        "estimated": 1,
        "input_tokens": 61,
        "output_tokens": 10,
        "cached_tokens": 40,
        "written_tokens": 5,
        "tokens": 116,
        "dollars": 1.25,
        "unpriced_tokens": 1,
        "allowed_dollars": 0.0,
        "allowed_tokens": 0,
        "budget": {"dollars": 5.0, "tokens": None},
    }
    assert client.get("/api/v1/sandboxes/none/spending").status_code == 404


def test_a_day_shows_all_and_each_key(client, store, sandbox):
    store.spending.book(sandbox, "me", "gpt-5.5", Used(1), 1000, model="gpt-5.5", calls=1, estimated=0)
    found = client.get(DAY).get_json()

    assert (found["all"]["calls"], found["all"]["dollars"]) == (1, 1e-6)
    assert [(key["key_id"], key["tokens"]) for key in found["keys"]] == [("me", 1)]
    assert found["budget"] == found["budget_of_key"] == {"dollars": None, "tokens": None}
    assert client.get(DAY, query_string={"day": found["day"]}).get_json() == found
    before = client.get(DAY, query_string={"day": "2020-02-29"}).get_json()
    assert (before["day"], before["all"]["calls"], before["keys"]) == ("2020-02-29", 0, [])


@pytest.mark.parametrize("day", ["today", "2026-02-30", "2026-1-1x", "20261126", ""])
def test_what_is_no_day_is_refused_with_an_example(client, day):
    refused = client.get(DAY, query_string={"day": day})
    assert refused.status_code == 422
    assert "2026-11-26" in refused.text


def test_metrics_have_a_series_for_each_model_and_one_for_all_others(client, store, sandbox):
    for label in ("gpt-5.5", "other"):
        store.spending.book(sandbox, "", label, Used(3, 2), 2_000_000, model=label, calls=1, estimated=0)
    lines = client.get("/metrics").text.splitlines()

    assert 'agent_server_model_tokens_total{kind="output",model="gpt-5.5"} 2.0' in lines
    assert 'agent_server_model_calls_total{model="other"} 1.0' in lines
    assert 'agent_server_model_dollars_total{model="gpt-5.5"} 0.002' in lines
    assert "agent_server_model_calls_refused_total 0.0" in lines
