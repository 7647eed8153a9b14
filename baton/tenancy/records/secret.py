"""Secrets of API keys: how they are generated, stored and recognized."""

import secrets
from hashlib import sha256

from baton.host.redaction import KEY_PREFIX

SECRET_BYTES = 32
DIGEST_BYTES = 32
MAX_SECRET_CHARACTERS = 256
"""A longer text is not a secret, and is not hashed."""


def new_secret() -> str:
    """Return a new secret: `sk-baton-` and 32 random bytes in base64url, 52 characters."""
    return KEY_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: bytes) -> bytes:
    """Return the stored digest of a secret, by which it is looked up: its SHA-256.

    A secret has 256 random bits, so that a fast hash is safe; and a lookup by digest takes the same
    time whether the digest is unknown or differs from a known one in its last bit.
    """
    return sha256(secret).digest()
