"""The reference agent runs a program that speaks ACP: what it asks waits here, and nothing is permitted undecided."""

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.reference_agent.program import ReferenceAgent
from tests.servers import PROJECT, wait_until

pytestmark = pytest.mark.process("starts an agent")

PROGRAM = Path(__file__).with_name("scripted.py")


class Place:
    """A reference agent whose mind is the scripted program, and what that program has heard."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home, self.heard_file = home, home / "heard"
        self.heard_file.touch()
        environment = {
            "ACP_COMMAND": shlex.join([sys.executable, str(PROGRAM)]),
            "ACP_MODE": "careful",
            "SCRIPTED_HEARD": str(self.heard_file),
            "SCRIPTED_SESSIONS": str(home),
            **environment,
        }
        self.agent = ReferenceAgent(home, **environment)

    def close(self) -> None:
        self.agent.kill()
        self.agent.client.close()

    def begin(self, *lines: str, policy: str = "AlwaysConfirm") -> str:
        """A conversation with these lines as its first message."""
        message = {"role": "user", "content": [{"type": "text", "text": "\n".join(lines)}], "run": True}
        return self.agent.begin(policy, initial_message=message)

    def waiting(self, *lines: str, count: int = 1, **members) -> tuple[str, list[dict]]:
        """A conversation that waits, and its actions."""
        conversation = self.begin(*lines, **members)
        wait_until(lambda: len(self.open(conversation)) == count, f"{count} open actions")
        self.agent.until(conversation, "waiting_for_confirmation")
        return conversation, self.open(conversation)

    def open(self, conversation: str) -> list[dict]:
        events = self.agent.events(conversation)
        closed = {event["tool_call_id"] for event in events if event["kind"] in CLOSING}
        return [one for one in events if one["kind"] == "ActionEvent" and one["tool_call_id"] not in closed]

    def heard(self, method: str | None = None) -> list[dict]:
        """What the program has heard: requests of a method, or (None) the answers to its own."""
        lines = map(json.loads, self.heard_file.read_text().splitlines())
        return [line for line in lines if line.get("method") == method]

    def chosen(self) -> list[str]:
        """The options that were chosen, or the outcomes."""
        outcomes = [line["result"]["outcome"] for line in self.heard()]
        return [one.get("optionId", one["outcome"]) for one in outcomes]

    def program(self) -> psutil.Process:
        [program] = [one for one in psutil.Process(self.agent.process.pid).children() if str(PROGRAM) in one.cmdline()]
        return program

    def kinds(self, conversation: str) -> list[str]:
        return [event["kind"] for event in self.agent.events(conversation)]

    def said(self, conversation: str) -> list[str]:
        """The texts of the agent's messages."""
        events = self.agent.events(conversation, kind="MessageEvent", source="agent")
        return ["".join(part["text"] for part in event["llm_message"]["content"]) for event in events]

    def error(self, conversation: str) -> str:
        return self.agent.events(conversation, kind="ConversationErrorEvent")[-1]["detail"]


CLOSING = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


@pytest.fixture
def place(tmp_path, request):
    place = Place(tmp_path, **getattr(request, "param", {}))
    yield place
    place.close()


def test_a_command_waits_and_runs_once_it_is_approved(place, effects):
    conversation, [action] = place.waiting(f"say Let me look.\nask echo done; echo ran >> {effects}\nsay That is all.")
    assert effects.read_text() == ""
    assert action["tool_name"] == "terminal"
    assert action["action"]["command"] == f"echo done; echo ran >> {effects}"

    place.agent.decide(conversation, True)

    place.agent.until(conversation, "finished")
    assert effects.read_text() == "ran\n"
    [seen] = place.agent.events(conversation, kind="ObservationEvent")
    assert (seen["action_id"], seen["observation"]["exit_code"]) == (action["id"], 0)
    assert seen["observation"]["content"] == [{"type": "text", "text": "done\n"}]
    assert place.said(conversation) == ["Let me look.", "That is all."]
    assert place.chosen() == ["option allow_once"]


def test_the_mode_that_asks_is_set_before_the_first_prompt(place):
    conversation = place.begin("say hello")

    place.agent.until(conversation, "finished")
    lines = [json.loads(line)["method"] for line in place.heard_file.read_text().splitlines()]
    assert lines == ["initialize", "session/new", "session/set_mode", "session/prompt"]
    assert place.heard("session/set_mode")[0]["params"]["modeId"] == "careful"


