"""What the agent reports of costs in the metrics of the wire."""

import pytest

from core.prices import Prices, read_prices
from reference_agent.mind import ModelEndpoint, counted

USED = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}


def test_the_cost_of_each_response_is_added():
    llm = ModelEndpoint("openai/gpt-5.5")  # dollars per million: 5 of input, 30 of output, 0.5 of what was cached
    first = counted({}, USED, llm, "one")
    assert first["accumulated_cost"] == pytest.approx(0.0062)
    assert counted(first, USED, llm, "two")["accumulated_cost"] == pytest.approx(0.0124)


def test_a_model_without_a_price_adds_nothing():
    first = counted({}, USED, ModelEndpoint("openai/gpt-5.5"), "one")
    assert counted(first, USED, ModelEndpoint("of-my-own"), "two")["accumulated_cost"] == first["accumulated_cost"]


def test_more_cached_than_was_asked_costs_no_less_than_nothing():
    used = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 400}}
    assert counted({}, used, ModelEndpoint("gpt-5.5"), "one")["accumulated_cost"] == pytest.approx(5e-6)


def test_a_model_costs_what_the_server_has_set_and_so_does_one_that_a_start_names():
    llm = ModelEndpoint("gpt-5.5", prices=Prices(read_prices("of-my-own=1/2/0.5")))
    own = llm.with_given({"model": "openai/of-my-own"})
    # 600 of input, 400 of what was cached, 100 of output
    assert counted({}, USED, own, "one")["accumulated_cost"] == pytest.approx(0.001)
