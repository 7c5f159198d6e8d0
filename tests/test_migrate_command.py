"""`python -m migrate`: where REDIS_URL names no store, it is the embedded one of DATA_DIR."""

import os
import subprocess
import sys

from tests.servers import PROJECT


def migrate(folder, *words: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "DATA_DIR": str(folder), "REDIS_URL": ""}
    command = [sys.executable, "-m", "migrate", *words]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def test_the_embedded_store_is_migrated_and_its_logs_are_packed_while_no_server_runs(tmp_path):
    done = migrate(tmp_path, "--logs")

    assert done.returncode == 0, done.stderr
    assert "All logs are packed: 0 conversations" in done.stderr


def test_a_store_that_does_not_start_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")

    done = migrate(tmp_path / "file")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "file" in done.stderr
