"""A tokenizer's files as compressed pieces, each small enough for one value in etcd."""

import zlib

from google.protobuf.message import DecodeError

from baton.internal.v1.worker_pb2 import GetTokenizerResponse
from baton.worker.wire.tokenizer_files import CHUNK_BYTES, TokenizerFiles

MAX_COMPRESSED_BYTES = 16 * 1024 * 1024
"""Most compressed bytes of one tokenizer; etcd keeps 2 GiB in all by default."""
_MAX_PIECE_BYTES = CHUNK_BYTES + 64
_LEVEL = 6


def compress_files(files: TokenizerFiles) -> list[bytes]:
    """Return the pieces, of at most 1 MiB each. Takes about a second for 16 MiB of files.

    Raises:
        ValueError: together they are longer than MAX_COMPRESSED_BYTES.
    """
    pieces = [zlib.compress(one.SerializeToString(), _LEVEL) for one in files.chunks()]
    if (size := sum(map(len, pieces))) > MAX_COMPRESSED_BYTES:
        raise ValueError(
            f"its tokenizer has {size} bytes when compressed; "
            f"at most {MAX_COMPRESSED_BYTES} are kept"
        )
    return pieces


def decompress_piece(value: bytes) -> GetTokenizerResponse:
    """Return a piece.

    Raises:
        ValueError: it is damaged, or longer than a piece can be.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(value, _MAX_PIECE_BYTES)
        if not inflater.eof:
            raise ValueError("a piece of the tokenizer is too long or cut off")
        return GetTokenizerResponse.FromString(data)
    except (zlib.error, DecodeError) as error:
        raise ValueError(f"a piece of the tokenizer is damaged: {error}") from error
