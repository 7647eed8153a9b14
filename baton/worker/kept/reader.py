"""Read the tokenizers of kept models."""

from collections.abc import Callable, Mapping

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.internal.v1.cluster_pb2 import KeptModel
from baton.telemetry.logs import get_logger
from baton.worker.kept.pieces import decompress_piece
from baton.worker.wire.tokenizer_files import TokenizerAssembly, TokenizerFiles

log = get_logger(__name__)


class KeptTokenizers:
    """Reads tokenizers from etcd, whose digests are verified.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        kept: returns the kept models.
    """

    def __init__(
        self, etcd: Etcd, cluster: str, kept: Callable[[], Mapping[str, KeptModel]]
    ) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._kept = kept

    async def read(self, digest: bytes, size: int) -> TokenizerFiles | None:
        """Return the files of a digest; None: no model has them now, or etcd is unavailable.

        Args:
            digest: of the files.
            size: total bytes of the files, from the card; no more are accepted.
        """
        for name, kept in list(self._kept().items()):
            if kept.cards[0].tokenizer_digest != digest:
                continue
            try:
                files = await self._read(name, kept, digest, size)
            except (EtcdError, ValueError) as error:
                log.warning("model.kept.not_read", model=name, error=str(error))
            else:
                if files is not None:
                    return files
        return None

    async def _read(
        self, name: str, kept: KeptModel, digest: bytes, size: int
    ) -> TokenizerFiles | None:
        prefix = keys.tokenizer(self._cluster, digest, name)
        assembly = TokenizerAssembly(size)
        for number in range(kept.tokenizer_pieces):
            value = await self._etcd.get(f"{prefix}{number}")
            if value is None:
                return None  # being written, or expired
            assembly.add(decompress_piece(value))
        return assembly.verified(digest)
