"""Sub-tasks: a helper with its own context does a part of the job, and its report is the result of `delegate`.

Its events are in the conversation's log, and its calls wait for decisions. Their `llm_response_id` is `ID/RESPONSE`,
with the id of the `delegate` action. One sub-task runs at a time, without `delegate`. A user's message ends it.
"""

from typing import Any

from core.cuts import beginning
from reference_agent import events
from reference_agent.events import RESULTS, Event
from reference_agent.tools import MCP, Tools

#: Maximum number of responses of a sub-task, and of tokens of its requests and responses together.
MOST_RESPONSES, MOST_TOKENS = 60, 2_000_000
_TITLE, _ID = 60, 36  #: characters of the task in the summaries of its calls; length of an action's id

REQUEST = """\
You do a part of a larger job, in the same folder and shell. Only the person who decides about your calls sees your \
steps, and you cannot ask anybody. End with finish: its message is your report. Say what you did and found, with \
paths, and what is missing.

{task}"""

OVERTAKEN = "A new message from the user ended this sub-task before its report."
TOO_MUCH = "The sub-task was ended before its report: it reached the maximum of {what}."
STUCK = "The sub-task was ended before its report, because it repeats itself: {words}."


def begun(action: Event, stats: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a new sub-task. stats: the usage of models so far."""
    title = " ".join(action["action"]["data"]["task"].split())
    return {"id": action["id"], "title": beginning(title, _TITLE), "tokens": _tokens(stats)}


def task_of(event: Event) -> str:
    """Return the id of the `delegate` action of an event; "" outside of sub-tasks. Not for results."""
    task, slash, _ = str(event.get("llm_response_id") or "").partition("/")
    return task if slash and len(task) == _ID else ""


def own(so_far: list[Event], task: str = "") -> list[Event]:
    """Return the events of a sub-task, or those of the conversation without its sub-tasks."""
    calls = {one["tool_call_id"] for one in so_far if one["kind"] == "ActionEvent" and task_of(one) == task}
    return [one for one in so_far if (one["tool_call_id"] in calls if one["kind"] in RESULTS else task_of(one) == task)]


def seen(so_far: list[Event], action: Event) -> list[Event]:
    """Return the events for the helper: the prompt, its request and its steps. action: as it was decided."""
    given = action["action"]["data"]
    text = REQUEST.format(task="\n\n".join(filter(None, (given["task"], given.get("context")))))
    request = events.message("user", events.parts(text)) | {"id": f"{action['id']}/request"}
    prompt = [one for one in so_far[:1] if one["kind"] == "SystemPromptEvent"]
    return [*prompt, request, *own(so_far, action["id"])]


def end_of(task: dict[str, Any], of_task: list[Event], stats: dict[str, Any]) -> str:
    """Return why a sub-task has to end now; "" if it goes on."""
    if len({one["llm_response_id"] for one in of_task if one["kind"] == "ActionEvent"}) >= MOST_RESPONSES:
        return TOO_MUCH.format(what=f"{MOST_RESPONSES} responses")
    if _tokens(stats) - task["tokens"] > MOST_TOKENS:
        return TOO_MUCH.format(what=f"{MOST_TOKENS:,} tokens")
    return ""


def tools_of_task(tools: Tools) -> Tools:
    """Return the tools of a helper. Readers of the log must not take its `finish` for the end of the conversation."""
    finish = tools["finish"]._replace(stem=MCP, description="End your part of the job with a report.")
    return {**{name: tool for name, tool in tools.items() if name != "delegate"}, "finish": finish}


def _tokens(stats: dict[str, Any]) -> int:
    used = stats.get("accumulated_token_usage", {})
    return int(used.get("prompt_tokens", 0) + used.get("completion_tokens", 0))
