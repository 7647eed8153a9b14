"""Digests while a file is written, against what hashlib and zlib say of all of it at once."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.models.digests import Digest, FileHash

DATA = bytes(range(256)) * 40
PART = 1000


def md5_parts(data: bytes, part: int) -> str:
    digests = [hashlib.md5(data[at : at + part]).digest() for at in range(0, len(data), part)]
    return hashlib.md5(b"".join(digests)).hexdigest()


EXPECTED = {
    "sha256": hashlib.sha256(DATA).hexdigest(),
    "sha1": hashlib.sha1(DATA).hexdigest(),
    "md5": hashlib.md5(DATA).hexdigest(),
    "git-sha1": hashlib.sha1(b"blob %d\0" % len(DATA) + DATA).hexdigest(),
    "crc32": f"{zlib.crc32(DATA):08x}",
    "md5-parts": md5_parts(DATA, PART),
}


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.parametrize("piece", [1, 999, 1000, 1001, len(DATA)])
def test_each_kind_is_that_of_the_whole_file(kind: str, piece: int) -> None:
    digest = Digest(kind, EXPECTED[kind], PART)  # type: ignore[arg-type]
    found = FileHash(digest, len(DATA))
    for at in range(0, len(DATA), piece):
        assert not found.matches()
        found.update(DATA[at : at + piece])
    assert found.matches()
    assert found.found == EXPECTED[kind]
    assert found.sha256 == EXPECTED["sha256"]


@given(data=st.binary(max_size=100), part=st.integers(1, 40), cut=st.integers(0, 100))
def test_parts_do_not_depend_on_how_bytes_come(data: bytes, part: int, cut: int) -> None:
    found = FileHash(Digest("md5-parts", md5_parts(data, part), part), len(data))
    found.update(data[:cut])
    found.update(data[cut:])
    assert found.matches()


def test_without_a_digest_everything_matches() -> None:
    found = FileHash(None, 3)
    found.update(b"abc")
    assert found.matches()
    assert found.found == found.sha256 == hashlib.sha256(b"abc").hexdigest()
