"""Hosts whose environments differ have different versions of a spec: one keeps the pool, the other says why not."""

import logging
from dataclasses import replace

from specs import Specs
from supervisor.warm import WarmPools
from tests.conftest import store_of
from tests.supervisor.conftest import LIMITS, SPEC

HERE = replace(SPEC, warm=1, secret_env={"LLM_API_KEY": "of this host"})
THERE = replace(HERE, secret_env={"LLM_API_KEY": "of another host"})


def test_the_earlier_supervisor_says_once_that_it_fills_nothing_and_shows_no_value(redis_url, sandboxes, caplog):
    store = store_of(redis_url, replace(LIMITS, most=3))
    here, there = WarmPools(store, Specs([HERE])), WarmPools(store, Specs([THERE]))
    with caplog.at_level(logging.WARNING, "supervisor"):
        here.fill()
        there.fill()
        assert caplog.messages == []
        here.fill()
        here.fill()

    [said] = caplog.messages
    assert SPEC.id in said
    assert "{env:…}" in said
    assert "of this host" not in said
