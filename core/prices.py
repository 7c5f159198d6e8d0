"""Prices of models, and budgets.

Prices are in US dollars per million tokens of text. The table omits surcharges for long contexts (some models above
200,000 or 272,000 tokens), faster tiers, tools, images and audio, and also discounts. A model that is not in the table
has no price, and no cost is reported. The setting MODEL_PRICES overrides and extends the table.

Source: the pages of the providers, as collected by LiteLLM 1.110.2 (November 2026).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: A model, then its prices of input, output, cached input, and input written to a cache; a dash: the price of input.
_TABLE = """
# OpenAI: https://developers.openai.com/api/docs/pricing
gpt-4.1                          2     8    0.5      -
gpt-4.1-mini                   0.4   1.6    0.1      -
gpt-4o                         2.5    10   1.25      -
gpt-4o-mini                   0.15   0.6  0.075      -
gpt-5                         1.25    10  0.125      -
gpt-5-mini                    0.25     2  0.025      -
gpt-5-nano                    0.05   0.4  0.005      -
gpt-5-pro                       15   120      -      -
gpt-5.1                       1.25    10  0.125      -
gpt-5.2                       1.75    14  0.175      -
gpt-5.2-pro                     21   168      -      -
gpt-5.3-codex                 1.75    14  0.175      -
gpt-5.4                        2.5    15   0.25      -
gpt-5.4-mini                  0.75   4.5  0.075      -
gpt-5.4-nano                   0.2  1.25   0.02      -
gpt-5.4-pro                     30   180      -      -
gpt-5.5                          5    30    0.5      -
gpt-5.5-pro                     30   180      -      -
gpt-5.6                          4    20    0.4      5
gpt-5.6-luna                   0.2   1.2   0.02   0.25
gpt-5.6-sol                      4    20    0.4      5
gpt-5.6-terra                    2    12    0.2    2.5
gpt-6-astra                     10    50      1   12.5
gpt-6-luna                     0.1   0.5   0.01  0.125
gpt-6-sol                        2    10    0.2    2.5
gpt-6.1-sol                      2    10    0.1    2.5
gpt-6.1-terra                    1     5   0.05   1.25
o3                               2     8    0.5      -
o3-pro                          20    80      -      -
# Anthropic: https://platform.claude.com/docs/en/about-claude/pricing
claude-fable-5                  10    50      1   12.5
claude-fable-5-1                10    50   0.25   12.5
claude-haiku-4-5                 1     5    0.1   1.25
claude-haiku-5-5               0.1   0.5   0.01  0.125
claude-mythos-5                 10    50      1   12.5
claude-mythos-5-1               10    50   0.25   12.5
claude-opus-4-5                  5    25    0.5   6.25
claude-opus-4-6                  5    25    0.5   6.25
claude-opus-4-7                  5    25    0.5   6.25
claude-opus-4-8                  5    25    0.5   6.25
claude-opus-5                    5    25    0.5   6.25
claude-opus-5-5                  4    20    0.2      5
claude-sonnet-4-5                3    15    0.3   3.75
claude-sonnet-4-6                3    15    0.3   3.75
claude-sonnet-5                  2    10    0.2    2.5
claude-sonnet-5-5                2    10    0.1    2.5
# Google: https://ai.google.dev/gemini-api/docs/pricing
gemini-2.5-flash               0.3   2.5   0.03      -
gemini-2.5-flash-lite          0.1   0.4   0.01      -
gemini-2.5-pro                1.25    10  0.125      -
gemini-3-flash-preview         0.5     3   0.05      -
gemini-3.1-flash-lite         0.25   1.5  0.025      -
gemini-3.1-pro-preview           2    12    0.2      -
gemini-3.5-flash               1.5     9   0.15      -
gemini-3.5-flash-lite          0.3   2.5   0.03      -
gemini-3.6-flash              0.75  3.75  0.075      -
gemini-3.7-flash              0.75  3.75  0.075      -
gemini-3.8-flash              0.75  3.75  0.075      -
gemini-4-argon                   2    10    0.1      -
gemini-4-hydrogen              1.5   7.5  0.075      -
gemini-flash-latest           0.75  3.75  0.075      -
gemini-flash-lite-latest       0.3   2.5   0.03      -
gemini-pro-latest                2    12    0.2      -
# Mistral: https://mistral.ai/pricing
codestral-2508                 0.3   0.9   0.03      -
codestral-latest               0.3   0.9   0.03      -
codestral-mamba-latest        0.25  0.25  0.025      -
devstral-latest                0.4     2   0.04      -
devstral-medium-latest         0.4     2   0.04      -
devstral-small-latest          0.1   0.3   0.01      -
magistral-medium-latest        1.5   7.5   0.15      -
magistral-small-latest        0.15   0.6  0.015      -
ministral-14b-2512             0.2   0.2   0.02      -
ministral-14b-latest           0.2   0.2   0.02      -
ministral-3b-2512              0.1   0.1   0.01      -
ministral-3b-latest            0.1   0.1   0.01      -
ministral-8b-2512             0.15  0.15  0.015      -
ministral-8b-latest           0.15  0.15  0.015      -
mistral-large-2512             0.5   1.5   0.05      -
mistral-large-3                0.5   1.5   0.05      -
mistral-large-4                0.7   2.1   0.07      -
mistral-large-4-0              0.7   2.1   0.07      -
mistral-large-latest           0.5   1.5   0.05      -
mistral-medium                 1.5   7.5   0.15      -
mistral-medium-2604            1.5   7.5   0.15      -
mistral-medium-3               1.5   7.5   0.15      -
mistral-medium-3-5             1.5   7.5   0.15      -
mistral-medium-3.5             1.5   7.5   0.15      -
mistral-medium-latest          1.5   7.5   0.15      -
mistral-small                  0.1   0.3   0.01      -
mistral-small-2603            0.15   0.6  0.015      -
mistral-small-latest          0.15   0.6  0.015      -
# DeepSeek: https://api-docs.deepseek.com/quick_start/pricing
deepseek-flash                 0.3   1.2  0.006      -
deepseek-v3.2                 0.28   0.4  0.028      -
deepseek-v4-flash              0.3   1.2  0.006      -
deepseek-v4-pro               1.32  3.96  0.044      -
# Qwen, of Alibaba Cloud: https://www.alibabacloud.com/help/en/model-studio/models
qwen-coder                     0.3   1.5      -      -
qwen-max                       1.6   6.4      -      -
qwen-plus                      0.4   1.2      -      -
qwen-turbo                    0.05   0.2      -      -
qwen-turbo-latest             0.05   0.2      -      -
qwen3-next-80b-a3b-instruct   0.15   1.2      -      -
qwen3-next-80b-a3b-thinking   0.15   1.2      -      -
qwen3.7-max                    2.5   7.5    0.5  3.125
qwen3.8-flash                 0.15  0.47  0.016    0.2
qwen3.8-max                      2     6   0.25      -
qwq-plus                       0.8   2.4      -      -
"""

#: Prefixes of providers that do not change the price of a model. Source: LiteLLM's prefixes
_PROVIDERS = frozenset(
    [
        "openai",
        "anthropic",
        "gemini",
        "google",
        "mistral",
        "mistralai",
        "deepseek",
        "dashscope",
        "qwen",
        "litellm_proxy",
        "openrouter",
    ]
)

#: The date of a model's version, which has the price of the model.
_DATED = re.compile(r"-(?:20[0-9]{2}-[0-9]{2}-[0-9]{2}|20[0-9]{6})$")


#: Maximum price in an entry of MODEL_PRICES, in dollars per million tokens.
_MOST = 1_000_000

_NUMBER = r"[0-9]{1,7}(?:\.[0-9]{1,9})?"

#: An entry of MODEL_PRICES: a model, then its prices of input, output, and cached input.
_ENTRY = re.compile(rf"([^=\s]+)\s*=\s*({_NUMBER})/({_NUMBER})(?:/({_NUMBER}))?")

#: Days for which the spending of a day is kept.
SPENT_DAYS = 92

_DOLLARS, _TOKENS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?"), re.compile(r"([0-9]{1,15}) tokens")


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens of a response. input: neither read from a cache nor written to one. output: includes reasoning."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cached + self.written

    def beyond(self, before: "Used") -> "Used":
        """Subtract an earlier count."""
        pairs = ((self.input, before.input), (self.output, before.output), (self.cached, before.cached))
        return Used(*(max(0, now - then) for now, then in (*pairs, (self.written, before.written))))


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float
    written: float

    @classmethod
    def of(cls, numbers: Iterable[float | None]) -> "Price":
        """Build a price from input, output, and the prices of cached and written input if they differ."""
        input, output, cached, written = [*numbers, None, None][:4]
        assert input is not None
        assert output is not None
        return cls(input, output, input if cached is None else cached, input if written is None else written)

    def nanos(self, used: Used) -> int:
        """Return the cost in billionths of a dollar."""
        by_kind = (used.input * self.input, used.output * self.output)
        return round((sum(by_kind) + used.cached * self.cached + used.written * self.written) * 1000)


def _table() -> dict[str, Price]:
    lines = [line.split() for line in _TABLE.splitlines() if line and not line.startswith("#")]
    return {name: Price.of(None if one == "-" else float(one) for one in numbers) for name, *numbers in lines}


def read_prices(text: str) -> dict[str, Price]:
    """Parse prices such as `qwen3:32b=0/0, mine=0.5/1.5/0.05`, by model in lower case.

    Units: US dollars per million tokens of input/output/cached input. Cached input defaults to the price of input, as
    does input written to a cache. Raises ValueError with a sentence that names the entry.
    """
    prices = dict[str, Price]()
    for entry in filter(None, map(str.strip, text.split(","))):
        found = _ENTRY.fullmatch(entry)
        numbers = [None if one is None else float(one) for one in found.groups()[1:]] if found else []
        if found is None or any(one is not None and one > _MOST for one in numbers):
            form = f"entries MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHED, numbers from 0 to {_MOST}, with commas"
            raise ValueError(f"must be {form}, not {entry!r}")
        if (name := found[1].lower()) in prices:
            raise ValueError(f"must name each model once, and has another {entry!r}")
        prices[name] = Price.of(numbers)
    return prices


class Prices:
    """Prices of models by name."""

    def __init__(self, given: Mapping[str, Price] | None = None) -> None:
        """given: overrides and extends the table, by model in lower case."""
        self._by_name = {**_table(), **(given or {})}

    def of(self, model: str) -> Price | None:
        """Return the price of a model as named by a client or a response; None if unknown."""
        name = self.known(model)
        return None if name is None else self._by_name[name]

    def known(self, model: str) -> str | None:
        """Return the name in the table for a model; None if there is none.

        The prefix of a known provider and a final date are dropped, unless the full name has a price.
        """
        *before, name = model.lower().split("/")
        bare = [name, _DATED.sub("", name)] if all(part in _PROVIDERS for part in before) else []
        return next((one for one in (model.lower(), *bare) if one in self._by_name), None)


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """A limit for spending on models, in billionths of a dollar and in tokens; None: unlimited."""

    nanos: int | None = None
    tokens: int | None = None

    def beyond(self, nanos: int, tokens: int) -> "ModelBudget":
        """Raise the limit by an amount, for the units that are limited."""
        more_nanos = None if self.nanos is None else self.nanos + nanos
        return ModelBudget(more_nanos, None if self.tokens is None else self.tokens + tokens)


#: Unlimited.
NO_BUDGET = ModelBudget()


class Budgets(NamedTuple):
    """Budgets of a conversation's sandbox, of a key's sandboxes per day, and of all sandboxes per day."""

    conversation: ModelBudget = ModelBudget()
    key: ModelBudget = ModelBudget()
    day: ModelBudget = ModelBudget()


#: The settings of the three budgets.
BUDGET_SETTINGS = tuple(f"MODEL_BUDGET_{of.upper()}" for of in Budgets._fields)


#: No budget is limited.
NO_BUDGETS = Budgets()


def read_budget(text: str) -> ModelBudget:
    """Parse a budget such as `5`, `2000000 tokens` or `5, 2000000 tokens`; an empty text is unlimited.

    Dollars limit models that have a price, tokens all models. Raises ValueError with a sentence about the form.
    """
    nanos: int | None = None
    tokens: int | None = None
    for part in filter(None, map(str.strip, text.split(","))):
        if _DOLLARS.fullmatch(part) and nanos is None and float(part) > 0:
            nanos = round(float(part) * 1e9)
        elif (found := _TOKENS.fullmatch(part)) and tokens is None and int(found[1]) > 0:
            tokens = int(found[1])
        else:
            form = "DOLLARS, `NUMBER tokens` or both with a comma, each greater than 0, such as `5, 2000000 tokens`"
            raise ValueError(f"must be {form}, not {text!r}")
    return ModelBudget(nanos, tokens)
