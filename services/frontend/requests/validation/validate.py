"""The validator of requests, the same for gRPC and HTTP.

Every error names the field, the limit and the value. `check` requires only the request and the
caller; it calls `prompts`, `tools` and `parameters`. Once the model is known, `model_checks`
follows; with the tokens of the prompt, `grammar` and `bans`, then `resolve`. Fields have the names
of the OpenAI API.
"""

from collections.abc import Callable

from baton.errors import BatonError, Reason, invalid_field
from baton.rpc.request_id import MAX_REQUEST_ID, clean_request_id
from baton.settings import FrontendLimits
from baton.tenancy.directory.principal import LOCAL, Principal
from baton.v1 import common_pb2
from services.frontend.requests.refusals import out_of_range
from services.frontend.requests.request import GenerationRequest
from services.frontend.requests.validation.parameters import check_parameters
from services.frontend.requests.validation.prompts import check_prompt
from services.frontend.requests.validation.tools import check_tools

_PRIORITIES = frozenset(common_pb2.PriorityClass.values())


def check(
    request: GenerationRequest,
    limits: FrontendLimits,
    principal: Principal,
    require_model: Callable[[Principal, str, str], None] = Principal.require_model,
) -> None:
    """Check everything that does not depend on the model, but on the caller.

    Args:
        request: the client's request.
        limits: bounds of its parameters.
        principal: the caller.
        require_model: raises MODEL_NOT_ALLOWED if the caller may not use a model, or its adapter.

    Raises:
        BatonError: the first invalid field.
    """
    if not request.model:
        raise invalid_field("model", "is required; /v1/models lists the models")
    if request.tenant not in ("", principal.tenant.id):
        if principal is LOCAL:
            raise invalid_field("tenant", f"the only tenant is {principal.tenant.id!r}")
        raise BatonError(
            Reason.PERMISSION_DENIED,
            "tenant: the API key belongs to another tenant; omit the field",
            field="tenant",
        )
    require_model(principal, request.model, request.adapter)
    if request.execution_id and not clean_request_id(request.execution_id):
        raise invalid_field(
            request.names.get("execution_id", "execution_id"),
            f"must have at most {MAX_REQUEST_ID} printable ASCII characters and no spaces, and "
            "cannot be an API key",
        )
    if request.cache_scope not in (
        common_pb2.CACHE_SCOPE_UNSPECIFIED,
        common_pb2.CACHE_SCOPE_TENANT,
    ):
        raise invalid_field("cache_scope", "the model's policy does not allow a shared cache")
    if request.priority not in _PRIORITIES:
        raise invalid_field("priority", f"{request.priority} is not a priority class")
    if not 1 <= request.n <= limits.max_choices:
        raise out_of_range(request.names.get("n", "n"), request.n, 1, limits.max_choices)
    _check_seconds("ttft_target_seconds", request.ttft_target_seconds, limits)
    _check_seconds("timeout_seconds", request.timeout_seconds, limits)
    check_prompt(request.prompt, limits)
    if request.tools is not None:
        check_tools(request.tools)
    check_parameters(request)


def _check_seconds(field: str, value: float, limits: FrontendLimits) -> None:
    most = limits.max_deadline_seconds
    if not 0 <= value <= most:
        raise invalid_field(field, f"{value} is out of range: 0 (none) to {most:g} seconds")
