"""A chat model that needs no model: it speaks the OpenAI wire and follows a fixed rule.

A user's `run: CMD` becomes a call of the tool `terminal`, and `skill: NAME` one of `invoke_skill`; the result of a tool
becomes a call of `finish`. After `slow: SECONDS` the model takes so long.

    python -m tests.interop.model ADDRESS PORT
"""

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a model on a free port of loopback; it ends with the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()


class InteropModel(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = reply(asked["messages"][-1])
        reason = "tool_calls" if "tool_calls" in message else "stop"
        body = json.dumps(
            {
                "id": uuid4().hex,
                "object": "chat.completion",
                "created": int(time.time()),
                "model": asked["model"],
                "choices": [{"index": 0, "finish_reason": reason, "message": message}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def reply(last: dict[str, Any]) -> dict[str, Any]:
    content = last.get("content") or ""
    text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    if last["role"] != "user":
        return call("finish", message="done")
    if "run:" in text:
        command = text.partition("run:")[2].strip().splitlines()[0]
        return call("terminal", command=command, security_risk="LOW", summary="as asked")
    if skill := re.search(r"skill: (\w+)", text):
        return call("invoke_skill", name=skill[1])
    if slow := re.search(r"slow: (\d+)", text):
        time.sleep(int(slow[1]))
    return {"role": "assistant", "content": f"You said: {text}"}


def call(tool: str, **arguments: str) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    tool_call = {"id": f"call_{uuid4().hex[:8]}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call]}


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), InteropModel).serve_forever()
