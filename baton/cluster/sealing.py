"""Texts that are kept outside the cluster's memory: sealed for a tenant, and opened again.

AES-256-GCM (NIST SP 800-38D). Each text has a key of its own, which HKDF (RFC 5869) derives of the
tenant's cache salt, a purpose and a random number, so that no number of texts wears out a key. The
salt is a secret of the cluster's frontends, differs per cluster and tenant, and is deleted with the
tenant.
"""

import secrets
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT = b"\x01"
_KEY_BYTES, _RANDOM_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 32, 12, 16
_OVERHEAD = len(_FORMAT) + _RANDOM_BYTES + _NONCE_BYTES + _TAG_BYTES


class TenantSeal:
    """Seals and opens the texts of one tenant.

    Args:
        secret: of the cluster and the tenant.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def close(self, text: str, purpose: str) -> str:
        """Return a text sealed for a purpose, in base64."""
        drawn = secrets.token_bytes(_RANDOM_BYTES + _NONCE_BYTES)
        cipher, nonce = self._cipher(drawn, purpose)
        sealed = cipher.encrypt(nonce, text.encode("utf-8", "replace"), _FORMAT)
        return urlsafe_b64encode(_FORMAT + drawn + sealed).decode()

    def open(self, sealed: str, purpose: str) -> str | None:
        """Return the text; None: it was not sealed for this tenant and purpose, or is changed or
        cut off.

        Takes as long in each of these cases: what is no seal at all is opened as well.
        """
        try:
            data = b64decode(sealed.encode("ascii"), b"-_", validate=True)
        except (Base64Error, UnicodeEncodeError):
            data = b""
        from cryptography.exceptions import InvalidTag

        genuine = data[:1] == _FORMAT and len(data) >= _OVERHEAD
        if not genuine:
            data = _FORMAT + bytes(max(len(sealed) * 3 // 4, _OVERHEAD))
        head = len(_FORMAT) + _RANDOM_BYTES + _NONCE_BYTES
        cipher, nonce = self._cipher(data[len(_FORMAT) : head], purpose)
        try:
            return cipher.decrypt(nonce, data[head:], _FORMAT).decode()
        except InvalidTag:
            return None

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes that are the same each time for a purpose, and tell nothing of others."""
        return self._derive(b"", purpose)

    def _cipher(self, drawn: bytes, purpose: str) -> "tuple[AESGCM, bytes]":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        salt, nonce = drawn[:_RANDOM_BYTES], drawn[_RANDOM_BYTES:]
        return AESGCM(self._derive(salt, purpose)), nonce

    def _derive(self, salt: bytes, purpose: str) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), _KEY_BYTES, salt, purpose.encode()).derive(self._secret)


def load_cryptography() -> None:
    """Import the library, which takes a tenth of a second once. Not on the event loop."""
    import cryptography.hazmat.primitives.ciphers.aead
    import cryptography.hazmat.primitives.kdf.hkdf  # noqa: F401
