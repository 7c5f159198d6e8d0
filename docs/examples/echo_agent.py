"""An agent as an outside program: follows a conversation by socket, and acts while the conversation runs.

    python docs/examples/echo_agent.py CONVERSATION_ID [BASE_URL]

The agent proposes each `run: CMD` line of a user's message as an action. It executes the action at once, or after a
person's approval, as the conversation's policy says, and posts the output. It replies to other messages with text.

The agent tells the server that it accepts single decisions and edits. It executes a waiting action only if the server
names it as approved, with the arguments as edited by a person.

Guarantee: the agent and the server may be stopped and restarted at any time. The agent reads its whole state from the
log and the approvals from the server, and the log keeps an event only once if it is posted twice. Limitation: a command
that runs while the agent is killed is executed again.

BASE_URL is the server's; default: AGENT_SERVER_URL, otherwise this machine at PORT (8000). A key comes from
SESSION_API_KEY, otherwise from the file `key` in DATA_DIR; a server on loopback needs none.
"""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

#: Timeout of a command, and pause between two tries to reach the server, in seconds.
COMMAND_SECONDS, RETRY_SECONDS = 60, 0.5

HERE = os.environ.get("AGENT_SERVER_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
KEY_FILE = Path(os.environ.get("DATA_DIR") or "data", "key")
KEY = os.environ.get("SESSION_API_KEY") or (KEY_FILE.read_text().strip() if KEY_FILE.exists() else "")
HEADERS = {"X-Session-API-Key": KEY} if KEY else {}

Event = dict[str, Any]


class EchoAgent:
    """The state of a conversation according to its log, and the agent's next step."""

    def __init__(self, conversation_id: str, base_url: str) -> None:
        self.webhook = f"/api/v1/webhooks/events/{conversation_id}"
        self.decisions = f"/api/v1/conversation/{conversation_id}/pending-actions/decisions"
        self.socket = f"{base_url.replace('http', 'ws', 1)}/sockets/events/{conversation_id}"
        # A proxy from the environment does not reach a server on loopback. With a transport, httpx ignores it.
        self.direct = httpx.URL(base_url).host in ("localhost", "127.0.0.1", "::1")
        transport = httpx.HTTPTransport() if self.direct else None
        self.http = httpx.Client(base_url=base_url, timeout=30, headers=HEADERS, transport=transport)
        self.seq = self.known = 0  # of the last received event, and of the last event known to be in the log
        self.status = "idle"
        self.message: Event = {}
        self.actions: dict[str, Event] = {}
        self.held: set[str] = set()  # actions that have waited for a decision
        self.observed: set[str] = set()
        self.capabilities = event(
            "ConversationStateUpdateEvent",
            id=str(uuid5(NAMESPACE_URL, f"{conversation_id} capabilities")),
            key="full_state",  # not kept in the log
            value={"capabilities": ["decide_each", "edit"]},
        )

    def follow(self) -> None:
        """Follow forever. After a lost connection continue after the last received event."""
        while True:
            try:
                with connect(
                    f"{self.socket}?after_seq={self.seq}",
                    max_size=None,
                    additional_headers=HEADERS,
                    proxy=None if self.direct else True,
                ) as socket:
                    self.post(self.capabilities)
                    self.act()
                    for text in socket:
                        self.receive(**json.loads(text))
                        self.act()
            except (OSError, WebSocketException, httpx.HTTPError) as error:
                if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
                    sys.exit(
                        f"{str(self.http.base_url).rstrip('/')} refuses the key: put a valid one into SESSION_API_KEY."
                    )
                print(f"trying again: {error}", file=sys.stderr)
                time.sleep(RETRY_SECONDS)

    def receive(self, seq: int | None, event: Event) -> None:
        """Apply one event to the state. An event without a seq is not in the log."""
        if seq is None:
            return
        self.seq = seq
        if event["kind"] == "MessageEvent" and event["source"] == "user":
            self.message = event
        elif event["kind"] == "ActionEvent":
            self.actions[event["id"]] = event
        elif "action_id" in event:
            self.observed.add(event["action_id"])
        elif event.get("key") == "execution_status":
            self.status = event["value"]
            if self.status == "waiting_for_confirmation":
                self.held |= self.actions.keys() - self.observed

    def act(self) -> None:
        """Execute, propose or reply, step by step, while the conversation runs and the whole log was received."""
        while self.status == "running" and self.seq >= self.known:
            if approved := self.approved():
                self.execute(*approved[0])
            elif commands := self.new_commands():
                self.post(*(action(self.message, number, command) for number, command in enumerate(commands)))
            else:
                finished = event("ConversationStateUpdateEvent", key="execution_status", value="finished")
                self.post(*self.reply(), finished)

    def approved(self) -> list[tuple[Event, Event]]:
        """Return the actions to execute, each with its decision; {} if it never waited."""
        open_ids = [one for one in self.actions if one not in self.observed]
        decisions: dict[str, Event] = {one: {} for one in open_ids if one not in self.held}
        if len(decisions) < len(open_ids):
            decided = self.http.get(self.decisions).raise_for_status().json()
            decisions |= {one["action_id"]: one for one in decided if one["action_id"] in open_ids}
        return [(self.actions[one], decisions[one]) for one in open_ids if one in decisions]

    def new_commands(self) -> list[str]:
        """Return the commands of the last message, unless they were already proposed."""
        if any(one["llm_response_id"] == self.message["id"] for one in self.actions.values()):
            return []
        return commands_of(self.message)

    def execute(self, action: Event, decision: Event) -> None:
        """Execute an action as it was approved, and post the output."""
        edited = decision.get("arguments")
        command = (action["action"] if edited is None else edited).get("command")
        if not isinstance(command, str):
            command = "echo the edited arguments have no command; exit 2"
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS
            )
            output, code = (done.stdout + done.stderr).decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired:
            output, code = f"Killed: it did not end within {COMMAND_SECONDS} s.", -1
        notice = [] if edited is None else [f"A person has edited the arguments: {json.dumps(edited)}"]
        content = [{"type": "text", "text": text} for text in (*notice, output)]
        observation = {"content": content, "is_error": code != 0, "command": command}
        observation |= {"exit_code": code, "kind": "TerminalObservation"}
        about = {"tool_name": "terminal", "tool_call_id": action["tool_call_id"], "action_id": action["id"]}
        self.post(event("ObservationEvent", **about, observation=observation))

    def reply(self) -> list[Event]:
        if not self.message or commands_of(self.message):
            return []
        content = [{"type": "text", "text": f"You said: {text_of(self.message)}"}]
        identity = str(uuid5(NAMESPACE_URL, f"{self.message['id']} reply"))
        return [event("MessageEvent", "agent", id=identity, llm_message={"role": "assistant", "content": content})]

    def post(self, *events: Event) -> None:
        self.known = self.http.post(self.webhook, json=events).raise_for_status().json()["seq"]


def event(kind: str, source: str = "environment", **members: Any) -> Event:
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return {"id": str(uuid4()), "timestamp": now, "source": source, **members, "kind": kind}


def action(message: Event, number: int, command: str) -> Event:
    """Return a command of a message as an action. A repeated proposal has the same id."""
    identity = str(uuid5(NAMESPACE_URL, f"{message['id']} {number}"))
    arguments = {"command": command, "is_input": False, "reset": False}
    call = {"id": f"call_{identity}", "name": "terminal", "arguments": json.dumps(arguments), "origin": "completion"}
    details = {"id": identity, "thought": [], "action": {**arguments, "kind": "TerminalAction"}}
    details |= {"tool_name": "terminal", "tool_call_id": call["id"], "tool_call": call}
    return event("ActionEvent", "agent", **details, llm_response_id=message["id"], security_risk="UNKNOWN")


def text_of(message: Event) -> str:
    return "\n".join(part["text"] for part in message["llm_message"]["content"] if part["type"] == "text")


def commands_of(message: Event) -> list[str]:
    lines = text_of(message).split("\n") if message else []
    return [line.partition("run:")[2].strip() for line in lines if line.strip().startswith("run:")]


if __name__ == "__main__":
    EchoAgent(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else HERE).follow()
