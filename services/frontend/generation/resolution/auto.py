"""Requests for `auto`: the models that they may run as, by the rules."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from baton.auto.classifier import Classifier
from baton.auto.features import RequestFeatures, tokens_of
from baton.auto.rules import AutoChoice
from baton.errors import BatonError, Reason, invalid_field
from baton.request.prices import PriceTable
from baton.sampling import PARAMETERS
from baton.tenancy.directory.principal import Principal
from services.frontend.models.policies import class_name
from services.frontend.models.registry import Registry
from services.frontend.output.definitions import CallMode
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    TextPrompt,
    TokenPrompt,
)

UNSUITABLE = frozenset(
    {
        Reason.CONTEXT_LENGTH_EXCEEDED,
        Reason.MODEL_NOT_ALLOWED,
        Reason.MODEL_NOT_FOUND,
        Reason.TEMPLATE_FAILED,
        Reason.UNAVAILABLE,
        Reason.UNSUPPORTED_PARAMETER,
    }
)
"""Errors of a model that another one may not have."""
_OUTPUT_TOKENS = 256
"""Of a request without `max_tokens`, to compare prices."""
_UNPRICED = 2**63
_OF_TOKENS = tuple(each for each in PARAMETERS if each.limits.token_ids)


class AutoModels:
    """Chooses the models of requests for `auto`. Runs on the event loop.

    Args:
        registry: the models, and the rules.
        prices: of the models.
        wait_of: returns the predicted seconds that a new request for a model waits.
        start_seconds: the longest wait for a model that is to be started.
        classifier: labels requests; None: there is none.
    """

    def __init__(
        self,
        registry: Registry,
        prices: PriceTable,
        wait_of: Callable[[str], float] = lambda _: 0.0,
        start_seconds: float = 0.0,
        classifier: Classifier | None = None,
    ) -> None:
        self._registry = registry
        self._prices = prices
        self._wait_of = wait_of
        self._start_seconds = start_seconds
        self._classifier = classifier

    def means(self, name: str) -> bool:
        """Return whether a name means that rules choose the model."""
        return self._registry.is_auto(name)

    async def choose(self, request: GenerationRequest, who: Principal) -> AutoChoice:
        """Return the models that a checked request for `auto` may run as, best first.

        Those are left out that the caller may not use, and those without workers if another one has
        any.

        Raises:
            BatonError: MODEL_NOT_FOUND: no rules are set; MODEL_NOT_ALLOWED: the caller may use
                none of the models; INVALID_FIELD or UNSUPPORTED_PARAMETER: a field has no meaning
                without a model.
        """
        rules = self._registry.auto.rules
        if rules is None:
            raise BatonError(
                Reason.MODEL_NOT_FOUND,
                "model 'auto' has no rules in this cluster: name a model, which /v1/models lists",
                field="model",
            )
        _check(request)
        features = features_of(request, who)

        def cost_of(name: str) -> int:
            return self._cost(name, features, who)

        if rules.uses_labels and self._classifier is not None:
            features = replace(features, label=await self._classifier.label(features))
        choice = rules.choose(features, self._wait, cost_of)
        permitted = self._registry.aliases.permitted
        allowed = [name for name in choice.models if permitted(who, name)]
        if not allowed:
            raise BatonError(
                Reason.MODEL_NOT_ALLOWED,
                f"the API key permits none of the models that auto chooses for this request "
                f"({_by(choice.rule)}); /v1/models lists permitted models",
                field="model",
            )
        expected = [name for name in allowed if self._registry.expects(name)]
        return choice._replace(models=tuple(expected or allowed[:1]))

    def _wait(self, name: str) -> float:
        try:
            found = self._registry.get(name).model
        except BatonError:  # it cannot serve, and is left out
            return 0.0
        if found.provided is not None:
            return 0.0
        if self._registry.is_starting(found.name):
            return self._start_seconds
        return self._wait_of(found.name)

    def _cost(self, name: str, features: RequestFeatures, who: Principal) -> int:
        try:
            found = self._registry.get(name)
        except BatonError:  # it cannot serve, and is left out
            return _UNPRICED
        batch = features.priority_class == "batch"
        price = self._prices.find(
            found.model.name, found.adapter, who.tenant.tier, batch=batch, own=found.model.own_price
        )
        if price is None:
            return _UNPRICED
        return price.most(features.prompt_tokens, features.output_tokens or _OUTPUT_TOKENS)


def features_of(request: GenerationRequest, who: Principal) -> RequestFeatures:
    """Return the features of a checked request."""
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        texts = [one.content for one in prompt.messages]
        said = [one.content for one in prompt.messages if one.role == "user"] or texts[-1:]
        pictures = any(one.parts for one in prompt.messages)
    else:
        assert isinstance(prompt, TextPrompt)
        texts = said = [prompt.text + prompt.suffix]
        pictures = False
    return RequestFeatures(
        said,
        tokens_of(texts),
        request.sampling.max_tokens or 0,
        request.tools is not None and request.tools.calls is not CallMode.NONE,
        request.sampling.grammar is not None,
        pictures,
        who.tenant.tier.value,
        class_name(who.capped(request.priority)),
    )


def field_of_token_ids(request: GenerationRequest) -> str | None:
    """Return a field of a request that names tokens, which differ between models; None: none."""
    if isinstance(request.prompt, TokenPrompt):
        return request.prompt.field
    for each in _OF_TOKENS:
        if getattr(request.sampling, each.name) != each.default:
            return request.names.get(each.name, each.name)
    return None


def no_model(rule: str, errors: Mapping[str, BatonError]) -> BatonError:
    """Return the error of a request that none of the models can serve.

    Args:
        rule: the rule that chose them; empty: none did.
        errors: by model, in order of preference.
    """
    first = next(iter(errors.values()))
    if len(errors) == 1:
        return first
    each = "; ".join(f"{name}: {error.message}" for name, error in errors.items())
    return BatonError(
        first.reason,
        f"none of the models that auto chooses for this request ({_by(rule)}) can serve it: {each}",
        field=first.field,
    )


def _check(request: GenerationRequest) -> None:
    """Check that no field needs a model that the client knows.

    Raises:
        BatonError: INVALID_FIELD, UNSUPPORTED_PARAMETER.
    """
    if request.adapter:
        raise invalid_field("adapter", "auto chooses models and adapters: name a model with it")
    if request.resume is not None:
        raise invalid_field("model", "a stream is resumed with the model that began it, not auto")
    name = "by auto, as token ids depend on the model: name a model"
    if (field := field_of_token_ids(request)) is not None:
        raise unsupported(field, why=name)


def _by(rule: str) -> str:
    return f"rule {rule}" if rule else "no rule matches"
