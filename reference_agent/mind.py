"""What decides about the agent's next actions: put a mind of yours in the place of these.

`Rule` needs no model. `model.py` has the one that thinks with a model.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from core.cuts import beginning
from reference_agent import events
from reference_agent.events import Event
from reference_agent.log import State
from reference_agent.tools import MOST_SUMMARY

#: shows a part of a response while it comes: text and reasoning. Raises Unwanted
Tell = Callable[[str, str], None]


class Unwanted(Exception):
    """Nobody waits for the response any more: its run was interrupted, or its conversation was deleted."""


class Response(NamedTuple):
    """What a mind made of the events so far."""

    events: list[Event]  #: those to append; the actions among them are executed once nothing holds them back
    answered: list[str] = []  #: ids of the messages that this responds to
    stats: dict[str, Any] | None = None  #: the usage of models since the start, where it has grown
    error: tuple[str, str] | None = None  #: code and detail, with which the run ends


class Mind(Protocol):
    """Any thread may use it, one at a time for each conversation."""

    def beginning(self) -> list[Event]:
        """The first events of a conversation."""

    def has_to_respond(self, so_far: list[Event], state: State) -> bool:
        """Whether the conversation goes on; asked when no action is open."""

    def respond(self, so_far: list[Event], state: State, tell: Tell) -> Response:
        """The next step of the conversation. Cost: what the mind needs; the conversation's lock is free meanwhile."""


#: most commands of a message, which are as many actions; and most characters of one, as JSON: an event has it twice,
#: and a shell takes 128 KiB
MOST_COMMANDS, MOST_COMMAND = 200, 300_000


class Rule:
    """Turns each `run: CMD` line of a message into an action, and replies to other messages with text."""

    def beginning(self) -> list[Event]:
        return []

    def has_to_respond(self, _so_far: list[Event], state: State) -> bool:
        return bool(state.unanswered)

    def respond(self, so_far: list[Event], state: State, _tell: Tell) -> Response:
        message_id = state.unanswered[0]
        said = next(event for event in so_far if event["id"] == message_id)
        text = events.text_of(said["llm_message"]["content"])
        lines = [line.strip() for line in text.splitlines()]
        if commands := [line.removeprefix("run:").strip() for line in lines if line.startswith("run:")]:
            if fault := _fault(commands):
                return Response([events.message("agent", events.parts(fault))], [message_id])
            return Response([_action(command, message_id) for command in commands], [message_id])
        return Response([events.message("agent", events.parts(f"You said: {text}"))], [message_id])


def _fault(commands: list[str]) -> str:
    """Why the commands of a message do not run; empty: they do."""
    if len(commands) > MOST_COMMANDS:
        return f"The message has {len(commands):,} commands; {MOST_COMMANDS} run at most. None of them was run."
    longest = max(map(len, commands))
    if max(len(json.dumps(command)) for command in commands) > MOST_COMMAND:
        return f"A command of the message has {longest:,} characters, more than a shell takes. None of them was run."
    return ""


def _action(command: str, response_id: str) -> Event:
    arguments = {"command": command, "is_input": False, "reset": False}
    call = {"id": f"call_{uuid4().hex}", "name": "terminal", "arguments": json.dumps(arguments)}
    return events.action(
        call, {**arguments, "kind": "TerminalAction"}, response_id, summary=beginning(command, MOST_SUMMARY)
    )
