"""Digests notice every difference between what was written and what was read."""

from hypothesis import given
from hypothesis import strategies as st

from baton.kv.digest import object_digest, start_digest
from baton.kv.objects import ObjectId

KEY, LAYOUT = b"k" * 16, b"l" * 16


def digest(data: bytes, key: bytes = KEY, layout: bytes = LAYOUT, *part: int) -> bytes:
    return object_digest(key, layout, *(part or (0, 0, 0)), memoryview(data))


def test_digests_never_change() -> None:
    assert digest(b"").hex() == "a7608ef9187177c06901bab520828dc9"
    assert digest(bytes(range(256)) * 16).hex() == "d65c5f3e516a4a751e39f5b0c314af6f"
    assert digest(b"x", b"a" * 16, b"b" * 16, 1, 2, 3).hex() == "780b03a35e2a170d19682a3f69b711eb"


@given(st.binary(min_size=1, max_size=300), st.data())
def test_one_flipped_bit_is_noticed(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) * 8 - 1))
    flipped = bytearray(data)
    flipped[at // 8] ^= 1 << at % 8
    assert digest(data) != digest(bytes(flipped))
    assert digest(data) != digest(data[:-1])
    assert digest(data) != digest(data + b"\0")


def test_right_bytes_under_another_name_are_noticed() -> None:
    data = b"d" * 64
    others = [
        digest(data, b"K" * 16),
        digest(data, KEY, b"L" * 16),
        digest(data, KEY, LAYOUT, 1, 0, 0),
        digest(data, KEY, LAYOUT, 0, 1, 0),
        digest(data, KEY, LAYOUT, 0, 0, 1),
    ]
    assert len({digest(data), *others}) == 6


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_pieces_make_the_same_digest_as_the_whole(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    running = start_digest(ObjectId(LAYOUT, KEY), len(whole))
    for piece in pieces:
        running.update(piece)
    assert running.digest() == digest(whole)
