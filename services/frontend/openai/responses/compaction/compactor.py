"""Writes summaries of stored conversations, after answers."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import msgspec

from baton.conversations.compactions.records import CompactedItems
from baton.conversations.ids import draw_block, milliseconds_of, nth, parse_item_id
from baton.conversations.records import StoredPath
from baton.conversations.store import ConversationStore
from baton.errors import BatonError
from baton.process.background import cancel_all, start_background
from baton.telemetry.logs import get_logger
from baton.tenancy.directory.principal import Principal
from baton.v1 import common_pb2
from services.frontend.generation.inference import Inference
from services.frontend.metrics import COMPACTIONS
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.compaction.management import threshold_of
from services.frontend.openai.responses.compaction.summary import (
    MOST_TOKENS,
    SummaryText,
    compaction_item,
    summary_request,
)
from services.frontend.openai.responses.encoder import ResponseEncoder
from services.frontend.openai.responses.input.prepare import PreparedResponse, ResponsePreparer
from services.frontend.openai.responses.storing import TurnContext, scope_of
from services.frontend.requests import record
from services.frontend.requests.request import (
    ChatPrompt,
    Fallback,
    GenerationRequest,
    ResolvedRequest,
)

LEASE_SECONDS = 120.0
"""Time to write a summary. One whose frontend died is written after it, behind a later answer."""
_MARGIN_SECONDS = 10.0
RETRY_SECONDS = 60.0
"""After a failure, until another one is tried."""
_WAIT_SECONDS, _POLL_SECONDS = 60.0, 0.5
_MOST = 32
"""Summaries at once at a frontend; more are left to later answers."""
_OUTPUT = 8
"""Part of the context that is kept for an output of any length, as for `truncation`."""
_EARLY = 16
"""Part of the remaining context by which the default threshold is below its end."""
_SUMMARY, _LEAST_SUMMARY = 16, 64
"""Part of the threshold that a summary may have, and tokens that it may have in any case."""

log = get_logger(__name__)


class CompactionPlan(NamedTuple):
    """A summary that is to be written."""

    covers: CompactedItems
    request: GenerationRequest


class Compactor:
    """Writes summaries in tasks of its own. One per frontend, on the event loop.

    Args:
        inference: generates them.
        store: of conversations.
        preparer: reads histories.
    """

    def __init__(
        self, inference: Inference, store: ConversationStore, preparer: ResponsePreparer
    ) -> None:
        self._inference = inference
        self._store = store
        self._preparer = preparer
        self._tasks: set[asyncio.Task[None]] = set()

    def after(self, prepared: PreparedResponse, encoder: ResponseEncoder, who: Principal) -> None:
        """Begin to write a summary after a stored answer, if its conversation is beyond the
        threshold of its request."""
        body, usage, resolved = prepared.body, encoder.usage, encoder.resolved
        threshold = threshold_of(body.context_management)
        if threshold is None or usage is None or not encoder.name.stored or resolved.body:
            return
        context = self._inference.request_tokens(resolved.model, resolved.context.adapter, who)
        space = context - (body.max_output_tokens or context // _OUTPUT)
        highest = space - space // _EARLY
        limit = min(threshold or highest, highest)
        tokens = usage.prompt_tokens + usage.output_tokens
        if limit <= 0 or (tokens <= limit and resolved.dropped is None):
            return
        if len(self._tasks) >= _MOST:
            COMPACTIONS.labels("OVERLOADED").inc()
            return
        work = self._write(prepared, encoder.name.id, resolved, who, limit, context)
        task = start_background(work, "a summary")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, prepared: PreparedResponse) -> bool:
        """Wait for a summary that is being written of what a request continues; return whether it
        is there: then the request may fit.

        Raises:
            BatonError: UNAVAILABLE.
        """
        context, body = prepared.context, prepared.body
        if context.path is None or threshold_of(body.context_management) is None:
            return False
        had, now = context.note.last_item, asyncio.get_running_loop().time
        end = now() + min(_WAIT_SECONDS, body.timeout_seconds or _WAIT_SECONDS)
        while True:
            await asyncio.sleep(_POLL_SECONDS)  # it may be about to begin
            found = await self._store.compactions.latest(context.scope, context.path)
            later = [one for one in found if had is None or one.last_item > had]
            if any(one.body is not None for one in later):
                return True
            if now() > end or not any(one.running for one in later):
                return False

    async def idle(self) -> None:
        """Return once none is being written."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all; other frontends may write them."""
        await cancel_all(self._tasks)

    async def _write(
        self,
        prepared: PreparedResponse,
        response: str,
        resolved: ResolvedRequest,
        who: Principal,
        limit: int,
        context: int,
    ) -> None:
        store, scope = self._store.compactions, scope_of(who)
        try:
            plan = await self._plan(prepared, response, resolved, who, limit, context)
            owner = secrets.token_hex(8)
            if plan is None or not await store.claim(scope, plan.covers, owner, LEASE_SECONDS):
                return
        except BatonError as error:  # the next answer tries again
            self._failed(error, response)
            return
        code, seconds = "", 0.0
        written = False
        try:
            summary = await self._generate(plan.request, who)
            seal = await self._preparer.seal(who)
            block = draw_block(milliseconds_of(plan.covers.last_item))
            item = compaction_item(summary, seal, nth(block, 1))
            text = msgspec.json.encode(item).decode()
            written = await store.write(scope, plan.covers, owner, text)
            COMPACTIONS.labels("ok" if written else "ABORTED").inc()
            log.info("frontend.summary.written", request_id=response, count=plan.covers.items)
        except BatonError as error:
            code, seconds = error.reason.openai_code or "server_error", RETRY_SECONDS
            self._failed(error, response)
        finally:
            if not written:
                try:
                    await store.release(scope, plan.covers, owner, code, seconds)
                except BatonError as error:  # the lease ends by itself
                    self._failed(error, response)

    async def _plan(
        self,
        prepared: PreparedResponse,
        response: str,
        resolved: ResolvedRequest,
        who: Principal,
        limit: int,
        context: int,
    ) -> CompactionPlan | None:
        """Return what to write; None: the turns that do not fit are summarized already, or a single
        turn is that long."""
        path = await self._store.path(scope_of(who), response)
        history = await self._preparer.history(path, who)
        body = msgspec.structs.replace(
            prepared.body, input=None, text=None, previous_response_id=response, conversation=None
        )
        asked = await self._preparer.request(body, RequestNames(response), who, history)
        prompt = asked.generation.prompt
        assert isinstance(prompt, ChatPrompt), "responses are conversations"
        longest = min(MOST_TOKENS, max(_LEAST_SUMMARY, limit // _SUMMARY))
        start, tokens = await self._inference.truncation.first_turns(
            resolved.model,
            prompt,
            limit,
            context - context // _OUTPUT,
            0 if prompt.summaries else longest,
        )
        covers = _covered(path, history, sum(asked.items[:start]), tokens)
        if covers is None:
            return None
        request = replace(
            summary_request(asked.generation, prompt.messages[:start], longest),
            model=resolved.named,
            fallback=Fallback.NEVER,
            priority=common_pb2.PRIORITY_CLASS_BATCH,
            timeout_seconds=LEASE_SECONDS - _MARGIN_SECONDS,
            ttft_target_seconds=0.0,
        )
        return CompactionPlan(covers, request)

    async def _generate(self, request: GenerationRequest, who: Principal) -> str:
        """Return a summary, for which its tenant pays as for any request.

        Raises:
            BatonError: it is rejected or failed, or is empty.
        """
        own = record.begin("background")
        own.operation, own.route, own.principal = "compaction", "/v1/responses", who
        text = SummaryText()
        status = "200"
        try:
            generation = await self._inference.start(request, own)
            try:
                while not generation.finished:
                    await generation.follow(text.take)
            finally:
                generation.close()
            return text.text()
        except BatonError as error:
            own.error, status = error, str(error.http_status)
            raise
        finally:
            record.finish(own, status)

    def _failed(self, error: BatonError, response: str) -> None:
        COMPACTIONS.labels(error.reason.name).inc()
        log.warning("frontend.summary.failed", request_id=response, error=error.message)


def _covered(
    path: StoredPath, history: TurnContext, count: int, tokens: int
) -> CompactedItems | None:
    """Return what a summary of the first items of a history stands for.

    Args:
        path: of the history.
        history: its items.
        count: how many of these, of which one may be a summary.
        tokens: of turns among them.
    """
    if not count:
        return None
    note = history.note
    last = parse_item_id(history.items[count - 1]["id"])
    assert last is not None, "stored items have ids"
    if note.last_item is not None and last <= note.last_item:
        return None
    conversations = [part.conversation for part in path.parts]
    at = _part_of(path, last)
    covered = [ident for ident in history.ids if ident <= last]
    return CompactedItems(
        conversations[at],
        last,
        note.first_item or covered[0],
        conversations[: at + 1],
        len(covered),
        note.tokens + tokens,
    )


def _part_of(path: StoredPath, item: UUID) -> int:
    """Return the number of the conversation of a path that has an item."""
    ends: Sequence[UUID] = [part.last_item for part in path.parts]
    return next(at for at, end in enumerate(ends) if item <= end)


@asynccontextmanager
async def open_compactor(
    store: ConversationStore | None, inference: Inference, preparer: ResponsePreparer
) -> AsyncIterator[Compactor | None]:
    """Write summaries until the block ends; None if nothing is stored."""
    if store is None:
        yield None
        return
    compactor = Compactor(inference, store, preparer)
    try:
        yield compactor
    finally:
        await compactor.close()
