"""The stream of an archive through Redis: whole or an error, each chunk once, and never more than a few waiting."""

import threading

import pytest
from redis.exceptions import ConnectionError

from store.errors import (
    UNAVAILABLE,
    ArchiveFailed,
    ArchiveRefused,
    ArchivesBusy,
    ArchiveTooLarge,
    ArchiveUnreadable,
    NoSupervisor,
)
from store.link import signals
from store.sandboxes import files
from store.sandboxes.files import CHUNK, MOST_WAITING, FilesBusy, LookupResult, StreamOutcome
from store.sandboxes.sandboxes import SandboxId
from tests.store.conftest import forget


@pytest.fixture
def transfer(store):
    return store.sandboxes.archives.open()


@pytest.fixture
def sender(store, transfer):
    return store.sandboxes.archives.sender(transfer)


@pytest.fixture
def receiver(store, transfer):
    return store.sandboxes.archives.receiver(transfer)


@pytest.fixture
def brief(monkeypatch):
    """Either side gives up at once."""
    monkeypatch.setattr(files, "SILENCE", 0.1)


def key(store, transfer, name):
    return store.sandboxes._redis, f"{{sandboxes}}:{name}:{transfer}"


def test_a_stream_that_nobody_ended_is_never_whole(sender, receiver, brief):
    sender.write(b"x" * CHUNK)

    assert next(receiver) == b"x" * CHUNK
    with pytest.raises(ArchiveFailed, match="Nothing more"):
        next(receiver)


def test_a_sender_stops_when_nobody_receives(sender, brief):
    with pytest.raises(ArchiveFailed, match="Nobody has received"):
        sender.write(bytes(CHUNK * (MOST_WAITING + 1)))


def test_only_so_many_chunks_wait(store, transfer, sender, brief):
    with pytest.raises(ArchiveFailed):
        sender.write(bytes(CHUNK * (MOST_WAITING + 4)))

    redis, chunks = key(store, transfer, "chunks")
    assert redis.llen(chunks) == MOST_WAITING


def test_either_side_learns_how_the_other_one_ended(store):
    for outcome, error in (
        (StreamOutcome.UNREADABLE, ArchiveUnreadable),
        (StreamOutcome.REFUSED, ArchiveRefused),
        (StreamOutcome.TOO_LARGE, ArchiveTooLarge),
        (StreamOutcome.BUSY, ArchivesBusy),
        (StreamOutcome.FAILED, ArchiveFailed),
    ):
        failing, refusing = store.sandboxes.archives.open(), store.sandboxes.archives.open()

        store.sandboxes.archives.sender(failing).fail(outcome, "in words")
        with pytest.raises(error, match="in words"):
            next(store.sandboxes.archives.receiver(failing))

        store.sandboxes.archives.receiver(refusing).close(outcome, "in words")
        with pytest.raises(error, match="in words"):
            store.sandboxes.archives.sender(refusing).write(b"x")
        with pytest.raises(error, match="in words"):
            store.sandboxes.archives.sender(refusing).confirmed(0)


def test_the_first_ending_of_a_side_counts(sender, receiver):
    receiver.close()
    receiver.close(StreamOutcome.FAILED, "the client has gone")

    sender.end()
    sender.confirmed(0)


def test_a_failure_comes_before_the_chunks_that_wait(sender, receiver):
    sender.write(b"x" * CHUNK)
    sender.fail(StreamOutcome.FAILED, "in words")

    with pytest.raises(ArchiveFailed, match="in words"):
        next(receiver)


def test_a_sender_hears_nothing_of_a_receiver_that_never_confirms(sender):
    sender.end()

    with pytest.raises(ArchiveFailed, match="not used within"):
        sender.confirmed(0.05)


def test_a_stream_that_redis_forgot_is_broken_off_for_both_sides(store, transfer, sender, receiver):
    sender.write(b"x")
    for name in ("transfer", "chunks"):
        redis, stored = key(store, transfer, name)
        redis.delete(stored)

    with pytest.raises(ArchiveFailed, match="broken off"):
        next(receiver)
    with pytest.raises(ArchiveFailed, match="broken off"):
        sender.write(bytes(CHUNK))


def test_redis_forgets_a_stream_that_nobody_uses(store, transfer, sender):
    sender.write(b"x")

    for name in ("transfer", "chunks"):
        redis, stored = key(store, transfer, name)
        assert 0 < redis.pttl(stored) <= 60_000


def test_a_receiver_that_gave_up_waits_no_longer(store, transfer):
    with pytest.raises(ArchiveFailed, match="not wanted"):
        next(store.sandboxes.archives.receiver(transfer, given_up=lambda: True))


def test_a_second_receiver_that_would_miss_chunks_gets_none(store, transfer, sender, receiver):
    sender.write(bytes(3 * CHUNK))
    next(receiver), next(receiver)

    with pytest.raises(ArchiveFailed, match="broken off"):
        next(store.sandboxes.archives.receiver(transfer))


