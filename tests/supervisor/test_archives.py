"""Zstandard streams: what is not whole is refused, and no input makes the reader take more memory than its pieces.

Records of folders: what a sandbox makes slow costs a bounded part of the host's time, and holds up no other task.
"""

import json
import os
import random
import threading
from uuid import uuid4

import pytest

from core.filenames import as_text
from runtimes.git import NotRecorded
from runtimes.tar_stream import PIECE, TarUnreadable
from settings.specs import Specs
from store.sandboxes.files import LookupResult
from supervisor import archives
from supervisor.archives import MOST_AT_ONCE, MOST_LISTED, HostArchives, HostFiles, compressed, decompressed, zstd
from tests.conftest import action, as_events, no_threads, observation, status
from tests.servers import TIMEOUT, wait_until


def packed(data: bytes) -> bytes:
    return b"".join(compressed([data]))


@pytest.mark.parametrize("data", [b"no frame", packed(os.urandom(5000))[:-1], packed(b"x")[:3], packed(b"x") + b"more"])
def test_what_is_no_whole_frame_is_refused(data):
    with pytest.raises(TarUnreadable):
        list(decompressed([data]))


def test_a_changed_byte_is_found_by_the_checksum():
    data = bytearray(packed(random.Random(1).randbytes(100_000)))
    data[50_000] ^= 1

    with pytest.raises(TarUnreadable):
        list(decompressed([bytes(data)]))


def test_a_frame_that_asks_its_reader_for_more_than_8_mib_is_refused():
    window = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=window)

    with pytest.raises(TarUnreadable, match="8 MiB"):
        list(decompressed([compressor.compress(bytes(1000)) + compressor.flush()]))


def test_a_bomb_comes_in_small_pieces():
    pieces = decompressed([packed(bytes(200 << 20))])

    assert all(len(piece) <= PIECE for piece in pieces)


@pytest.mark.process("reads 100,000 frames")
def test_a_hundred_thousand_empty_frames_are_read():
    assert list(decompressed([packed(b"") * 100_000, packed(b"x")])) == [b"x"]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_round_trip_is_exact_however_the_bytes_are_cut(size):
    data = random.Random(2).randbytes(10_000) + bytes(10_000)
    whole = packed(data[:5000]) + packed(data[5000:])

    assert b"".join(decompressed(whole[at : at + size] for at in range(0, len(whole), size))) == data


def test_a_slow_source_is_sent_on_before_a_block_is_full(monkeypatch):
    monkeypatch.setattr(archives, "_SHORT", 0.0)
    sent = compressed(iter([b"a", b"b"]))

    first = next(sent)

    assert zstd.ZstdDecompressor().decompress(first) == b"a"


