"""The V1 resources, over HTTP alone, against the whole server: gunicorn, a supervisor, real processes."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from tests.servers import TIMEOUT, wait_until


class WireApi:
    """The calls that tests make, each checked for its status."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def call(self, method: str, path: str, *, status: int = 200, **options: Any) -> Any:
        """The JSON of a response that has that status; a call is retried after a response with Retry-After.

        A deletion that took longer than its request may be done before its repeat, which finds nothing: 404.
        """
        deadline, expected = time.monotonic() + TIMEOUT, {status}
        while True:
            response = self.client.request(method, f"/api{path}", **options)
            if response.status_code in expected or "Retry-After" not in response.headers or time.monotonic() > deadline:
                break
            expected |= {404} if method == "DELETE" else set()
            time.sleep(float(response.headers["Retry-After"]))
        assert response.status_code in expected, response.text
        return response.json()

    def start_sandbox(self, spec: str | None = None) -> dict[str, Any]:
        query = {"sandbox_spec_id": spec} if spec else {}
        return self.call("POST", "/v1/sandboxes", params=query)

    def sandbox(self, sandbox_id: str) -> dict[str, Any] | None:
        [found] = self.call("GET", "/v1/sandboxes", params={"id": sandbox_id})
        return found

    def wait_for(self, sandbox_id: str, status: str) -> dict[str, Any]:
        wait_until(lambda: self.sandbox(sandbox_id)["status"] == status, f"sandbox {sandbox_id}: {status}")
        return self.sandbox(sandbox_id)

    def running_sandbox(self, spec: str | None = None) -> dict[str, Any]:
        return self.wait_for(self.start_sandbox(spec)["id"], "RUNNING")

    def sandbox_with(self, repository: str) -> str:
        """The id of a running sandbox that has a repository in its working folder."""
        sandbox = self.running_sandbox("thinks")
        [url] = sandbox["exposed_urls"]
        httpx.post(
            f"{url['url']}/api/bash/execute_bash_command",
            json={"command": f"git init -q {repository}"},
            headers={"X-Session-API-Key": sandbox["session_api_key"]},
        ).raise_for_status()
        return sandbox["id"]

    def start_task(self, **request: Any) -> dict[str, Any]:
        return self.call("POST", "/v1/app-conversations", json=request)

    def task(self, task_id: str) -> dict[str, Any] | None:
        [found] = self.call("GET", "/v1/app-conversations/start-tasks", params={"ids": task_id})
        return found

    def finished(self, task_id: str) -> dict[str, Any]:
        wait_until(lambda: self.task(task_id)["status"] in ("READY", "ERROR"), f"start {task_id}")
        return self.task(task_id)

    def conversation(self, conversation_id: str) -> dict[str, Any] | None:
        [found] = self.call("GET", "/v1/app-conversations", params={"ids": conversation_id})
        return found

    def app_conversation(self, **request: Any) -> dict[str, Any]:
        """A conversation whose start task is READY."""
        task = self.finished(self.start_task(**request)["id"])
        assert task["status"] == "READY", task
        return self.conversation(task["app_conversation_id"])

    def send(self, conversation_id: str, text: str, *, status: int = 200, **members: Any) -> Any:
        body = {"content": [{"type": "text", "text": text}], **members}
        path = f"/v1/app-conversations/{conversation_id}/send-message"
        return self.call("POST", path, status=status, json=body)

    def decide(self, conversation_id: str, accept: bool, **members: Any) -> Any:
        path = f"/conversations/{UUID(conversation_id)}/events/respond_to_confirmation"
        return self.call("POST", path, json={"accept": accept, **members})

    def count(self, conversation_id: str, **filters: str) -> int:
        return self.call("GET", f"/conversations/{UUID(conversation_id)}/events/count", params=filters)

    def events(self, conversation_id: str, **filters: str) -> list[dict[str, Any]]:
        return self.call("GET", f"/v1/conversation/{conversation_id}/events/search", params=filters)["items"]

    def failed_sandbox(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """A conversation as it was while it ran, and its sandbox, whose agent has killed itself."""
        kill = {"content": [{"type": "text", "text": "run: kill -9 $PPID"}], "run": False}
        conversation = self.app_conversation(sandbox_spec_id="free", initial_message=kill)
        self.client.post(f"/api/conversations/{UUID(conversation['id'])}/run")  # the agent may die before it responds
        return conversation, self.wait_for(conversation["sandbox_id"], "ERROR")

    def until(self, conversation_id: str, status: str) -> None:
        """Wait until the agent has that execution status."""
        wait_until(lambda: self.conversation(conversation_id)["execution_status"] == status, status)

    def clean(self) -> None:
        """Remove every app conversation and every sandbox, also those of starts that are under way."""
        seen = set()  # lists do not have those whose processes still end

        def none_is_left() -> bool:
            left = self.call("GET", "/v1/sandboxes/search")["items"]
            seen.update(item["id"] for item in left)
            for item in left:
                self.client.delete(f"/api/v1/sandboxes/{item['id']}")
            return not left and not any(map(self.sandbox, seen))

        while items := self.call("GET", "/v1/app-conversations/search")["items"]:
            for item in items:
                seen.add(item["sandbox_id"])
                self.client.delete(f"/api/v1/app-conversations/{item['id']}")
        wait_until(none_is_left, "the end of all sandboxes")


def found_in(folder: Path, words: Iterable[str], *, but: str = "") -> list[str]:
    """The files below a folder that have one of the words, planted secrets; but: the name of folders to leave out."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and but not in path.relative_to(folder).parts:
            text = path.read_bytes()
            found += [f"{path}: {word[:8]}…" for word in words if word.encode() in text]
    return found
