"""An agent server that keeps what it is asked in its working folder, and fails as the agent in a body says.

usage: brought_agent.py PORT

`agent.kind` of a body: `Refused` is 422, `Broken` 500, `Slow` waits for the file `go`; any other is accepted.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

known: set[str] = set()


class BroughtAgentHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(200, {"idle_time": 1e6})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw or b"{}")
        with Path("requests.jsonl").open("a") as log:
            log.write(json.dumps({"path": self.path, "body": body, "headers": dict(self.headers)}) + "\n")
        if self.path == "/api/conversations":
            self.start(body)
        elif Path("forget").exists() or self.path.split("/")[3] not in known:
            known.clear()
            Path("forget").unlink(missing_ok=True)
            self.reply(404, {"detail": "Conversation not found"})
        else:
            self.reply(200, {"success": True})

    def start(self, body):
        agent = body.get("agent") or {}
        while agent.get("kind") == "Slow" and not Path("go").exists():
            time.sleep(0.02)
        if agent.get("kind") == "Refused":
            fault = {"type": "missing", "loc": ["body", "agent", "tools"], "msg": "Field required", "input": agent}
            told = {"type": "value_error", "loc": ["body"], "msg": f"Value error, {agent['llm']['api_key']} is odd"}
            self.reply(422, {"detail": [fault, told]})
        elif agent.get("kind") == "Broken":
            self.reply(500, {"detail": f"It broke with {agent['llm']['api_key']}"})
        else:
            known.add(body["conversation_id"])
            self.reply(201, {"id": body["conversation_id"]})

    def reply(self, status, value):
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), BroughtAgentHandler).serve_forever()
