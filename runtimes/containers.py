"""What sandboxes in containers have in common, whatever starts the containers: a Docker engine or a cluster."""

import contextlib
import signal

#: labels of a container: its sandbox, the host of the supervisor that made it, and the number of its start.
#: A volume has the first two.
SANDBOX, HOST, START = "agent-server.sandbox", "agent-server.host", "agent-server.start"

#: the working folder of a sandbox where nothing names one
WORK = "/workspace"

#: limits of a sandbox without limits in its spec: bytes of memory, cpus
MEMORY_BYTES, CPUS = 2 << 30, 1.0

#: how a container ended that the kernel ended for its memory
OUT_OF_MEMORY = "it needed more memory than it may have"


def exit_sentence(code: int) -> str:
    """How a container ended, by its exit code: shells and inits add the number of the signal to 128."""
    with contextlib.suppress(ValueError):
        return f"exit code {code}: it was ended by {signal.Signals(code - 128).name}"
    return f"exit code {code}"
