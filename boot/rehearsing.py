"""Starts the processes that run rehearsals (`supervisor/rehearsing.py`)."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from settings.config import Config

_log = logging.getLogger(__name__)


class Runners:
    """The rehearsal processes of this worker."""

    _command = (sys.executable, "-m", "supervisor.rehearsing")

    def __init__(self, config: Config) -> None:
        self._environment = {"REDIS_URL": config.redis.redis_url}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, rehearsal_id: str, runner: str) -> None:
        """Start the process of a rehearsal. If that fails, the next poll of the rehearsal tries again."""
        self._forget_ended()
        try:
            process = subprocess.Popen(
                [*self._command, rehearsal_id, runner],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd=Path(__file__).parents[1],
                env={**os.environ, **self._environment},
            )
        except OSError as error:  # for instance no free process
            _log.warning("rehearsal %s could not be started: %s", rehearsal_id, error)
        else:
            self._processes.append(process)

    def _forget_ended(self) -> None:
        for process in self._processes:
            if process.poll() is not None and process.stdin is not None:
                process.stdin.close()
        self._processes = [process for process in self._processes if process.returncode is None]
