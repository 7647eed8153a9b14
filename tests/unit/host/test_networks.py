"""Where upstreams and receivers may be."""

import socket

import pytest

from baton.host.networks import NOT_ALLOWED, AllowedNetworks


@pytest.mark.parametrize(
    ("networks", "address", "encrypted", "allowed"),
    [
        (("public",), "93.184.215.14", True, True),
        (("public",), "93.184.215.14", False, False),
        (("public",), "127.0.0.1", True, False),
        (("public",), "10.1.2.3", True, False),
        (("public",), "169.254.169.254", True, False),
        (("public",), "::ffff:127.0.0.1", True, False),
        (("public",), "fe80::1%eth0", True, False),
        (("public",), "2606:2800:220:1::1", True, True),
        (("public",), "224.0.0.1", True, False),
        (("public",), "ff0e::1", True, False),
        (("public",), "::1", True, False),
        (("public",), "::ffff:10.0.0.1", True, False),
        (("public",), "::7f00:1", True, False),
        (("public",), "64:ff9b::7f00:1", True, False),
        (("public",), "64:ff9b::5db8:d70e", True, True),
        (("public",), "64:ff9b:1::5db8:d70e", True, False),
        (("public",), "2002:7f00:1::", True, False),
        (("public",), "2002:5db8:d70e::1", True, False),
        (("public",), "2001::5db8:d70e", True, False),
        (("64:ff9b::/96",), "64:ff9b::7f00:1", False, True),
        (("10.0.0.0/8",), "10.1.2.3", False, True),
        (("10.0.0.0/8",), "93.184.215.14", True, False),
        ((), "93.184.215.14", True, False),
    ],
)
def test_addresses(networks: tuple[str, ...], address: str, encrypted: bool, allowed: bool) -> None:
    assert AllowedNetworks(networks).allow(address, encrypted=encrypted) is allowed


def test_no_socket_for_others() -> None:
    networks = AllowedNetworks(("public",))
    info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
    with pytest.raises(OSError, match=r"providers\.allowed_networks") as caught:
        networks.make_socket(info, encrypted=True)
    assert caught.value.errno == NOT_ALLOWED
