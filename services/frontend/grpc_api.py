"""The public gRPC service."""

import asyncio
from typing import Any

import grpc

from baton.rpc.errors import BatonError, Reason
from baton.rpc.interceptor import REQUEST_ID_KEY
from baton.telemetry.context import request_id
from baton.v1 import inference_pb2, inference_pb2_grpc
from services.frontend.events import Event
from services.frontend.grpc_convert import ask_of, fill, messages_of
from services.frontend.identity import identify
from services.frontend.inference import Inference
from services.frontend.metrics import SLOW_CLIENTS
from services.frontend.request import TextPrompt

SERVICE = "baton.v1.InferenceService"
STALL_SECONDS = 30.0
"""A client that lets a write wait for longer is cut."""

Context = grpc.aio.ServicerContext[Any, Any]
Response = type[inference_pb2.GenerateResponse] | type[inference_pb2.ChatResponse]


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Answers clients. Errors are BatonErrors, which the server's interceptor turns into status."""

    def __init__(self, inference: Inference, stall_seconds: float = STALL_SECONDS) -> None:
        self._inference = inference
        self._stall_seconds = stall_seconds

    # Writes instead of yielding, to see stalls.
    async def Generate(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> None:
        await self._stream(request, context, "text_completion", inference_pb2.GenerateResponse)

    async def Chat(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.ChatRequest, context: Context
    ) -> None:
        await self._stream(request, context, "chat", inference_pb2.ChatResponse)

    async def Tokenize(  # noqa: N802
        self, request: inference_pb2.TokenizeRequest, context: Context
    ) -> inference_pb2.TokenizeResponse:
        await _announce(context, identify(request_id.get()))
        prompt = (
            messages_of(request.messages)
            if request.messages and not request.text
            else TextPrompt(request.text)
        )
        model, ids = await self._inference.tokenize(request.model, prompt)
        return inference_pb2.TokenizeResponse(token_ids=ids, context_tokens=model.context_tokens)

    async def ListModels(  # noqa: N802
        self,
        request: inference_pb2.ListModelsRequest,  # noqa: ARG002 - it has no fields yet
        context: Context,
    ) -> inference_pb2.ListModelsResponse:
        await _announce(context, identify(request_id.get()))
        return inference_pb2.ListModelsResponse(
            models=[
                inference_pb2.Model(
                    name=model.name,
                    context_tokens=model.context_tokens,
                    vocab_tokens=model.vocab_tokens,
                    features=model.features,
                    created_seconds=model.created_seconds,
                )
                for model in self._inference.registry.listed()
            ]
        )

    async def _stream(
        self,
        request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest,
        context: Context,
        operation: str,
        response_type: Response,
    ) -> None:
        identity = identify(request.context.request_id, request_id.get())
        await _announce(context, identity)
        ask = ask_of(request, identity)
        generation = await self._inference.start(ask, operation, context.time_remaining())
        try:
            while not generation.finished:
                for event in await generation.next():
                    await self._write(context, response_type, event)
        except BatonError as error:
            generation.failed(error.reason)
            raise
        finally:
            generation.close()

    async def _write(self, context: Context, response_type: Response, event: Event) -> None:
        response = response_type()
        fill(response, event)
        try:
            async with asyncio.timeout(self._stall_seconds):
                await context.write(response)
        except TimeoutError:
            SLOW_CLIENTS.labels("grpc").inc()
            raise BatonError(
                Reason.SLOW_CONSUMER, f"the client did not read for {self._stall_seconds:g} s"
            ) from None


async def _announce(context: Context, identity: str) -> None:
    await context.send_initial_metadata(((REQUEST_ID_KEY, identity),))
