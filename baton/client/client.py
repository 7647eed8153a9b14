"""`Client` and `AsyncClient`. Requests and decisions are in `call`, `state` and `retry`."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Self, TypeVar, Unpack

import grpc

from baton.client.authorization import api_key_of
from baton.client.call import (
    CallDefaults,
    Model,
    Tokens,
    draw_id,
    metadata,
    models_of,
    tokens_of,
)
from baton.client.channels import AsyncChannels, BlockingChannels
from baton.client.conversations.aio import AsyncConversations
from baton.client.conversations.blocking import Conversations
from baton.client.conversations.calls import ConversationCall
from baton.client.conversations.message import MessageOptions
from baton.client.errors import StreamClosedError, client_error
from baton.client.requests import (
    ChatOptions,
    GenerateOptions,
    Message,
    PicturePart,
    TextPart,
    tokenize_request,
)
from baton.client.retry import Attempts, RetryPolicy
from baton.client.session.pool import AsyncCalls, BlockingCalls
from baton.client.stream import AsyncStream, Stream
from baton.v1 import inference_pb2

DEFAULT_TIMEOUT = 600.0
DEFAULT_RETRIES = 2
T = TypeVar("T")


class Client:
    """Client of a Baton frontend. Threads may share it; each stream belongs to one thread."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
    ) -> None:
        """Create a client of a frontend; nothing is sent yet.

        Args:
            address: `host:port`, or any gRPC target. With `ipv4:10.0.0.1:50051,10.0.0.2:50051` the
                first reachable address is used; with `dns:///frontends:50051` all addresses of the
                name in turn, and new ones within seconds.
            timeout: seconds that a call may take, retries included.
            retries: maximum retries of a call where that is safe: nothing was received, and the
                cluster is unavailable or reported when to retry.
            credentials: for a frontend that serves TLS, as `grpc.ssl_channel_credentials()`; None:
                the connection is not encrypted.
            api_key: for a frontend that requires one; None: that of BATON_API_KEY, if set.
        """
        self._calls = CallDefaults(timeout, RetryPolicy(retries))
        self._channels = BlockingChannels(address, credentials, api_key_of(api_key))
        self._streams = BlockingCalls(self._channels)
        self.conversations = Conversations(self._stored, self._message)
        """Stored conversations and responses."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, cancelling all open calls."""
        self._streams.close(StreamClosedError("the client is closed"))
        self._channels.close()

    def generate(
        self, prompt: str | Sequence[int], *, model: str, **options: Unpack[GenerateOptions]
    ) -> Stream:
        """Continue a text, or token ids without further processing."""
        state = self._calls.generate(prompt, model, options, time.monotonic())
        return Stream(state, self._streams.open)

    def chat(
        self, messages: str | Sequence[Message], *, model: str, **options: Unpack[ChatOptions]
    ) -> Stream:
        """Generate the next turn of a conversation; a string is one user message."""
        state = self._calls.chat(messages, model, options, time.monotonic())
        return Stream(state, self._streams.open)

    def tokenize(
        self, text: str | Sequence[Message], *, model: str, timeout: float | None = None
    ) -> Tokens:
        """Return the token ids of text as `generate` uses them, or of messages as `chat` does."""
        request = tokenize_request(text, model)
        return tokens_of(self._unary("Tokenize", request, timeout))

    def detokenize(
        self, token_ids: Sequence[int], *, model: str, timeout: float | None = None
    ) -> str:
        """Return the text of token ids, special tokens included."""
        request = inference_pb2.DetokenizeRequest(model=model, token_ids=token_ids)
        return str(self._unary("Detokenize", request, timeout).text)

    def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """Return the models that are served now, sorted by name."""
        request = inference_pb2.ListModelsRequest()
        return models_of(self._unary("ListModels", request, timeout))

    def _message(
        self,
        conversation: str,
        content: str | Sequence[TextPart | PicturePart],
        options: MessageOptions,
    ) -> Stream:
        state = self._calls.message(conversation, content, options, time.monotonic())
        return Stream(state, self._streams.open)

    def _stored(self, call: ConversationCall[T], timeout: float | None) -> T:
        now, repeatable = time.monotonic(), call.repeatable
        attempts = self._calls.unary_attempts(timeout, now, repeatable=repeatable)
        return call.read(self._attempt("conversations", call.method, call.request, attempts))

    def _unary(self, method: str, request: Any, timeout: float | None) -> Any:
        attempts = self._calls.attempts(timeout, time.monotonic())
        return self._attempt("stub", method, request, attempts)

    def _attempt(self, stub: str, method: str, request: Any, attempts: Attempts) -> Any:
        request_id = draw_id()
        while True:
            left = attempts.timeout(time.monotonic())
            shared = self._channels.take()
            try:
                call = getattr(getattr(shared, stub), method)
                return call(request, timeout=left, metadata=metadata(request_id))
            except grpc.RpcError as failure:
                error = client_error(failure, request_id)
                error.__cause__ = failure
                wait = attempts.failed(error, time.monotonic(), random.random())
            finally:
                self._channels.release(shared)
            time.sleep(wait)


