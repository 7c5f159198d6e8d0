"""What upstream's own tests of a live server try, by URL alone, as one process of the published SDK.

    .venv-openhands/bin/python tests/interop/upstream.py cases URL KEY [CASE…]

Plays all cases, or those that are named. Prints one JSON object per case: `step` names it, the other members are what
was seen; `error` is what it raised. LLM_BASE_URL names the scripted model. Source: the file
tests/cross/test_remote_conversation_live_server.py of OpenHands/software-agent-sdk, and its example 01. Left out is
what looks into the server's process (tools that are preloaded into it, its locks, its registry) and what is about the
client alone (its reconciliation after a run).
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from openhands.sdk import Conversation, RemoteConversation
from openhands.sdk.context import AgentContext, Skill
from openhands.sdk.event import ActionEvent, ConversationStateUpdateEvent, HookExecutionEvent
from openhands.sdk.hooks import HookConfig, HookDefinition, HookMatcher
from openhands.sdk.security.confirmation_policy import NeverConfirm

from client import KEY, URL, WORDS, agent, run, tell, workspace

#: seconds in which what a case waits for must be there, and in which a worker of a loaded machine answers
SECONDS = 60

Seen = dict[str, Any]


def asked() -> httpx.Client:
    """A client that asks the server without the SDK."""
    return httpx.Client(base_url=URL, headers={"X-Session-API-Key": KEY}, timeout=SECONDS)


def began(**members: Any) -> RemoteConversation:
    """A new conversation that asks nobody, and ends with its client."""
    conversation = Conversation(
        agent=members.pop("agent", None) or agent(),
        workspace=members.pop("workspace", None) or workspace(),
        visualizer=None,
        delete_on_close=True,
        **members,
    )
    conversation.set_confirmation_policy(NeverConfirm())
    return conversation


def until(is_so: Callable[[], bool]) -> bool:
    """Whether something became so in time."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def status_of(http: httpx.Client, identity: Any) -> str:
    return http.get(f"/api/conversations/{identity}").raise_for_status().json()["execution_status"]


def health() -> Seen:
    """Whether a server lives is told to a client without a key, in the words that it looks for."""
    with httpx.Client(base_url=URL, timeout=SECONDS) as http:
        return {path: http.get(path).json() for path in ("/alive", "/health")}


def tools_of_the_server() -> Seen:
    with asked() as http:
        return {"terminal": "terminal" in http.get("/server_info").json()["usable_tools"]}


def workspace_before_a_conversation() -> Seen:
    """A command, and a file there and back, by a workspace whose client has started no conversation."""
    alone = workspace()
    line = "echo 'Hello' && echo 'Line 2' && expr 5 + 3"
    found = alone.execute_command(line, timeout=3 * SECONDS)  # a sandbox may have to start first
    with tempfile.TemporaryDirectory() as name:
        there, back = Path(name, "there.txt"), Path(name, "back.txt")
        there.write_text("line 1\nline 2\n")
        taken = alone.file_upload(there, f"{alone.working_dir}/uploaded.txt")
        given = alone.file_download(f"{alone.working_dir}/uploaded.txt", back)
        return {
            "command": [found.exit_code, found.timeout_occurred, found.stdout.split()],
            "file": [taken.success, given.success, back.read_text() if given.success else given.error],
        }


def message_and_run() -> Seen:
    """A message is in the log at once, as example 01 needs it; the client sees what comes of it over its socket."""
    conversation = began()
    conversation.send_message("Say hello")
    path, query = f"/api/conversations/{conversation.id}/events/count", {"kind": "MessageEvent", "source": "user"}
    at_once = conversation.workspace.client.get(path, params=query).json()
    status = run(conversation)
    events = conversation.state.events
    is_told = until(lambda: any(isinstance(one, ConversationStateUpdateEvent) for one in events))
    has_spoken = until(lambda: any(one.source == "agent" for one in events))
    conversation.close()
    return {"at_once": at_once, "status": status, "state_update": is_told, "agent": has_spoken}


def statistics() -> Seen:
    """What the model used is zero before a run, and told after it, by the client and in the member `stats`."""
    conversation = began()
    before = conversation.conversation_stats.get_combined_metrics().accumulated_token_usage
    conversation.send_message("a question")
    run(conversation)

    def used() -> int:
        usage = conversation.conversation_stats.get_combined_metrics().accumulated_token_usage
        return usage.prompt_tokens if usage else 0

    is_told = until(lambda: used() > 0)
    has_member = bool(conversation.state.refresh_from_server().get("stats"))
    conversation.close()
    return {"before": before.prompt_tokens if before else 0, "told": is_told, "member": has_member}


def events_without_a_socket() -> Seen:
    """A run whose client has left is in the log to its end."""
    conversation = began()
    conversation.delete_on_close = False
    conversation.send_message("run: echo there")
    with asked() as http:
        place = f"/api/conversations/{conversation.id}"
        http.post(f"{place}/run").raise_for_status()
        conversation.close()
        is_over = until(lambda: status_of(http, conversation.id) == "finished")
        kinds = ("ActionEvent", "ObservationEvent")
        counts = {kind: http.get(f"{place}/events/count", params={"kind": kind}).json() for kind in kinds}
        final = http.get(f"{place}/agent_final_response").json()
        unknown = http.get(f"/api/conversations/{uuid4()}/agent_final_response").status_code
        http.delete(place)
    return {"over": is_over, "counts": counts, "final": final, "unknown": unknown}


def risks() -> Seen:
    """Each action has a risk, UNKNOWN where no analyzer rates it, also one whose call names none."""
    conversation = began()
    conversation.send_message("run: echo there")
    run(conversation)
    found = [[one.tool_name, str(one.security_risk.value)] for one in seen(conversation, ActionEvent)]
    conversation.close()
    return {"found": found}


