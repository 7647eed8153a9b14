"""Inputs of the fuzzer, always the same ones; `python -m bench.rpc.fuzz` looks for more."""

import random

import pytest

from baton.errors import BatonError
from baton.rpc.wire.messages import MessageReader
from bench.rpc.fuzz import sans_io
from bench.rpc.fuzz.inputs import pieces


@pytest.mark.parametrize("first", range(0, 1600, 200))
def test_what_comes_is_borne_and_pieces_are_as_the_whole(first):
    for seed in range(first, first + 200):
        sans_io.run(seed)


def read(data: list[bytes]) -> tuple[list[bytes], bool]:
    """Return the messages that pieces come to, and whether reading ended with an error."""
    reader, messages = MessageReader(1000, b"gzip"), []
    try:
        for piece in data:
            messages += reader.feed(piece)
    except BatonError:
        return messages, True
    return messages, False


def test_messages_do_not_depend_on_how_they_are_cut():
    draw = random.Random(1)
    for _ in range(500):
        data = b"".join(
            b"\0" + size.to_bytes(4) + draw.randbytes(size)
            for size in draw.choices([0, 1, 5, 100, 1000, 1001], [5, 5, 5, 5, 2, 0.1], k=20)
        )
        data += draw.randbytes(draw.randrange(6))
        whole, parts = read([data]), read(pieces(draw, data))
        assert whole[1] == parts[1]
        if not whole[1]:  # an error keeps back what came before it in the same piece
            assert whole == parts
