"""Where requests run: from a request to a decision with its ticket, in plain values."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from baton.errors import BatonError, Reason, invalid_field
from baton.kv.keys import KEY_BYTES
from baton.request.limits import MAX_CHOICES
from services.router.policy.costs import Held, PlacementQuery, Policy, PromptTurn
from services.router.policy.estimates import UNCACHED, Estimator
from services.router.policy.explanation import (
    CandidateCosts,
    Exclusion,
    explain,
    explain_chosen,
)
from services.router.policy.pick import score_arrays
from services.router.policy.placement import (
    DEFAULT_POLICY,
    Chosen,
    Decision,
    choose,
    decide,
    possible,
)
from services.router.policy.scores import Scorer
from services.router.state.adapters import AdapterLoads
from services.router.state.columns import Booleans, Integers, WorkerColumns
from services.router.state.fleet import Fleet
from services.router.state.instances import LOWEST
from services.router.state.stream_targets import StreamPlacement
from services.router.state.tickets import InFlightLoad


class Chain(NamedTuple):
    """The block keys of a prompt in one layout."""

    layout_id: bytes
    keys: bytes
    """Keys, packed in the order of the blocks."""


class PlacementRequest(NamedTuple):
    """A request to be placed."""

    model: str
    prompt_tokens: int
    max_tokens: int
    """Most output tokens per choice."""
    chains: Sequence[Chain] = ()
    """One chain per layout that its model's workers may have."""
    n: int = 1
    """Number of choices."""
    output_tokens: int = 0
    """Above 0: a stream that resumes after this many tokens."""
    excluded: frozenset[str] = frozenset()
    """Ids of instances that must not be used."""
    tokenizer_digest: bytes = b""
    """Digest of the tokenizer that workers must have; empty: any."""
    adapter: tuple[str, bytes] | None = None
    """Name and digest of the adapter that workers must have."""
    tenant: str = ""
    seed: int = 0
    """Chooses among placements that are equally good."""
    again: bool = False
    """Whether it was placed before. It does not wait for space: its own streams may use it."""


