"""Resolve a client's request to the body that a provider gets, and the most that it may use."""

import msgspec

from baton.tenancy.directory.principal import Principal
from baton.v1 import common_pb2
from services.frontend.generation.at_provider.progress import BYTES_PER_TOKEN
from services.frontend.models.model import ProvidedBy, ResolvedModel
from services.frontend.providers.formats import FORMATS
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.refusals import unsupported
from services.frontend.requests.request import ChatPrompt, GenerationRequest, ResolvedRequest
from services.frontend.requests.validation.prompts import too_long

_encode = msgspec.json.encode


def resolve_at_provider(
    request: GenerationRequest,
    found: ResolvedModel,
    at: ProvidedBy,
    principal: Principal,
    context: RequestContextLimit,
    most_tokens: int | None,
) -> ResolvedRequest:
    """Return the request that runs at a provider, from a checked one.

    The tokenizer is unknown: the prompt's tokens are estimated by the size of the body, and bounded
    by it, as no token is shorter than a byte. The provider checks its own context.

    Args:
        request: the client's request, after `check`.
        found: the model that it names.
        at: its provider.
        principal: the caller.
        context: the most tokens of prompt and output.
        most_tokens: the most tokens of prompt and all outputs if the request sets no maximum; None:
            any number.

    Raises:
        BatonError: the provider does not take a field, or the request is too long.
    """
    if not isinstance(request.prompt, ChatPrompt):
        raise unsupported(
            request.prompt.field,
            why=f"by the provider of model {at.model.name!r}, {at.provider.id}, which takes "
            "conversations only; send messages to /v1/chat/completions",
        )
    api = FORMATS[at.provider.api]
    body = api.body_of(request, request.prompt, at)
    size = len(_encode(body))
    tokens = max(1, size // BYTES_PER_TOKEN)
    bound = size + api.added_tokens(body)
    room = min(context.tokens - tokens, at.model.output_tokens)
    if room < 1:
        raise too_long(request.prompt, context, f"about {tokens}")
    params = request.sampling
    max_tokens = min(room, request.most_output or room)
    if params.max_tokens is not None:
        max_tokens = params.max_tokens
    if params.max_tokens is None and most_tokens is not None:
        most = most_tokens // request.prompt_count - tokens
        max_tokens = max(1, min(max_tokens, most // request.n))
    name = request.names.get("max_tokens", "max_tokens")
    if max_tokens > room:
        raise context.exceeded(
            f"However, you requested {max_tokens} output tokens and about {tokens} in the "
            f"messages. {name} can be at most {room}; omit it to use all",
            name,
        )
    if max_tokens < 1:
        raise unsupported(name, why=f"0 by the provider {at.provider.id}; request at least one")
    body[api.limit_field(at)] = max_tokens
    return ResolvedRequest(
        context=common_pb2.RequestContext(
            request_id=request.request_id,
            tenant=principal.tenant.id,
            priority=common_pb2.PriorityClass.ValueType(principal.capped(request.priority)),
            model=found.model.name,
            ttft_target_seconds=request.ttft_target_seconds,
        ),
        model=found.model,
        prompt=range(tokens),
        sampling=common_pb2.SamplingParams(max_tokens=max_tokens),
        stop=params.stop,
        n=request.n,
        body=_encode(body),
        prompt_bound=bound,
    )
