"""Channels to the members of an etcd cluster, of which one at a time is used."""

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

    gRPC resolves a name again whenever a connection to it broke, so an endpoint may move. The first
    one is drawn, so that the members share the processes of a cluster.

    Args:
        endpoints: `host:port` each, names and addresses of either kind.
        resolver: `host:port` of the DNS server that is asked for names; empty: the system's.
        certificate: to speak TLS; calls that begin after it was replaced show the new one.
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
        """Open channels with the certificate of now.

        A channel keeps the one that it was made with. Those before close once nothing refers to
        them: when the last call on them has ended, and no sooner.
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

        While none is, wait for one; return one that is not connected where all have failed or
        `seconds` are over: a call on it says why.
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
        """Use the next one, because a call on this one failed; one member may be cut off."""
        if channel is self._current:
            self._current = next(self._turns)

    async def close(self) -> None:
        """Cancel the calls and close the connections."""
        for channel in self._channels:
            await channel.close(None)
