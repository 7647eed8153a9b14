"""Neighbouring versions speak with each other; others are refused, and told who is too old."""

import pytest

from baton.errors import BatonError, Reason
from baton.rpc.protocol import check_version


@pytest.mark.parametrize("peer_version", [4, 5, 6])
def test_neighbouring_versions_are_accepted(peer_version: int) -> None:
    check_version(peer_version, "decode-0", own_version=5)


@pytest.mark.parametrize(
    ("peer_version", "older"), [(0, "decode-0"), (3, "decode-0"), (7, "this process")]
)
def test_others_are_refused_and_the_older_side_is_named(peer_version: int, older: str) -> None:
    with pytest.raises(BatonError, match=f"upgrade {older}") as caught:
        check_version(peer_version, "decode-0", own_version=5)
    assert caught.value.reason is Reason.PROTOCOL_MISMATCH
