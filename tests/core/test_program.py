"""A command whose reader has gone ends at once and without a word, as `| head` expects."""

import os
import subprocess
import sys

import pytest

from core.program import READER_GONE
from tests.audits import chain
from tests.conftest import SECRET_KEY, as_events, event
from tests.servers import PROJECT

pytestmark = pytest.mark.process("starts programs and ends them")

ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001"


@pytest.fixture
def audit_file(tmp_path):
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b"".join(entry + b"\n" for entry in chain(ID, 2)))
    return file


def run_unread(*words: object, **environment: str) -> tuple[int, str]:
    """The exit status of a program whose standard output nobody reads, and what it says on standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, *map(str, words)]
        given = {**os.environ, "PYTHONUNBUFFERED": "", **environment}  # "": the last write is that of the exit
        done = subprocess.run(command, cwd=PROJECT, env=given, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.process("starts a command that imports the whole store")
def test_an_export_ends_when_its_reader_has_gone(redis_url, store, conversation):
    store.data_version.ensure()
    store.conversations.create(conversation)
    store.events.append(conversation, as_events([event(text="x" * 10_000) for _ in range(200)]))

    words = ("-m", "admin", "conversations", "export", conversation)
    assert run_unread(*words, REDIS_URL=redis_url, SECRET_KEY=SECRET_KEY) == (READER_GONE, "")


@pytest.mark.process("starts programs one after the other")
def test_a_verification_and_a_help_end_when_their_reader_has_gone(audit_file):
    status, said = run_unread("-m", "admin", "audit", "verify", audit_file)
    assert (status, said) == (READER_GONE, "audit: 2 entries of 1 conversations verify\n")

    assert run_unread("-m", "admin", "audit", "--help") == (READER_GONE, "")


def test_a_program_that_ends_by_itself_keeps_its_status():
    source = "import sys; from core.program import run; run(lambda: {})"
    for status, value in ((0, "None"), (0, "0"), (1, "1"), (3, "sys.exit(3)")):
        done = subprocess.run([sys.executable, "-c", source.replace("{}", value)], cwd=PROJECT, check=False)
        assert done.returncode == status


def test_a_program_with_private_files_leaves_no_bytecode_that_others_could_not_read(tmp_path):
    (tmp_path / "imported.py").write_text("")
    child = [sys.executable, "-c", "import imported"]
    source = (
        f"from core.program import keep_private; keep_private(); import imported, subprocess; subprocess.run({child})"
    )
    given = {**os.environ, "PYTHONPATH": f"{PROJECT}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", source], cwd=tmp_path, env=given, check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["imported.py"]
