"""The settings of models: their prices, and the budgets of sandboxes."""

from dataclasses import dataclass

from core.prices import Budgets, read_budget, read_prices
from settings import ConfigError, check_bounds, setting


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Models: prices and budgets."""

    model_prices: str = setting(
        "",
        "Prices of models, separated by commas: `MODEL=INPUT/OUTPUT` or "
        "`MODEL=INPUT/OUTPUT/CACHED`, in US dollars per million tokens, such as `qwen3:32b=0/0, "
        "mine=0.5/1.5/0.05`. Overrides and extends the table of the bundled agent.",
    )
    model_budget_conversation: str = setting(
        "",
        "Maximum that the sandbox of a conversation may spend on models through the egress "
        "proxy: dollars, `NUMBER tokens`, or both separated by a comma: `5, 2000000 tokens`. "
        "Calls beyond it are refused (docs/egress.md). Unset: no limit.",
    )
    model_budget_key: str = setting(
        "", "The maximum of all sandboxes that a key has started, per day (UTC). Unset: no limit."
    )
    model_budget_day: str = setting("", "The maximum of all sandboxes together, per day (UTC). Unset: no limit.")

    def __post_init__(self) -> None:
        check_bounds(self)
        try:
            read_prices(self.model_prices)
        except ValueError as error:
            raise ConfigError(f"MODEL_PRICES {error}") from None
        self.budgets  # noqa: B018 - the property refuses a wrong one

    @property
    def budgets(self) -> Budgets:
        """Return the budgets of models. Raises ConfigError."""
        found = []
        for of in Budgets._fields:
            try:
                found.append(read_budget(getattr(self, f"model_budget_{of}")))
            except ValueError as error:
                raise ConfigError(f"MODEL_BUDGET_{of.upper()} {error}") from None
        return Budgets(*found)
