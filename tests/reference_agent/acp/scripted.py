"""An agent that speaks ACP over stdio and does what the lines of a prompt say. Standard library only.

A line is a verb and a text:

    say TEXT | think TEXT | plan TEXT     a chunk of a message or of a thought; a plan of one entry
    ask CMD                               ask for permission, then run the command if it was granted
    words TEXT                            ask with a title alone, then make the file that TEXT names
    swap CMD                              ask about `true`, then run CMD
    lasting CMD                           ask with options that last alone
    do CMD                                run a command without asking
    both CMD                              ask twice at once, and run what was granted
    work N                                ask at least N times, in all forms; carry out what was granted, see below
    nap SECONDS                           report nothing for so long
    anyway CMD | defy CMD                 ask, and run the command without waiting; run it after a rejection too
    usage N | mode ID                     report usage; a change of the mode
    send JSON                             send a message as it is
    garbage | huge BYTES | flood N        lines that are no messages; a long line; N chunks
    wait | deaf                           wait for a cancellation; go on after one
    dawdle SECONDS                        wait for a cancellation, and so long after it
    die CODE | stop REASON                end the process; end the turn
    leave                                 start a process in a session of its own, which holds the pipes

What the process heard is appended to the file SCRIPTED_HEARD, one JSON a line. SCRIPTED_OPTIONS: kinds of options, in
their order. SCRIPTED_LOADS: sessions can be loaded; they are in the folder SCRIPTED_SESSIONS.

`work` asks about `echo NAME`, with a name of its own each time, one or two at once, with and without arguments, the
options in any order. It carries out NAME as a line of the file SCRIPTED_RECORD, and records there what it asked before
it asks, and each answer that is no permission: `asked NAME PROCESS`, `ran NAME PROCESS`, `KIND NAME PROCESS`.
"""

import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

KINDS = os.environ.get("SCRIPTED_OPTIONS", "allow_always allow_once reject_once reject_always").split()
LOADS = bool(os.environ.get("SCRIPTED_LOADS"))
SESSIONS = Path(os.environ.get("SCRIPTED_SESSIONS", "."))
HEARD = os.environ.get("SCRIPTED_HEARD", os.devnull)
RECORD = os.environ.get("SCRIPTED_RECORD", os.devnull)

#: this process in the record: ids of processes repeat
PROCESS = uuid4().hex[:12]

out = threading.Lock()
answers: dict[int, "queue.Queue[dict]"] = {}
cancelled = threading.Event()
number = 0


def write(raw: bytes) -> None:
    with out:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def heard(what: dict) -> None:
    with Path(HEARD).open("a") as file:
        file.write(json.dumps(what) + "\n")


def record(what: str, name: str) -> None:
    """Append a line that survives this process."""
    with Path(RECORD).open("a") as file:
        file.write(f"{what} {name} {PROCESS}\n")
        file.flush()
        os.fsync(file.fileno())


