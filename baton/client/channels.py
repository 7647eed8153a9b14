"""The channels of a client: one for an address, a succession of them for a name in DNS.

gRPC asks for the addresses of a name again only when a connection ends: a channel does not notice
new frontends for as long as no old one goes. A client of a name therefore makes a new channel now
and then, which asks anew. It costs no connections: gRPC shares those of equal channels.
"""

import asyncio
import json
import math
import threading
import time
from typing import Any, Generic, TypeVar, cast

import grpc

from baton.client.authorization import authorized
from baton.v1.inference_pb2_grpc import InferenceServiceStub

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    # A frontend that fell silent is noticed within 3 s while a stream waits for it; one that just
    # gets little of a processor is not. gRPC 1.8x waits for the longer one of the two timeouts.
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    # One that came back is reached within a second of it. What gRPC calls the least backoff is the
    # time that a connection has until its first frame: one that gets little of a processor answers.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
BALANCING_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # Once a connection has ended: the name is asked for at most so often.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]
RESOLVE_SECONDS = 5.0
"""A name is asked for anew so often, while calls begin."""
MANY_CHANNELS = 8
"""With more old ones, which long streams keep, it is asked for more rarely."""

_SETTLED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)

ChannelT = TypeVar("ChannelT")
"""`grpc.Channel` or `grpc.aio.Channel`."""


class SharedChannel(Generic[ChannelT]):
    """A channel, its stub, and how many calls are open on it."""

    __slots__ = ("calls", "channel", "ready", "stub")

    def __init__(self, channel: ChannelT, api_key: str) -> None:
        self.channel = channel
        self.stub: Any = authorized(InferenceServiceStub(cast(Any, channel)), api_key)
        self.calls = 0
        self.ready = False
        """It can take calls; told only of one that is to follow another."""


class _Channels(Generic[ChannelT]):
    """What both kinds share. Threads may use it: `_lock` is of everything below it."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials | None, api_key: str
    ) -> None:
        """Open a channel to a gRPC target; nothing is sent yet. Each call shows the key, if any."""
        self._api_key = api_key
        self._address = address
        self._credentials = credentials
        self.balanced = address.startswith("dns:")
        """Whether calls are spread over all addresses of the name."""
        self._options: list[tuple[str, Any]] = list(CHANNEL_OPTIONS)
        if self.balanced:
            self._options += BALANCING_OPTIONS
        self._lock = threading.Lock()
        self._current = SharedChannel(self._open(), self._api_key)
        self._next: SharedChannel[ChannelT] | None = None
        """Asks for the addresses; takes the place of `current` once it has connections."""
        self._old: list[SharedChannel[ChannelT]] = []
        """On which calls are open that began before."""
        self._resolve_at = time.monotonic() + RESOLVE_SECONDS

    def take(self) -> SharedChannel[ChannelT]:
        """Return the channel for a call that begins; its end is to be told to `release`."""
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
        """Take back the channel of a call that has ended, on any thread."""
        with self._lock:  # not closed here: gRPC's own threads come this way
            shared.calls -= 1

    def _renew(self, now: float) -> list[SharedChannel[ChannelT]]:
        """Follow the name; return the channels that no call needs any more."""
        unused = [shared for shared in self._old if not shared.calls]
        self._old = [shared for shared in self._old if shared.calls]
        following = self._next
        if following is not None and self._is_ready(following):
            (self._old if self._current.calls else unused).append(self._current)
            self._current, self._next = following, None
        elif now >= self._resolve_at:
            if following is not None:  # the name has no addresses, or none that takes connections
                unused.append(following)
            seconds = RESOLVE_SECONDS * max(1.0, len(self._old) / MANY_CHANNELS)
            self._resolve_at = now + seconds
            self._next = SharedChannel(self._open(), self._api_key)
            self._connect(self._next)
        return unused

    def _end(self) -> list[ChannelT]:
        """Follow the name no more; return the channels to close."""
        with self._lock:
            self._resolve_at = math.inf
            following, self._next = [] if self._next is None else [self._next], None
            return [shared.channel for shared in (self._current, *following, *self._old)]

    def _open(self) -> ChannelT:
        raise NotImplementedError

    def _connect(self, shared: SharedChannel[ChannelT]) -> None:
        """Let it ask for the addresses and connect."""
        raise NotImplementedError

    def _is_ready(self, shared: SharedChannel[ChannelT]) -> bool:
        """Return whether it has a connection, without waiting."""
        raise NotImplementedError

    def _close(self, channel: ChannelT) -> None:
        """Close one on which no call is open, without waiting."""
        raise NotImplementedError


class BlockingChannels(_Channels[grpc.Channel]):
    """The channels of a client that threads share."""

    def close(self) -> None:
        """Close all, cancelling the calls that are open on them."""
        for channel in self._end():
            channel.close()

    def _open(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._address, options=self._options)
        return grpc.secure_channel(self._address, self._credentials, options=self._options)

    def _connect(self, shared: SharedChannel[grpc.Channel]) -> None:
        def on_state(state: grpc.ChannelConnectivity) -> None:
            shared.ready = state is grpc.ChannelConnectivity.READY
            if state in _SETTLED:  # gRPC has a thread for as long as somebody is told
                shared.channel.unsubscribe(on_state)

        shared.channel.subscribe(on_state, try_to_connect=True)

    def _is_ready(self, shared: SharedChannel[grpc.Channel]) -> bool:
        return shared.ready

    def _close(self, channel: grpc.Channel) -> None:
        channel.close()


class AsyncChannels(_Channels[grpc.aio.Channel]):
    """The channels of an asyncio client. Belongs to its event loop."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials | None, api_key: str
    ) -> None:
        """Open a channel to a gRPC target; nothing is sent yet. Each call shows the key, if any."""
        super().__init__(address, credentials, api_key)
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close all, cancelling the calls that are open on them."""
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
