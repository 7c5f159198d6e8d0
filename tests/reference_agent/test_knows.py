"""What the bundled agent knows and may call: a repository's words, skills, tasks, web pages, tools of MCP servers."""

import http.server
import pathlib
import socket
import subprocess
import sys
import time
from uuid import uuid4

import pytest

from tests.agents.scripted_model import calls, finish, refusal, run, text
from tests.quick import serve
from tests.reference_agent.program import reference_agent
from tests.servers import PROJECT, free_port, wait_until

SERVER = str(PROJECT / "tests" / "reference_agent" / "mcp_server.py")
NOTES = {"command": sys.executable, "args": [SERVER, "stdio"], "env": {"NOTES_TOKEN": "a-token-of-notes-71f3"}}

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    home = tmp_path_factory.mktemp("knows")
    environment = {"LLM_MODEL": "scripted", "LLM_API_KEY": "k", "LLM_BASE_URL": model.url, "OH_SECRET_KEY": "s"}
    with reference_agent(home, **environment, NO_PROXY="127.0.0.1") as agent:
        yield agent


@pytest.fixture
def folder(agent):
    """The working folder of a conversation, a Git repository."""
    folder = agent.home / uuid4().hex
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(folder)], check=True)
    return folder


def played(server, folder, said="go", status="finished", **members):
    conversation = server.begin(workspace={"kind": "LocalWorkspace", "working_dir": str(folder)}, **members)
    server.send(conversation, said)
    server.until(conversation, status)
    return conversation


def results(agent, conversation):
    """Tool, whether it failed, and text of each result but the last, which is of `finish`."""
    seen = agent.events(conversation, kind="ObservationEvent")
    return [
        (
            one["tool_name"],
            one["observation"]["is_error"],
            "\n".join(part["text"] for part in one["observation"]["content"]),
        )
        for one in seen
        if one["tool_name"] != "finish"
    ]


def rated(name, **arguments):
    return name, {**arguments, "security_risk": "LOW", "summary": "x"}


def test_the_model_is_told_the_day_the_machine_git_and_what_the_repository_says(agent, model, folder):
    (folder / "AGENTS.md").write_text("Indent with tabs.")

    conversation = played(agent, folder)

    [system] = model.told("system")
    assert f"Today is {time.strftime('%Y-%m-%d', time.gmtime())} (UTC)." in system
    assert "Branch: No commits yet on trunk." in system
    assert "These texts come from the repository." in system
    assert f'<instructions of="{folder}/AGENTS.md">\nIndent with tabs.\n</instructions>' in system
    [event] = agent.events(conversation, kind="SystemPromptEvent")
    assert event["system_prompt"]["text"] + event["dynamic_context"]["text"] == system


def test_a_folder_that_is_first_touched_tells_its_instructions_with_the_result(agent, model, folder):
    (folder / "web").mkdir()
    (folder / "web" / "AGENTS.md").write_text("No frameworks.")
    model.script += [calls(run("ls web")), calls(run("ls web"))]

    played(agent, folder)

    first, second = model.told("tool")
    assert ("No frameworks." in first, "No frameworks." in second) == (True, False)


def test_a_skill_is_listed_brought_by_its_words_and_read_by_its_tool(agent, model, folder):
    (folder / ".agents" / "skills").mkdir(parents=True)
    (folder / ".agents/skills/release.md").write_text("---\ndescription: Releases\ntriggers: [ship]\n---\nBump, tag.")
    model.script += [calls(("invoke_skill", {"name": "release"}), ("invoke_skill", {"name": "none"}))]

    conversation = played(agent, folder, "Please SHIP it")

    assert "* release: Releases" in model.told("system")[0]
    assert "Bump, tag." in model.told("user")[0]
    [message] = [one for one in agent.events(conversation, kind="MessageEvent") if one["source"] == "user"]
    assert message["activated_skills"] == ["release"]
    assert message["llm_message"]["content"] == [{"type": "text", "text": "Please SHIP it"}]
    (_, failed, told), (_, failed_too, not_told) = results(agent, conversation)
    assert (failed, "Bump, tag." in told, failed_too, not_told) == (False, True, True, "There is no skill 'none'.")


def test_a_list_of_tasks_is_kept_as_published_clients_read_it_also_over_a_kill(agent, model, folder):
    plan = [{"title": "Look", "status": "done"}, {"title": "Mend", "notes": "carefully"}]
    model.script += [calls(("task_tracker", {"command": "plan", "task_list": plan})), text("so far")]
    conversation = played(agent, folder)
    agent.restart()
    model.script += [calls(("task_tracker", {"command": "view"}))]
    agent.send(conversation, "and now?")
    agent.until(conversation, "finished")

    planned, viewed = [
        one["observation"]
        for one in agent.events(conversation, kind="ObservationEvent")
        if one["tool_name"] != "finish"
    ]
    assert planned["kind"] == "TaskTrackerObservation"
    assert planned["task_list"] == [
        {"title": "Look", "notes": "", "status": "done"},
        {"title": "Mend", "notes": "carefully", "status": "todo"},
    ]
    assert (viewed["command"], viewed["task_list"]) == ("view", planned["task_list"])
    assert "[todo] Mend: carefully" in model.told("tool")[-1]


