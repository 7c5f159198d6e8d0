"""What a hook reads from each agent, and prints in its form: docs/hooks.md has the versions."""

import json
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import pytest
from agentctl.hooks import VERSION
from agentctl.hooks.agents import AGENTS, HookReport, InboxVerdict, Question, session_of

from agents.asking import check_hook
from tests.servers import PROJECT, free_port, wait_until

TOUCH = {"command": "touch proof"}


def nested(event, **members):
    return {"session_id": "s1", "cwd": "/home/ada/x", "hook_event_name": event, "tool_name": "Bash", **members}


QUESTIONS = {
    "claude": (nested("PermissionRequest", tool_input=TOUCH), Question("Bash", TOUCH, "permission")),
    "claude's gate": (nested("PreToolUse", tool_input=TOUCH), Question("Bash", TOUCH, "gate")),
    "claude reads": (nested("PreToolUse", tool_name="Read", tool_input={}), None),
    "claude asks its person": (nested("PermissionRequest", tool_name="AskUserQuestion", tool_input={}), None),
    "claude tells": (nested("PostToolUse", tool_input=TOUCH), None),
    "codex": (
        nested("PermissionRequest", tool_input={**TOUCH, "description": "May I?"}),
        Question("Bash", TOUCH, "permission"),
    ),
    "qwen": (nested("PermissionRequest", tool_input=TOUCH), Question("Bash", TOUCH, "permission")),
    "copilot": (
        {"hookName": "permissionRequest", "sessionId": "s1", "cwd": "/x", "toolName": "bash", "toolInput": TOUCH},
        Question("bash", TOUCH, "permission"),
    ),
    "opencode": (
        {"hook_event_name": "ask", "session_id": "s1", "tool_name": "bash", "tool_input": TOUCH, "complete": False},
        Question("bash", TOUCH, "permission", is_whole=False),
    ),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_is_what_the_agent_asks_for(kind):
    event, expected = QUESTIONS[kind]
    assert AGENTS[kind.partition("'")[0].split()[0]].question(event) == expected


CLAUDE = {"hookEventName": "PermissionRequest"}
FORMS = {
    ("claude", "allow"): {"hookSpecificOutput": {**CLAUDE, "decision": {"behavior": "allow"}}},
    ("claude", "deny"): {"hookSpecificOutput": {**CLAUDE, "decision": {"behavior": "deny", "message": "no"}}},
    ("claude", "edit"): {
        "hookSpecificOutput": {**CLAUDE, "decision": {"behavior": "allow", "updatedInput": {"command": "ls"}}}
    },
    ("copilot", "allow"): {"behavior": "allow"},
    ("copilot", "deny"): {"behavior": "deny", "message": "no"},
    ("opencode", "allow"): {"reply": "once"},
    ("opencode", "deny"): {"reply": "reject", "message": "no"},
}
VERDICTS = {
    "allow": InboxVerdict(True),
    "deny": InboxVerdict(False, "no"),
    "edit": InboxVerdict(True, "", {"command": "ls"}),
}


@pytest.mark.parametrize(("name", "verdict"), FORMS)
def test_an_answer_has_exactly_the_members_that_the_agent_takes(name, verdict):
    question = Question("Bash", TOUCH, "permission")
    assert AGENTS[name].form(question, VERDICTS[verdict]) == FORMS[name, verdict]
    if name == "claude" and verdict != "edit":
        assert AGENTS["codex"].form(question, VERDICTS[verdict]) == FORMS[name, verdict]


def test_a_gate_answers_in_the_form_of_its_event():
    gate = Question("Bash", TOUCH, "gate")
    assert AGENTS["claude"].form(gate, InboxVerdict(False, "no")) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "no",
        }
    }


def test_what_an_agent_tells_is_a_prompt_a_call_or_an_end_of_a_turn_or_of_the_session():
    report = AGENTS["claude"].report
    ran = nested("PostToolUse", tool_input=TOUCH, tool_response={"stdout": "a", "stderr": "b", "interrupted": False})
    assert report(ran) == HookReport("call", "", "Bash", TOUCH, "ab")
    assert report(nested("PostToolUseFailure", tool_input=TOUCH, error="no")) == HookReport(
        "call", "", "Bash", TOUCH, "no", is_error=True
    )
    assert report(nested("UserPromptSubmit", prompt="hello")) == HookReport("prompt", "hello")
    assert report(nested("Stop")) == HookReport("turn")
    assert report(nested("SessionEnd")) == HookReport("end")
    assert report(nested("Notification")) is None


def test_what_copilot_tells_is_known_by_its_members():
    report, common = AGENTS["copilot"].report, {"sessionId": "s1", "cwd": "/x"}
    args = {**TOUCH, "description": "the model's words, which its question lacks"}
    result = {"resultType": "success", "textResultForLlm": "made"}
    call = {**common, "toolName": "bash", "toolArgs": args, "toolResult": result}
    assert report(call) == HookReport("call", "", "bash", TOUCH, "made")
    assert report({**common, "prompt": "hello"}) == HookReport("prompt", "hello")
    assert report({**common, "stopReason": "end_turn"}) == HookReport("turn")
    assert report({**common, "reason": "user_exit"}) == HookReport("end")
    assert report({**common, "initialPrompt": "hello", "source": "new"}) is None


