"""The reference agent as a process that is killed and started again, and what a client asks of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import httpx
import psutil

from tests.servers import PROJECT, free_port, wait_until

KEY = "a key"

#: the kinds of what closes an action
CLOSING = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


class ReferenceAgent:
    """A process in a working directory of its own; its conversations survive it."""

    def __init__(
        self, home: Path, conversations: Path | None = None, output: Path = Path(os.devnull), **environment: str
    ) -> None:
        """output: the file that has what it prints."""
        self.home = home
        self.output = output
        self.conversations = conversations or home / "conversations"
        self.conversations.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self._command = [sys.executable, "-m", "reference_agent", "--port", str(port)]
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "OH_SESSION_API_KEYS_0": KEY,
            "OH_CONVERSATIONS_PATH": str(self.conversations),
            "AGENT_TMPDIR": str(self.conversations),
            "LLM_MODEL": "",  # one of this machine is none of the tests'
            **environment,
        }
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"X-Session-API-Key": KEY}, timeout=30)
        self.start()

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, cwd=self.home, env=self._environment, stdout=output, stderr=subprocess.PIPE
            )
        wait_until(lambda: self.client.get("/alive").is_success, "the agent")

    def kill(self) -> None:
        """Kill the agent and its commands, as the end of a sandbox does: the agent first, so that it sees nothing."""
        commands = []
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.process.pid)
            parent.suspend()
            commands = parent.children(recursive=True)
        self.process.kill()
        self.process.communicate()
        for command in commands:
            with suppress(psutil.NoSuchProcess):
                command.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def folder(self, conversation: str) -> Path:
        return self.conversations / conversation.rpartition("/")[2].replace("-", "")

    def begin(self, policy: str = "NeverConfirm", **members) -> str:
        """The path of a new conversation."""
        body = {"conversation_id": str(uuid4()), "confirmation_policy": {"kind": policy}, **members}
        started = self.client.post("/api/conversations", json=body)
        assert started.status_code == 201, started.text
        return f"/api/conversations/{body['conversation_id']}"

    def post(self, path: str, body: dict | None = None) -> httpx.Response:
        return self.client.post(path, json=body or {})

    def send(self, conversation: str, text: str, run: bool = True) -> httpx.Response:
        body = {"role": "user", "content": [{"type": "text", "text": text}], "run": run}
        return self.post(f"{conversation}/events", body)

    def decide(self, conversation: str, accept: bool, **members) -> httpx.Response:
        return self.post(f"{conversation}/events/respond_to_confirmation", {"accept": accept, **members})

    def status(self, conversation: str) -> str:
        return self.client.get(conversation).json()["execution_status"]

    def until(self, conversation: str, status: str) -> None:
        wait_until(lambda: self.status(conversation) == status, status)

    def events(self, conversation: str, **query) -> list[dict]:
        """The whole log, or what of it passes a filter, page by page."""
        events, page_id = [], None
        while True:
            query |= {"page_id": page_id} if page_id else {}
            page = self.client.get(f"{conversation}/events/search", params=query).json()
            events += page["items"]
            page_id = page["next_page_id"]
            if page_id is None:
                return events

    def results(self, conversation: str) -> dict[str, list[str]]:
        """By command the kinds of what closed its actions."""
        events = self.events(conversation)
        calls = {event["tool_call_id"]: event["summary"] for event in events if event["kind"] == "ActionEvent"}
        results: dict[str, list[str]] = {command: [] for command in calls.values()}
        for event in events:
            if event["kind"] in CLOSING:
                results[calls[event["tool_call_id"]]].append(event["kind"])
        return results


@contextmanager
def reference_agent(home: Path, conversations: Path | None = None, **environment: str) -> Iterator[ReferenceAgent]:
    agent = ReferenceAgent(home, conversations, **environment)
    try:
        yield agent
    finally:
        agent.kill()
        agent.client.close()
