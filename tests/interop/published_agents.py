"""Takes a published agent through a conversation in an isolated sandbox, and says what happened at each step.

    AGENTS_DIR=.agents .venv/bin/python -m tests.interop.published_agents [NAME…]

prints what came of each step, for the agents that `make agent` has installed. The model is scripted and outside: the
agent reaches it by the way out of its sandbox. What the agent asked, and the answers that it got, are read from its own
standard input and output.
"""

import base64
import contextlib
import json
import os
import re
import shlex
import struct
import sys
import tempfile
import threading
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil

from docs.examples import scripted_model
from reference_agent.acp.agents import table
from settings.specs import BUNDLED
from tests.conftest import NO_AGENTS
from tests.servers import PROJECT, supervised_server
from tests.v1.processes import ACP_PROGRAM

#: the agents that the acceptance of this server names
NAMES = ("claude", "codex", "opencode", "gemini", "goose", "copilot")

#: where `make agent` puts agents
AGENTS = PROJECT / ".agents" if os.environ["AGENTS_DIR"] == NO_AGENTS else Path(os.environ["AGENTS_DIR"]).absolute()

#: what keeps the messages of a program
WIRE = Path(__file__).with_name("acp_wire.py")

#: the name of a program that speaks ACP and is on every machine
SCRIPTED = "scripted"

#: seconds that one step of an agent may take on a busy machine, and between two looks
STEP_SECONDS, LOOK = 120.0, 0.2

#: seconds for which a conversation that has stopped stays so before it counts as settled
STILL = 1.5

#: seconds after which an agent that has stopped will not ask any more
PATIENCE = 15.0

#: statuses in which an agent does nothing
STOPPED = ("idle", "finished", "error", "paused", "stuck")

KEY = "a-key-for-tests-only"

#: what stands for the key of every provider; no sandbox may have it
PLANTED = "sk-planted-0123456789"

REASON = "the moon is in the wrong house"


class Missed(Exception):
    """Something did not happen; the message says what."""


class PublishedModel(scripted_model.ModelHandler):
    """The scripted model, and what it has heard."""

    said: list[str] = []

    def heard(self, body: dict[str, Any]) -> None:
        self.said.append(json.dumps(body, ensure_ascii=False))


