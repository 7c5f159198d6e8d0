"""The events of the agent-server wire, and the messages for a model, which are derived from the events alone."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import uuid4

from core.cuts import beginning
from reference_agent.output import shortened

Event = dict[str, Any]
Message = dict[str, Any]  #: a message of a chat completion
RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")  #: kinds of events that close an action
#: Key of the change that marks a return to an earlier event: `event_id`, and `left_event_id`, the last event before it.
RETURNED = "returned_to"
#: Maximum characters of edited arguments in a result. Together with the output they must fit into an event.
MOST_NOTICE = 20_000
MOST_RESULT = 30_000  #: maximum characters of a result for the model; the middle is cut
#: Text that replaces omitted steps, without and with a summary.
_FORGOTTEN = "(Earlier steps were left out: the conversation is longer than the model's context.)"
_SUMMARIZED = "(Earlier steps were left out. This summary replaces them:)\n"
_TOLD = ("SystemPromptEvent", "MessageEvent", "ActionEvent", *RESULTS)  #: kinds of events for the model


def now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def event(kind: str, source: str, **members: Any) -> Event:
    return {"id": str(uuid4()), "timestamp": now(), "source": source, **members, "kind": kind}


def parts(text: str) -> list[Event]:
    """Return text as the content of a message, a thought or an observation; empty for ""."""
    return [{"type": "text", "text": text}] if text else []


def message(source: str, content: list[Event], **members: Any) -> Event:
    body = {"role": "assistant" if source == "agent" else "user", "content": content, "thinking_blocks": [], **members}
    return event("MessageEvent", source, llm_message=body, activated_skills=[], extended_content=[])


def way(so_far: list[Event]) -> list[Event]:
    """Return the events of the current branch, without those that returns have left behind.

    The last event before a return is the return's target, which a later return may leave behind too.
    """
    places = {one["id"]: place for place, one in enumerate(so_far)}
    found, place = list[Event](), len(so_far) - 1
    while place >= 0:
        found.append(so_far[place])
        to = places.get(returned_to(so_far[place]), place)
        place = to if to < place else place - 1
    return found[::-1]


def returned_to(event: Event) -> str | None:
    """Return the id of a return's target event; None for another event."""
    value = event.get("value") if event.get("key") == RETURNED else None
    return value.get("event_id") if isinstance(value, dict) else None


def open_actions(so_far: list[Event]) -> list[Event]:
    """Return the actions without a result."""
    ended = {event["tool_call_id"] for event in so_far if event["kind"] in RESULTS}
    actions = (event for event in so_far if event["kind"] == "ActionEvent" and event.get("action"))
    return [action for action in actions if action["tool_call_id"] not in ended]


def text_of(content: list[Event]) -> str:
    return "\n".join(part.get("text", "") for part in content)


def change(key: str, value: Any) -> Event:
    return event("ConversationStateUpdateEvent", "environment", key=key, value=value)


def action(call: Event, action: Event | None, response_id: str, **members: Any) -> Event:
    """Return a proposal. call: `id`, `name` and `arguments`, a text. action: None if it cannot be executed."""
    details = {"thought": [], "action": action, "tool_name": call["name"], "tool_call_id": call["id"]}
    details |= {"tool_call": {**call, "origin": "completion"}, "llm_response_id": response_id}
    details |= {"security_risk": "UNKNOWN", "summary": None, **members}
    return event("ActionEvent", "agent", **details)


def observation(of: Event, seen: Event) -> Event:
    """Return the result of an executed action. seen: `content`, `is_error`, and the tool's members."""
    if "edited" in of:
        edited = beginning(json.dumps(of["edited"]), MOST_NOTICE)
        notice = f"A person edited the arguments before the execution: {edited}"
        seen = {**seen, "content": [*parts(notice), *seen["content"]]}
    kind = of["action"]["kind"].replace("Action", "Observation")
    return event("ObservationEvent", "environment", **_call(of), action_id=of["id"], observation={**seen, "kind": kind})


def rejection(of: Event, reason: str) -> Event:
    details = {"action_id": of["id"], "rejection_reason": reason, "rejection_source": "user"}
    return event("UserRejectObservation", "environment", **_call(of), **details)


def failure(of: Event, error: str) -> Event:
    return event("AgentErrorEvent", "agent", **_call(of), error=error)


def error(code: str, detail: str) -> Event:
    return event("ConversationErrorEvent", "environment", code=code, detail=detail)


def _call(of: Event) -> Event:
    return {"tool_name": of["tool_name"], "tool_call_id": of["tool_call_id"]}