def test_files_and_terminals_are_not_announced(place):
    place.agent.until(place.begin("say hello"), "finished")

    [asked] = place.heard("initialize")
    told = asked["params"]["clientCapabilities"]
    assert told == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


def test_a_rejected_command_does_not_run_and_its_reason_is_the_next_message(place, effects):
    conversation, [action] = place.waiting(f"ask echo ran >> {effects}")

    decision = {"action_id": action["id"], "decision": "reject", "reason": "not today"}
    place.agent.decide(conversation, False, decisions=[decision])

    place.agent.until(conversation, "finished")
    assert effects.read_text() == ""
    assert place.chosen() == ["option reject_once"]
    assert [place.kinds(conversation).count(kind) for kind in ("ActionEvent", *CLOSING)] == [1, 0, 0, 1]
    [_, told] = place.heard("session/prompt")
    assert "not today" in told["params"]["prompt"][0]["text"]


@pytest.mark.parametrize(
    "place",
    [
        {"SCRIPTED_OPTIONS": "allow_always reject_always allow_once reject_once"},
        {"SCRIPTED_OPTIONS": "reject_once allow_once"},
    ],
    indirect=True,
)
@pytest.mark.parametrize(("accept", "kind"), [(True, "allow_once"), (False, "reject_once")])
def test_an_option_is_chosen_by_its_kind_wherever_it_stands(place, accept, kind):
    conversation, _ = place.waiting("ask true")

    place.agent.decide(conversation, accept)

    place.agent.until(conversation, "finished")
    assert place.chosen() == [f"option {kind}"]


def test_a_request_that_offers_lasting_permission_alone_is_refused(place, effects):
    conversation = place.begin(f"lasting echo ran >> {effects}")

    place.agent.until(conversation, "finished")
    assert (effects.read_text(), place.chosen()) == ("", ["cancelled"])
    [error] = place.agent.events(conversation, kind="AgentErrorEvent")
    assert "only a lasting one" in error["error"]


def test_a_policy_that_holds_nothing_permits_once(place, effects):
    conversation = place.begin(f"ask echo ran >> {effects}", policy="NeverConfirm")

    place.agent.until(conversation, "finished")
    assert (effects.read_text(), place.chosen()) == ("ran\n", ["option allow_once"])
    assert place.kinds(conversation).count("ObservationEvent") == 1


def test_what_the_agent_does_without_asking_says_so(place, effects):
    conversation = place.begin(f"do echo ran >> {effects}")

    place.agent.until(conversation, "finished")
    [action] = place.agent.events(conversation, kind="ActionEvent")
    assert action["summary"].startswith("Not asked for permission: ")
    assert place.kinds(conversation).count("ObservationEvent") == 1


def test_a_request_without_arguments_is_marked_as_incomplete(place, effects):
    conversation, [action] = place.waiting(f"words {effects}.proof")

    assert action["action"]["data"]["title"] == "Running: /tmp/…"
    assert "More may run than is shown here" in action["action"]["data"]["_incomplete"]
    place.agent.decide(conversation, True)
    place.agent.until(conversation, "finished")


def test_other_arguments_than_those_that_were_shown_are_told(place, effects):
    conversation, _ = place.waiting(f"swap echo ran >> {effects}")

    place.agent.decide(conversation, True)

    place.agent.until(conversation, "finished")
    [seen] = place.agent.events(conversation, kind="ObservationEvent")
    notice = "The agent reports other arguments than those that it asked about: command"
    assert seen["observation"]["content"][0]["text"] == notice


def test_an_agent_that_carries_out_what_was_rejected_is_found_out(place, effects):
    conversation, _ = place.waiting(f"defy echo ran >> {effects}")

    place.agent.decide(conversation, False)

    place.agent.until(conversation, "finished")
    [_, done] = place.agent.events(conversation, kind="ActionEvent")
    assert done["summary"].startswith("Carried out although it was not permitted: ")


