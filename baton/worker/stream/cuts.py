"""A stream's cuts, where KV has groups: which one it continues from, and which it publishes."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady
from baton.errors import BatonError
from baton.internal.v1 import worker_pb2
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.kv.cuts import cut_rules
from baton.kv.keys import prompt_keys
from baton.kv.layout import Layout
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.engine_loop import EngineLoop
from baton.worker.kv.cut_choice import CutChoice, choose_cut
from baton.worker.kv.cut_fetch import CutFetch
from baton.worker.kv.fetch import FetchResult
from baton.worker.kv.publish import KvPublisher, SequencePublish

ATTEMPTS = 3
"""Cuts that a stream tries to fetch; then it continues from what its engine has."""

log = get_logger(__name__)


class StreamCuts:
    """The cuts of one stream. Owned by it, on the asyncio loop.

    Published are all blocks of full attention, and of the other groups what is needed at the end of
    the prompt, where its beginning is shared with others, at the end of the output and where the
    stream is handed over.

    Args:
        start: the stream's own.
        request: its sequence.
        layout: of the engine, with groups.
        engine_loop: of the engine.
        store: asked what it holds before pages are taken.
        fetch: fetches what is missing.
        publisher: of the worker.
        publishing: of the stream.
        wait_seconds: to wait for KV that is on its way.
    """

    def __init__(
        self,
        start: worker_pb2.Start,
        request: SequenceRequest,
        layout: Layout,
        engine_loop: EngineLoop,
        store: KvStoreClient,
        fetch: CutFetch,
        publisher: KvPublisher,
        publishing: SequencePublish,
        wait_seconds: float,
    ) -> None:
        self._start = start
        self._request = request
        self._layout_id = layout.layout_id
        self._rules = cut_rules(layout)
        self._engine = engine_loop
        self._store = store
        self._fetch = fetch
        self._publisher = publisher
        self._publishing = publishing
        self._wait_seconds = wait_seconds
        self._full = [g for g in range(len(layout.groups)) if self._rules.is_full(g)]
        self._bounded = [g for g in range(len(layout.groups)) if not self._rules.is_full(g)]
        self._keys: list[bytes] = []
        """Keys of the blocks that were reported ready."""
        publishing.chain_keys = self._keys
        self._first_unpublished = 0
        self._published = [0] * len(layout.groups)
        """Per group, the block behind the last one that is published."""
        self._pending = self._prompt_cuts()
        """Cuts to publish as the sequence passes them, in ascending order."""
        self._keeping = False
        self.first_held = [0] * len(layout.groups)
        """Per group, the first block that the cut needed from which the sequence continues."""

    async def admit(
        self, add: Callable[[int], Awaitable[Admitted]]
    ) -> tuple[Admitted, FetchResult]:
        """Add the sequence with the longest cut that it can get, with its KV in place.

        What falls short of a cut costs another attempt with a smaller one.

        Args:
            add: adds the sequence with a cut, or adds it again; returns its admission.
        """
        request, rules = self._request, self._rules
        context = [*request.prompt, *request.output]
        keys = prompt_keys(request.root, context, rules.block_tokens, request.runs)
        limit = 0 if request.prompt_logprobs is not None else len(context) - 1
        total = FetchResult()
        for attempt in range(ATTEMPTS + 1):
            coming = self._coming(limit)
            choice = CutChoice(coming)
            if not coming and limit and attempt < ATTEMPTS:
                choice = await self._choose(keys.full, limit)
            admitted = await add(choice.cut_tokens)
            if choice.branch_tokens > admitted.ready_tokens:
                self._pending = sorted({*self._pending, choice.branch_tokens})
            wait = self._wait_seconds if coming else 0.0
            fetched, complete = await self._fetch.run(admitted, keys.all, wait)
            total.bytes += fetched.bytes
            total.blocks += fetched.blocks
            total.seconds += fetched.seconds
            total.wait_seconds += fetched.wait_seconds
            total.copy_cpu_seconds += fetched.copy_cpu_seconds
            total.transport = fetched.transport or total.transport
            if complete:
                break
            metrics.CUTS_SHORT.inc()
            blocks = rules.blocks(admitted.ready_tokens)
            log.info("kv.cut.short", sequence=request.id, blocks=blocks)
            limit = admitted.ready_tokens - 1
        self.first_held = [blocks.start for blocks in rules.needed(admitted.ready_tokens)]
        if not request.prefill_only:
            # What was fetched is in the store already, and so is what others computed.
            self._first_unpublished = admitted.ready_tokens // rules.block_tokens
            if fetched.blocks:
                self._published = [self._first_unpublished] * len(self._published)
        return admitted, total

    def keep(self, engine: Engine) -> None:
        """Keep the cuts that are going to be published, on the engine's thread."""
        if self._pending:
            self._keeping = True
            self._publishing.on_done = self._release_kept
            engine.keep_cuts(self._request.id, self._pending)

    def ready(self, event: BlocksReady, *, partial: bool) -> None:
        """Publish of the blocks that became ready what others may want.

        Args:
            event: blocks in order, each once.
            partial: whether the last one is not full.
        """
        self._keys.extend(event.keys)
        skip = max(0, self._first_unpublished - event.first_index)
        if skip < len(event.keys):
            for group in self._full:
                first = event.first_index + skip
                self._publisher.add(
                    self._publishing, first, event.keys[skip:], partial=partial, group=group
                )
        while self._pending and self._rules.blocks(self._pending[0]) <= len(self._keys):
            self._publish(self._pending.pop(0), partial=partial)

    def ended(self) -> None:
        """Publish the cut at the last full block of a sequence that ended."""
        if not self._request.prefill_only:
            self._publish(len(self._keys) * self._rules.block_tokens)

    async def hand_over(self) -> None:
        """Publish the cut at the last full block of a sequence that runs; return when it is."""
        cut = len(self._keys) * self._rules.block_tokens
        await self._engine.call(
            lambda engine: engine.keep_cuts(self._request.id, [*self._pending, cut])
        )
        self._publish(cut)
        await self._publishing.wait_done()

    def _prompt_cuts(self) -> list[int]:
        """Return the cuts before the prompt's last token and at its last full block."""
        prompt, size = len(self._request.prompt), self._rules.block_tokens
        cuts = {prompt - prompt % size}
        if self._request.prefill_only or prompt % size == 0:
            cuts.add(self._rules.floor(prompt - 1))
        return sorted(cuts - {0})

    def _coming(self, limit: int) -> int:
        """Return the cut that another worker is about to publish; 0: none."""
        request, size = self._request, self._rules.block_tokens
        prompt = len(request.prompt)
        if self._fetch.waiting_ended or limit < len(request.prompt) + len(request.output) - 1:
            return 0
        match self._start.WhichOneof("work"):
            case "prepare" if not request.output:
                return self._rules.floor(prompt - 1)
            case "generate" if self._start.generate.wait_for_kv:
                return self._rules.floor(min(limit, prompt - prompt % size))
            case _:
                return 0

    async def _choose(self, keys: tuple[bytes, ...], limit: int) -> CutChoice:
        try:
            return await choose_cut(
                self._store, self._layout_id, self._rules, keys, limit, self._fetch.sources
            )
        except (StoreUnavailableError, BatonError) as error:
            log.info("kv.lookup.skipped", blocks=len(keys), error=str(error))
            return CutChoice(0)

    def _publish(self, cut: int, *, partial: bool = False) -> None:
        """Publish of the groups that are not full what a cut needs and is not published."""
        needed = self._rules.needed(cut)
        for group in self._bounded:
            first, end = max(needed[group].start, self._published[group]), needed[group].stop
            if first < end:
                last_is_partial = partial and end == len(self._keys)
                self._publisher.add(
                    self._publishing,
                    first,
                    self._keys[first:end],
                    partial=last_is_partial,
                    group=group,
                )
                self._published[group] = end

    def _release_kept(self) -> None:
        """Let the engine reuse kept pages once all of them are copied."""
        if self._keeping and not self._pending:
            self._keeping = False
            self._engine.post(self._keep_none)

    def _keep_none(self, engine: Engine) -> None:
        with suppress(KeyError):  # it is closed
            engine.keep_cuts(self._request.id, ())
