"""Create the generation of an admitted request: its KV keys, its trace, its claim and its meter."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from baton.cluster.tenants import Salts
from baton.errors import BatonError, Reason
from baton.request.prices import Price
from baton.settings import FrontendSettings
from baton.telemetry.tracing import RequestTrace, request_trace
from baton.tenancy.records.providers import Provider
from services.frontend.generation.accounting.metering import Metering
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.at_provider.provider_generation import (
    ProviderContext,
    ProviderGeneration,
)
from services.frontend.generation.block_keys import block_key_chains
from services.frontend.generation.generation import Generation, GenerationSetup
from services.frontend.generation.worker_generation import WorkerGeneration
from services.frontend.placement.placement import PlacementFinder
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.providers.upstreams import Upstreams
from services.frontend.requests.claims import Claims
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import GenerationRequest, ResolvedRequest
from services.frontend.text.tokenizer import TokenizerThreads
from services.frontend.workers.workers import Workers


class RunnableRequest(NamedTuple):
    """A request that runs once its generation exists. Times are monotonic, in seconds."""

    sent: GenerationRequest
    """As the client sent it."""
    request: ResolvedRequest
    record: RequestRecord
    suspect: bool
    """Whether requests like it may have crashed workers."""
    price: Price | None
    """Of its tokens; None: it has none."""
    arrived: float
    deadline: float
    max_wait: float | None = None
    """The longest predicted wait for a worker, in seconds, while it has no output; None: as long as
    for any request."""


class GenerationFactory:
    """Creates generations. Runs on the event loop.

    Args:
        pool: connections to workers.
        placement_finder: decides where requests run.
        waiting: holds requests while no worker is available.
        suspects: tracks requests that may have crashed workers.
        claims: tracks requests that run under an execution id of their clients.
        cache_salts: secrets of tenants for KV keys.
        threads: where the keys of long prompts are computed.
        settings: limits of requests, and how they are placed.
        metering: records the usage of requests; None: usage is not recorded.
        upstreams: of providers; None: there are no providers.
    """

    def __init__(
        self,
        pool: Workers,
        placement_finder: PlacementFinder,
        waiting: WorkerWaitQueue,
        suspects: Suspects,
        claims: Claims,
        cache_salts: Salts,
        threads: TokenizerThreads,
        settings: FrontendSettings,
        metering: Metering | None = None,
        upstreams: Upstreams | None = None,
    ) -> None:
        self._pool = pool
        self._placement_finder = placement_finder
        self._waiting = waiting
        self._suspects = suspects
        self._claims = claims
        self._cache_salts = cache_salts
        self._threads = threads
        self._settings = settings
        self._metering = metering
        self._upstreams = upstreams

    def require_open(self, provider: Provider) -> None:
        """Check, before anything is spent on a request, that a provider may get one now.

        Raises:
            BatonError: as for `Upstreams.require_open`.
        """
        if self._upstreams is not None:
            self._upstreams.require_open(provider)

    async def make(
        self, runnable: RunnableRequest, on_closed: Callable[[Generation], None]
    ) -> Generation:
        """Return the generation of a request, which begins when it is followed.

        Args:
            runnable: the request.
            on_closed: called once, when the generation is closed.

        Raises:
            BatonError: another execution runs under its id, or etcd has no salt of its tenant.
        """
        request = runnable.request
        if request.body:
            return self._at_provider(runnable, on_closed)
        cache_salt = await self._cache_salts.get(request.context.tenant)
        keys = partial(
            block_key_chains,
            request.prompt,
            request.model.cards,
            request.adapter_digest,
            cache_salt,
            request.pictures.runs,
        )
        chains = await self._threads.run(keys, len(request.prompt))
        trace = _trace(runnable)
        # Nothing is awaited from here on, so every claim gets its generation.
        context = GenerationContext(
            pool=self._pool,
            placement_finder=self._placement_finder,
            waiting=self._waiting,
            suspects=self._suspects,
            suspect=runnable.suspect,
            claim=self._claims.begin(runnable.sent, request.context.tenant),
            block_key_chains=chains,
            cache_salt=cache_salt,
            trace=trace,
            arrived=runnable.arrived,
            deadline=runnable.deadline,
            max_placements=self._settings.placement.max_attempts,
            report_seconds=self._settings.workers.report_seconds,
            buffer_bytes=self._settings.limits.buffer_bytes,
            max_wait=runnable.max_wait,
        )
        return WorkerGeneration(self._setup(runnable, trace, on_closed), context)

    def _at_provider(
        self, runnable: RunnableRequest, on_closed: Callable[[Generation], None]
    ) -> Generation:
        if self._upstreams is None:
            raise BatonError(Reason.UNAVAILABLE, "this process reaches no providers")
        request = runnable.request
        context = ProviderContext(
            self._upstreams,
            self._claims.begin(runnable.sent, request.context.tenant),
            runnable.arrived,
            runnable.deadline,
            self._settings.limits.buffer_bytes,
        )
        return ProviderGeneration(self._setup(runnable, _trace(runnable), on_closed), context)

    def _setup(
        self,
        runnable: RunnableRequest,
        trace: RequestTrace,
        on_closed: Callable[[Generation], None],
    ) -> GenerationSetup:
        """Return what a generation is made of. With several prompts, none may run at all, so the
        meter begins with the generation."""
        request, record, metering = runnable.request, runnable.record, self._metering
        return GenerationSetup(
            request,
            record.operation,
            trace,
            partial(self._closed, on_closed),
            None
            if metering is None
            else partial(metering.begin, request, record, runnable.arrived),
            runnable.price,
        )

    def _closed(self, on_closed: Callable[[Generation], None], generation: Generation) -> None:
        if generation.claim is not None:
            self._claims.end(generation.claim, finished=generation.finished)
        on_closed(generation)


def _trace(runnable: RunnableRequest) -> RequestTrace:
    """Start the span of a request."""
    trace = request_trace(f"{runnable.record.operation} {runnable.request.model.name}")
    runnable.record.trace_id = trace.id
    return trace
