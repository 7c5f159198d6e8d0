"""Devices in Redis: their bounds, their end, and whose message is sent next."""

import pytest

from core.access import Principal
from store.devices import MOST_OWN, DevicesUnsealed, PushAddress, TooManyDevices, public_point
from store.link.secrets import Sealer
from tests.notifications import forget_notifications

ADA = Principal("ada", "ada-key", frozenset({"approve"}))


@pytest.fixture
def devices(store):
    forget_notifications(store)
    yield store.devices
    forget_notifications(store)


def keep(devices, number: int = 0, principal: Principal = ADA):
    address = PushAddress(f"https://push.example.org/{number}", "key", "auth")
    return devices.keep(principal, address, label="Pixel", host="push.example.org", shows="everything")


def test_a_device_is_read_as_it_was_kept_and_its_address_is_sealed(devices):
    kept = keep(devices)

    assert devices.all() == [kept]
    assert (kept.owner, kept.scopes, kept.label) == ("ada-key", ("approve",), "Pixel")
    assert kept.may("read")
    assert not kept.may("write")
    assert kept.expires_at - kept.renewed_at == 90 * 86_400 * 1_000_000
    assert devices.address_of(kept).endpoint == "https://push.example.org/0"
    assert b"push.example.org/0" not in kept.address


def test_an_owner_has_so_many_devices_and_all_have_so_many(devices, monkeypatch):
    for number in range(MOST_OWN):
        keep(devices, number)
    with pytest.raises(TooManyDevices, match="You have 10 devices"):
        keep(devices, MOST_OWN)
    monkeypatch.setattr("store.devices.MOST_DEVICES", MOST_OWN)
    with pytest.raises(TooManyDevices, match="of all people reached"):
        keep(devices, MOST_OWN, Principal("grace", "grace-key"))

    assert keep(devices, 3).id in {one.id for one in devices.all()}  # a renewal takes no place


def test_a_device_that_has_expired_is_not_read_and_makes_room(devices):
    for number in range(MOST_OWN):
        first = keep(devices, number)
    devices._redis.zadd("{notify}:devices", {first.id: 1})

    assert len(devices.all()) == MOST_OWN - 1
    keep(devices, MOST_OWN)
    assert devices.number() == MOST_OWN


def test_a_device_of_another_owner_begins_without_what_waited(store, devices):
    one = keep(devices)
    store.notifications.targets.add((), [("msg_1", ["of ada"])], device_ids=[one.id])
    keep(devices, principal=Principal("grace", "grace-key"))

    assert devices.claim("token", 60) is None
    assert [found.owner for found in devices.all()] == ["grace-key"]


def test_the_device_that_has_failed_least_comes_first_and_one_whose_lease_is_taken_does_not(store, devices):
    failing, well = keep(devices, 1), keep(devices, 2)
    targets = store.notifications.targets
    targets.add((), [("msg_1", ["{}", ""]), ("msg_2", ["{}", ""])], device_ids=[failing.id, well.id])
    for _ in range(2):
        one = devices.claim("token", 60)
        assert one.target_id == failing.id
        targets.close(one, "failed", "it answered 503")
    targets.add((), [("msg_3", ["", "{}"])], device_ids=[failing.id, well.id])

    first, second = devices.claim("a", 60), devices.claim("b", 60)
    assert (first.target_id, second.target_id) == (well.id, failing.id)
    assert devices.claim("c", 60) is None
    assert devices.claim("a", 60).target_id == well.id  # a repeat
    assert targets.close(first, "sent") == "sent"
    assert devices._redis.smembers("{notify}:ringing") == {failing.id.encode()}


def test_a_device_that_has_ended_gets_no_queue_and_no_state(store, devices):
    one = keep(devices)
    store.notifications.targets.add((), [("msg_1", ["{}"])], device_ids=[one.id])
    claimed = devices.claim("token", 60)
    devices.end([one.id])
    store.notifications.targets.add((), [("msg_2", ["{}"])], device_ids=[one.id])

    assert store.notifications.targets.close(claimed, "failed", "it answered 503") == "late"
    assert list(devices._redis.scan_iter(f"*{one.id}*")) == []


def test_the_push_key_is_made_once_and_opens_with_the_secret_key_alone(store, devices):
    # Workers of their own: the store that the tests share remembers the key of a store that was emptied since.
    one, other = (type(devices)(devices._redis, devices._scripts, devices._sealer) for _ in range(2))
    assert public_point(one.push_key()) == public_point(other.push_key())

    with pytest.raises(DevicesUnsealed):
        type(devices)(devices._redis, devices._scripts, Sealer(("another key",))).push_key()
