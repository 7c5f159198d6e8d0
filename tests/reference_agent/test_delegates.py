"""Sub-tasks of the bundled agent: what a helper reads, who decides about its calls, and what ends it."""

import pytest

from reference_agent import delegation
from tests.agents.scripted_model import calls, finish, refusal, run, text
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    home = tmp_path_factory.mktemp("delegates")
    environment = {"LLM_MODEL": "scripted", "LLM_API_KEY": "k", "LLM_BASE_URL": model.url, "OH_SECRET_KEY": "s"}
    with reference_agent(home, **environment, NO_PROXY="127.0.0.1") as agent:
        yield agent


def delegate(task="Count the north.", **arguments):
    return calls(("delegate", {"task": task, **arguments}))


def report(words="The north has 17."):
    return calls(finish(words))


def begun(agent, status="finished", policy="NeverConfirm", **members):
    conversation = agent.begin(policy, **members)
    agent.send(conversation, "Count all of them.")
    agent.until(conversation, status)
    return conversation


def results(agent, conversation):
    """Tool, whether it failed, and text of each result."""
    return [
        (one["tool_name"], one["observation"]["is_error"], one["observation"]["content"][-1]["text"])
        for one in agent.events(conversation, kind="ObservationEvent")
    ]


def told(body):
    return [(message["role"], message["content"]) for message in body["messages"]]


def test_a_helper_reads_its_task_alone_and_the_agent_its_report_alone(agent, model):
    model.script += [delegate(context="They are in the file north."), calls(run("echo 17")), report(), text("17")]
    conversation = begun(agent)

    first, helper, helper_again, last = model.asked
    assert told(helper)[0] == told(first)[0]
    [_, (role, request)] = told(helper)
    assert (role, request.endswith("\n\nCount the north.\n\nThey are in the file north.")) == ("user", True)
    assert told(helper_again)[-1] == ("tool", "17\n")
    assert told(last)[1:] == [("user", "Count all of them."), ("assistant", None), ("tool", "The north has 17.")]
    assert agent.client.get(conversation).json()["stats"]["usage_to_metrics"]["agent"]["accumulated_token_usage"][
        "prompt_tokens"
    ] == sum(100 for _ in model.asked)


def test_a_helper_has_no_helper(agent, model):
    model.script += [delegate(), delegate(), report(), text("done")]
    conversation = begun(agent)

    assert "delegate" not in [tool["function"]["name"] for tool in model.asked[1]["tools"]]
    [failure] = agent.events(conversation, kind="AgentErrorEvent")
    assert failure["error"].startswith("There is no tool 'delegate'.")


def test_what_a_helper_does_is_marked_in_the_log_and_ends_no_conversation(agent, model):
    model.script += [delegate(), calls(run("echo 17")), text("The north has 17."), text("done")]
    conversation = begun(agent)

    asked, echo, finished = agent.events(conversation, kind="ActionEvent")
    assert {one["llm_response_id"].partition("/")[0] for one in (echo, finished)} == {asked["id"]}
    assert (echo["summary"], asked["summary"]) == ("Sub-task “Count the north.”: run echo 17", None)
    assert finished["action"] == {"data": {"message": "The north has 17."}, "kind": "MCPToolAction"}
    assert [one["llm_message"]["content"][0]["text"] for one in agent.events(conversation, source="agent")
            if one["kind"] == "MessageEvent"] == ["done"]  # fmt: skip
    assert results(agent, conversation)[-1] == ("delegate", False, "The north has 17.")


def test_a_person_decides_about_the_call_and_the_calls_of_the_helper_but_not_its_report(agent, model):
    model.script += [delegate(), calls(run("echo 17")), calls(run("echo 18")), report(), text("done")]
    conversation = begun(agent, "waiting_for_confirmation", "AlwaysConfirm")
    [asked] = agent.events(conversation, kind="ActionEvent")
    edited = {"action_id": asked["id"], "decision": "edit", "arguments": {"task": "Count the south."}}
    agent.decide(conversation, True, decisions=[edited])
    wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 2, "the call of the helper")
    agent.until(conversation, "waiting_for_confirmation")
    agent.decide(conversation, False, reason="Not so loud.")
    assert agent.status(conversation) == "idle"
    agent.post(f"{conversation}/run")
    wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 3, "the next call of the helper")
    agent.until(conversation, "waiting_for_confirmation")
    agent.decide(conversation, True)
    agent.until(conversation, "finished")

    assert told(model.asked[1])[1][1].endswith("Count the south.")
    assert "Not so loud." in told(model.asked[2])[-1][1]
    [notice, _] = next(
        one for one in agent.events(conversation, kind="ObservationEvent") if one["tool_name"] == "delegate"
    )["observation"]["content"]
    assert notice["text"].startswith("A person has edited the arguments")


