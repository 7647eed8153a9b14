"""The interface of every API to the frontend: admits requests and starts them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Literal, get_args

from baton.auto.classifier import Classifier
from baton.errors import BatonError
from baton.on_demand.state import ModelState as TurnState
from baton.request.prices import PriceTable
from baton.settings import FrontendSettings
from baton.tenancy.directory.principal import Principal
from baton.tenancy.limits.limit_set import LimitReservation
from baton.tenancy.records.tenants import Scope
from services.frontend.access.request_limits import RequestLimits
from services.frontend.generation.accounting.costs import price_of
from services.frontend.generation.accounting.metering import Metering
from services.frontend.generation.admission import ActiveRequest, ActiveRequests, stopping
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.factory import GenerationFactory, RunnableRequest
from services.frontend.generation.fallback import Fallbacks, ModelTrial
from services.frontend.generation.generation import Generation
from services.frontend.generation.reservations import RequestReservations
from services.frontend.generation.resolution.answers import Answers
from services.frontend.generation.resolution.auto import UNSUITABLE, AutoModels, no_model
from services.frontend.generation.resolution.model_finder import ModelFinder
from services.frontend.generation.resolution.prompts import PromptEncoder
from services.frontend.generation.resolution.resolver import RequestResolver
from services.frontend.generation.resolution.tokenization import Tokenization
from services.frontend.generation.resolution.truncation import TurnTruncation
from services.frontend.generation.turns import LoopTurns
from services.frontend.metrics import AUTO_CHOICES, FALLBACKS
from services.frontend.models.model import AutoModel, ResolvedModel, ServedModel
from services.frontend.models.policies import Policies
from services.frontend.models.registry import Registry
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import GenerationRequest
from services.frontend.requests.teams import TeamMetrics
from services.frontend.text.tokenizer import TokenizerThreads

ModelState = Literal["ready", "starting", "on_demand", "away"]
"""Of a model without workers: one starts for waiting requests, or will for the first one; or none
is expected. The best one first."""
_STOP_SECONDS = 1.0
_BEGIN_PER_TURN = 32
"""Requests per turn. Fewer would give a burst of 64 its first tokens little earlier, and cost each
of them more: messages to the router and the workers would be split."""


class Inference:
    """Admits requests and starts them, for every API."""

    def __init__(
        self,
        registry: Registry,
        factory: GenerationFactory,
        waiting: WorkerWaitQueue,
        suspects: Suspects,
        threads: TokenizerThreads,
        settings: FrontendSettings,
        metering: Metering | None = None,
        request_limits: RequestLimits | None = None,
        prices: PriceTable | None = None,
        policies: Policies | None = None,
        wait_of: Callable[[str], float] = lambda _: 0.0,
        classifier: Classifier | None = None,
    ) -> None:
        """Connect the parts.

        Args:
            registry: the models.
            factory: creates the generations of requests.
            waiting: holds requests while no worker is available.
            suspects: tracks requests that may have crashed workers.
            threads: where long prompts are tokenized.
            settings: limits of requests.
            metering: records the usage of requests; None: usage is not recorded.
            request_limits: limits of keys, projects and tenants; None: there are no keys.
            prices: prices of requests, in force when they begin; None: there are none.
            policies: of models; None: there are none.
            wait_of: returns the predicted seconds that a new request for a model waits.
            classifier: labels requests for `auto`; None: there is none.
        """
        self.registry = registry
        self._factory = factory
        self.draining = False
        """Whether the process is about to stop: new requests should go elsewhere."""
        self._waiting = waiting
        self._suspects = suspects
        self._metering = metering
        self._prices = prices or PriceTable({})
        self._teams = TeamMetrics(settings.teams.top) if settings.teams.top else None
        self._reservations = RequestReservations(request_limits)
        self.limits_of = self._reservations.limits_of
        """Returns the limits of a caller, and records them for the response's headers."""
        self.limits = settings.limits
        """The bounds of clients' parameters."""
        self._active = ActiveRequests(settings.limits.max_requests)
        self.turns = LoopTurns(_BEGIN_PER_TURN)
        """Spreads bursts of work over turns of the loop."""
        prompts = PromptEncoder(threads, self.turns, settings.text.special_tokens, settings.limits)
        self.policies = policies or Policies()
        """Policies of models."""
        models = ModelFinder(registry, waiting, self.policies)
        starting = settings.cluster.model_start_seconds
        auto = AutoModels(registry, self._prices, wait_of, starting, classifier)
        self._fallbacks = Fallbacks(self.policies, models, auto)
        self.tokenization = Tokenization(registry, models, prompts, threads, settings.limits)
        """Serves tokenize and detokenize requests."""
        self.truncation = TurnTruncation(prompts, threads)
        """Finds which turns of a conversation do not fit."""
        self._resolver = RequestResolver(
            models,
            self.truncation,
            Answers(settings.text),
            settings.limits,
            self.policies,
            factory.require_open,
        )

    def state_of(self, model: ServedModel, adapter: str = "") -> ModelState:
        """Return whether a request for a model, or one of its adapters, could run now."""
        turn = self.registry.turns.get(model.name)
        if model.provided is None and turn is not None and turn.holds:
            return "starting" if turn.state is TurnState.STARTING else "on_demand"
        if model.provided is not None or self.registry.can_serve(adapter or model.name):
            return "ready"
        if not self.registry.is_starting(model.name):
            return "away"
        return "starting" if self._waiting.waits_for(model.name) else "on_demand"

    def request_tokens(self, model: ServedModel, adapter: str, who: Principal) -> int:
        """Return the most tokens of a caller's request for a model, prompt and output together."""
        found = ResolvedModel(model, adapter, b"")
        limit = RequestContextLimit.of(model, self._reservations.context_of(who))
        of_tier = self.policies.context_tokens(who, found)
        return limit.within(of_tier, who.tenant.tier.value).tokens

    def auto_of(self, who: Principal) -> AutoModel | None:
        """Return what `auto` is to a caller; None: it has no rules, or none of the models that they
        may choose is for the caller."""
        targets = tuple(
            one
            for one in self.registry.auto_targets(who)
            if self.policies.permitted(who, one.model.name, one.adapter)
        )
        if not targets:
            return None
        states = {self.state_of(one.model, one.adapter) for one in targets}
        return AutoModel(
            targets,
            next(state for state in get_args(ModelState) if state in states),
            max(self.request_tokens(one.model, one.adapter, who) for one in targets),
        )

    async def idle(self) -> None:
        """Return once no request runs."""
        await self._active.wait_idle()

    async def stop(self) -> None:
        """End running requests with an error; return when their clients have received it."""
        error = stopping()
        self._active.end_all(error)
        self._waiting.fail_all(error)
        with suppress(TimeoutError):  # the servers disconnect clients that do not read even this
            async with asyncio.timeout(_STOP_SECONDS):
                await self._active.wait_idle()

    async def start(
        self, request: GenerationRequest, record: RequestRecord, seconds: float | None = None
    ) -> Generation:
        """Admit a request.

        Args:
            request: the client's request.
            record: filled in.
            seconds: until its deadline; None: the default.

        Raises:
            BatonError: it is rejected.
        """
        return (await self._start(request, record, seconds, 1))[0]

    async def start_all(
        self, requests: Sequence[GenerationRequest], record: RequestRecord
    ) -> list[Generation]:
        """Admit several requests that are one request for the client: all of them or none.

        Args:
            requests: the client's requests.
            record: the record of all of them, filled in.

        Raises:
            BatonError: one of the requests is rejected.
        """
        started: list[Generation] = []
        counted: LimitReservation | None = None
        try:
            for request in requests:
                if started and self.registry.is_auto(request.model):  # a response has one model
                    request = replace(request, model=started[0].request.named)
                count = 0 if started else len(requests)
                generation, reservation = await self._start(request, record, None, count)
                started.append(generation)
                counted = counted or reservation
        except BaseException:
            for generation in started:
                generation.close()
            self._reservations.return_requests(record, counted)
            raise
        return started

    async def _start(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        seconds: float | None,
        count: int,
    ) -> tuple[Generation, LimitReservation | None]:
        """Admit a request, which counts as the given number of requests for limits."""
        arrived = monotonic()
        if not record.model:  # with several prompts, the model that was chosen for the first
            record.name_model(request.model)
        record.principal.require(Scope.INFERENCE)
        if seconds is None:
            seconds = request.timeout_seconds or self.limits.default_deadline_seconds
        deadline = arrived + min(seconds, self.limits.max_deadline_seconds)
        if self._metering is not None:
            self._metering.check(record.principal)
        active = self._active.enter()
        try:
            errors: dict[str, BatonError] = {}
            for trial in await self._fallbacks.trials(request, record):
                known = errors.get(trial.request.model)
                if trial.chosen and known is not None and known.reason in UNSUITABLE:
                    continue  # a longer wait does not help it
                try:
                    found = await self._run(trial, record, active, arrived, deadline, count)
                    break
                except BatonError as error:
                    if not trial.passes(error):
                        raise
                    errors[trial.request.model] = error
            else:  # the last one passes only if rules chose it
                raise no_model(record.rule or "", errors)
            active.chosen = True
            answers = found[0].request
            if self.registry.is_auto(request.model):
                AUTO_CHOICES.labels(record.rule or "", answers.named).inc()
            elif answers.requested:
                FALLBACKS.labels(self._fallbacks.model_of(request), answers.named).inc()
            return found
        except BaseException:
            active.leave()
            raise

    async def _run(
        self,
        trial: ModelTrial,
        record: RequestRecord,
        active: ActiveRequest,
        arrived: float,
        deadline: float,
        count: int,
    ) -> tuple[Generation, LimitReservation | None]:
        """Run a request on one model; if others may follow, return once it has output."""
        request, reservation = trial.request, None
        try:
            allowed = self.limits_of(record)
            resolved = await self._resolver.resolve(
                request, record, deadline, allowed, trial.max_wait
            )
            if trial.requested:
                resolved = replace(resolved, requested=trial.requested)
            suspect = not resolved.body and self._suspects.check(resolved)
            price = price_of(self._prices, resolved, record)
            reservation = await self._reservations.reserve(allowed, resolved, price, count)
            generation = await self._factory.make(
                RunnableRequest(
                    *(request, resolved, record, suspect, price, arrived, deadline),
                    trial.max_wait,
                ),
                partial(self._ended, record, active, reservation),
            )
        except BaseException:
            self._reservations.settle(reservation, 0)
            raise
        self._active.add(generation)
        if trial.max_wait is not None:
            try:
                await generation.hold()
            except BaseException as error:
                if isinstance(error, BatonError) and trial.passes(error):
                    generation.abandon()
                else:
                    generation.close()
                raise
        return generation, reservation

    def _ended(
        self,
        record: RequestRecord,
        active: ActiveRequest,
        reservation: LimitReservation | None,
        generation: Generation,
    ) -> None:
        self._active.remove(generation)
        if generation.abandoned:
            self._reservations.settle(reservation, 0)
            self._reservations.return_requests(record, reservation)
            if active.chosen:
                active.leave()
            return
        generation.add_to(record)
        self._reservations.settle(reservation, generation.used_tokens, generation.cost or 0)
        if self._teams is not None:
            who = record.principal
            self._teams.count((who.tenant.id, who.project.id), generation.outcome, generation.usage)
        active.leave()
