"""`python -m admin mcp`: an assistant's client, and a server of ours behind it; both also as programs over pipes."""

import asyncio
import json
import os
import subprocess
import sys
from uuid import uuid4

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitResult

from admin import mcp_server
from app import create_app
from core.prices import ModelBudget
from core.wire import API_VERSION
from settings.config import Config
from store.approvals.audit import DecisionActor
from tests.conftest import LIMITS, SECRET_KEY, action, limits_of, message, status, store_of
from tests.servers import PROJECT
from tests.shared import ADMIN, HERE, client_of, shared_server

pytestmark = pytest.mark.process("an MCP client on threads")

READING = {
    *("list_conversations", "read_events", "count_events", "list_pending_actions", "count_pending_actions"),
    *("list_destinations", "list_specs", "follow_agent"),
}


@pytest.fixture(
    scope="module",
    params=["here", pytest.param("over pipes", marks=pytest.mark.process("starts a program for each call"))],
)
def server(request, redis_url):
    """A client of the admin of a server with keys: the app in this process, or a whole server."""
    if request.param == "over pipes":
        yield shared_server(ADMIN).client
        return
    app = create_app(
        Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=(ADMIN,), **LIMITS)
    )
    with client_of(app, ADMIN) as client:
        client.app = app
        yield client


def key(server, *scopes) -> str:
    made = server.post("/api/v1/keys", json={"name": "assistant", "scopes": scopes})
    return made.json()["key"]


@pytest.fixture
def waiting(server, conversation):
    """A conversation with an action that waits."""
    body = {"conversation_id": conversation, "title": "Tidy up", "confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert server.post("/api/conversations", json=body).status_code == 201
    events = [message("tidy up"), action("rm -rf \u202etxt")]
    assert server.post(f"/api/v1/webhooks/events/{conversation}", json=events).status_code == 200
    return conversation


def with_client(server, shown_key, use, **options):
    """What a coroutine returns that uses a client of the MCP server, which is a process of its own or runs here."""

    async def run(reached):
        async with Client(reached, **options) as client:
            return await use(client)

    if str(server.base_url) != HERE:
        environment = {"AGENT_SERVER_URL": str(server.base_url), "SESSION_API_KEY": shown_key}
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "admin", "mcp"], cwd=PROJECT, env=environment
        )
        return asyncio.run(run(stdio_client(program, errlog=subprocess.DEVNULL)))
    asked = mcp_server.ServerApi(HERE, shown_key)
    asked._client.close()
    with client_of(server.app, shown_key) as asked._client, pytest.MonkeyPatch.context() as patched:
        patched.setattr(mcp_server, "agent_server", lambda: asked)
        scopes = asked.ask("GET", "/api/v1/users/me")["scopes"]
        return asyncio.run(run(mcp_server.server_for(scopes)))


def called(server, shown_key, tool, options=None, **arguments):
    """The result of one call of a tool."""
    return with_client(server, shown_key, lambda client: client.call_tool(tool, arguments), **options or {})


def text(result) -> str:
    return result.content[0].text


def tools(server, shown_key):
    async def listed(client):
        return {tool.name: tool for tool in (await client.list_tools()).tools}

    return with_client(server, shown_key, listed)


# endings


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://x", "AGENT_SERVER_URL must begin with http:// or https://"),
        ("http://127.0.0.1:1", "does not respond"),
    ],
)
def test_a_server_that_cannot_be_asked_ends_the_program_with_a_sentence(monkeypatch, capsys, url, sentence):
    monkeypatch.setenv("AGENT_SERVER_URL", url)
    monkeypatch.setattr(mcp_server, "agent_server", mcp_server.agent_server.__wrapped__)

    assert mcp_server.main([]) == 1
    printed = capsys.readouterr()
    assert (printed.out, sentence in printed.err) == ("", True)


