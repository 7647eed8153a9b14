"""Digests as sources give them, computed while a file is written."""

import hashlib
import zlib
from dataclasses import dataclass
from typing import Literal, Protocol

DigestKind = Literal[
    "sha256", "sha1", "git-sha1", "md5", "md5-parts", "sha256-parts", "sha1-parts", "crc32"
]
"""`git-sha1`: of a Git blob. `…-parts`: the digest of the digests of the parts of an S3 upload."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest that a source gives of a file."""

    kind: DigestKind
    value: str
    """Hexadecimal, in lower case."""
    part_bytes: int = 0
    """Bytes of each part but the last, for `…-parts`."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class FileHash:
    """The SHA-256 of a file, and its digest in the source's kind, from one pass over its bytes.

    Args:
        digest: what the source says; None: nothing.
        size: of the whole file in bytes.
    """

    def __init__(self, digest: Digest | None, size: int) -> None:
        self._expected = digest
        self._sha256 = hashlib.sha256()
        self._other = None
        if digest is not None and digest.kind != "sha256":
            self._other = _make(digest, size)

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._sha256.update(data)
        if self._other is not None:
            self._other.update(data)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes so far, in hexadecimal."""
        return self._sha256.hexdigest()

    @property
    def found(self) -> str:
        """The digest of the bytes so far, in the source's kind."""
        return self.sha256 if self._other is None else self._other.hexdigest()

    def matches(self) -> bool:
        """Return whether the bytes so far have the source's digest; True if it gives none."""
        return self._expected is None or self.found == self._expected.value


class _Crc32Hash:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class _PartsHash:
    """The digest of the digests of parts."""

    def __init__(self, name: str, part_bytes: int) -> None:
        self._name = name
        self._part_bytes = part_bytes
        self._part = _plain(name)
        self._room = part_bytes
        self._whole = _plain(name)

    def update(self, data: bytes, /) -> None:
        view = memoryview(data)
        while view:
            taken = view[: self._room]
            self._part.update(taken)
            self._room -= len(taken)
            view = view[len(taken) :]
            if not self._room:
                self._whole.update(self._part.digest())
                self._part, self._room = _plain(self._name), self._part_bytes

    def hexdigest(self) -> str:
        whole = self._whole.copy()
        if self._room < self._part_bytes:
            whole.update(self._part.digest())
        return whole.hexdigest()


def _plain(name: str) -> "hashlib._Hash":
    return hashlib.new(name, usedforsecurity=False)


def _make(digest: Digest, size: int) -> _Hash:
    if digest.kind == "git-sha1":
        blob = _plain("sha1")
        blob.update(b"blob %d\0" % size)
        return blob
    if digest.kind == "crc32":
        return _Crc32Hash()
    if digest.kind.endswith("-parts"):
        return _PartsHash(digest.kind.removesuffix("-parts"), digest.part_bytes)
    return _plain(digest.kind)
