"""Sandboxes in the store: requests, use, keys, caps, pages and logs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from core import wire
from schemas.sandboxes import STATUSES
from store.errors import (
    NoSupervisor,
    SandboxNotFound,
    SandboxPostedTooMuch,
    SandboxPostsTooFast,
    SandboxRefuses,
    TooManySandboxes,
)
from store.sandboxes import Hosts
from store.sandboxes.sandboxes import MOST_DETAIL, MOST_LOG_BYTES, SandboxId
from tests.store.conftest import (
    fresh_sandboxes,
    hashes_read,
    hook_key_of,
    keys,
    present_for,
    round_trips,
    running_sandbox,
    silent_for,
    stepped,
)

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


def test_the_folder_of_an_agent_is_known_also_while_it_has_no_processes(sandboxes):
    sandbox = running_sandbox(sandboxes)
    assert sandbox.working_dir == ""
    sandboxes.report(sandbox.id, "h", "supervisor", handle={"runtime": "process"}, working_dir="/data/x/work")

    assert sandboxes.stopped(sandboxes.get(sandbox.id), "supervisor", "it rests")

    assert (sandboxes.get(sandbox.id).handle, sandboxes.get(sandbox.id).working_dir) == (None, "/data/x/work")


def test_a_report_of_another_host_changes_nothing(sandboxes):
    sandbox = running_sandbox(sandboxes)
    assert not sandboxes.report(sandbox.id, "other", "supervisor", "ERROR")
    assert not sandboxes.report(UNKNOWN, "h", "supervisor", "ERROR")
    assert sandboxes.get(sandbox.id).status == "RUNNING"


def test_a_deleted_sandbox_leaves_nothing_but_a_mark_that_it_is_not_started_again(sandboxes):
    sandbox = running_sandbox(sandboxes)
    hook_key = hook_key_of(sandboxes, sandbox)
    sandboxes.ask(sandbox.id, "delete")
    assert sandboxes.report(sandbox.id, "h", "supervisor", "GONE")

    assert sandboxes.get_many([sandbox.id]) == [None]
    assert sandboxes.of_hook_key(hook_key) is None
    assert sandboxes.of_host("h") == []
    assert sandboxes.search(status=None, spec_id=None, limit=10, start=None) == ([], None)
    left = set(keys(sandboxes._redis, "{sandboxes}*"))
    told = {b"{sandboxes}:changes", b"{sandboxes}:changes:floor"}  # those who follow the list hear of the deletion
    mark = f"{{sandboxes}}:ended:{sandbox.id}".encode()  # for a day: a late driver does not start it again
    assert left == {b"{sandboxes}:hosts", b"{sandboxes}:supervisors", b"{sandboxes}:present", mark, *told}
    with pytest.raises(SandboxNotFound):
        sandboxes.start("spec", sandbox.id)


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


def test_a_sandbox_posts_no_more_than_its_bytes_in_all(redis_url):
    sandboxes = fresh_sandboxes(redis_url, max_sandbox_bytes=1000)
    key = hook_key_of(sandboxes, running_sandbox(sandboxes))

    assert sandboxes.of_hook_key(key, size=1000)
    with pytest.raises(SandboxPostedTooMuch, match=r"1000 bytes in all \(MAX_SANDBOX_BYTES\)"):
        sandboxes.of_hook_key(key, size=1)
    assert sandboxes.of_hook_key(key)


def test_a_sandbox_that_posts_too_fast_waits_for_the_end_of_the_window(redis_url):
    sandboxes = fresh_sandboxes(redis_url, rate_limit_hook_bytes="1000/minute")
    sandbox = running_sandbox(sandboxes)
    key, box = hook_key_of(sandboxes, sandbox), f"{{sandboxes}}:box:{sandbox.id}"

    assert sandboxes.of_hook_key(key, size=5000)  # one body may be longer than a window's bytes
    with pytest.raises(SandboxPostsTooFast, match=r"1000/minute bytes \(RATE_LIMIT_HOOK_BYTES\)") as refused:
        sandboxes.of_hook_key(key, size=1)
    assert 50 < refused.value.retry_after <= 60

    sandboxes._redis.hincrby(box, "window_ends", -60_000_000)
    assert sandboxes.of_hook_key(key, size=1000)


@pytest.mark.parametrize("seconds", [61, 3600, -3600])
def test_a_step_of_redis_clock_keeps_no_window_of_a_sandbox_open(redis_url, seconds):
    sandboxes = fresh_sandboxes(redis_url, rate_limit_hook_bytes="1000/minute")
    key = hook_key_of(sandboxes, running_sandbox(sandboxes))
    assert sandboxes.of_hook_key(key, size=1000)

    stepped(sandboxes._redis, seconds)

    assert sandboxes.of_hook_key(key, size=1000)
    with pytest.raises(SandboxPostsTooFast):
        sandboxes.of_hook_key(key, size=1)


def unused_for_a_minute(sandboxes, sandbox):
    sandboxes._redis.hincrby(f"{{sandboxes}}:box:{sandbox.id}", "active_at", -60_000_000)
    return sandboxes.get(sandbox.id)


def test_the_hook_key_of_a_failed_sandbox_opens_nothing(redis_url):
    sandboxes = fresh_sandboxes(redis_url, most=99)
    for status in STATUSES:
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


@pytest.mark.faults("a race of threads")
def test_concurrent_starts_do_not_exceed_the_cap(sandboxes):
    def start(_):
        try:
            return sandboxes.start("spec").id
        except TooManySandboxes:
            return None

    with ThreadPoolExecutor(8) as pool:
        started = [one for one in pool.map(start, range(16)) if one]

    assert len(started) == 3
    with pytest.raises(TooManySandboxes, match="3 of 3 sandboxes are running"):
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


def test_a_new_sandbox_starts_once_the_one_has_stopped_that_makes_way_for_it(redis_url):
    sandboxes = fresh_sandboxes(redis_url, most=2)
    first, second = running_sandbox(sandboxes), running_sandbox(sandboxes)

    sandboxes.make_way(second)
    third = sandboxes.start("spec")

    assert sandboxes.get(second.id).wanted == "paused"
    assert sandboxes.get(first.id).wanted == "running"
    assert sandboxes.claim("h") is None  # not before the other one has really stopped
    sandboxes.report(second.id, "h", "supervisor", "PAUSED")
    assert sandboxes.claim("h") == third.id


def test_the_log_of_a_failed_sandbox_is_kept_and_logs_of_others_are_requested_from_their_host(sandboxes, monkeypatch):
    monkeypatch.setattr("store.sandboxes.sandboxes._LOG_TIMEOUT", 0.1)
    sandbox = running_sandbox(sandboxes)
    with pytest.raises(NoSupervisor):
        sandboxes.log(sandbox.id, 5)
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", log="one\ntwo\nthree", detail="why")
    assert sandboxes.log(sandbox.id, 2) == "… 1 earlier line is not shown\ntwo\nthree"


def test_a_log_that_is_sent_again_is_one_reply(sandboxes):
    for _ in range(2):  # redis-py repeats what may not have arrived
        sandboxes.send_log("{sandboxes}:reply:one", "printed")

    assert sandboxes._redis.lrange("{sandboxes}:reply:one", 0, -1) == [b"printed"]
    assert 0 < sandboxes._redis.ttl("{sandboxes}:reply:one") <= 10


def test_the_log_of_a_failed_sandbox_is_bounded_and_no_list_reads_it(sandboxes):
    sandbox = running_sandbox(sandboxes)
    lines = "\n".join(f"line {number} é" for number in range(100_000))
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", log=lines, detail="why\n" + "x" * 1_000_000 + "\nlast")

    stored = sandboxes._redis.hgetall(f"{{sandboxes}}:box:{sandbox.id}")
    assert sum(map(len, stored.values())) < MOST_DETAIL + 2000
    kept = sandboxes._redis.get(f"{{sandboxes}}:log:{sandbox.id}")
    assert len(kept) <= MOST_LOG_BYTES
    assert sandboxes.log(sandbox.id, 1) == "… 99,999 earlier lines are not shown\nline 99999 é"
    detail = sandboxes.get(sandbox.id).detail
    assert detail.startswith("why\n")
    assert detail.endswith("\nlast")
    assert "characters are not shown here" in detail
    sandboxes.ask(sandbox.id, "delete")
    sandboxes.report(sandbox.id, "h", "supervisor", "GONE")
    assert not keys(sandboxes._redis, "{sandboxes}:log:*")


HOUR = 3600


def test_a_start_without_a_living_host_is_refused(redis_url, monkeypatch):
    monkeypatch.setattr("store.sandboxes.sandboxes._HOST_TIMEOUT", 0)
    sandboxes = fresh_sandboxes(redis_url)
    silent_for(sandboxes, 61)
    with pytest.raises(NoSupervisor):
        sandboxes.start("spec")


@pytest.mark.parametrize("reader", ["search", "get_many", "of_host", "use"])
def test_the_sandboxes_of_a_lost_host_are_missing_for_every_reader(sandboxes, reader):
    reads = {
        "search": lambda sandboxes, *_: sandboxes.search(status=None, spec_id=None, limit=9, start=None)[0],
        "get_many": lambda sandboxes, *ids: sandboxes.get_many(ids),
        "of_host": lambda sandboxes, *_: sandboxes.of_host("h"),
        "use": lambda sandboxes, *ids: [sandboxes.use(one) for one in ids],
    }
    one, two, three = [running_sandbox(sandboxes) for _ in range(3)]
    sandboxes.report(two.id, "h", "supervisor", "ERROR")
    sandboxes.ask(three.id, "delete")
    silent_for(sandboxes, 61)

    found = {one.id: one.status for one in reads[reader](sandboxes, one.id, two.id)}

    assert found == {one.id: "MISSING", two.id: "ERROR"}
    assert "does not answer" in sandboxes.get(one.id).detail
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.report(one.id, "h", "supervisor", "RUNNING", detail="")


def test_a_sandbox_that_no_host_claims_in_time_fails(redis_url):
    sandboxes = fresh_sandboxes(redis_url, start_seconds=1)
    started = sandboxes.start("spec")
    sandboxes._redis.zincrby("{sandboxes}:unclaimed", -2_000_000, started.id)
    assert sandboxes.get(started.id).status == "STARTING"  # supervisors were not there for so long
    present_for(sandboxes._redis, "{sandboxes}", 2)

    failed = sandboxes.get(started.id)

    assert failed.status == "ERROR"
    assert "No supervisor has taken it" in failed.detail
    assert sandboxes.claim("h") is None


def test_a_host_has_one_supervisor_until_its_heartbeats_end(sandboxes):
    assert sandboxes.beat("h", "supervisor")
    assert not sandboxes.beat("h", "another")
    assert sandboxes.beat("other", "another")
    silent_for(sandboxes, 61)
    assert sandboxes.beat("h", "another")
    assert not sandboxes.beat("h", "supervisor")


def test_a_supervisor_that_lost_its_host_to_another_one_reports_nothing(sandboxes):
    running = running_sandbox(sandboxes)
    silent_for(sandboxes, 5)
    assert sandboxes.beat("h", "another")

    for status in ("", "ERROR", "GONE"):
        assert not sandboxes.report(running.id, "h", "supervisor", status, detail="of the one before")

    assert sandboxes.get(running.id) == running
    assert sandboxes.report(running.id, "h", "another", "PAUSED")


def test_a_supervisor_that_gave_its_host_up_reports_until_another_one_speaks_for_it(sandboxes):
    running = running_sandbox(sandboxes)
    sandboxes.release("h", "supervisor")
    assert sandboxes.report(running.id, "h", "supervisor", "PAUSED")
    assert sandboxes.beat("h", "another")
    assert not sandboxes.report(running.id, "h", "supervisor", "ERROR")


def test_a_lost_host_leaves_no_trace_of_its_supervisor(sandboxes):
    assert sandboxes.beat("other", "supervisor")
    silent_for(sandboxes, 61, "other")
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes._redis.hkeys("{sandboxes}:supervisors") == [b"h"]


@pytest.mark.faults("a race of threads")
def test_concurrent_claims_give_each_sandbox_to_one_host(sandboxes):
    ids = {sandboxes.start("spec").id for _ in range(3)}
    with ThreadPoolExecutor(6) as pool:
        claimed = [one for one in pool.map(lambda n: sandboxes.claim(f"h{n % 2}"), range(6)) if one]
    assert len(claimed) == 3
    assert set(claimed) == ids


@pytest.mark.parametrize("seconds", [10, 60, 300, HOUR, -HOUR])
def test_a_step_of_redis_clock_or_a_suspended_machine_loses_no_host(sandboxes, seconds):
    running = running_sandbox(sandboxes)
    assert not sandboxes.beat("h", "another")

    stepped(sandboxes._redis, seconds)

    for _ in range(3):  # readers come before the supervisor's next heartbeat
        assert sandboxes.get(running.id).status == "RUNNING"
        assert not sandboxes.beat("h", "another")
    assert sandboxes.beat("h", "supervisor")
    silent_for(sandboxes, 3)
    assert sandboxes.get(running.id).status == "RUNNING"


def test_a_host_is_lost_when_it_was_found_silent_and_is_silent_still_after_its_time(sandboxes):
    running = running_sandbox(sandboxes)
    sandboxes._redis.zincrby("{sandboxes}:hosts", -61_000_000, "h")
    assert sandboxes.get(running.id).status == "RUNNING"

    beat, since = map(int, sandboxes._redis.hget("{sandboxes}:silent", "h").split())
    sandboxes._redis.hset("{sandboxes}:silent", "h", f"{beat} {since - 57_000_000}")
    assert sandboxes.get(running.id).status == "RUNNING"
    sandboxes._redis.hset("{sandboxes}:silent", "h", f"{beat} {since - 59_000_000}")
    assert sandboxes.get(running.id).status == "MISSING"


@pytest.mark.parametrize("seconds", [10, 60, 300, HOUR, -HOUR])
def test_a_sandbox_waits_for_a_host_while_no_supervisor_is_there(redis_url, seconds):
    sandboxes = fresh_sandboxes(redis_url, start_seconds=5)
    started = sandboxes.start("spec")

    stepped(sandboxes._redis, seconds)

    assert sandboxes.get(started.id).status == "STARTING"
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.get(started.id).status == "STARTING"
    assert sandboxes.claim("h") == started.id


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_reader_whose_clock_is_wrong_loses_no_living_host(sandboxes, monkeypatch, seconds):
    running, waiting = running_sandbox(sandboxes), sandboxes.start("spec")
    clock = wire.now

    monkeypatch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)

    assert sandboxes.get(running.id).status == "RUNNING"
    assert sandboxes.use(running.id).status == "RUNNING"
    assert [one.status for one in sandboxes.of_host("h")] == ["RUNNING"]
    found, _ = sandboxes.search(status=None, spec_id=None, limit=9, start=None)
    assert {one.id: one.status for one in found} == {running.id: "RUNNING", waiting.id: "STARTING"}
    assert sandboxes.start("spec").status == "STARTING"


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_supervisor_whose_clock_is_wrong_keeps_its_host_and_a_lost_host_is_found(sandboxes, monkeypatch, seconds):
    sandbox = running_sandbox(sandboxes)
    clock = wire.now
    with monkeypatch.context() as patch:
        patch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)
        assert sandboxes.beat("h", "supervisor")
        assert sandboxes.beat("other", "whose clock is wrong")
    assert not sandboxes.beat("other", "another")
    assert sandboxes.get(sandbox.id).status == "RUNNING"

    silent_for(sandboxes, 61)

    assert sandboxes.get(sandbox.id).status == "MISSING"
    assert sandboxes.beat("h", "another")


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_ages_are_measured_by_the_clock_of_redis(sandboxes, monkeypatch, seconds):
    clock = wire.now
    monkeypatch.setattr(wire, "now", lambda: clock() + seconds * 1_000_000)
    sandbox = running_sandbox(sandboxes)
    sandboxes._redis.hincrby(f"{{sandboxes}}:box:{sandbox.id}", "active_at", -60_000_000)

    seen = sandboxes.get(sandbox.id)

    assert 0 <= seen.seen_at - seen.created_at < HOUR * 1_000_000 / 2
    assert 0 <= seen.seen_at - seen.active_at - 60_000_000 < HOUR * 1_000_000 / 2


def test_an_id_of_no_sandbox_in_an_index_stops_no_reader_and_no_claim(sandboxes):
    sandboxes._redis.zadd("{sandboxes}:unclaimed", {"ghost": 1})
    sandboxes._redis.sadd("{sandboxes}:host:h", "ghost")

    assert sandboxes.claim("h") is None
    silent_for(sandboxes, 61)
    assert sandboxes.of_host("h") == []
    assert sandboxes.beat("h", "supervisor")
    assert sandboxes.of_host("h") == []


def test_a_host_says_how_many_sandboxes_it_has_and_a_lost_one_is_forgotten(sandboxes, redis_url):
    hosts = Hosts(sandboxes._redis)
    running = running_sandbox(sandboxes)
    sandboxes.report(running_sandbox(sandboxes).id, "h", "supervisor", "ERROR")
    assert sandboxes.beat("other", "another")
    hosts.note("other", {"kind": "none"}, "0.9")

    assert [(one.id, one.sandboxes, one.said, one.version) for one in hosts.all()] == [
        ("h", 2, None, None),
        ("other", 0, {"kind": "none"}, "0.9"),
    ]
    assert hosts.all()[0].seen_at <= sandboxes.get(running.id).seen_at

    silent_for(sandboxes, 61, "other")
    assert sandboxes.beat("h", "supervisor")
    hosts.note("h", {"kind": "bubblewrap"}, "1.0")
    assert [(one.id, one.version) for one in hosts.all()] == [("h", "1.0")]


@pytest.mark.parametrize(("field", "value"), [("handle", "{"), ("created_at", "x"), ("wanted", None)])
def test_a_sandbox_whose_record_cannot_be_read_hides_no_other_of_its_host(sandboxes, field, value, caplog):
    broken, whole = sandboxes.start("spec"), sandboxes.start("spec")
    while sandboxes.claim("h"):
        pass
    key = f"{{sandboxes}}:box:{broken.id}"
    _ = sandboxes._redis.hdel(key, field) if value is None else sandboxes._redis.hset(key, field, value)

    assert [one.id for one in sandboxes.of_host("h")] == [whole.id]
    assert "cannot be read, and is left alone" in caplog.text


def test_a_failed_sandbox_of_a_lost_host_is_not_resumed_and_is_deleted_at_once(sandboxes):
    failed = [running_sandbox(sandboxes) for _ in range(3)]  # as many as may run
    for one in failed:
        sandboxes.report(one.id, "h", "supervisor", "ERROR", handle=None, runtime="process")
    silent_for(sandboxes, 61)
    assert sandboxes.beat("other", "another")
    assert [sandboxes.get(one.id).status for one in failed] == ["ERROR"] * 3

    for one in failed:
        with pytest.raises(SandboxRefuses, match="does not answer"):
            sandboxes.ask(one.id, "resume")
        sandboxes.ask(one.id, "delete")

    assert sandboxes.get_many([one.id for one in failed]) == [None] * 3
    assert sorted(sandboxes.removals("h")) == sorted(("process", one.id) for one in failed)
    started = sandboxes.start("spec")
    assert sandboxes.claim("other") == started.id
