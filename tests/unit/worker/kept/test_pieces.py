"""Tokenizers fit into values of etcd, and come back whole or not at all."""

import random
import zlib

import pytest

from baton.worker.kept.pieces import MAX_COMPRESSED_BYTES, compress_files, decompress_piece
from baton.worker.wire.tokenizer_files import CHUNK_BYTES, TokenizerAssembly, TokenizerFiles

ETCD_BYTES = 1_572_864
"""What etcd accepts in one request by default."""


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5])
@pytest.mark.parametrize("make", [noise, lambda size: b"a" * size], ids=["noise", "same"])
def test_files_come_back_as_they_were(make, size) -> None:
    files = TokenizerFiles(make(size), b"{}", None)
    pieces = compress_files(files)
    assert all(len(one) < ETCD_BYTES - 10_000 for one in pieces)
    assembly = TokenizerAssembly(files.size)
    for one in pieces:
        assembly.add(decompress_piece(one))
    assert assembly.verified(files.digest) == files


def test_a_tokenizer_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="when compressed; at most 16777216 are kept"):
        compress_files(TokenizerFiles(noise(MAX_COMPRESSED_BYTES)))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no zlib",
        zlib.compress(b"x" * 100)[:-3],
        zlib.compress(bytes(64 * CHUNK_BYTES)),
        zlib.compress(b"\xff\xff\xff"),
    ],
    ids=["empty", "garbage", "cut", "bomb", "no message"],
)
def test_a_damaged_piece_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="a piece of the tokenizer"):
        decompress_piece(value)