def test_a_sandbox_whose_supervisor_does_not_begin_has_no_archive(store, monkeypatch):
    monkeypatch.setattr(files, "_BEGIN", 0.1)

    with pytest.raises(NoSupervisor):
        store.sandboxes.archives.of_sandbox("box")


def twice(client, monkeypatch, lost: int):
    """Have the reply of every second command be lost, after Redis has run it; redis-py's repeat is the next call."""
    execute, number = client.execute_command, [lost]

    def execute_command(*words, **options):
        reply = execute(*words, **options)
        number[0] += 1
        if number[0] % 2:
            return execute(*words, **options)
        return reply

    monkeypatch.setattr(client, "execute_command", execute_command)


@pytest.mark.parametrize("lost", [0, 1])
def test_commands_that_are_repeated_neither_double_nor_lose_a_chunk(store, sender, receiver, monkeypatch, lost):
    chunks = [bytes([number]) * CHUNK for number in range(10)]
    twice(store.sandboxes._redis, monkeypatch, lost)

    for chunk in chunks:
        sender.write(chunk)
    sender.end()

    assert list(receiver) == chunks


@pytest.mark.faults("a race of threads")
def test_a_hundred_chunks_arrive_in_order_while_few_wait(store, transfer, sender, receiver):
    redis, stored = key(store, transfer, "chunks")
    waiting = []

    def send() -> None:
        for number in range(100):
            sender.write(bytes([number]) * CHUNK)
        sender.write(b"the rest")
        sender.end()
        sender.confirmed(30)

    thread = threading.Thread(target=send)
    thread.start()
    received = []
    for chunk in receiver:
        received.append(chunk)
        waiting.append(redis.llen(stored))
    receiver.close()
    thread.join(30)

    assert not thread.is_alive()
    assert received == [*(bytes([number]) * CHUNK for number in range(100)), b"the rest"]
    assert max(waiting) <= MOST_WAITING
    assert not redis.exists(stored)


def test_a_few_bytes_come_without_waiting_for_a_full_chunk(sender, receiver):
    sender.write(b"x")

    assert next(receiver) == b"x"


def test_the_store_away_is_no_end_of_a_stream(sender, monkeypatch):
    def fail(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(sender._scripts, "_send_chunk", fail)

    with pytest.raises(UNAVAILABLE):
        sender.write(b"x")


def test_no_chunk_reaches_the_append_only_file(store, sender, redis_url):
    redis = store.sandboxes._redis
    sender.write(b"before")
    if not redis_url.startswith("unix:"):
        pytest.skip("only these servers have an append-only file")
    before = redis.info("persistence")["aof_current_size"]

    sender.write(bytes(8 * CHUNK))

    assert redis.info("persistence")["aof_current_size"] - before < CHUNK


def test_a_sandbox_that_is_copied_is_given_to_the_host_of_its_source(store):
    redis = store.sandboxes._redis
    forget(redis, "{sandboxes}*")
    assert store.sandboxes.beat("a", "supervisor")
    assert store.sandboxes.beat("b", "supervisor")

    copied = store.sandboxes.start("spec", source={"sandbox": "other"}, host="b")

    assert (copied.host, copied.source) == ("b", {"sandbox": "other"})
    assert store.sandboxes.claim("a") is None
    assert [one.id for one in store.sandboxes.of_host("b")] == [copied.id]
    assert store.sandboxes.get(store.sandboxes.start("spec").id).source is None


def test_a_copy_on_a_host_that_does_not_answer_is_refused(store, monkeypatch):
    monkeypatch.setattr("store.sandboxes.sandboxes._HOST_TIMEOUT", 0)
    assert store.sandboxes.beat("a", "supervisor")

    with pytest.raises(NoSupervisor):
        store.sandboxes.start("spec", source={"sandbox": "other"}, host="lost")


def test_a_host_that_does_not_reply_is_busy_or_has_no_supervisor(store, monkeypatch):
    monkeypatch.setattr("store.sandboxes.files.FILE_TIMEOUT", 0.05)

    with pytest.raises(
        NoSupervisor, match=r"did not reply within 0\.05 s: it is busy, or its supervisor is not running"
    ):
        store.sandboxes.files.names(SandboxId("some"), "/work")


def test_a_request_for_files_that_is_one_too_many_says_so(store, monkeypatch):
    def ask(_redis, _verb, _sandbox_id, *, reply, **_details) -> None:
        store.sandboxes.files.answer(reply, LookupResult.BUSY, b"64 requests wait")

    monkeypatch.setattr(signals, "ask_supervisors", ask)
    with pytest.raises(FilesBusy, match="64 requests wait"):
        store.sandboxes.files.names(SandboxId("some"), "/work")
