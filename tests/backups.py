"""`python -m admin` as an operator runs it, for a DATA_DIR."""

import os
import subprocess
import sys
from pathlib import Path

from tests.servers import PROJECT


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Without the settings of this machine's own server; the sandboxes' host is named as the tests' servers name it."""
    cleared = {"REDIS_URL": "", "SECRET_KEY": "", "HOST_ID": "", "COLD_URL": "", "SANDBOX_DIR": ""}
    return {**os.environ, **cleared, "DATA_DIR": str(folder), **settings}


def admin(folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess:
    """Run a command to its end. settings: of its environment."""
    return subprocess.run(
        [sys.executable, "-m", "admin", *words],
        cwd=PROJECT,
        env=environment(folder, **settings),
        capture_output=True,
        text=True,
        check=False,
    )


def backup(folder: Path, file: Path, **settings: str) -> subprocess.CompletedProcess:
    """Write a backup. It must succeed."""
    done = admin(folder, "backup", str(file), **settings)
    assert done.returncode == 0, done.stderr
    return done


def restore(file: Path, folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess:
    """Restore a backup. It must succeed."""
    done = admin(folder, "restore", str(file), "--data-dir", str(folder), *words, **settings)
    assert done.returncode == 0, done.stderr
    return done