class Folders:
    """Shadow repositories whose records take until a test ends them; a record takes so many seconds of a clock."""

    def __init__(self, clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self.recorded, self.at_once, self.most = [], 0, 0
        self.may_end, self._lock = threading.Event(), threading.Lock()

    def record(self, conversation: str, seq: int, _at_rest: object) -> None:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.may_end.wait(TIMEOUT)
        with self._lock:
            self.at_once -= 1
            self._clock.now += self._seconds
            self.recorded.append((conversation, seq))


@pytest.fixture
def recorder(one_store, spec, runtime, clock, monkeypatch):
    """Makes the files of a host whose records take so many seconds: those, what records, and the rests."""

    def make(seconds: float, rest=None):
        folders, rests = Folders(clock, seconds), []
        monkeypatch.setattr(runtime, "shadow", lambda *_: folders)
        files = HostFiles(one_store, Specs([spec]), {"scripted": runtime}, "h", clock=clock, rest=rest or rests.append)
        return files, folders, rests

    return make


def test_a_folder_is_at_rest_from_the_last_result_on_while_the_agent_stands_still(one_store, running, recorder):
    # Given a conversation in which an action was executed, and another one waits
    files, _, _ = recorder(0.0)
    [one] = conversations_of(one_store, running.id, 1)
    done, waiting = action("ls"), action("rm")
    log = [status("running"), done, observation(done), waiting, status("waiting_for_confirmation")]
    ids = [event["id"] for event in log]

    def append(*events):
        one_store.events.append(one, as_events([*events]), sandbox_id=running.id)

    def at_rest(seq, after=0):
        return files._events_at_rest(one, seq, after)

    append(*log[:3])
    assert at_rest(3) == [], "it runs"
    append(*log[3:])
    assert at_rest(5) == ids[2:]
    assert at_rest(5, after=4) == ids[4:]
    assert at_rest(4) == [], "an event has come since"
    one_store.sandboxes.echoes.expect(one, ["message of a user"])
    assert at_rest(5) == [], "the agent has a message that the log has not"
    one_store.events._redis.delete(f"conv:{{{one}}}:echoes")


def test_a_folder_is_not_at_rest_while_the_agent_was_paused_in_the_middle_of_an_action(one_store, running, recorder):
    files, _, _ = recorder(0.0)
    [one] = conversations_of(one_store, running.id, 1)
    done = action("sleep 9")
    one_store.events.append(one, as_events([status("running"), done, status("paused")]), sandbox_id=running.id)
    assert files._events_at_rest(one, 3, 0) == []

    result = observation(done)
    one_store.events.append(one, as_events([result]), sandbox_id=running.id)
    assert files._events_at_rest(one, 4, 0) == [result["id"]]


def conversations_of(store, sandbox_id: str, number: int) -> list[str]:
    found = [str(uuid4()) for _ in range(number)]
    for one in found:
        store.conversations.create(one, sandbox_id=sandbox_id, app={})
    return found


@pytest.mark.process("waits for what threads do")
def test_a_record_holds_up_nobody_and_what_comes_meanwhile_is_recorded_once(one_store, running, recorder):
    files, folders, rests = recorder(0.5)
    [first, second] = conversations_of(one_store, running.id, 2)

    files.record(running, first, 1)  # returns, though the record goes on
    wait_until(lambda: folders.at_once == 1, "the first record")
    for seq in (2, 3, 4):
        files.record(running, second, seq)
    folders.may_end.set()

    wait_until(lambda: not files._recording, "the end of the records")
    assert folders.recorded == [(first, 1), (second, 4)]
    assert (folders.most, rests) == (1, [])


@pytest.mark.process("waits for what threads do")
def test_a_sandbox_whose_record_took_long_rests_nine_times_as_long_before_the_next(one_store, running, recorder):
    [one] = conversations_of(one_store, running.id, 1)
    told = []

    def rest(seconds: float) -> None:
        told.append((seconds, list(folders.recorded)))
        if len(told) == 1:
            files.record(running, one, 2)

    files, folders, _ = recorder(10.0, rest)
    folders.may_end.set()
    files.record(running, one, 1)

    wait_until(lambda: not files._recording, "the end of the records")
    assert told == [(90.0, [(one, 1)]), (90.0, [(one, 1), (one, 2)])]


@pytest.mark.process("waits for what threads do")
def test_a_record_that_fails_unforeseen_leaves_the_next_ones_to_be_made(one_store, running, recorder, monkeypatch):
    files, folders, _ = recorder(0.0)
    [one] = conversations_of(one_store, running.id, 1)
    folders.may_end.set()

    with monkeypatch.context() as patched:
        patched.setattr(folders, "record", lambda *_: 1 / 0)
        files.record(running, one, 1)
        wait_until(lambda: not files._recording, "the end of the records")
    files.record(running, one, 2)

    wait_until(lambda: folders.recorded == [(one, 2)], "the next record")


class Read:
    """The shadow repository of a folder that takes so many seconds to read, and may not be recorded."""

    def __init__(self, clock, seconds: float, refusal: str = ""):
        self._clock, self._seconds, self._refusal = clock, seconds, refusal
        self.walked = []

    def changes(self, _conversation: str, _since: int, until: int | None, *, walks: bool = True) -> list:
        self.walked.append(walks and until is None)
        if self.walked[-1]:
            self._clock.now += self._seconds
            if self._refusal:
                raise NotRecorded(self._refusal)
        return []


@pytest.fixture
def reads(one_store, spec, runtime, running, clock, monkeypatch):
    """Make the repository, and what asks for its changes."""

    def make(seconds: float, refusal: str = ""):
        folder = Read(clock, seconds, refusal)
        monkeypatch.setattr(runtime, "shadow", lambda *_: folder)
        files = HostFiles(one_store, Specs([spec]), {"scripted": runtime}, "h", clock=clock)
        return folder, lambda until=None: files.send_changes(running, "/work", "reply", "conversation", 0, until)

    return make


@pytest.mark.parametrize(("seconds", "rest"), [(1.5, 13.5), (10.0, 15.0)])
def test_the_result_of_a_long_read_stands_nine_times_as_long_and_15_s_at_most(reads, replies, clock, seconds, rest):
    folder, ask = reads(seconds)
    ask()
    clock.now += rest - 1
    ask()
    clock.now += 2
    ask()

    assert folder.walked == [True, False, True]
    assert replies == [(LookupResult.CONTENT, b"[]")] * 3


def test_a_short_read_and_one_between_two_events_have_no_rest(reads, replies):
    folder, ask = reads(0.5)
    for until in (None, None, 7, None):
        ask(until)

    assert folder.walked == [True, True, False, True]
    assert replies == [(LookupResult.CONTENT, b"[]")] * 4


def test_a_folder_that_took_long_and_is_not_recorded_is_not_read_again_soon(reads, replies, clock):
    folder, ask = reads(15.0, "It was not read within 15 s")
    ask()
    clock.now += 100
    ask()

    assert folder.walked == [True]
    assert [found for found, _ in replies] == [LookupResult.NOT_RECORDED] * 2
    assert replies[1][1] == b"It was not read within 15 s. It is read again after 35 s"


def test_a_record_that_gets_no_thread_leaves_the_next_ones_to_be_made(one_store, running, recorder):
    files, _, _ = recorder(0.0)
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        files.record(running, "conversation", 1)

    assert files._recording == {}


def test_an_archive_that_gets_no_thread_keeps_no_place(one_store, spec):
    packing = HostArchives(one_store, Specs([spec]), {}, "h", most_bytes=1)
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        packing._begin(int)

    packing._begin(int).result(TIMEOUT)
    may_end = threading.Event()
    assert None not in [packing._begin(may_end.wait) for _ in range(MOST_AT_ONCE)]
    assert packing._begin(int) is None
    may_end.set()
    packing._pool.shutdown()


@pytest.fixture
def replies(one_store, monkeypatch):
    """What workers are told of files."""
    told = []
    monkeypatch.setattr(one_store.sandboxes.files, "answer", lambda _, found, data: told.append((found, data)))
    return told


def test_a_list_of_files_has_few_bytes_however_long_their_paths_are(
    one_store, spec, runtime, running, replies, monkeypatch
):
    paths = [b"\xff" * 60_000] * 1000
    monkeypatch.setattr(runtime, "names", lambda *_: (path for path in paths), raising=False)

    HostFiles(one_store, Specs([spec]), {"scripted": runtime}, "h").send_names(running, "/work", "reply")

    [(found, data)] = replies
    assert found is LookupResult.CONTENT
    assert json.loads(data) == [as_text(path) for path in paths[: MOST_LISTED // 60_000]]


def test_a_reply_about_files_that_has_too_many_bytes_says_so(one_store, spec, runtime, running, replies, monkeypatch):
    monkeypatch.setattr(archives, "MOST_REPLY", 10)
    monkeypatch.setattr(runtime, "content", lambda *_: b"x" * 11, raising=False)

    HostFiles(one_store, Specs([spec]), {"scripted": runtime}, "h").send_content(running, "/work", "a", "reply")

    assert replies == [(LookupResult.TOO_LONG, b"The answer has more than 10 bytes")]
