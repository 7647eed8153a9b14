"""What an upstream needs to know of a request."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from services.frontend.providers.formats import UpstreamStream
from services.frontend.workers.events import ProviderOutput


class UpstreamCall(NamedTuple):
    """One request to an upstream."""

    body: bytes
    stream: Callable[[], UpstreamStream]
    """Returns a new reader of the answer, for each attempt."""
    on_output: Callable[[list[ProviderOutput]], None]
    """Receives output as it arrives. Must not wait."""
    readable: Callable[[], "asyncio.Future[None] | None"]
    """Returns what to wait for before more is read; None: nothing."""
