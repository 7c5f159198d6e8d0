"""Which actions wait for a person, and single decisions about them. Source of the policies: the agent-server wire.

A request decides any of the actions that wait, all or nothing. A rejected action is closed at once. An approved or
edited one stays open until the last action is decided, then the run goes on. The state keeps each decision, so that
a kill neither loses one nor takes it twice.
"""

import json
from typing import Any

from core.cuts import beginning
from reference_agent import events
from reference_agent.events import Event
from reference_agent.log import Log, State, moved
from reference_agent.tools import RISKS, BadCall, read_call

Decision = dict[str, Any]  #: `action_id`; `decision`: approve, reject or edit; `reason` or `arguments`


def holds(policy: dict[str, Any], actions: list[Event]) -> bool:
    """Whether the actions of one response wait, all together. A lone finish never does."""
    if not actions or [action["action"]["kind"] for action in actions] == ["FinishAction"]:
        return False
    match policy.get("kind"):
        case "NeverConfirm":
            return False
        case "ConfirmRisky":
            return any(_is_risky(policy, action["security_risk"]) for action in actions)
    return True


def _is_risky(policy: dict[str, Any], risk: str) -> bool:
    if risk not in RISKS:
        return policy.get("confirm_unknown") is not False
    threshold = policy.get("threshold", "HIGH")
    return threshold not in RISKS or RISKS.index(risk) >= RISKS.index(threshold)


class Stale(Exception):
    """Decisions about actions that do not wait for them; the message names the actions."""

    def __init__(self, action_ids: list[str]) -> None:
        super().__init__(f"These actions are unknown, or decided already: {beginning(', '.join(action_ids), 500)}")


def read_decisions(given: Any, reason: str) -> list[Decision]:
    """The decisions of a request. reason: of a rejection that has none. Raises ValueError."""
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise ValueError("decisions should be a list of objects, at least one")
    read = [_decision(one, reason) for one in given]
    if len({one["action_id"] for one in read}) < len(read):
        raise ValueError("decisions should name each action once")
    return read


def decided(log: Log, decisions: list[Decision]) -> tuple[State, list[Event]]:
    """The state after decisions, and the events of that step. An exact repeat changes nothing. Raises Stale."""
    state = log.state
    new = [one for one in decisions if not _is_repeat(log, one)]
    waiting = undecided(state)
    if stale := [one["action_id"] for one in new if one["action_id"] not in waiting]:
        raise Stale(stale)
    reasons = {one["action_id"]: one["reason"] for one in new if one["decision"] == "reject"}
    kept = {one["action_id"]: one for one in new if one["decision"] != "reject"}
    state = state._replace(
        open=[action_id for action_id in state.open if action_id not in reasons], decided={**state.decided, **kept}
    )
    step = list[Event]()
    if new and not undecided(state):
        state = moved(state, "running" if state.open else "idle", step)
    step += [events.rejection(log.known(action_id), reason) for action_id, reason in reasons.items()]
    return state, step


def undecided(state: State) -> list[str]:
    """Ids of the actions that wait for a decision."""
    if state.status != "waiting_for_confirmation":
        return []
    return [action_id for action_id in state.open if action_id not in state.decided]


def as_decided(action: Event, state: State) -> Event:
    """An action as it is executed: with the arguments that a person has edited. Raises BadCall."""
    decision = state.decided.get(action["id"], {})
    if decision.get("decision") != "edit":
        return action
    arguments = decision["arguments"]
    try:
        details, _ = read_call(action["tool_name"], json.dumps(arguments))
    except BadCall as error:
        raise BadCall(f"A person has edited the arguments, and they cannot be executed. {error}") from None
    return {**action, "action": details, "edited": arguments}


def _decision(given: dict[str, Any], reason: str) -> Decision:
    action_id, verb, arguments = given.get("action_id"), given.get("decision"), given.get("arguments")
    if not isinstance(action_id, str) or verb not in ("approve", "reject", "edit"):
        raise ValueError("A decision should have an action_id, and approve, reject or edit as its decision")
    if verb == "edit":
        if not isinstance(arguments, dict):
            raise ValueError("arguments of an edit should be an object")
        return {"action_id": action_id, "decision": verb, "arguments": arguments}
    if verb == "approve":
        return {"action_id": action_id, "decision": verb}
    reason = reason if given.get("reason") is None else given["reason"]
    if not isinstance(reason, str):
        raise ValueError("reason should be a string")
    return {"action_id": action_id, "decision": verb, "reason": reason}


def _is_repeat(log: Log, decision: Decision) -> bool:
    """Whether this very decision was taken: the request before may have been killed before its response."""
    if decision["decision"] != "reject":
        return log.state.decided.get(decision["action_id"]) == decision
    return any(
        event["kind"] == "UserRejectObservation" and event["action_id"] == decision["action_id"]
        for event in reversed(log.events)
    )
