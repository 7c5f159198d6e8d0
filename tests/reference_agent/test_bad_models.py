"""What models and their endpoints do wrong, and what the agent makes of it: a row for each scenario.

One request of the agent, with its retries, against a scripted endpoint on a real socket. What takes time (an endpoint
that is silent, or never ends) is in test_mind.py; what takes several responses (loops, an overflow) in
test_endurance.py.
"""

import json
import threading
import time
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from reference_agent import events, mind
from reference_agent.log import AgentWebhooks, Journal, KeptLog, Log
from reference_agent.mind import ModelEndpoint, ModelMind, Response
from reference_agent.toolbox import Toolbox
from reference_agent.tools import Files
from tests.agents.scripted_model import (
    USAGE,
    ScriptedReply,
    calls,
    chunk,
    completion,
    ending,
    finish,
    refusal,
    run,
    sse,
    text,
)

KEY = "a-models-key-7d1c0e55"
TRIES = 3
CUT_OFF = "The response was too long and was cut off."
NOT_JSON = "The arguments of terminal are not JSON"
GARBAGE = [("fails", "LLMNoResponseError: The model's endpoint returns no chat completion")]
HTML = {"Content-Type": "text/html"}


class Scenario(NamedTuple):
    name: str
    replies: list[ScriptedReply]
    outcome: list[tuple[str, str]]  #: says, does, told or fails, each with what it begins with
    tries: int = 1
    pauses: list[float] | None = None  #: seconds between the tries


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}, **more}


def made(*parts: dict[str, Any], end: str = "tool_calls") -> ScriptedReply:
    """A response whose parts are sent as they are."""
    return ScriptedReply([chunk(part, "r1") for part in parts] + ending(end))


def told(name: str, bad: tuple[str, Any], error: str) -> Scenario:
    """A call that cannot be executed: the model is told why, and the run goes on."""
    return Scenario(name, [calls(bad)], [("told", error)])


def again(name: str, bad: ScriptedReply) -> Scenario:
    """An answer that another try may mend."""
    return Scenario(name, [bad, text("at last")], [("says", "at last")], tries=2)


def lasts(name: str, bad: ScriptedReply, error: str) -> Scenario:
    """An answer that no other try would mend."""
    return Scenario(name, [bad], [("fails", error)])


