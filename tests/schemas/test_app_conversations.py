"""The use of all models of an agent together."""

import pytest
from marshmallow import ValidationError

from schemas.app_conversations import AppConversationStartRequest, combined


def usage(**members):
    return {"model_name": "m", "accumulated_cost": 0.5, "accumulated_token_usage": members}


def test_the_tokens_of_two_models_are_combined_as_the_sdk_combines_them():
    agent = usage(
        **{"model": "a", "prompt_tokens": 10, "completion_tokens": 1, "cache_read_tokens": 2, "cache_write_tokens": 3},
        **{"reasoning_tokens": 4, "context_window": 1000, "per_turn_token": 11, "response_id": "first"},
    )
    condenser = usage(model="b", prompt_tokens=5, context_window=800, per_turn_token=7, response_id="second")

    # Source: TokenUsage.__add__ of the SDK 1.58
    assert combined({"usage_to_metrics": {"agent": agent, "condenser": condenser}}) == {
        "model_name": "m",
        "accumulated_cost": 1.0,
        "max_budget_per_task": None,
        "accumulated_token_usage": {
            **{"model": "a", "prompt_tokens": 15, "completion_tokens": 1, "cache_read_tokens": 2},
            **{"cache_write_tokens": 3, "reasoning_tokens": 4, "context_window": 1000, "per_turn_token": 7},
            "response_id": "first",
        },
    }


@pytest.mark.parametrize(
    "stats", [{}, {"usage_to_metrics": None}, {"usage_to_metrics": {}}, {"usage_to_metrics": {"a": 1}}]
)
def test_an_agent_that_has_reported_no_model_has_no_metrics(stats):
    assert combined(stats) is None


@pytest.mark.parametrize("tokens", [None, 5, {}, {"prompt_tokens": "x", "context_window": [], "model": 7}])
def test_a_member_that_is_no_number_counts_as_zero(tokens):
    found = combined({"usage_to_metrics": {"agent": {"accumulated_token_usage": tokens, "accumulated_cost": "x"}}})

    assert found["accumulated_cost"] == 0
    assert (found["accumulated_token_usage"]["prompt_tokens"], found["accumulated_token_usage"]["context_window"]) == (
        0,
        0,
    )


def test_a_repository_whose_url_has_a_password_is_refused():
    with pytest.raises(ValidationError) as refused:
        AppConversationStartRequest().load({"selected_repository": "https://me:hush@host.example/a/b"})
    assert "password" in str(refused.value.messages["selected_repository"])