def test_two_requests_at_once_are_decided_one_by_one(place, effects):
    conversation, [first, second] = place.waiting(f"both echo N >> {effects}", count=2)

    place.agent.decide(conversation, True, decisions=[{"action_id": second["id"], "decision": "approve"}])
    assert place.agent.status(conversation) == "waiting_for_confirmation"
    place.agent.decide(conversation, True, decisions=[{"action_id": first["id"], "decision": "reject"}])

    place.agent.until(conversation, "finished")
    assert effects.read_text() == "2\n"


def test_an_edit_is_refused_because_acp_has_none(place):
    conversation, [action] = place.waiting("ask true")

    edit = {"action_id": action["id"], "decision": "edit", "arguments": {"command": "false"}}
    response = place.agent.decide(conversation, True, decisions=[edit])

    assert response.status_code == 422
    assert "takes no edited arguments" in response.text
    assert place.agent.client.get(conversation).json()["capabilities"] == ["decide_each"]


def test_an_agent_that_does_not_wait_for_the_decision_is_found_out(place, effects):
    conversation = place.begin(f"anyway echo ran >> {effects}")

    place.agent.until(conversation, "finished")
    [seen] = place.agent.events(conversation, kind="ObservationEvent")  # which a server audits as unapproved
    assert "without waiting for the decision" in seen["observation"]["content"][0]["text"]
    assert place.chosen() == ["cancelled"]


def test_a_message_rejects_what_waits_and_the_agent_is_cancelled_first(place, effects):
    conversation, _ = place.waiting(f"ask echo ran >> {effects}")

    place.agent.send(conversation, "say Something else.")

    place.agent.until(conversation, "finished")
    assert (effects.read_text(), place.chosen()) == ("", ["cancelled"])
    assert place.said(conversation) == ["Something else."]
    assert len(place.heard("session/cancel")) == 1


@pytest.mark.parametrize("verb", ["pause", "interrupt"])
def test_a_pause_and_an_interrupt_cancel_the_turn_and_a_run_goes_on(place, verb):
    conversation = place.begin("say working\nwait")
    wait_until(lambda: place.heard("session/prompt"), "the prompt")

    place.agent.post(f"{conversation}/{verb}")

    wait_until(lambda: place.heard("session/cancel"), "the cancellation")
    wait_until(lambda: place.said(conversation) == ["working"], "what it has said")
    assert place.agent.status(conversation) == "paused"
    place.agent.post(f"{conversation}/run")
    place.agent.until(conversation, "finished")
    assert place.heard("session/prompt")[-1]["params"]["prompt"][0]["text"].startswith("Go on")


def test_a_run_goes_on_though_the_agent_still_ends_the_turn_that_a_pause_has_cancelled(place):
    conversation = place.begin("say working", "dawdle 1")
    wait_until(lambda: place.heard("session/prompt"), "the prompt")
    place.agent.post(f"{conversation}/pause")

    assert place.agent.post(f"{conversation}/run").is_success

    place.agent.until(conversation, "finished")
    assert place.heard("session/prompt")[-1]["params"]["prompt"][0]["text"].startswith("Go on")


def test_a_run_that_accepts_nothing_is_refused_while_an_action_waits(place, effects):
    conversation, [action] = place.waiting(f"ask echo ran >> {effects}")

    refused = place.agent.post(f"{conversation}/run", {"accepts": False})

    assert refused.status_code == 409
    assert "An action waits for a decision" in refused.text
    assert place.open(conversation) == [action]
    place.agent.post(f"{conversation}/run")
    place.agent.until(conversation, "finished")
    assert (effects.read_text(), place.chosen()) == ("ran\n", ["option allow_once"])


@pytest.mark.parametrize("seconds", [0.5, 2.5])
def test_the_time_of_a_frozen_sandbox_is_no_silence_of_its_agent(tmp_path, seconds):
    """seconds: of the agent's silence in all, 2 of which are frozen. More than 1 is too much."""
    heard = tmp_path / "heard"
    code = f"""
        from pathlib import Path
        from types import SimpleNamespace
        from reference_agent.acp import client
        client.SILENCE_SECONDS = 1.0
        variables = {{"SCRIPTED_HEARD": {str(heard)!r}}}
        program = client.AcpProcess({[sys.executable, str(PROGRAM)]}, Path("."), variables, SimpleNamespace())
        program.start()
        program.begin({{}})
        try:
            print(program.prompt([{{"type": "text", "text": "nap {2 + seconds}"}}], lambda: False)["stopReason"])
        except client.AgentError as error:
            print(error)
    """
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: "session/prompt" in heard.read_text(), "the prompt")
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        said = process.stdout.read()

    assert said == ("end_turn\n" if seconds < 1 else "The agent reported nothing for 1 s, and was ended.\n")


