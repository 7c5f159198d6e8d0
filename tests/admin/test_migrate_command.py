"""`python -m admin migrate`: where REDIS_URL names no store, it is the embedded one of DATA_DIR."""

import os
import subprocess
import sys

import pytest

from tests.servers import PROJECT


def migrate(folder) -> subprocess.CompletedProcess:
    environment = {**os.environ, "DATA_DIR": str(folder), "REDIS_URL": ""}
    command = [sys.executable, "-m", "admin", "migrate"]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.process("starts a program and an embedded store")
def test_the_embedded_store_is_migrated_while_no_server_runs(tmp_path):
    done = migrate(tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process("starts a program")
def test_a_store_that_does_not_start_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")

    done = migrate(tmp_path / "file")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "file" in done.stderr
