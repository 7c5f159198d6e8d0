"""The messages for a model, made from the events alone: what a kill leaves in the journal is all that is needed."""

import json
from collections.abc import Iterable
from typing import Any

from agents.reference.events import RESULTS, Event, text_of

Message = dict[str, Any]

#: most characters of an action's result that a model reads: its begin and its end
MOST_RESULT = 30_000

#: what stands where the beginning of a conversation was left out
_FORGOTTEN = "(Earlier steps were left out: the conversation is longer than the model's context.)"


def messages(so_far: list[Event], unanswered: Iterable[str]) -> list[Message]:
    """The whole conversation as a chat completion takes it.

    The results of a response's calls follow that response, and unanswered messages come last: a message that arrived
    while a tool or the model worked must not come between.
    """
    results = {event["tool_call_id"]: event for event in so_far if event["kind"] in RESULTS}
    late = {*unanswered}
    made = list[Message]()
    for group in groups(so_far):
        if group[0]["id"] not in late:
            made += _of_group(group, results)
    if forgotten(so_far):
        first = next((index for index, message in enumerate(made, 1) if message["role"] == "user"), 0)
        made.insert(first, {"role": "user", "content": _FORGOTTEN})
    return made + [_said(event) for event in so_far if event["id"] in late]


def groups(so_far: list[Event]) -> list[list[Event]]:
    """The events that a model is told and has not forgotten, without results; the actions of a response together."""
    gone, found = forgotten(so_far), list[list[Event]]()
    for event in so_far:
        if event["kind"] in ("SystemPromptEvent", "MessageEvent", "ActionEvent") and event["id"] not in gone:
            response = event.get("llm_response_id")
            if event["kind"] == "ActionEvent" and found and response == found[-1][0].get("llm_response_id"):
                found[-1].append(event)
            else:
                found.append([event])
    return found


def forgotten(so_far: list[Event]) -> set[str]:
    """Ids of the events that condensations have left out."""
    return {id for event in so_far if event["kind"] == "Condensation" for id in event["forgotten_event_ids"]}


def to_forget(so_far: list[Event], unanswered: Iterable[str]) -> list[str]:
    """Ids of the older half of the conversation, but its first message and its last step; empty: nothing is left."""
    kept = {*unanswered}
    all_groups = [group for group in groups(so_far) if group[0]["id"] not in kept]
    first = next((index for index, group in enumerate(all_groups, 1) if _is_user(group[0])), 0)
    old = all_groups[first:-1]
    return [event["id"] for group in old[: (len(old) + 1) // 2] for event in group]


def result_text(result: Event) -> str:
    """What the model is told of a call's end."""
    if result["kind"] == "ObservationEvent":
        seen = result["observation"]
        code = f"\n(exit code {seen['exit_code']})" if seen.get("exit_code") else ""
        return _shortened(text_of(seen["content"])) + code or "(no output)"
    if result["kind"] == "UserRejectObservation":
        return f"The user rejected this call, and it was not executed. The reason: {result['rejection_reason']}"
    return f"Error: {result['error']}"


def _of_group(group: list[Event], results: dict[str, Event]) -> list[Message]:
    if group[0]["kind"] != "ActionEvent":
        return [_said(group[0])]
    calls = [{"id": each["tool_call_id"], "type": "function", "function": _called(each["tool_call"])} for each in group]
    made: list[Message] = [
        {"role": "assistant", "content": text_of(group[0]["thought"]) or None, "tool_calls": calls},
    ]
    for each in group:
        result = results.get(each["tool_call_id"])
        text = result_text(result) if result else "This call has no result."
        made.append({"role": "tool", "tool_call_id": each["tool_call_id"], "content": text})
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
        return {"role": "system", "content": event["system_prompt"]["text"]}
    said = event["llm_message"]
    images = [url for part in said["content"] for url in part.get("image_urls") or []]
    text = text_of([part for part in said["content"] if "text" in part])
    if not images or event["source"] == "agent":
        return {"role": "assistant" if event["source"] == "agent" else "user", "content": text}
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {"role": "user", "content": [{"type": "text", "text": text}, *shown]}


def _is_user(event: Event) -> bool:
    return bool(event["kind"] == "MessageEvent" and event["source"] == "user")


def _shortened(text: str) -> str:
    if len(text) <= MOST_RESULT:
        return text
    half = MOST_RESULT // 2
    return f"{text[:half]}\n… {len(text) - MOST_RESULT} characters left out …\n{text[-half:]}"
