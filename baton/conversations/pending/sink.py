"""Stores what waited, in the order in which it ended."""

from collections.abc import Sequence

from baton.cluster.forgotten import ForgottenTenants
from baton.conversations.pending.metrics import DROPPED
from baton.conversations.pending.pending import PendingWrites
from baton.conversations.pending.record import PendingRecord, decode
from baton.conversations.store import ConversationStore
from baton.errors import BatonError, Reason
from baton.postgres.connecting import RefusedError, StateError
from baton.postgres.database import Database
from baton.spool.sink import SinkError
from baton.telemetry.logs import get_logger

_WAIT_SECONDS = 3600.0

log = get_logger(__name__)


class ConversationSink:
    """Writes turns and completions; one that is there already is left as it is.

    Those of tenants that were deleted since are dropped.
    """

    name = "postgres"
    local = False

    def __init__(
        self,
        store: ConversationStore,
        database: Database,
        pending: PendingWrites,
        forgotten: ForgottenTenants,
    ) -> None:
        self._store = store
        self._database = database
        self._pending = pending
        self._forgotten = forgotten

    async def write(self, records: Sequence[bytes]) -> None:
        """Store records.

        Raises:
            SinkError: the database is away.
        """
        try:
            await self._database.wait_available(_WAIT_SECONDS)
            for each in records:
                record = decode(each)
                if not self._forgotten.has(record.tenant, record.began_ms):
                    await self._store_one(record)
                self._pending.done(record)
        except StateError as error:
            raise SinkError(str(error)) from error
        except BatonError as error:
            raise SinkError(error.message) from error

    async def close(self) -> None:
        """Do nothing: the connections belong to the database."""

    async def _store_one(self, record: PendingRecord) -> None:
        try:
            if record.turn is not None:
                await self._store.write_late(record.scope, record.turn)
            if record.completion is not None:
                await self._store.completions.write(record.scope, record.completion)
        except RefusedError as error:
            self._dropped(record, str(error))
        except BatonError as error:
            if error.reason is Reason.UNAVAILABLE:
                raise
            self._dropped(record, error.message)  # what it continues was deleted meanwhile

    def _dropped(self, record: PendingRecord, error: str) -> None:
        DROPPED.inc()
        log.error("state.turn.dropped", record=record.id, tenant=record.tenant, error=error)