class AsyncClient:
    """`Client` for asyncio. Create it inside the event loop that uses it."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
    ) -> None:
        """Take the same arguments as `Client`."""
        self._calls = CallDefaults(timeout, RetryPolicy(retries))
        self._channels = AsyncChannels(address, credentials, api_key_of(api_key))
        self._streams = AsyncCalls(self._channels)
        self.conversations = AsyncConversations(self._stored, self._message)
        """Stored conversations and responses."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, cancelling all open calls."""
        self._streams.close(StreamClosedError("the client is closed"))
        await self._channels.close()

    def generate(
        self, prompt: str | Sequence[int], *, model: str, **options: Unpack[GenerateOptions]
    ) -> AsyncStream:
        """Continue a text, or token ids without further processing."""
        state = self._calls.generate(prompt, model, options, time.monotonic())
        return AsyncStream(state, self._streams.open)

    def chat(
        self, messages: str | Sequence[Message], *, model: str, **options: Unpack[ChatOptions]
    ) -> AsyncStream:
        """Generate the next turn of a conversation; a string is one user message."""
        state = self._calls.chat(messages, model, options, time.monotonic())
        return AsyncStream(state, self._streams.open)

    async def tokenize(
        self, text: str | Sequence[Message], *, model: str, timeout: float | None = None
    ) -> Tokens:
        """Return the token ids of text as `generate` uses them, or of messages as `chat` does."""
        request = tokenize_request(text, model)
        return tokens_of(await self._unary("Tokenize", request, timeout))

    async def detokenize(
        self, token_ids: Sequence[int], *, model: str, timeout: float | None = None
    ) -> str:
        """Return the text of token ids, special tokens included."""
        request = inference_pb2.DetokenizeRequest(model=model, token_ids=token_ids)
        return str((await self._unary("Detokenize", request, timeout)).text)

    async def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """Return the models that are served now, sorted by name."""
        request = inference_pb2.ListModelsRequest()
        return models_of(await self._unary("ListModels", request, timeout))

    def _message(
        self,
        conversation: str,
        content: str | Sequence[TextPart | PicturePart],
        options: MessageOptions,
    ) -> AsyncStream:
        state = self._calls.message(conversation, content, options, time.monotonic())
        return AsyncStream(state, self._streams.open)

    async def _stored(self, call: ConversationCall[T], timeout: float | None) -> T:
        now, repeatable = time.monotonic(), call.repeatable
        attempts = self._calls.unary_attempts(timeout, now, repeatable=repeatable)
        return call.read(await self._attempt("conversations", call.method, call.request, attempts))

    async def _unary(self, method: str, request: Any, timeout: float | None) -> Any:
        attempts = self._calls.attempts(timeout, time.monotonic())
        return await self._attempt("stub", method, request, attempts)

    async def _attempt(self, stub: str, method: str, request: Any, attempts: Attempts) -> Any:
        request_id = draw_id()
        while True:
            left = attempts.timeout(time.monotonic())
            shared = self._channels.take()
            try:
                call = getattr(getattr(shared, stub), method)
                return await call(request, timeout=left, metadata=metadata(request_id))
            except grpc.RpcError as failure:
                error = client_error(failure, request_id)
                error.__cause__ = failure
                wait = attempts.failed(error, time.monotonic(), random.random())
            finally:
                self._channels.release(shared)
            await asyncio.sleep(wait)