class PlacementPlan(NamedTuple):
    """Where a request would go now. Valid until the fleet changes."""

    request: PlacementRequest
    query: PlacementQuery
    chosen: Chosen
    rank: int = 0
    """Of its class."""

    @property
    def has_room(self) -> bool:
        """Whether its workers have space for all of its choices, or it does not wait for space."""
        return self.chosen.has_room or self.request.again

    @property
    def decode_worker_id(self) -> str:
        """The worker that would decode."""
        return self.chosen.best.decode_worker.id

    @property
    def room(self) -> Held:
        """The space that it would use on the decode worker."""
        return Held(self.request.n, self.chosen.best.decode_pages)

    @property
    def worker_id(self) -> str:
        """The worker that would prefill."""
        return self.chosen.best.computing.id

    @property
    def queue_seconds(self) -> float:
        """Seconds of queued computation of that worker, in any order."""
        return self.chosen.best.computing.queue_seconds(self.query.now)

    @property
    def prefill_seconds(self) -> float:
        """Seconds that it would compute."""
        return self.chosen.best.prefill.prefill_seconds

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that it would compute."""
        return self.chosen.best.prefill.uncached_tokens

    @property
    def ttft_seconds(self) -> float:
        """Seconds until the prompt would be computed there, with what goes before it."""
        return self.chosen.best.prefill.total_seconds

    @property
    def candidates(self) -> int:
        """Number of placements that it was chosen from."""
        return len(self.chosen.candidates)


class PlacedRequest(NamedTuple):
    """A decision, and the ticket that counts its load until it is returned."""

    ticket: str
    decision: Decision
    plan: PlacementPlan
    """The plan that it follows."""


class PlacementService:
    """Places requests on a fleet. Pure except for the fleet: time is an argument.

    Args:
        fleet: where to place.
        policy: constants of the cost model.
        scorer: computes scores; array operations by default.
    """

    def __init__(
        self, fleet: Fleet, policy: Policy = DEFAULT_POLICY, scorer: Scorer = score_arrays
    ) -> None:
        self.fleet = fleet
        self._policy = policy
        self._scorer = scorer
        self._adapter_loads = AdapterLoads()

    @property
    def itl_target(self) -> float:
        """Seconds between tokens of streams whose class sets no target."""
        return self._policy.itl_target

    def place(self, request: PlacementRequest, session: int, now: float) -> PlacedRequest:
        """Choose a placement and open its ticket.

        Args:
            request: what is to be placed.
            session: the session that the ticket ends with.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: INVALID_FIELD, MODEL_NOT_FOUND, or what `policy.placement.place` raises.
        """
        return self.commit(self.plan(request, now), session, now)

    def plan(
        self,
        request: PlacementRequest,
        now: float,
        turns: Mapping[str, PromptTurn] | None = None,
        held: Mapping[str, Held] | None = None,
        rank: int = LOWEST,
    ) -> PlacementPlan:
        """Choose a placement without opening a ticket.

        Args:
            request: what is to be placed.
            now: a monotonic clock, in seconds.
            turns: when its turn would come, by worker; None: it is last everywhere.
            held: by decode worker, space held for requests that go before.
            rank: of its class; work of lower classes gives way to it.

        Raises:
            BatonError: INVALID_FIELD, MODEL_NOT_FOUND, or what `policy.placement.choose` raises.
        """
        columns, fit = self._asked(request, rank)
        query = self._query(request, now, turns, held)
        return PlacementPlan(
            request, query, choose(query, columns, self._policy, fit, self._scorer), rank
        )

    def explain(
        self, request: PlacementRequest, now: float, turns: Mapping[str, PromptTurn] | None = None
    ) -> list[CandidateCosts]:
        """Return what every placement of a request would cost now, the chosen one first.

        Changes nothing. A decode worker is listed alone, a prefill worker with the decode worker
        that is best with it. None is chosen if the request would be rejected.

        Args:
            request: what would be placed.
            now: a monotonic clock, in seconds.
            turns: when its turn would come, by worker; None: it is last everywhere.

        Raises:
            BatonError: INVALID_FIELD or MODEL_NOT_FOUND.
        """
        columns, fit = self._asked(request)
        unfit = [
            (
                worker,
                Exclusion.TOKENIZER
                if request.tokenizer_digest not in (b"", worker.tokenizer_digest)
                else Exclusion.ADAPTER,
            )
            for row, worker in enumerate(columns.workers)
            if fit is not None and not fit[row]
        ]
        return explain(self._query(request, now, turns), columns, fit, unfit, self._policy)

    def explain_plan(self, plan: PlacementPlan) -> list[CandidateCosts]:
        """Return the cost of every placement that a plan was chosen from, the chosen one first.

        The result does not change with the fleet. Workers that were not candidates are listed with
        the reason; those with another tokenizer or adapter are not kept.
        """
        return explain_chosen(plan.query, plan.chosen, self._policy)

    def decide(self, plan: PlacementPlan) -> Decision:
        """Return the decision that committing a plan would make, without opening a ticket.

        Raises:
            BatonError: what `policy.placement.decide` raises.
        """
        return decide(plan.query, plan.chosen, self._policy)

    def commit(
        self, plan: PlacementPlan, session: int, now: float, itl_target: float | None = None
    ) -> PlacedRequest:
        """Open the ticket of a plan, which must still be valid.

        Args:
            plan: what was chosen.
            session: the session that the ticket ends with.
            now: a monotonic clock, in seconds.
            itl_target: seconds between tokens that its streams are to keep, by their class; 0: by
                the policy. None: by the policy, and no class sets a target.

        Raises:
            BatonError: what `policy.placement.decide` raises.
        """
        decision = self.decide(plan)
        loads = _in_flight_loads(plan.request, decision)
        streams = None
        if itl_target is not None:
            streams = StreamPlacement(decision.decode_worker.id, plan.request.n, itl_target)
        if plan.request.adapter is not None:
            self._adapter_loads.placed(loads, plan.request.adapter[1], now)
        rank = 0 if plan.rank == LOWEST else plan.rank
        ticket = self.fleet.issue(session, now, loads, streams, rank)
        return PlacedRequest(ticket, decision, plan)

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return the seconds that a prompt takes on the fastest worker with most of it cached.

        It serves to compare requests and is no prediction: a placement takes at least this long.

        Raises:
            BatonError: what `plan` raises.
        """
        columns, fit = self._asked(request)
        query = self._query(request, 0.0, None)
        possible(query, columns, self._policy, fit)
        rows = self._computing(columns, fit)
        uncached = float(max(1, request.prompt_tokens + request.output_tokens))
        if any(match.runs for match in query.matches.values()):
            prefill = Estimator(query, columns, self._policy).prefill(int(uncached))
            uncached = float(prefill.values[UNCACHED, rows].min())
        return uncached * float(columns.token_seconds[rows].min())

    def queue_seconds(self, model: str, now: float, rank: int = LOWEST) -> dict[str, float]:
        """Return the seconds of queued computation of each worker of a model that takes prompts.

        If pools are always used, workers that only decode are left out.

        Args:
            model: the model.
            now: a monotonic clock, in seconds.
            rank: of a class; work of lower classes is left out.
        """
        columns = self.fleet.columns(model, rank)
        rows = self._computing(columns, None)
        seconds = columns.queue_seconds(now)[rows].tolist()
        return dict(zip([columns.ids[row] for row in rows.tolist()], seconds, strict=True))

    def next_turn(self, model: str, gate: float, now: float, rank: int = LOWEST) -> float:
        """Return when the next of these workers has at most `gate` seconds left to compute.

        Args:
            model: the model.
            gate: in seconds.
            now: a monotonic clock, in seconds.
            rank: as for `queue_seconds`.

        Returns:
            A time of that clock, after now; infinite: none that has more now is assumed to have
            less
                later, without a report.
        """
        columns = self.fleet.columns(model, rank)
        rows = self._computing(columns, None)
        turns = columns.dry_at[rows] - gate
        more = columns.queue_seconds(now)[rows] > gate
        turns = turns[more & (turns <= columns.computes_until[rows])]
        return float(turns.min()) if len(turns) else math.inf

    def any_room(self, model: str, held: Mapping[str, Held], rank: int = LOWEST) -> bool:
        """Return whether a worker of a model has space for one more sequence that decodes.

        Args:
            model: the model.
            held: by decode worker, space held for requests that go before.
            rank: as for `queue_seconds`.
        """
        columns = self.fleet.columns(model, rank)
        rows = (columns.active & columns.can_decode).nonzero()[0]
        return not len(rows) or bool(columns.have_room(rows, 1, 1, held).any())

    def choices_seconds(self, request: PlacementRequest) -> float:
        """Return the seconds of a worker's time that a request's choices beyond the first take.

        A sequence takes its part of each step of a batch, here on the fastest worker. Like
        `remaining_seconds` it compares requests, and predicts nothing.
        """
        if request.n == 1:
            return 0.0
        columns, _ = self._asked(request)
        if not len(columns):
            return 0.0
        tokens = min(request.max_tokens, self._policy.typical_output_tokens)
        return (request.n - 1) * tokens * float(columns.stream_seconds.min())

    def uncached_tokens(self, model: str, seconds: float, most: int) -> float:
        """Return the prompt tokens that `remaining_seconds` stand for.

        Args:
            model: the model.
            seconds: sum of `remaining_seconds`.
            most: the prompts' tokens, with those that are cached; returned if no worker is known.
        """
        columns = self.fleet.columns(model)
        rows = self._computing(columns, None)
        if not len(rows) or seconds <= 0:
            return float(most)
        return min(float(most), seconds / float(columns.token_seconds[rows].min()))

    def tokens_per_second(self, model: str) -> float:
        """Return the prompt tokens per second of the workers of `queue_seconds`, in total."""
        columns = self.fleet.columns(model)
        return float((1.0 / columns.token_seconds[self._computing(columns, None)]).sum())

    def return_tickets(self, session: int, tickets: Sequence[str]) -> None:
        """End tickets of a session; unknown ones and those of other sessions are ignored."""
        self.fleet.return_tickets(session, tickets)

    def end_session(self, session: int) -> None:
        """End every ticket of a session."""
        self.fleet.end_session(session)

    def _query(
        self,
        request: PlacementRequest,
        now: float,
        turns: Mapping[str, PromptTurn] | None,
        held: Mapping[str, Held] | None = None,
    ) -> PlacementQuery:
        known = request.prompt_tokens + request.output_tokens
        return PlacementQuery(
            prompt_tokens=request.prompt_tokens,
            max_tokens=request.max_tokens,
            n=request.n,
            output_tokens=request.output_tokens,
            excluded=request.excluded,
            matches=self.fleet.matches(request.chains, known),
            seed=request.seed,
            turns=self._with_loads(request, now, turns or {}),
            now=now,
            held=held or {},
        )

    def _with_loads(
        self, request: PlacementRequest, now: float, turns: Mapping[str, PromptTurn]
    ) -> Mapping[str, PromptTurn]:
        """Return turns to which the time to load the request's adapter is added.

        So a worker that has the adapter is preferred, until its queue is longer than the load.
        """
        if request.adapter is None:
            return turns
        _, digest = request.adapter
        found = dict(turns)
        for worker_id in self.fleet.columns(request.model).ids:
            report = self.fleet.report(worker_id)
            seconds = self._adapter_loads.seconds(report, digest, now)
            if seconds:
                turn = found.get(worker_id, PromptTurn())
                found[worker_id] = turn._replace(seconds=turn.seconds + seconds)
        return found

    def _computing(self, columns: WorkerColumns, fit: Booleans | None) -> Integers:
        """Return the rows that take prompts; stale ones if all are stale."""
        usable = columns.active if fit is None else columns.active & fit
        fresh = usable & ~columns.stale
        if fresh.any():
            usable = fresh
        if self._policy.disaggregation == "always":
            prefilling = usable & columns.can_prefill
            if prefilling.any():
                usable = prefilling
        return usable.nonzero()[0]

    def _asked(
        self, request: PlacementRequest, rank: int = LOWEST
    ) -> tuple[WorkerColumns, Booleans | None]:
        """Return the workers of the model, and which have the tokenizer and adapter; None: all."""
        _check(request)
        if not self.fleet.knows_model(request.model):
            raise BatonError(
                Reason.MODEL_NOT_FOUND,
                f"no worker serves model {request.model!r}",
                field="model",
            )
        columns = self.fleet.columns(request.model, rank)
        fit = None
        if request.tokenizer_digest:
            fit = columns.with_tokenizer(request.tokenizer_digest)
        if request.adapter is not None:
            adapted = columns.with_adapter(request.adapter)
            if adapted is not None:
                fit = adapted if fit is None else fit & adapted
        return columns, fit


