"""The tenant's secret for KV keys, known from the first request on."""

from baton.cluster.etcd import Etcd, EtcdError
from baton.cluster.tenants import tenant_salt
from baton.errors import BatonError, Reason
from services.frontend.requests.validate import DEFAULT_TENANT


class CacheSalt:
    """Asks etcd once; etcd may go away afterwards."""

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._salt: bytes | None = None

    async def get(self) -> bytes:
        """The salt, 32 bytes.

        Raises:
            BatonError: UNAVAILABLE, it is not known yet and etcd is away.
        """
        if self._salt is None:
            try:
                self._salt = await tenant_salt(self._etcd, self._cluster, DEFAULT_TENANT)
            except (EtcdError, ValueError) as error:
                raise BatonError(
                    Reason.UNAVAILABLE, "the tenant's policy cannot be read now", retry_after=1.0
                ) from error
        return self._salt
