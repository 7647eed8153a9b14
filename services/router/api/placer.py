"""Answers one place query: from the wire to a decision and back, with its ticket."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2, router_pb2
from baton.kv.keys import KEY_BYTES
from services.router.policy.costs import Policy, Query, Worker
from services.router.policy.placement import POLICY, Decision, place
from services.router.prefix_index.match import Match
from services.router.replication.hot_prefixes import Hint, HotPrefixes
from services.router.state.fleet import Fleet
from services.router.state.tickets import Pledge

MAX_CHOICES = 16
MAX_SOURCES = 16


@dataclass(frozen=True, slots=True)
class Spread:
    """Who decides what other stores should hold, and who is told."""

    hot: HotPrefixes
    tell: Callable[[Hint], None]


class Placer:
    """Places requests on a fleet. Plain: time comes in as an argument.

    Args:
        fleet: where to place.
        policy: constants of the cost model.
        spread: hears of every placement; None: hot prefixes stay where they are.
    """

    def __init__(self, fleet: Fleet, policy: Policy = POLICY, spread: Spread | None = None) -> None:
        self._fleet = fleet
        self._policy = policy
        self._spread = spread

    def place(self, query: router_pb2.PlaceQuery, session: int, now: float) -> router_pb2.Placement:
        """Choose a placement and open its ticket.

        Args:
            query: as it came.
            session: that the ticket dies with.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: INVALID_FIELD, MODEL_NOT_FOUND, or what `placement.place` raises.
        """
        _check(query)
        model = query.context.model
        if not self._fleet.knows(model):
            raise BatonError(
                Reason.MODEL_NOT_FOUND, f"no worker serves the model {model!r}", field="model"
            )
        workers = self._fleet.candidates(model)
        matches = {chain.layout_id: self._match(chain) for chain in query.chains}
        decision = place(
            Query(
                prompt_tokens=query.prompt_tokens,
                max_tokens=query.max_tokens,
                n=query.n or 1,
                output_tokens=query.output_tokens,
                excluded=frozenset(query.excluded_instances),
                matches=matches,
                seed=crc32(query.context.request_id.encode(), query.correlation_id & 0xFFFFFFFF),
            ),
            workers,
            self._policy,
        )
        if self._spread is not None:
            self._suggest(self._spread, query, matches, decision, workers, now)
        pledges = _pledges(query, decision)
        ticket = self._fleet.tickets.issue(session, now, pledges)
        self._fleet.pledges_changed(pledges)
        return self._placement(query.correlation_id, ticket, decision)

    def _suggest(
        self,
        spread: Spread,
        query: router_pb2.PlaceQuery,
        matches: Mapping[bytes, Match],
        decision: Decision,
        workers: Sequence[Worker],
        now: float,
    ) -> None:
        layout_id = decision.writer.layout_id
        for chain in query.chains:
            if chain.layout_id == layout_id:
                tenant = query.context.tenant
                match = matches[layout_id]
                hint = spread.hot.placed(chain.keys, match, decision, workers, tenant, now)
                if hint is not None:
                    spread.tell(hint)
                return

    def _match(self, chain: router_pb2.Chain) -> Match:
        packed = chain.keys
        return self._fleet.index.match(
            [packed[i : i + KEY_BYTES] for i in range(0, len(packed), KEY_BYTES)]
        )

    def _placement(
        self, correlation_id: int, ticket: str, decision: Decision
    ) -> router_pb2.Placement:
        parts = decision.parts
        sources = (
            (store_id, self._fleet.store_address(store_id))
            for store_id in decision.sources[:MAX_SOURCES]
        )
        return router_pb2.Placement(
            correlation_id=correlation_id,
            ticket=ticket,
            prefill=_target(decision.reader) if decision.reader is not None else None,
            decode=_target(decision.writer),
            sources=[
                kvstore_pb2.KvSource(store_id=store_id, address=address)
                for store_id, address in sources
                if address
            ],
            prediction=router_pb2.Prediction(
                queue_seconds=parts.queue,
                transfer_seconds=parts.transfer,
                prefill_seconds=parts.prefill,
                cached_tokens=decision.reading.cached_tokens,
                reason=decision.reason,
            ),
        )


def _target(worker: Worker) -> router_pb2.Target:
    return router_pb2.Target(
        instance_id=worker.id, incarnation=worker.incarnation, address=worker.address
    )


def _pledges(query: router_pb2.PlaceQuery, decision: Decision) -> dict[str, Pledge]:
    reader, writer = decision.reader, decision.writer
    uncached = decision.reading.uncached_tokens
    if reader is None:
        return {writer.id: Pledge(uncached, query.n or 1, decision.pages)}
    return {
        reader.id: Pledge(uncached, 1, reader.blocks(query.prompt_tokens)),
        writer.id: Pledge(query.output_tokens, query.n or 1, decision.pages),
    }


def _check(query: router_pb2.PlaceQuery) -> None:
    if query.prompt_tokens < 1:
        raise BatonError(
            Reason.INVALID_FIELD, "prompt_tokens must be at least 1", field="prompt_tokens"
        )
    if query.max_tokens < 1:
        raise BatonError(Reason.INVALID_FIELD, "max_tokens must be at least 1", field="max_tokens")
    if not 0 <= query.n <= MAX_CHOICES:
        raise BatonError(Reason.INVALID_FIELD, f"n must be 1 to {MAX_CHOICES}", field="n")
    if query.output_tokens < 0:
        raise BatonError(
            Reason.INVALID_FIELD, "output_tokens must not be negative", field="output_tokens"
        )
