"""Runs a rehearsal in the background:  python -m supervisor.rehearsing ID RUNNER

A worker starts this process (`boot/rehearsing.py`), and holds its standard input. When the worker ends, this process
ends, and another worker resumes the rehearsal. It has the lowest priority, so that requests do not wait for it.
"""

import gc
import logging
import os
import sys

from boot.keeper import parent_is_there
from core.pauses import serve_nobody
from settings.config import Config
from store.approvals.background import RehearsalNotFound
from store.errors import UNAVAILABLE
from telemetry.logs import log_to_stderr
from wiring import open_store_of

_log = logging.getLogger(__name__)

#: The niceness of a runner: the lowest priority.
_NICE = 19


def main(words: list[str]) -> int:
    """Run a rehearsal. Return the exit status: 1 if it failed; the log has the reason."""
    rehearsal_id, runner = words
    os.nice(_NICE)
    serve_nobody()
    config = Config.from_env()
    log_to_stderr("rehearsal", config.host.log_level.upper())
    rehearsals = open_store_of(config).approvals.background
    gc.freeze()  # loaded modules are never collected
    try:
        rehearsals.run(rehearsal_id, runner, lambda: parent_is_there(0))
    except RehearsalNotFound:
        return 1
    except UNAVAILABLE as error:  # another runner continues after the lease
        _log.warning("rehearsal %s was left: the store does not answer: %s", rehearsal_id, error)
        return 1
    except Exception:
        _log.exception("rehearsal %s failed", rehearsal_id)
        rehearsals.fail(
            rehearsal_id, runner, "An error of the server ended the rehearsal. The server's log describes it"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
