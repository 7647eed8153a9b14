"""What every API asks of the frontend: run a request, tokenize, list models."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from opentelemetry import trace

from baton.cluster.tenants import Salts
from baton.errors import BatonError, Reason, invalid_field
from baton.request.prices import Price, PriceTable
from baton.settings import FrontendSettings
from baton.telemetry.tracing import tracer
from baton.tenancy.limits.limit_set import LimitReservation, LimitSet
from baton.tenancy.records.tenants import Scope
from baton.v1 import common_pb2
from services.frontend.access.key_limits import KeyLimits
from services.frontend.access.refusals import unpriced
from services.frontend.access.request_limits import RequestLimits
from services.frontend.generation.accounting.metering import Metering
from services.frontend.generation.answers import Answers
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.block_keys import block_key_chains
from services.frontend.generation.generation import Generation
from services.frontend.generation.prompts import PromptEncoder, size_of
from services.frontend.generation.turns import LoopTurns
from services.frontend.metrics import ACTIVE
from services.frontend.models.model import ResolvedModel, ServedModel
from services.frontend.models.registry import Registry
from services.frontend.placement.placement import PlacementFinder
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.claims import Claims
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.model_checks import check_model, with_defaults
from services.frontend.requests.prompts import check_prompt, check_tokens
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import (
    WHOLE_PROMPT,
    GenerationRequest,
    Prompt,
    PromptOptions,
    ResolvedRequest,
    TokenPrompt,
)
from services.frontend.requests.resolve import resolve
from services.frontend.requests.validate import check
from services.frontend.text.tokenizer import TokenizerThreads
from services.frontend.workers.workers import Workers

_RETRY_SECONDS = 1.0
_STOP_SECONDS = 1.0
_BEGIN_PER_TURN = 32
"""Requests. Fewer would give a burst of 64 its first tokens little earlier, and cost each of them
more: what goes to the router and the workers together would go in pieces."""


def stopping() -> BatonError:
    """Return the error of a request that comes to, or is left at, a frontend that stops."""
    return BatonError(Reason.DRAINING, "this frontend is shutting down", retry_after=_RETRY_SECONDS)


def worst_case(request: ResolvedRequest, price: Price | None, limits: LimitSet) -> int:
    """Return the most nano-dollars that a request may cost; 0 where nothing counts them.

    Raises:
        BatonError: FAILED_PRECONDITION, a budget limits them and the model has no price.
    """
    if not limits.budgets:
        return 0
    if price is None:
        if limits.budget is not None:
            raise unpriced(limits.budget, request.named)
        return 0
    prompt = len(request.prompt)
    return price.most(prompt, request.most_tokens - prompt)


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
        """Put it together.

        Args:
            registry: the models.
            pool: connections to workers.
            placement_finder: decides where requests run.
            waiting: holds those that no worker can take now.
            suspects: remembers those that workers were lost of.
            claims: knows those that run under an execution id of their clients.
            cache_salts: secrets of tenants for KV keys.
            threads: where long prompts are tokenized.
            settings: limits of requests, and how they are placed.
            metering: records what requests use; None: nothing is recorded.
            request_limits: of keys, projects and tenants; None: there are no keys.
            prices: of requests, in force when they begin; None: there are none.
        """
        self.registry = registry
        self.draining = False
        """The process is about to stop: new requests had better go elsewhere."""
        self.active = 0
        """Requests that run now."""
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
        """What clients may ask for."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._running: set[Generation] = set()
        self.turns = LoopTurns(_BEGIN_PER_TURN)
        """For what begins many at once."""
        self._prompts = PromptEncoder(threads, self.turns, settings.text.special_tokens)
        self._answers = Answers(settings.text)

    async def idle(self) -> None:
        """Return once no request runs."""
        await self._idle.wait()

    async def stop(self) -> None:
        """End what still runs with an error; return when its clients have been told."""
        error = stopping()
        for generation in list(self._running):
            generation.end(error)
        self._waiting.fail_all(error)
        with suppress(TimeoutError):  # the servers cut those that do not even read this
            async with asyncio.timeout(_STOP_SECONDS):
                await self._idle.wait()

    async def start(
        self, request: GenerationRequest, record: RequestRecord, seconds: float | None = None
    ) -> Generation:
        """Admit a request.

        Args:
            request: what the client sent.
            record: filled in.
            seconds: until its deadline; None: the default.

        Raises:
            BatonError: it is refused.
        """
        return (await self._start(request, record, seconds, 1))[0]

    async def start_all(
        self, requests: Sequence[GenerationRequest], record: RequestRecord
    ) -> list[Generation]:
        """Admit requests that are one for the client: all of them or none.

        Args:
            requests: what the client sent.
            record: of all, filled in.

        Raises:
            BatonError: one is refused.
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
        """Admit a request, which counts as so many for limits."""
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
        self._admit()
        reservation: LimitReservation | None = None
        try:
            allowed = self.limits_of(record)
            resolved = await self._resolve(request, record, deadline, allowed)
            suspect = self._suspects.check(resolved)
            price = self._price_of(resolved, record)
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
            # Nothing is awaited from here on: what is claimed has its generation.
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
            # Of several prompts none may run in the end: one begins when it is followed.
            meter = None
            if metering is not None:
                meter = partial(metering.begin, resolved, record, arrived)
            generation = Generation(resolved, context, record.operation, span, ended, meter, price)
            self._running.add(generation)
            return generation, reservation
        except BaseException:
            self._settle(reservation, 0)
            self._leave()
            raise

    def limits_of(self, record: RequestRecord) -> KeyLimits | None:
        """Return the limits of who asks, and note them for what is told with the answer.

        Returns:
            None: there are no keys, and no limits.
        """
        if self._request_limits is None:
            return None
        limits = self._request_limits.of(record.principal)
        record.limits = limits.counted
        return limits

    async def tokenize(
        self,
        model_name: str,
        prompt: Prompt,
        record: RequestRecord,
        options: PromptOptions = WHOLE_PROMPT,
    ) -> tuple[ServedModel, list[int]]:
        """Return the model and the ids of a prompt.

        Args:
            model_name: as the client gave it.
            prompt: what to tokenize.
            record: filled in.
            options: how to.

        Raises:
            BatonError: it is refused.
        """
        check_prompt(prompt, self.limits)
        model = await self.tokenizing_model(model_name, prompt, record)
        context = RequestContextLimit.of(model, None)
        return model, await self._prompts.encode(model, prompt, context, options)

    async def detokenize(
        self, model_name: str, token_ids: Sequence[int], record: RequestRecord, field: str
    ) -> str:
        """Return the text of token ids, special tokens included; `field` is what the client calls
        them, and the rest as of `tokenize`."""
        prompt = TokenPrompt(token_ids)
        model = await self.tokenizing_model(model_name, prompt, record)
        context = RequestContextLimit.of(model, None)
        check_tokens(field, await self._prompts.encode(model, prompt, context), model)
        decode = partial(model.tokenizer.decode, token_ids, special=True)
        return await self._threads.run(decode, len(token_ids))

    async def tokenizing_model(
        self, model_name: str, prompt: Prompt, record: RequestRecord
    ) -> ServedModel:
        """Return the model of a request about tokens; the only one may be left unnamed, as of vLLM.

        Raises:
            BatonError: it is not served, or not named and one of several.
        """
        if not model_name:
            served = [one.name for one in self.registry.listed()]
            if len(served) != 1:
                raise invalid_field("model", "is required; /v1/models lists the models")
            (model_name,) = served
        record.name_model(model_name)
        record.principal.require(Scope.INFERENCE)
        record.principal.require_model(model_name)
        deadline = monotonic() + self.limits.default_deadline_seconds
        model = (await self._find_model(model_name, "", prompt, deadline)).model
        record.served_model = model.name
        return model

    async def _resolve(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        deadline: float,
        limits: KeyLimits | None,
    ) -> ResolvedRequest:
        check(request, self.limits, record.principal)
        found = await self._find_model(request.model, request.adapter, request.prompt, deadline)
        record.served_model, record.adapter = found.model.name, found.adapter
        request = with_defaults(request, found.model)
        check_model(request, found.model)
        request = await self._answers.check_form(request, found.model)
        allowed, most = (limits.context, limits.most_tokens) if limits else (None, None)
        context = RequestContextLimit.of(found.model, allowed)
        options, max_tokens = request.prompt_options, request.sampling.max_tokens
        prompt = await self._prompts.encode(
            found.model, request.prompt, context, options, max_tokens
        )
        drawn = secrets.randbits(63)
        seed = request.sampling.seed if request.resume is None else request.resume.seed
        seed = drawn if seed is None else seed
        request, reader = await self._answers.plan(request, found.model, prompt, seed)
        return resolve(request, found, prompt, seed, record.principal, context, most, reader)

    async def _find_model(
        self, name: str, adapter: str, prompt: Prompt, deadline: float
    ) -> ResolvedModel:
        """Return the model of a request, which waits while only workers or a tokenizer are missing.

        Raises:
            BatonError: as of `Registry.get` and `WorkerWaitQueue.enter`, or DEADLINE.
        """
        while True:
            try:
                return self.registry.get(name, adapter)
            except BatonError as error:
                if error.reason not in (Reason.NO_WORKER, Reason.MODEL_LOADING):
                    raise
                missing = error
            try:
                async with asyncio.timeout(max(0.0, deadline - monotonic())):
                    await self._waiting.wait(name, size_of(prompt), missing)
            except TimeoutError:
                late = "no worker was available before the request's deadline"
                raise BatonError(Reason.DEADLINE, late) from missing

    def _admit(self) -> None:
        if self.active >= self.limits.max_requests:
            raise BatonError(
                Reason.OVERLOADED,
                f"{self.limits.max_requests} requests are already running (limits.max_requests); "
                "retry later",
                retry_after=_RETRY_SECONDS,
            )
        self.active += 1
        self._idle.clear()
        ACTIVE.set(self.active)

    def _ended(
        self, record: RequestRecord, reservation: LimitReservation | None, generation: Generation
    ) -> None:
        generation.add_to(record)
        self._settle(reservation, generation.used_tokens, generation.cost or 0)
        if generation.claim is not None:
            self._claims.end(generation.claim, finished=generation.finished)
        self._running.discard(generation)
        self._leave()

    def _settle(self, reservation: LimitReservation | None, used: int, cost: int = 0) -> None:
        if reservation is not None and self._request_limits is not None:
            self._request_limits.settle(reservation, used, cost)

    def _price_of(self, request: ResolvedRequest, record: RequestRecord) -> Price | None:
        context = request.context
        batch = context.priority == common_pb2.PRIORITY_CLASS_BATCH
        tier = record.principal.tenant.tier.value
        return self._prices.find(context.model, context.adapter, tier, batch=batch)

    def _leave(self) -> None:
        self.active -= 1
        if not self.active:
            self._idle.set()
        ACTIVE.set(self.active)