def test_a_wrong_key_ends_the_program_with_a_sentence_that_does_not_show_it(server):
    if str(server.base_url) == HERE:
        with pytest.raises(ToolError, match=r"(?i)401 UNAUTHORIZED: The key is wrong, was revoked or has expired"):
            tools(server, "wrong" * 8)
        return
    environment = {**os.environ, "AGENT_SERVER_URL": str(server.base_url), "SESSION_API_KEY": "wrong" * 8}
    done = subprocess.run(
        [sys.executable, "-m", "admin", "mcp"], cwd=PROJECT, env=environment, capture_output=True, text=True, input=""
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "401 UNAUTHORIZED: The key is wrong, was revoked or has expired" in done.stderr
    assert "Traceback" not in done.stderr
    assert "wrongwrong" not in done.stderr


@pytest.mark.process("starts a program")
def test_a_missing_package_ends_the_program_with_a_sentence(tmp_path):
    (tmp_path / "mcp.py").write_text("raise ImportError('not here')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PROJECT}"}
    command = [sys.executable, "-m", "admin", "mcp"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, input="", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr == "mcp_server: the package mcp is not installed: pip install -r requirements.txt\n"


def test_a_refusal_of_the_server_is_a_tool_error_with_its_sentence(server, waiting):
    unknown = called(server, ADMIN, "read_events", conversation_id=str(uuid4()))
    assert (unknown.is_error, "404 not found: conversation not found" in text(unknown).lower()) == (True, True)

    refused = called(server, key(server, "read"), "send_message", conversation_id=waiting, text="hello")
    assert (
        refused.is_error,
        "403 forbidden: this needs a key with the scope write" in text(refused).lower(),
    ) == (True, True)

    invalid = called(server, ADMIN, "list_conversations", execution_status="asleep")
    assert invalid.is_error
    assert "Input should be one of idle, running" in text(invalid)

    no_id = called(server, ADMIN, "read_events", conversation_id="../../v1/keys")
    assert (no_id.is_error, "UUID" in text(no_id)) == (True, True)


# who may what


@pytest.mark.parametrize("scopes", [["read"], ["write"], ["approve"], ["write", "approve"]])
def test_the_tools_that_decide_and_start_are_there_for_keys_that_may_alone(server, scopes):
    found = tools(server, key(server, *scopes))

    of_approvers = {"decide_pending_action", "decide_destination", "list_files", "read_file"}
    deciding = of_approvers if "approve" in scopes else set()
    starting = {"start_agent"} if "write" in scopes else set()
    assert set(found) == READING | {"send_message"} | deciding | starting
    assert all(found[name].annotations.read_only_hint for name in READING)


def test_the_tool_that_decides_demands_the_digest_and_says_that_a_person_decides(server):
    assert tools(server, ADMIN)["decide_destination"].annotations.destructive_hint
    decide = tools(server, ADMIN)["decide_pending_action"]

    assert {"conversation_id", "action_id", "decision", "digest"} <= set(decide.input_schema["required"])
    assert "confirmation" not in decide.input_schema["properties"]
    assert "You are never the one who decides" in decide.description
    assert decide.annotations.destructive_hint


def test_a_key_that_is_not_there_decides_nothing_even_where_the_tool_is_called(server, waiting):
    arguments = {"conversation_id": waiting, "action_id": "x", "decision": "approve", "digest": "0" * 64}
    refused = called(server, key(server, "write"), "decide_pending_action", **arguments)

    assert (refused.is_error, "Unknown tool" in text(refused)) == (True, True)


# reading and sending


def test_an_assistant_reads_what_the_server_has(server, waiting):
    async def read(client):
        page = (await client.call_tool("list_conversations", {"execution_status": "waiting_for_confirmation"})).content
        events = await client.call_tool("read_events", {"conversation_id": waiting, "kind": "MessageEvent"})
        count = await client.call_tool("count_events", {"conversation_id": waiting, "source": "user"})
        return json.loads(page[0].text), events.structured_content, count.structured_content

    page, events, count = with_client(server, key(server, "read"), read)

    [found] = [one for one in page["items"] if one["id"] == waiting]
    assert (found["title"], found["execution_status"]) == ("Tidy up", "waiting_for_confirmation")
    assert [event["llm_message"]["content"][0]["text"] for event in events["items"]] == ["tidy up"]
    assert count == {"result": 1}


def test_a_message_is_sent_in_the_name_of_the_user(server, conversation):
    assert server.post("/api/conversations", json={"conversation_id": conversation}).status_code == 201
    sent = called(server, key(server, "write"), "send_message", conversation_id=conversation, text="go", run=False)

    assert not sent.is_error
    [event] = server.get(f"/api/conversations/{conversation}/events/search").json()["items"]
    assert (event["source"], event["llm_message"]["content"][0]["text"]) == ("user", "go")


# starting, following and fetching


def test_an_agent_is_followed_by_seq_and_its_answer_comes_at_the_end(server, conversation):
    assert server.post("/api/conversations", json={"conversation_id": conversation}).status_code == 201
    long = message("x" * 10_000, "agent")
    events = [message("go"), long, status("running"), message("It is 42.", "agent"), status("finished")]
    server.post(f"/api/v1/webhooks/events/{conversation}", json=events)

    async def follow(client):
        first = (
            await client.call_tool("follow_agent", {"conversation_id": conversation, "wait": 0})
        ).structured_content
        rest = {"conversation_id": conversation, "wait": 0, "after_seq": first["next_after_seq"]}
        return first, (await client.call_tool("follow_agent", rest)).structured_content

    first, rest = with_client(server, key(server, "read"), follow)

    assert [one["id"] for one in first["events"]] == [one["id"] for one in events]
    cut = first["events"][1]["llm_message"]["content"][0]["text"]
    assert ("characters are not shown here" in cut, len(cut) <= 4000) == (True, True)
    assert first["next_after_seq"] == 5
    assert rest == {"execution_status": "finished", "events": [], "next_after_seq": 5, "answer": "It is 42."}


def test_what_does_not_fit_into_one_result_follows_in_the_next(server, conversation):
    assert server.post("/api/conversations", json={"conversation_id": conversation}).status_code == 201
    events = [message(str(number) * 4000, "agent") for number in range(9)] * 3
    for start in range(0, 27, 9):
        fresh = [{**one, "id": str(uuid4())} for one in events[start : start + 9]]
        server.post(f"/api/v1/webhooks/events/{conversation}", json=fresh)

    async def follow(client):
        after, sizes = 0, []
        while after < 27:
            asked = {"conversation_id": conversation, "wait": 0, "after_seq": after}
            page = (await client.call_tool("follow_agent", asked)).structured_content
            after, sizes = page["next_after_seq"], [*sizes, len(page["events"])]
        return sizes

    sizes = with_client(server, key(server, "read"), follow)

    assert (sum(sizes), len(sizes)) == (27, 2)


def test_the_specs_that_can_be_started_are_listed(server):
    assert "reference-agent" in called(server, key(server, "read"), "list_specs").structured_content["result"]


def test_the_server_tells_its_version(server):
    async def version(client):
        return client.server_info.version

    assert with_client(server, key(server, "read"), version) == API_VERSION


def test_a_list_is_one_structured_result(server):
    listed = called(server, key(server, "read"), "list_specs")

    assert [json.loads(block.text) for block in listed.content] == [listed.structured_content]
    assert isinstance(listed.structured_content["result"], list)


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("list_conversations", {"limit": 1000}, "The argument limit must be a whole number from 1 to 100, not 1000."),
        ("count_events", {"conversation_id": "x"}, 'The argument conversation_id must be a UUID, not "x".'),
        ("count_events", {}, "The argument conversation_id is missing: give a UUID."),
        (
            "list_pending_actions",
            {"security_risk": "big"},
            "The argument security_risk must be one of UNKNOWN, LOW, MEDIUM, HIGH or absent, not",
        ),
        ("send_message", {"conversation_id": str(uuid4()), "text": ""}, "text must be text that is not empty, not"),
        ("list_specs", {"page": 2}, "list_specs has no argument page. Its arguments are: none."),
        ("count_events", {"conversation_id": str(uuid4()), "knd": "x"}, "count_events has no argument knd. Its"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name_and_what_it_may_be(server, tool, arguments, sentence):
    refused = called(server, key(server, "write"), tool, **arguments)

    assert (refused.is_error, sentence in text(refused)) == (True, True), text(refused)
    assert ("pydantic" in text(refused), "http" in text(refused)) == (False, False)


def test_the_files_of_a_conversation_without_a_sandbox_are_an_error_with_the_servers_sentence(server, conversation):
    server.post("/api/conversations", json={"conversation_id": conversation})
    for tool, members in (("list_files", {}), ("read_file", {"path": "a.txt"})):
        refused = called(server, key(server, "approve"), tool, conversation_id=conversation, **members)
        assert (refused.is_error, "404" in text(refused)) == (True, True)


# what waits, and the person's decision


def item(server, conversation) -> dict:
    [found] = server.get("/api/v1/pending-actions", params={"conversation_id": conversation}).json()["items"]
    return found


def decision(server, conversation, **others) -> dict:
    found = item(server, conversation)
    words = {"conversation_id": conversation, "action_id": found["action_id"], "digest": found["digest"]}
    return {**words, "decision": "approve", **others}


def person(action: str, asked: list, **content):
    """A client that can ask its person, who says always the same."""

    async def say(_context, question):
        asked.append(question.message)
        return ElicitResult(action=action, content=content or None)

    return {"elicitation_callback": say}


def status_of(server, conversation) -> str:
    return server.get(f"/api/conversations/{conversation}").json()["execution_status"]


def test_an_assistant_sees_what_waits(server, waiting):
    async def look(client):
        found = await client.call_tool("list_pending_actions", {"conversation_id": waiting, "tool_name": "terminal"})
        count = await client.call_tool("count_pending_actions", {"conversation_id": waiting, "text": "rm -rf"})
        return found.structured_content, count.structured_content

    found, count = with_client(server, key(server, "read"), look)

    assert found["items"] == [item(server, waiting)]
    assert count == {"result": 1}


def test_a_decision_about_another_action_than_was_shown_is_an_error_and_decides_nothing(server, waiting):
    wrong = decision(server, waiting, digest="0" * 64)
    refused = called(server, key(server, "approve"), "decide_pending_action", **wrong)

    assert (refused.is_error, "409 conflict" in text(refused).lower(), "digest differs" in text(refused)) == (
        True,
        True,
        True,
    )
    assert status_of(server, waiting) == "waiting_for_confirmation"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("action", "content"), [("decline", {}), ("cancel", {}), ("accept", {"confirmed": False}), ("accept", {})]
)
def test_what_the_person_does_not_confirm_is_not_decided(server, waiting, action, content, mode):
    asked = []
    options = {**person(action, asked, **content), "mode": mode}
    refused = called(server, ADMIN, "decide_pending_action", options, **decision(server, waiting))

    assert refused.is_error
    assert len(asked) == 1
    assert status_of(server, waiting) == "waiting_for_confirmation"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_person_is_shown_the_action_as_the_server_has_it(server, waiting, mode):
    asked, wanted = [], decision(server, waiting)
    options = {**person("accept", asked, confirmed=True), "mode": mode}
    decided = called(server, key(server, "approve"), "decide_pending_action", options, **wanted)

    assert not decided.is_error, text(decided)
    [question] = asked
    shown = ("Approve this action", "Tidy up", "terminal", "rm -rf \\u{202e}txt", wanted["digest"])
    assert [one for one in shown if one not in question] == []
    assert status_of(server, waiting) == "running"
    entries = server.get(f"/api/conversations/{waiting}/events/search").json()["items"]
    assert entries[-1]["value"] == "running"


def test_the_person_is_not_asked_about_an_action_that_is_not_the_shown_one(server, waiting):
    asked, wrong = [], decision(server, waiting, digest="0" * 64)
    options = person("accept", asked, confirmed=True)
    refused = called(server, ADMIN, "decide_pending_action", options, **wrong)

    assert (refused.is_error, "list the pending actions again" in text(refused), asked) == (True, True, [])


def test_an_action_that_is_too_long_to_be_asked_about_is_left_to_the_inbox(server, conversation):
    body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    server.post("/api/conversations", json=body)
    server.post(f"/api/v1/webhooks/events/{conversation}", json=[action("x" * 9000)])
    asked = []
    options = person("accept", asked, confirmed=True)
    refused = called(server, ADMIN, "decide_pending_action", options, **decision(server, conversation))

    assert (refused.is_error, "too long to be shown" in text(refused), asked) == (True, True, [])


def test_the_person_is_told_that_less_is_shown_than_will_run(server, conversation):
    body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    server.post("/api/conversations", json=body)
    words = {"kind": "MCPToolAction", "data": {"title": "touch proof", "_incomplete": "The agent shows words."}}
    server.post(f"/api/v1/webhooks/events/{conversation}", json=[action(action=words, tool_name="execute")])
    asked = []
    options = person("decline", asked)
    called(server, ADMIN, "decide_pending_action", options, **decision(server, conversation))

    assert item(server, conversation)["complete"] is False
    assert asked[0].startswith("What is shown here is less than what will run")


def test_a_client_that_cannot_ask_carries_the_persons_word(server, waiting):
    rejected = decision(server, waiting, decision="reject", reason="Not on a Friday")
    decided = called(server, key(server, "approve"), "decide_pending_action", **rejected)

    assert not decided.is_error, text(decided)
    events = server.get(f"/api/conversations/{waiting}/events/search").json()["items"]
    assert [one["rejection_reason"] for one in events if one["kind"] == "UserRejectObservation"] == ["Not on a Friday"]
    again = called(server, ADMIN, "decide_pending_action", **rejected)
    assert (again.is_error, "409 conflict" in text(again).lower()) == (True, True)


@pytest.fixture
def asking(server, redis_url):
    """A destination that a sandbox asks for, as the server's list has it; what waits then ends with the test."""
    url = redis_url if str(server.base_url) == HERE else shared_server(ADMIN).url
    store = store_of(url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120))
    store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("spec").id
    store.destinations.verdict(sandbox, "mcp.example.org", 443, "curl")
    [item] = server.get("/api/v1/destinations", params={"sandbox_id": sandbox}).json()["items"]
    yield item
    for one in store.destinations.waiting(sandbox):
        store.destinations.decide(one, "reject", "conversation", DecisionActor("key", "me"))
    store.sandboxes.ask(sandbox, "delete")


def test_a_destination_is_listed_and_what_a_person_decided_is_carried_out(server, asking):
    shown_key = key(server, "approve", "read")
    found = called(server, shown_key, "list_destinations", sandbox_id=asking["sandbox_id"])
    assert json.loads(text(found))["items"] == [asking]

    bound = {name: asking[name] for name in ("sandbox_id", "name", "port", "digest")}
    wrong = {**bound, "digest": 64 * "0", "decision": "approve", "scope": "once"}
    assert "409" in text(called(server, shown_key, "decide_destination", **wrong))
    wanted = {**bound, "decision": "approve", "scope": "once"}
    assert json.loads(text(called(server, shown_key, "decide_destination", **wanted)))["success"]
    assert "404" in text(called(server, shown_key, "decide_destination", **wanted))


def test_no_tool_makes_a_rule(server, waiting, asking):
    def rules():
        return [server.get(f"/api/v1/{name}-rules").json() for name in ("approval", "destination")]

    before, shown_key = rules(), key(server, "approve", "read", "write")
    bound = {name: asking[name] for name in ("sandbox_id", "name", "port", "digest")}
    for verb in ("approve", "reject"):
        refused = called(server, shown_key, "decide_destination", **bound, decision=verb, scope="always")
        assert refused.is_error, text(refused)
    called(server, shown_key, "decide_pending_action", **decision(server, waiting), always=True)

    assert rules() == before
    assert not [name for name in tools(server, shown_key) if "rule" in name]


def test_a_budget_is_listed_and_what_a_person_decided_is_carried_out(server, redis_url):
    url = redis_url if str(server.base_url) == HERE else shared_server(ADMIN).url
    store = store_of(url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120))
    store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("spec").id
    words = {"more": ModelBudget(tokens=200), "day": store.spending.so_far(sandbox).today}
    store.spending.refuse(sandbox, "", "MODEL_BUDGET_CONVERSATION", "127.0.0.1", 80, "Used up", **words)
    shown_key = key(server, "approve", "read")
    [item] = json.loads(text(called(server, shown_key, "list_destinations", sandbox_id=sandbox)))["items"]
    assert (item["subject"], item["budget"]["tokens"]) == ("budget", 200)

    bound = {"sandbox_id": sandbox, "budget": item["budget"]["setting"], "digest": item["digest"]}
    wanted = {**bound, "decision": "approve", "scope": "once"}
    assert json.loads(text(called(server, shown_key, "decide_destination", **wanted)))["success"]
    assert store.spending.of_sandbox(sandbox).allowed_tokens == 200
    assert "404" in text(called(server, shown_key, "decide_destination", **wanted))
    store.sandboxes.ask(sandbox, "delete")
