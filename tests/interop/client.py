"""The published SDK's client as a process of its own, for it needs a newer Python than the tests.

    .venv-openhands/bin/python tests/interop/client.py SCENARIO URL KEY [WORD…]

Prints one JSON object per line as it goes: `step` says what was done, the other members its result. LLM_BASE_URL
names the scripted model.
"""

import json
import os
import sys
from typing import Any
from uuid import UUID

import httpx
from openhands.sdk import LLM, Agent, Conversation, RemoteConversation, Tool, Workspace
from openhands.sdk.event import ActionEvent, AgentErrorEvent, ObservationEvent, UserRejectObservation
from openhands.sdk.security.confirmation_policy import AlwaysConfirm, NeverConfirm
from pydantic import SecretStr

SCENARIO, URL, KEY, *WORDS = sys.argv[1:]

#: seconds that a run may take here
RUN_SECONDS = 120


def tell(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, **found}), flush=True)


def workspace() -> Workspace:
    return Workspace(host=URL, working_dir="/tmp/interop", api_key=KEY)


def agent() -> Agent:
    import openhands.tools.terminal  # noqa: F401 - registers the tool; `attach` must do without

    url = os.environ["LLM_BASE_URL"]
    llm = LLM(model="openai/scripted", base_url=url, api_key=SecretStr("none"), usage_id="agent", num_retries=1)
    return Agent(llm=llm, tools=[Tool(name="terminal")])


def started(conversation_id: str | None = None, *, delete: bool = False) -> RemoteConversation:
    """A conversation that is new, or has that id."""
    known = {"conversation_id": UUID(conversation_id)} if conversation_id else {}
    return Conversation(agent=agent(), workspace=workspace(), visualizer=None, delete_on_close=delete, **known)


def run(conversation: RemoteConversation) -> str:
    """Run to the end of the run; the status afterwards."""
    conversation.run(timeout=RUN_SECONDS)
    return conversation.state.execution_status.value


def talk() -> None:
    """Reject, accept, run without asking, ask a question; the conversation stays."""
    converse(False)


def drive() -> None:
    """The same talk as often as the first word says, each time in a conversation of its own, which is deleted then."""
    for _ in range(int(WORDS[0])):
        converse(True)


def converse(delete: bool) -> None:
    conversation = started(delete=delete)
    tell("created", id=str(conversation.id))
    conversation.set_confirmation_policy(AlwaysConfirm())
    conversation.send_message("run: echo first")
    tell("proposed", status=run(conversation))
    conversation.reject_pending_actions("not today")
    conversation.send_message("run: echo second")
    tell("proposed", status=run(conversation))
    accepted = 0
    while conversation.state.execution_status.value == "waiting_for_confirmation" and accepted < 4:
        run(conversation)  # so the SDK accepts
        accepted += 1
    tell("accepted", times=accepted, status=conversation.state.execution_status.value)
    conversation.set_confirmation_policy(NeverConfirm())
    conversation.send_message("run: sleep 3; echo third")
    tell("runs")
    tell("ran", status=run(conversation))
    conversation.send_message("just a question?")
    tell("replied", status=run(conversation))
    tell("seen", **summary(conversation))
    again = started(str(conversation.id))
    missing = {event.id for event in conversation.state.events} - {event.id for event in again.state.events}
    tell(
        "attached",
        missing=[event.kind for event in conversation.state.events if event.id in missing and is_kept(event)],
    )
    again.close()
    conversation.close()


def is_kept(event: Any) -> bool:
    """Whether the log has the event: frames of the whole state are made for a socket alone."""
    return getattr(event, "key", None) != "full_state"


def seen(conversation: RemoteConversation, kind: type) -> list[Any]:
    return [event for event in conversation.state.events if isinstance(event, kind)]


def summary(conversation: RemoteConversation) -> dict[str, Any]:
    """What the client has of a conversation, without ids and times."""
    observed = [event.observation.text.strip() for event in seen(conversation, ObservationEvent)]
    return {
        "actions": [event.tool_name for event in seen(conversation, ActionEvent)],
        "observed": observed,
        "errors": [event.error for event in seen(conversation, AgentErrorEvent)],
        "rejected": [event.rejection_reason for event in seen(conversation, UserRejectObservation)],
    }


def runs() -> None:
    """As many runs in a row as the first word says; `early` are those that returned before the agent had replied."""
    conversation = started(delete=True)
    tell("created", id=str(conversation.id))
    conversation.set_confirmation_policy(NeverConfirm())
    early = []
    for number in range(1, int(WORDS[0]) + 1):
        conversation.send_message(f"question {number}")
        status = run(conversation)
        query = {"kind": "MessageEvent", "source": "agent"}
        path = f"/api/conversations/{conversation.id}/events/count"
        replies = conversation.workspace.client.get(path, params=query).json()
        if (status, replies) != ("finished", number):
            early.append([number, status, replies])
    tell("ran", early=early)
    conversation.close()


def attach() -> None:
    """Attach to a conversation in a process that has imported no tool."""
    conversation = RemoteConversation.attach(workspace(), UUID(WORDS[0]), visualizer=None)
    tell("attached", tools=[tool.name for tool in conversation.agent.tools], **summary(conversation))
    conversation.close()


def follow() -> None:
    """Tell the id of every event of a conversation, as it comes, until a message of the agent ends it."""
    ids: list[str] = []

    def note(event: Any) -> None:
        if is_kept(event) and event.id not in ids:
            ids.append(event.id)
            if event.kind == "MessageEvent" and event.source == "agent":
                tell("followed", ids=[event.id for event in conversation.state.events if is_kept(event)])

    conversation = RemoteConversation.attach(workspace(), UUID(WORDS[0]), visualizer=None, callbacks=[note])
    tell("follows")
    sys.stdin.read()
    conversation.close()


def accept() -> None:
    """Accept what waits in a conversation, as the SDK does: by a run."""
    conversation = RemoteConversation.attach(workspace(), UUID(WORDS[0]), visualizer=None)
    try:
        tell("accepted", status=run(conversation))
    except Exception as error:
        cause = error.__cause__
        tell("refused", status=cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else str(error))
    conversation.close()


def reject() -> None:
    """Reject what waits in a conversation, for the reason of the second word, and run."""
    conversation = RemoteConversation.attach(workspace(), UUID(WORDS[0]), visualizer=None)
    conversation.reject_pending_actions(WORDS[1])
    tell("rejected", status=conversation.state.execution_status.value)
    conversation.close()


def resume() -> None:
    """Send the second word as a message to a conversation, and run."""
    conversation = started(WORDS[0])
    conversation.set_confirmation_policy(NeverConfirm())
    conversation.send_message(WORDS[1])
    tell("runs")
    tell("ran", status=run(conversation), **summary(conversation))
    conversation.close()


if __name__ == "__main__":
    {each.__name__: each for each in (talk, drive, runs, attach, follow, accept, reject, resume)}[SCENARIO]()