@contextlib.contextmanager
def scripted() -> Iterator[str]:
    """The address of the model."""
    with ThreadingHTTPServer(("127.0.0.1", 0), PublishedModel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def installed(names: tuple[str, ...] = NAMES) -> list[str]:
    """Return the names of the agents that are installed. The scripted program always is."""
    return [name for name in names if name == SCRIPTED or (AGENTS / name / "spec.toml").exists()]


def asks(name: str, command: str) -> str:
    """Return a message that has an agent ask for permission to run a command."""
    return f"ask {command}" if name == SCRIPTED else f"run: {command}"


def environment_of(model: str) -> dict[str, str]:
    """The variables of a server whose agents all use the model at an address."""
    keys = {agent.key: PLANTED for agent in table().values() if agent.key and agent.service}
    addresses = {"OPENAI_BASE_URL": f"{model}/v1", "ANTHROPIC_BASE_URL": model, "GOOGLE_GEMINI_BASE_URL": model}
    return {**keys, **addresses, "MISTRAL_BASE_URL": f"{model}/v1", "KIMI_BASE_URL": f"{model}/v1"}


def specs_of(names: list[str]) -> str:
    """Return the installed specs, whose programs keep what they hear and say."""
    found = []
    for name in names:
        if name == SCRIPTED:
            found.append(_scripted())
            continue
        text = (AGENTS / name / "spec.toml").read_text()
        [spec] = tomllib.loads(text)["spec"]
        command = [word.replace("{MODEL}", spec["initial_env"]["LLM_MODEL"]) for word in table()[name].command]
        line = f"{{PYTHON}} {WIRE} {{WORK}}/.agent-server/wire {shlex.join(command)}"
        text = text.replace("readable = [", f'readable = ["{WIRE}", ', 1)
        found.append(re.sub(r"^(ACP_AGENT = .*)$", rf'\1\nACP_COMMAND = "{line}"', text, flags=re.M))
    return "\n".join(found)


def _scripted() -> str:
    """Return the spec of the scripted program: the bundled one with another mind."""
    text = BUNDLED.read_text()
    text = text[text.index("\n[[spec]]\n") :].replace('"reference-agent"', f'"{SCRIPTED}"')
    variables = f'ACP_COMMAND = "{{PYTHON}} {ACP_PROGRAM}", ACP_MODE = "careful"'
    return text.replace("initial_env = { ", f'readable = ["{ACP_PROGRAM}"]\ninitial_env = {{ {variables}, ', 1)


@contextlib.contextmanager
def serving(folder: Path, names: list[str], **others: str) -> Iterator[httpx.Client]:
    """A client of a server that offers these agents, the first one by default, and has other settings."""
    (folder / "specs.toml").write_text(specs_of(names))
    with scripted() as model:
        settings = {"SANDBOX_SPECS": str(folder / "specs.toml"), "AGENTS_DIR": str(folder / "none")}
        settings |= {"SESSION_API_KEY": KEY, "SANDBOX_START_SECONDS": "120", **environment_of(model), **others}
        with supervised_server(folder, **settings) as (client, _):
            client.headers["X-Session-API-Key"] = KEY
            client.timeout = httpx.Timeout(60)
            yield client


class PublishedTalk:
    """One conversation with one agent."""

    def __init__(self, client: httpx.Client, folder: Path, name: str) -> None:
        self._client, self._data, self.name = client, folder, name
        self.seconds = 0.0  #: from the request to the first question
        self._decided = set[str]()

    def call(self, method: str, path: str, **options: Any) -> Any:
        response = self._client.request(method, f"/api{path}", **options)
        if not response.is_success:
            raise Missed(f"{method} {path}: {response.status_code} {response.text[:300]}")
        return response.json()

    def begin(self, text: str) -> None:
        began = time.monotonic()
        message = {"content": [{"type": "text", "text": text}]}
        body = {"sandbox_spec_id": self.name, "initial_message": message}
        task = self.call("POST", "/v1/app-conversations", json=body)
        path = "/v1/app-conversations/start-tasks"

        def is_ready() -> bool:
            [found] = self.call("GET", path, params={"ids": task["id"]})
            if found["status"] == "ERROR":
                raise Missed(f"the start failed: {found['detail']}")
            task.update(found)
            return found["status"] == "READY"

        self.until(is_ready, "READY")
        self.id, self.sandbox = task["app_conversation_id"], task["sandbox_id"]
        self.asked()
        self.seconds = time.monotonic() - began
        folders = [path for path in (self._data / "sandboxes").rglob(f"{self.sandbox}*/work") if path.is_dir()]
        self.work = folders[0]

    def until(self, is_so: Callable[[], Any], what: str, seconds: float = STEP_SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := is_so():
                return found
            time.sleep(LOOK)
        raise Missed(f"not within {seconds:g} s: {what}. {self.how()}")

    def how(self) -> str:
        """The status and the last events, for a failure."""
        with contextlib.suppress(Missed, httpx.HTTPError, AttributeError):
            last = [f"{one['kind']} {json.dumps(one)[:250]}" for one in self.events()[-3:]]
            return f"It is {self.status()}. Last: {' | '.join(last)}"
        return ""

    def status(self) -> str:
        return str(self.call("GET", f"/conversations/{self.id}")["execution_status"])

    def events(self, **query: str) -> list[dict[str, Any]]:
        found, page = [], {"next_page_id": None}
        while True:
            more = {"page_id": page["next_page_id"]} if page["next_page_id"] else {}
            page = self.call("GET", f"/conversations/{self.id}/events/search", params={"limit": 100, **query, **more})
            found += page["items"]
            if not page["next_page_id"]:
                return found

    def waiting(self) -> list[dict[str, Any]]:
        found = self.call("GET", "/v1/pending-actions", params={"conversation_id": self.id})["items"]
        return [one for one in found if one["action_id"] not in self._decided]

    def asked(self) -> dict[str, Any]:
        """The action that waits, as soon as there is one. Raises Missed where the agent stops without a question."""

        began = time.monotonic()

        def found() -> list[dict[str, Any]]:
            waiting = self.waiting()
            if not waiting and self.status() in ("error", "finished") and time.monotonic() - began > PATIENCE:
                raise Missed(f"no question. {self.how()}")
            return waiting

        return dict(self.until(found, "a question")[0])

    def say(self, text: str, **part: Any) -> None:
        content = [{"type": "text", "text": text}, *([part] if part else [])]
        self.call("POST", f"/conversations/{self.id}/events", json={"role": "user", "content": content, "run": True})

    def decide(self, action: dict[str, Any], decision: str, **members: Any) -> Any:
        self._decided.add(action["action_id"])
        wanted = {"action_id": action["action_id"], "digest": action["digest"], "decision": decision, **members}
        path = f"/v1/conversation/{self.id}/pending-actions/decisions"
        return self.call("POST", path, json={"decisions": [wanted]})

    def settled(self, *, rejects: bool = False) -> str:
        """The status, once the agent has stopped and stays so.

        rejects: whatever it asks meanwhile. An agent may ask again for what was cut short before.
        """
        since = 0.0
        deadline = time.monotonic() + STEP_SECONDS
        while time.monotonic() < deadline:
            for one in self.waiting() if rejects else ():
                self.decide(one, "reject")
            status = self.status()
            since = (since or time.monotonic()) if status in STOPPED else 0.0
            if since and time.monotonic() - since > STILL:
                return status
            time.sleep(LOOK)
        raise Missed(f"it does not stop. {self.how()}")

    def has(self, name: str) -> bool:
        return (self.work / name).exists()

    def wire(self) -> list[tuple[str, dict[str, Any]]]:
        """What the program has heard (`>`) and said (`<`)."""
        lines = (self.work / ".agent-server/wire").read_text(errors="replace").splitlines()
        return [(line[0], json.loads(line[2:])) for line in lines if line[2:3] == "{" and line.endswith("}")]

    def told(self) -> dict[str, Any]:
        """The program's last response to `initialize`."""
        found = [said["result"] for mark, said in self.wire() if mark == "<" and "protocolVersion" in _result(said)]
        return dict(found[-1])

    def answers(self) -> list[str]:
        """The kind of each option that this server has chosen, or the outcome without one."""
        asked: dict[Any, dict[str, str]] = {}
        kinds = []
        for mark, said in self.wire():
            if mark == "<" and said.get("method") == "session/request_permission":
                asked[said["id"]] = {one["optionId"]: one["kind"] for one in said["params"]["options"]}
            elif mark == ">" and said.get("id") in asked and (outcome := _result(said).get("outcome")):
                kinds.append(asked.pop(said["id"]).get(outcome.get("optionId"), outcome["outcome"]))
        return kinds

    def processes(self) -> tuple[psutil.Process, list[psutil.Process]]:
        """The agent server in the sandbox, and the processes of the agent's program."""
        kept = str(self.work / ".agent-server/wire")
        [wire] = [
            one
            for one in psutil.process_iter()
            if _words(one)[1:2] and _words(one)[1].endswith("acp_wire.py") and kept in _words(one)
        ]
        server = wire.parent()
        assert server is not None
        return server, wire.children(recursive=True)


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def _result(said: dict[str, Any]) -> dict[str, Any]:
    result = said.get("result")
    return result if isinstance(result, dict) else {}


# The steps. Each returns what is worth a word, and raises Missed.


def approved(talk: PublishedTalk) -> str:
    talk.begin("run: touch one")
    action = talk.asked()
    if talk.has("one"):
        raise Missed("it ran before the decision")
    talk.decide(action, "approve")
    talk.until(lambda: talk.has("one"), "the file")
    talk.settled()
    return "ok" if action["complete"] else "ok, incomplete"


def rejected(talk: PublishedTalk) -> str:
    talk.say("run: touch two")
    talk.decide(talk.asked(), "reject", reason=REASON)
    talk.until(lambda: any(REASON in said for said in PublishedModel.said), "the reason at the model")
    talk.settled()
    if talk.has("two"):
        raise Missed("it ran although it was rejected")
    return "ok"


def by_rule(talk: PublishedTalk) -> str:
    talk.say("run: touch three")
    action = talk.asked()
    if not action["complete"]:
        return _without_rule(talk, action)
    talk.decide(action, "approve", always=True)
    talk.until(lambda: talk.has("three"), "the file")
    talk.settled()
    (talk.work / "three").unlink()
    talk.say("run: touch three")
    talk.until(lambda: talk.has("three"), "the file, by the rule")
    talk.settled()
    entries = talk.call("GET", f"/v1/conversation/{talk.id}/audit", params={"limit": 100})["items"]
    if not [one for one in entries if one["actor"]["kind"] == "rule"]:
        raise Missed("the audit names no rule")
    return "ok"


def _without_rule(talk: PublishedTalk, action: dict[str, Any]) -> str:
    """See that no rule is made of what is not shown."""
    with contextlib.suppress(Missed):
        talk.decide(action, "approve", always=True)
        raise AssertionError("a rule was made of what is not shown")
    talk.decide(action, "approve")
    talk.until(lambda: talk.has("three"), "the file")
    talk.settled()
    return "no rule: not shown in full"


def edited(talk: PublishedTalk) -> str:
    talk.say(f"write: {talk.work}/edited.txt hello")
    action = talk.asked()
    if talk.has("edited.txt"):
        raise Missed("it was written before the decision")
    talk.decide(action, "approve")
    talk.until(lambda: talk.has("edited.txt"), "the file")
    talk.settled()
    if (talk.work / "edited.txt").read_text().strip() != "hello":
        raise Missed(f"it wrote {(talk.work / 'edited.txt').read_text()!r}")
    return "ok" if action["complete"] else "ok, incomplete"


def cancelled(talk: PublishedTalk) -> str:
    talk.say("run: touch four")
    talk.asked()
    talk.call("POST", f"/conversations/{talk.id}/interrupt", json={})
    talk.settled()
    if talk.waiting():
        raise Missed("it still waits")
    before = len(PublishedModel.said)
    talk.say("hello again")
    talk.until(
        lambda: any("hello again" in said for said in PublishedModel.said[before:]), "the next message at the model"
    )
    talk.settled(rejects=True)
    if talk.has("four"):
        raise Missed("it ran although it was cancelled")
    return "ok"


def killed(talk: PublishedTalk) -> str:
    talk.say("run: touch five")
    talk.asked()
    _, programs = talk.processes()
    return _resumes(talk, programs, "five", "six")


def restarted(talk: PublishedTalk) -> str:
    talk.say("run: touch seven")
    talk.asked()
    server, _ = talk.processes()
    return _resumes(talk, [server], "seven", "eight")


def _resumes(talk: PublishedTalk, victims: list[psutil.Process], never: str, then: str) -> str:
    """Kill processes in the midst of a question, and go on."""
    for one in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    talk.until(lambda: not talk.waiting(), "the question is void")
    talk.settled()
    before = len(PublishedModel.said)
    talk.until(lambda: _is_taken(talk, f"run: touch {then}"), "the next message is taken")
    while f"touch {then}" not in json.dumps((action := talk.asked())["arguments"]):
        talk.decide(action, "reject")  # an agent that remembers may ask again for what was cut short
    talk.decide(action, "approve")
    talk.until(lambda: talk.has(then), "the file")
    talk.settled(rejects=True)
    if talk.has(never):
        raise Missed("it ran although nobody decided")
    is_remembered = any("touch one" in said for said in PublishedModel.said[before:])
    is_said = any(one.get("code") == "AgentSessionNotLoaded" for one in talk.events(kind="ConversationErrorEvent"))
    if is_remembered == is_said:
        raise Missed(f"it remembers: {is_remembered}; the log says that it does not: {is_said}")
    return "remembers" if is_remembered else "begins anew, and says so"


def _is_taken(talk: PublishedTalk, text: str) -> bool:
    """Send a message; False while the sandbox starts again."""
    try:
        talk.say(text)
    except Missed:
        return False
    return True


def pictured(talk: PublishedTalk) -> str:
    picture = base64.b64encode(_png()).decode()
    before = len(PublishedModel.said)
    talk.say("what is this?", type="image", image_urls=[f"data:image/png;base64,{picture}"])
    talk.until(
        lambda: any("what is this?" in said for said in PublishedModel.said[before:]), "the message at the model"
    )
    talk.settled()
    takes = talk.told().get("agentCapabilities", {}).get("promptCapabilities", {}).get("image") is True
    seen = any("images)" in json.dumps(one) for one in talk.events(kind="MessageEvent", source="agent"))
    if takes and not seen:
        raise Missed("it takes images, and the model got none")
    return "ok" if seen else "takes none"


def _png() -> bytes:
    """A picture of 16 by 16 red points: some programs refuse smaller ones."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + b"\xff\0\0" * 16 for _ in range(16))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def answered_once(talk: PublishedTalk) -> str:
    """Every option that was chosen is of this request alone."""
    kinds = talk.answers()
    if lasting := [kind for kind in kinds if kind not in ("allow_once", "reject_once", "cancelled")]:
        raise Missed(f"chosen: {lasting}")
    return f"{len(kinds)} answers, none lasting"


def keyless(talk: PublishedTalk) -> str:
    """No process of the sandbox has the key, which the model's calls had."""
    server, programs = talk.processes()
    environments = [Path(f"/proc/{one.pid}/environ").read_bytes() for one in (server, *programs)]
    if any(PLANTED.encode() in one for one in environments):
        raise Missed("a process of the sandbox has the key")
    sandbox = talk.call("GET", "/v1/sandboxes", params={"id": talk.sandbox})[0]
    return f"{sandbox['isolation']['kind']}, {sandbox['isolation']['network']}"


STEPS = (approved, rejected, by_rule, edited, cancelled, killed, restarted, pictured, answered_once, keyless)


def through(client: httpx.Client, folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Take an agent through all steps. Yields each with what came of it; what failed begins with `FAILED`."""
    talk = PublishedTalk(client, folder, name)
    for step in STEPS:
        try:
            yield step.__name__, step(talk)
        except (Missed, httpx.HTTPError, ValueError, OSError, psutil.Error) as error:
            yield step.__name__, f"FAILED: {error}"
            if step is approved:
                return
            with contextlib.suppress(Missed, httpx.HTTPError):
                talk.call("POST", f"/conversations/{talk.id}/interrupt", json={})
    info = talk.told().get("agentInfo") or {}
    yield "version", f"{info.get('name', '?')} {info.get('version', '?')}"
    yield "seconds", f"{talk.seconds:.1f}"
    with contextlib.suppress(Missed):
        talk.call("DELETE", f"/v1/sandboxes/{talk.sandbox}")


def main() -> int:
    names = installed(tuple(sys.argv[1:]) or NAMES)
    folder = Path(tempfile.mkdtemp(prefix="published-agents-"))
    print(f"The log of the server is {folder}/log", flush=True)
    with serving(folder, names) as client:
        for name in names:
            print(f"\n{name}", flush=True)
            for step, words in through(client, folder, name):
                print(f"  {step:<14} {words}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
