"""The reference agent left alone for long: loops, contexts that fill, and shells, with models that react."""

import json
import re

import pytest

from tests.agents.scripted_model import USAGE, calls, finish, refusal, run, text
from tests.reference_agent.program import reference_agent

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    home = tmp_path_factory.mktemp("endurance")
    with reference_agent(home, LLM_MODEL="scripted", LLM_BASE_URL=model.url) as agent:
        yield agent


def played(agent, status="finished", message="go", llm=None, **members):
    conversation = agent.begin(**members, **({"agent": {"llm": llm}} if llm else {}))
    agent.send(conversation, message)
    agent.until(conversation, status)
    return conversation


def detail(agent, conversation):
    return [event["detail"] for event in agent.events(conversation, kind="ConversationErrorEvent")]


def last_result(body):
    return next((one["content"] for one in reversed(body["messages"]) if one["role"] == "tool"), "")


def test_a_model_that_repeats_itself_is_told_once_and_then_stopped_with_a_sentence(agent, model):
    model.react = lambda _body: calls(run("echo same"))
    conversation = played(agent, "stuck")
    assert len(model.asked) == 5
    [told] = [text for text in model.told("user") if "repeat yourself" in text]
    assert told.startswith("You repeat yourself: the same call had the same result 4 times in a row.")
    [words] = detail(agent, conversation)
    assert words.startswith("The agent was stopped, as it repeats itself: the same call")
    assert words.endswith("Send a message that says how to continue.")

    model.react = None
    agent.send(conversation, "try ls")
    agent.until(conversation, "finished")


def test_a_model_that_takes_the_hint_goes_on(agent, model):
    def react(body):
        if any("repeat yourself" in str(one["content"]) for one in body["messages"]):
            return calls(finish("I need the password"))
        return calls(run("echo same"))

    model.react = react
    conversation = played(agent)
    assert detail(agent, conversation) == []
    assert len(model.asked) == 5


def test_two_calls_by_turns_and_one_error_are_loops_too(agent, model):
    model.react = lambda body: calls(run("echo b" if last_result(body) == "a\n" else "echo a"))
    played(agent, "stuck")
    model.asked.clear()
    model.react = lambda _body: calls(("browser", {"page": len(model.asked)}))
    played(agent, "stuck")
    assert len(model.asked) < 10


def test_a_stuck_conversation_that_is_run_again_asks_the_model_before_it_is_stopped(agent, model):
    model.react = lambda _body: calls(run("echo same"))
    conversation = played(agent, "stuck")
    number = len(model.asked)
    agent.post(f"{conversation}/run")
    agent.until(conversation, "stuck")
    assert len(model.asked) == number + 1


def test_a_start_may_turn_the_guard_off(agent, model):
    model.react = lambda _body: calls(run("echo same"))
    conversation = played(agent, "error", stuck_detection=False, max_iterations=8)
    assert detail(agent, conversation)[0].startswith("The agent stopped after 8 responses")


def test_waiting_for_a_slow_command_is_no_loop(agent, model):
    def react(body):
        if "done" in last_result(body):
            return calls(finish())
        return calls(run("" if last_result(body) else "sleep 6.5; echo done", timeout=1))

    model.react = react
    conversation = played(agent)
    assert detail(agent, conversation) == []
    codes = [one["observation"].get("exit_code") for one in agent.events(conversation, kind="ObservationEvent")]
    assert codes.count(-1) >= 5
    assert 0 in codes


