"""Everybody who works on one request now, and the frames that set them to work."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from opentelemetry.context import Context

from baton.internal.v1 import router_pb2, worker_pb2
from baton.v1 import common_pb2
from services.frontend.generation.output import Output
from services.frontend.generation.usage import Account
from services.frontend.placement.placement import Place, Places
from services.frontend.requests.request import Request
from services.frontend.workers.connection import LinkBrokenError
from services.frontend.workers.event_buffer import Mailbox
from services.frontend.workers.pool import Links
from services.frontend.workers.work import Kind, Work


@dataclass(frozen=True, slots=True)
class Route:
    """What a request needs to find and reach workers."""

    links: Links
    places: Places
    chains: Sequence[router_pb2.Chain]
    kv_salt: bytes
    context: Context
    """Trace context of the request's span."""
    traceparent: str
    """The same for other processes."""
    arrived: float
    """Monotonic time at which the request came."""
    deadline: float
    """Monotonic time at which it fails if it has not ended."""


class Crew:
    """At most one prefill work, which serves all choices, and one decode work per choice."""

    def __init__(
        self,
        request: Request,
        outputs: Sequence[Output],
        route: Route,
        mailbox: Mailbox,
        account: Account,
    ) -> None:
        self.prefill: Work | None = None
        self.decodes: dict[int, Work] = {}
        """By choice."""
        self._request = request
        self._outputs = outputs
        self._route = route
        self._mailbox = mailbox
        self._account = account
        self._works: dict[int, Work] = {}

    def __bool__(self) -> bool:
        return bool(self._works)

    def find(self, stream_id: int) -> Work | None:
        """The work of a stream; None once it is forgotten."""
        return self._works.get(stream_id)

    def start(self, place: Place, attempt: int) -> str | None:
        """Start what is missing: prefill if nobody gives first tokens, decode per choice.

        Answers None, or the instance id of a worker that was gone: then something still misses.
        """
        try:
            if self.needs_prefill():
                self._read_prompt(place, attempt)
            for output in self._live():
                if output.choice not in self.decodes:
                    self._write_answer(output, place, attempt)
        except LinkBrokenError as error:
            return error.instance_id
        return None

    def needs_prefill(self, without: Work | None = None) -> bool:
        """Whether a choice has no token and nobody is about to give it one.

        Args:
            without: a work that does not count.
        """
        if self.prefill is not None and self.prefill is not without:
            return False
        for output in self._live():
            decode = self.decodes.get(output.choice)
            if not output.token_ids and (decode is None or decode.waits):
                return True
        return False

    def settle(self) -> None:
        """Nobody writes the prompt's KV any more: who waits for it takes what there is."""
        for work in self.decodes.values():
            if not work.prepared:
                work.settle()

    def forget(self, work: Work, usage: common_pb2.Usage | None = None) -> None:
        """A work ended; with what its worker reported, where it could."""
        if self._works.pop(work.stream_id, None) is None:
            return
        self._account.ended(work, usage, monotonic())
        if work is self.prefill:
            self.prefill = None
        if self.decodes.get(work.choice) is work:
            del self.decodes[work.choice]

    def drop(self, work: Work) -> None:
        """End a work: its worker gives everything back."""
        work.release()
        self.forget(work)

    def drop_all(self) -> None:
        for work in list(self._works.values()):
            self.drop(work)

    def _live(self) -> Iterator[Output]:
        return (output for output in self._outputs if not output.ended)

    def _read_prompt(self, place: Place, attempt: int) -> None:
        placement = place.placement
        waiting = [work for work in self.decodes.values() if work.waits]
        if placement.HasField("prefill"):
            start = self._frame(place, attempt, 0)
            start.prefill.n = self._request.n
            start.prefill.sources.extend(placement.sources)
            self.prefill = self._begin(Kind.PREFILL, 0, placement.prefill, start)
            for work in waiting:
                work.update_sources(placement.sources)
        else:
            # Those that wait for another's KV would wait in vain: they start from scratch.
            for work in waiting:
                self.drop(work)

    def _write_answer(self, output: Output, place: Place, attempt: int) -> None:
        placement = place.placement
        start = self._frame(place, attempt, output.choice)
        if self.prefill is not None and not output.token_ids:
            start.prepare.SetInParent()
            start.prepare.sources.extend(placement.sources)
        else:
            start.generate.SetInParent()
            start.generate.output_so_far.extend(output.token_ids)
            start.generate.sources.extend(placement.sources)
            start.generate.wait_for_kv = self.prefill is not None
        work = self._begin(Kind.DECODE, output.choice, placement.decode, start)
        self.decodes[output.choice] = work

    def _frame(self, place: Place, attempt: int, choice: int) -> worker_pb2.Start:
        request, route = self._request, self._route
        start = worker_pb2.Start(
            context=request.context,
            choice=choice,
            traceparent=route.traceparent,
            kv_salt=route.kv_salt,
            ticket="" if place.ticket is None else place.ticket.name,
            prompt_token_ids=request.prompt,
            sampling=request.sampling,
            stopping=request.stopping,
        )
        start.context.attempt = attempt
        left = max(0.001, route.deadline - monotonic())
        start.timeout.FromNanoseconds(int(left * 1e9))
        return start

    def _begin(
        self, kind: Kind, choice: int, target: router_pb2.Target, start: worker_pb2.Start
    ) -> Work:
        link = self._route.links.get(target)
        work = Work(kind, choice, link, start, self._mailbox, monotonic())
        self._works[work.stream_id] = work
        return work
