"""Secrets of endpoints, and the signatures made with them: Standard Webhooks' `v1`."""

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

from baton.cluster.sealing import TenantSeal, load_cryptography
from baton.cluster.tenants import Salts
from baton.webhooks.records import SealedSecrets

_PURPOSE, _CALLBACKS = "baton webhook secrets", "baton webhook callbacks of project "
_PREFIX = "whsec_"
_BYTES = 32
_HINT_CHARACTERS = 4


def draw_secret() -> str:
    """Return a new secret, as receivers have it."""
    return _PREFIX + b64encode(secrets.token_bytes(_BYTES)).decode()


def hint_of(secret: str) -> str:
    """Return what tells one secret of an endpoint from another, and no more."""
    return f"{_PREFIX}...{secret.rstrip('=')[-_HINT_CHARACTERS:]}"


def signed_headers(used: Sequence[str], event: str, body: str, now: float) -> dict[str, str]:
    """Return the headers by which a receiver knows the sender.

    Args:
        used: secrets, each of which signs.
        event: its id.
        body: what is signed with it.
        now: seconds since the Unix epoch; receivers refuse what is older than five minutes.
    """
    moment = datetime.fromtimestamp(int(now), UTC)
    signatures = [Webhook(secret).sign(event, moment, body) for secret in used]
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": " ".join(signatures),
    }


class WebhookSecrets:
    """Seals and opens the secrets of endpoints.

    Args:
        salts: secrets of tenants.
    """

    def __init__(self, salts: Salts) -> None:
        self._salts = salts
        self._loaded = False

    async def seal(self, tenant: str, secret: str) -> str:
        """Return a secret as it is stored.

        Raises:
            BatonError: UNAVAILABLE: the tenant's secret is not known yet, and etcd is unavailable.
        """
        return (await self._seal_of(tenant)).close(secret, _PURPOSE)

    async def open(self, tenant: str, sealed: SealedSecrets) -> list[str]:
        """Return the secrets that sign; none if they cannot be opened: the tenant's secret was
        replaced since. Errors as of `seal`."""
        seal = await self._seal_of(tenant)
        opened = [seal.open(one, _PURPOSE) for one in sealed if one]
        return [one for one in opened if one is not None]

    async def of_project(self, tenant: str, project: str) -> str:
        """Return the secret that signs what goes to no endpoint. Errors as of `seal`."""
        derived = (await self._seal_of(tenant)).derive(_CALLBACKS + project)
        return _PREFIX + b64encode(derived).decode()

    async def _seal_of(self, tenant: str) -> TenantSeal:
        if not self._loaded:
            await asyncio.to_thread(load_cryptography)
            self._loaded = True
        return TenantSeal(await self._salts.get(tenant))