def hooks() -> Seen:
    """The hooks of a start are executed beside the agent, and their events come to the client."""
    allow = HookMatcher(matcher="*", hooks=[HookDefinition(command='echo \'{"decision": "allow"}\'', timeout=10)])
    conversation = began(hook_config=HookConfig(post_tool_use=[allow], stop=[allow]))
    conversation.send_message("run: echo there")
    status = run(conversation)

    def types() -> list[str]:
        good = [one for one in seen(conversation, HookExecutionEvent) if one.success and not one.blocked]
        return sorted({str(one.hook_event_type) for one in good})

    until(lambda: len(types()) == 2)
    found = types()
    conversation.close()
    return {"status": status, "types": found}


def sub_agents() -> Seen:
    """A start takes the definitions of agents that the client has registered."""
    members = {"name": "reviewer", "description": "Reviews", "tools": ["terminal"], "system_prompt": "You review."}
    body = {
        "agent": agent().model_dump(mode="json", context={"expose_secrets": True}),
        "workspace": {"working_dir": "/tmp/interop"},
        "agent_definitions": [members],
    }
    with asked() as http:
        response = http.post("/api/conversations", json=body)
        if response.is_success:
            http.delete(f"/api/conversations/{response.json()['id']}")
    return {"status": response.status_code}


def skills() -> Seen:
    """A skill that the agent has invoked is told in the state."""
    skill = Skill(
        name="converter",
        content="Convert.",
        description="Converts.",
        source="/tmp/SKILL.md",
        is_agentskills_format=True,
    )
    conversation = began(agent=agent().model_copy(update={"agent_context": AgentContext(skills=[skill])}))
    before = conversation.state.invoked_skills
    conversation.send_message("skill: converter")
    run(conversation)
    until(lambda: bool(conversation.state.refresh_from_server().get("invoked_skills")))
    after = conversation.state.invoked_skills
    conversation.close()
    return {"before": before, "after": after}


def pause() -> Seen:
    """A pause is in the state at once."""
    conversation = began()
    conversation.send_message("a question")
    conversation.pause()
    with asked() as http:
        status = status_of(http, conversation.id)
    conversation.close()
    return {"status": status}


def interrupt() -> Seen:
    """An interrupt ends the call of a slow model, and is an event."""
    conversation = began()
    conversation.send_message("slow: 20")
    with asked() as http:
        place = f"/api/conversations/{conversation.id}"
        http.post(f"{place}/run").raise_for_status()
        has_begun = until(lambda: status_of(http, conversation.id) == "running")
        asked_to = http.post(f"{place}/interrupt").status_code
        is_paused = until(lambda: status_of(http, conversation.id) == "paused")
        query = {"kind": "openhands.sdk.event.user_action.InterruptEvent"}
        found = len(http.get(f"{place}/events/search", params=query).json()["items"])
    conversation.close()
    return {"begun": has_begun, "status": asked_to, "paused": is_paused, "events": found}


def settings() -> Seen:
    """Settings, servers of tools and secrets, but for the values of secrets, which this server gives to nobody."""
    with asked() as http:
        known = http.get("/api/settings").json()
        model = http.patch("/api/settings", json={"agent_settings_diff": {"llm": {"model": "gpt-4o"}}}).json()
        made = http.post("/api/settings/mcp/docs", json={"transport": "http", "url": "https://docs.example/mcp"})
        told = http.patch("/api/settings/mcp/docs", json={"description": "Documentation"}).json()
        gone = http.delete("/api/settings/mcp/docs").json()
        secret = {"name": "TEST_API_KEY", "value": "sk-test", "description": "A key"}
        kept = http.put("/api/settings/secrets", json=secret).json()
        names = [one["name"] for one in http.get("/api/settings/secrets").json()["secrets"]]
        words = http.get("/api/settings/secrets").text
        bad = [
            http.put("/api/settings/secrets", json={"name": name, "value": "x"}).status_code
            for name in ("123_invalid", "invalid-name")
        ]
        deleted = http.delete("/api/settings/secrets/TEST_API_KEY").json()
        left = http.get("/api/settings/secrets").json()["secrets"]
        key = {"agent_settings_diff": {"llm": {"api_key": "sk-live-test-key"}}}
        masked = http.patch("/api/settings", json=key).json()
    return {
        "members": {"agent_settings", "conversation_settings", "llm_api_key_is_set"} <= {*known},
        "model": model["agent_settings"]["llm"]["model"],
        "server": [made.status_code, told["agent_settings"]["mcp_config"]["docs"]["description"]],
        "gone": "docs" not in gone["agent_settings"]["mcp_config"],
        "secret": [kept["name"], kept["description"], names, "sk-test" in words, bad, deleted["deleted"], left],
        "masked": [masked["llm_api_key_is_set"], masked["agent_settings"]["llm"]["api_key"]],
    }


def seen(conversation: RemoteConversation, kind: type) -> list[Any]:
    return [event for event in conversation.state.events if isinstance(event, kind)]


CASES = (
    health,
    tools_of_the_server,
    workspace_before_a_conversation,
    message_and_run,
    statistics,
    events_without_a_socket,
    risks,
    hooks,
    sub_agents,
    skills,
    pause,
    interrupt,
    settings,
)

if __name__ == "__main__":
    for case in (one for one in CASES if not WORDS or one.__name__ in WORDS):
        try:
            found = case()
        except Exception as error:  # told, so that the cases after it are tried too
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        tell(case.__name__, **json.loads(json.dumps(found, default=str)))
