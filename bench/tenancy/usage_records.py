"""Requests as far as usage records are concerned: what they asked for, came to, and their end."""

import asyncio
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

from baton.internal.v1 import cluster_pb2
from baton.request.prices import Price
from baton.request.stream_events import FinishReason
from baton.usage.path import RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.accounting.metering import RequestMeter, cost_of
from services.frontend.generation.progress import RequestProgress
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.models.model import ServedModel
from services.frontend.requests.request import ResolvedRequest

PRICE = Price(100, 50, 400)
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 200


def resolved_request() -> ResolvedRequest:
    """Return a request as it runs."""
    card = cluster_pb2.ModelCard(name="org/model", weights_digest=bytes(32), context_tokens=8192)
    return ResolvedRequest(
        context=common_pb2.RequestContext(
            request_id=f"req-{0:024x}", tenant="default", model="org/model"
        ),
        model=ServedModel("org/model", cast(Any, None), (card,)),
        prompt=[1] * PROMPT_TOKENS,
        sampling=common_pb2.SamplingParams(),
        stop=(),
        n=1,
    )


def progress_since(arrived: float) -> RequestProgress:
    """Return what a request came to."""
    usage = RequestUsage(PROMPT_TOKENS, arrived)
    usage.first_token_at = arrived + 0.05
    output = SimpleNamespace(reason=FinishReason.LENGTH)
    return cast(
        RequestProgress,
        SimpleNamespace(usage=usage, outputs=[output], output_tokens=OUTPUT_TOKENS),
    )


async def end_all(meters: list[RequestMeter], progress: RequestProgress) -> None:
    """End requests, and return once the client of the last one may be told."""
    last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for meter in meters[:-1]:
        meter.end(progress, "ok", cost_of(progress, PRICE), _path(progress), "", _nothing)
    cost, path = cost_of(progress, PRICE), _path(progress)
    meters[-1].end(progress, "ok", cost, path, "", lambda: last.set_result(None))
    await last


def _path(progress: RequestProgress) -> RequestPath:
    return progress.usage.path(common_pb2.RequestContext(), monotonic())


def _nothing() -> None:
    """Tell a client."""
