"""The table of prices: which names it knows, and what a response costs by it."""

import pytest

from core.prices import ModelBudget, Price, Prices, Used, read_budget, read_prices

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


def test_given_prices_override_and_extend_the_table():
    prices = Prices(read_prices("qwen3:32b=0/0, Mine = 0.5/1.5/0.05, gpt-5.5=1/2, ollama/own=3/4,"))
    assert prices.of("qwen3:32b") == Price(0, 0, 0, 0)
    assert prices.of("openai/mine") == Price(0.5, 1.5, cached=0.05, written=0.5)
    assert prices.of("openai/gpt-5.5-2026-04-23") == Price(1, 2, cached=1, written=1)
    assert prices.of("ollama/own") == Price(3, 4, cached=3, written=3)
    assert prices.of("own") is None
    assert prices.of("claude-sonnet-5") == PRICES.of("claude-sonnet-5")


def test_no_text_gives_no_prices():
    assert read_prices("") == read_prices(" , ") == {}


@pytest.mark.parametrize(
    "entry",
    [
        *["mine", "mine=", "mine=1", "=1/2", "mine=1/", "mine=-1/2", "mine=1/2/3/4", "mine=a/b", "mine=nan/1"],
        *["a b=1/2", "mine=1000001/1", "mine=1/2=3", "mine=1e3/1", "mine=1/2/"],
    ],
)
def test_an_entry_that_is_no_price_is_refused_by_its_text(entry):
    with pytest.raises(ValueError, match=f"^must be entries .*, not {entry!r}$"):
        read_prices(f"fine=1/2, {entry}")


def test_a_model_has_one_price():
    with pytest.raises(ValueError, match=r"^must name each model once, and has another 'Mine=3/4'$"):
        read_prices("mine=1/2, Mine=3/4")


def test_a_model_is_known_by_the_name_that_has_its_price():
    prices = Prices(read_prices("ollama/own=3/4"))
    assert prices.known("openai/gpt-5.5-2026-04-23") == "gpt-5.5"
    assert prices.known("Ollama/Own") == "ollama/own"
    assert prices.known("own") is None


def test_a_budget_is_dollars_tokens_or_both():
    assert read_budget("5") == ModelBudget(nanos=5_000_000_000)
    assert read_budget("0.000000001") == ModelBudget(nanos=1)
    assert read_budget("2000000 tokens") == ModelBudget(tokens=2_000_000)
    assert read_budget(" 0.5 , 7 tokens,") == read_budget("7 tokens, 0.5") == ModelBudget(500_000_000, 7)
    assert read_budget("") == ModelBudget()


@pytest.mark.parametrize(
    "text", ["0", "0.0", "0 tokens", "-1", "five", "1e3", "nan", "1, 2", "1 token", "1 tokens, 2 tokens"]
)
def test_what_is_no_budget_is_refused_by_its_text(text):
    with pytest.raises(ValueError, match=f"^must be DOLLARS, .* not {text!r}$"):
        read_budget(text)
