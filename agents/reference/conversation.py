"""The reference agent in one conversation, and the webhook client that posts its events. `__main__.py` serves it.

The agent turns each `run: CMD` line of a user's message into an action. It executes the action in the working directory
if the confirmation policy holds nothing back, or once a person accepts it. It replies to other messages with text.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx

#: seconds that a command may take, and bytes of its output that it reports
COMMAND_SECONDS, MOST_OUTPUT = 600, 100_000

#: the reason of a rejection by a new message
SUPERSEDED = "Superseded by a new user message."

Event = dict[str, Any]


def now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


class Webhooks:
    """Posts events and changes in order, and retries each until the webhook takes it."""

    def __init__(self, base_url: str, key: str) -> None:
        self._waiting: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._base_url = base_url
        self._client = httpx.Client(headers={"X-Session-API-Key": key}, timeout=30, trust_env=False)
        if base_url:
            threading.Thread(target=self._send, daemon=True).start()

    def put(self, path: str, body: Any) -> None:
        if self._base_url:
            self._waiting.put((path, body))

    def flush(self, seconds: float) -> None:
        """Wait until the webhook has taken everything, at most so many seconds."""
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _send(self) -> None:
        while True:
            path, body = self._waiting.get()
            pause = 0.1
            while not self._is_taken(path, body):
                time.sleep(pause)
                pause = min(2 * pause, 5.0)
            self._waiting.task_done()

    def _is_taken(self, path: str, body: Any) -> bool:
        """True if the webhook took the body, or refused it for good: then it is not posted again."""
        try:
            response = self._client.post(self._base_url + path, json=body)
        except httpx.HTTPError as error:
            print(f"webhook: {error}", file=sys.stderr)
            return False
        if not response.is_success:
            print(f"webhook: {path} {response.status_code} {response.text[:200]}", file=sys.stderr)
        return response.status_code < 500 and response.status_code not in (408, 429)


class Conversation:
    """One conversation and the thread that works in it while it runs."""

    def __init__(self, conversation_id: UUID, body: dict[str, Any], webhooks: Webhooks) -> None:
        self.id = conversation_id
        self.lock = threading.RLock()
        self.events: list[Event] = []
        self.status = "idle"
        self.policy = body.get("confirmation_policy") or {"kind": "NeverConfirm"}
        self.secrets: dict[str, str] = {}
        self._given = {name: body.get(name) for name in ("agent", "workspace", "title", "tags")}
        self._created = now()
        self._webhooks = webhooks
        self._unanswered: list[Event] = []  # messages
        self._open: list[Event] = []  # actions
        self._works = False
        self._process: subprocess.Popen[bytes] | None = None
        self.keep(body.get("secrets") or {})
        self._post_info()

    def info(self) -> dict[str, Any]:
        """The ConversationInfo of the agent-server wire."""
        return {
            "id": str(self.id),
            **self._given,
            "tags": self._given["tags"] or {},
            "execution_status": self.status,
            "confirmation_policy": self.policy,
            "stats": {"usage_to_metrics": {}},
            "created_at": f"{self._created}Z",
            "updated_at": f"{now()}Z",
        }

    def send(self, content: list[Event], run: bool) -> None:
        """Take a user's message. It rejects the pending actions and never approves them."""
        with self.lock:
            if self.status == "waiting_for_confirmation":
                self.decide(False, SUPERSEDED)
            message = {"role": "user", "content": content, "thinking_blocks": []}
            details = {"llm_message": message, "activated_skills": [], "extended_content": []}
            self._unanswered.append(self._add("MessageEvent", "user", **details))
            if self.status in ("finished", "stuck"):
                self._set("idle")
            if run:
                self.run()

    def run(self) -> bool:
        """Work until nothing is left to do; False if the conversation runs already."""
        with self.lock:
            if self.status == "running":
                return False
            self._set("running")
            if not self._works:
                self._works = True
                threading.Thread(target=self._work, daemon=True).start()
            return True

    def stop(self, *, at_once: bool) -> None:
        """Pause after the present command, or (at_once) kill that command."""
        with self.lock:
            if self.status not in ("idle", "running"):
                return
            self._add("InterruptEvent" if at_once else "PauseEvent", "user")
            self._set("paused")
            if at_once and self._process is not None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def decide(self, accept: bool, reason: str) -> None:
        """Execute or drop the pending actions."""
        with self.lock:
            if self.status != "waiting_for_confirmation":
                return
            if accept:
                self.run()
                return
            self._set("idle")
            for action in self._open:
                details = {"rejection_reason": reason, "rejection_source": "user"}
                self._add("UserRejectObservation", "environment", **about(action), **details)
            self._open = []

    def set_policy(self, policy: dict[str, Any]) -> None:
        with self.lock:
            self.policy = policy
            self._add("ConversationStateUpdateEvent", "environment", key="confirmation_policy", value=policy)
            self._post_info()

    def keep(self, secrets: dict[str, Any]) -> None:
        """Put secrets into the environment of every later command."""
        for name, secret in secrets.items():
            self.secrets[name] = str(secret["value"] if isinstance(secret, dict) else secret)

    def delete(self) -> None:
        self.stop(at_once=True)
        self._webhooks.put("/conversations", self.info() | {"execution_status": "deleting"})

    def _work(self) -> None:
        while action := self._next_action():
            self._execute(action)

    def _next_action(self) -> Event | None:
        """The action to execute now; None when the agent must not go on."""
        with self.lock:
            while self.status == "running":
                if self._open:
                    return self._open[0]
                if not self._unanswered:
                    self._set("finished")
                else:
                    self._consider(self._unanswered.pop(0))
            self._works = False
            return None

    def _consider(self, message: Event) -> None:
        parts = message["llm_message"]["content"]
        text = "\n".join(part.get("text", "") for part in parts)
        lines = [line.strip() for line in text.splitlines()]
        if commands := [line.removeprefix("run:").strip() for line in lines if line.startswith("run:")]:
            for command in commands:
                self._propose(command, message["id"])
            if self.policy.get("kind") != "NeverConfirm":
                self._set("waiting_for_confirmation")
        else:
            content = [{"type": "text", "text": f"You said: {text}"}]
            self._add("MessageEvent", "agent", llm_message={"role": "assistant", "content": content})

    def _propose(self, command: str, response_id: str) -> None:
        arguments = {"command": command, "is_input": False, "reset": False}
        call = {"id": f"call_{uuid4().hex}", "name": "terminal", "arguments": json.dumps(arguments)}
        details = {"thought": [], "action": {**arguments, "kind": "TerminalAction"}, "tool_name": "terminal"}
        details |= {"tool_call_id": call["id"], "tool_call": {**call, "origin": "completion"}}
        details |= {"llm_response_id": response_id, "security_risk": "UNKNOWN", "summary": command}
        self._open.append(self._add("ActionEvent", "agent", **details))

    def _execute(self, action: Event) -> None:
        command = action["action"]["command"]
        with self.lock:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.secrets},
                start_new_session=True,
            )
        try:
            output, _ = self._process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            output = self._process.communicate()[0] + f"\nnot done within {COMMAND_SECONDS} s".encode()
        with self.lock:
            code, self._process = self._process.returncode, None
            self._open.remove(action)
            if self.status == "paused" and code == -signal.SIGKILL:
                self._add("AgentErrorEvent", "agent", **about(action), error="Interrupted.")
                return
            content = [{"type": "text", "text": output[-MOST_OUTPUT:].decode(errors="replace")}]
            observation = {"content": content, "is_error": code != 0, "command": command, "exit_code": code}
            observation["kind"] = "TerminalObservation"
            self._add("ObservationEvent", "environment", **about(action), observation=observation)

    def _set(self, status: str) -> None:
        self.status = status
        self._add("ConversationStateUpdateEvent", "environment", key="execution_status", value=status)
        self._post_info()

    def _add(self, kind: str, source: str, **members: Any) -> Event:
        event = {"id": str(uuid4()), "timestamp": now(), "source": source, **members, "kind": kind}
        self.events.append(event)
        self._webhooks.put(f"/events/{self.id.hex}", [event])
        return event

    def _post_info(self) -> None:
        self._webhooks.put("/conversations", self.info())


def about(action: Event) -> Event:
    return {"tool_name": "terminal", "tool_call_id": action["tool_call_id"], "action_id": action["id"]}
