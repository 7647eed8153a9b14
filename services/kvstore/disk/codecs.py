"""Codecs: how a tier may keep objects in less room than they have bytes. Exact, every one of them.

A codec gives back the very bytes that it was given: digests are of those, whatever is kept. One
that gives back other bytes (fp8 for bfloat16, say) has no place here, for what it gives back is
another object: see docs/adr/0012-exact-codecs-only.md.
"""

from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec

import numpy as np

NONE = "none"
ZSTD = "zstd"
LZ4 = "lz4"
NAMES = (NONE, ZSTD, LZ4)
"""In the order of their numbers, which stand in files: only ever appended to."""
AS_IT_IS = NAMES.index(NONE)

_LIBRARIES = {ZSTD: "zstandard", LZ4: "lz4.block"}
_ZSTD_LEVEL = 1


class CodecError(ValueError):
    """Data is not what the codec made of an object of this length."""


class Codec(ABC):
    """One thread may encode while another decodes."""

    name: str

    @abstractmethod
    def encode(self, data: memoryview) -> bytes:
        """The object's bytes in another form, which may be longer."""

    @abstractmethod
    def decode(self, data: memoryview, out: memoryview) -> None:
        """Fill `out`, which is as long as the object.

        Raises:
            CodecError: `data` was not made of an object of this length. `out` has anything in it.
        """


class Zstd(Codec):
    """Zstandard (RFC 8878), level 1."""

    name = ZSTD

    def __init__(self) -> None:
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()
        self._error = zstandard.ZstdError

    def encode(self, data: memoryview) -> bytes:
        return self._compressor.compress(data)

    def decode(self, data: memoryview, out: memoryview) -> None:
        # As a stream: a broken header must not say how much memory is taken.
        done = 0
        try:
            with self._decompressor.stream_reader(data) as reader:
                while done < out.nbytes and (count := reader.readinto(out[done:])):
                    done += count
                over = len(reader.read(1))
        except self._error as error:
            raise CodecError(str(error)) from error
        if done + over != out.nbytes:
            raise CodecError(f"{done + over} bytes or more, not {out.nbytes}")


class Lz4(Codec):
    """LZ4 blocks, over all first bytes of two, then all second ones.

    In elements of two bytes the high ones are alike and the low ones noise: as they lie, LZ4 finds
    next to nothing to shorten.
    """

    name = LZ4

    def __init__(self) -> None:
        from lz4 import block

        self._block = block

    def encode(self, data: memoryview) -> bytes:
        encoded: bytes = self._block.compress(_split(data), store_size=False)
        return encoded

    def decode(self, data: memoryview, out: memoryview) -> None:
        try:
            joined = self._block.decompress(data, uncompressed_size=out.nbytes)
        except self._block.LZ4BlockError as error:
            raise CodecError(str(error)) from error
        if len(joined) != out.nbytes:
            raise CodecError(f"{len(joined)} bytes, not {out.nbytes}")
        _join(joined, out)


def _split(data: memoryview) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    whole = np.frombuffer(data, np.uint8)
    return np.concatenate((whole[::2], whole[1::2]))


def _join(data: bytes, out: memoryview) -> None:
    halves = np.frombuffer(data, np.uint8)
    first = -(-len(data) // 2)
    whole = np.frombuffer(out, np.uint8)
    whole[::2] = halves[:first]
    whole[1::2] = halves[first:]


def is_installed(name: str) -> bool:
    """Whether a codec's library is here; `none` needs none."""
    library = _LIBRARIES.get(name)
    return library is None or find_spec(library.partition(".")[0]) is not None


def make_codec(name: str) -> Codec | None:
    """A codec by its name; None for `none`.

    Raises:
        ImportError: its library is not installed.
    """
    if name == NONE:
        return None
    import_module(_LIBRARIES[name])
    return Zstd() if name == ZSTD else Lz4()


class Codecs:
    """What a tier encodes with, and what it finds encoded by earlier processes."""

    def __init__(self, name: str = NONE) -> None:
        """Encode with the codec of this name.

        Raises:
            ImportError: its library is not installed.
        """
        self.number = NAMES.index(name)
        self._encoder = make_codec(name)
        self._decoders: dict[int, Codec] = {}

    def can_read(self, number: int) -> bool:
        """Whether what stands under a codec's number can be decoded here."""
        return 0 <= number < len(NAMES) and is_installed(NAMES[number])

    def encode(self, data: memoryview) -> bytes | None:
        """As `Codec.encode`; None where objects are kept as they are."""
        return None if self._encoder is None else self._encoder.encode(data)

    def decode(self, number: int, data: memoryview, out: memoryview) -> None:
        """As `Codec.decode`, with the codec of this number, which is not that of `none`.

        Raises:
            CodecError: the data is broken.
            ImportError: its library is not installed.
        """
        if number not in self._decoders:
            codec = make_codec(NAMES[number])
            if codec is None:
                raise CodecError("it is not encoded")
            self._decoders[number] = codec
        self._decoders[number].decode(data, out)
