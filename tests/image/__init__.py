"""The image and compose.yaml on a real Docker engine."""

from tests.servers import wait_until
from tests.v1 import WireApi

#: headers of a client that leaves the server no open connection to wait for when it stops
NO_KEEPALIVE = {"Connection": "close"}


def answered(api: WireApi, conversation_id: str, command: str) -> str:
    """The output of a command that the agent of a conversation runs, after it has asked."""
    before = api.events(conversation_id, kind__eq="ObservationEvent")
    api.send(conversation_id, f"run: {command}")
    api.until(conversation_id, "waiting_for_confirmation")
    api.decide(conversation_id, True)
    api.until(conversation_id, "finished")
    wait_until(lambda: len(api.events(conversation_id, kind__eq="ObservationEvent")) > len(before), "the observation")
    return last_output(api, conversation_id)


def last_output(api: WireApi, conversation_id: str) -> str:
    """The output of the last command."""
    return api.events(conversation_id, kind__eq="ObservationEvent")[-1]["observation"]["content"][0]["text"].strip()
