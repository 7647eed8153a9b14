"""What streaming calls of the public services share."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from baton.errors import BatonError, Reason
from baton.request.stream_events import Event
from baton.rpc.request_id import REQUEST_ID_KEY
from baton.rpc.server.call import ServerCall
from services.frontend.generation.generation import Generation
from services.frontend.generation.inference import Inference
from services.frontend.metrics import SLOW_CLIENTS
from services.frontend.requests.rate_limits import rate_limits
from services.frontend.requests.record import RequestRecord


@contextmanager
def sending_head(
    inference: Inference, context: ServerCall, record: RequestRecord, identity: str
) -> Iterator[None]:
    """Send the head of a call: before the block, which starts its request, or after it, with what
    is left of the key's limits."""
    head = ((REQUEST_ID_KEY, identity),)
    inference.limits_of(record)
    if record.limits is None:
        context.send_head(head)
    try:
        yield
    finally:
        if record.limits is not None:
            context.send_head((*head, *rate_limits(record.limits)))


async def follow_call(
    generation: Generation, context: ServerCall, take: Callable[[list[Event]], bool]
) -> None:
    """Deliver the events of a call's request, at the pace at which its client reads.

    Raises:
        BatonError: the request failed.
    """
    context.on_pause, context.on_resume = generation.buffer.pause, generation.buffer.resume
    try:
        await generation.follow(take)
    except BatonError as error:
        generation.failed(error.reason)
        raise
    except asyncio.CancelledError:
        if isinstance(context.failure, BatonError):  # its deadline passed, or it did not read
            generation.failed(context.failure.reason)
        count_cut(context.failure)
        raise
    finally:
        context.on_pause = context.on_resume = None
        generation.close()


def count_cut(failure: Exception | None) -> None:
    """Count a client that was cut off because it did not read."""
    if isinstance(failure, BatonError) and failure.reason is Reason.SLOW_CONSUMER:
        SLOW_CLIENTS.labels("grpc").inc()
