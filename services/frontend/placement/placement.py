"""Where a request runs: where a router says, or at random while none is available."""

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.telemetry.tracing import inject
from services.frontend.metrics import RANDOM_PLACEMENTS
from services.frontend.placement.fallback import random_placement
from services.frontend.placement.router_client import RouterClient
from services.frontend.placement.session import RouterUnavailableError, Ticket
from services.frontend.requests.request import ResolvedRequest


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request runs; `release` it when its streams have ended."""

    decision: router_pb2.Placement
    """Which workers, and why."""
    ticket: Ticket | None
    placed_by: str
    """Instance id of the router; empty: placed at random."""
    attempt: int
    """Counts the request's placements, from 0."""
    exact_continuation: bool = True
    """Whether the decode worker draws as others of its kind do, for outputs that come or go."""

    def release(self) -> None:
        """Return the ticket. Idempotent."""
        if self.ticket is not None:
            self.ticket.release()


class PlacementFinder:
    """Finds where requests run: asks a router, and places at random while none is available."""

    def __init__(
        self,
        router_client: RouterClient,
        instances: Callable[[], Mapping[str, cluster_pb2.Instance]],
    ) -> None:
        self._router_client = router_client
        self._instances = instances
        self._draw = random.Random()

    async def find(
        self,
        request: ResolvedRequest,
        chains: Sequence[router_pb2.Chain],
        *,
        attempt: int,
        excluded: Set[str],
        output_tokens: int,
    ) -> Placement:
        """Return a placement.

        Args:
            request: the request.
            chains: its prompt's keys, one chain per live layout.
            attempt: counts the request's placements, from 0.
            excluded: workers that failed the request before; used again only if there is no other.
            output_tokens: of the longest output so far.

        Raises:
            BatonError: no worker can serve the request.
        """
        try:
            return await self._find(request, chains, attempt, excluded, output_tokens)
        except BatonError as error:
            if not excluded or error.reason is not Reason.NO_WORKER:
                raise
            return await self._find(request, chains, attempt, frozenset(), output_tokens)

    async def _find(
        self,
        request: ResolvedRequest,
        chains: Sequence[router_pb2.Chain],
        attempt: int,
        excluded: Set[str],
        output_tokens: int,
    ) -> Placement:
        query = router_pb2.PlaceQuery(
            context=request.context,
            chains=chains,
            prompt_tokens=len(request.prompt),
            max_tokens=request.sampling.max_tokens,
            n=request.n,
            excluded_instances=sorted(excluded),
            output_tokens=output_tokens,
            traceparent=inject(),
            tokenizer_digest=request.model.tokenizer_digest,
            adapter_digest=request.adapter_digest,
        )
        query.context.attempt = attempt
        try:
            decision, ticket, placed_by = await self._router_client.place(query)
        except RouterUnavailableError:
            decision, ticket, placed_by = self._place_at_random(request, excluded), None, ""
        worker = self._instances().get(decision.decode.instance_id)
        exact = (
            request.model.exact_continuation if worker is None else not worker.inexact_continuation
        )
        return Placement(decision, ticket, placed_by, attempt, exact)

    def _place_at_random(
        self, request: ResolvedRequest, excluded: Set[str]
    ) -> router_pb2.Placement:
        decision = random_placement(self._instances(), request, excluded, self._draw)
        if decision is None:
            raise BatonError(
                Reason.NO_WORKER,
                f"no worker serves the model {request.named!r} now",
                field="model",
                retry_after=1.0,
            )
        RANDOM_PLACEMENTS.inc()
        return decision
