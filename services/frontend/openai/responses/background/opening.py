"""Composes what runs responses in the background."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from baton.conversations.background.store import BackgroundStore, EventSink
from baton.conversations.store import ConversationStore
from services.frontend.access.authenticator import Authenticator
from services.frontend.generation.inference import Inference
from services.frontend.openai.responses.background.execution import RunExecution
from services.frontend.openai.responses.background.following import EventFollower
from services.frontend.openai.responses.background.handlers import BackgroundResponses
from services.frontend.openai.responses.background.resumption import Resumption
from services.frontend.openai.responses.background.runs import BackgroundRuns
from services.frontend.openai.responses.compaction.compactor import Compactor
from services.frontend.openai.responses.input.prepare import ResponsePreparer


class Background(NamedTuple):
    """Responses in the background of a frontend."""

    runs: BackgroundRuns
    responses: BackgroundResponses


@asynccontextmanager
async def open_background(
    store: ConversationStore | None,
    inference: Inference,
    preparer: ResponsePreparer,
    compactor: Compactor | None,
    authenticator: Authenticator,
    frontend: str,
    keep_alive_seconds: float,
    outbox: EventSink,
) -> AsyncIterator[Background | None]:
    """Open them until the block ends; None if nothing is stored.

    Args:
        store: of responses.
        inference: runs them.
        preparer: reads their bodies.
        compactor: writes summaries after them; None: nothing is stored.
        authenticator: knows whose they are.
        frontend: the id of this frontend, the owner of what it runs.
        keep_alive_seconds: of streams.
        outbox: gets an event of each that ends.
    """
    if store is None or compactor is None:
        yield None
        return
    leases = BackgroundStore(store, frontend, outbox)
    resumption = Resumption(inference, leases, preparer, authenticator)
    execution = RunExecution(inference, leases, resumption, compactor)
    runs = BackgroundRuns(execution, leases, store.settings.max_background)
    follower = EventFollower(runs, leases, keep_alive_seconds)
    try:
        yield Background(runs, BackgroundResponses(runs, leases, follower))
    finally:
        await runs.close()
