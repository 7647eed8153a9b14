"""A request that runs at a provider."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from baton.errors import BatonError, Reason
from baton.process.background import start_background
from baton.request.stream_events import Event
from baton.telemetry.logs import get_logger
from baton.tenancy.records.providers import Provider
from services.frontend.generation.at_provider.progress import ProviderProgress
from services.frontend.generation.generation import Generation, GenerationSetup
from services.frontend.providers.call import UpstreamCall
from services.frontend.providers.formats import FORMATS
from services.frontend.providers.race import UpstreamRun, run_race
from services.frontend.providers.upstreams import Upstreams
from services.frontend.requests.claims import RequestClaim
from services.frontend.workers.events import (
    ProviderEnded,
    ProviderOutput,
    ProviderUsage,
    StreamEvent,
)

if TYPE_CHECKING:
    from services.frontend.providers.upstream import Upstream

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What a request needs to run at a provider. Times are monotonic, in seconds."""

    upstreams: Upstreams
    claim: RequestClaim | None
    """Its claim on an execution id; None: its id is new."""
    arrived: float
    deadline: float
    buffer_bytes: int
    """Most bytes of output that wait for the client."""


class ProviderGeneration(Generation):
    """A `Generation` at a provider, which one task of its own follows."""

    def __init__(self, setup: GenerationSetup, context: ProviderContext) -> None:
        """As for `Generation`; `context` reaches the provider."""
        super().__init__(setup, context)
        self._upstreams = context.upstreams
        self._progress = ProviderProgress(setup.request, context.arrived)
        self._entered: list[Upstream] = []
        """Upstreams that it may run at, while it runs."""
        self._task: asyncio.Task[None] | None = None
        self._readable: asyncio.Future[None] | None = None
        """Set while the client does not read."""
        self._usage: ProviderUsage | None = None
        """What the provider counted, once it has."""

    @property
    def progress(self) -> ProviderProgress:
        """Its outputs and usage."""
        return self._progress

    @property
    def ran(self) -> bool:
        """Whether the provider sent output."""
        return self._progress.usage.first_token_at is not None

    def _run(self) -> None:
        provided = self.request.model.provided
        if provided is None:
            raise ValueError(f"{self.request.model.name} is of no provider")
        first, second = self._runner(provided.provider, self.request.body), None
        if (hedge := self.request.hedge) is None:
            self._progress.begin(self._begun)
            self.buffer.wake()
        else:
            second = self._runner(hedge.at.provider, hedge.body)
        self._task = start_background(self._follow_upstream(first, second), "follow an upstream")

    def _runner(self, provider: Provider, body: bytes) -> UpstreamRun:
        request, new_stream = self.request, FORMATS[provider.api].stream
        upstream = self._upstreams.enter(provider)
        self._entered.append(upstream)
        call = UpstreamCall(
            body,
            lambda: new_stream(request.n, request.id),
            self.buffer.put_all,
            lambda: self._readable,
        )
        return UpstreamRun(upstream, call)

    def _won(self, upstream: "Upstream") -> None:
        """Take which of two upstreams answers: for clients, the request begins here."""
        self._progress.provider = upstream.provider.id
        self._progress.begin(self._begun)

    def _go_on(self) -> None:
        """Nothing is to be decided between reports."""

    async def _follow_upstream(self, first: UpstreamRun, second: UpstreamRun | None) -> None:
        try:
            if second is None:
                stream = await first.upstream.run(first.call)
            else:
                stream = await run_race(first, second, self._won)
        except BatonError as error:
            self.buffer.put(ProviderEnded(error))
        except Exception:
            log.exception("provider.request.failed", provider=self._progress.provider)
            self.buffer.put(ProviderEnded(BatonError(Reason.INTERNAL, "internal error")))
        else:
            if stream.usage is not None:
                self.buffer.put(stream.usage)
            self.buffer.put(ProviderEnded())

    def _receive(self, received: list[StreamEvent], events: list[Event]) -> None:
        for event in received:
            if type(event) is ProviderOutput:
                self._progress.add(event, events)
            elif type(event) is ProviderUsage:
                self._usage = event
            elif type(event) is ProviderEnded:
                if event.error is not None:
                    self.end(event.error)  # the sink still receives earlier events
                elif self._running:
                    self._progress.count(self._usage)
                    self._finish(events)

    def _hold(self, *, held: bool) -> None:
        if held:
            self._readable = asyncio.get_running_loop().create_future()
        elif self._readable is not None:
            readable, self._readable = self._readable, None
            if not readable.done():
                readable.set_result(None)

    def _stop(self, *, finished: bool) -> None:  # noqa: ARG002 - both ways the task has no more to do
        if self._task is not None:
            self._task.cancel()
        for upstream in self._entered:
            self._upstreams.leave(upstream)
        self._entered.clear()
