"""The interface of every API to the frontend: running a request."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from opentelemetry import trace

from baton.cluster.tenants import Salts
from baton.request.prices import PriceTable
from baton.settings import FrontendSettings
from baton.telemetry.tracing import tracer
from baton.tenancy.limits.limit_set import LimitReservation
from baton.tenancy.records.tenants import Scope
from services.frontend.access.key_limits import KeyLimits
from services.frontend.access.request_limits import RequestLimits
from services.frontend.generation.accounting.costs import price_of, worst_case
from services.frontend.generation.accounting.metering import Metering
from services.frontend.generation.admission import ActiveRequests, stopping
from services.frontend.generation.answers import Answers
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.block_keys import block_key_chains
from services.frontend.generation.generation import Generation
from services.frontend.generation.model_finder import ModelFinder
from services.frontend.generation.prompts import PromptEncoder
from services.frontend.generation.resolver import RequestResolver
from services.frontend.generation.tokenization import Tokenization
from services.frontend.generation.turns import LoopTurns
from services.frontend.models.registry import Registry
from services.frontend.placement.placement import PlacementFinder
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.claims import Claims
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import GenerationRequest
from services.frontend.text.tokenizer import TokenizerThreads
from services.frontend.workers.workers import Workers

_STOP_SECONDS = 1.0
_BEGIN_PER_TURN = 32
"""Requests per turn. Fewer would give a burst of 64 its first tokens little earlier, and cost each
of them more: messages to the router and the workers would be split."""


class Inference:
    """Admits requests and starts them, for every API."""

    def __init__(
        self,
        registry: Registry,
        pool: Workers,
        placement_finder: PlacementFinder,
        waiting: WorkerWaitQueue,
        suspects: Suspects,
        claims: Claims,
        cache_salts: Salts,
        threads: TokenizerThreads,
        settings: FrontendSettings,
        metering: Metering | None = None,
        request_limits: RequestLimits | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        """Connect the parts.

        Args:
            registry: the models.
            pool: connections to workers.
            placement_finder: decides where requests run.
            waiting: holds requests while no worker is available.
            suspects: tracks requests that may have crashed workers.
            claims: tracks requests that run under an execution id of their clients.
            cache_salts: secrets of tenants for KV keys.
            threads: where long prompts are tokenized.
            settings: limits of requests, and how they are placed.
            metering: records the usage of requests; None: nothing is recorded.
            request_limits: of keys, projects and tenants; None: there are no keys.
            prices: of requests, in force when they begin; None: there are none.
        """
        self.registry = registry
        self.draining = False
        """Whether the process is about to stop: new requests should go elsewhere."""
        self._pool = pool
        self._placement_finder = placement_finder
        self._waiting = waiting
        self._suspects = suspects
        self._claims = claims
        self._cache_salts = cache_salts
        self._threads = threads
        self._settings = settings
        self._metering = metering
        self._request_limits = request_limits
        self._prices = prices or PriceTable({})
        self.limits = settings.limits
        """The bounds of clients' parameters."""
        self._active = ActiveRequests(settings.limits.max_requests)
        self._running: set[Generation] = set()
        self.turns = LoopTurns(_BEGIN_PER_TURN)
        """Spreads bursts of work over turns of the loop."""
        prompts = PromptEncoder(threads, self.turns, settings.text.special_tokens)
        models = ModelFinder(registry, waiting)
        self.tokenization = Tokenization(registry, models, prompts, threads, settings.limits)
        """Serves tokenize and detokenize requests."""
        self._resolver = RequestResolver(models, prompts, Answers(settings.text), settings.limits)

    async def idle(self) -> None:
        """Return once no request runs."""
        await self._active.wait_idle()

    async def stop(self) -> None:
        """End running requests with an error; return when their clients have received it."""
        error = stopping()
        for generation in list(self._running):
            generation.end(error)
        self._waiting.fail_all(error)
        with suppress(TimeoutError):  # the servers disconnect clients that do not even read this
            async with asyncio.timeout(_STOP_SECONDS):
                await self._active.wait_idle()

    async def start(
        self, request: GenerationRequest, record: RequestRecord, seconds: float | None = None
    ) -> Generation:
        """Admit a request.

        Args:
            request: the client's request.
            record: filled in.
            seconds: until its deadline; None: the default.

        Raises:
            BatonError: it is rejected.
        """
        return (await self._start(request, record, seconds, 1))[0]

    async def start_all(
        self, requests: Sequence[GenerationRequest], record: RequestRecord
    ) -> list[Generation]:
        """Admit requests that are one for the client: all of them or none.

        Args:
            requests: the client's requests.
            record: of all, filled in.

        Raises:
            BatonError: one is rejected.
        """
        started: list[Generation] = []
        counted: LimitReservation | None = None
        try:
            for request in requests:
                count = 0 if started else len(requests)
                generation, reservation = await self._start(request, record, None, count)
                started.append(generation)
                counted = counted or reservation
        except BaseException:
            for generation in started:
                generation.close()
            if counted is not None and self._request_limits is not None and record.limits:
                self._request_limits.return_requests(record.limits, counted)
            raise
        return started

    async def _start(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        seconds: float | None,
        count: int,
    ) -> tuple[Generation, LimitReservation | None]:
        """Admit a request, which counts as the given number of requests for limits."""
        arrived = monotonic()
        record.name_model(request.model)
        record.principal.require(Scope.INFERENCE)
        limits = self.limits
        if seconds is None:
            seconds = request.timeout_seconds or limits.default_deadline_seconds
        deadline = arrived + min(seconds, limits.max_deadline_seconds)
        metering = self._metering
        if metering is not None:
            metering.check(record.principal)
        self._active.enter()
        reservation: LimitReservation | None = None
        try:
            allowed = self.limits_of(record)
            resolved = await self._resolver.resolve(request, record, deadline, allowed)
            suspect = self._suspects.check(resolved)
            price = price_of(self._prices, resolved, record)
            if allowed is not None and allowed.counted is not None and self._request_limits:
                cost = worst_case(resolved, price, allowed.counted)
                reservation = await self._request_limits.reserve(
                    allowed.counted, resolved.most_tokens, cost, count
                )
            cache_salt = await self._cache_salts.get(resolved.context.tenant)
            chains = await self._threads.run(
                partial(
                    block_key_chains,
                    resolved.prompt,
                    resolved.model.cards,
                    resolved.adapter_digest,
                    cache_salt,
                ),
                len(resolved.prompt),
            )
            span = tracer().start_span(
                f"{record.operation} {resolved.model.name}", kind=trace.SpanKind.SERVER
            )
            record.follow(span)
            # Nothing is awaited from here on: every claim gets its generation.
            claim = self._claims.begin(request, resolved.context.tenant)
            context = GenerationContext(
                pool=self._pool,
                placement_finder=self._placement_finder,
                waiting=self._waiting,
                suspects=self._suspects,
                suspect=suspect,
                claim=claim,
                block_key_chains=chains,
                cache_salt=cache_salt,
                trace=trace.set_span_in_context(span),
                arrived=arrived,
                deadline=deadline,
                max_placements=self._settings.placement.max_attempts,
                report_seconds=self._settings.workers.report_seconds,
                buffer_bytes=limits.buffer_bytes,
            )
            ended = partial(self._ended, record, reservation)
            # Of several prompts none may run in the end: a generation begins when it is followed.
            meter = None
            if metering is not None:
                meter = partial(metering.begin, resolved, record, arrived)
            generation = Generation(resolved, context, record.operation, span, ended, meter, price)
            self._running.add(generation)
            return generation, reservation
        except BaseException:
            self._settle(reservation, 0)
            self._active.leave()
            raise

    def limits_of(self, record: RequestRecord) -> KeyLimits | None:
        """Return the limits of the caller, and record them for the response's headers.

        Returns:
            None: there are no keys, and no limits.
        """
        if self._request_limits is None:
            return None
        limits = self._request_limits.of(record.principal)
        record.limits = limits.counted
        return limits

    def _ended(
        self, record: RequestRecord, reservation: LimitReservation | None, generation: Generation
    ) -> None:
        generation.add_to(record)
        self._settle(reservation, generation.used_tokens, generation.cost or 0)
        if generation.claim is not None:
            self._claims.end(generation.claim, finished=generation.finished)
        self._running.discard(generation)
        self._active.leave()

    def _settle(self, reservation: LimitReservation | None, used: int, cost: int = 0) -> None:
        if reservation is not None and self._request_limits is not None:
            self._request_limits.settle(reservation, used, cost)
