"""The upstreams of all providers, each with the connections of its own.

The HTTP client is imported with the first provider: a frontend without any does not load it.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from baton.host.networks import AllowedNetworks
from baton.process.background import start_background
from baton.tenancy.records.providers import Provider

if TYPE_CHECKING:
    from services.frontend.providers.upstream import Upstream


class Upstreams:
    """Keeps an upstream per provider that is used. Lives on the event loop.

    A provider that changes gets a new upstream; the old one is closed once its requests have ended.

    Args:
        networks: where upstreams may be.
        clock: returns monotonic seconds.
    """

    def __init__(self, networks: AllowedNetworks, clock: Callable[[], float] = monotonic) -> None:
        self._networks = networks
        self._clock = clock
        self._upstreams: dict[str, Upstream] = {}
        self._running: dict[Upstream, int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Upstreams":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._closing:
            await asyncio.wait(self._closing)
        for upstream in self._running:
            await upstream.close()

    def load(self) -> None:
        """Import the HTTP client, so that the first request does not have to."""
        from services.frontend.providers import upstream  # noqa: F401

    def require_open(self, provider: Provider) -> None:
        """Check that a request to a provider may begin now.

        Raises:
            BatonError: as for `Upstream.require_open`.
        """
        known = self._upstreams.get(provider.id)
        if known is not None and known.provider == provider:
            known.require_open()

    def enter(self, provider: Provider) -> "Upstream":
        """Return the upstream of a provider for one request, which calls `leave` at its end."""
        from services.frontend.providers.upstream import Upstream

        known = self._upstreams.get(provider.id)
        if known is None or known.provider != provider:
            made = self._upstreams[provider.id] = Upstream(provider, self._networks, self._clock)
            self._running[made] = 0
            if known is not None:
                self._close_unused(known)
            known = made
        self._running[known] += 1
        return known

    def leave(self, upstream: "Upstream") -> None:
        """Record that a request has ended."""
        self._running[upstream] -= 1
        self._close_unused(upstream)

    def _close_unused(self, upstream: "Upstream") -> None:
        if self._running[upstream] or self._upstreams.get(upstream.provider.id) is upstream:
            return
        del self._running[upstream]
        task = start_background(upstream.close(), "close an upstream")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
