"""NIXL encrypts nothing: beside TLS it is used only where that is asked for."""

import pytest

from baton.settings import StoreSettings
from services.kvstore.app import uses_nixl


@pytest.mark.parametrize(
    ("given", "encrypted", "uses"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"peer_transports": ("nixl", "grpc")}, True, True),
        ({"peer_transports": ("grpc",)}, True, False),
        ({"peer_transports": ("grpc",)}, False, False),
    ],
)
def test_nixl_beside_tls(given: dict[str, tuple[str, ...]], encrypted: bool, uses: bool) -> None:
    assert uses_nixl(StoreSettings(**given), encrypted=encrypted) is uses  # type: ignore[arg-type]
