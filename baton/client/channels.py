"""Channels of a client: one for an address, a succession of them for a DNS name.

gRPC resolves a name again only when a connection ends: a channel does not notice new frontends as
long as no old one is stopped. A client of a name therefore opens a new channel from time to time,
which resolves the name anew. This costs no connections: gRPC shares those of equal channels.
"""

import asyncio
import json
import math
import threading
import time
from typing import Any, Generic, TypeVar, cast

import grpc

from baton.client.authorization import authorized
from baton.v1.conversations_pb2_grpc import ConversationServiceStub
from baton.v1.inference_pb2_grpc import InferenceServiceStub

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    # A silent frontend is detected within 3 s while a stream waits for it; one that is only short
    # of CPU time is not. gRPC 1.8x waits for the longer of the two timeouts.
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A frontend that recovered is reached within a second. gRPC's minimum backoff is the time that
    # a connection has until its first frame: one that is short of CPU time still responds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
BALANCING_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # Minimum time between resolutions of the name once a connection has ended.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]
RESOLVE_SECONDS = 5.0
"""Seconds between resolutions of a name while calls begin."""
MANY_CHANNELS = 8
"""With more old channels, which long streams keep open, the name is resolved less often."""

_SETTLED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)

ChannelT = TypeVar("ChannelT")
"""`grpc.Channel` or `grpc.aio.Channel`."""


class SharedChannel(Generic[ChannelT]):
    """A channel, its stub, and its number of open calls."""

    __slots__ = ("calls", "channel", "conversations", "ready", "stub")

    def __init__(self, channel: ChannelT, api_key: str) -> None:
        self.channel = channel
        self.stub: Any = authorized(InferenceServiceStub(cast(Any, channel)), api_key)
        self.conversations: Any = authorized(ConversationServiceStub(cast(Any, channel)), api_key)
        self.calls = 0
        self.ready = False
        """Whether it can take calls; tracked only for a channel that is to replace another."""


class _Channels(Generic[ChannelT]):
    """Base of both kinds of channels. Threads may use it: `_lock` protects every field below it."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials | None, api_key: str
    ) -> None:
        """Open a channel to a gRPC target; nothing is sent yet. Calls carry the API key, if any."""
        self._api_key = api_key
        self._address = address
        self._credentials = credentials
        self.balanced = address.startswith("dns:")
        """Whether calls are distributed over all addresses of the name."""
        self._options: list[tuple[str, Any]] = list(CHANNEL_OPTIONS)
        if self.balanced:
            self._options += BALANCING_OPTIONS
        self._lock = threading.Lock()
        self._current = SharedChannel(self._open(), self._api_key)
        self._next: SharedChannel[ChannelT] | None = None
        """Channel that resolves the addresses; replaces `current` once it is connected."""
        self._old: list[SharedChannel[ChannelT]] = []
        """Replaced channels on which earlier calls are still open."""
        self._resolve_at = time.monotonic() + RESOLVE_SECONDS

    def take(self) -> SharedChannel[ChannelT]:
        """Return the channel for a new call; pass it to `release` when the call ends."""
        unused: list[SharedChannel[ChannelT]] = []
        with self._lock:
            if self.balanced:
                unused = self._renew(time.monotonic())
            current = self._current
            current.calls += 1
        for shared in unused:
            self._close(shared.channel)
        return current

    def release(self, shared: SharedChannel[ChannelT]) -> None:
        """Release the channel of a call that has ended, on any thread."""
        with self._lock:  # not closed here: gRPC's own threads call this
            shared.calls -= 1

    def _renew(self, now: float) -> list[SharedChannel[ChannelT]]:
        """Resolve the name again; return the channels that no call needs any more."""
        unused = [shared for shared in self._old if not shared.calls]
        self._old = [shared for shared in self._old if shared.calls]
        following = self._next
        if following is not None and self._is_ready(following):
            (self._old if self._current.calls else unused).append(self._current)
            self._current, self._next = following, None
        elif now >= self._resolve_at:
            if following is not None:  # the name has no addresses, or none that accepts connections
                unused.append(following)
            seconds = RESOLVE_SECONDS * max(1.0, len(self._old) / MANY_CHANNELS)
            self._resolve_at = now + seconds
            self._next = SharedChannel(self._open(), self._api_key)
            self._connect(self._next)
        return unused

    def _end(self) -> list[ChannelT]:
        """Stop resolving the name; return the channels to close."""
        with self._lock:
            self._resolve_at = math.inf
            following, self._next = [] if self._next is None else [self._next], None
            return [shared.channel for shared in (self._current, *following, *self._old)]

    def _open(self) -> ChannelT:
        raise NotImplementedError

    def _connect(self, shared: SharedChannel[ChannelT]) -> None:
        """Have the channel resolve its name and connect."""
        raise NotImplementedError

    def _is_ready(self, shared: SharedChannel[ChannelT]) -> bool:
        """Return whether the channel is connected, without waiting."""
        raise NotImplementedError

    def _close(self, channel: ChannelT) -> None:
        """Close a channel that has no open calls, without waiting."""
        raise NotImplementedError


class BlockingChannels(_Channels[grpc.Channel]):
    """Channels of a client that threads share."""

    def close(self) -> None:
        """Close all channels, cancelling their open calls."""
        for channel in self._end():
            channel.close()

    def _open(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._address, options=self._options)
        return grpc.secure_channel(self._address, self._credentials, options=self._options)

    def _connect(self, shared: SharedChannel[grpc.Channel]) -> None:
        def on_state(state: grpc.ChannelConnectivity) -> None:
            shared.ready = state is grpc.ChannelConnectivity.READY
            if state in _SETTLED:  # gRPC keeps a thread for as long as there is a subscriber
                shared.channel.unsubscribe(on_state)

        shared.channel.subscribe(on_state, try_to_connect=True)

    def _is_ready(self, shared: SharedChannel[grpc.Channel]) -> bool:
        return shared.ready

    def _close(self, channel: grpc.Channel) -> None:
        channel.close()


class AsyncChannels(_Channels[grpc.aio.Channel]):
    """Channels of an asyncio client. Belongs to its event loop."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials | None, api_key: str
    ) -> None:
        """Open a channel to a gRPC target; nothing is sent yet. Calls carry the API key, if any."""
        super().__init__(address, credentials, api_key)
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close all channels, cancelling their open calls."""
        for channel in self._end():
            await channel.close(None)
        await asyncio.gather(*self._closing)

    def _open(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._address, options=self._options)
        return grpc.aio.secure_channel(self._address, self._credentials, options=self._options)

    def _connect(self, shared: SharedChannel[grpc.aio.Channel]) -> None:
        shared.channel.get_state(try_to_connect=True)

    def _is_ready(self, shared: SharedChannel[grpc.aio.Channel]) -> bool:
        return shared.channel.get_state() is grpc.ChannelConnectivity.READY

    def _close(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(None))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
