"""Starts runs at agent servers, which end a run a moment after they have told of its end."""

import time

from agents.link import AgentRefused, AgentServer
from wire import ConversationId

#: seconds in which an agent server ends a run that it calls ended, and between two tries to start the next one
_ENDING, _POLL = 3.0, 0.05


def start_run(agent: AgentServer, conversation_id: ConversationId) -> None:
    """Start a run; where the last one is about to end (409), after its end.

    A client that got the 409 would wait for the end of a run that nobody starts. The 409 is true, and final, of an
    agent that runs or waits: a retry could start a second run, or accept what waits meanwhile. Source: `run` of the
    published agent server. Raises AgentUnreachable and AgentRefused.
    """
    deadline = time.monotonic() + _ENDING
    while True:
        try:
            agent.post(conversation_id, "run", {}, repeatable=False)
        except AgentRefused as refusal:
            if refusal.status != 409 or time.monotonic() > deadline:
                raise
            if agent.state(conversation_id).get("execution_status") in ("running", "waiting_for_confirmation"):
                raise
        else:
            return
        time.sleep(_POLL)
