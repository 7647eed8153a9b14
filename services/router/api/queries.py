"""Conversion of place queries and placements between the wire and plain values."""

import math
from collections.abc import Callable
from zlib import crc32

from baton.errors import BatonError, invalid_field
from baton.internal.v1 import router_pb2, worker_pb2
from baton.v1 import common_pb2
from services.router.admission.waiting import WaitingRequest
from services.router.policy.placement_service import (
    Chain,
    PlacedRequest,
    PlacementRequest,
    PlacementService,
)
from services.router.state.executions import ExecutionClaim
from services.router.state.worker import Worker

MAX_SOURCES = 16

ShareOf = Callable[[str], tuple[int, float]]
"""Returns the rank of a tenant's tier, and its weight."""

TYPICAL_OUTPUT_TOKENS = 128
"""Output tokens that a tenant is charged for each choice beyond the first when nothing is known of
the request; corrected when the ticket is returned."""
_NO_TARGET = 1e9
"""Seconds to the first token: finite, so that the class's own target does not apply."""
_RANKS: dict[int, int] = {
    common_pb2.PRIORITY_CLASS_PREMIUM: 0,
    common_pb2.PRIORITY_CLASS_INTERACTIVE: 1,
    common_pb2.PRIORITY_CLASS_BATCH: 2,
}
CLASS_NAMES: dict[int, str] = {
    common_pb2.PRIORITY_CLASS_PREMIUM: "premium",
    common_pb2.PRIORITY_CLASS_INTERACTIVE: "interactive",
    common_pb2.PRIORITY_CLASS_BATCH: "batch",
}


def request_from_proto(query: router_pb2.PlaceQuery) -> PlacementRequest:
    """Return the placement request of a query."""
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
        context.attempt > 0,
    )


def waiting_from_proto(
    query: router_pb2.PlaceQuery, number: int, session: int, share_of: ShareOf, now: float
) -> WaitingRequest:
    """Return a query as the queue's waiting request.

    Args:
        query: as received.
        number: of the request.
        session: the session that it came on.
        share_of: the tenant's share.
        now: a monotonic clock, in seconds.

    Raises:
        BatonError: INVALID_FIELD.
    """
    waited, deadline = query.waited_seconds, query.deadline_seconds
    target, expected = query.ttft_target_seconds, query.expected_output_tokens
    longest = query.max_wait_seconds
    for value in (waited, deadline, target, expected, longest):
        if not 0 <= value < math.inf:
            raise _out_of_range(query)
    if not expected and query.n > 1:
        expected = (query.n - 1) * min(max(0, query.max_tokens), TYPICAL_OUTPUT_TOKENS)
    context = query.context
    # Frontends send one. Those of another release may send none, or one that is not known here.
    priority = context.priority
    urgent = query.urgent and priority == common_pb2.PRIORITY_CLASS_BATCH
    if urgent or priority not in _RANKS:
        priority = common_pb2.PRIORITY_CLASS_INTERACTIVE
    tier, weight = share_of(context.tenant)
    return WaitingRequest(
        number,
        request_from_proto(query),
        session,
        now - waited,
        (tier, _RANKS[priority]),
        priority,
        weight,
        now + deadline if deadline else math.inf,
        _NO_TARGET if urgent else waited + target if target else math.inf,
        expected,
        now + longest if longest else math.inf,
    )


def _out_of_range(query: router_pb2.PlaceQuery) -> BatonError:
    """Return the error for a query's times that are out of range."""
    for field in (
        "waited_seconds",
        "deadline_seconds",
        "ttft_target_seconds",
        "expected_output_tokens",
        "max_wait_seconds",
    ):
        value = getattr(query, field)
        if not 0 <= value < math.inf:
            return invalid_field(field, f"{value} is out of range: 0 or more")
    raise ValueError("all times of the query are in range")


def claim_from_proto(query: router_pb2.PlaceQuery) -> ExecutionClaim | None:
    """Return the claim of a query; None: its request has a new id."""
    if not query.HasField("claim"):
        return None
    claim = query.claim
    return ExecutionClaim(claim.key, claim.execution, claim.take_over)


def fill_placement(
    answer: router_pb2.Placement, placed: PlacedRequest, placements: PlacementService
) -> None:
    """Write a placement into an answer."""
    # In place: a message passed to another one's constructor is copied.
    decision = placed.decision
    answer.ticket = placed.ticket
    if decision.prefill_worker is not None:
        _fill_target(answer.prefill, decision.prefill_worker)
    _fill_target(answer.decode, decision.decode_worker)
    for store_id in decision.sources[:MAX_SOURCES]:
        address = placements.fleet.store_address(store_id)
        if address:
            answer.sources.add(store_id=store_id, address=address)
    prediction, ttft = answer.prediction, decision.ttft
    prediction.queue_seconds = ttft.queue_seconds
    prediction.transfer_seconds = ttft.transfer_seconds
    prediction.prefill_seconds = ttft.prefill_seconds
    prediction.cached_tokens = decision.prefill.cached_tokens
    prediction.reason = decision.reason
    coverage, block_tokens = decision.prefill.coverage, decision.computing.block_tokens
    prediction.engine_tokens = coverage.engine * block_tokens
    prediction.local_tokens = coverage.local * block_tokens
    prediction.remote_tokens = coverage.remote * block_tokens
    prediction.token_seconds = decision.decode_worker.rates.decode_step_seconds


def fill_order(
    order: worker_pb2.WorkOrder,
    waiting: WaitingRequest,
    rank: tuple[int, int],
    tenant_lead: float,
    age: float,
    since_epoch: float,
) -> None:
    """Write a request's rank in the workers' waiting lines.

    order: the message to fill in.
        order: to be filled.
        waiting: the request.
        rank: of its tier and class there.
        tenant_lead: of its tenant.
        age: seconds of computing that a second of waiting makes up for.
        since_epoch: Unix seconds less those of the clock of the request's arrival.
    """
    order.tier, order.priority_class = rank
    order.tenant_lead = tenant_lead
    order.key = waiting.key + age * since_epoch


def _fill_target(target: router_pb2.Target, worker: Worker) -> None:
    target.instance_id = worker.id
    target.incarnation = worker.incarnation
    target.address = worker.address