def _in_flight_loads(request: PlacementRequest, decision: Decision) -> dict[str, InFlightLoad]:
    prefill, decode = decision.prefill_worker, decision.decode_worker
    uncached = decision.prefill.uncached_tokens
    if prefill is None:
        return {decode.id: InFlightLoad(uncached, request.n, decision.decode_pages)}
    return {
        prefill.id: InFlightLoad(uncached, 1, prefill.pages(request.prompt_tokens)),
        decode.id: InFlightLoad(request.output_tokens, request.n, decision.decode_pages),
    }


def _check(request: PlacementRequest) -> None:
    if request.prompt_tokens < 1:
        raise invalid_field("prompt_tokens", f"{request.prompt_tokens} is out of range: at least 1")
    if request.max_tokens < 1:
        raise invalid_field("max_tokens", f"{request.max_tokens} is out of range: at least 1")
    if not 0 < request.n <= MAX_CHOICES:
        raise invalid_field("n", f"{request.n} is out of range: 1 to {MAX_CHOICES}")
    if request.output_tokens < 0:
        raise invalid_field("output_tokens", f"{request.output_tokens} is out of range: at least 0")
    for chain in request.chains:
        if len(chain.keys) % KEY_BYTES:
            raise invalid_field(
                "chains", f"keys have {len(chain.keys)} bytes: must be a multiple of {KEY_BYTES}"
            )
