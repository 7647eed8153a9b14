"""The same request at a second provider, for callers that pay for a low latency."""

from dataclasses import replace

import msgspec

from baton.errors import BatonError
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.tenants import Tier
from baton.v1 import common_pb2
from services.frontend.models.model import ProvidedBy
from services.frontend.providers.formats import FORMATS
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    HedgeRequest,
    ResolvedRequest,
)


def with_hedge(
    made: ResolvedRequest, request: GenerationRequest, second: ProvidedBy | None, who: Principal
) -> ResolvedRequest:
    """Return a request with what a second provider gets, if its caller pays and waits for it.

    It has none if the second provider does not take one of its fields.

    Args:
        made: the request at its own provider.
        request: the client's request.
        second: the other provider's model; None: there is none.
        who: the caller.
    """
    prompt = request.prompt
    if second is None or not isinstance(prompt, ChatPrompt):
        return made
    batch = made.context.priority == common_pb2.PRIORITY_CLASS_BATCH
    if batch or who.tenant.tier is Tier.FREE:
        return made
    api = FORMATS[second.provider.api]
    try:
        body = api.body_of(request, prompt, second)
    except BatonError:
        return made
    added = api.added_tokens(body)
    body[api.limit_field(second)] = made.sampling.max_tokens
    encoded = msgspec.json.encode(body)
    bound = max(made.prompt_bound, len(encoded) + added)
    return replace(made, hedge=HedgeRequest(second, encoded), prompt_bound=bound)