def test_search_and_edits_are_taken_back_by_the_tools_that_models_know(agent, model, folder):
    (folder / "a.py").write_text("one = 1\n")
    edit = {"command": "str_replace", "path": "a.py", "old_str": "1", "new_str": "2"}
    model.script += [
        calls(("grep", {"pattern": "one"}), ("glob", {"pattern": "*.py"}), ("think", {"thought": "hm"})),
        calls(rated("file_editor", **edit), rated("file_editor", command="undo_edit", path="a.py")),
    ]
    conversation = played(agent, folder, confirmation_policy={"kind": "ConfirmRisky"})

    noted, *found = [told for _, _, told in results(agent, conversation)]  # a thought waits for no other call
    assert noted == "The thought is noted."
    assert (found[0].endswith("\na.py:1:one = 1"), found[1].endswith("\na.py")) == (True, True)
    assert (folder / "a.py").read_text() == "one = 1\n"
    [searched] = [one for one in agent.events(conversation, kind="ActionEvent") if one["tool_name"] == "grep"]
    assert searched["action"] == {"data": {"pattern": "one"}, "kind": "MCPToolAction"}


class KnownPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<html><head><title>T</title></head><body><h1>News</h1><script>x</script><p>It <b>works</b>.</p></body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


def test_a_page_is_read_as_text_and_one_that_is_not_reached_is_said_in_words(agent, model, folder):
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), KnownPage)
    serve(page)
    url, nowhere = f"http://127.0.0.1:{page.server_address[1]}/news", f"http://127.0.0.1:{free_port()}/"
    model.script += [calls(*(rated("fetch", url=one) for one in (url, nowhere, "file:///etc/passwd")))]
    conversation = played(agent, folder)
    page.shutdown()
    page.server_close()

    read, not_reached, refused = results(agent, conversation)
    assert read == ("fetch", False, f"{url}, status 200:\n# News\n\nIt works.")
    assert (not_reached[1], f"fetch: {nowhere} cannot be reached: " in not_reached[2]) == (True, True)
    assert refused == ("fetch", True, "fetch: the URL should begin with http:// or https:// and a host")


def test_the_tools_of_an_mcp_server_are_called_under_the_policy_with_their_arguments(agent, model, folder):
    model.script += [
        calls(rated("add", first=1, second=2)),
        calls(rated("add", first="x", second=2)),
        calls(rated("token")),
    ]
    members = {"agent": {"mcp_config": {"mcpServers": {"notes": NOTES}}}}
    conversation = played(agent, folder, status="waiting_for_confirmation", policy="AlwaysConfirm", **members)

    [waits] = agent.events(conversation, kind="ActionEvent")
    assert (waits["tool_name"], waits["action"]) == (
        "add",
        {"data": {"first": 1, "second": 2}, "kind": "MCPToolAction"},
    )
    decision = {"action_id": waits["id"], "decision": "edit", "arguments": {"data": {"first": 40, "second": 2}}}
    agent.decide(conversation, True, decisions=[decision])
    for _ in range(2):
        agent.until(conversation, "waiting_for_confirmation")
        agent.decide(conversation, True)
        wait_until(lambda: agent.status(conversation) != "waiting_for_confirmation", "the next response")
    agent.until(conversation, "finished")

    (_, _, sum_), (_, failed, wrong), (_, _, masked) = results(agent, conversation)
    assert sum_.endswith("\n42")
    assert (failed, "first" in wrong) == (True, True)
    assert ("a-token-of-notes-71f3" in masked, masked.endswith(" None")) == (False, True)
    kept = "".join(one.read_text() for one in agent.folder(conversation).iterdir())
    assert "a-token-of-notes-71f3" not in kept + agent.client.get(conversation).text


def test_an_mcp_server_goes_on_after_a_restart_of_the_agent_server_and_after_its_own_end(agent, model, folder):
    model.script += [calls(rated("add", first=1, second=1)), text("so far")]
    conversation = played(agent, folder, agent={"mcp_config": {"notes": NOTES}})
    agent.restart()
    model.script += [calls(rated("end")), calls(rated("notes_terminal", line="x"), rated("fail", reason="a reason"))]
    agent.send(conversation, "go on")
    agent.until(conversation, "finished")

    _, (_, ended, words), other, (_, failed, reason) = results(agent, conversation)
    assert (ended, words) == (True, "end: its program has ended")
    assert other == ("notes_terminal", False, "not x")
    assert (failed, "a reason" in reason) == (True, True)


