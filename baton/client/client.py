"""`Client` and `AsyncClient`. What they ask and decide is in `call`, `state` and `retry`."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, Unpack

import grpc

from baton.client.call import (
    CHANNEL_OPTIONS,
    Calls,
    Model,
    Tokens,
    draw_request_id,
    metadata,
    models_of,
    tokens_of,
)
from baton.client.errors import client_error
from baton.client.requests import Message, Options, tokenize_request
from baton.client.retry import RetryPolicy
from baton.client.state import StreamState
from baton.client.stream import AsyncStream, OpenCall, Stream
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub

DEFAULT_TIMEOUT = 600.0
DEFAULT_RETRIES = 2


class Client:
    """Speaks to a Baton frontend. Threads may share it; a stream belongs to one thread."""

    def __init__(
        self, address: str, *, timeout: float = DEFAULT_TIMEOUT, retries: int = DEFAULT_RETRIES
    ) -> None:
        """Name the frontend; nothing is sent yet.

        Args:
            address: `host:port`, or any gRPC target, such as `ipv4:10.0.0.1:50051,10.0.0.2:50051`.
            timeout: seconds that a call may take, retries included.
            retries: how often a call is tried again where that is safe: nothing was received, and
                the cluster is unavailable or said when to come back.
        """
        self._calls = Calls(timeout, RetryPolicy(retries))
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = InferenceServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, cancelling what still runs on it."""
        self._channel.close()

    def generate(
        self, prompt: str | Sequence[int], *, model: str, **options: Unpack[Options]
    ) -> Stream:
        """Continue text, or token ids as they are."""
        state = self._calls.generate(prompt, model, options, time.monotonic())
        return Stream(state, _opener(self._stub.Generate, state))

    def chat(
        self, messages: str | Sequence[Message], *, model: str, **options: Unpack[Options]
    ) -> Stream:
        """Ask for the next turn of a conversation; a string is one user message."""
        state = self._calls.chat(messages, model, options, time.monotonic())
        return Stream(state, _opener(self._stub.Chat, state))

    def tokenize(
        self, text: str | Sequence[Message], *, model: str, timeout: float | None = None
    ) -> Tokens:
        """Return token ids of text as `generate` uses them, of messages as `chat` does."""
        request = tokenize_request(text, model)
        return tokens_of(self._unary(self._stub.Tokenize, request, timeout))

    def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """Return the models that are served now, sorted by name."""
        request = inference_pb2.ListModelsRequest()
        return models_of(self._unary(self._stub.ListModels, request, timeout))

    def _unary(self, rpc: Callable[..., Any], request: Any, timeout: float | None) -> Any:
        attempts = self._calls.attempts(timeout, time.monotonic())
        request_id = draw_request_id()
        while True:
            left = attempts.timeout(time.monotonic())
            try:
                return rpc(request, timeout=left, metadata=metadata(request_id))
            except grpc.RpcError as failure:
                error = client_error(failure, request_id)
                error.__cause__ = failure
                time.sleep(attempts.failed(error, time.monotonic(), random.random()))


class AsyncClient:
    """`Client` for asyncio. Make it inside the event loop that uses it."""

    def __init__(
        self, address: str, *, timeout: float = DEFAULT_TIMEOUT, retries: int = DEFAULT_RETRIES
    ) -> None:
        """Take the same arguments as `Client`."""
        self._calls = Calls(timeout, RetryPolicy(retries))
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = InferenceServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, cancelling what still runs on it."""
        await self._channel.close(None)

    def generate(
        self, prompt: str | Sequence[int], *, model: str, **options: Unpack[Options]
    ) -> AsyncStream:
        """Continue text, or token ids as they are."""
        state = self._calls.generate(prompt, model, options, time.monotonic())
        return AsyncStream(state, _opener(self._stub.Generate, state))

    def chat(
        self, messages: str | Sequence[Message], *, model: str, **options: Unpack[Options]
    ) -> AsyncStream:
        """Ask for the next turn of a conversation; a string is one user message."""
        state = self._calls.chat(messages, model, options, time.monotonic())
        return AsyncStream(state, _opener(self._stub.Chat, state))

    async def tokenize(
        self, text: str | Sequence[Message], *, model: str, timeout: float | None = None
    ) -> Tokens:
        """Return token ids of text as `generate` uses them, of messages as `chat` does."""
        request = tokenize_request(text, model)
        return tokens_of(await self._unary(self._stub.Tokenize, request, timeout))

    async def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """Return the models that are served now, sorted by name."""
        request = inference_pb2.ListModelsRequest()
        return models_of(await self._unary(self._stub.ListModels, request, timeout))

    async def _unary(self, rpc: Callable[..., Any], request: Any, timeout: float | None) -> Any:
        attempts = self._calls.attempts(timeout, time.monotonic())
        request_id = draw_request_id()
        while True:
            left = attempts.timeout(time.monotonic())
            try:
                return await rpc(request, timeout=left, metadata=metadata(request_id))
            except grpc.RpcError as failure:
                error = client_error(failure, request_id)
                error.__cause__ = failure
                await asyncio.sleep(attempts.failed(error, time.monotonic(), random.random()))


def _opener(rpc: Callable[..., Any], state: StreamState) -> OpenCall:
    beside = metadata(state.request_id)
    return lambda request, timeout: rpc(request, timeout=timeout, metadata=beside)
