"""Returns the files of a conversation to an earlier event, in its own sandbox: `agents/returns.py`.

The files and the note of the return, which the agent reads at its start, appear atomically, even if a process is
killed. The agent appends the event of the return once, by its id.
"""

import json
import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from runtimes import Launch, Runtime
from runtimes.shadow import TurnBack
from supervisor.archives import shadow_of

#: Folder of an agent server's conversations, as in `launches.launch`.
_CONVERSATIONS = ".agent-server/conversations"


def turn_back(runtime: Runtime, order: Launch, back: Mapping[str, Any]) -> None:
    """Make a return; see `Sandboxes.turn_back`. The sandbox must have no processes. Raises RuntimeCallFailed."""
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
