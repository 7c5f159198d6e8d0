"""Events from the reports of an ACP agent: joined message chunks, plans, results of tool calls, usage.

Unknown updates and members of a wrong type are ignored, because agents send updates of their own.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from core.cuts import beginning, head_and_tail
from reference_agent import events
from reference_agent.acp.permissions import (
    FOLDERS,
    MOST_NAME,
    MOST_SUMMARY,
    ShownPermission,
    arguments,
    is_too_long,
    merged,
    text,
)
from reference_agent.events import Event

#: Maximum length of a message and of thoughts in one event, in characters. The rest goes to another event.
MOST_TEXT = 100_000

#: Maximum length of the output of a tool call, in characters. The middle is cut.
MOST_OUTPUT = 60_000

#: Maximum number of tool calls of a turn in memory. The oldest is dropped first.
MOST_CALLS = 500

#: Maximum number of entries of a plan, and maximum length of an entry, in characters.
MOST_ENTRIES, MOST_ENTRY = 200, 1_000

ENDED = ("completed", "failed")

#: Summary prefixes of an action that the agent carried out without asking, or after a refusal.
UNASKED, FORBIDDEN = "Not asked for permission: ", "Carried out although it was not permitted: "

#: Statuses of a plan's entries in the task list of published clients.
_STATUSES = {"in_progress": "in_progress", "completed": "done"}


class Delta(NamedTuple):
    """A streamed part of a message."""

    text: str = ""
    thought: str = ""


class PromptTurn:
    """The agent's reports since its prompt began. Not thread-safe."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, Any]] = {}  #: merged tool calls, by id
        self.ignored = 0  #: number of updates of an unknown kind
        self.usage: dict[str, Any] = {}
        self._text = self._thought = ""
        self._message_id: Any = None

    def read(self, update: dict[str, Any]) -> tuple[list[Event], Delta | None]:
        """Handle an update. Return the complete events, and a part to stream."""
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": content}:
                return self._said(update, text_of(content), "")
            case {"sessionUpdate": "agent_thought_chunk", "content": content}:
                return self._said(update, "", text_of(content))
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": str(identity)}:
                self.merge(identity, update)
            case {"sessionUpdate": "plan", "entries": list(entries)}:
                return [*self.flushed(), *plan_of(entries)], None
            case {"sessionUpdate": "usage_update"}:
                self.usage = update
            case _:
                self.ignored += 1
        return [], None

    def merge(self, identity: str, update: dict[str, Any]) -> dict[str, Any]:
        """Merge an update into a tool call, and return the call. An unknown id begins a call."""
        call = merged(self.calls.pop(identity, {}), update)
        self.calls[identity] = call  # move it to the end
        if len(self.calls) > MOST_CALLS:
            del self.calls[next(iter(self.calls))]
        return call

    def flushed(self) -> list[Event]:
        """Return the message so far as an event, and reset it."""
        text, thought = self._text, self._thought
        self._text = self._thought = ""
        if not (text or thought):
            return []
        reasoning = {"reasoning_content": thought} if thought else {}
        return [events.message("agent", events.parts(text), **reasoning) | {"llm_response_id": fresh()}]

    def take_thought(self) -> tuple[list[Event], list[Event], dict[str, str]]:
        """Return the events before an action: a message, or otherwise the action's own thought and reasoning."""
        if self._text:
            return self.flushed(), [], {}
        thought, self._thought = self._thought, ""
        return [], [], {"reasoning_content": thought} if thought else {}

    def _said(self, update: dict[str, Any], said: str, thought: str) -> tuple[list[Event], Delta | None]:
        done = list[Event]()
        message_id = update.get("messageId")
        is_other = self._text and message_id is not None and message_id != self._message_id
        if is_other or (thought and self._text) or len(self._text) + len(self._thought) > MOST_TEXT:
            done = self.flushed()
        self._message_id = message_id if said else self._message_id
        self._text += said
        self._thought += thought
        return done, Delta(said, thought) if said or thought else None


def proposal(call_id: str, seen: ShownPermission, prefix: str, members: dict[str, Any]) -> Event:
    """Return the action of a tool call. prefix: of its summary; "" if the agent asks for permission."""
    summary = beginning(prefix + seen.summary, MOST_SUMMARY)
    if is_too_long(seen.action):
        short = {"cut": head_and_tail(json.dumps(seen.action), MOST_OUTPUT)}
        return proposal(call_id, seen._replace(action={"data": short, "kind": "MCPToolAction"}), prefix, members)
    call = {"id": call_id, "name": seen.tool_name, "arguments": json.dumps(arguments(seen.action))}
    return events.action(call, seen.action, fresh(), summary=summary, **members)


def result(action: Event, call: dict[str, Any]) -> Event:
    """Return the observation of an ended tool call."""
    failed, output = call.get("status") == "failed", head_and_tail(output_of(call), MOST_OUTPUT)
    seen: Event = {"content": events.parts(output), "is_error": failed}
    if action["action"]["kind"] == "TerminalAction":
        seen |= {"command": beginning(action["action"]["command"], MOST_OUTPUT), "exit_code": exit_code(call)}
        if seen["exit_code"] is None:
            seen["metadata"] = {}  # the published web client reads the exit code there, and fails without this member
    else:
        seen["tool_name"] = action["tool_name"]
    return events.observation(action, seen)


def other_arguments(shown: Any, ran: Any, folder: Path) -> str:
    """Return the names of arguments that differ from the shown ones; "" if none."""
    if not (isinstance(shown, dict) and isinstance(ran, dict)):
        return ""
    names = [name for name, value in ran.items() if name not in shown or shown[name] != value]
    own = [name for name in names if not (name in FOLDERS and name not in shown and ran[name] == str(folder))]
    return beginning(", ".join(own), MOST_SUMMARY)


