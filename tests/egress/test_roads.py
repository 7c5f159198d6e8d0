"""From a name to an address: only what was checked is connected to."""

from contextlib import ExitStack

import httpcore
import pytest

from egress.roads import MOST_LOOKUPS, MOST_LOOKUPS_IN_ALL, Lookups, Roads, TooManyLookups, Unreachable


def roads(*addresses: str, own: tuple[str, ...] = ()) -> Roads:
    return Roads(look_up=lambda _: list(addresses), own=lambda: own)


def test_of_a_names_addresses_the_public_ones_are_reached():
    assert roads("10.0.0.1", "1.1.1.1", "::ffff:10.0.0.1").addresses("example.org") == ["1.1.1.1"]


def test_a_name_without_a_public_address_is_refused():
    for address in ("127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "64:ff9b::7f00:1"):
        with pytest.raises(Unreachable, match="no public address"):
            roads(address).addresses("example.org")


def test_a_name_of_this_machine_is_refused():
    with pytest.raises(Unreachable):
        roads("1.1.1.1", own=("1.1.1.1",)).addresses("example.org")


def test_a_name_that_is_not_found_is_refused():
    def look_up(_: str) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(Unreachable, match="has no address"):
        Roads(look_up=look_up).addresses("example.org")


def test_a_plain_request_is_refused_likewise():
    with pytest.raises(httpcore.ConnectError, match="no public address"):
        roads("127.0.0.1").backend().connect_tcp("example.org", 80)


def test_a_name_is_looked_up_once_and_only_the_checked_address_is_connected_to(monkeypatch):
    """A name that is public when it is checked and private a moment later leads to the public address."""
    answers = iter([["1.1.1.1"], ["127.0.0.1"]])
    connected = []

    def connect(address: tuple[str, int], _: float) -> None:
        connected.append(address)

    monkeypatch.setattr("egress.roads.socket.create_connection", connect)
    Roads(look_up=lambda _: next(answers), own=tuple).connect("example.org", 443)
    assert connected == [("1.1.1.1", 443)]


# turns of looking names up


def roads_in_turns(lookups: Lookups) -> Roads:
    return Roads(look_up=lambda _: ["1.1.1.1"], own=tuple, lookups=lookups)


def test_slow_look_ups_of_a_sandbox_keep_no_other_one_waiting():
    lookups = Lookups(seconds=0)
    roads = roads_in_turns(lookups)
    with lookups.of("evil"), ExitStack() as slow:
        for _ in range(MOST_LOOKUPS):
            slow.enter_context(lookups.place())

        # Its next name is refused with a sentence that names the bound, by every road
        for look_up in (roads.addresses, roads.to_services().addresses):
            with pytest.raises(TooManyLookups, match=f"already looking up {MOST_LOOKUPS} names.*try again") as full:
                look_up("example.org")
            assert full.value.status == 429
        with pytest.raises(TooManyLookups):
            roads.backend().connect_tcp("example.org", 80)

        # Another sandbox finds its own, and so does this one once a look-up has ended
        with lookups.of("good"):
            assert roads.addresses("example.org") == ["1.1.1.1"]
    with lookups.of("evil"):
        assert roads.addresses("example.org") == ["1.1.1.1"]


def test_all_look_ups_together_have_a_bound_and_its_refusal_names_it():
    lookups = Lookups(seconds=0)
    with ExitStack() as slow:
        for number in range(MOST_LOOKUPS_IN_ALL):
            slow.enter_context(lookups.of(f"sandbox {number}"))
            slow.enter_context(lookups.place())

        with lookups.of("another"), pytest.raises(TooManyLookups, match=f"{MOST_LOOKUPS_IN_ALL} names") as full:
            roads_in_turns(lookups).addresses("example.org")
        assert full.value.status == 503
    with lookups.of("another"):
        assert roads_in_turns(lookups).addresses("example.org") == ["1.1.1.1"]


def test_a_look_up_that_fails_leaves_its_turn():
    lookups = Lookups(most=1, most_in_all=1, seconds=0)
    with lookups.of("some"):
        for _ in range(2):
            with pytest.raises(Unreachable):
                Roads(look_up=lambda _: [], lookups=lookups).addresses("example.org")


def test_a_service_is_reached_wherever_it_is():
    assert Roads(look_up=lambda _: []).to_services().addresses("127.0.0.1") == ["127.0.0.1"]
