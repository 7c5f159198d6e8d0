"""One supervisor at a time speaks for a host name, on every kind of Redis."""

from uuid import uuid4

import pytest

from store import Limits
from supervisor.host_lease import HostLease, HostTaken
from tests.conftest import store_of

#: the score of a host is the time of its last heartbeat, in µs
HOSTS = "{sandboxes}:hosts"


@pytest.fixture
def sandboxes(redis_url):
    limits = Limits(most=1, pause_idlest=False, host_seconds=3600, start_seconds=60)
    return store_of(redis_url, limits).sandboxes


@pytest.fixture
def lease(sandboxes, tmp_path):
    """Makes a lease of one host, for a supervisor with a folder of that name."""
    host = f"host {uuid4()}"

    def make(name: str) -> HostLease:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return HostLease(sandboxes, host, folder)

    return make


def test_a_second_folder_gets_no_lease_while_the_first_one_renews_its(lease):
    first, second = lease("a"), lease("b")

    assert first.take()
    assert not second.take()
    first.renew()
    with pytest.raises(HostTaken):
        second.renew()


def test_a_second_supervisor_of_the_same_folder_gets_no_lease(lease):
    first, second = lease("a"), lease("a")

    assert first.take()
    assert not second.take()


def test_a_lease_that_is_not_renewed_for_three_seconds_may_be_taken(lease, sandboxes):
    first, second = lease("a"), lease("b")
    assert first.take()

    sandboxes._redis.zincrby(HOSTS, -2_000_000, first.host)
    assert not second.take()
    sandboxes._redis.zincrby(HOSTS, -1_000_001, first.host)
    assert second.take()
    assert not first.take()


def test_a_released_lease_may_be_taken_at_once_and_only_its_holder_releases_it(lease):
    first, second = lease("a"), lease("b")
    assert first.take()

    second.release()
    assert not second.take()
    first.release()
    first.release()
    assert second.take()