def test_an_interrupt_while_it_waits_permits_nothing(place, effects):
    conversation, _ = place.waiting(f"ask echo ran >> {effects}")

    place.agent.post(f"{conversation}/interrupt")

    wait_until(lambda: place.chosen() == ["cancelled"], "the outcome")
    assert (effects.read_text(), place.agent.status(conversation)) == ("", "paused")
    assert place.open(conversation) == []
    assert place.agent.decide(conversation, True).is_success
    assert effects.read_text() == ""


@pytest.mark.parametrize("place", [{"SCRIPTED_LOADS": "1"}], indirect=True)
def test_a_killed_program_is_started_again_with_its_session(place, effects):
    conversation, _ = place.waiting(f"ask echo ran >> {effects}")

    place.program().kill()

    place.agent.until(conversation, "error")
    assert "was killed by signal 9" in place.error(conversation)
    assert place.open(conversation) == []
    [error] = place.agent.events(conversation, kind="AgentErrorEvent")
    assert "ended before it got a decision" in error["error"]
    place.agent.send(conversation, "say Here again.")
    place.agent.until(conversation, "finished")
    assert place.said(conversation) == ["Here again."]  # and not what the agent repeats of its session
    assert len(place.heard("session/load")) == 1
    assert [one["params"]["modeId"] for one in place.heard("session/set_mode")] == ["careful", "careful"]
    assert effects.read_text() == ""


def test_the_end_of_a_program_is_seen_while_another_process_holds_its_pipes(place, effects):
    conversation, _ = place.waiting(f"leave\nask echo ran >> {effects}")

    place.program().kill()

    place.agent.until(conversation, "error")
    assert "was killed by signal 9" in place.error(conversation)


def test_an_agent_that_cannot_load_its_session_says_so(place):
    conversation = place.begin("die 3")
    place.agent.until(conversation, "error")
    assert "exit code 3" in place.error(conversation)
    assert "these are my last words" in place.error(conversation)

    place.agent.send(conversation, "say hello")

    place.agent.until(conversation, "finished")
    assert "does not remember what came before" in place.error(conversation)


@pytest.mark.parametrize("place", [{"SCRIPTED_LOADS": "1"}], indirect=True)
def test_a_killed_agent_server_permits_nothing_and_its_program_ends_with_it(place, effects):
    conversation, _ = place.waiting(f"ask echo ran >> {effects}")
    program = place.program()

    place.agent.process.kill()
    place.agent.process.communicate()
    program.wait(10)
    place.agent.start()

    assert place.agent.status(conversation) == "paused"
    [error] = place.agent.events(conversation, kind="AgentErrorEvent")
    assert "The action was not permitted" in error["error"]
    place.agent.send(conversation, "say hello")
    place.agent.until(conversation, "finished")
    assert effects.read_text() == ""
    assert len(place.heard("session/load")) == 1


def test_garbage_and_unknown_messages_change_nothing(place):
    unknown = {"jsonrpc": "2.0", "method": "$/something", "params": {}}
    asked = {"jsonrpc": "2.0", "id": "x", "method": "fs/read_text_file", "params": {}}
    conversation = place.begin("garbage", f"send {json.dumps(unknown)}", f"send {json.dumps(asked)}", "say still here")

    place.agent.until(conversation, "finished")
    assert place.said(conversation) == ["still here"]


def test_a_long_line_is_read_and_one_that_is_too_long_ends_the_program(place):
    conversation = place.begin(f"huge {1 << 20}", "say still here")
    place.agent.until(conversation, "finished")

    place.agent.send(conversation, f"huge {40 << 20}")

    place.agent.until(conversation, "error")
    assert "a line of more than 32 MiB" in place.error(conversation)


def test_chunks_are_joined_to_messages_of_a_bounded_size(place):
    conversation = place.begin("flood 20000")

    place.agent.until(conversation, "finished")
    said = place.said(conversation)
    assert "".join(said).split() == [str(index) for index in range(20000)]
    assert len(said) == 2


