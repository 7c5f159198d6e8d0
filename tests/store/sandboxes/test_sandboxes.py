"""Sandboxes in the store: requests, use, keys, caps, pages and logs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas.sandboxes import STATUSES
from store.errors import NoSupervisor, SandboxNotFound, TooManySandboxes
from store.sandboxes.sandbox_record import MOST_DETAIL, SandboxId
from store.sandboxes.sandboxes import MOST_LOG_BYTES
from tests.store.conftest import fresh_sandboxes, hashes_read, hook_key_of, round_trips, running_sandbox

UNKNOWN = SandboxId("unknown")


def test_a_new_sandbox_waits_for_a_host_and_has_no_key(sandboxes):
    started = sandboxes.start("spec")

    assert (started.status, started.wanted, started.host, started.handle) == ("STARTING", "running", "", None)
    assert started.created_at == started.starting_at == started.active_at
    assert started.session_api_key == started.hook_hash == ""
    assert sandboxes.of_hook_key("x" * 43) is None
    assert sandboxes.of_hook_key("") is None
    assert sandboxes.of_host("h") == []
    assert sandboxes.claim("h") == started.id
    assert sandboxes.claim("h") is None
    assert [one.id for one in sandboxes.of_host("h")] == [started.id]


def test_two_starts_of_one_id_create_one_sandbox(sandboxes):
    first = sandboxes.start("spec", SandboxId("mine"))
    second = sandboxes.start("other", SandboxId("mine"))

    assert first == second
    assert len(sandboxes.search(status=None, spec_id=None, limit=10, start=None)[0]) == 1


def test_a_resume_that_overtakes_a_pause_wins(sandboxes):
    sandbox = running_sandbox(sandboxes)
    sandboxes.ask(sandbox.id, "pause")
    sandboxes.ask(sandbox.id, "resume")
    sandboxes.report(sandbox.id, "h", "supervisor", "PAUSED")  # the pause was under way

    assert sandboxes.get(sandbox.id).status == "STARTING"
    assert sandboxes.report(sandbox.id, "h", "supervisor", "RUNNING")


def test_a_report_of_another_host_changes_nothing(sandboxes):
    sandbox = running_sandbox(sandboxes)
    assert not sandboxes.report(sandbox.id, "other", "supervisor", "ERROR")
    assert not sandboxes.report(UNKNOWN, "h", "supervisor", "ERROR")
    assert sandboxes.get(sandbox.id).status == "RUNNING"


def test_a_deleted_sandbox_leaves_no_key_in_redis(sandboxes):
    sandbox = running_sandbox(sandboxes)
    hook_key = hook_key_of(sandboxes, sandbox)
    sandboxes.ask(sandbox.id, "delete")
    assert sandboxes.report(sandbox.id, "h", "supervisor", "GONE")

    assert sandboxes.get_many([sandbox.id]) == [None]
    assert sandboxes.of_hook_key(hook_key) is None
    assert sandboxes.of_host("h") == []
    assert sandboxes.search(status=None, spec_id=None, limit=10, start=None) == ([], None)
    left = {key for key in sandboxes._redis.scan_iter("{sandboxes}*")}
    told = {b"{sandboxes}:changes", b"{sandboxes}:changes:floor"}  # those who follow the list hear of the deletion
    assert left == {b"{sandboxes}:hosts", b"{sandboxes}:supervisors", *told}


def test_an_unknown_sandbox_is_not_found(sandboxes):
    for verb in ("pause", "resume", "delete"):
        with pytest.raises(SandboxNotFound):
            sandboxes.ask(UNKNOWN, verb)
    with pytest.raises(SandboxNotFound):
        sandboxes.get(UNKNOWN)
    with pytest.raises(SandboxNotFound):
        sandboxes.log(UNKNOWN, 1)


def test_use_returns_the_sandbox_and_notes_it_in_one_round_trip(sandboxes, monkeypatch):
    sandboxes.use(UNKNOWN)  # Redis knows the script
    sandbox = unused_for_a_minute(sandboxes, running_sandbox(sandboxes))

    with round_trips(sandboxes._redis, monkeypatch) as trips:
        used = sandboxes.use(sandbox.id)

    assert len(trips) == 1
    assert used.active_at > sandbox.active_at
    assert used == sandboxes.get(sandbox.id)


def test_idle_time_begins_when_a_sandbox_runs(sandboxes):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    waited = unused_for_a_minute(sandboxes, started)
    sandboxes.report(started.id, "h", "supervisor", "RUNNING")
    assert sandboxes.get(started.id).active_at > waited.active_at


def test_use_within_a_second_is_written_once(sandboxes):
    sandbox = unused_for_a_minute(sandboxes, running_sandbox(sandboxes))
    first = sandboxes.use(sandbox.id).active_at
    sandboxes._redis.hset(f"{{sandboxes}}:box:{sandbox.id}", "active_at", first - 500_000)
    assert sandboxes.use(sandbox.id).active_at == first - 500_000


def test_use_of_an_unknown_or_deleted_sandbox_creates_none(sandboxes):
    sandbox = running_sandbox(sandboxes)
    sandboxes.report(sandbox.id, "h", "supervisor", "GONE")

    for identity in (sandbox.id, UNKNOWN):
        assert sandboxes.use(identity) is None
        assert sandboxes._redis.exists(f"{{sandboxes}}:box:{identity}") == 0


def test_a_hook_key_opens_its_sandbox_and_notes_use_in_one_round_trip(sandboxes, monkeypatch):
    sandbox = running_sandbox(sandboxes)
    hook_key = hook_key_of(sandboxes, sandbox)
    sandboxes.of_hook_key(hook_key)  # Redis knows the script
    sandbox = unused_for_a_minute(sandboxes, sandbox)

    with round_trips(sandboxes._redis, monkeypatch) as trips:
        assert sandboxes.of_hook_key(hook_key) == sandbox.id

    assert len(trips) == 1
    assert sandboxes.get(sandbox.id).active_at > sandbox.active_at


def unused_for_a_minute(sandboxes, sandbox):
    sandboxes._redis.hincrby(f"{{sandboxes}}:box:{sandbox.id}", "active_at", -60_000_000)
    return sandboxes.get(sandbox.id)


@pytest.mark.parametrize("status", STATUSES)
def test_the_hook_key_of_a_failed_sandbox_opens_nothing(sandboxes, status):
    sandbox = running_sandbox(sandboxes)
    hook_key = hook_key_of(sandboxes, sandbox)
    sandboxes.report(sandbox.id, "h", "supervisor", status)
    assert sandboxes.of_hook_key(hook_key) == (None if status == "ERROR" else sandbox.id)


def test_the_hook_key_of_a_sandbox_opens_nothing_once_its_deletion_is_asked_for(sandboxes):
    sandbox = running_sandbox(sandboxes)
    hook_key = hook_key_of(sandboxes, sandbox)
    sandboxes.ask(sandbox.id, "delete")
    assert sandboxes.of_hook_key(hook_key) is None


def test_each_read_of_sandboxes_takes_one_round_trip(sandboxes, monkeypatch):
    ids = [running_sandbox(sandboxes).id for _ in range(3)]
    for read in (
        lambda: sandboxes.get(ids[0]),
        lambda: sandboxes.get_many(ids),
        lambda: sandboxes.of_host("h"),
        lambda: sandboxes.search(status="RUNNING", spec_id="spec", limit=2, start=None),
    ):
        read()  # Redis knows the script
        with round_trips(sandboxes._redis, monkeypatch) as trips:
            read()
        assert len(trips) == 1


def test_pages_reach_each_sandbox_once_also_among_equal_times(redis_url):
    sandboxes = fresh_sandboxes(redis_url, most=99)
    ids = [sandboxes.start("even" if number % 2 else "odd").id for number in range(9)]
    for identity in ids:  # all within one microsecond
        sandboxes._redis.hset(f"{{sandboxes}}:box:{identity}", "created_at", 1_000_000)
        for index in ("", ":STARTING", ":*:odd", ":*:even", ":STARTING:odd", ":STARTING:even"):
            sandboxes._redis.zadd(f"{{sandboxes}}:created{index}", {identity: 1_000_000}, xx=True)

    for filters, expected in (
        ({"status": None, "spec_id": None}, ids),
        ({"status": "STARTING", "spec_id": None}, ids),
        ({"status": None, "spec_id": "odd"}, ids[::2]),
        ({"status": "STARTING", "spec_id": "even"}, ids[1::2]),
        ({"status": "RUNNING", "spec_id": "even"}, []),
    ):
        seen, cursor = [], None
        while True:
            page, cursor = sandboxes.search(**filters, limit=2, start=cursor)
            seen += [one.id for one in page]
            if cursor is None:
                break
        assert seen == sorted(expected, reverse=True)


def test_a_page_reads_no_more_sandboxes_than_it_shows(redis_url):
    sandboxes = fresh_sandboxes(redis_url, most=99)
    for number in range(12):
        sandboxes.start(f"spec-{number % 3}")
    for filters in ({"status": None, "spec_id": None}, {"status": "STARTING", "spec_id": "spec-1"}):
        before = hashes_read(sandboxes._redis)
        if before is None:
            pytest.skip("fakeredis does not count commands")
        sandboxes.search(**filters, limit=2, start=None)
        assert hashes_read(sandboxes._redis) - before == 3  # the third one is the next page's first


def test_concurrent_starts_do_not_exceed_the_cap(sandboxes):
    def start(_):
        try:
            return sandboxes.start("spec").id
        except TooManySandboxes:
            return None

    with ThreadPoolExecutor(8) as pool:
        started = [one for one in pool.map(start, range(16)) if one]

    assert len(started) == 3
    with pytest.raises(TooManySandboxes, match="3 sandboxes run and 3 may"):
        sandboxes.start("spec")


def test_a_paused_sandbox_makes_room_and_needs_room_to_resume(sandboxes):
    first, _, _ = [running_sandbox(sandboxes) for _ in range(3)]
    sandboxes.ask(first.id, "pause")
    sandboxes.report(first.id, "h", "supervisor", "PAUSED")
    fourth = running_sandbox(sandboxes)
    with pytest.raises(TooManySandboxes):
        sandboxes.ask(first.id, "resume")
    assert sandboxes.get(first.id).status == "PAUSED"
    sandboxes.ask(fourth.id, "delete")
    sandboxes.ask(first.id, "resume")


def test_the_longest_idle_sandbox_is_paused_for_a_new_one_if_so_configured(redis_url):
    sandboxes = fresh_sandboxes(redis_url, pause_idlest=True, most=2)
    first, second = running_sandbox(sandboxes), running_sandbox(sandboxes)
    unused_for_a_minute(sandboxes, second)

    third = sandboxes.start("spec")

    assert sandboxes.get(second.id).wanted == "paused"
    assert sandboxes.get(first.id).wanted == "running"
    assert sandboxes.claim("h") is None  # not before the other one has really stopped
    sandboxes.report(second.id, "h", "supervisor", "PAUSED")
    assert sandboxes.claim("h") == third.id


def test_the_log_of_a_failed_sandbox_is_kept_and_logs_of_others_are_requested_from_their_host(sandboxes):
    sandbox = running_sandbox(sandboxes)
    with pytest.raises(NoSupervisor):
        sandboxes.log(sandbox.id, 5)
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", log="one\ntwo\nthree", detail="why")
    assert sandboxes.log(sandbox.id, 2) == "two\nthree"


def test_the_log_of_a_failed_sandbox_is_bounded_and_no_list_reads_it(sandboxes):
    sandbox = running_sandbox(sandboxes)
    lines = "\n".join(f"line {number} é" for number in range(100_000))
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", log=lines, detail="why\n" + "x" * 1_000_000 + "\nlast")

    stored = sandboxes._redis.hgetall(f"{{sandboxes}}:box:{sandbox.id}")
    assert sum(map(len, stored.values())) < MOST_DETAIL + 2000
    kept = sandboxes._redis.get(f"{{sandboxes}}:log:{sandbox.id}")
    assert len(kept) <= MOST_LOG_BYTES
    assert sandboxes.log(sandbox.id, 1) == "line 99999 é"
    detail = sandboxes.get(sandbox.id).detail
    assert detail.startswith("why\n")
    assert detail.endswith("\nlast")
    sandboxes.ask(sandbox.id, "delete")
    sandboxes.report(sandbox.id, "h", "supervisor", "GONE")
    assert not list(sandboxes._redis.scan_iter("{sandboxes}:log:*"))
