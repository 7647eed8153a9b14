"""Secrets of API keys: how they are drawn, what is kept of them, and how they are recognized."""

import secrets
from hashlib import sha256

from baton.host.redaction import KEY_PREFIX

SECRET_BYTES = 32
DIGEST_BYTES = 32
MAX_SECRET_CHARACTERS = 256
"""A longer text is no secret, and is not hashed."""


def new_secret() -> str:
    """Return a new secret: `sk-baton-` and 32 random bytes in base64url, 52 characters."""
    return KEY_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: bytes) -> bytes:
    """Return what is kept of a secret, and looked up: its sha256.

    A secret has 256 random bits, so that a fast hash is safe; and a look-up by digest takes as long
    whether the digest is unknown or differs from a known one in its last bit.
    """
    return sha256(secret).digest()
