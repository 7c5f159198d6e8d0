"""Endpoints that are away, silent, or never end, and how a response is read; test_bad_models.py has the rest."""

import threading
import time

import pytest

from reference_agent.events import message, parts
from reference_agent.log import StepState
from reference_agent.mind import Endpoint, ModelEndpoint, ModelError, RuleMind, Unwanted
from tests.agents.scripted_model import ScriptedReply, calls, chunk, refusal, scripted_model, text
from tests.servers import free_port

KEY = "a-models-key-9a412f6f"


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between tries, none of which is made; other threads sleep as they will."""
    pauses, ours, sleep = [], threading.get_ident(), time.sleep
    monkeypatch.setattr("reference_agent.mind.TRIES", 3)
    monkeypatch.setattr(time, "sleep", lambda s: pauses.append(s) if threading.get_ident() == ours else sleep(s))
    return pauses


@pytest.fixture
def model():
    with scripted_model() as model:
        yield model


def test_without_a_model_a_message_without_commands_is_told_what_is_missing_and_what_works():
    said = message("user", parts("write me a hello world program"))
    [reply] = RuleMind().respond([said], StepState({}, unanswered=[said["id"]]), lambda *_: None).events
    [part] = reply["llm_message"]["content"]
    assert part["text"].startswith(
        "No model is set, so nothing was done. Start the server with one: LLM_MODEL=… LLM_API"
    )
    assert "only run lines that begin with `run: `" in part["text"]


def ask(url, tell=lambda _text, _reasoning: None):
    return Endpoint(ModelEndpoint("scripted", url, KEY)).ask([{"role": "user", "content": "go"}], [], tell)


def refused(url):
    with pytest.raises(ModelError) as caught:
        ask(url)
    assert KEY not in caught.value.detail
    assert "\n" not in caught.value.detail
    return caught.value


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c", "\r"])
def test_a_command_of_a_message_ends_where_a_shell_ends_a_line(end):
    said = message("user", parts(f"please\n run: echo 'before{end}after' \r\nrun: x{end}id"))

    actions = RuleMind().respond([said], StepState({}, unanswered=[said["id"]]), lambda *_: None).events

    assert [one["action"]["command"] for one in actions] == [f"echo 'before{end}after'", f"x{end}id"]


def test_an_endpoint_that_is_away_is_an_error():
    url = f"http://127.0.0.1:{free_port()}/v1"
    error = refused(url)
    assert error.code == "LLMServiceUnavailableError"
    assert "loopback" in error.detail


def test_a_refusal_of_an_endpoint_on_loopback_is_not_called_out_of_reach(model):
    model.script += [refusal(502, "127.0.0.1:9 is not reached. Nothing listens there on the server's machine")] * 3
    error = refused(model.url)
    assert "Nothing listens there on the server's machine" in error.detail
    assert "not the host's" not in error.detail


def test_an_endpoint_that_sends_nothing_is_an_error(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.SILENCE_SECONDS", 0.2)
    never = threading.Event()
    model.script += [ScriptedReply([never]), ScriptedReply([chunk({"content": "half"}), never])]
    error = refused(model.url)
    assert error.code == "LLMTimeoutError"
    assert error.detail == ("The model's endpoint sends nothing in 2 tries of 0.2 s each: it hangs or is overloaded")
    assert len(model.asked) == 2
    never.set()


def test_a_response_that_does_not_end_is_an_error(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.RESPONSE_SECONDS", -1)
    model.script += [ScriptedReply([b": still thinking\n\n"])]
    assert refused(model.url).code == "LLMTimeoutError"


def test_a_stream_without_text_and_without_end_is_an_error(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.MOST_BYTES", 1 << 16)
    model.script += [ScriptedReply([b"x" * 1000] * 100)]
    assert refused(model.url).code == "LLMTimeoutError"


def test_a_response_that_nobody_waits_for_is_not_asked_for_again(model):
    def tell(_text, _reasoning):
        if model.asked:
            raise Unwanted

    model.script += [refusal(503, "overloaded")]
    with pytest.raises(Unwanted):
        ask(model.url, tell)
    assert len(model.asked) == 1


def test_text_is_shown_whole(model):
    shown = []
    model.script += [text("one two three", reasoning="hm")]
    ask(model.url, lambda said, thought: shown.append((said, thought)))
    assert "".join(said for said, _ in shown) == "one two three"
    assert "".join(thought for _, thought in shown) == "hm"


def test_calls_in_parts_are_put_together(model):
    model.script += [calls(("terminal", {"command": "ls"}), ("finish", {"message": "x"}))]
    made = ask(model.url).calls
    assert [(name, arguments) for _, name, arguments in made.values()] == [
        ("terminal", '{"command": "ls"}'),
        ("finish", '{"message": "x"}'),
    ]