def messages(so_far: list[Event], unanswered: Iterable[str]) -> list[Message]:
    """Return the conversation as messages of a chat completion.

    Unanswered messages come last: a message that arrived during a tool call must not separate the call from its result.
    """
    results = {event["tool_call_id"]: event for event in so_far if event["kind"] in RESULTS}
    late = {*unanswered}
    earlier = [messages_of(group, results) for group in groups(so_far) if group[0]["id"] not in late]
    return [*chain.from_iterable(earlier), *(_said(event) for event in so_far if event["id"] in late)]


def groups(so_far: list[Event]) -> list[list[Event]]:
    """Return the events for the model without results. The actions of a response are one group."""
    found = list[list[Event]]()
    for event in view(so_far):
        response = event.get("llm_response_id")
        if event["kind"] == "ActionEvent" and found and response == found[-1][0].get("llm_response_id"):
            found[-1].append(event)
        elif event["kind"] not in RESULTS:
            found.append([event])
    return found


def view(so_far: list[Event]) -> list[Event]:
    """Return the events for the model. Summaries replace the events of condensations."""
    seen = list[Event]()
    for event in so_far:
        if event["kind"] in _TOLD:
            seen.append(event)
        elif event["kind"] == "Condensation":
            gone = {*event["forgotten_event_ids"]}
            seen = [one for one in seen if one["id"] not in gone]
            summary, place = event.get("summary"), event.get("summary_offset")
            if summary is None or place is None:
                seen = [one for one in seen if one.get("summary") != _FORGOTTEN]
                summary = _FORGOTTEN
                place = next((index for index, one in enumerate(seen, 1) if is_user(one)), len(seen))
            else:
                summary = _SUMMARIZED + summary
            seen.insert(place, {"id": f"{event['id']}-summary", "kind": "CondensationSummaryEvent", "summary": summary})
    return seen


def last_step(so_far: list[Event], unanswered: Iterable[str]) -> list[str]:
    """Return the ids of the answered events after the first message, or the first message's id if there are none."""
    late = {*unanswered}
    rest = [group for group in groups(so_far) if group[0]["id"] not in late and group[0]["kind"] != "SystemPromptEvent"]
    return [event["id"] for group in rest[1:] or rest for event in group]


def result_text(result: Event) -> str:
    """Return the text of a call's result for the model."""
    if result["kind"] == "ObservationEvent":
        seen = result["observation"]
        code = f"\n(exit code {seen['exit_code']})" if seen.get("exit_code") else ""
        return shortened(text_of(seen["content"]), MOST_RESULT) + code or "(no output)"
    if result["kind"] == "UserRejectObservation":
        return f"The user rejected this call, and it was not executed. The reason: {result['rejection_reason']}"
    return f"Error: {result['error']}"


def messages_of(group: list[Event], results: dict[str, Event]) -> list[Message]:
    """Return a group as messages of a chat completion. results: by call id."""
    if group[0]["kind"] != "ActionEvent":
        return [_said(group[0])]
    calls = [{"id": each["tool_call_id"], "type": "function", "function": _called(each["tool_call"])} for each in group]
    made: list[Message] = [{"role": "assistant", "content": text_of(group[0]["thought"]) or None, "tool_calls": calls}]
    for call_id in (each["tool_call_id"] for each in group):
        text = result_text(results[call_id]) if call_id in results else "This call has no result."
        made.append({"role": "tool", "tool_call_id": call_id, "content": text})
    return made


def _called(call: Event) -> Message:
    """Return a call for the model. Arguments that are no JSON object are replaced, because endpoints refuse them."""
    try:
        is_object = isinstance(json.loads(call["arguments"]), dict)
    except (ValueError, RecursionError):
        is_object = False
    return {"name": call["name"], "arguments": call["arguments"] if is_object else "{}"}


def _said(event: Event) -> Message:
    if event["kind"] == "SystemPromptEvent":
        context = event.get("dynamic_context") or {"text": ""}
        return {"role": "system", "content": f"{event['system_prompt']['text']}{context['text']}"}
    if event["kind"] == "CondensationSummaryEvent":
        return {"role": "user", "content": event["summary"]}
    said = event["llm_message"]
    images = [url for part in said["content"] for url in part.get("image_urls") or []]
    text = text_of([part for part in [*said["content"], *(event.get("extended_content") or [])] if "text" in part])
    if not images or event["source"] == "agent":
        return {"role": "assistant" if event["source"] == "agent" else "user", "content": text}
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {"role": "user", "content": [{"type": "text", "text": text}, *shown]}


def is_user(event: Event) -> bool:
    return bool(event["kind"] == "MessageEvent" and event["source"] == "user")
