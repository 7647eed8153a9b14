"""Channels to the members of an etcd cluster; one at a time is in use."""

import asyncio
import random
from collections.abc import Sequence
from itertools import cycle

import grpc

from baton.rpc.tls.watch import CertificateWatch

_READY, _FAILED = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
_OPTIONS: list[tuple[str, int | str]] = [
    # One name may stand for all members, as a headless Service's does.
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),  # a new pod has a new address
    ("grpc.keepalive_time_ms", 10_000),  # etcd allows 5 s, and only while calls run
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
_POLL_SECONDS = 0.01


class EtcdChannels:
    """A channel per endpoint, all kept connected; calls go to one until it fails, then to the next.

    gRPC resolves a name again whenever a connection to it breaks, so an endpoint may move. The
    first channel is chosen at random, so that the processes of a cluster spread over the members.

    Args:
        endpoints: `host:port` each, names or IPv4 or IPv6 addresses.
        resolver: `host:port` of the DNS server used to resolve names; empty: the system's.
        certificate: enables TLS; calls that begin after it was replaced present the new one.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        resolver: str = "",
        certificate: CertificateWatch[grpc.ChannelCredentials] | None = None,
    ) -> None:
        self._targets = [f"dns://{resolver}/{endpoint}" for endpoint in endpoints]
        random.shuffle(self._targets)
        self._certificate = certificate
        self._open()

    def _open(self) -> None:
        """Open channels with the current certificate.

        A channel keeps the certificate that it was made with. Older channels close once nothing
        refers to them, that is when the last call on them has ended.
        """
        if self._certificate is None:
            self._shown = None
            channels = [grpc.aio.insecure_channel(target, _OPTIONS) for target in self._targets]
        else:
            shown = self._shown = self._certificate.current
            channels = [grpc.aio.secure_channel(one, shown, _OPTIONS) for one in self._targets]
        self._channels = channels
        self._turns = cycle(self._channels)
        self._current = next(self._turns)

    async def pick(self, seconds: float) -> grpc.aio.Channel:
        """Return the channel for a call: the one in use, or another that is connected.

        If none is connected, wait for one. If all have failed or `seconds` have passed, return one
        that is not connected: a call on it reports the reason.
        """
        if self._certificate is not None and self._certificate.current is not self._shown:
            self._open()
        if len(self._channels) == 1:
            return self._current
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while True:
            states = []
            for _ in self._channels:
                state = self._current.get_state(try_to_connect=True)
                if state is _READY:
                    return self._current
                states.append(state)
                self._current = next(self._turns)
            if all(state is _FAILED for state in states) or clock() >= deadline:
                return self._current
            await asyncio.sleep(_POLL_SECONDS)

    def failed(self, channel: grpc.aio.Channel) -> None:
        """Switch to the next channel after a call on this one failed: one member may be cut off."""
        if channel is self._current:
            self._current = next(self._turns)

    async def close(self) -> None:
        """Cancel the calls and close the connections."""
        for channel in self._channels:
            await channel.close(None)
