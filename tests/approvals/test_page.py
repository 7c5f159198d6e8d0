"""docs/approvals.md: its commands run as they stand, and the tests that it names are there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from admin.audit import main
from tests.approvals import ADMIN
from tests.servers import PROJECT, program

PAGE = (PROJECT / "docs" / "approvals.md").read_text()


@pytest.mark.process("runs a script against a real server")
def test_the_walk_of_the_page_ends_with_one_approval_that_verifies(servers, tmp_path):
    script = "".join(re.findall(r"<!-- walk -->\n```sh\n(.*?)```", PAGE, re.DOTALL))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "SERVER": str(servers.one.base_url).rstrip("/"),
        "SESSION_API_KEY": ADMIN,
    }

    ran = subprocess.run(
        [program("bash"), "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "refused"
    [entry] = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert (entry["decision"], entry["action_ids"]) == ("approve", ["act-1"])
    heads = str(tmp_path / "heads")
    assert main(["verify", str(tmp_path / "audit.jsonl"), "--heads", heads]) == 0
    assert f"{entry['conversation_id']} 1 {entry['hash']}" in (tmp_path / "heads").read_text()


def test_every_test_that_the_page_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    sources = "".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))
    kept = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))

    assert named
    assert named <= kept
