"""The events and the state of a conversation of the reference agent, and the files it resumes from.

A folder holds `start.json`, without which there is no conversation, and `events.jsonl`, its steps. A step is one line
per event, then a line `{"state": …}`, the state after it. A step without that line was torn by a kill or a full disk.

Guarantee: a step whose `append` has returned survives a kill of the process and, by fsync, a power failure.
Cost: an fsync per step, measured at 0.2 ms on a local SSD. A command takes two steps.
"""

import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple
from uuid import UUID

import httpx

from core.cuts import beginning
from core.masking import NOTHING, Mask, credentials_in
from reference_agent import events
from reference_agent.events import Event
from reference_agent.shell import GOES_ON

MOST_RESPONSES = 500  #: default of `max_iterations`; source: the agent-server wire
MOST_LOG_LINE = 300  #: maximum characters of an event in the agent server's log
#: Features of this agent: single decisions, edited arguments, a history, returns. See docs/agents.md.
CAPABILITIES = ["decide_each", "edit", "history", "return"]

#: Modules that the published SDK imports before it reads the events of these tools; the SDK does not include them.
MODULES = {name: f"openhands.tools.{name}.definition" for name in ("terminal", "file_editor", "task_tracker")}


class AgentWebhooks:
    """Posts events and changes in order, and retries each until the webhook accepts it.

    Limitation: the queue is in memory. After a kill of the agent, the server reads the rest from GET …/events/search.
    """

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        self._waiting: queue.Queue[tuple[str, Any, bool]] = queue.Queue()
        self._base_url = base_url
        self._client = httpx.Client(headers=headers, timeout=30, trust_env=False)
        if base_url:
            threading.Thread(target=self._send, daemon=True).start()

    def put(self, path: str, body: Any, *, is_kept: bool = True) -> None:
        """Queue a body. is_kept: False for a body that is worthless later: it is posted once, without a retry."""
        if self._base_url:
            self._waiting.put((path, body, is_kept))

    def flush(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _send(self) -> None:
        while True:
            path, body, is_kept = self._waiting.get()
            pause = 0.1
            while not self._is_taken(path, body) and is_kept:
                time.sleep(pause)
                pause = min(2 * pause, 5.0)
            self._waiting.task_done()

    def _is_taken(self, path: str, body: Any) -> bool:
        """Return whether the webhook accepted the body, or refused it permanently. Then it is not retried."""
        try:
            response = self._client.post(self._base_url + path, json=body)
        except httpx.HTTPError as error:
            print(f"webhook: {error}", file=sys.stderr)
            return False
        if not response.is_success:
            print(f"webhook: {path} {response.status_code} {beginning(response.text, 300)}", file=sys.stderr)
        return response.status_code < 500 and response.status_code not in (408, 429)


class Hidden:
    """Values that this agent server masks: the secrets of all its conversations, and credentials among its variables.

    A command in one conversation may print a secret of another. Kept only in memory. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, set[str]] = {}
        self.mask = Mask(credentials_in(os.environ))

    def put(self, conversation_id: str, secrets: Iterable[str]) -> None:
        """Replace the hidden values of a conversation."""
        with self._lock:
            self._of[conversation_id] = {*secrets}
            self.mask = Mask([*chain(*self._of.values()), *credentials_in(os.environ)])


class DiskError(Exception):
    """The disk refuses an operation. The message names the folder and the reason."""

    def __init__(self, verb: str, folder: Path, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        super().__init__(f"The agent server cannot {verb} {folder}: {reason}")


class KeptLog(NamedTuple):
    start: dict[str, Any]
    events: list[Event]
    state: dict[str, Any] | None  #: None before the first step


class Journal:
    """One conversation's folder. Every method raises DiskError. A refused step leaves nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._start, self._steps = folder, folder / "start.json", folder / "events.jsonl"
        self._size = 0  # bytes of the complete steps

    def create(self, start: dict[str, Any], history: list[Event] | None = None) -> None:
        """Create a conversation. history: another conversation's events, as the first step."""
        draft = self._start.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._steps.open("wb") as file:  # truncate: an interrupted deletion may have left events
                if history:
                    _write(file, _step(history, taken_up(history, start["confirmation_policy"])._asdict()))
            with draft.open("wb") as file:
                _write(file, json.dumps(start).encode())
            draft.rename(self._start)
            for folder in (self._folder, self._folder.parent):
                _sync(folder)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise DiskError("write to", self._folder, error) from error

    def load(self) -> KeptLog | None:
        """Return the folder's content without a torn last step; None if it holds no conversation."""
        try:
            if not self._start.exists():
                return None
            start = json.loads(self._start.read_bytes())
            return KeptLog(start, *self._read(self._steps.read_bytes()))
        except (OSError, ValueError) as error:
            raise DiskError("read", self._folder, error) from error

    def returned(self) -> dict[str, str] | None:
        """Return the note of the last return of the files: `id` of its event, `event_id`, `left_event_id`; or None."""
        try:
            note = json.loads((self._folder / "returned.json").read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DiskError("read", self._folder, error) from error
        return note if isinstance(note, dict) else None

    def append(self, events: list[Event], state: dict[str, Any]) -> None:
        step = _step(events, state)
        try:
            with self._steps.open("r+b") as file:  # opened each time, so that a deleted folder takes no step
                file.truncate(self._size)
                file.seek(self._size)
                _write(file, step)
        except OSError as error:
            self._drop_torn_step()
            raise DiskError("write to", self._folder, error) from error
        self._size += len(step)

    def remove(self) -> None:
        try:
            self._start.unlink(missing_ok=True)
            _sync(self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DiskError("remove", self._folder, error) from error
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, steps: bytes) -> tuple[list[Event], dict[str, Any] | None]:
        """Raises ValueError if a line before a complete step is damaged, which is more than a torn end."""
        events, step = list[Event](), list[Event]()
        state, position, damaged = None, 0, 0
        for number, raw in enumerate(steps.splitlines(keepends=True), 1):
            position += len(raw)
            line = _parsed(raw)
            if line is None:
                damaged = damaged or number
            elif "state" not in line:
                step.append(line)
            elif damaged:
                raise ValueError(f"line {damaged} of {self._steps.name} is damaged")
            else:
                events += step
                step, state, self._size = [], line["state"], position
        self._drop_torn_step()
        return events, state

    def _drop_torn_step(self) -> None:
        with suppress(OSError):  # the next step overwrites it
            if self._steps.stat().st_size > self._size:
                os.truncate(self._steps, self._size)


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _step(events: list[Event], state: dict[str, Any]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in [*events, {"state": state}]).encode()


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw) if raw.endswith(b"\n") else None
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _sync(folder: Path) -> None:
    """Flush a folder's entries, so that they survive a power failure."""
    number = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # some network file systems do not support it for folders
        os.fsync(number)
    os.close(number)


class StepState(NamedTuple):
    """The state after a step. The lists hold ids of events. Open actions are approved unless they wait."""

    policy: dict[str, Any]
    status: str = "idle"
    unanswered: list[str] = []  # messages
    open: list[str] = []  # actions without a result
    started: bool = False  # the first open action is about to run, runs, or was interrupted
    decided: dict[str, dict[str, Any]] = {}  # single decisions about open actions by id; see `conversation.py`
    stats: dict[str, Any] = {}  # the model's usage, as metrics of the wire
    mind: dict[str, Any] = {}  # the mind's own state
    task: dict[str, Any] = {}  # the current sub-task, see `delegation.py`; {}: none

    @property
    def ready(self) -> list[str]:
        """Return the next open actions: those of the current sub-task, if there is one."""
        return self.open[: self.open.index(self.task["id"])] if self.task else self.open


def taken_up(history: list[Event], policy: dict[str, Any]) -> StepState:
    """Return the state of a fork after its first events, in which nothing is open."""
    unanswered = list[str]()
    for event in events.way(history):
        match event:
            case {"kind": "MessageEvent", "source": "user", "id": str(identity)}:
                unanswered.append(identity)
            case {"kind": "MessageEvent" | "ActionEvent", "source": "agent"}:
                unanswered = []
    return StepState(policy, unanswered=unanswered)


class Log:
    """The events and the state of a conversation. A step is written before it is visible. Not thread-safe."""

    def __init__(self, kept: KeptLog, journal: Journal, webhooks: AgentWebhooks, hidden: Hidden | None = None) -> None:
        self.start, self.events = kept.start, kept.events
        self.way = events.way(kept.events)  #: events of the current branch
        self.state = StepState(**kept.state) if kept.state else StepState(kept.start["confirmation_policy"])
        self._last_user_message = _last_user_message(kept.events)
        self._journal, self._webhooks, self._hidden, self._secrets = journal, webhooks, hidden or Hidden(), set[str]()
        self.capabilities = CAPABILITIES  #: what the conversation's agent supports
        self._unsaid: list[Event] = []  # events that the disk refused; the next step writes them first

    def hide(self, *secrets: str) -> None:
        """Mask these values in results and in the agent server's log from now on."""
        self._secrets.update(secrets)
        self._hidden.put(self.start["id"], self._secrets)

    @property
    def mask(self) -> Mask:
        return self._hidden.mask

    @property
    def most_responses(self) -> int:
        return int(self.start.get("max_iterations", MOST_RESPONSES))

    def info(self) -> dict[str, Any]:
        updated_at = self.events[-1]["timestamp"] if self.events else self.start["created_at"]
        return {
            **{name: self.start[name] for name in ("id", "agent", "workspace", "title", "tags")},
            "execution_status": self.state.status,
            "confirmation_policy": self.state.policy,
            "max_iterations": self.most_responses,
            "capabilities": self.capabilities,
            "tool_module_qualnames": {**MODULES, **(self.start.get("tool_module_qualnames") or {})},
            "last_user_message_id": self._last_user_message,
            "leaf_event_id": self.events[-1]["id"] if self.events else None,  # head of a log without branches
            "stats": usage(self.state.stats),
            "created_at": f"{self.start['created_at']}Z",
            "updated_at": f"{updated_at}Z",
        }

    def find(self, event_id: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["id"] == event_id), None)

    def known(self, event_id: str) -> Event:
        event = self.find(event_id)
        assert event is not None, f"no event {event_id} in {self.start['id']}"
        return event

    def first_open(self) -> Event:
        return self.known(self.state.open[0])

    def step(self, state: StepState, step: list[Event]) -> None:
        """Write a step, then show and post it. Raises DiskError; then nothing has changed."""
        step = [*self._unsaid, *map(self._masked, step)]
        self._journal.append(step, state._asdict())
        self._unsaid = []
        self.state = state
        self.events += step
        self.way = events.way(self.events) if any(map(events.returned_to, step)) else [*self.way, *step]
        message = _last_user_message(step)
        self._last_user_message = message or self._last_user_message
        conversation = UUID(self.start["id"]).hex
        waits = state.status == "waiting_for_confirmation"
        for together in posts(step):
            self._webhooks.put(f"/events/{conversation}", together)
        for event in step:
            if event["kind"] != "ActionEvent" or (waits and event["id"] in state.open):
                self._print(event, is_begun=not waits)
        if message or any(event["kind"] == "ConversationStateUpdateEvent" for event in step):
            self.post_info()

    def begin(self, action: Event, state: StepState) -> None:
        """Write that the first open action begins, as it is executed, and print it. Raises DiskError."""
        self.step(state, [])
        self._print(action)

    def _print(self, event: Event, *, is_begun: bool = True) -> None:
        if line := log_line(event, self.mask, is_begun=is_begun):
            print(UUID(self.start["id"]).hex[:8], line, flush=True)

    def record(self, state: StepState, step: list[Event]) -> None:
        """Write a step that cannot be undone. After a DiskError the state is kept, and the next step writes both."""
        self.state = state
        self._unsaid += map(self._masked, step)
        self.step(state, [])

    def _masked(self, event: Event) -> Event:
        """Return a result with secrets masked, also for the model. Return other events unchanged."""
        members = {"ObservationEvent": ("observation",), "AgentErrorEvent": ("error",)}.get(event["kind"], ())
        return {**event, **{name: self.mask.value(event[name], is_output=True) for name in members}}

    def show(self, event: Event) -> None:
        """Post an event that is not stored to current followers."""
        self._webhooks.put(f"/events/{UUID(self.start['id']).hex}", [event], is_kept=False)

    def returned(self) -> dict[str, str] | None:
        """Return the note of a return of the files that has no event yet. Raises DiskError."""
        note = self._journal.returned()
        return note if note and self.find(note["id"]) is None and self.find(note["event_id"]) else None

    def remove(self) -> None:
        """Delete the folder. Raises DiskError; then nothing has changed."""
        self._journal.remove()
        self._hidden.put(self.start["id"], ())
        self.state = self.state._replace(status="deleting")
        self.post_info()

    def post_info(self) -> None:
        self._webhooks.put("/conversations", self.info())


