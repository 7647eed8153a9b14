"""Explanations on the wire: of the latest decisions, and of a hypothetical one now."""

import time
from collections.abc import Callable

from baton.errors import BatonError, invalid_field
from baton.internal.v1 import router_pb2
from services.router.api.queries import request_from_proto
from services.router.policy.decision_log import DecisionLog, DecisionRecord
from services.router.policy.explanation import CandidateCosts
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.cut_match import CutMatch
from services.router.prefix_index.holder_cuts import HolderCut, holder_cuts

MAX_CUTS = 32
"""Holders per layout in an explanation."""


class Explainer:
    """Explains decisions to operators. Changes nothing.

    Args:
        placements: decides where requests go.
        decisions: the latest ones.
        clock: a monotonic clock, in seconds, as used by the decisions.
        wall_clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        placements: PlacementService,
        decisions: DecisionLog,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._placements = placements
        self._decisions = decisions
        self._clock = clock
        self._wall_clock = wall_clock

    def explain(self, asked: router_pb2.ExplainRequest) -> router_pb2.ExplainResponse:
        """Return the explanations of a request.

        Raises:
            BatonError: INVALID_FIELD: the request is neither named nor described, or malformed.
        """
        response = router_pb2.ExplainResponse()
        subject = asked.WhichOneof("subject")
        if subject == "query":
            record, candidates = self._preview(asked.query)
            self._fill(response.explanations.add(), record, candidates)
        elif subject == "request_id" and asked.request_id:
            response.explanations.extend(self.decisions(asked.request_id))
        else:
            raise invalid_field(
                "subject", "must be a request id, or a query that describes a request"
            )
        return response

    def decisions(self, request_id: str, most: int | None = None) -> list[router_pb2.Explanation]:
        """Return the latest decisions of a request that are known, the latest first.

        Args:
            request_id: the request.
            most: how many; None: all.
        """
        found = []
        for record in self._decisions.of(request_id)[:most]:
            plan = record.plan
            costs = [] if plan is None else self._placements.explain_plan(plan)
            explanation = router_pb2.Explanation()
            self._fill(explanation, record, costs)
            found.append(explanation)
        return found

    def _preview(self, query: router_pb2.PlaceQuery) -> tuple[DecisionRecord, list[CandidateCosts]]:
        """Return what would be decided now, and its candidates."""
        request, now = request_from_proto(query), self._clock()
        record = DecisionRecord("", request, now, query.waited_seconds)
        candidates: list[CandidateCosts] = []
        try:
            candidates = self._placements.explain(request, now)
            plan = self._placements.plan(request, now)
            reason = self._placements.decide(plan).reason
        except BatonError as error:
            return record._replace(refusal=error), candidates
        return record._replace(plan=plan, reason=reason), candidates

    def _fill(
        self,
        into: router_pb2.Explanation,
        record: DecisionRecord,
        candidates: list[CandidateCosts],
    ) -> None:
        request, turn = record.request, record.turn
        into.request_id = record.request_id
        into.tenant, into.model = request.tenant, request.model
        into.prompt_tokens = request.prompt_tokens
        into.decided_seconds = self._wall_clock() - self._clock() + record.decided_at
        into.waited_seconds = record.waited
        into.reason = record.reason
        if turn is not None:
            into.turn.order.tier = turn.tier
            into.turn.order.priority_class = turn.priority_class
            into.turn.order.tenant_lead = turn.tenant_lead
            into.turn.order.key = turn.key
            into.turn.ahead, into.turn.waiting = turn.ahead, turn.waiting
            into.turn.weight = turn.weight
        if record.plan is not None:
            for match in record.plan.query.matches.values():
                if isinstance(match, CutMatch):
                    into.cuts.extend(map(_cut_message, holder_cuts(match)[:MAX_CUTS]))
        if record.refusal is not None:
            into.refusal.CopyFrom(record.refusal.to_status())
        for costs in candidates:
            fields = costs._asdict()
            fields["exclusion"] = costs.exclusion.value if costs.exclusion is not None else ""
            into.candidates.add(**fields)


def _cut_message(cut: HolderCut) -> router_pb2.HolderCut:
    return router_pb2.HolderCut(
        holder=cut.holder,
        tier=cut.tier,
        cut_tokens=cut.cut_tokens,
        prefix_tokens=cut.prefix_tokens,
        groups=[
            router_pb2.GroupLack(
                kind=lack.group.kind,
                span_tokens=lack.group.span_tokens,
                needed_blocks=lack.needed_blocks,
                missing_blocks=lack.missing_blocks,
            )
            for lack in cut.groups
        ],
    )
