"""Command lines for hints, as the reader of the hint can type them."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

#: The file that marks a container, and the command that runs a program in it.
_CONTAINERS = ((Path("/.dockerenv"), "docker exec"), (Path("/run/.containerenv"), "podman exec"))


def admin(words: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the command line of a `python -m admin` program: in this folder, or from outside of this container."""
    python, here = Path(sys.executable), Path.cwd()
    if python.is_relative_to(here):
        return f"{python.relative_to(here)} -m admin {words}"
    name = socket.gethostname()  # the name of the container or pod, by default
    if "KUBERNETES_SERVICE_HOST" in environment:
        return f"kubectl exec {name} -- python -m admin {words}"
    runner = next((command for mark, command in _CONTAINERS if mark.exists()), None)
    return f"{runner} {name} python -m admin {words}" if runner else f"{python} -m admin {words}"
