"""The events of the agent-server wire, and the messages for a model, which are made from the events alone."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import uuid4

from core.cuts import beginning
from reference_agent.output import shortened

Event = dict[str, Any]
Message = dict[str, Any]  #: of a chat completion
RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")  #: the kinds of events that close an action
#: key of the change that is a return to an earlier event: `event_id`, and `left_event_id`, the last one before it
RETURNED = "returned_to"
#: most characters of edited arguments that a result repeats: with the output they must fit into an event
MOST_NOTICE = 20_000
MOST_RESULT = 30_000  #: most characters of an action's result that a model reads: its begin and its end
#: what stands where steps were left out without a summary, and before a summary
_FORGOTTEN = "(Earlier steps were left out: the conversation is longer than the model's context.)"
_SUMMARIZED = "(Earlier steps were left out. This summary takes their place:)\n"
_TOLD = ("SystemPromptEvent", "MessageEvent", "ActionEvent", *RESULTS)  #: the kinds of events that a model is told


def now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def event(kind: str, source: str, **members: Any) -> Event:
    return {"id": str(uuid4()), "timestamp": now(), "source": source, **members, "kind": kind}


def parts(text: str) -> list[Event]:
    """Text as the content of a message, a thought or an observation; no part for no text."""
    return [{"type": "text", "text": text}] if text else []


def message(source: str, content: list[Event], **members: Any) -> Event:
    said = {"role": "assistant" if source == "agent" else "user", "content": content, "thinking_blocks": [], **members}
    return event("MessageEvent", source, llm_message=said, activated_skills=[], extended_content=[])


def way(so_far: list[Event]) -> list[Event]:
    """The events of the present way, without those that returns have left behind.

    The last event before a return is the one to which it returns, which may itself be left behind by a later one.
    """
    places = {one["id"]: place for place, one in enumerate(so_far)}
    found, place = list[Event](), len(so_far) - 1
    while place >= 0:
        found.append(so_far[place])
        to = places.get(returned_to(so_far[place]), place)
        place = to if to < place else place - 1
    return found[::-1]


def returned_to(event: Event) -> str | None:
    """The id of the event to which a return goes; None for another event."""
    value = event.get("value") if event.get("key") == RETURNED else None
    return value.get("event_id") if isinstance(value, dict) else None


def open_actions(so_far: list[Event]) -> list[Event]:
    """The actions that have no result."""
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
    """Return the result of an executed action. seen: `content`, `is_error`, and what the tool adds."""
    if "edited" in of:
        edited = beginning(json.dumps(of["edited"]), MOST_NOTICE)
        notice = f"A person has edited the arguments before this was executed: {edited}"
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
    """Return the conversation as a chat completion takes it.

    Unanswered messages come last: one that arrived while a tool worked must not come between a call and its result.
    """
    results = {event["tool_call_id"]: event for event in so_far if event["kind"] in RESULTS}
    late = {*unanswered}
    told = [messages_of(group, results) for group in groups(so_far) if group[0]["id"] not in late]
    return [*chain.from_iterable(told), *(_said(event) for event in so_far if event["id"] in late)]


def groups(so_far: list[Event]) -> list[list[Event]]:
    """The events that a model is told and has not forgotten, without results; the actions of a response together."""
    found = list[list[Event]]()
    for event in view(so_far):
        response = event.get("llm_response_id")
        if event["kind"] == "ActionEvent" and found and response == found[-1][0].get("llm_response_id"):
            found[-1].append(event)
        elif event["kind"] not in RESULTS:
            found.append([event])
    return found


def view(so_far: list[Event]) -> list[Event]:
    """The events that a model is told, with summaries in the place of those that condensations have left out."""
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
    """Return the ids of the answered events after the first message, or of that if there are none after it."""
    late = {*unanswered}
    rest = [group for group in groups(so_far) if group[0]["id"] not in late and group[0]["kind"] != "SystemPromptEvent"]
    return [event["id"] for group in rest[1:] or rest for event in group]


def result_text(result: Event) -> str:
    """What the model is told of a call's end."""
    if result["kind"] == "ObservationEvent":
        seen = result["observation"]
        code = f"\n(exit code {seen['exit_code']})" if seen.get("exit_code") else ""
        return shortened(text_of(seen["content"]), MOST_RESULT) + code or "(no output)"
    if result["kind"] == "UserRejectObservation":
        return f"The user rejected this call, and it was not executed. The reason: {result['rejection_reason']}"
    return f"Error: {result['error']}"


def messages_of(group: list[Event], results: dict[str, Event]) -> list[Message]:
    """A group as a chat completion takes it. results: by the id of their call."""
    if group[0]["kind"] != "ActionEvent":
        return [_said(group[0])]
    calls = [{"id": each["tool_call_id"], "type": "function", "function": _called(each["tool_call"])} for each in group]
    made: list[Message] = [{"role": "assistant", "content": text_of(group[0]["thought"]) or None, "tool_calls": calls}]
    for call_id in (each["tool_call_id"] for each in group):
        text = result_text(results[call_id]) if call_id in results else "This call has no result."
        made.append({"role": "tool", "tool_call_id": call_id, "content": text})
    return made


def _called(call: Event) -> Message:
    """A call as it came, but arguments that are no JSON object, which endpoints refuse."""
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