LS = '{"command": "ls"}'
SCENARIOS = [
    # Calls of tools
    told("an unknown tool", ("browser", {"url": "x"}), "There is no tool 'browser'. The tools are: terminal, file_ed"),
    told("a tool without a name", ("", {}), "There is no tool ''"),
    told("a tool with a name without end", ("x" * 5000, {}), f"There is no tool '{'x' * 99}…'"),
    told("arguments that end in the middle", ("terminal", '{"command": "ls'), NOT_JSON),
    told("arguments nested without end", ("terminal", "[" * 90_000), NOT_JSON),
    told("half a surrogate pair in arguments", ("terminal", '{"command": "\\ud83d"}'), NOT_JSON),
    told("arguments that are a list", ("terminal", "[1]"), "The arguments of terminal are not a JSON object"),
    told("arguments that are empty", ("terminal", ""), "terminal needs the argument command"),
    told("a required argument that is missing", ("grep", {"path": "x"}), "grep needs the argument pattern"),
    told("a required argument that is null", ("terminal", {"command": None}), "terminal needs the argument command"),
    told("a number for a text", ("terminal", {"command": 7}), "terminal: command should be of the type string"),
    told(
        "a number below its least", ("terminal", {"command": "ls", "timeout": -1}), "terminal: timeout should be at l"
    ),
    told(
        "true for a number", ("terminal", {"command": "ls", "timeout": True}), "terminal: timeout should be of the ty"
    ),
    told(
        "a word that is not in a list", ("file_editor", {"command": "undo", "path": "x"}), "file_editor: command shou"
    ),
    told(
        "a wrong item of a list",
        ("file_editor", {"command": "view", "path": "x", "view_range": ["a", 2]}),
        "file_editor: view_range, item 1 should be of the type integer",
    ),
    told(
        "a wrong member of an item",
        ("task_tracker", {"command": "plan", "task_list": [{"title": "x", "status": "?"}]}),
        "task_tracker: task_list, item 1: status should be one of: todo, in_progress",
    ),
    told("an item without its member", ("task_tracker", {"command": "plan", "task_list": [{}]}), "task_tracker: task_"),
    Scenario(
        "arguments that are an object",
        [made({"tool_calls": [call("terminal", {"command": "ls"})]})],
        [("does", "terminal")],
    ),
    Scenario("arguments that are null", [made({"tool_calls": [call("terminal", None)]})], [("told", "terminal needs")]),
    Scenario(
        "a list that is a text", [calls(("task_tracker", {"command": "plan", "task_list": "[]"}))], [("does", "task")]
    ),
    Scenario("an argument that nobody knows", [calls(run("ls", colour="red"))], [("does", "terminal")]),
    Scenario("a risk that nobody knows", [calls(run("ls", "NONE"))], [("does", "terminal UNKNOWN")]),
    Scenario(
        "a bad call beside a good one", [calls(("browser", {}), run("ls"))], [("does", "terminal"), ("told", "There")]
    ),
    Scenario("calls after finish", [calls(finish(), run("ls"))], [("does", "finish")]),
    Scenario(
        "more calls than are taken up",
        [calls(*[run("ls")] * (mind.MOST_CALLS + 5))],
        [*[("does", "terminal")] * mind.MOST_CALLS, ("told", "The response has 37 calls, and the first 32 were taken")],
    ),
    Scenario("calls without ids", [made({"tool_calls": [call("terminal", LS, id=None)]})], [("does", "terminal")]),
    Scenario(
        "two calls with one id",
        [made({"tool_calls": [call("terminal", LS), call("grep", '{"pattern": "x"}', index=1)]})],
        [("does", "terminal"), ("does", "grep")],
    ),
    Scenario(
        "an id without end", [made({"tool_calls": [call("terminal", LS, id="x" * 5000)]})], [("does", "terminal")]
    ),
    Scenario(
        "calls without numbers, in parts",
        [
            made(
                {"tool_calls": [{"id": "a", "function": {"name": "terminal", "arguments": LS[:9]}}]},
                {"tool_calls": [{"function": {"arguments": LS[9:]}}]},
                {"tool_calls": [{"id": "b", "function": {"name": "finish", "arguments": '{"message": "x"}'}}]},
            )
        ],
        [("does", "terminal"), ("does", "finish")],
    ),
    Scenario("arguments without end", [calls(run("x" * 120_000))], [("told", f"{NOT_JSON}")]),
    Scenario(
        "arguments cut off by the endpoint",
        [made({"tool_calls": [call("terminal", LS[:9])]}, end="length")],
        [("told", NOT_JSON)],
    ),
    # Words
    Scenario("a text without end", [made(*[{"content": "word " * 1000}] * 40, end="stop")], [("says", "word word")]),
    Scenario(
        "a text cut off by the endpoint", [made({"content": "half"}, end="length")], [("says", f"half\n… {CUT_OFF}")]
    ),
    Scenario(
        "a refusal", [made({"content": None, "refusal": "I cannot do that."}, end="stop")], [("says", "I cannot")]
    ),
    Scenario(
        "content in parts", [made({"content": [{"type": "text", "text": "a"}, 1, {}]}, end="stop")], [("says", "a")]
    ),
    Scenario("words of the wrong role", [made({"role": "user", "content": "mine"}, end="stop")], [("says", "mine")]),
    Scenario(
        "half a surrogate pair in a text",
        [ScriptedReply([b'data: {"choices": [{"delta": {"content": "a\\ud83d"}}]}\n\n'])],
        [("says", "a?")],
    ),
    Scenario(
        "a call with null content", [made({"content": None, "tool_calls": [call("terminal", LS)]})], [("does", "term")]
    ),
    Scenario("an empty answer", [ScriptedReply(ending("stop"))] * TRIES, GARBAGE, TRIES),
    Scenario("blanks", [text("\n \n")] * TRIES, GARBAGE, TRIES),
    Scenario("null content and no call", [made({"content": None}, end="stop")] * TRIES, GARBAGE, TRIES),
    Scenario("thoughts alone", [made({"reasoning_content": "hm"}, end="stop")] * TRIES, GARBAGE, TRIES),
    Scenario("a call of the old kind", [made({"function_call": {"name": "terminal"}})] * TRIES, GARBAGE, TRIES),
    # Bytes
    again("an event that is not JSON", ScriptedReply([b"data: {nonsense}\n\n"])),
    again("an event nested without end", ScriptedReply([sse(b"[" * 100_000)])),
    again("an event that is a list", ScriptedReply([sse([1, 2])])),
    again("a choice that is a text", ScriptedReply([sse({"choices": ["x"]})])),
    again("a call that is a number", ScriptedReply([sse({"choices": [{"delta": {"tool_calls": [1]}}]})])),
    again("an error within the stream", ScriptedReply([sse({"error": {"message": "overloaded", "code": 429}})])),
    again("a web page", ScriptedReply([b"<html>"], headers=HTML)),
    again("a body of no bytes", ScriptedReply([])),
    again("a body of JSON that is none", ScriptedReply([b"nonsense"], headers={"Content-Type": "application/json"})),
    again("a stream that is cut", ScriptedReply([chunk({"content": "half"})], is_cut=True)),
    Scenario(
        "a stream that is always cut",
        [ScriptedReply([chunk({"content": "half"})], is_cut=True)] * TRIES,
        [("fails", "LLMServiceUnavailableError: The model's endpoint does not answer")],
        TRIES,
    ),
    Scenario("a stream without its end", [ScriptedReply([chunk({"content": "all"})])], [("says", "all")]),
    Scenario(
        "comments and other line ends",
        [ScriptedReply([b": alive\r\n\r\n", chunk({"content": "a"}).replace(b"\n", b"\r\n")])],
        [("says", "a")],
    ),
    Scenario(
        "a completion that is not streamed", [completion({"role": "assistant", "content": "at once"})], [("says", "at")]
    ),
    Scenario(
        "usage that is nonsense",
        [text("a", usage={**USAGE, "prompt_tokens": -5, "completion_tokens": "7"})],
        [("says", "a")],
    ),
    # Statuses
    again("500", refusal(500, "broken")),
    again("408", refusal(408, "late")),
    Scenario("503 that asks for a pause", [refusal(503, "x", Retry_After="2"), text("a")], [("says", "a")], 2, [2.0]),
    Scenario("429 that asks for a pause", [refusal(429, "x", Retry_After="7"), text("a")], [("says", "a")], 2, [7.0]),
    Scenario(
        "429 that names a date", [refusal(429, "x", Retry_After="Fri, 1 Jan"), text("a")], [("says", "a")], 2, [0.5]
    ),
    Scenario(
        "429 that lasts", [refusal(429, "slow down")] * TRIES, [("fails", "LLMRateLimitError: ")], TRIES, [0.5, 1.0]
    ),
    Scenario(
        "502 that lasts", [refusal(502, "bad gateway")] * TRIES, [("fails", "LLMServiceUnavailableError: ")], TRIES
    ),
    lasts("429 that asks for a day", refusal(429, "tomorrow", Retry_After="86400"), "LLMRateLimitError: "),
    lasts(
        "a quota that is used up",
        refusal(429, "pay first", "insufficient_quota"),
        "LLMRateLimitError: The quota at the model's endpoint is used up",
    ),
    lasts("401", refusal(401, f"no such key: {KEY}"), "LLMAuthenticationError: The model's endpoint refuses the key"),
    lasts("403", refusal(403, "not yours"), "LLMAuthenticationError: "),
    lasts("404", refusal(404, "no such model"), "LLMBadRequestError: "),
    lasts("400", refusal(400, "no such\nparameter"), "LLMBadRequestError: "),
    lasts(
        "a context that is too long, by code", refusal(400, "x", "context_length_exceeded"), "LLMContextWindowExceed"
    ),
    lasts(
        "a context that is too long, in words", refusal(413, "prompt is too long: 210000 tokens"), "LLMContextWindow"
    ),
]


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between tries, none of which is made; other threads sleep as they will."""
    pauses, ours, sleep = [], threading.get_ident(), time.sleep
    monkeypatch.setattr(mind, "TRIES", TRIES)
    monkeypatch.setattr(time, "sleep", lambda s: pauses.append(s) if threading.get_ident() == ours else sleep(s))
    return pauses


@pytest.fixture
def asked(tmp_path, model, fresh):
    """Ask the mind once, after a message of a user, and return its response and the ids that the log has used."""
    start = {"id": str(uuid4()), "confirmation_policy": {"kind": "NeverConfirm"}, "agent": None, "created_at": "x"}
    [prompt] = events.parts("work")
    system = events.event("SystemPromptEvent", "agent", system_prompt=prompt, tools=[], dynamic_context=prompt)
    earlier = events.action({"id": "c1", "name": "think", "arguments": "{}"}, None, "r1")
    said = events.message("user", events.parts("go"))
    log = Log(
        KeptLog(start, [system, earlier, events.failure(earlier, "x"), said], None),
        Journal(tmp_path / "one"),
        AgentWebhooks("", {}),
    )
    files = Files(tmp_path, tmp_path / "one")
    thinks = ModelMind(ModelEndpoint("scripted", model.url, KEY), tmp_path, Toolbox(log, files, files))
    return lambda: thinks.respond(log.way, log.state._replace(unanswered=[said["id"]]), lambda *_: None)


def outcome(response: Response) -> list[tuple[str, str]]:
    found = []
    for event in response.events:
        match event:
            case {"kind": "MessageEvent", "llm_message": {"content": content}}:
                found.append(("says", events.text_of(content)))
            case {"kind": "ActionEvent", "action": dict(), "tool_name": name, "security_risk": risk}:
                found.append(("does", f"{name} {risk}"))
            case {"kind": "AgentErrorEvent", "error": error}:
                found.append(("told", error))
    return found + ([("fails", ": ".join(response.error))] if response.error else [])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_the_agent_survives(scenario, model, asked, pauses):
    model.script += scenario.replies

    response = asked()

    found = outcome(response)
    assert [kind for kind, _ in found] == [kind for kind, _ in scenario.outcome], found
    assert [
        part for (_, whole), (_, part) in zip(found, scenario.outcome, strict=True) if not whole.startswith(part)
    ] == []
    assert len(model.asked) == scenario.tries
    assert scenario.pauses in (None, pauses)
    assert KEY not in json.dumps([response.events, response.error])
    assert all("\n" not in part for part in response.error or ())
    # And what was taken up has ids of its own, and is a request that an endpoint takes
    actions = [one for one in response.events if one["kind"] == "ActionEvent"]
    assert len({"c1", *(one["tool_call_id"] for one in actions)}) == 1 + len(actions)
    assert all(one["llm_response_id"] != "r1" and len(one["tool_call_id"]) <= 64 for one in actions)
    for message in events.messages(response.events, []):
        for each in message.get("tool_calls", []):
            assert isinstance(json.loads(each["function"]["arguments"]), dict)
    assert len(json.dumps(response.events)) < 1 << 20
    usage = (response.stats or {}).get("accumulated_token_usage", {"prompt_tokens": 0, "completion_tokens": 0})
    assert min(usage["prompt_tokens"], usage["completion_tokens"]) >= 0


@pytest.mark.parametrize(
    "reply", [calls(run("x" * 120_000)), made({"tool_calls": [call("terminal", LS[:9])]}, end="length")]
)
def test_a_call_that_is_cut_off_is_explained_by_the_length(reply, model, asked):
    model.script += [reply]
    [(_, error)] = outcome(asked())
    assert error.endswith(CUT_OFF)
