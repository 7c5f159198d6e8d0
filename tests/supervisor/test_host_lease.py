"""One supervisor at a time holds the lease of a host name, on every kind of Redis."""

import os
from uuid import uuid4

import pytest

from supervisor.presence import HostLease, HostTaken
from tests.conftest import limits_of, store_of
from tests.store.conftest import silent_for


@pytest.fixture
def sandboxes(redis_url):
    limits = limits_of(most=1, pause_idlest=False, host_seconds=3600, start_seconds=60)
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


def test_two_volumes_at_one_path_of_one_machine_are_two_folders(sandboxes, tmp_path):
    """As two containers of one image have them."""
    host, path = f"host {uuid4()}", tmp_path / "sandboxes"
    path.mkdir()
    first = HostLease(sandboxes, host, path)
    assert first.take()
    path.rename(tmp_path / "volume of the first")
    path.mkdir()
    second = HostLease(sandboxes, host, path)

    assert not second.take()
    first.renew()
    assert first.identity != second.identity
    assert first.folder != second.folder


def test_the_next_supervisor_of_a_folder_has_the_lease_of_one_that_was_killed(sandboxes, tmp_path):
    host = f"host {uuid4()}"
    first = HostLease(sandboxes, host, tmp_path)
    assert first.take()
    os.close(first._lock)

    second = HostLease(sandboxes, host, tmp_path)
    assert second.take()
    assert second.identity == first.identity


def test_a_second_supervisor_of_the_same_folder_gets_no_lease(lease):
    first, second = lease("a"), lease("a")

    assert first.take()
    assert not second.take()


def test_a_lease_that_is_not_renewed_for_four_seconds_may_be_taken(lease, sandboxes):
    first, second = lease("a"), lease("b")
    assert first.take()

    silent_for(sandboxes, 3.5, first.host)
    assert not second.take()
    silent_for(sandboxes, 0.5, first.host)
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
