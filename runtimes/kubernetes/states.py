"""The state of a sandbox, as its pod's status tells it."""

from typing import Any

from runtimes import Observation, State
from runtimes.containers import OUT_OF_MEMORY, exit_sentence

#: why a container waits that will not start by itself, and what to do. Source: the kubelet's reasons
_HOPELESS = {
    "InvalidImageName": "the name of its image is not valid: correct `image` of its spec",
    "ErrImageNeverPull": "its image is not on the node and may not be pulled",
    "ImagePullBackOff": "its image cannot be pulled: check `image` of its spec, and the registry's credentials",
    "CreateContainerConfigError": "its container cannot be made",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be run",
}


def observation(pod: dict[str, Any]) -> Observation:
    """A pod that waits for a node or an image is RUNNING; its agent server's time to answer bounds the wait."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    state = containers[0].get("state") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return Observation(State.GONE, "its pod is being removed")
    if status.get("phase") in ("Succeeded", "Failed"):
        return Observation(State.GONE, _ending(status, state.get("terminated") or {}))
    waiting = state.get("waiting") or {}
    if hopeless := _HOPELESS.get(waiting.get("reason", "")):
        return Observation(State.GONE, f"{hopeless}: {waiting.get('message') or waiting['reason']}")
    if waiting:
        return Observation(State.RUNNING, f"its container waits: {waiting.get('message') or waiting.get('reason')}")
    for condition in status.get("conditions") or []:
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return Observation(State.RUNNING, f"no node takes its pod: {condition.get('message', '')}. {_ROOM}")
    return Observation(State.RUNNING)


_ROOM = "Add nodes, pause sandboxes, or lower the limits of its spec"


def _ending(status: dict[str, Any], ended: dict[str, Any]) -> str:
    """How a pod ended, as its node reports it. ended: the last state of its container."""
    if ended.get("reason") == "OOMKilled":
        return OUT_OF_MEMORY
    if status.get("reason"):  # Evicted, NodeLost, …
        return f"{status['reason']}: {status.get('message', '')}".rstrip(": ")
    if "exitCode" not in ended:
        return "how is not known"
    how = exit_sentence(int(ended["exitCode"]))
    return f"{how}: {ended['message']}" if ended.get("message") else how