def output_of(call: dict[str, Any]) -> str:
    """Return the output of a tool call: its content, otherwise its raw output."""
    blocks = call.get("content")
    texts = [_block(block) for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    if said := "\n".join(one for one in texts if one):
        return said
    raw = call.get("rawOutput")
    if isinstance(raw, dict):
        named = [raw[name] for name in ("output", "stdout", "formatted_output", "error") if text(raw.get(name))]
        raw = named[0] if named else raw
    return raw if isinstance(raw, str) else json.dumps(raw) if raw is not None else ""


def exit_code(call: dict[str, Any]) -> int | None:
    """Return the exit code of a command, if the agent reports it."""
    raw = call.get("rawOutput")
    places = [raw, raw.get("metadata")] if isinstance(raw, dict) else []
    codes = [one.get(name) for one in places if isinstance(one, dict) for name in ("exitCode", "exit_code", "exit")]
    return next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), None)


def _block(block: dict[str, Any]) -> str:
    match block:
        case {"type": "content", "content": content}:
            return text_of(content)
        case {"type": "diff", "path": str(path)}:
            return f"{path} now reads:\n{text(block.get('newText'))}"
    return ""


def text_of(content: Any) -> str:
    """Return a content block as text."""
    match content:
        case {"type": "text", "text": str(said)}:
            return said
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{text(content.get('name')) or uri}]({uri})"
        case {"type": "resource", "resource": {"text": str(said)}}:
            return said
        case {"type": "image" | "audio" as kind}:
            return f"({kind}, not shown)"
    return ""


def plan_of(entries: list[Any]) -> list[Event]:
    """Return a plan as the pair of events that published clients show as a task list."""
    tasks = [
        {"title": beginning(text(one.get("content")), MOST_ENTRY), "notes": "", "status": _status(one)}
        for one in entries[:MOST_ENTRIES]
        if isinstance(one, dict)
    ]
    details: Event = {"command": "plan", "task_list": tasks}
    call = {"id": fresh("plan"), "name": "task_tracker", "arguments": json.dumps(details)}
    action = events.action(call, {**details, "kind": "TaskTrackerAction"}, fresh(), summary="The agent's plan")
    done = f"{sum(task['status'] == 'done' for task in tasks)} of {len(tasks)} tasks are done."
    return [action, events.observation(action, {"content": events.parts(done), "is_error": False, **details})]


def _status(entry: dict[str, Any]) -> str:
    return _STATUSES.get(text(entry.get("status")), "todo")


def stats_of(
    before: dict[str, Any], response: Any, update: dict[str, Any], model: str, earlier: float = 0.0
) -> dict[str, Any]:
    """Return the metrics of the wire.

    response: `usage` of a prompt's response, per turn. update: the last `usage_update`, with the cost of the current
    process. earlier: cost of earlier processes, in US dollars. Without both, the metrics are unchanged.
    """
    given = response if isinstance(response, dict) else {}
    if not given and not update:
        return before
    old = before.get("accumulated_token_usage", {})
    names = {
        "prompt_tokens": "inputTokens",
        "completion_tokens": "outputTokens",
        "cache_read_tokens": "cachedReadTokens",
        "cache_write_tokens": "cachedWriteTokens",
        "reasoning_tokens": "thoughtTokens",
    }
    usage = {name: _count(given.get(member)) + old.get(name, 0) for name, member in names.items()}
    cost = update.get("cost")
    dollars = cost.get("amount") if isinstance(cost, dict) and cost.get("currency") == "USD" else None
    is_sum = isinstance(dollars, int | float) and not isinstance(dollars, bool) and 0 <= dollars < 1e9
    spent = earlier + dollars if dollars is not None and is_sum else before.get("accumulated_cost", 0.0)
    usage |= {
        "model": model,
        "context_window": _count(update.get("size")) or old.get("context_window", 0),
        "per_turn_token": _count(update.get("used")) or old.get("per_turn_token", 0),
        "response_id": fresh(),
    }
    return {
        "model_name": model,
        "accumulated_cost": spent,
        "max_budget_per_task": None,
        "accumulated_token_usage": usage,
    }


def _count(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if is_count else 0


def prompt_of(content: list[Event], *, images: bool) -> list[dict[str, Any]]:
    """Return a message of the wire as the content blocks of a prompt. images: whether the agent reads images."""
    blocks: list[dict[str, Any]] = []
    for part in content:
        if text(part.get("text")):
            blocks.append({"type": "text", "text": part["text"]})
        urls = part.get("image_urls")
        for url in urls if isinstance(urls, list) else []:
            blocks.append(_image(text(url), images=images))
        if path := text(part.get("path")):
            uri = path if "://" in path else f"file://{path}"
            blocks.append({"type": "resource_link", "uri": uri, "name": beginning(path.rpartition("/")[2], MOST_NAME)})
    return blocks or [{"type": "text", "text": "(An empty message.)"}]


def _image(url: str, *, images: bool) -> dict[str, Any]:
    head, comma, data = url.partition(",")
    if url.startswith("data:") and comma and head.endswith(";base64"):
        if images:
            return {"type": "image", "mimeType": head[5:].removesuffix(";base64") or "image/png", "data": data}
        return {"type": "text", "text": "(An image was attached. You do not read images, so it was left out.)"}
    return {"type": "resource_link", "uri": url, "name": "image"}


def fresh(prefix: str = "acp") -> str:
    return f"{prefix}_{uuid4().hex}"