class Turn:
    def __init__(self, request: int, session: str, lines: list[str]) -> None:
        self.request, self.session, self.lines = request, session, lines
        self.is_deaf = False

    def update(self, name: str, **members: object) -> None:
        update = {"sessionUpdate": name, **members}
        send(method="session/update", params={"sessionId": self.session, "update": update})

    def run(self) -> None:
        reason = "end_turn"
        for line in self.lines:
            verb, _, text = line.partition(" ")
            if verb == "stop":
                reason = text
                break
            getattr(self, verb, self.unknown)(text)
            if cancelled.is_set() and not self.is_deaf:
                reason = "cancelled"
                break
        send(id=self.request, result={"stopReason": reason})

    def unknown(self, _text: str) -> None:
        pass

    def say(self, text: str) -> None:
        for part in (text[:2], text[2:]):
            self.update("agent_message_chunk", content={"type": "text", "text": part})

    def think(self, text: str) -> None:
        self.update("agent_thought_chunk", content={"type": "text", "text": text})

    def plan(self, text: str) -> None:
        self.update("plan", entries=[{"content": text, "priority": "high", "status": "in_progress"}])

    def usage(self, text: str) -> None:
        self.update("usage_update", used=int(text), size=1000, cost={"amount": 0.25, "currency": "USD"})

    def mode(self, text: str) -> None:
        self.update("current_mode_update", currentModeId=text)

    def call(self) -> str:
        global number
        number += 1
        return f"call_{number}"

    def permission(self, call: dict, kinds: list[str] = KINDS) -> str:
        """Ask; returns the kind of the option that was chosen, or `cancelled`."""
        return self.awaited(self.requested(call, kinds))

    def requested(self, call: dict, kinds: list[str] = KINDS) -> int:
        global number
        number += 1
        identity = number
        answers[identity] = queue.Queue()
        options = [{"optionId": f"option {kind}", "name": kind, "kind": kind} for kind in kinds]
        params = {"sessionId": self.session, "toolCall": call, "options": options}
        send(id=identity, method="session/request_permission", params=params)
        return identity

    def awaited(self, identity: int) -> str:
        answer = answers[identity].get()
        outcome = answer.get("result", {}).get("outcome", {})
        return outcome.get("optionId", "cancelled").removeprefix("option ")

    def carry_out(self, call: str, command: str) -> None:
        self.update("tool_call_update", toolCallId=call, status="in_progress")
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
        text = [{"type": "content", "content": {"type": "text", "text": done.stdout + done.stderr}}]
        status = "failed" if done.returncode else "completed"
        raw = {"exitCode": done.returncode}
        self.update("tool_call_update", toolCallId=call, status=status, content=text, rawOutput=raw)

    def begin(self, command: str) -> dict:
        call = {"toolCallId": self.call(), "title": command, "kind": "execute", "rawInput": {"command": command}}
        self.update("tool_call", **call, status="pending")
        return call

    def ask(self, command: str) -> None:
        call = self.begin(command)
        self.finish(call["toolCallId"], command, self.permission({"toolCallId": call["toolCallId"]}))

    def finish(self, call: str, command: str, kind: str) -> None:
        if kind.startswith("allow"):
            self.carry_out(call, command)
        else:
            self.update("tool_call_update", toolCallId=call, status="failed")

    def words(self, text: str) -> None:
        call = self.call()
        asked = {"toolCallId": call, "title": f"Running: {text[:5]}…", "content": []}
        self.finish(call, f"touch {text}", self.permission(asked))

    def swap(self, command: str) -> None:
        call = self.begin("true")
        if self.permission(call) == "allow_once":
            self.update("tool_call_update", toolCallId=call["toolCallId"], rawInput={"command": command})
            self.carry_out(call["toolCallId"], command)

    def lasting(self, command: str) -> None:
        call = self.begin(command)
        self.finish(call["toolCallId"], command, self.permission(call, ["allow_always", "reject_always"]))

    def do(self, command: str) -> None:
        self.carry_out(self.begin(command)["toolCallId"], command)

    def both(self, command: str) -> None:
        calls = [self.begin(command.replace("N", str(index))) for index in (1, 2)]
        asked = [self.requested(call) for call in calls]
        for call, identity in zip(calls, asked, strict=True):
            self.finish(call["toolCallId"], call["title"], self.awaited(identity))

    def work(self, text: str) -> None:
        left = int(text)
        while left > 0 and not cancelled.is_set():
            names = [uuid4().hex for _ in range(random.choice((1, 1, 2)))]
            calls = [self.named(name, is_shown=random.random() < 0.8) for name in names]
            kinds = random.sample(KINDS, len(KINDS))
            for name in names:
                record("asked", name)
            asked = [self.requested(call, kinds) for call in calls]
            for name, call, identity in zip(names, calls, asked, strict=True):
                kind = self.awaited(identity)
                record("ran" if kind == "allow_once" else kind, name)
                status = "completed" if kind == "allow_once" else "failed"
                self.update("tool_call_update", toolCallId=call["toolCallId"], status=status)
            left -= len(names)

    def named(self, name: str, *, is_shown: bool) -> dict:
        call = {"toolCallId": self.call(), "title": f"echo {name}"}
        if is_shown:
            call |= {"kind": "execute", "rawInput": {"command": f"echo {name}"}}
        self.update("tool_call", **call, status="pending")
        return call

    def nap(self, text: str) -> None:
        time.sleep(float(text))

    def anyway(self, command: str) -> None:
        call = self.begin(command)
        identity = self.requested(call)
        self.carry_out(call["toolCallId"], command)
        self.awaited(identity)

    def defy(self, command: str) -> None:
        call = self.begin(command)
        self.permission(call)
        self.carry_out(call["toolCallId"], command)

    def send(self, text: str) -> None:
        write(text.encode() + b"\n")

    def garbage(self, _text: str) -> None:
        write(b"npm warn\n\xff\xfe\n[1, 2]\n" + b"[" * 100_000 + b"\n")
        write(b'{"id": [], "result": 1}\n{"id": 7, "result": 1}\n{"method": 3}\n')

    def huge(self, text: str) -> None:
        write(b'{"jsonrpc": "2.0", "method": "x", "params": "' + b"x" * int(text) + b'"}\n')

    def flood(self, text: str) -> None:
        for index in range(int(text)):
            self.update("agent_message_chunk", content={"type": "text", "text": f"{index} "})

    def wait(self, _text: str) -> None:
        cancelled.wait()

    def dawdle(self, text: str) -> None:
        cancelled.wait()
        time.sleep(float(text))

    def deaf(self, _text: str) -> None:
        self.is_deaf = True
        threading.Event().wait()

    def leave(self, _text: str) -> None:
        subprocess.Popen(["/bin/sleep", "100"], start_new_session=True)

    def die(self, text: str) -> None:
        print("these are my last words", file=sys.stderr, flush=True)
        os._exit(int(text))


def take(message: dict) -> None:
    heard(message)
    params, identity = message.get("params") or {}, message.get("id")
    session = params.get("sessionId", "")
    match message.get("method"):
        case None:
            if identity in answers:
                answers[identity].put(message)
        case "initialize":
            prompts = {"image": True}
            capabilities = {"loadSession": LOADS, "promptCapabilities": prompts}
            info = {"name": "scripted", "version": "1.0"}
            send(id=identity, result={"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info})
        case "session/new":
            session = f"session-{os.getpid()}"
            (SESSIONS / session).touch()
            modes = [{"id": "careful", "name": "Careful"}, {"id": "yolo", "name": "Yolo"}]
            told = {"currentModeId": "yolo", "availableModes": modes}
            send(id=identity, result={"sessionId": session, "modes": told})
        case "session/load" if (SESSIONS / session).exists():
            said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "said before"}}
            send(method="session/update", params={"sessionId": session, "update": said})
            modes = [{"id": "careful", "name": "Careful"}, {"id": "yolo", "name": "Yolo"}]
            send(id=identity, result={"modes": {"currentModeId": "yolo", "availableModes": modes}})
        case "session/set_mode":
            send(id=identity, result={})
        case "session/prompt":
            cancelled.clear()
            text = "\n".join(block.get("text", f"say {block['type']}") for block in params["prompt"])
            threading.Thread(target=Turn(identity, session, text.split("\n")).run, daemon=True).start()
        case "session/cancel":
            cancelled.set()
        case _:
            send(id=identity, error={"code": -32601, "message": "Method not found"})


for line in sys.stdin:
    take(json.loads(line))
