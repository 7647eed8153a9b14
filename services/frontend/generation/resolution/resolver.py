"""Resolve a client's request to what runs: the model, its parameters, a grammar and tokens."""

import secrets
from collections.abc import Callable

from baton.settings import FrontendLimits
from baton.tenancy.records.providers import Provider
from services.frontend.access.key_limits import KeyLimits
from services.frontend.generation.at_provider.hedge import with_hedge
from services.frontend.generation.at_provider.resolve import resolve_at_provider
from services.frontend.generation.resolution.answers import Answers
from services.frontend.generation.resolution.model_finder import ModelFinder
from services.frontend.generation.resolution.truncation import TurnTruncation
from services.frontend.models.policies import Policies
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import GenerationRequest, ResolvedRequest
from services.frontend.requests.validation.model_checks import check_model, with_defaults
from services.frontend.requests.validation.resolve import resolve
from services.frontend.requests.validation.validate import check

_SEED_BITS = 63
"""Of a seed that is drawn: it fits into an int64."""


class RequestResolver:
    """Validates requests and resolves their names, in a fixed order. Runs on the event loop.

    Args:
        models: finds models.
        prompts: tokenizes prompts, without turns that do not fit if a request says so.
        answers: knows how models write their outputs.
        limits: bounds of clients' parameters.
        policies: of the models.
        require_open: raises the error of requests that a provider cannot get now.
    """

    def __init__(
        self,
        models: ModelFinder,
        prompts: TurnTruncation,
        answers: Answers,
        limits: FrontendLimits,
        policies: Policies,
        require_open: Callable[[Provider], None],
    ) -> None:
        self._models = models
        self._prompts = prompts
        self._answers = answers
        self._limits = limits
        self._policies = policies
        self._require_open = require_open

    async def resolve(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        deadline: float,
        limits: KeyLimits | None,
        max_wait: float | None = None,
    ) -> ResolvedRequest:
        """Return the resolved request.

        Args:
            request: the client's request.
            record: filled in.
            deadline: end of the wait for a model, by `monotonic`.
            limits: the limits of the caller; None: there are no keys.
            max_wait: as for `ModelFinder.find`.

        Raises:
            BatonError: the first error found, or an error of `ModelFinder.find`.
        """
        who = record.principal
        check(request, self._limits, who, self._models.require)
        found = await self._models.find(
            who, request.model, request.adapter, request.prompt, deadline, max_wait
        )
        self._policies.require_class(found, who.capped(request.priority))
        record.served_model, record.adapter = found.model.name, found.adapter
        if (at := found.model.provided) is not None:
            self._require_open(at.provider)
        allowed, most = (limits.context, limits.most_tokens) if limits else (None, None)
        context = RequestContextLimit.of(found.model, allowed)
        of_tier = self._policies.context_tokens(who, found)
        context = context.within(of_tier, who.tenant.tier.value)
        if at is not None:
            made = resolve_at_provider(request, found, at, who, context, most)
            return with_hedge(made, request, self._models.hedge_of(at), who)
        request = with_defaults(request, found.model)
        check_model(request, found.model)
        options, max_tokens = request.prompt_options, request.sampling.max_tokens
        prompt = await self._prompts.encode(
            found.model, request.prompt, context, options, max_tokens
        )
        seed = request.sampling.seed if request.resume is None else request.resume.seed
        if seed is None:
            seed = secrets.randbits(_SEED_BITS)
        request, reader = await self._answers.plan(request, found.model, prompt.ids, seed)
        return resolve(request, found, prompt, seed, who, context, most, reader)
