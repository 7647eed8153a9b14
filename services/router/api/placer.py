"""One place query: from the wire to a decision and back, with its ticket."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import router_pb2
from baton.kv.keys import KEY_BYTES
from baton.limits import MAX_CHOICES
from services.router.policy.costs import PlacementQuery, Policy
from services.router.policy.placement import DEFAULT_POLICY, Decision, place
from services.router.prefix_index.match import Match
from services.router.replication.hot_prefixes import HotPrefixTracker, PrefetchTask
from services.router.state.fleet import Fleet
from services.router.state.tickets import InFlightLoad
from services.router.state.worker import Worker

MAX_SOURCES = 16


@dataclass(frozen=True, slots=True)
class Replication:
    """What decides which prefixes other stores should hold, and what asks the stores."""

    prefixes: HotPrefixTracker
    submit: Callable[[PrefetchTask], None]


class Placer:
    """Places requests on a fleet. Pure but for the fleet: time comes in as an argument.

    Args:
        fleet: where to place.
        policy: constants of the cost model.
        replication: given every placement; None: hot prefixes are not replicated.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy = DEFAULT_POLICY,
        replication: Replication | None = None,
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._replication = replication

    def place(self, query: router_pb2.PlaceQuery, session: int, now: float) -> router_pb2.Placement:
        """Choose a placement and open its ticket.

        Args:
            query: as received.
            session: the stream that the ticket ends with.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: INVALID_FIELD, MODEL_NOT_FOUND, or what `placement.place` raises.
        """
        _check(query)
        model = query.context.model
        if not self._fleet.knows_model(model):
            raise BatonError(
                Reason.MODEL_NOT_FOUND, f"no worker serves the model {model!r}", field="model"
            )
        workers = self._fleet.workers(model)
        if query.tokenizer_digest:
            workers = [one for one in workers if one.tokenizer_digest == query.tokenizer_digest]
        if query.context.adapter:
            adapter = query.context.adapter, query.adapter_digest
            workers = [one for one in workers if adapter in one.adapters]
        matches = {chain.layout_id: self._match(chain) for chain in query.chains}
        decision = place(
            PlacementQuery(
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
        if self._replication is not None:
            self._replicate(self._replication, query, matches, decision, workers, now)
        loads = _in_flight_loads(query, decision)
        ticket = self._fleet.tickets.issue(session, now, loads)
        self._fleet.load_changed(loads)
        return self._placement(query.correlation_id, ticket, decision)

    def _replicate(
        self,
        replication: Replication,
        query: router_pb2.PlaceQuery,
        matches: Mapping[bytes, Match],
        decision: Decision,
        workers: Sequence[Worker],
        now: float,
    ) -> None:
        layout_id = decision.decode_worker.layout_id
        for chain in query.chains:
            if chain.layout_id == layout_id:
                task = replication.prefixes.record_placement(
                    chain.keys, matches[layout_id], decision, workers, query.context.tenant, now
                )
                if task is not None:
                    replication.submit(task)
                return

    def _match(self, chain: router_pb2.Chain) -> Match:
        packed = chain.keys
        return self._fleet.index.match(
            [packed[i : i + KEY_BYTES] for i in range(0, len(packed), KEY_BYTES)]
        )

    def _placement(
        self, correlation_id: int, ticket: str, decision: Decision
    ) -> router_pb2.Placement:
        placement = router_pb2.Placement(correlation_id=correlation_id, ticket=ticket)
        if decision.prefill_worker is not None:
            _fill_target(placement.prefill, decision.prefill_worker)
        _fill_target(placement.decode, decision.decode_worker)
        for store_id in decision.sources[:MAX_SOURCES]:
            address = self._fleet.store_address(store_id)
            if address:
                placement.sources.add(store_id=store_id, address=address)
        prediction, ttft = placement.prediction, decision.ttft
        prediction.queue_seconds = ttft.queue_seconds
        prediction.transfer_seconds = ttft.transfer_seconds
        prediction.prefill_seconds = ttft.prefill_seconds
        prediction.cached_tokens = decision.prefill.cached_tokens
        prediction.reason = decision.reason
        return placement


def _fill_target(target: router_pb2.Target, worker: Worker) -> None:
    # In place: a message that is given to another one's constructor is copied.
    target.instance_id = worker.id
    target.incarnation = worker.incarnation
    target.address = worker.address


def _in_flight_loads(query: router_pb2.PlaceQuery, decision: Decision) -> dict[str, InFlightLoad]:
    prefill, decode = decision.prefill_worker, decision.decode_worker
    uncached = decision.prefill.uncached_tokens
    if prefill is None:
        return {decode.id: InFlightLoad(uncached, query.n or 1, decision.decode_pages)}
    return {
        prefill.id: InFlightLoad(uncached, 1, prefill.pages(query.prompt_tokens)),
        decode.id: InFlightLoad(query.output_tokens, query.n or 1, decision.decode_pages),
    }


def _check(query: router_pb2.PlaceQuery) -> None:
    if query.prompt_tokens < 1:
        raise invalid_field("prompt_tokens", f"{query.prompt_tokens} is out of range: at least 1")
    if query.max_tokens < 1:
        raise invalid_field("max_tokens", f"{query.max_tokens} is out of range: at least 1")
    if not 0 <= query.n <= MAX_CHOICES:
        raise invalid_field("n", f"{query.n} is out of range: 0 to {MAX_CHOICES}")
    if query.output_tokens < 0:
        raise invalid_field("output_tokens", f"{query.output_tokens} is out of range: at least 0")
