"""`python -m admin conversations`: exports and imports where the store is; a page of events is in memory at a time."""

import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from uuid import uuid4

import pytest

from admin import conversations
from tests.conftest import SECRET_KEY, as_events, event, limits_of, message, store_of
from tests.exports import sealed
from tests.servers import PROJECT, wait_until

MIB = 1024 * 1024

#: runs an import, then tells the most memory that it had, in KiB. `ru_maxrss` would have that of its parent too
MEASURED = """
import pathlib, re
from admin import conversations
assert conversations.main(["import"]) == 0
print(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
"""


class ConversationsCommand:
    """The command on one Redis."""

    def __init__(self, url: str) -> None:
        self.environment = {**os.environ, "REDIS_URL": url, "SECRET_KEY": SECRET_KEY}

    def run(self, *words: str, given: bytes = b"", status: int = 0, **others: str) -> SimpleNamespace:
        """What the command prints, run in this process."""
        standard = {name: io.TextIOWrapper(io.BytesIO()) for name in ("stdout", "stderr")}
        with pytest.MonkeyPatch.context() as patched:
            for name, value in {**self.environment, **others}.items():
                patched.setenv(name, value)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            for name, stream in standard.items():
                patched.setattr(sys, name, stream)
            ended = conversations.main([*words])
        for stream in standard.values():
            stream.flush()
        done = SimpleNamespace(**{name: stream.buffer.getvalue() for name, stream in standard.items()})
        assert ended == status, done.stderr
        return done

    def peak(self, given: bytes) -> int:
        """Bytes of the most memory that an import has."""
        command = [sys.executable, "-c", MEASURED]
        options = {"cwd": PROJECT, "env": self.environment, "input": given, "capture_output": True, "check": True}
        return 1024 * int(subprocess.run(command, **options).stdout)

    @contextmanager
    def importing(self):
        """An import that reads what is written to its standard input, killed at the end."""
        command = [sys.executable, "-m", "admin", "conversations", "import"]
        process = subprocess.Popen(command, cwd=PROJECT, env=self.environment, stdin=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def server(redis_url):
    """The command and a store."""
    return ConversationsCommand(redis_url), store_of(
        redis_url, limits_of(most=1, pause_idlest=False, host_seconds=10, start_seconds=10)
    )


@pytest.fixture
def lines(server, conversation) -> list[bytes]:
    """The export of a conversation that was deleted after it."""
    command, store = server
    store.conversations.create(conversation, title="Kept")
    store.events.append(conversation, as_events([event(), message("Straße")]))
    lines = command.run("export", conversation).stdout.splitlines()
    store.conversations.delete(conversation)
    return lines


def large(lines: list[bytes], number: int) -> bytes:
    """An export of so many events of nearly one MiB each."""
    head = {**json.loads(lines[0]), "id": str(uuid4()), "events": number}
    events = [event(text="x" * (MIB - 1000)) for _ in range(number)]
    return b"\n".join(sealed([json.dumps(line).encode() for line in [head, *events]]))


def test_a_changed_export_is_refused(server, conversation, lines):
    command, store = server
    changed = b"\n".join(lines).replace(b"Stra\\u00dfe", b"Strasse")

    assert b"line 4: The SHA-256 of the lines before is" in command.run("import", given=changed, status=1).stderr
    assert store.conversations.get_many([conversation]) == [None]


def test_what_was_exported_is_imported_and_a_repeat_says_so(server, conversation, lines):
    command, store = server

    assert command.run("import", given=b"\n".join(lines)).stderr.decode() == f"conversation {conversation}: imported\n"

    assert command.run("export", conversation).stdout.splitlines() == lines
    again = command.run("import", given=b"\n".join(lines)).stderr.decode()
    assert again == f"conversation {conversation}: exists already, with all of these events\n"
    assert store.events.count(conversation, body="strasse") == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: [*lines[:2], b"{"], "line 3: Invalid JSON"),
        (lambda lines: [*lines[:2], b'{"id":"a"}'], "line 3: kind: Field required; "),
        (lambda lines: sealed([lines[0], lines[1], lines[1]]), "line 3: An earlier event has the id"),
        (lambda lines: lines[:2], "line 3: The first line announces 2 events, and the export ends after 1"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_imported(server, conversation, lines, change, sentence):
    command, store = server

    said = command.run("import", given=b"\n".join(change(lines)), status=1).stderr.decode()

    assert said.startswith(f"conversations: {sentence}")
    assert store.conversations.get_many([conversation]) == [None]


@pytest.mark.parametrize(
    ("words", "others", "sentence"),
    [
        (("export", str(uuid4())), {}, "conversations: Conversation not found"),
        (("export", "x"), {}, "conversations: Input should be a valid UUID"),
        (("import",), {"REDIS_URL": "unix:///nowhere"}, "conversations: the store does not answer"),
        (("import",), {"MAX_IMPORT_BYTES": "x"}, "conversations: MAX_IMPORT_BYTES must be a whole number"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(server, words, others, sentence):
    assert server[0].run(*words, status=1, **others).stderr.decode().startswith(sentence)


@pytest.mark.process("starts three programs")
def test_the_program_exports_and_imports(server, lines):
    command, _ = server
    identity = json.loads(lines[0])["id"]
    options = {"cwd": PROJECT, "env": command.environment, "capture_output": True}
    program = [sys.executable, "-m", "admin", "conversations"]

    done = subprocess.run([*program, "import"], input=b"\n".join(lines), check=True, **options)
    assert done.stderr.decode() == f"conversation {identity}: imported\n"
    assert subprocess.run([*program, "export", identity], check=True, **options).stdout.splitlines() == lines
    assert subprocess.run([*program, "export", str(uuid4())], **options).returncode == 1


@pytest.mark.faults("kills an import")
def test_an_import_that_is_killed_leaves_nothing_that_a_reader_sees_or_that_stays(server, conversation, lines):
    command, store = server
    redis, pattern = store.conversations._redis, f"conv:{{{conversation}}}*"
    page = [json.dumps(event(text="x" * 2000)).encode() for _ in range(150)]
    head = json.dumps({**json.loads(lines[0]), "events": len(page)}).encode()
    before = set(redis.scan_iter(pattern))
    with command.importing() as process:
        process.stdin.write(b"\n".join([head, *page[:-1], b""]))
        process.stdin.flush()
        wait_until(lambda: any(key.endswith(b":log") for key in redis.scan_iter(f"{pattern}:fork:*")), "a page")
        assert store.conversations.get_many([conversation]) == [None]

    left = set(redis.scan_iter(pattern)) - before
    assert left
    assert all(redis.ttl(key) > 0 for key in left)
    assert store.conversations.get_many([conversation]) == [None]

    command.run("import", given=b"\n".join(sealed([head, *page])))
    assert store.events.count(conversation) == len(page)


@pytest.mark.process("imports 64 MiB")
def test_the_memory_of_an_import_does_not_grow_with_it(server, lines):
    command, _ = server

    assert command.peak(large(lines, 64)) - command.peak(large(lines, 2)) < 16 * MIB