def filling(steps):
    """A model that runs commands until it has seen the end of the last one, and writes summaries when it is asked."""

    def react(body):
        if "Write the summary" in str(body["messages"][-1]["content"]):
            seen = re.findall(r"step (\d+) is done", body["messages"][-1]["content"])
            assert "tools" not in body
            return text(f"DONE: steps up to {max(map(int, seen))} are done. step {max(map(int, seen))} is done")
        seen = [int(number) for number in re.findall(r"step (\d+) is done", json.dumps(body["messages"]))]
        following = max(seen, default=0) + 1
        usage = {**USAGE, "prompt_tokens": len(json.dumps(body)) // 4}
        if following > steps:
            return calls(finish("all steps"), usage=usage)
        return calls(run(f"printf '%2000s' x; echo; echo step {following} is done"), usage=usage)

    return react


def test_a_conversation_is_summarized_before_it_is_too_long_and_nothing_is_done_twice(agent, model):
    model.react = filling(60)
    llm = {"model": "scripted", "base_url": model.url, "max_input_tokens": 12_000}
    conversation = played(agent, message="Do sixty steps: the word is xyzzy", llm=llm)

    sizes = [len(json.dumps(body)) // 4 for body in model.asked]
    assert max(sizes) < 12_000
    condensations = agent.events(conversation, kind="Condensation")
    assert len(condensations) >= 2
    assert all(one["summary"] and one["summary_offset"] == 2 for one in condensations)
    assert model.told("user")[0] == "Do sixty steps: the word is xyzzy"
    commands = [one["action"]["command"] for one in agent.events(conversation, kind="ActionEvent")[:-1]]
    assert len(commands) == len({*commands}) == 60
    usage = agent.client.get(conversation).json()["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"]
    assert usage["prompt_tokens"] > sum(sizes) // 2


def test_the_messages_for_the_model_are_the_same_after_a_kill_with_a_summary(agent, model):
    model.react = filling(30)
    llm = {"model": "scripted", "base_url": model.url, "max_input_tokens": 12_000}
    conversation = played(agent, llm=llm)
    agent.restart()
    model.react = None
    agent.send(conversation, "again")
    agent.until(conversation, "finished")
    before, after = [body["messages"] for body in model.asked[-2:]]
    assert after[: len(before)] == before


def test_a_summary_that_is_too_long_to_ask_for_is_asked_for_a_shorter_part(agent, model):
    model.script += [calls(run(f"printf '%6000s' x; echo {number}")) for number in range(12)]
    model.script += [
        refusal(400, "maximum context length"),
        refusal(400, "maximum context length"),
        text("STATE: fine"),
    ]
    conversation = played(agent)
    [condensation] = agent.events(conversation, kind="Condensation")
    assert condensation["summary"] == "STATE: fine"
    first, second = [body for body in model.asked if "Write the summary" in str(body["messages"][-1]["content"])]
    assert len(str(second)) < len(str(first))


def test_an_error_of_the_endpoint_in_a_summary_ends_the_run_with_a_sentence(agent, model):
    model.script += [calls(run(f"printf '%6000s' x; echo {number}")) for number in range(12)]
    model.script += [refusal(400, "maximum context length"), refusal(401, "no key")]
    conversation = played(agent, "error")
    assert detail(agent, conversation)[0].startswith("The model's endpoint refuses the key")
    agent.send(conversation, "go on")
    agent.until(conversation, "finished")


def test_a_person_may_ask_for_a_summary(agent, model):
    model.script += [calls(run(f"printf '%6000s' x; echo {number}")) for number in range(6)] + [calls(finish())]
    conversation = played(agent)
    model.script += [text("STATE: short")]
    assert agent.post(f"{conversation}/condense").json() == {"success": True}
    [condensation] = agent.events(conversation, kind="Condensation")
    assert condensation["summary"] == "STATE: short"
    again = agent.post(f"{agent.begin()}/condense")
    assert (again.status_code, again.json()["detail"]) == (409, "There is nothing to summarize yet.")


def test_tokens_of_a_cache_are_counted_as_such_whatever_they_are_called(agent, model):
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 60}
    model.script += [calls(run("echo a"), usage=usage)]
    model.script += [calls(finish(), usage={**usage, "prompt_cache_hit_tokens": 0, "cache_read_input_tokens": 7})]
    conversation = played(agent)
    told = agent.client.get(conversation).json()["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"]
    assert told["cache_read_tokens"] == 67


def test_a_shell_lasts_through_a_conversation_and_begins_in_its_last_folder_after_a_restart(agent, model):
    model.script += [calls(run("mkdir -p deep; cd deep; export A=one")), calls(run("pwd; echo $A")), calls(finish())]
    conversation = played(agent)
    assert model.told("tool")[1].endswith("/deep\none\n")

    agent.restart()
    model.script += [calls(run("pwd; echo A=$A"))]
    agent.send(conversation, "again")
    agent.until(conversation, "finished")
    told = model.told("tool")[-1]
    assert told.startswith("(The agent server was started again, so this is a new shell")
    assert told.endswith("/deep\nA=\n")


def test_input_waits_for_a_person_as_a_command_does(agent, model):
    model.script += [calls(run("cat >typed", timeout=1)), calls(run("a line", is_input=True, timeout=1))]
    conversation = agent.begin("AlwaysConfirm")
    agent.send(conversation, "go")
    agent.until(conversation, "waiting_for_confirmation")
    agent.decide(conversation, True)
    agent.until(conversation, "waiting_for_confirmation")
    action = agent.events(conversation, kind="ActionEvent")[-1]["action"]
    assert (action["command"], action["is_input"], action["kind"]) == ("a line", True, "TerminalAction")
    assert (agent.home / "typed").read_text() == ""
    agent.decide(conversation, False, reason="no")
    agent.client.delete(conversation)
