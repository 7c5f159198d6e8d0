"""What a sandbox spec may say depends on its runtime: the checks that go beyond one member."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import ValidationError

#: keys that loosen the hardening of a container, and keys of process sandboxes, with their defaults
_OF_CONTAINERS: dict[str, Any] = {"capabilities": [], "new_privileges": False, "read_only": True}
_OF_PROCESSES: dict[str, Any] = {"isolation": "auto", "readable": []}

#: the least memory that an engine gives to a container
_LEAST_MEMORY_MB = 6


def _check_container(spec: Mapping[str, Any]) -> None:
    folder, memory = spec["working_dir"], spec["limits"].get("memory_mb", _LEAST_MEMORY_MB)
    if not spec["image"]:
        raise ValidationError(f"Missing: the {spec['runtime']} runtime needs one.", "image")
    if folder != "." and not (folder.startswith("/") and folder.strip("/")):
        raise ValidationError('Must be "." (the image\'s own) or an absolute path but /.', "working_dir")
    for key, absent in _OF_PROCESSES.items():
        if spec[key] != absent:
            raise ValidationError("Only for the process runtime: a container is isolated.", key)
    if spec["network"] in ("host", "none"):
        raise ValidationError("Must be a network that publishes ports: neither host nor none.", "network")
    if spec["network"] is not None and not re.fullmatch(r"[\w.-]+", spec["network"]):
        raise ValidationError("Must be the name of a network of the engine.", "network")
    if memory < _LEAST_MEMORY_MB:
        raise ValidationError({"memory_mb": [f"Must be at least {_LEAST_MEMORY_MB} for a container."]}, "limits")
    if spec["limits"].get("processes") == 0:
        raise ValidationError({"processes": ["Must be at least 1 for a container."]}, "limits")


def _check_pod(spec: Mapping[str, Any]) -> None:
    _check_container(spec)
    if spec["network"] is not None:
        raise ValidationError("Only for the other runtimes: NetworkPolicies decide what a pod reaches.", "network")
    if "processes" in spec["limits"]:
        raise ValidationError({"processes": ["Only for the other runtimes: podPidsLimit of the kubelet."]}, "limits")


def _check_process(spec: Mapping[str, Any]) -> None:
    for key, absent in _OF_CONTAINERS.items():
        if spec[key] != absent:
            raise ValidationError("Only for the docker and kubernetes runtimes.", key)
    if spec["network"] not in (None, "internet", "none"):
        raise ValidationError('Must be "internet" or "none" for the process runtime.', "network")
    if spec["isolation"] == "none" and spec["network"] == "none":
        raise ValidationError(
            'Must be absent with isolation = "none": the sandbox has the machine\'s network.', "network"
        )


#: by runtime: raises marshmallow's ValidationError for what no sandbox of that runtime can have
CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "process": _check_process,
    "docker": _check_container,
    "kubernetes": _check_pod,
}
