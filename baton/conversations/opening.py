"""A process's store, and the upkeep of its months."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from baton.cluster.forgotten import ForgottenTenants
from baton.conversations.by_month import KEEP_PLANS
from baton.conversations.pending.metrics import SPOOL
from baton.conversations.pending.notices import PendingNotices
from baton.conversations.pending.pending import PendingWrites
from baton.conversations.pending.sink import ConversationSink
from baton.conversations.store import ConversationStore
from baton.postgres.connecting import StateError
from baton.postgres.database import Database
from baton.postgres.revisions import CONVERSATIONS
from baton.process.background import start_background
from baton.settings import ConversationSettings, StartupError, StateSettings
from baton.spool.delivery import Delivery
from baton.spool.spool import Spool
from baton.telemetry.logs import get_logger

UPKEEP_SECONDS = 24 * 3600.0
RETRY_SECONDS = 60.0
_WAIT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _SpoolLimits:
    spool_bytes: int
    fsync_seconds: float = 1.0
    stall_seconds: float = 0.5


log = get_logger(__name__)


@asynccontextmanager
async def open_conversations(
    state: StateSettings,
    settings: ConversationSettings,
    notices: PendingNotices | None = None,
    forgotten: ForgottenTenants | None = None,
) -> AsyncIterator[ConversationStore | None]:
    """Open a process's store until the block ends; None if none is enabled.

    Args:
        state: the database.
        settings: of the store.
        notices: tell other processes what waits here; not entered yet.
        forgotten: tenants of which nothing that waits is stored; None: none.

    Raises:
        StartupError: asyncpg is not installed, or there is no database.
    """
    if not settings.enabled:
        yield None
        return
    if not state.url.get_secret_value():
        raise StartupError(
            "conversations.enabled needs a database: set state.url (BATON_STATE_URL), and create "
            "its schema with `baton db upgrade`."
        )
    own = state.model_copy(
        update={
            "connections": settings.connections,
            "statement_seconds": settings.statement_seconds,
        }
    )
    session = KEEP_PLANS if own.prepared_statements else ""
    async with (
        Database(own, "conversations", CONVERSATIONS, session) as database,
        AsyncExitStack() as stack,
    ):
        store = ConversationStore(database, settings)
        await database.wait_tried()
        if settings.spool_path is not None:
            gone = ForgottenTenants() if forgotten is None else forgotten
            await _open_spool(settings, settings.spool_path, store, notices, gone, stack)
        task = start_background(_keep_months(store, database), "conversations' months")
        try:
            yield store
        finally:
            task.cancel()
            await asyncio.wait([task])


async def _open_spool(
    settings: ConversationSettings,
    path: Path,
    store: ConversationStore,
    notices: PendingNotices | None,
    forgotten: ForgottenTenants,
    stack: AsyncExitStack,
) -> None:
    """Let what ends while the database is away wait on disk."""
    database = store.database
    limits = _SpoolLimits(settings.spool_bytes)
    if notices is not None:
        await stack.enter_async_context(notices)
    spool = await stack.enter_async_context(Spool(path, limits, [ConversationSink.name], SPOOL))
    pending = PendingWrites(spool, lambda: database.available, notices)
    store.pending = store.completions.pending = store.managed.pending = pending
    sink = ConversationSink(store, database, pending, forgotten)
    forgotten.on_change.append(lambda _: spool.rotate())
    await stack.enter_async_context(Delivery(spool, sink, 0.0))


async def _keep_months(store: ConversationStore, database: Database) -> None:
    """Make and drop months at start, and daily."""
    while True:
        seconds = UPKEEP_SECONDS
        try:
            await database.wait_available(_WAIT_SECONDS)
            made, dropped = await store.maintain()
            if made:
                log.info("state.partitions.created", count=made)
            if dropped:
                log.info("state.partitions.dropped", count=dropped)
        except StateError as error:
            log.warning("state.partitions.failed", error=str(error))
            seconds = RETRY_SECONDS
        await asyncio.sleep(seconds)