def test_other_calls_of_the_response_follow_the_sub_task_as_they_were_decided(agent, model):
    model.script += [
        calls(("delegate", {"task": "Count."}), run("echo after")),
        calls(run("echo helper")),
        report(),
        text("done"),
    ]
    conversation = begun(agent, "waiting_for_confirmation", "AlwaysConfirm")
    count, after = agent.events(conversation, kind="ActionEvent")
    edit = {"action_id": after["id"], "decision": "edit", "arguments": {"command": "echo edited"}}
    agent.decide(conversation, True, decisions=[{"action_id": count["id"], "decision": "approve"}, edit])
    wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 3, "the call of the helper")
    agent.until(conversation, "waiting_for_confirmation")
    agent.decide(conversation, True)
    agent.until(conversation, "finished")

    assert [(tool, words) for tool, _, words in results(agent, conversation)] == [
        ("terminal", "helper\n"),
        ("finish", "The north has 17."),
        ("delegate", "The north has 17."),
        ("terminal", "edited\n"),
    ]


def test_a_sub_task_goes_on_after_an_interrupt_and_after_a_kill(agent, model):
    model.script += [delegate(), calls(run("sleep 60"))]
    conversation = agent.begin()
    agent.send(conversation, "go")
    wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 2, "the helper's command")
    agent.post(f"{conversation}/interrupt")
    wait_until(lambda: len(agent.events(conversation, kind="ObservationEvent")) == 1, "its end")
    assert agent.status(conversation) == "paused"
    model.script += [calls(run("echo 17; sleep 60"))]
    agent.post(f"{conversation}/run")
    wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 3, "the helper's next command")
    agent.restart()
    assert agent.status(conversation) == "paused"
    model.script += [report(), text("done")]
    agent.post(f"{conversation}/run")
    agent.until(conversation, "finished")

    assert "It is unknown whether it took effect" in told(model.asked[-2])[-1][1]
    assert results(agent, conversation)[-1] == ("delegate", False, "The north has 17.")


def test_a_message_ends_the_sub_task_and_the_agent_reads_it(agent, model):
    model.script += [delegate(), calls(run("echo 17")), text("I stop.")]
    conversation = begun(agent, "waiting_for_confirmation", "AlwaysConfirm")
    agent.decide(conversation, True)
    wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 2, "the call of the helper")
    agent.until(conversation, "waiting_for_confirmation")
    agent.send(conversation, "Stop counting.")
    agent.until(conversation, "finished")

    assert told(model.asked[-1])[-2:] == [("tool", delegation.OVERTAKEN), ("user", "Stop counting.")]


def test_a_helper_that_repeats_itself_is_ended_and_the_agent_goes_on(agent, model):
    model.script += [delegate(), *(calls(run("echo same")) for _ in range(5)), text("It failed.")]
    conversation = begun(agent)

    assert "You repeat yourself" in told(model.asked[5])[-1][1]
    [(_, failed, words)] = [one for one in results(agent, conversation) if one[0] == "delegate"]
    ending = "The sub-task was ended before its report, because it repeats itself"
    assert (failed, words.startswith(ending)) == (True, True)
    assert told(model.asked[-1])[-1] == ("tool", words)


def test_a_sub_task_ends_after_a_number_of_responses_or_tokens():
    task = delegation.begun({"id": "a" * 36, "action": {"data": {"task": "Count"}}}, {})
    steps = [{"kind": "ActionEvent", "llm_response_id": str(n)} for n in range(delegation.MOST_RESPONSES)]
    usage = {"prompt_tokens": delegation.MOST_TOKENS, "completion_tokens": 0}

    assert delegation.end_of(task, steps[1:], {"accumulated_token_usage": usage}) == ""
    assert "60 responses" in delegation.end_of(task, steps, {})
    assert "2,000,000 tokens" in delegation.end_of(
        task, [], {"accumulated_token_usage": usage | {"completion_tokens": 1}}
    )


def test_a_helper_whose_context_overflows_forgets_its_own_steps_alone(agent, model):
    long = refusal(400, "This model's maximum context length is 8192 tokens")
    steps = [calls(run(f"echo {n}; seq 20000")) for n in range(12)]
    model.script += [delegate(), *steps, long, text("FINDINGS: nine"), report(), text("done")]
    conversation = begun(agent)

    [summary] = agent.events(conversation, kind="Condensation")
    [asked, *_] = agent.events(conversation, kind="ActionEvent")
    assert summary["llm_response_id"].startswith(f"{asked['id']}/")
    assert any("FINDINGS: nine" in str(words) for _, words in told(model.asked[-2]))
    assert told(model.asked[-1])[1:] == [
        ("user", "Count all of them."),
        ("assistant", None),
        ("tool", "The north has 17."),
    ]
