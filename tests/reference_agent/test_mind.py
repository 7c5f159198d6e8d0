"""Endpoints that are away, slow, limited, full of errors or of garbage, and how the reference agent takes them."""

import threading
import time

import pytest

from reference_agent.events import message, parts
from reference_agent.log import State
from reference_agent.mind import Endpoint, Llm, ModelError, Rule, Unwanted
from tests.agents.scripted_model import Reply, calls, chunk, ending, refusal, scripted_model, sse, text
from tests.servers import free_port

KEY = "a-models-key-9a412f6f"

STREAM = {"Content-Type": "text/event-stream"}


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
    [reply] = Rule().respond([said], State({}, unanswered=[said["id"]]), lambda *_: None).events
    [part] = reply["llm_message"]["content"]
    assert part["text"].startswith(
        "No model is set, so nothing was done. Start the server with one: LLM_MODEL=… LLM_API"
    )
    assert "only run lines that begin with `run: `" in part["text"]


def ask(url, tell=lambda _text, _reasoning: None):
    return Endpoint(Llm("scripted", url, KEY)).ask([{"role": "user", "content": "go"}], [], tell)


def refused(url):
    with pytest.raises(ModelError) as caught:
        ask(url)
    assert KEY not in caught.value.detail
    assert "\n" not in caught.value.detail
    return caught.value


FAILING = [
    refusal(429, "slow down", Retry_After="7"),
    refusal(503, "overloaded"),
    refusal(500, "broken"),
    refusal(408, "late"),
    Reply([b"data: {nonsense}\n\n"]),
    Reply([b"<html>"], headers={"Content-Type": "text/html"}),
    Reply([b"nonsense"], headers={"Content-Type": "application/json"}),
    Reply([sse([1, 2])]),
    Reply([sse({"choices": ["x"]})]),
    Reply([sse({"choices": [{"delta": {"tool_calls": [1]}}]})]),
    Reply([sse({"error": {"message": "overloaded", "code": 429}})]),
    Reply([chunk({"content": "half"})], is_cut=True),
    Reply([]),
    Reply(ending("stop")),
    Reply([sse(b"[" * 100_000)]),
]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c", "\r"])
def test_a_command_of_a_message_ends_where_a_shell_ends_a_line(end):
    said = message("user", parts(f"please\n run: echo 'before{end}after' \r\nrun: x{end}id"))

    actions = Rule().respond([said], State({}, unanswered=[said["id"]]), lambda *_: None).events

    assert [one["action"]["command"] for one in actions] == [f"echo 'before{end}after'", f"x{end}id"]


def test_a_try_that_fails_is_repeated(model):
    for number, bad in enumerate(FAILING, 1):
        model.script += [bad, text("at last")]
        assert ask(model.url).text == "at last"
        assert len(model.asked) == 2 * number, bad


LASTING = [
    (refusal(401, f"Incorrect key: {KEY}"), "LLMAuthenticationError"),
    (refusal(403, "not yours"), "LLMAuthenticationError"),
    (refusal(400, "no such\nparameter"), "LLMBadRequestError"),
    (refusal(404, "no such model"), "LLMBadRequestError"),
    (refusal(429, "pay first", "insufficient_quota"), "LLMRateLimitError"),
    (refusal(429, "tomorrow", Retry_After="86400"), "LLMRateLimitError"),
    (refusal(400, "x", "context_length_exceeded"), "LLMContextWindowExceedError"),
    (refusal(400, "This model's maximum context length is 8192 tokens."), "LLMContextWindowExceedError"),
    (refusal(413, "prompt is too long: 210000 tokens > 200000 maximum"), "LLMContextWindowExceedError"),
]


def test_an_error_that_stays_is_not_repeated(model):
    for number, (reply, code) in enumerate(LASTING, 1):
        model.script += [reply]
        assert refused(model.url).code == code
        assert len(model.asked) == number, code


