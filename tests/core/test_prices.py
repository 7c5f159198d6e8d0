"""The table of prices: which names it knows, and what a response costs by it."""

import pytest

from core.prices import Prices, Used

PRICES = Prices()


def test_a_response_costs_by_kind_of_token():
    price = PRICES.of("claude-sonnet-5")
    assert price is not None
    # dollars per million: 2 of input, 10 of output, 0.2 of what was cached, 2.5 of what is written to a cache
    assert price.nanos(Used(input=1000, output=500, cached=2000, written=100)) == 7_650_000


def test_what_was_cached_costs_as_the_input_where_the_table_says_nothing_else():
    price = PRICES.of("gpt-5-pro")
    assert price is not None
    assert price.cached == price.written == price.input == 15


@pytest.mark.parametrize("name", ["openai/gpt-5.5", "GPT-5.5", "gpt-5.5-2026-04-23", "litellm_proxy/openai/gpt-5.5"])
def test_a_model_is_known_with_its_provider_and_with_its_date(name):
    assert PRICES.of(name) == PRICES.of("gpt-5.5") is not None


@pytest.mark.parametrize("name", ["", "scripted", "ollama/deepseek-flash", "gpt-5.5-mine", "qwen3:32b", "openai/"])
def test_a_model_that_the_table_does_not_name_has_no_price(name):
    assert PRICES.of(name) is None
