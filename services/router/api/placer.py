"""One place query: from the wire to a decision and back."""

from zlib import crc32

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from services.router.explanation.decision_log import DecisionLog, DecisionRecord
from services.router.placement.service import Chain, Placed, PlacementRequest, PlacementService
from services.router.state.worker import Worker

MAX_SOURCES = 16


class Placer:
    """Answers place queries.

    Args:
        placements: what decides.
        decisions: where each is kept, to be explained.
    """

    def __init__(self, placements: PlacementService, decisions: DecisionLog) -> None:
        self._placements = placements
        self._decisions = decisions

    def place(
        self,
        query: router_pb2.PlaceQuery,
        session: int,
        now: float,
        answer: router_pb2.Placement,
    ) -> None:
        """Choose a placement, open its ticket and fill the answer in.

        Args:
            query: as received.
            session: the stream that the ticket ends with.
            now: a monotonic clock, in seconds.
            answer: left as it is where there is no placement.

        Raises:
            BatonError: what `PlacementService.place` raises.
        """
        request, request_id = request_from_proto(query), query.context.request_id
        try:
            placed = self._placements.place(request, session, now)
        except BatonError as error:
            self._decisions.add(DecisionRecord(request_id, request, now, refusal=error))
            raise
        reason = placed.decision.reason
        self._decisions.add(
            DecisionRecord(request_id, request, now, plan=placed.plan, reason=reason)
        )
        answer.correlation_id = query.correlation_id
        self._fill(answer, placed)

    def _fill(self, answer: router_pb2.Placement, placed: Placed) -> None:
        # In place: a message that is given to another one's constructor is copied.
        decision = placed.decision
        answer.ticket = placed.ticket
        if decision.prefill_worker is not None:
            _fill_target(answer.prefill, decision.prefill_worker)
        _fill_target(answer.decode, decision.decode_worker)
        for store_id in decision.sources[:MAX_SOURCES]:
            address = self._placements.fleet.store_address(store_id)
            if address:
                answer.sources.add(store_id=store_id, address=address)
        prediction, ttft = answer.prediction, decision.ttft
        prediction.queue_seconds = ttft.queue_seconds
        prediction.transfer_seconds = ttft.transfer_seconds
        prediction.prefill_seconds = ttft.prefill_seconds
        prediction.cached_tokens = decision.prefill.cached_tokens
        prediction.reason = decision.reason


def request_from_proto(query: router_pb2.PlaceQuery) -> PlacementRequest:
    """Return what a query asks."""
    context = query.context
    return PlacementRequest(
        context.model,
        query.prompt_tokens,
        query.max_tokens,
        [Chain(chain.layout_id, chain.keys) for chain in query.chains],
        query.n or 1,
        query.output_tokens,
        frozenset(query.excluded_instances),
        query.tokenizer_digest,
        (context.adapter, query.adapter_digest) if context.adapter else None,
        context.tenant,
        crc32(context.request_id.encode(), query.correlation_id & 0xFFFFFFFF),
    )


def _fill_target(target: router_pb2.Target, worker: Worker) -> None:
    target.instance_id = worker.id
    target.incarnation = worker.incarnation
    target.address = worker.address
