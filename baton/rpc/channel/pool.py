"""Channels by address."""

from baton.rpc.channel.channel import Channel


class ChannelPool:
    """One channel per address, opened at first use, closed with the pool or by `drop`."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    async def __aenter__(self) -> "ChannelPool":
        return self

    async def __aexit__(self, *_: object) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    def get(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(address)
        return channel

    async def drop(self, address: str) -> None:
        """Close the channel of an address, ending its calls; no error if there is none."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()
