"""Choose how streams are called: separately while few are open, on sessions when many are."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import grpc

from baton.client.call import metadata
from baton.client.channels import AsyncChannels, BlockingChannels, SharedChannel
from baton.client.errors import BatonClientError
from baton.client.plain import AsyncCall, AsyncPlainCall, BlockingCall, BlockingPlainCall
from baton.client.session.aio import AsyncSession, AsyncSessionCall
from baton.client.session.requests import fits_session
from baton.client.session.threads import BlockingSession, BlockingSessionCall
from baton.client.state import Request
from baton.v1 import conversations_pb2, inference_pb2

MANY = 2
"""Number of open streams from which the next one uses a session."""
BALANCED_REQUESTS = 16
"""A session is one call, and so stays at one frontend. Where calls are distributed over several
frontends, a session takes this many requests in its life, and later ones use a new session.
"""
UNSUPPORTED_SECONDS = 60.0
"""Seconds after which a frontend without session support is tried again."""


def _rpc(shared: SharedChannel[Any], request: Request) -> Any:
    """Return the method of a request."""
    if isinstance(request, conversations_pb2.SendMessageRequest):
        return shared.conversations.SendMessage
    chat = isinstance(request, inference_pb2.ChatRequest)
    return shared.stub.Chat if chat else shared.stub.Generate


class AsyncCalls:
    """Streaming calls of an asyncio client. Belongs to its event loop."""

    def __init__(self, channels: AsyncChannels) -> None:
        """Create calls on these channels."""
        self._channels = channels
        self._most = BALANCED_REQUESTS if channels.balanced else None
        self._plain = 0
        self._sessions: list[AsyncSession] = []
        self._without_sessions_until = 0.0

    def open(self, request: Request, timeout: float) -> AsyncCall:
        """Begin a request that may take `timeout` seconds."""
        many = self._plain + sum(map(len, self._sessions)) >= MANY
        if many and timeout > 0 and fits_session(request):
            session = self._session()
            if session is not None:
                return AsyncSessionCall(session, request, timeout, self._open_plain)
        return self._open_plain(request, timeout)

    def close(self, error: BatonClientError) -> None:
        """Close all sessions; their requests fail with `error`."""
        for session in self._sessions:
            session.close(error)
        self._sessions = []

    def _session(self) -> AsyncSession | None:
        for session in self._sessions:
            if session.takes_more:
                return session
        if asyncio.get_running_loop().time() < self._without_sessions_until:
            return None
        shared = self._channels.take()
        session = AsyncSession(shared.stub, partial(self._closed, shared), self._most)
        self._sessions.append(session)
        return session

    def _closed(
        self, shared: SharedChannel[grpc.aio.Channel], session: AsyncSession, unsupported: bool
    ) -> None:
        self._channels.release(shared)
        if session in self._sessions:
            self._sessions.remove(session)
        if unsupported:
            now = asyncio.get_running_loop().time()
            self._without_sessions_until = now + UNSUPPORTED_SECONDS

    def _open_plain(self, request: Request, timeout: float) -> AsyncPlainCall:
        request_id = request.context.request_id
        shared = self._channels.take()
        call = _rpc(shared, request)(request, timeout=timeout, metadata=metadata(request_id))
        self._plain += 1
        return AsyncPlainCall(call, request_id, partial(self._plain_ended, shared))

    def _plain_ended(self, shared: SharedChannel[grpc.aio.Channel]) -> None:
        self._plain -= 1
        self._channels.release(shared)


class BlockingCalls:
    """Streaming calls of a client that threads share."""

    def __init__(self, channels: BlockingChannels) -> None:
        """Create calls on these channels."""
        self._channels = channels
        self._most = BALANCED_REQUESTS if channels.balanced else None
        self._lock = threading.Lock()
        self._plain = 0
        self._sessions: list[BlockingSession] = []
        self._without_sessions_until = 0.0

    def open(self, request: Request, timeout: float) -> BlockingCall:
        """Begin a request that may take `timeout` seconds."""
        if timeout > 0 and fits_session(request):
            session = self._session()
            if session is not None:
                return BlockingSessionCall(session, request, timeout, self._open_plain)
        return self._open_plain(request, timeout)

    def close(self, error: BatonClientError) -> None:
        """Close all sessions; their requests fail with `error`."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.close(error)

    def _session(self) -> BlockingSession | None:
        with self._lock:
            if self._plain + sum(map(len, self._sessions)) < MANY:
                return None
            for session in self._sessions:
                if session.takes_more:
                    return session
            if time.monotonic() < self._without_sessions_until:
                return None
            shared = self._channels.take()
            session = BlockingSession(shared.stub, partial(self._closed, shared), self._most)
            self._sessions.append(session)
            return session

    def _closed(
        self, shared: SharedChannel[grpc.Channel], session: BlockingSession, unsupported: bool
    ) -> None:
        self._channels.release(shared)
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)
            if unsupported:
                self._without_sessions_until = time.monotonic() + UNSUPPORTED_SECONDS

    def _open_plain(self, request: Request, timeout: float) -> BlockingPlainCall:
        request_id = request.context.request_id
        shared = self._channels.take()
        call = _rpc(shared, request)(request, timeout=timeout, metadata=metadata(request_id))
        with self._lock:
            self._plain += 1
        return BlockingPlainCall(call, request_id, partial(self._plain_ended, shared))

    def _plain_ended(self, shared: SharedChannel[grpc.Channel]) -> None:
        with self._lock:
            self._plain -= 1
        self._channels.release(shared)