def test_names_of_machines_and_people_have_characters_that_the_server_takes(monkeypatch):
    monkeypatch.setenv("USER", "Ada Lovelace é")
    assert session_of({"session_id": "s1", "cwd": "/x\ny"}) | {"host": ""} == {
        "id": "s1",
        "cwd": "/x y",
        "host": "",
        "user": "Ada-Lovelace--",
    }


HOOKED = "import sys; sys.argv = ['agentctl', 'hook', *{name!r}.split()]; from agentctl import main; main()"


def hooked(name, event, home):
    """Run a hook as an agent does: opencode's stays open, the others end after the event. name: with options."""
    environment = {"PYTHONPATH": str(PROJECT / "client/src"), "HOME": str(home), "PATH": "/usr/bin:/bin"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", HOOKED.format(name=name)]
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        process.stdin.write(json.dumps(event) + "\n")
        process.stdin.flush() if name == "opencode" else process.stdin.close()
        process.wait(60)
        return subprocess.CompletedProcess(command, process.returncode, process.stdout.read(), process.stderr.read())


def configured(home, **more):
    path = home / ".config/agentctl/hooks.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"url": f"http://127.0.0.1:{free_port()}", "patience": 1, **more}))
    path.chmod(0o600)


@pytest.mark.process("starts hooks")
@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "qwen", "opencode"])
def test_without_the_server_the_terminal_alone_asks_which_is_told_once_in_a_session(tmp_path, name):
    configured(tmp_path)
    event = QUESTIONS[name][0]

    first, second, other = (
        hooked(name, one, tmp_path) for one in (event, event, {**event, "session_id": "s2", "sessionId": "s2"})
    )

    assert [one.returncode for one in (first, second, other)] == [0, 0, 0]
    assert "does not answer" in first.stderr
    assert "this terminal alone decides" in first.stderr
    assert (second.stdout, second.stderr) == ("", "")
    assert "does not answer" in other.stderr
    assert first.stdout == "" or set(json.loads(first.stdout)) == {AGENTS[name].notice}


@pytest.mark.process("starts hooks")
@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "qwen", "opencode"])
def test_without_the_server_a_required_inbox_refuses_in_the_form_of_the_agent(tmp_path, name):
    configured(tmp_path, require=True)
    event = QUESTIONS[name][0]

    ran = hooked(name, event, tmp_path)

    assert ran.returncode == 0
    answer = json.loads(ran.stdout)
    refused = AGENTS[name].form(AGENTS[name].question(event), InboxVerdict(False, "X"))
    assert json.dumps(answer).replace(found_reason(answer), "X") == json.dumps(refused)
    assert "The inbox is required and cannot be asked" in ran.stdout


def found_reason(answer):
    """The reason of a refusal, wherever the form has it."""
    if "message" in answer:
        return answer["message"]
    return answer["hookSpecificOutput"]["decision"]["message"]


@pytest.mark.process("starts a hook")
def test_the_gate_of_an_agent_that_has_one_event_for_both_refuses_without_the_server(tmp_path):
    """Copilot asks before its rules: without an answer its call would run under --allow-all-tools."""
    configured(tmp_path)

    ran = hooked("copilot --gate", QUESTIONS["copilot"][0], tmp_path)

    assert json.loads(ran.stdout)["behavior"] == "deny"


@pytest.mark.process("starts hooks, and a server after them")
def test_what_ran_while_the_server_was_away_is_told_once_when_it_is_back(tmp_path):
    configured(tmp_path)
    port = urlsplit(json.loads((tmp_path / ".config/agentctl/hooks.json").read_text())["url"]).port
    calls = [nested("PostToolUse", tool_input={"command": f"touch {number}"}) for number in range(3)]
    for call in calls:
        assert hooked("claude", call, tmp_path).returncode == 0
    hooked("claude", nested("Stop"), tmp_path)  # nobody misses the end of a turn
    told = []

    class Taken(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.append((self.headers["Idempotency-Key"], body["kind"], body["arguments"]))
            self.send_response(503 if len(told) == 1 else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", port), Taken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        wait_until(lambda: (tmp_path / ".local/state/agentctl/hooks-reports").read_text() == "", "the last report")
        server.shutdown()

    assert told[0] == told[1]  # the first attempt was not taken
    assert [one[1:] for one in told[1:]] == [("call", call["tool_input"]) for call in calls]
    assert len({once for once, *_ in told}) == 3


@pytest.mark.process("starts a hook")
def test_a_hook_imports_no_more_than_it_needs(tmp_path):
    configured(tmp_path)
    code = HOOKED.format(name="claude").replace("main()", "")
    code += (
        "import agentctl.hooks.run; print([one for one in ('click', 'httpx', 'rich', 'asyncio') if one in sys.modules])"
    )
    environment = {"PYTHONPATH": str(PROJECT / "client/src"), "HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_hook_names_the_version_of_its_client_which_the_server_takes():
    project = tomllib.loads((PROJECT / "client/pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    check_hook(f"agentctl/{VERSION} hook")
