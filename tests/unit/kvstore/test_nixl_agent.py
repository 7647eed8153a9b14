"""Metadata is looked at before NIXL sees it; neighbours travel together."""

import pytest
from xxhash import xxh3_128_digest

from baton.internal.v1 import kvstore_pb2 as pb
from services.kvstore.peers.transports.nixl.agent import _merged
from services.kvstore.peers.transports.nixl.endpoint import MAX_METADATA_BYTES, Endpoint, NixlError


def metadata(name: bytes) -> bytes:
    return b"nixlSerDes|Agent" + len(name).to_bytes(8, "little") + name + b"|Conns"


GOOD = Endpoint("b/1", metadata(b"b/1"), 1 << 40, 1 << 20)


def test_an_endpoint_survives_the_wire() -> None:
    message = pb.NixlEndpoint.FromString(GOOD.message().SerializeToString())
    assert Endpoint.checked(message, "b/1") == GOOD


@pytest.mark.parametrize("cut", range(1, len(GOOD.metadata) + 1))
def test_metadata_that_is_cut_anywhere_is_refused(cut: int) -> None:
    message = GOOD.message()
    message.metadata = message.metadata[:-cut]
    with pytest.raises(NixlError, match="digest"):
        Endpoint.checked(message, "b/1")


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"nixlSerDes|Agent",
        metadata(b"c/1"),
        metadata(b"b/11"),
        metadata(b"b/1")[:27],
        b"nixlSerDes|Agent" + (1 << 60).to_bytes(8, "little") + b"b/1|",
        b"x" * (MAX_METADATA_BYTES + 1),
    ],
)
def test_metadata_of_somebody_else_or_of_nobody_is_refused(other: bytes) -> None:
    message = GOOD.message()
    message.metadata, message.metadata_digest = other, xxh3_128_digest(other)
    with pytest.raises(NixlError):
        Endpoint.checked(message, "b/1")


@pytest.mark.parametrize(
    "changes",
    [{"agent": "c/1"}, {"size_bytes": 0}, {"size_bytes": -1}, {"address": (1 << 64) - 1}],
)
def test_an_endpoint_that_makes_no_sense_is_refused(changes: dict[str, int | str]) -> None:
    message = GOOD.message()
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(NixlError):
        Endpoint.checked(message, "b/1")


def test_pieces_that_are_neighbours_on_both_sides_become_one() -> None:
    pieces = [(20, 120, 10), (0, 100, 10), (10, 110, 10), (30, 200, 5), (35, 205, 5), (50, 210, 5)]
    assert list(_merged(pieces)) == [(0, 100, 30), (30, 200, 10), (50, 210, 5)]
    assert list(_merged([])) == []
