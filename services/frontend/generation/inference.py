"""What every API asks of the frontend: run a request, tokenize, list models."""

import asyncio
import secrets
from contextlib import suppress
from functools import partial
from time import monotonic

from opentelemetry import trace

from baton.cluster.tenants import CacheSalts
from baton.errors import BatonError, Reason, invalid_field
from baton.settings import FrontendSettings
from baton.telemetry.tracing import tracer
from services.frontend.generation.assignments import GenerationContext
from services.frontend.generation.block_keys import block_key_chains
from services.frontend.generation.generation import Generation
from services.frontend.metrics import ACTIVE
from services.frontend.models.model import Model
from services.frontend.models.registry import Registry
from services.frontend.placement.placement import PlacementFinder
from services.frontend.requests import validate
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    ResolvedRequest,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.text.tokenizer import TokenizerThreads
from services.frontend.workers.pool import WorkerPool

_OVERLOAD_RETRY_SECONDS = 1.0
_STOP_SECONDS = 1.0


class Inference:
    """Admits requests and starts them, for every API."""

    def __init__(
        self,
        registry: Registry,
        pool: WorkerPool,
        placement_finder: PlacementFinder,
        cache_salts: CacheSalts,
        threads: TokenizerThreads,
        settings: FrontendSettings,
    ) -> None:
        """Put it together.

        Args:
            registry: the models.
            pool: connections to workers.
            placement_finder: decides where requests run.
            cache_salts: secrets of tenants for KV keys.
            threads: where long prompts are tokenized.
            settings: limits of requests, and how they are placed.
        """
        self.registry = registry
        self.draining = False
        """No new request is taken."""
        self.active = 0
        """Requests that run now."""
        self._pool = pool
        self._placement_finder = placement_finder
        self._cache_salts = cache_salts
        self._threads = threads
        self._settings = settings
        self._limits = settings.limits
        self._idle = asyncio.Event()
        self._idle.set()
        self._running: set[Generation] = set()

    async def idle(self) -> None:
        """Return once no request runs."""
        await self._idle.wait()

    async def stop(self) -> None:
        """End what still runs with an error; return when its clients have been told."""
        error = BatonError(Reason.DRAINING, "this frontend is shutting down", retry_after=1.0)
        for generation in list(self._running):
            generation.end(error)
        with suppress(TimeoutError):  # the servers cut those that do not even read this
            async with asyncio.timeout(_STOP_SECONDS):
                await self._idle.wait()

    async def start(
        self, request: GenerationRequest, record: RequestRecord, seconds: float | None = None
    ) -> Generation:
        """Admit a request.

        Args:
            request: what the client sent.
            record: filled in; one may be of several requests.
            seconds: until its deadline; None: the default.

        Raises:
            BatonError: it is refused.
        """
        arrived = monotonic()
        record.name_model(request.model)
        limits = self._limits
        if seconds is None:
            seconds = limits.default_deadline_seconds
        self._admit()
        try:
            resolved = await self._resolve(request, record)
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
            context = GenerationContext(
                pool=self._pool,
                placement_finder=self._placement_finder,
                block_key_chains=chains,
                cache_salt=cache_salt,
                trace=trace.set_span_in_context(span),
                arrived=arrived,
                deadline=arrived + min(seconds, limits.max_deadline_seconds),
                max_placements=self._settings.placement.max_attempts,
                report_seconds=self._settings.workers.report_seconds,
                buffer_bytes=limits.buffer_bytes,
            )
            ended = partial(self._ended, record)
            generation = Generation(resolved, context, record.operation, span, ended)
            self._running.add(generation)
            return generation
        except BaseException:
            self._leave()
            raise

    async def tokenize(
        self, model_name: str, prompt: Prompt, record: RequestRecord
    ) -> tuple[Model, list[int]]:
        """Return the model and the ids of a prompt.

        Args:
            model_name: as the client gave it.
            prompt: what to tokenize.
            record: filled in.

        Raises:
            BatonError: it is refused.
        """
        if not model_name:
            raise invalid_field("model", "name a model")
        record.name_model(model_name)
        validate.check_prompt(prompt, self._limits)
        model = self.registry.get(model_name).model
        record.served_model = model.name
        return model, await self._encode(model, prompt)

    async def _resolve(self, request: GenerationRequest, record: RequestRecord) -> ResolvedRequest:
        validate.check(request, self._limits)
        found = self.registry.get(request.model, request.adapter)
        record.served_model, record.adapter = found.model.name, found.adapter
        validate.check_model(request, found.model)
        prompt = await self._encode(found.model, request.prompt)
        return validate.resolve(request, found, prompt, secrets.randbits(63))

    async def _encode(self, model: Model, prompt: Prompt) -> list[int]:
        match prompt:
            case TextPrompt(text):
                encode = partial(model.tokenizer.encode, text)
                return await self._threads.run(encode, len(text))
            case ChatPrompt(messages):
                encode_chat = partial(model.tokenizer.encode_chat, messages)
                characters = sum(len(message.content) for message in messages)
                return await self._threads.run(encode_chat, characters)
            case TokenPrompt(ids):
                return list(ids)

    def _admit(self) -> None:
        if self.draining:
            raise BatonError(
                Reason.DRAINING,
                "this frontend is shutting down",
                retry_after=_OVERLOAD_RETRY_SECONDS,
            )
        if self.active >= self._limits.max_requests:
            raise BatonError(
                Reason.OVERLOADED,
                f"{self._limits.max_requests} requests run already",
                retry_after=_OVERLOAD_RETRY_SECONDS,
            )
        self.active += 1
        self._idle.clear()
        ACTIVE.set(self.active)

    def _ended(self, record: RequestRecord, generation: Generation) -> None:
        generation.add_to(record)
        self._running.discard(generation)
        self._leave()

    def _leave(self) -> None:
        self.active -= 1
        if not self.active:
            self._idle.set()
        ACTIVE.set(self.active)
