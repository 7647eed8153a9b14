"""What the accounts of a request need to know of its progress, wherever it runs."""

from collections.abc import Sequence
from typing import Protocol

from baton.request.stream_events import FinishReason
from baton.usage.path import RequestPath
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.requests.request import ResolvedRequest


class OutputProgress(Protocol):
    """The output of one choice."""

    @property
    def reason(self) -> FinishReason | None:
        """Why it ended; None while it continues."""


class Progress(Protocol):
    """The outputs and usage of one request."""

    request: ResolvedRequest
    usage: RequestUsage

    @property
    def outputs(self) -> Sequence[OutputProgress]:
        """One per choice."""

    @property
    def output_tokens(self) -> int:
        """Output tokens so far, over all choices."""

    def path(self, now: float) -> RequestPath:
        """Return the path of the request, which ends now."""
