"""What a client keeps without reading it, reasoning and summaries: sealed for its tenant, and
opened again.

AES-256-GCM (NIST SP 800-38D). Each item has a key of its own, which HKDF (RFC 5869) derives of the
tenant's cache salt, a purpose and a random number, so that no number of items wears out a key. The
salt is a secret of the cluster's frontends, differs per cluster and tenant, and is deleted with the
tenant.
"""

import asyncio
import secrets
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from baton.cluster.tenants import Salts

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

INCLUDE = "reasoning.encrypted_content"
_FORMAT = b"\x01"
_KEY_BYTES, _RANDOM_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 32, 12, 16
_OVERHEAD = len(_FORMAT) + _RANDOM_BYTES + _NONCE_BYTES + _TAG_BYTES
REASONING, SUMMARY = b"baton reasoning", b"baton compaction"
"""Purposes: what is sealed for one of them cannot be opened for the other."""


class ItemSeal:
    """Seals and opens what items of one tenant keep from their client.

    Args:
        secret: of the cluster and the tenant.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def close(self, text: str, purpose: bytes = REASONING) -> str:
        """Return a text sealed for a purpose, in base64."""
        drawn = secrets.token_bytes(_RANDOM_BYTES + _NONCE_BYTES)
        cipher, nonce = self._cipher(drawn, purpose)
        sealed = cipher.encrypt(nonce, text.encode("utf-8", "replace"), _FORMAT)
        return urlsafe_b64encode(_FORMAT + drawn + sealed).decode()

    def open(self, sealed: str, purpose: bytes = REASONING) -> str | None:
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

    def _cipher(self, drawn: bytes, purpose: bytes) -> "tuple[AESGCM, bytes]":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        salt, nonce = drawn[:_RANDOM_BYTES], drawn[_RANDOM_BYTES:]
        key = HKDF(SHA256(), _KEY_BYTES, salt, purpose).derive(self._secret)
        return AESGCM(key), nonce


class ItemSeals:
    """The seals of tenants.

    Args:
        salts: secrets of tenants.
    """

    def __init__(self, salts: Salts) -> None:
        self._salts = salts

    async def needed(
        self, tenant: str, include: Sequence[str] | None, given: Any
    ) -> ItemSeal | None:
        """Return the seal of a request's tenant; None: it needs none.

        Args:
            tenant: the caller's.
            include: of the body.
            given: its items.

        Raises:
            BatonError: UNAVAILABLE: the tenant's secret is not known yet, and etcd is unavailable.
        """
        if INCLUDE not in (include or ()) and not any(map(_is_sealed, _items(given))):
            return None
        return await self.of(tenant)

    async def of(self, tenant: str) -> ItemSeal:
        """Return the seal of a tenant.

        Raises:
            BatonError: as of `needed`.
        """
        await asyncio.to_thread(_load)
        return ItemSeal(await self._salts.get(tenant))


def _load() -> None:
    """Import the library, which takes a tenth of a second once."""
    import cryptography.hazmat.primitives.ciphers.aead
    import cryptography.hazmat.primitives.kdf.hkdf  # noqa: F401


def _items(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list) else ()


def _is_sealed(item: Any) -> bool:
    return isinstance(item, dict) and item.get("encrypted_content") is not None
