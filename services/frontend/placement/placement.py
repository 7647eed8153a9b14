"""Where a request runs: decided by a router, or at random while none is available."""

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.telemetry.tracing import inject
from services.frontend.metrics import RANDOM_PLACEMENTS
from services.frontend.placement.fallback import random_placement
from services.frontend.placement.query_times import QueryTimes
from services.frontend.placement.router_client import KNOWS_NOBODY, PlacementReply
from services.frontend.placement.session import RouterUnavailableError, Ticket
from services.frontend.requests.claims import RequestClaim
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.ticket_use import TicketUse
from services.frontend.workers.workers import Workers

_MAX_SOURCES = 16
"""Most sources that a store accepts for one read."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request runs; `release` it when its streams have ended."""

    decision: router_pb2.Placement
    """The chosen workers, and the reason."""
    ticket: Ticket | None
    placed_by: str
    """Instance id of the router; empty: random placement."""
    attempt: int
    """Number of the request's placement, from 0."""
    exact_continuation: bool = True
    """Whether the decode worker samples as others of its kind, for outputs that move."""
    queued_seconds: float = 0.0
    """Seconds that the request waited in routers."""
    store: str = ""
    """Id of the store from which the prompt's KV comes; empty: unknown."""
    use: TicketUse = field(default_factory=TicketUse)
    """The use of its streams so far."""

    def release(self, *, finished: bool = False) -> None:
        """Return the ticket of a request that finished or did not. Idempotent."""
        if self.ticket is not None:
            self.ticket.release(finished=finished, used=self.use.to_proto())


class Routers(Protocol):
    """The source of placements: a `RouterClient`, or a benchmark's substitute."""

    async def place(self, query: router_pb2.PlaceQuery, times: QueryTimes) -> PlacementReply:
        """Return a placement; raise as `RouterClient.place` does."""


class PlacementFinder:
    """Finds where requests run: queries a router, or places at random if none can decide.

    None can while no router is available, and while those queried, two at most, know no worker: a
    worker may be connected here before it has reported its load to them.
    """

    def __init__(
        self,
        router_client: Routers,
        pool: Workers,
        instances: Callable[[], Mapping[str, cluster_pb2.Instance]],
    ) -> None:
        self._router_client = router_client
        self._pool = pool
        self._instances = instances
        self._draw = random.Random()

    async def find(
        self,
        request: ResolvedRequest,
        chains: Sequence[router_pb2.Chain],
        *,
        attempt: int,
        excluded: Set[str],
        claim: RequestClaim | None = None,
        before: Set[str] = frozenset(),
        outputs: Sequence[int],
        times: QueryTimes,
    ) -> Placement:
        """Return a placement that uses none of the currently lost workers.

        Args:
            request: the request.
            chains: its prompt's keys, one chain per live layout.
            attempt: number of the request's placement, from 0.
            excluded: workers that failed the request before; used again only if there is no other.
            claim: sent to the router that its key selects; None: any router is used.
            before: previous workers of the request: their stores may have KV of its output.
            outputs: the tokens so far of each choice to be decoded.
            times: of the request.

        Raises:
            BatonError: NO_WORKER: none can serve the request now; or the router's rejection.
        """
        query = router_pb2.PlaceQuery(
            context=request.context,
            chains=chains,
            prompt_tokens=len(request.prompt),
            max_tokens=request.sampling.max_tokens,
            n=len(outputs),
            output_tokens=max(outputs),
            traceparent=inject(),
            tokenizer_digest=request.model.tokenizer_digest,
            adapter_digest=request.adapter_digest,
            expected_output_tokens=_expected_output_tokens(request, outputs),
            urgent=request.urgent,
        )
        query.context.attempt = attempt
        if claim is not None:
            query.claim.key, query.claim.execution = claim.key, claim.execution
            query.claim.take_over = claim.take_over and not attempt
        placement = await self._find(request, query, excluded, times)
        if placement is None and excluded:
            placement = await self._find(request, query, frozenset(), times)
        if placement is None:
            raise BatonError(
                Reason.NO_WORKER,
                f"no worker serves model {request.named!r} now",
                field="model",
                retry_after=1.0,
            )
        if query.output_tokens and not placement.decision.HasField("prefill"):
            self._add_sources(placement.decision, before)
        return placement

    async def _find(
        self,
        request: ResolvedRequest,
        query: router_pb2.PlaceQuery,
        excluded: Set[str],
        times: QueryTimes,
    ) -> Placement | None:
        query.excluded_instances[:] = sorted(excluded | self._pool.lost.keys())
        attempt = query.context.attempt
        try:
            placed = await self._router_client.place(query, times)
        except RouterUnavailableError:
            pass
        except BatonError as error:
            if error.reason not in KNOWS_NOBODY:
                raise
        else:
            exact = self._exact(request, placed.decision)
            placement = Placement(
                placed.decision,
                placed.ticket,
                placed.router_id,
                attempt,
                exact,
                placed.queued_seconds,
                self._store_of(placed.decision),
            )
            if not (self._pool.lost and self._is_lost(placed.decision)):
                return placement
            placement.release()
        at_random = random_placement(
            self._instances(),
            request,
            lambda one: one.id not in excluded and self._pool.usable(one),
            self._draw,
        )
        if at_random is None:
            return None
        RANDOM_PLACEMENTS.inc()
        return Placement(at_random, None, "", attempt, self._exact(request, at_random))

    def _add_sources(self, decision: router_pb2.Placement, before: Set[str]) -> None:
        instances = self._instances()
        named = {source.store_id for source in decision.sources}
        stores = {instances[one].store_id for one in before if one in instances} - named
        for store in (instances[one] for one in sorted(stores) if one in instances):
            if len(decision.sources) < _MAX_SOURCES:
                decision.sources.add(store_id=store.id, address=store.address)

    def _store_of(self, decision: router_pb2.Placement) -> str:
        """Return another store that holds the prompt's KV, or else the computing worker's own."""
        target = decision.prefill if decision.HasField("prefill") else decision.decode
        worker = self._instances().get(target.instance_id)
        own = "" if worker is None else worker.store_id
        if decision.prediction.remote_tokens:
            return next((one.store_id for one in decision.sources if one.store_id != own), own)
        return own

    def _exact(self, request: ResolvedRequest, decision: router_pb2.Placement) -> bool:
        worker = self._instances().get(decision.decode.instance_id)
        if worker is None:
            return request.model.exact_continuation
        return not worker.inexact_continuation

    def _is_lost(self, decision: router_pb2.Placement) -> bool:
        """Return whether a worker was lost during the query, or is unknown to be usable."""
        lost = self._pool.lost
        return any(
            target.incarnation == lost.get(target.instance_id)
            for target in (decision.prefill, decision.decode)
        )


def _expected_output_tokens(request: ResolvedRequest, outputs: Sequence[int]) -> int:
    """Return the tokens that outputs will still have together, if that is certain; otherwise 0.

    Clients request far more than they get, or all that fits: most outputs end by themselves.
    """
    sampling = request.sampling
    if not sampling.ignore_eos and sampling.min_tokens < sampling.max_tokens:
        return 0
    return sum(sampling.max_tokens - tokens for tokens in outputs)
