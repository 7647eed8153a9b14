"""A channel to one process, for generated stubs."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from baton.errors import BatonError, Reason
from baton.rpc.channel.call import ClientCall
from baton.rpc.channel.connection import ClientConnection
from baton.rpc.tls import mutual
from baton.rpc.transport import liveness
from baton.rpc.transport.inbox import END
from baton.rpc.wire.messages import Parts
from baton.settings import LivenessSettings
from baton.telemetry.scope import detached_context

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_WAITING = 10_000
"""Calls that may wait for the connection, or for the server to accept more of them."""
_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
"""Time for the server to take the data written last."""

Make = Callable[[Any], bytes | Parts]
Parse = Callable[[Any], Any]
"""Takes `Data`, although generated code declares only bytes."""


class Channel:
    """Makes calls to one address, through generated stubs: `channel.stub(ServiceStub).Method()`.

    Nothing is sent before the first call. After a connection broke, the next call makes one attempt
    to reconnect, without a delay: a call whose connection cannot be made fails with UNAVAILABLE.

    Calls beyond the server's limit (SETTINGS_MAX_CONCURRENT_STREAMS, which a client must
    not exceed: RFC 9113, section 5.1.2) wait for one to end, as with every gRPC client. No second
    connection is made for them: a server bounds its streams because it bounds its work.

    Calls to a server that is silent for longer than the process's liveness settings allow fail.

    The channel uses TLS if its process uses TLS inside the cluster.

    Args:
        address: `host:port`.
        patience_seconds: time to connect, and silence after which the server counts as gone; None:
            5 s and the liveness settings.
    """

    def __init__(self, address: str, patience_seconds: float | None = None) -> None:
        self._address = address
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._liveness = liveness.current()
        self._connect_seconds = _CONNECT_SECONDS
        if patience_seconds is not None:
            half = patience_seconds / 2
            self._liveness = LivenessSettings(ping_seconds=half, answer_seconds=half)
            self._connect_seconds = patience_seconds
        self._tls = mutual.current()
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[ClientCall] = deque()
        self._old: set[ClientConnection] = set()
        """Connections that accept no new calls."""
        self._closed = False

    async def __aenter__(self) -> "Channel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every call with CANCELLED, and close the connection. Idempotent."""
        self._closed = True
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait((connecting,))
        error = BatonError(Reason.CANCELLED, "the channel is closed")
        self._fail_waiting(error)
        connection, self._connection = self._connection, None
        open_ones = [*self._old, *([connection] if connection is not None else [])]
        for one in open_ones:
            one.cancel_calls(error)
            one.close()
        for seconds in (_CLOSE_SECONDS, None):
            # The sockets are closed in the next iteration of the loop, which may be its last.
            pending = [one for one in open_ones if one.alive]
            if pending:
                await asyncio.wait([one.lost for one in pending], timeout=seconds)
            for one in pending:
                one.abort()
        self._old.clear()

    def stub(self, generated: Any) -> Any:
        """Return a generated stub over this channel; its types are of grpc.aio's calls."""
        return generated(self)

    # The interface that generated stubs use.

    def unary_unary(
        self, path: str, request_serializer: Make, response_deserializer: Parse, **_: Any
    ) -> Callable[..., Any]:
        """Return a function that calls a method: `await call(request, timeout=…)`."""

        async def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> Any:
            made = self._call(path, request_serializer, response_deserializer, timeout, metadata)
            made.send(request)
            try:
                response = await made.read()
                if response is END or await made.read() is not END:
                    raise BatonError(Reason.INTERNAL, "expected exactly one response")
                return response
            finally:
                made.cancel()

        return call

    def unary_stream(
        self, path: str, request_serializer: Make, response_deserializer: Parse, **_: Any
    ) -> Callable[..., ClientCall]:
        """Return a function that opens a call of a method: `call(request)`."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> ClientCall:
            made = self._call(path, request_serializer, response_deserializer, timeout, metadata)
            made.send(request)
            return made

        return call

    def stream_stream(
        self, path: str, request_serializer: Make, response_deserializer: Parse, **_: Any
    ) -> Callable[..., ClientCall]:
        """Return a function that opens a call of a method: `call()`."""

        def call(*, timeout: float | None = None, metadata: Any = ()) -> ClientCall:
            return self._call(
                path, request_serializer, response_deserializer, timeout, metadata, several=True
            )

        return call

    def _call(
        self,
        path: str,
        serialize: Make,
        deserialize: Parse,
        timeout: float | None,
        metadata: Any,
        *,
        several: bool = False,
    ) -> ClientCall:
        call = ClientCall(
            path,
            serialize,
            deserialize,
            MAX_MESSAGE_BYTES,
            timeout,
            tuple(metadata),
            one_request=not several,
        )
        if self._closed:
            call.fail(BatonError(Reason.CANCELLED, "the channel is closed"))
        elif self._connection is not None and self._connection.has_room and not self._waiting:
            self._connection.open(call)
        else:
            self._wait(call)
        return call

    def _wait(self, call: ClientCall) -> None:
        """Queue a call until the connection exists and has capacity for it."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting = deque(one for one in self._waiting if not one.ended)
        if len(self._waiting) >= MAX_WAITING:
            call.fail(BatonError(Reason.NO_CAPACITY, f"{MAX_WAITING} calls are waiting to be sent"))
            return
        self._waiting.append(call)
        self._connect_if_needed()

    def _connect_if_needed(self) -> None:
        if self._connection is None and self._connecting is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_task(self._connect(), context=detached_context())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        authority = self._address.encode()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(
                        authority, self._retire, self._on_room, self._liveness, self._tls
                    ),
                    self._host,
                    self._port,
                    ssl=None if self._tls is None else self._tls.client_context,
                )
        except (OSError, TimeoutError) as error:
            self._connecting = None
            why = str(error) or f"no response within {self._connect_seconds:g} s"
            self._fail_waiting(
                BatonError(Reason.UNAVAILABLE, f"cannot connect to {self._address}: {why}")
            )
            return
        self._connecting = None
        self._connection = connection
        self._open_waiting()

    def _on_room(self) -> None:
        if self._waiting:  # deferred: a call is in the middle of ending
            asyncio.get_running_loop().call_soon(self._open_waiting)

    def _open_waiting(self) -> None:
        while self._waiting and self._connection is not None and self._connection.has_room:
            call = self._waiting.popleft()
            if not call.ended:
                self._connection.open(call)

    def _fail_waiting(self, error: BatonError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.fail(error)

    def _retire(self, connection: ClientConnection) -> None:
        if connection is self._connection:
            self._connection = None
        if connection.alive:
            self._old.add(connection)
        else:
            self._old.discard(connection)
        if self._waiting:
            self._connect_if_needed()
