"""Checks the models that lines name: on the event loop, which owns what is known of them."""

from collections.abc import Callable

from baton.errors import BatonError, Reason
from baton.tenancy.directory.principal import Principal
from baton.v1 import common_pb2
from services.frontend.generation.inference import Inference
from services.frontend.openai.batches.checking.errors import InputError, InputErrors
from services.frontend.openai.batches.checking.lines import CheckedLine
from services.frontend.openai.batches.running.outputs import waits

ModelCheck = Callable[[Principal, str], None]
"""Raises a BatonError if a caller's batches may not ask for a model of that name."""

_LATER = frozenset({Reason.NO_WORKER, Reason.MODEL_LOADING})
"""The model exists, and will be there."""


class ModelChecks:
    """The models of one batch.

    Args:
        check: of one name.
        who: created the batch.
        errors: gets those of lines.
    """

    def __init__(self, check: ModelCheck, who: Principal, errors: InputErrors) -> None:
        self.errors = errors
        self._check = check
        self._who = who
        self._known: dict[str, BatonError | None] = {}

    @property
    def only(self) -> str:
        """The model that all lines name; empty: several."""
        return next(iter(self._known)) if len(self._known) == 1 else ""

    def check(self, checked: CheckedLine) -> None:
        """Check the model of a line."""
        (number, *_), model = checked
        if model not in self._known:
            self._known[model] = self._error_of(model)
        if (error := self._known[model]) is not None:
            code = error.reason.openai_code
            self.errors.add(InputError(code, error.message, number, "body.model"))

    def _error_of(self, model: str) -> BatonError | None:
        try:
            self._check(self._who, model)
        except BatonError as error:
            return error
        return None


def is_away(inference: Inference, name: str) -> bool:
    """Return whether requests for a model would only wait: it has no worker, none starts, and no
    other model may answer."""
    registry = inference.registry
    if not name or registry.is_auto(name):
        return False
    alias = registry.alias(name)
    main = name if alias is None else alias.main
    policy = inference.policies.get(main)
    if policy is not None and policy.fallbacks:
        return False
    try:
        registry.get(main)
    except BatonError as error:
        return waits(error)
    return not registry.expects(main)


def check_model(inference: Inference, who: Principal, name: str) -> None:
    """Check that a model exists, and that the caller's batches may ask for it.

    Raises:
        BatonError: it does not, or they may not.
    """
    registry, policies = inference.registry, inference.policies
    registry.aliases.require(who, name)
    if registry.is_auto(name):
        return
    alias = registry.alias(name)
    try:
        found = registry.get(name if alias is None else alias.main)
    except BatonError as error:
        if error.reason in _LATER:
            return
        raise
    policies.require(who, found)
    policies.require_class(found, who.capped(common_pb2.PRIORITY_CLASS_BATCH))
