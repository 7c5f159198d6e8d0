"""The counts of processes in shared memory: their layout, their slots, and what stays of a process that ends."""

import mmap
import os

import pytest

from telemetry.meter import CELLS, REQUEST_BUCKETS, SUPERVISOR, TRIP_BUCKETS, UNMATCHED, Meter, Tallies

ROUTES = [("/a", "GET"), ("/a", "POST"), ("/b", "GET")]


@pytest.fixture
def tallies():
    made = Tallies.make(workers=2)
    yield made
    os.close(made.descriptor)


def worker(tallies, routes=ROUTES) -> tuple[Meter, int]:
    """A worker that begins, and its slot."""
    meter, slot = Meter(), tallies.take()
    meter.add_routes(routes)
    meter.share(tallies, slot)
    return meter, slot


def ask(meter, route="/a", method="GET", status=200) -> None:
    meter.begin_request()
    meter.end_request(route, method, status)


def counts(meter) -> dict[tuple[str, str], dict[str, float]]:
    return {
        (one.route, one.method): {name: number for name, number in one.by_class.items() if number}
        for one in meter.read()[0]
    }


def test_where_the_system_has_no_such_memory_a_file_without_a_name_stands_for_it(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Tallies.make(workers=1)

    one, two = Meter(), Meter()
    one.share(made, made.take())
    two.share(Tallies(os.dup(made.descriptor)), SUPERVISOR)
    two.count_start("READY")

    assert one.read()[1][1].starts["READY"] == 1
    assert list(tmp_path.iterdir()) == []


def test_every_process_reads_the_counts_of_all(tallies):
    (one, _), (two, _) = worker(tallies), worker(tallies)
    ask(one), ask(two), ask(two, "/b", status=503), ask(one, "/a", "POST", 499)

    expected = {("/a", "GET"): {"2xx": 2}, ("/b", "GET"): {"5xx": 1}, ("/a", "POST"): {"4xx": 1}}
    assert counts(one) == counts(two) == expected
    assert one.read()[1][0].processes == 2


def test_a_process_through_the_descriptor_alone_reads_and_counts_too(tallies):
    meter, _ = worker(tallies)
    supervisor = Meter()
    supervisor.share(Tallies(os.dup(tallies.descriptor)), SUPERVISOR)
    supervisor.count_trip(0.5, failed=True)
    supervisor.count_start("READY")

    of_worker, of_supervisor = meter.read()[1]
    assert (of_worker.failed_trips, of_supervisor.failed_trips) == (0, 1)
    assert of_supervisor.starts == {"READY": 1, "ERROR": 0}
    assert of_supervisor.trips.sum == 0.5


def test_the_next_worker_counts_on_from_the_one_before_without_its_followers(tallies):
    first, slot = worker(tallies)
    other, _ = worker(tallies)
    ask(first)
    first.note_followers(7)
    assert other.read()[1][0].followers == 7

    tallies.free(slot)
    assert other.read()[1][0].followers == 0
    assert counts(other) == {("/a", "GET"): {"2xx": 1}}

    second, same = worker(tallies)
    ask(second)
    assert same == slot
    assert counts(other) == {("/a", "GET"): {"2xx": 2}}
    assert other.read()[1][0].started == 3


def test_a_release_with_other_routes_begins_at_zero_and_never_reads_the_cells_of_the_one_before(tallies):
    old, slot = worker(tallies)
    ask(old, "/b"), ask(old)
    newer, _ = worker(tallies, [*ROUTES, ("/0", "GET")])

    assert counts(newer) == {}
    tallies.free(slot)
    again, _ = worker(tallies, [*ROUTES, ("/0", "GET")])
    ask(again, "/0")
    assert counts(newer) == counts(again) == {("/0", "GET"): {"2xx": 1}}


def test_what_is_no_route_of_ours_is_one_row_with_its_round_trips(tallies):
    meter, _ = worker(tallies)
    meter.begin_request()
    meter.count_trip(0.001, failed=False)
    meter.end_request(None, "GET", 404)
    ask(meter, "/a", "BREW", 405)

    assert counts(meter) == {UNMATCHED: {"4xx": 2}}
    assert meter.read()[0][0].trips == 1


def test_a_duration_falls_into_the_first_bucket_that_holds_it():
    meter = Meter()
    for seconds in (0.0, TRIP_BUCKETS[0], TRIP_BUCKETS[0] * 1.01, TRIP_BUCKETS[-1], TRIP_BUCKETS[-1] + 1):
        meter.count_trip(seconds, failed=False)

    trips = meter.read()[1][0].trips
    assert trips.counts == [2, 1, *[0] * (len(TRIP_BUCKETS) - 3), 1, 1]
    assert trips.sum == pytest.approx(2.01 * TRIP_BUCKETS[0] + 2 * TRIP_BUCKETS[-1] + 1)


def test_an_untimed_request_has_no_duration():
    meter = Meter()
    meter.add_routes(ROUTES)
    meter.begin_request()
    meter.end_request("/a", "GET", 101, is_timed=False)

    [route] = meter.read()[0]
    assert route.by_class["1xx"] == 1
    assert route.seconds.counts == [0] * (len(REQUEST_BUCKETS) + 1)


def test_more_routes_than_there_are_cells_stop_the_start_with_their_number():
    with pytest.raises(ValueError, match="1025 routes and methods: 1024 can be counted"):
        Meter().add_routes((f"/{number}", "GET") for number in range(1024))


def test_a_worker_beyond_twice_the_settings_gets_no_slot(tallies):
    slots = [tallies.take() for _ in range(2 * 2 + 16)]

    assert SUPERVISOR not in slots
    assert len(set(slots)) == 20
    assert tallies.take() is None
    tallies.free(slots[3])
    assert tallies.take() == slots[3]


def test_memory_that_nobody_writes_is_not_taken(tallies):
    worker(tallies)

    assert os.fstat(tallies.descriptor).st_size == 8 * CELLS * 21
    assert os.fstat(tallies.descriptor).st_blocks * 512 <= 8 * mmap.PAGESIZE
