"""From a name to an address: only what was checked is connected to."""

import httpcore
import pytest

from egress.roads import RoadBackend, Roads, Unreachable


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
        RoadBackend(roads("127.0.0.1")).connect_tcp("example.org", 80)


def test_a_name_is_looked_up_once_and_only_the_checked_address_is_connected_to(monkeypatch):
    """A name that is public when it is checked and private a moment later leads to the public address."""
    answers = iter([["1.1.1.1"], ["127.0.0.1"]])
    connected = []

    def connect(address: tuple[str, int], _: float) -> None:
        connected.append(address)

    monkeypatch.setattr("egress.roads.socket.create_connection", connect)
    Roads(look_up=lambda _: next(answers), own=tuple).connect("example.org", 443)
    assert connected == [("1.1.1.1", 443)]
