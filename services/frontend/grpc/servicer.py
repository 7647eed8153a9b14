"""The public gRPC service."""

import asyncio
from typing import Any

import grpc

from baton.errors import BatonError, Reason
from baton.rpc.interceptor import REQUEST_ID_KEY, UNKNOWN_METHOD, CallEnd
from baton.stream_events import event_to_proto
from baton.telemetry.context import request_id
from baton.v1 import inference_pb2, inference_pb2_grpc
from services.frontend.generation.inference import Inference
from services.frontend.grpc.convert import generation_request, messages_of
from services.frontend.metrics import SLOW_CLIENTS
from services.frontend.requests.record import RequestRecord, begin, current, finish
from services.frontend.requests.request import TextPrompt
from services.frontend.requests.request_id import identify

SERVICE = "baton.v1.InferenceService"

_OPERATIONS = {
    f"/{SERVICE}/Generate": "text_completion",
    f"/{SERVICE}/Chat": "chat",
    f"/{SERVICE}/Tokenize": "tokenize",
    f"/{SERVICE}/ListModels": "list_models",
}
"""What is recorded of a call to a method."""

Context = grpc.aio.ServicerContext[Any, Any]
Response = type[inference_pb2.GenerateResponse] | type[inference_pb2.ChatResponse]


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Answers clients. Errors are BatonErrors, which the server's interceptor turns into status."""

    def __init__(self, inference: Inference, stall_seconds: float) -> None:
        """Serve `inference`; a client that lets a write wait for `stall_seconds` is cut."""
        self._inference = inference
        self._stall_seconds = stall_seconds

    # Writes instead of yielding, to see stalls.
    async def Generate(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> None:
        record = _begin("Generate")
        await self._stream(request, context, record, inference_pb2.GenerateResponse)

    async def Chat(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.ChatRequest, context: Context
    ) -> None:
        await self._stream(request, context, _begin("Chat"), inference_pb2.ChatResponse)

    async def Tokenize(  # noqa: N802
        self, request: inference_pb2.TokenizeRequest, context: Context
    ) -> inference_pb2.TokenizeResponse:
        record = _begin("Tokenize")
        await _announce(context, identify(request_id.get()))
        prompt = (
            messages_of(request.messages)
            if request.messages and not request.text
            else TextPrompt(request.text)
        )
        model, ids = await self._inference.tokenize(request.model, prompt, record)
        return inference_pb2.TokenizeResponse(token_ids=ids, context_tokens=model.context_tokens)

    async def ListModels(  # noqa: N802
        self,
        request: inference_pb2.ListModelsRequest,  # noqa: ARG002 - it has no fields yet
        context: Context,
    ) -> inference_pb2.ListModelsResponse:
        _begin("ListModels")
        await _announce(context, identify(request_id.get()))
        return inference_pb2.ListModelsResponse(
            models=[
                inference_pb2.Model(
                    name=model.name,
                    context_tokens=model.context_tokens,
                    vocab_tokens=model.vocab_tokens,
                    features=model.features,
                    created_seconds=model.created_seconds,
                    exact_continuation=model.exact_continuation,
                    adapters=sorted(model.adapters),
                )
                for model in self._inference.registry.listed()
            ]
        )

    async def _stream(
        self,
        request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest,
        context: Context,
        record: RequestRecord,
        response_type: Response,
    ) -> None:
        identity = identify(request.context.request_id, request_id.get())
        await _announce(context, identity)
        asked = generation_request(request, identity)
        generation = await self._inference.start(asked, record, context.time_remaining())
        writes = _Writes(context, self._stall_seconds)
        try:
            while not generation.finished:
                for event in await generation.next():
                    response = response_type()
                    event_to_proto(event, response)
                    await writes.write(response)
        except BatonError as error:
            generation.failed(error.reason)
            raise
        finally:
            writes.close()
            generation.close()


class _Writes:
    """Writes to a call; a client that lets one wait for too long is cut.

    One timer looks now and then, instead of one timer per message.
    """

    def __init__(self, context: Context, seconds: float) -> None:
        self._context = context
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        """Loop time at which the write that waits began."""
        self._cut = False
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(seconds, self._look)

    async def write(self, response: Any) -> None:
        """Write one message.

        Raises:
            BatonError: SLOW_CONSUMER.
        """
        self._since = self._loop.time()
        try:
            await self._context.write(response)
        except asyncio.CancelledError:
            if not self._cut or self._task is None or self._task.uncancel():
                raise
            SLOW_CLIENTS.labels("grpc").inc()
            raise BatonError(
                Reason.SLOW_CONSUMER, f"the client did not read for {self._seconds:g} s"
            ) from None
        finally:
            self._since = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        left = self._seconds
        if self._since is not None:
            left -= self._loop.time() - self._since
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        elif self._task is not None:
            self._cut = True
            self._task.cancel()


def record_call(end: CallEnd) -> None:
    """Record the end of a call, unless it is of health or reflection: no client's request."""
    operation = _OPERATIONS.get(end.method)
    if operation is None and end.method != UNKNOWN_METHOD:
        return
    if not request_id.get():
        identify()
    try:
        record = current()
    except LookupError:  # refused before any method
        record = RequestRecord("grpc")
        record.operation = operation or record.operation
    record.error = end.error
    finish(record, end.code.name)


def _begin(method: str) -> RequestRecord:
    record = begin("grpc")
    record.operation = _OPERATIONS[f"/{SERVICE}/{method}"]
    return record


async def _announce(context: Context, identity: str) -> None:
    await context.send_initial_metadata(((REQUEST_ID_KEY, identity),))
