"""`python -m admin migrate`: where REDIS_URL names no store, it is the embedded one of DATA_DIR."""

import os
import subprocess
import sys

import pytest

from tests.servers import PROJECT


def migrate(folder, *options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "DATA_DIR": str(folder), "REDIS_URL": ""}
    command = [sys.executable, "-m", "admin", "migrate", *options]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.process("starts a program and an embedded store")
def test_the_embedded_store_is_migrated_while_no_server_runs(tmp_path):
    done = migrate(tmp_path)

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(
        "agent-server: The data have version 1, that of this release. There is nothing to migrate.\n"
    )


@pytest.mark.process("starts programs and an embedded store")
def test_count_keys_prints_the_number_of_keys_of_a_current_store(tmp_path):
    assert migrate(tmp_path, "--count-keys").stdout == "0 0\n"
    make = [sys.executable, "-m", "admin", "keys", "make", "laptop", "--scope", "read"]
    subprocess.run(make, cwd=PROJECT, env={**os.environ, "DATA_DIR": str(tmp_path), "REDIS_URL": ""}, check=True)

    assert migrate(tmp_path, "--count-keys").stdout == "1 0\n"


@pytest.mark.process("starts a program")
def test_migrate_names_a_store_that_does_not_start(tmp_path):
    (tmp_path / "file").write_text("")

    done = migrate(tmp_path / "file")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "file" in done.stderr
