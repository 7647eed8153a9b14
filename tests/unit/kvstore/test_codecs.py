"""Codecs are exact, and what is broken is an error or wrong bytes, never more memory."""

import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from baton.settings import StartupError
from baton.settings.groups import KvSettings
from services.kvstore import disk_setup
from services.kvstore.disk.codecs import AS_IT_IS, NAMES, NONE, CodecError, Codecs, make_codec

NAMED = [name for name in NAMES if name != NONE]


def decoded(name: str, data: bytes, size: int) -> bytes:
    out = bytearray(size)
    Codecs().decode(NAMES.index(name), memoryview(data), memoryview(out))
    return bytes(out)


def test_numbers_stay_what_they_are_in_files() -> None:
    assert NAMES == ("none", "zstd", "lz4")
    assert AS_IT_IS == 0
    codecs = Codecs()
    assert [codecs.can_read(number) for number in (-1, 0, 1, 2, 3)] == [False, *[True] * 3, False]
    assert codecs.encode(memoryview(b"anything")) is None


@pytest.mark.parametrize("name", NAMED)
@given(data=st.binary(min_size=1, max_size=5000), times=st.integers(1, 50))
def test_what_comes_back_is_what_went(name: str, data: bytes, times: int) -> None:
    data *= times
    encoded = Codecs(name).encode(memoryview(data))
    assert encoded is not None
    assert decoded(name, encoded, len(data)) == data


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("other", [-1, 1])
def test_an_object_of_another_length_is_an_error(name: str, other: int) -> None:
    data = bytes(range(256)) * 64
    encoded = Codecs(name).encode(memoryview(data))
    assert encoded is not None
    with pytest.raises(CodecError):
        decoded(name, encoded, len(data) + other)


@pytest.mark.parametrize("name", NAMED)
def test_broken_data_is_an_error_or_other_bytes(name: str) -> None:
    draw = random.Random(name)
    data = bytes(draw.choices(range(8), k=20_000))
    encoded = Codecs(name).encode(memoryview(data))
    assert encoded is not None
    errors = 0
    for _ in range(500):
        broken = bytearray(encoded)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.2:
            del broken[draw.randrange(len(broken)) :]
        try:
            decoded(name, bytes(broken), len(data))
        except CodecError:
            errors += 1
    assert errors > 0


def test_a_header_does_not_say_how_much_memory_is_taken() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(256 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decoded("zstd", bomb, 4096)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_what_is_not_encoded_is_not_decoded() -> None:
    assert make_codec(NONE) is None
    with pytest.raises(CodecError):
        decoded(NONE, b"x", 1)


@pytest.mark.parametrize("name", NAMED)
def test_a_codec_that_is_not_installed_says_what_to_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = KvSettings(disk_bytes=1 << 20, disk_path=Path("/x"), disk_codec=name)
    disk_setup.check(settings)
    monkeypatch.setattr(disk_setup, "is_installed", lambda asked: asked != name)
    with pytest.raises(StartupError, match=r"pip install .*baton\[codecs\]"):
        disk_setup.check(settings)
