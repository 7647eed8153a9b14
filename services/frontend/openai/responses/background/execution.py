"""Runs one response in the background, from its admission to its end."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from time import time

import msgspec

from baton.conversations.background.records import ClaimedRun
from baton.conversations.background.store import BackgroundStore
from baton.conversations.records import Turn
from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from services.frontend.generation.generation import Generation
from services.frontend.generation.inference import Inference
from services.frontend.openai.responses.background.kept import kept_request, read_kept
from services.frontend.openai.responses.background.resumption import Resumption
from services.frontend.openai.responses.background.run import BackgroundRun
from services.frontend.openai.responses.compaction.compactor import Compactor
from services.frontend.openai.responses.encoder import ResponseEncoder, ResponseName
from services.frontend.openai.responses.input.prepare import PreparedResponse, one_turn
from services.frontend.openai.responses.storing import turn_of
from services.frontend.requests import record
from services.frontend.requests.record import RequestRecord

_RETRY_SECONDS = 1.0
_LATER = frozenset(
    {
        *(Reason.UNAVAILABLE, Reason.NO_WORKER, Reason.MODEL_LOADING),
        *(Reason.OVERLOADED, Reason.DRAINING),
    }
)
"""Why a response could not be continued yet."""

log = get_logger(__name__)


class RunExecution:
    """Admits, generates and ends responses in the background.

    Args:
        inference: runs them.
        store: of leases and events.
        resumption: continues what other frontends began.
        compactor: writes summaries after them.
    """

    def __init__(
        self,
        inference: Inference,
        store: BackgroundStore,
        resumption: Resumption,
        compactor: Compactor,
    ) -> None:
        self._inference = inference
        self._store = store
        self._resumption = resumption
        self._compactor = compactor
        self.writing = asyncio.Lock()
        """Held while events are written: a response's end waits for events before it."""

    async def begin(
        self,
        run: BackgroundRun,
        prepared: PreparedResponse,
        name: ResponseName,
        admitted: "asyncio.Future[None]",
    ) -> None:
        """Run a new response.

        Args:
            run: its events.
            prepared: what to run.
            name: what it is called.
            admitted: set once it is admitted and stored, or has failed before.
        """
        caller, asked = record.current(), prepared.asked.generation
        own = _record(run, caller.operation, caller.route)
        own.principal = caller.principal
        limits = self._inference.limits
        if window := prepared.asked.body.window_seconds:
            seconds = asked.timeout_seconds or min(window, limits.max_deadline_seconds)
            asked = replace(asked, timeout_seconds=seconds)
        seconds = min(
            asked.timeout_seconds or limits.default_deadline_seconds, limits.max_deadline_seconds
        )
        deadline = time() + seconds
        try:
            generation = await self._inference.start(asked, own)
        except BatonError as error:
            admitted.set_exception(error)
            return
        try:
            request = generation.request
            run.attach(generation, ResponseEncoder(name, prepared.asked, request), prepared.context)
            kept = kept_request(prepared.data, own.principal.key.id, name, deadline, request)
            body = run.encoder.body()
            del body["output"]
            try:
                await self._store.begin(run.lease, kept, msgspec.json.encode(body).decode())
            except BatonError as error:
                admitted.set_exception(error)
                return
            run.kept = True
            caller.served_model, caller.adapter = own.served_model, own.adapter
            caller.limits = own.limits
            admitted.set_result(None)
            await self._run(run, own, generation, partial(one_turn, prepared))
            if not run.moved:
                self._compactor.after(prepared, run.encoder, own.principal)
        finally:
            _leave(run, generation)

    async def resume(self, run: BackgroundRun, claimed: ClaimedRun) -> None:
        """Continue a response from where another frontend stored it, or end it as failed if it
        would not continue with the same tokens."""
        own = _record(run, "responses", "/v1/responses")
        kept = read_kept(claimed.request)
        try:
            generation = await self._resumption.start(run, own, kept)
        except BatonError as error:
            if not run.cancelling and error.reason in _LATER and time() < kept.deadline:
                await self._release(run, _RETRY_SECONDS)
                return
            own.error = error
            last, turn = await self._resumption.failed(run, claimed, kept, error)
            run.add(last)
            await self._store_end(run, turn)
            record.finish(own, str(error.http_status))
            return
        try:
            await self._run(run, own, generation)
        finally:
            _leave(run, generation)

    async def _run(
        self,
        run: BackgroundRun,
        own: RequestRecord,
        generation: Generation,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Take all events, and store the end; `turn` says what an error means to a conversation."""
        encoder = run.encoder
        try:
            with turn():
                await run.follow()
                last = encoder.end()
        except BatonError as error:
            if error.reason is Reason.DRAINING and run.exact and not run.moved:
                run.moved = run.handing_over = True
            if run.moved:
                if run.handing_over:
                    await self._release(run)
                return
            own.error = error
            last = encoder.cancelled() if run.cancelling else encoder.failed(error)
        generation.close()
        number, context = run.next, run.context
        run.add(last)
        if context.moves_on and encoder.has_failed:
            context = replace(context, path=None)  # it would be part of the next attempt
        try:
            await self._store_end(run, turn_of(context, encoder))
        except BatonError as error:  # what it continues was deleted
            own.error = error
            run.retract(number)
            run.add(encoder.failed(error, number))
            await self._store_end(run, turn_of(replace(run.context, path=None), encoder))
        record.finish(own, "200" if own.error is None else str(own.error.http_status))

    async def _store_end(self, run: BackgroundRun, turn: Turn) -> None:
        """Store a response that ended, as soon as the database allows.

        Raises:
            BatonError: it cannot be stored there.
        """
        while not run.moved:
            try:
                async with self.writing:
                    if not await self._store.end(run.lease, run.piece(whole=True), turn):
                        run.moved = True
                return
            except BatonError as error:
                if error.reason is not Reason.UNAVAILABLE:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _release(self, run: BackgroundRun, seconds: float = 0.0) -> None:
        try:
            await self._store.release(run.lease, seconds)
        except BatonError as error:  # the lease ends by itself
            log.warning("frontend.background.failed", error=error.message)


def _record(run: BackgroundRun, operation: str, route: str) -> RequestRecord:
    """Begin the record of a run: that of the HTTP request ends earlier."""
    own = record.begin("background")
    own.operation, own.route, own.usage_id = operation, route, str(run.lease.id)
    return own


def _leave(run: BackgroundRun, generation: Generation) -> None:
    if run.moved:
        generation.abandon()
    generation.close()
