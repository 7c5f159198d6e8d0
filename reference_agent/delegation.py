"""Sub-tasks: a helper with a context of its own does a part of the job, and its report is the result of `delegate`.

Its events are in the conversation's log, and its calls wait for decisions. Their `llm_response_id` is `ID/RESPONSE`,
with the id of the `delegate` action. One sub-task runs at a time, without `delegate`. A user's message ends it.
"""

from typing import Any

from core.cuts import beginning
from reference_agent import events
from reference_agent.events import RESULTS, Event
from reference_agent.tools import MCP, Tools

#: maximum number of responses of a sub-task, and of tokens of its requests and responses together
MOST_RESPONSES, MOST_TOKENS = 60, 2_000_000
_TITLE, _ID = 60, 36  #: characters of the task that stand before the summaries of its calls; length of an action's id

REQUEST = """\
You do a part of a larger job, in the same folder and shell. Nobody sees your steps but the person who decides about \
your calls, and you cannot ask anybody. End with finish: its message is your report. Say what you did and found, with \
paths, and what is missing.

{task}"""

OVERTAKEN = "A new message of the user ended this sub-task before its report."
TOO_MUCH = "The sub-task was ended before its report: it has taken {what}, the most that is allowed."
STUCK = "The sub-task was ended before its report: it repeats itself, as {words}."


def begun(action: Event, stats: dict[str, Any]) -> dict[str, Any]:
    """What the state keeps of a sub-task while it runs. stats: the usage of models so far."""
    title = " ".join(action["action"]["data"]["task"].split())
    return {"id": action["id"], "title": beginning(title, _TITLE), "tokens": _tokens(stats)}


def task_of(event: Event) -> str:
    """The id of the action whose sub-task an event belongs to; "" of the conversation's own. Not for results."""
    task, slash, _ = str(event.get("llm_response_id") or "").partition("/")
    return task if slash and len(task) == _ID else ""


def own(so_far: list[Event], task: str = "") -> list[Event]:
    """The events of a sub-task, or those of the conversation without its sub-tasks."""
    calls = {one["tool_call_id"] for one in so_far if one["kind"] == "ActionEvent" and task_of(one) == task}
    return [one for one in so_far if (one["tool_call_id"] in calls if one["kind"] in RESULTS else task_of(one) == task)]


def seen(so_far: list[Event], action: Event) -> list[Event]:
    """The events that the helper reads: the prompt, its request, and what it has done. action: as it was decided."""
    given = action["action"]["data"]
    text = REQUEST.format(task="\n\n".join(filter(None, (given["task"], given.get("context")))))
    request = events.message("user", events.parts(text)) | {"id": f"{action['id']}/request"}
    prompt = [one for one in so_far[:1] if one["kind"] == "SystemPromptEvent"]
    return [*prompt, request, *own(so_far, action["id"])]


def end_of(task: dict[str, Any], of_task: list[Event], stats: dict[str, Any]) -> str:
    """Why a sub-task has to end now; "": it goes on."""
    if len({one["llm_response_id"] for one in of_task if one["kind"] == "ActionEvent"}) >= MOST_RESPONSES:
        return TOO_MUCH.format(what=f"{MOST_RESPONSES} responses")
    if _tokens(stats) - task["tokens"] > MOST_TOKENS:
        return TOO_MUCH.format(what=f"{MOST_TOKENS:,} tokens")
    return ""


def tools_of_task(tools: Tools) -> Tools:
    """The tools of a helper. Its `finish` is none of the kind that ends a conversation, for whoever reads the log."""
    finish = tools["finish"]._replace(stem=MCP, description="End your part of the job with a report.")
    return {**{name: tool for name, tool in tools.items() if name != "delegate"}, "finish": finish}


def _tokens(stats: dict[str, Any]) -> int:
    used = stats.get("accumulated_token_usage", {})
    return int(used.get("prompt_tokens", 0) + used.get("completion_tokens", 0))
