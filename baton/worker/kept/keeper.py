"""Keep a worker's model known after its last worker has left."""

import asyncio
from typing import NoReturn

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.internal.v1.cluster_pb2 import KeptModel, ModelCard
from baton.telemetry.logs import get_logger
from baton.worker.kept.pieces import compress_files
from baton.worker.wire.tokenizer_files import TokenizerFiles

MAX_CARDS = 8
"""Most cards of a kept model; the one that was registered first is dropped."""
_LONGEST_PAUSE_SECONDS = 60.0
_RETRY_SECONDS = 1.0

log = get_logger(__name__)


class ModelKeeper:
    """Writes a model's card and tokenizer to etcd, under a lease that all its workers renew.

    The worker that started last decides: if another tokenizer is kept, its record and pieces are
    replaced. Lives on the event loop.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        card: of this worker.
        files: of the card's tokenizer.
        keep_seconds: how long the model stays known.
    """

    def __init__(
        self, etcd: Etcd, cluster: str, card: ModelCard, files: TokenizerFiles, keep_seconds: int
    ) -> None:
        self._etcd = etcd
        self._card = card
        self._files = files
        self._keep_seconds = keep_seconds
        self._key = keys.kept(cluster) + card.name
        self._prefix = keys.tokenizer(cluster, card.tokenizer_digest, card.name)
        self._pieces: list[bytes] = []
        self.is_latest = True
        """Whether this worker replaces another tokenizer: only when it has just started."""

    async def run(self) -> None:
        """Write, then renew until cancelled; end at once if the tokenizer is too large."""
        try:
            self._pieces = await asyncio.to_thread(compress_files, self._files)
        except ValueError as error:
            log.warning("model.kept.refused", model=self._card.name, reason=str(error))
            return
        await self._renew_forever()

    async def refresh(self) -> bool:
        """Write what is missing and renew the lease; False: another worker wrote meanwhile.

        Raises:
            EtcdError: etcd is unavailable.
        """
        stored = await self._etcd.get(self._key)
        kept = self._decoded(stored)
        if kept is not None and kept.cards[0].tokenizer_digest != self._card.tokenizer_digest:
            if not self.is_latest:
                return True
            return await self._write(stored, kept.lease, [])
        if kept is None or await self._etcd.keep_alive(kept.lease) <= 0:
            return await self._write(stored, 0, [] if kept is None else list(kept.cards))
        if self._merged(list(kept.cards)) != list(kept.cards):
            record = KeptModel()
            record.CopyFrom(kept)
            del record.cards[:]
            record.cards.extend(self._merged(list(kept.cards)))
            value = keys.encode(record)
            if not await self._etcd.replace(self._key, stored or b"", value, kept.lease):
                return False
        await self._write_pieces(kept.lease)
        return True

    async def _renew_forever(self) -> NoReturn:
        is_away = False
        while True:
            pause = min(self._keep_seconds / 3, _LONGEST_PAUSE_SECONDS)
            try:
                if await self.refresh():
                    self.is_latest = False
                else:
                    pause = _RETRY_SECONDS
                is_away = False
            except EtcdError as error:
                if not is_away:
                    log.warning("model.kept.not_renewed", model=self._card.name, error=str(error))
                is_away, pause = True, _RETRY_SECONDS
            await asyncio.sleep(pause)

    async def _write(self, stored: bytes | None, replaced: int, cards: list[ModelCard]) -> bool:
        """Write the record under a new lease, then the pieces; end the `replaced` lease."""
        lease = await self._etcd.grant(self._keep_seconds)
        record = KeptModel(
            cards=self._merged(cards), lease=lease, tokenizer_pieces=len(self._pieces)
        )
        value = keys.encode(record)
        if stored is None:
            written = await self._etcd.create(self._key, value, lease)
        else:
            written = await self._etcd.replace(self._key, stored, value, lease)
        if not written:
            await self._etcd.revoke(lease)  # nothing is under it
            return False
        await self._write_pieces(lease)
        if replaced:
            await self._etcd.revoke(replaced)
        size = sum(map(len, self._pieces))
        log.info("model.kept.written", model=self._card.name, bytes=size)
        return True

    async def _write_pieces(self, lease: int) -> None:
        if await self._etcd.count(self._prefix) == len(self._pieces):
            return
        for number, piece in enumerate(self._pieces):
            await self._etcd.put(f"{self._prefix}{number}", piece, lease)

    def _merged(self, cards: list[ModelCard]) -> list[ModelCard]:
        """Return cards with this worker's, in place of an older one of its variant."""
        own = keys.model_variant(self._card)
        if any(card == self._card for card in cards):
            return cards
        others = [card for card in cards if keys.model_variant(card) != own]
        return [*others, self._card][-MAX_CARDS:]

    def _decoded(self, stored: bytes | None) -> KeptModel | None:
        if stored is None:
            return None
        try:
            kept = keys.decode(KeptModel, stored)
        except ValueError as error:
            log.warning("cluster.record.unreadable", etcd_key=self._key, error=str(error))
            return None
        return kept if kept.cards else None