def test_a_quota_that_is_used_up_is_told_as_one(model):
    model.script += [refusal(429, "pay first", "insufficient_quota")]
    assert "quota at the model's endpoint is used up" in str(refused(model.url))


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refusal(429, "slow down"), "LLMRateLimitError"),
        (refusal(502, "bad gateway"), "LLMServiceUnavailableError"),
        (Reply([sse(b"nonsense")]), "LLMNoResponseError"),
        (Reply([chunk({"content": "half"})], is_cut=True), "LLMServiceUnavailableError"),
    ],
)
def test_the_tries_have_an_end(model, reply, code):
    model.script += [reply] * 5
    assert refused(model.url).code == code
    assert len(model.asked) == 3


def test_the_pause_before_the_next_try_is_what_the_endpoint_asks_for(model, pauses):
    model.script += [refusal(429, "slow down", Retry_After="7"), refusal(429, "x", Retry_After="a date"), text("ok")]
    ask(model.url)
    assert pauses == [7.0, 1.0]


def test_an_endpoint_that_is_away_is_an_error():
    url = f"http://127.0.0.1:{free_port()}/v1"
    error = refused(url)
    assert error.code == "LLMServiceUnavailableError"
    assert "loopback" in error.detail


def test_a_refusal_of_an_endpoint_on_loopback_is_not_called_out_of_reach(model):
    model.script += [refusal(502, "127.0.0.1:9 is not reached. Nothing listens there on the server's machine")] * 3
    error = refused(model.url)
    assert "Nothing listens there on the server's machine" in error.detail
    assert "which is not the host's" not in error.detail


def test_an_endpoint_that_sends_nothing_is_an_error(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.SILENCE_SECONDS", 0.2)
    never = threading.Event()
    model.script += [Reply([never]), Reply([chunk({"content": "half"}), never])]
    error = refused(model.url)
    assert error.code == "LLMTimeoutError"
    assert error.detail == ("The model's endpoint sends nothing in 2 tries of 0.2 s each: it hangs, or is overloaded")
    assert len(model.asked) == 2
    never.set()


def test_a_response_that_does_not_end_is_an_error(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.RESPONSE_SECONDS", -1)
    model.script += [Reply([b": still thinking\n\n"])]
    assert refused(model.url).code == "LLMTimeoutError"


def test_a_stream_without_text_and_without_end_is_an_error(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.MOST_BYTES", 1 << 16)
    model.script += [Reply([b"x" * 1000] * 100)]
    assert refused(model.url).code == "LLMTimeoutError"


def test_a_response_is_cut_off_after_the_most_characters(model, monkeypatch):
    monkeypatch.setattr("reference_agent.mind.MOST_CHARACTERS", 60)
    model.script += [text("x" * 50 + " " + "y" * 50), text("x" * 99)]
    long, short = (ask(model.url) for _ in range(2))
    assert (long.is_cut, short.is_cut) == (True, True)
    assert len(long.text) <= 101


def test_a_response_that_the_endpoint_cuts_off_says_so(model):
    model.script += [Reply([chunk({"content": "half"}), *ending("length")])]
    assert ask(model.url).is_cut


def test_calls_without_numbers_and_ids_are_put_together(model):
    def part(**call):
        return chunk({"tool_calls": [call]})

    model.script += [
        Reply(
            [
                part(id="a", function={"name": "terminal", "arguments": "{"}),
                part(function={"arguments": "}"}),
                part(id="b", function={"name": "finish", "arguments": None}),
            ]
        )
    ]
    assert list(ask(model.url).calls.values()) == [["a", "terminal", "{}"], ["b", "finish", ""]]


def test_half_a_surrogate_pair_becomes_text_that_can_be_written(model):
    model.script += [Reply([b'data: {"choices": [{"delta": {"content": "a\\ud83d"}}]}\n\n', *ending("stop")])]
    assert ask(model.url).text == "a?"


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