def _last_user_message(so_far: list[Event]) -> str | None:
    return next(
        (one["id"] for one in reversed(so_far) if (one["kind"], one["source"]) == ("MessageEvent", "user")), None
    )


def posts(step: list[Event]) -> list[list[Event]]:
    """Group the events of a step for posting. An action without its result would wait for a decision."""
    posted = list[list[Event]]()
    for event in step:
        before = posted[-1][0] if posted and len(posted[-1]) == 1 else {}
        if before.get("kind") == "ActionEvent" and event.get("action_id") == before["id"]:
            posted[-1].append(event)
        else:
            posted.append([event])
    return posted


def log_line(event: Event, mask: Mask = NOTHING, *, is_begun: bool = True) -> str:
    """Return an event as a line of the agent server's log. is_begun: False for a waiting action."""
    match event:
        case {"kind": "MessageEvent", "llm_message": {"role": role, "content": content}}:
            text = f"{role}: {' '.join(part.get('text', '') for part in content)}"
        case {"kind": "ActionEvent", "tool_name": tool, "action": dict(action)}:
            text = str(action.get("command")) if tool == "terminal" else f"{tool}: {action.get('path') or ''}"
            if not is_begun:
                text = f"waits for a decision: {text}"
            elif tool == "terminal":
                text = f"$ {text}"
        case {"kind": "ObservationEvent", "tool_name": tool, "observation": dict(seen)}:
            text = f"{tool} ended: {seen['exit_code']}" if seen.get("exit_code") is not None else f"{tool} ended"
            text = f"{tool} goes on" if seen.get("exit_code") == GOES_ON else text
        case {"kind": "ConversationErrorEvent" | "AgentErrorEvent" | "UserRejectObservation" as kind}:
            text = f"{kind}: {event.get('detail') or event.get('error') or event.get('rejection_reason')}"
        case _:
            return ""
    text = " ".join(mask.text(text).split())
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return beginning(text, MOST_LOG_LINE)


def usage(stats: dict[str, Any]) -> dict[str, Any]:
    return {"usage_to_metrics": {"agent": stats} if stats else {}}


def moved(state: StepState, status: str, step: list[Event]) -> StepState:
    """Return the state with another status, and add the event of the change to the step."""
    step.append(events.change("execution_status", status))
    return state._replace(status=status)
