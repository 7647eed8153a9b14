"""What a client keeps without reading it, reasoning and summaries: sealed for its tenant, and
opened again."""

import asyncio
from collections.abc import Sequence
from typing import Any

from baton.cluster.sealing import TenantSeal, load_cryptography
from baton.cluster.tenants import Salts

INCLUDE = "reasoning.encrypted_content"
REASONING, SUMMARY = "baton reasoning", "baton compaction"
"""Purposes: what is sealed for one of them cannot be opened for the other."""


class ItemSeal(TenantSeal):
    """Seals and opens what items of one tenant keep from their client."""

    def close(self, text: str, purpose: str = REASONING) -> str:
        """Return a text sealed for a purpose, in base64."""
        return super().close(text, purpose)

    def open(self, sealed: str, purpose: str = REASONING) -> str | None:
        """Return the text; None: as of `TenantSeal`."""
        return super().open(sealed, purpose)


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
        await asyncio.to_thread(load_cryptography)
        return ItemSeal(await self._salts.get(tenant))


def _items(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else ()


def _is_sealed(item: Any) -> bool:
    return isinstance(item, dict) and item.get("encrypted_content") is not None
