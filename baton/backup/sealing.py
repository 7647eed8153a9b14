"""Authenticated encryption of a file in chunks, with a key that scrypt derives of a passphrase.

AES-256-GCM. Every file has a key of its own, since its salt is random, so that a chunk's nonce is
its number and whether it is the last (the STREAM construction of Hoang, Reyhanitabar, Rogaway and
Vizár, "Online Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance", 2015). A chunk that
is changed, moved, left out or cut off does not open.
"""

import secrets
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

TAG_BYTES: Final = 16
_SALT_BYTES = 16
_KEY_BYTES = 32
_MAX_MEMORY = 1 << 30
_MAX_PASSES = 16


class KeyDerivation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of scrypt (RFC 7914); the defaults are OWASP's for 32 MiB of memory."""

    salt: bytes
    n: int = 1 << 15
    r: int = 8
    p: int = 3

    @classmethod
    def new(cls) -> "KeyDerivation":
        """Return the parameters of a new file."""
        return cls(secrets.token_bytes(_SALT_BYTES))

    def key(self, passphrase: bytes) -> bytes:
        """Return the key of a passphrase, 32 bytes. Takes about 0.3 s.

        Raises:
            ValueError: the parameters are out of range, or need more than 1 GiB of memory.
        """
        if not (
            len(self.salt) == _SALT_BYTES
            and self.n > 1
            and self.n & (self.n - 1) == 0
            and self.r > 0
            and 0 < self.p <= _MAX_PASSES
            and 128 * self.n * self.r <= _MAX_MEMORY
        ):
            raise ValueError("the parameters of its key are out of range")
        return Scrypt(self.salt, _KEY_BYTES, self.n, self.r, self.p).derive(passphrase)


class Seal:
    """Seals and opens the chunks of one file.

    Args:
        key: of this file only.
        bound: bytes that every chunk is bound to: the file's header.
    """

    def __init__(self, key: bytes, bound: bytes) -> None:
        self._cipher = AESGCM(key)
        self._bound = bound

    def close(self, number: int, plain: bytes, *, last: bool = False) -> bytes:
        """Return a chunk sealed, TAG_BYTES longer."""
        return self._cipher.encrypt(_nonce(number, last), plain, self._bound)

    def open(self, number: int, sealed: bytes, *, last: bool = False) -> bytes | None:
        """Return what is in a sealed chunk; None: it is not this chunk of this file."""
        try:
            return self._cipher.decrypt(_nonce(number, last), sealed, self._bound)
        except InvalidTag:
            return None


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