def test_an_mcp_server_that_fails_is_said_in_words_and_stops_nothing(agent, model, folder):
    broken = {
        "missing": {"command": "/no/such/program"},
        "broken": {"command": "sh", "args": ["-c", "echo no licence >&2; exit 4"]},
        "away": {"url": f"http://127.0.0.1:{free_port()}/mcp"},
        "off": {"command": "sh", "enabled": False},
        "notes": NOTES,
    }
    model.script += [calls(rated("add", first=1, second=2))]
    conversation = played(agent, folder, agent={"mcp_config": broken})

    told = [one for one in agent.events(conversation, kind="MessageEvent") if one["source"] == "environment"]
    said = [one["llm_message"]["content"][0]["text"] for one in told]
    assert [one.split(" is not used: ")[0] for one in said] == [
        f"The MCP server {n}" for n in ("missing", "broken", "away")
    ]
    assert "No such file" in said[0]
    assert said[1].endswith("its program has ended: no licence")
    assert results(agent, conversation)[0][1] is False


def test_an_mcp_server_that_failed_is_tried_again_at_the_next_message(agent, model, folder):
    notes = {"command": sys.executable, "args": [str(folder / "server.py"), "stdio"]}
    conversation = played(agent, folder, agent={"mcp_config": {"notes": notes}})
    (folder / "server.py").write_text(pathlib.Path(SERVER).read_text())
    model.script += [calls(rated("add", first=1, second=2))]
    agent.send(conversation, "and now?")
    wait_until(lambda: len(results(agent, conversation)) == 1, "the result")

    assert results(agent, conversation)[0][2].endswith("3")


@pytest.mark.parametrize(("transport", "path"), [("streamable-http", "mcp"), ("sse", "sse")])
def test_an_mcp_server_over_http_is_asked_with_its_headers_and_a_call_is_interrupted(agent, model, transport, path):
    port = free_port()
    with subprocess.Popen([sys.executable, SERVER, transport, str(port)], stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: answers(port), "the MCP server")
        model.script += [calls(rated("add", first=20, second=22)), calls(rated("wait")), text("then not")]
        auth = {"strategy": "bearer", "value": "of-a-person-5d1b"}
        url = {"url": f"http://127.0.0.1:{port}/{path}", "transport": transport, "auth": auth}
        conversation = agent.begin(agent={"mcp_config": {"notes": url}})
        agent.send(conversation, "go")
        wait_until(lambda: len(agent.events(conversation, kind="ActionEvent")) == 2, "the second call")
        agent.post(f"{conversation}/interrupt")
        wait_until(lambda: len(results(agent, conversation)) == 2, "the end of the call")
        server.terminate()

    (_, _, sum_), (_, is_error, told) = results(agent, conversation)
    assert (sum_.endswith("42"), is_error) == (True, True)
    assert told.startswith("Interrupted. It is unknown whether the call took effect")
    assert agent.status(conversation) == "paused"
    kept = "".join(one.read_text() for one in agent.folder(conversation).iterdir())
    assert "of-a-person-5d1b" not in kept + agent.client.get(conversation).text


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_what_a_client_says_of_its_agent_is_honoured(agent, model, folder):
    context = {"system_message_suffix": "Answer in French.", "user_message_suffix": "Be brief."}
    context["skills"] = [{"name": "house", "content": "Never push.", "trigger": None}]
    given = {"tools": [{"name": "TerminalTool"}, {"name": "grep"}, {"name": "browser_tool_set"}]}
    played(agent, folder, agent={**given, "agent_context": context, "filter_tools_regex": "^(?!grep)"})

    assert [one["function"]["name"] for one in model.asked[0]["tools"]] == ["terminal", "think", "finish"]
    [system], [user] = model.told("system"), model.told("user")
    assert ("Never push." in system, system.endswith("Answer in French.")) == (True, True)
    assert user == "go\nBe brief."

    played(agent, folder, agent={"system_prompt": "You are a parrot."})
    assert model.told("system")[0].startswith("You are a parrot.\n")
    assert len(model.asked[-1]["tools"]) == 9


def test_the_reasoning_effort_of_a_client_is_passed_on_and_left_out_where_an_endpoint_refuses_it(agent, model, folder):
    model.script += [text("thought hard"), refusal(400, "Unrecognized request argument supplied: reasoning_effort")]
    for _ in range(2):
        played(agent, folder, agent={"llm": {"reasoning_effort": "high"}})

    assert [one.get("reasoning_effort") for one in model.asked] == ["high", "high", None]


def test_arguments_that_are_an_object_and_no_text_are_taken(agent, model, folder):
    reply = calls(finish())
    reply.parts[1:3] = [
        b'data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "terminal", '
        b'"arguments": {"command": "echo one"}}}]}}]}\n\n'
    ]
    model.script += [reply]
    conversation = played(agent, folder)
    assert results(agent, conversation) == [("terminal", False, "one\n")]