def test_thoughts_plans_and_usage_are_told_as_published_clients_read_them(place):
    conversation = place.begin("think Hm.", "say Yes.", "plan Write it", "usage 500")

    place.agent.until(conversation, "finished")
    events = place.agent.events(conversation)
    [said] = [one for one in events if one["kind"] == "MessageEvent" and one["source"] == "agent"]
    assert said["llm_message"]["reasoning_content"] == "Hm."
    [plan] = [one for one in events if one["kind"] == "ObservationEvent"]
    assert plan["observation"]["kind"] == "TaskTrackerObservation"
    assert plan["observation"]["task_list"] == [{"title": "Write it", "notes": "", "status": "in_progress"}]
    stats = place.agent.client.get(conversation).json()["stats"]["usage_to_metrics"]["agent"]
    assert (stats["accumulated_cost"], stats["accumulated_token_usage"]["per_turn_token"]) == (0.25, 500)


def test_an_image_reaches_an_agent_that_reads_images(place):
    data = base64.b64encode(b"a picture").decode()
    image = {"type": "image", "image_urls": [f"data:image/png;base64,{data}"]}
    message = {"role": "user", "content": [{"type": "text", "text": "say I see"}, image], "run": True}
    conversation = place.agent.begin(initial_message=message)

    place.agent.until(conversation, "finished")
    [asked] = place.heard("session/prompt")
    assert asked["params"]["prompt"][1] == {"type": "image", "mimeType": "image/png", "data": data}


def test_an_agent_that_leaves_the_mode_that_asks_is_told(place):
    conversation = place.begin("mode yolo")

    place.agent.until(conversation, "finished")
    assert "has changed its mode from careful to yolo" in place.error(conversation)


@pytest.mark.parametrize("place", [{"ACP_MODE": "paranoid"}], indirect=True)
def test_an_agent_without_the_mode_that_asks_does_not_begin(place):
    conversation = place.begin("say hello")

    place.agent.until(conversation, "error")
    assert "has no mode paranoid" in place.error(conversation)
    assert place.heard("session/prompt") == []


@pytest.mark.parametrize("place", [{"ACP_COMMAND": "/nowhere/agent acp"}], indirect=True)
def test_a_program_that_is_missing_is_named(place):
    conversation = place.begin("say hello")

    place.agent.until(conversation, "error")
    assert "/nowhere/agent cannot be started: No such file or directory" in place.error(conversation)


def test_the_end_of_a_deleted_conversation_ends_its_program(place):
    conversation, _ = place.waiting("ask true")
    program = place.program()

    assert place.agent.client.delete(conversation).is_success

    program.wait(10)


@pytest.mark.parametrize(("reason", "words"), [("refusal", "refuses to go on"), ("max_tokens", "maximum number")])
def test_a_turn_that_stops_before_its_end_is_an_error_with_a_sentence(place, reason, words):
    conversation = place.begin(f"stop {reason}")

    place.agent.until(conversation, "error")
    assert words in place.error(conversation)


NEVER_ASKS = {"ACP_AGENT": "pi", "LLM_MODEL": "scripted"}


@pytest.mark.parametrize("place", [NEVER_ASKS], indirect=True)
def test_an_agent_that_never_asks_is_refused_under_a_policy_that_holds_something(place, effects):
    refused = place.agent.post("/api/conversations", {"confirmation_policy": {"kind": "AlwaysConfirm"}})
    assert refused.status_code == 422
    assert "pi never asks for permission, so no policy can hold its actions" in refused.text

    conversation = place.begin(f"do echo ran >> {effects}", policy="NeverConfirm")
    place.agent.until(conversation, "finished")
    changed = place.agent.post(f"{conversation}/confirmation_policy", {"policy": {"kind": "ConfirmRisky"}})
    assert (effects.read_text(), changed.status_code) == ("ran\n", 409)
    assert "only the way out of its sandbox holds it" in changed.text


@pytest.mark.parametrize("place", [{"ACP_AGENT": "opencode"}], indirect=True)
def test_an_agent_that_needs_a_model_names_what_is_missing(place):
    conversation = place.begin("say hello")

    place.agent.until(conversation, "error")
    assert "opencode needs a model: start the server with LLM_MODEL" in place.error(conversation)
    assert "OpenAI Chat Completions" in place.error(conversation)
