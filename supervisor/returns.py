"""Brings the files of a conversation back to an earlier event, in its own sandbox: `agents/returns.py`.

The files and the note of the return, which the agent reads at its start, come at one moment: whichever process is
killed, both are there or neither. The agent appends the event of the return once, by its id.
"""

import json
import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from runtimes import Launch, Runtime
from runtimes.shadow import TurnBack
from supervisor.archives import shadow_of

#: where an agent server keeps its conversations, as `launches.launch` tells it
_CONVERSATIONS = ".agent-server/conversations"


def turn_back(runtime: Runtime, order: Launch, back: Mapping[str, Any]) -> None:
    """Make a return, as `Sandboxes.turn_back` has it. No process of the sandbox lives. Raises RuntimeFailure."""
    place = f"{_CONVERSATIONS}/{UUID(back['conversation']).hex}/returned.json"
    note = {"id": back["id"], "event_id": back["event_id"], "left_event_id": back["events"][-1]}
    shadow_of(runtime, order, back["folder"]).turn_back(
        TurnBack(
            back["conversation"],
            back["seq"],
            back["last"],
            back["events"],
            os.fsencode(place),
            json.dumps(note).encode(),
        )
    )
