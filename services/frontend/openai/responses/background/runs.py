"""The responses that run in the background at a frontend: a bounded number, with one lease each."""

import asyncio
from collections.abc import Awaitable, Callable
from time import time
from uuid import UUID

from baton.conversations.background.records import ClaimedRun, RunLease
from baton.conversations.background.store import BackgroundStore
from baton.errors import BatonError, Reason
from baton.process.background import cancel_all, start_background
from baton.telemetry.logs import get_logger
from services.frontend.metrics import BACKGROUND
from services.frontend.openai.responses.background.execution import RunExecution
from services.frontend.openai.responses.background.run import BackgroundRun
from services.frontend.openai.responses.input.prepare import PreparedResponse
from services.frontend.openai.responses.storing import name_response

TICK_SECONDS = 1.0
"""Between two writes of what was generated; cancelling takes as long."""
_RETRY_SECONDS = 1.0

log = get_logger(__name__)


class BackgroundRuns:
    """Starts, continues and ends responses in the background. One per frontend, on the event loop.

    Args:
        execution: runs them.
        store: of leases and events.
        most: the most that run here.
    """

    def __init__(self, execution: RunExecution, store: BackgroundStore, most: int) -> None:
        self._execution = execution
        self._store = store
        self._most = most
        self._runs: dict[UUID, BackgroundRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    def get(self, response: UUID) -> BackgroundRun | None:
        """Return a response that runs here."""
        return self._runs.get(response)

    async def start(self, prepared: PreparedResponse) -> BackgroundRun:
        """Begin a response; return once it is admitted and stored.

        Raises:
            BatonError: it is rejected, or too many run here; UNAVAILABLE: the database is away.
        """
        if self._draining or len(self._runs) >= self._most:
            raise BatonError(
                Reason.OVERLOADED,
                f"{self._most} responses are already running in the background at this frontend "
                "(conversations.max_background); retry later",
                retry_after=_RETRY_SECONDS,
            )
        name = name_response(prepared.context, prepared.body)
        run = BackgroundRun(RunLease(prepared.context.scope, name.block, 1))
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = self._spawn(run, lambda: self._execution.begin(run, prepared, name, admitted))
        try:
            await asyncio.wait((task, admitted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not admitted.done():
            raise BatonError(Reason.INTERNAL, "internal error")
        admitted.result()
        return run

    async def run(self) -> None:
        """Renew leases, write what was generated, and claim what no frontend runs, until
        cancelled."""
        while True:
            began = time()
            if self._store.available:
                try:
                    await self._tick()
                except BatonError as error:
                    log.warning("frontend.background.failed", error=error.message)
            await asyncio.sleep(max(0.1, TICK_SECONDS - (time() - began)))

    async def hand_over(self) -> None:
        """Stop all that other frontends can continue: they do so at once."""
        self._draining = True
        runs = [run for run in self._runs.values() if run.exact]
        try:
            await self._renew()
        except BatonError as error:  # what is not stored is generated again
            log.warning("frontend.background.failed", error=error.message)
        for run in runs:
            run.handing_over = True
            run.move()

    async def idle(self) -> None:
        """Return once none runs."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all; their leases end by themselves."""
        await cancel_all(self._tasks)

    async def _tick(self) -> None:
        if self._runs:
            await self._renew()
        space = self._most - len(self._runs)
        if space > 0 and not self._draining:
            for claimed in await self._store.claim(space):
                self._continue(claimed)

    async def _renew(self) -> None:
        runs = [run for run in self._runs.values() if run.kept]
        async with self._execution.writing:
            pieces = [(run, run.piece()) for run in runs]
            written = [(run, piece) for run, piece in pieces if piece is not None]
            valid = await self._store.renew(
                [run.lease for run in runs], [(run.lease, piece) for run, piece in written]
            )
            for run, piece in written:
                if run.lease.id in valid:
                    run.stored(piece)
        for run in runs:
            if run.ended:
                continue
            if run.lease.id not in valid:
                run.move()
            elif valid[run.lease.id] and not run.cancelling:
                run.cancel()

    def _continue(self, claimed: ClaimedRun) -> None:
        known = self._runs.get(claimed.lease.id)
        if known is not None:  # its own, which it could not renew in time
            known.lease = claimed.lease
            return
        log.info("frontend.background.continued", attempt=claimed.lease.attempt)
        run = BackgroundRun(claimed.lease)
        run.kept, run.cancelling = True, claimed.cancelled
        self._spawn(run, lambda: self._execution.resume(run, claimed))

    def _spawn(
        self, run: BackgroundRun, work: Callable[[], Awaitable[None]]
    ) -> "asyncio.Task[None]":
        self._runs[run.lease.id] = run
        BACKGROUND.set(len(self._runs))
        task = start_background(self._serve(run, work), "response in the background")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, run: BackgroundRun, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            run.finish()
            if self._runs.get(run.lease.id) is run:
                del self._runs[run.lease.id]
            BACKGROUND.set(len(self._runs))
