"""Connections per client address: what counts as one, and that each is counted once."""

import pytest

from baton.rpc.transport.client_addresses import ClientAddresses


def test_more_than_are_allowed_are_refused_until_others_leave() -> None:
    addresses = ClientAddresses(2)
    entered = [addresses.enter("10.0.0.1", "http") for _ in range(4)]
    assert entered == [0, 0, 1, 2]
    assert addresses.enter("10.0.0.2", "grpc") == 0
    for _ in range(3):  # the refused ones are counted until they have left as well
        addresses.leave("10.0.0.1")
    assert addresses.enter("10.0.0.1", "grpc") == 0
    assert addresses.enter("10.0.0.1", "grpc") == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2:3::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_a_client_of_ipv6_has_a_network(one: str, other: str, same: bool) -> None:
    addresses = ClientAddresses(1)
    assert addresses.enter(one, "http") == 0
    assert addresses.enter(other, "http") == int(same)


@pytest.mark.parametrize(("most", "address"), [(0, "10.0.0.1"), (1, "")])
def test_nothing_is_counted_without_bound_or_address(most: int, address: str) -> None:
    addresses = ClientAddresses(most)
    assert [addresses.enter(address, "http") for _ in range(5)] == [0] * 5
    addresses.leave(address)
