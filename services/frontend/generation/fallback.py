"""Which models may answer a request, in which order, and when the next one is asked."""

from dataclasses import replace
from typing import NamedTuple

from baton.auto.rules import AutoChoice
from baton.errors import BatonError, Reason
from baton.tenancy.directory.principal import Principal
from services.frontend.generation.resolution.auto import (
    UNSUITABLE,
    AutoModels,
    field_of_token_ids,
)
from services.frontend.generation.resolution.model_finder import ModelFinder
from services.frontend.models.policies import Policies, class_name
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import Fallback, GenerationRequest

_AWAY = (
    *(Reason.NO_WORKER, Reason.MODEL_LOADING, Reason.OVERLOADED, Reason.WORKER_LOST),
    *(Reason.UNAVAILABLE, Reason.NO_CAPACITY, Reason.MODEL_NOT_FOUND),
)
"""A model does not answer now; another one may."""
_OF_REQUEST = (
    *(Reason.DEADLINE, Reason.CANCELLED, Reason.ABORTED, Reason.DRAINING),
    *(Reason.ALREADY_EXISTS, Reason.SLOW_CONSUMER, Reason.INTERNAL),
)
"""The request ends, whatever model it is sent to."""


class ModelTrial(NamedTuple):
    """A model that is asked for an answer."""

    request: GenerationRequest
    max_wait: float | None
    """The longest predicted wait, in seconds, before the next one is asked; None: the last one."""
    requested: str = ""
    """The name that the client sent; empty: this model was requested."""
    chosen: bool = False
    """Whether rules chose it: then the next one is asked also if this one, which may be asked for
    as long as for any request, cannot serve the request."""

    def passes(self, error: BatonError) -> bool:
        """Return whether the next model is asked after an error."""
        if self.max_wait is None:
            return self.chosen and error.reason in UNSUITABLE
        return error.reason not in _OF_REQUEST if self.requested else error.reason in _AWAY


class Fallbacks:
    """Decides which models are asked. Runs on the event loop.

    A model is asked by resolving the request for it like any other, so that one without what the
    request needs, with too small a context or not permitted is passed over.

    Args:
        policies: of the models.
        models: knows what names mean.
        auto: chooses models of requests for `auto`.
    """

    def __init__(self, policies: Policies, models: ModelFinder, auto: AutoModels) -> None:
        self._policies = policies
        self._models = models
        self._auto = auto

    def model_of(self, request: GenerationRequest) -> str:
        """Return the model or adapter that a request is for."""
        return request.adapter or self._models.meaning(request.model, request.prompt)

    async def trials(self, request: GenerationRequest, record: RequestRecord) -> list[ModelTrial]:
        """Return the models that are asked, in order.

        Args:
            request: the client's request, which may be invalid.
            record: of the request, with its caller; filled in.

        Raises:
            BatonError: of `AutoModels.choose`.
        """
        if not self._auto.means(request.model):
            return self._by_policy(request, record.principal)
        choice = await self._auto.choose(request, record.principal)
        record.rule = choice.rule
        return self._by_rules(request, choice)

    def _by_rules(self, request: GenerationRequest, choice: AutoChoice) -> list[ModelTrial]:
        """Return all models with a bound of the wait, if there is one, and then without: the first
        that can serve the request is waited for."""
        bounds: list[float | None] = [None]
        if choice.max_wait and request.fallback is not Fallback.NEVER and _portable(request):
            bounds = [choice.max_wait, None]
        wanted = [(model, bound) for bound in bounds for model in choice.models]
        return [
            ModelTrial(
                replace(request, model=model, whole=True, take_over=request.take_over or at > 0),
                bound,
                request.model,
                chosen=True,
            )
            for at, (model, bound) in enumerate(wanted)
        ]

    def _by_policy(self, request: GenerationRequest, who: Principal) -> list[ModelTrial]:
        """Return the requested model, its fallbacks, and the requested one again."""
        last = ModelTrial(request, None)
        policy = self._policies.get(self.model_of(request))
        if policy is None or not policy.fallbacks or request.fallback is Fallback.NEVER:
            return [last]
        if request.fallback is not Fallback.ALLOW and (
            policy.fallback == "ask" or class_name(who.capped(request.priority)) in policy.queueing
        ):
            return [last]
        if not _portable(request):
            return [last]
        others = [
            ModelTrial(
                replace(request, model=other, adapter="", take_over=True, whole=True),
                policy.wait_seconds,
                request.adapter or request.model,
            )
            for other in policy.fallbacks
        ]
        first = ModelTrial(request, policy.wait_seconds)
        return [first, *others, ModelTrial(replace(request, take_over=True), None)]


def _portable(request: GenerationRequest) -> bool:
    """Return whether a request means the same to any model.

    Token ids, and the length to which a prompt is cut, do not. Prompts of one body have one answer,
    so that they cannot go to several models.
    """
    return not (
        field_of_token_ids(request) is not None
        or request.prompt_options.truncate_tokens is not None
        or request.resume is not None
        or request.prompt_count > 1
    )
